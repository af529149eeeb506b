# SPDX-License-Identifier: MIT
# cmake -DPROGRAM=file [-DARGUMENTS="a;b"] -P run_or_say_why.cmake: the program works, or ends with
# 2 and says why.
get_filename_component(name ${PROGRAM} NAME)
execute_process(COMMAND ${PROGRAM} ${ARGUMENTS} RESULT_VARIABLE result OUTPUT_VARIABLE out
                ERROR_VARIABLE errors)
message("${out}${errors}")
if(result EQUAL 2)
    if(NOT errors MATCHES "${name}: cannot .*: ")
        message(FATAL_ERROR "ended with 2, and did not say why")
    endif()
elseif(NOT result EQUAL 0)
    message(FATAL_ERROR "ended with ${result}")
endif()
