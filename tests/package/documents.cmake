# SPDX-License-Identifier: MIT
# Code blocks and commands of the documents: compiled, run or checked.
if(NOT Python3_Interpreter_FOUND OR NOT TARGET kdvfs_c OR NOT TARGET kdvfs_cli OR CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    return()
endif()
set(documents ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/documents.py)
set(environment "KDVFS_LIBRARY=$<TARGET_FILE:kdvfs_c>;PYTHONPATH=${PROJECT_SOURCE_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
add_test(NAME package/documents
         COMMAND ${documents} check ${PROJECT_SOURCE_DIR} $<TARGET_FILE:kdvfs_cli> ${CMAKE_CURRENT_BINARY_DIR}/documents)
# A proof that the answer can be "no".
add_test(NAME package/documents_find_broken_blocks
         COMMAND ${documents} broken ${PROJECT_SOURCE_DIR} $<TARGET_FILE:kdvfs_cli>
                 ${CMAKE_CURRENT_BINARY_DIR}/broken_documents ${CMAKE_CURRENT_SOURCE_DIR}/broken_document.md 18)
set_tests_properties(package/documents package/documents_find_broken_blocks PROPERTIES ENVIRONMENT "${environment}")

# The C++ blocks, in one translation unit that is never linked.
if(TARGET HipHost::HipHost AND MPI_CXX_FOUND)
    file(GLOB kdvfs_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/document_blocks.cpp)
    add_custom_command(OUTPUT ${unit} VERBATIM
                       COMMAND ${documents} unit ${PROJECT_SOURCE_DIR}
                               ${CMAKE_CURRENT_SOURCE_DIR}/document_frames.cpp ${unit}
                       DEPENDS ${kdvfs_pages} ${PROJECT_SOURCE_DIR}/README.md document_frames.cpp documents.py)
    # The compiler looks at it and writes nothing: half the time of an object file.
    set(stamp ${CMAKE_CURRENT_BINARY_DIR}/document_blocks.stamp)
    set(includes $<TARGET_PROPERTY:kdvfs_rocm,INTERFACE_INCLUDE_DIRECTORIES>
                 $<TARGET_PROPERTY:kdvfs_mpi,INTERFACE_INCLUDE_DIRECTORIES>)
    set(definitions $<TARGET_PROPERTY:kdvfs_rocm,INTERFACE_COMPILE_DEFINITIONS>
                    $<TARGET_PROPERTY:kdvfs_mpi,INTERFACE_COMPILE_DEFINITIONS>)
    separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
    add_custom_command(OUTPUT ${stamp} DEPFILE ${stamp}.d VERBATIM COMMAND_EXPAND_LISTS
                       COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only ${flags}
                               "-I$<JOIN:$<REMOVE_DUPLICATES:$<FILTER:${includes},EXCLUDE,^(/usr/include)?$>>,;-I>"
                               "-D$<JOIN:$<REMOVE_DUPLICATES:$<FILTER:${definitions},EXCLUDE,^$>>,;-D>"
                               -DKDVFS_COMPILED=1 -MD -MF ${stamp}.d -MT ${stamp} ${unit}
                       COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
                       DEPENDS ${unit} COMMENT "Checking the C++ blocks of the documents")
    add_custom_target(document_blocks ALL DEPENDS ${stamp})
endif()
