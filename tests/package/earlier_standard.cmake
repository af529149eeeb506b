# SPDX-License-Identifier: MIT
# cmake -DCOMPILERS=programs -DINCLUDE=folder -P earlier_standard.cmake
# Headers compiled as C++17 say in the first error what to do, and little more.

# In each header the first include leads to the check in detail/form.hpp, before any use of C++20.
file(GLOB_RECURSE headers RELATIVE ${INCLUDE} ${INCLUDE}/kdvfs/*.hpp)
list(FILTER headers EXCLUDE REGEX "/detail/")
list(REMOVE_ITEM headers kdvfs/version.hpp)  # macros alone
foreach(header ${headers})
    set(at ${header})
    while(at AND NOT at STREQUAL "kdvfs/detail/form.hpp")
        file(STRINGS ${INCLUDE}/${at} includes REGEX "^#include <kdvfs/")
        list(APPEND includes "#include <>")
        list(GET includes 0 first)
        string(REGEX REPLACE ".*<(.*)>.*" "\\1" at "${first}")
    endwhile()
    if(NOT at)
        message(SEND_ERROR "${header} does not include <kdvfs/detail/form.hpp> first")
    endif()
endforeach()

foreach(compiler ${COMPILERS})
    foreach(header kdvfs/kdvfs.hpp kdvfs/simulated.hpp kdvfs/train/session.hpp)
        execute_process(COMMAND ${compiler} -std=c++17 -I${INCLUDE} -fsyntax-only -include ${header}
                                -x c++ /dev/null ERROR_VARIABLE said)
        string(REGEX MATCH "error: [^\n]*" first "${said}")
        if(NOT first MATCHES "kdvfs needs C\\+\\+20: compile with -std=c\\+\\+20")
            message(SEND_ERROR "${compiler} says of ${header}: '${first}'")
        endif()
        string(REGEX MATCHALL "\n" lines "${said}")
        list(LENGTH lines count)
        if(count GREATER 16)
            message(SEND_ERROR "${compiler} says ${count} lines of ${header}")
        endif()
        message("${header}: ${count} lines")
    endforeach()
endforeach()
