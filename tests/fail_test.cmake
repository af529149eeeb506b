# SPDX-License-Identifier: MIT
# kdvfs_fail_test(FILE): FILE must not compile, with any compiler at hand, and each of its lines
#     // expected: TEXT
# must be a part of what the compiler says. What is wrong stands between #ifdef KDVFS_MISTAKE and
# #endif: without it the file must compile, so that no other slip passes for the expected one.
if(CMAKE_SCRIPT_MODE_FILE)
    separate_arguments(command UNIX_COMMAND "${COMMAND}")
    execute_process(COMMAND ${command} -fsyntax-only ${SOURCE}
                    RESULT_VARIABLE failed ERROR_VARIABLE said)
    if(failed)
        message(FATAL_ERROR "does not compile without KDVFS_MISTAKE:\n${said}")
    endif()
    execute_process(COMMAND ${command} -fsyntax-only -DKDVFS_MISTAKE ${SOURCE}
                    RESULT_VARIABLE failed ERROR_VARIABLE said)
    if(NOT failed)
        message(FATAL_ERROR "compiles, and must not")
    endif()
    file(STRINGS ${SOURCE} expectations REGEX "^// expected: ")
    if(NOT expectations)
        message(FATAL_ERROR "has no line '// expected: TEXT'")
    endif()
    foreach(line IN LISTS expectations)
        string(REGEX REPLACE "^// expected: " "" text "${line}")
        string(FIND "${said}" "${text}" position)
        if(position EQUAL -1)
            message(FATAL_ERROR "the compiler does not say '${text}' but\n${said}")
        endif()
    endforeach()
    return()
endif()

function(kdvfs_fail_test file)
    if(NOT KDVFS_TEST_PACKAGE)
        return()
    endif()
    get_filename_component(source ${file} ABSOLUTE)
    file(RELATIVE_PATH label ${PROJECT_SOURCE_DIR}/tests ${source})
    foreach(compiler ${kdvfs_compilers})
        get_filename_component(name ${compiler} NAME)
        add_test(NAME ${label}:${name}
                 COMMAND ${CMAKE_COMMAND}
                         "-DCOMMAND=${compiler} -std=c++20 -I${PROJECT_SOURCE_DIR}/include"
                         -DSOURCE=${source} -P ${PROJECT_SOURCE_DIR}/tests/fail_test.cmake)
        set_tests_properties(${label}:${name} PROPERTIES LABELS package)
    endforeach()
endfunction()
