# SPDX-License-Identifier: MIT
# Programs and libraries that run on older systems than the one that builds them: on every glibc from
# 2.28 on (RHEL 8, Debian 10, NGC's images), with libstdc++ inside.
option(KDVFS_OLD_GLIBC "Let the installed programs run on glibc 2.28 and newer" ON)

find_program(KDVFS_OBJDUMP objdump)
mark_as_advanced(KDVFS_OBJDUMP)
set(kdvfs_old_glibc OFF)
if(KDVFS_OLD_GLIBC AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND KDVFS_OBJDUMP AND Python3_FOUND AND
   CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize|--coverage")
    enable_language(C)
    set(folder ${PROJECT_SOURCE_DIR}/tools/old_glibc)
    set(stubs ${PROJECT_BINARY_DIR}/old_glibc)
    execute_process(COMMAND ${Python3_EXECUTABLE} ${folder}/stub_libraries.py ${stubs}
                            --compiler ${CMAKE_C_COMPILER} --newest 2.28
                    RESULT_VARIABLE failed ERROR_VARIABLE why)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/stub_libraries.py)
    if(failed)  # another C library than glibc
        message(STATUS "kdvfs: the installed programs need this machine's glibc or a newer one: ${why}")
    else()
        set(kdvfs_old_glibc ON)
        foreach(part replacements start)
            add_library(kdvfs_old_glibc_${part} OBJECT ${folder}/${part}.c)
            target_compile_options(kdvfs_old_glibc_${part} PRIVATE -O2 -fPIC -Wall -Wextra -Werror)
        endforeach()
    endif()
endif()

# kdvfs_run_on_old_glibc(TARGET): links TARGET against the stubs, where this machine can.
function(kdvfs_run_on_old_glibc target)
    if(NOT kdvfs_old_glibc)
        return()
    endif()
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:kdvfs_old_glibc_replacements>)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:kdvfs_old_glibc_start>)
        target_link_options(${target} PRIVATE LINKER:--wrap=__libc_start_main)
    endif()
    target_link_options(${target} PRIVATE -L${PROJECT_BINARY_DIR}/old_glibc -static-libstdc++
                        -static-libgcc LINKER:--exclude-libs,ALL
                        LINKER:--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -l:librt.so.1)
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS
                 ${PROJECT_BINARY_DIR}/old_glibc/libc.so)
endfunction()
