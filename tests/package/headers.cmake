# SPDX-License-Identifier: MIT
# Every public header compiles alone, under the project's warnings, with the compiler of this build
# (the preset clang takes the other one); all of them together compile after macros with unfriendly
# names with each compiler at hand, and may be included by several files of one program.

# kdvfs_includes(HEADER OUT): all that HEADER includes, itself or through headers of kdvfs; what is
# asked for with __has_include is left out.
function(kdvfs_includes header out)
    set(found ${header})
    set(open ${header})
    while(open)
        list(POP_FRONT open next)
        kdvfs_own_includes(${next} includes)
        list(REMOVE_ITEM includes ${found} "")
        list(APPEND found ${includes})
        list(APPEND open ${includes})
    endwhile()
    list(POP_FRONT found)
    set(${out} ${found} PARENT_SCOPE)
endfunction()

# kdvfs_own_includes(HEADER OUT): what HEADER itself includes, read once; nothing where it is not of kdvfs.
function(kdvfs_own_includes header out)
    get_property(known GLOBAL PROPERTY kdvfs_includes_of_${header} SET)
    if(NOT known)
        set(includes)
        if(EXISTS ${PROJECT_SOURCE_DIR}/include/${header})
            file(READ ${PROJECT_SOURCE_DIR}/include/${header} text)
            string(REGEX MATCHALL "# *include <[^>]+>" lines "${text}")
            foreach(line ${lines})
                string(REGEX REPLACE ".*<(.*)>" "\\1" included "${line}")
                string(FIND "${text}" "__has_include(<${included}>)" optional)
                if(optional EQUAL -1)
                    list(APPEND includes ${included})
                endif()
            endforeach()
        endif()
        set_property(GLOBAL PROPERTY kdvfs_includes_of_${header} "${includes}")
    endif()
    get_property(includes GLOBAL PROPERTY kdvfs_includes_of_${header})
    set(${out} ${includes} PARENT_SCOPE)
endfunction()

# What is not installed here, as patterns of its headers.
set(absent "^$")
foreach(dependency MPI:mpi\\.h)
    string(REPLACE ":" ";" dependency ${dependency})
    list(GET dependency 0 package)
    list(GET dependency 1 headers)
    if(NOT TARGET ${package}::${package} AND NOT TARGET ${package}::${package}_CXX)
        string(APPEND absent "|^${headers}")
    endif()
endforeach()
find_path(KDVFS_NVML_INCLUDE_DIR nvml.h HINTS ${CudaHeaders_INCLUDE_DIR})
mark_as_advanced(KDVFS_NVML_INCLUDE_DIR)
if(NOT KDVFS_NVML_INCLUDE_DIR)
    string(APPEND absent "|^nvml\\.h$")
endif()

set(header_flags -std=c++20 ${kdvfs_warning_options} -Werror -I${PROJECT_SOURCE_DIR}/include)
foreach(target Microsoft.GSL::GSL Eigen3::Eigen nlohmann_json::nlohmann_json HipHost::HipHost
        CudaHeaders::CudaHeaders MPI::MPI_CXX)
    if(TARGET ${target})
        get_target_property(directories ${target} INTERFACE_INCLUDE_DIRECTORIES)
        foreach(directory ${directories})
            # The compiler finds these itself, and must find them in its own order.
            if(NOT directory STREQUAL "/usr/include")
                list(APPEND header_flags -isystem${directory})
            endif()
        endforeach()
    endif()
endforeach()
if(TARGET HipHost::HipHost)
    list(APPEND header_flags -D__HIP_PLATFORM_AMD__)
endif()
list(APPEND header_flags -DOMPI_SKIP_MPICXX)

# kdvfs_compile(STAMPS NAME SOURCE compiler... [FLAGS flag...]): SOURCE is compiled with each compiler,
# without making code of it. A file that says so, out of date when any header that SOURCE includes is,
# is appended to the list STAMPS.
function(kdvfs_compile stamps name source)
    cmake_parse_arguments(arg "" "" "FLAGS" ${ARGN})
    foreach(compiler ${arg_UNPARSED_ARGUMENTS})
        get_filename_component(compiler_name ${compiler} NAME)
        set(stamp ${CMAKE_CURRENT_BINARY_DIR}/headers/${compiler_name}/${name}.compiles)
        add_custom_command(OUTPUT ${stamp}
            COMMAND ${compiler} ${header_flags} ${arg_FLAGS} -fsyntax-only -MD -MF ${stamp}.d -MT ${stamp} ${source}
            COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
            DEPENDS ${source} DEPFILE ${stamp}.d
            COMMENT "Compiling ${name} with ${compiler_name}" VERBATIM)
        list(APPEND ${stamps} ${stamp})
    endforeach()
    set(${stamps} ${${stamps}} PARENT_SCOPE)
endfunction()

set(header_stamps)
set(soak_header_stamps)
set(everything)
set(external)
foreach(path ${kdvfs_headers})
    file(RELATIVE_PATH header ${PROJECT_SOURCE_DIR}/include ${path})
    kdvfs_includes(${header} includes)
    set(missing ${includes})
    list(FILTER missing INCLUDE REGEX "${absent}")
    if(missing)
        message(STATUS "Not compiling ${header}: no ${missing}")
        continue()
    endif()
    list(FILTER includes EXCLUDE REGEX "^kdvfs/")
    list(APPEND external ${includes})
    string(APPEND everything "#include <${header}>\n")
    string(REPLACE "/" "_" name ${header})
    set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${name}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include <${header}>\n")
    set(stamps header_stamps)
    set(form)
    if(KDVFS_SHORT_BUILD)
        # What public headers declare; their engine is in those of detail/, which the soak compiles
        # alone, and in all headers together below.
        if(header MATCHES "^kdvfs/.*/")
            set(stamps soak_header_stamps)
        else()
            set(form FLAGS -DKDVFS_COMPILED=1)
        endif()
    endif()
    kdvfs_compile(${stamps} ${name} ${source} ${CMAKE_CXX_COMPILER} ${form})
