# SPDX-License-Identifier: MIT
# README.md and docs/first_program.md keep their word: the whole program compiles as printed, has at most 25 lines of
# code and prints what stands under it; what they quote stands in its file as printed; the README stays short.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/README.md
             ${PROJECT_SOURCE_DIR}/docs/first_program.md)
file(READ ${PROJECT_SOURCE_DIR}/README.md readme)
file(READ ${PROJECT_SOURCE_DIR}/docs/first_program.md first_program)

# kdvfs_next_block(LANGUAGE OUT): the next block of that language, and what comes before its end is
# gone from `rest`.
macro(kdvfs_next_block language out)
    string(FIND "${rest}" "```${language}\n" begin)
    if(begin EQUAL -1)
        message(FATAL_ERROR "README.md or first_program.md lacks a block of ${language}")
    endif()
    string(LENGTH "```${language}\n" length)
    math(EXPR begin "${begin} + ${length}")
    string(SUBSTRING "${rest}" ${begin} -1 rest)
    string(FIND "${rest}" "\n```" end)
    string(SUBSTRING "${rest}" 0 ${end} ${out})
    math(EXPR end "${end} + 4")
    string(SUBSTRING "${rest}" ${end} -1 rest)
endmacro()

# kdvfs_quotes(QUOTED FILE): the block is a part of the file.
function(kdvfs_quotes quoted file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
    file(READ ${PROJECT_SOURCE_DIR}/${file} text)
    string(FIND "${text}" "${quoted}" at)
    if(quoted STREQUAL "" OR at EQUAL -1)
        message(FATAL_ERROR "a document quotes what ${file} does not have:\n${quoted}")
    endif()
endfunction()

set(rest "${readme}")
kdvfs_next_block(cpp training)
kdvfs_next_block(text recorded)
kdvfs_next_block(python script)
kdvfs_next_block(text script_output)
set(rest "${first_program}")
kdvfs_next_block(cpp example)
kdvfs_next_block(text output)
kdvfs_next_block(cpp sweep)
kdvfs_quotes("${training}" examples/gpt_train/training_step.hpp)
kdvfs_quotes("${recorded}" bench/results/h100/gpt_train/joules.txt)
kdvfs_quotes("${sweep}" examples/self_tuning/self_tuning.cpp)

string(REGEX MATCHALL "\n[^\n]" lines "\n${example}")
list(LENGTH lines count)
if(count GREATER 25)
    message(FATAL_ERROR "the example of first_program.md has ${count} lines of code, more than 25")
endif()

string(REGEX REPLACE "[][;]" "" plain "${readme}")
string(REGEX MATCHALL "[^ \n]+" words "${plain}")
list(LENGTH words count)
if(count GREATER 700)
    message(FATAL_ERROR "README.md has ${count} words, more than 700: move some to docs/")
endif()

# The Python program, as printed.
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/readme_script.py CONTENT "${script}\n")
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/readme_script.txt CONTENT "${script_output}\n")
if(Python3_Interpreter_FOUND AND TARGET kdvfs_c AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    add_test(NAME package/readme_output_python
             COMMAND ${CMAKE_COMMAND} "-DPROGRAM=${Python3_EXECUTABLE};${CMAKE_CURRENT_BINARY_DIR}/readme_script.py"
                     -DEXPECTED=${CMAKE_CURRENT_BINARY_DIR}/readme_script.txt
                     -P ${CMAKE_CURRENT_SOURCE_DIR}/readme_output.cmake)
    set_tests_properties(package/readme_output_python PROPERTIES ENVIRONMENT
        "KDVFS_LIBRARY=$<TARGET_FILE:kdvfs_c>;PYTHONPATH=${PROJECT_SOURCE_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
endif()

file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/readme_example.cpp CONTENT "${example}\n")
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/readme_example.txt CONTENT "${output}\n")
add_executable(readme_example ${CMAKE_CURRENT_BINARY_DIR}/readme_example.cpp)
target_link_libraries(readme_example PRIVATE kdvfs::kdvfs kdvfs_warnings)
# Both forms of the library print the same.
foreach(form header_only compiled)
    add_executable(readme_${form} ${CMAKE_CURRENT_BINARY_DIR}/readme_example.cpp)
    target_link_libraries(readme_${form} PRIVATE kdvfs_warnings Threads::Threads)
    add_test(NAME package/readme_output_${form}
             COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:readme_${form}>
                     -DEXPECTED=${CMAKE_CURRENT_BINARY_DIR}/readme_example.txt
                     -P ${CMAKE_CURRENT_SOURCE_DIR}/readme_output.cmake)
endforeach()
target_link_libraries(readme_header_only PRIVATE kdvfs::kdvfs)
target_compile_options(readme_header_only PRIVATE -UKDVFS_COMPILED)
kdvfs_unoptimized(readme_header_only)
if(TARGET kdvfs_compiled)
    target_link_libraries(readme_compiled PRIVATE kdvfs::compiled)
else()
    target_link_libraries(readme_compiled PRIVATE kdvfs::kdvfs)
endif()
add_test(NAME package/readme_example COMMAND readme_example)
set_tests_properties(package/readme_example PROPERTIES PASS_REGULAR_EXPRESSION "SIMULATED.*gelu")
add_test(NAME package/readme_output
         COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:readme_example>
                 -DEXPECTED=${CMAKE_CURRENT_BINARY_DIR}/readme_example.txt
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/readme_output.cmake)
