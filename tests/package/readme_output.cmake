# SPDX-License-Identifier: MIT
# cmake -DPROGRAM=file -DEXPECTED=file -P readme_output.cmake: the program prints what is expected.
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
file(READ ${EXPECTED} expected)
if(NOT printed STREQUAL expected)
    message(FATAL_ERROR "a document shows another output than its program prints:\n${printed}")
endif()