endforeach()
list(REMOVE_DUPLICATES external)
list(FILTER external EXCLUDE REGEX "^compile_with_")  # ends the compilation of an earlier standard
list(FILTER external EXCLUDE REGEX "^hip/")           # for device compilers alone
list(SORT external)
list(TRANSFORM external REPLACE "(.+)" "#include <\\1>" OUTPUT_VARIABLE external_lines)
list(JOIN external_lines "\n" external_includes)
foreach(compiler ${CMAKE_CXX_COMPILER} ${kdvfs_compilers})
    get_filename_component(name ${compiler} NAME)
    file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/headers/${name})
endforeach()

file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/everything.hpp CONTENT "${everything}")
configure_file(poisoned.cpp.in headers/poisoned.cpp @ONLY)
set(poisoned ${CMAKE_CURRENT_BINARY_DIR}/headers/poisoned.cpp)
# One compiler makes code of them: in a short build the other one, as all else there is compiled with
# the compiler of the build.
set(other_compilers ${kdvfs_compilers})
set(makes_code ${CMAKE_CXX_COMPILER})
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(REMOVE_ITEM other_compilers ${KDVFS_GXX})
else()
    list(REMOVE_ITEM other_compilers ${KDVFS_CLANGXX})
endif()
if(KDVFS_SHORT_BUILD AND other_compilers)
    list(POP_FRONT other_compilers makes_code)
endif()
kdvfs_compile(header_stamps poisoned ${poisoned} ${other_compilers})
# Every header, and nothing that a second file of the same program would define again.
set(every_header ${CMAKE_CURRENT_BINARY_DIR}/headers/every_header.o)
add_custom_command(OUTPUT ${every_header}
    COMMAND ${makes_code} ${header_flags} -O0 -MD -MF ${every_header}.d -MT ${every_header}
            -c ${poisoned} -o ${every_header}
    DEPENDS ${poisoned} DEPFILE ${every_header}.d COMMENT "Compiling all headers together" VERBATIM)
add_custom_target(headers_compile ALL DEPENDS ${header_stamps} ${every_header})
add_custom_target(all_headers_compile DEPENDS ${soak_header_stamps})
add_dependencies(soak_programs all_headers_compile)

add_test(NAME package/defined_once
         COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DOBJECT=${every_header}
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/defined_once.cmake)

# Where the vendors' headers may be included, and a proof that the question can be answered "no".
add_test(NAME package/vendor_headers
         COMMAND ${CMAKE_COMMAND} -DINCLUDE=${PROJECT_SOURCE_DIR}/include
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/vendor_headers.cmake)
foreach(fixture two_files outside_device)
    add_test(NAME package/vendor_headers_finds_${fixture}
             COMMAND ${CMAKE_COMMAND} -DINCLUDE=${CMAKE_CURRENT_SOURCE_DIR}/vendor_fixtures/${fixture}
                     -P ${CMAKE_CURRENT_SOURCE_DIR}/vendor_headers.cmake)
    set_tests_properties(package/vendor_headers_finds_${fixture} PROPERTIES
                         PASS_REGULAR_EXPRESSION "must be included by one file in device/")
endforeach()

# Hooks of devices are named concepts, and what is installed does not lean on the demo.
add_test(NAME package/layering
         COMMAND ${CMAKE_COMMAND} -DINCLUDE=${PROJECT_SOURCE_DIR}/include
                 "-DTOOLS=${PROJECT_SOURCE_DIR}/tools/cli;${PROJECT_SOURCE_DIR}/tools/restore"
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/layering.cmake)

# Rooms include what their layer allows.
add_test(NAME package/layers COMMAND ${CMAKE_COMMAND} -DINCLUDE=${PROJECT_SOURCE_DIR}/include
         -P ${CMAKE_CURRENT_SOURCE_DIR}/layers.cmake)
add_test(NAME package/layers_finds_a_broken_one
         COMMAND ${CMAKE_COMMAND} -DINCLUDE=${CMAKE_CURRENT_SOURCE_DIR}/layer_fixtures/broken
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/layers.cmake)
set_tests_properties(package/layers_finds_a_broken_one PROPERTIES
                     PASS_REGULAR_EXPRESSION "units.hpp \\(units\\) includes kdvfs/gpu.hpp")

# The umbrella is light.
add_test(NAME package/umbrella_is_light
         COMMAND ${CMAKE_COMMAND} -DCOMPILER=${CMAKE_CXX_COMPILER}
                 "-DFLAGS=${header_flags}" -DINCLUDE=${PROJECT_SOURCE_DIR}/include
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/umbrella_is_light.cmake)
set_tests_properties(package/umbrella_is_light PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")

# Compilers that are told an earlier standard answer in a few lines.
add_test(NAME package/earlier_standard
         COMMAND ${CMAKE_COMMAND} "-DCOMPILERS=${kdvfs_compilers}" -DINCLUDE=${PROJECT_SOURCE_DIR}/include
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/earlier_standard.cmake)
