# SPDX-License-Identifier: MIT
# For scripts that run the command KDVFS in FOLDER.

# expect(CODE WORDS argument...): runs the command, which ends with CODE and says WORDS (regular
# expressions); what it printed is in `said` then.
function(expect code words)
    execute_process(COMMAND ${KDVFS} ${ARGN} WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result
                    OUTPUT_VARIABLE output ERROR_VARIABLE error)
    if(NOT result MATCHES "^(${code})$" OR NOT "${output}${error}" MATCHES "${words}")
        message(FATAL_ERROR "kdvfs ${ARGN}\nended with ${result}, not ${code}, or did not say "
                            "\"${words}\":\n${output}${error}")
    endif()
    set(said "${output}" PARENT_SCOPE)
endfunction()
