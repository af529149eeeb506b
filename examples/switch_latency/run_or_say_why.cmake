# SPDX-License-Identifier: MIT
# cmake -DPROGRAM=file -DFOLDER=folder -P run_or_say_why.cmake: the program measures a GPU, or ends
# with 2 and says why.
execute_process(COMMAND ${PROGRAM} --repeat 3 ${FOLDER} RESULT_VARIABLE result OUTPUT_VARIABLE out
                ERROR_VARIABLE errors)
message("${out}${errors}")
if(result EQUAL 2)
    if(NOT errors MATCHES "switch_latency: cannot .*: .*")
        message(FATAL_ERROR "ended with 2, and did not say why")
    endif()
elseif(NOT result EQUAL 0)
    message(FATAL_ERROR "ended with ${result}")
endif()
