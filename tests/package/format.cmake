# SPDX-License-Identifier: MIT
# The code is formatted. Versions of clang-format differ, so only the one that Debian 12 has counts.
add_test(NAME package/clang_format
         COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/clang_format.cmake)
set_tests_properties(package/clang_format PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")

# What users read names nothing of `detail`.
if(Python3_FOUND)
    add_test(NAME package/public_face
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/public_face.py ${PROJECT_SOURCE_DIR})
endif()
