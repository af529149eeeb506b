# SPDX-License-Identifier: MIT
# The example in the README compiles as printed, runs, and has at most 25 lines of code.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/README.md)
file(READ ${PROJECT_SOURCE_DIR}/README.md readme)
string(FIND "${readme}" "```cpp\n" begin)
if(begin EQUAL -1)
    message(FATAL_ERROR "README.md has no example")
endif()
math(EXPR begin "${begin} + 7")
string(SUBSTRING "${readme}" ${begin} -1 example)
string(FIND "${example}" "\n```" end)
string(SUBSTRING "${example}" 0 ${end} example)
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/readme_example.cpp CONTENT "${example}\n")

string(REGEX MATCHALL "\n[^\n]" lines "\n${example}")
list(LENGTH lines count)
if(count GREATER 25)
    message(FATAL_ERROR "the example of README.md has ${count} lines of code, more than 25")
endif()

add_executable(readme_example ${CMAKE_CURRENT_BINARY_DIR}/readme_example.cpp)
target_link_libraries(readme_example PRIVATE kdvfs::kdvfs kdvfs_warnings)
add_test(NAME package/readme_example COMMAND readme_example)
set_tests_properties(package/readme_example PROPERTIES PASS_REGULAR_EXPRESSION "SIMULATED.*gelu")
