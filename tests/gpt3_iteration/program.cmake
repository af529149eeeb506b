# SPDX-License-Identifier: MIT
# cmake -DPROGRAM=file -DGPUS=names -DFOLDER=folder -P program.cmake
# Runs gpt3_iteration on each of the boards and holds its files and exit codes to what it promises.
file(REMOVE_RECURSE ${FOLDER})

foreach(gpu ${GPUS})
    set(out ${FOLDER}/${gpu})
    execute_process(COMMAND ${PROGRAM} --gpu ${gpu} --out ${out}
                    RESULT_VARIABLE status OUTPUT_VARIABLE text)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "on ${gpu} it ends with ${status}")
    endif()
    if(NOT text MATCHES "SIMULATED")
        message(FATAL_ERROR "on ${gpu} it does not say that it is simulated")
    endif()
    foreach(name summary.json profile.csv plan.json report.csv report.json policies.hpp trace.json)
        if(NOT EXISTS ${out}/${name})
            message(FATAL_ERROR "on ${gpu} it did not write ${name}")
        endif()
    endforeach()
    file(GLOB written ${out}/*)
    list(LENGTH written count)
    if(NOT count EQUAL 7)
        message(FATAL_ERROR "on ${gpu} it left other than its seven files: ${written}")
    endif()
    file(READ ${out}/summary.json summary)
    string(JSON energy GET ${summary} global waste energy_pct)
    string(JSON runs LENGTH ${summary} live)
    string(JSON scopes GET ${summary} live 5 scopes)
    string(JSON followed LENGTH ${summary} live_followed)
    foreach(i RANGE 5)
        string(JSON share GET ${summary} live_followed ${i} followed_pct)
        string(JSON promised GET ${summary} live_followed ${i} promised_energy_pct)
        if(NOT followed EQUAL 6 OR NOT share EQUAL 100 OR promised GREATER 0.001)
            message(FATAL_ERROR "on ${gpu}: ${followed} followed runs, run ${i} followed "
                                "${share} %, promised ${promised} %")
        endif()
    endforeach()
    if(energy GREATER 0 OR NOT runs EQUAL 6 OR NOT scopes EQUAL 897)
        message(FATAL_ERROR "on ${gpu}: global ${energy} %, ${runs} live runs, ${scopes} scopes")
    endif()

    # Where no scope can pay, scopes cost their metering, and nothing without.
    foreach(what metered_time metered_energy unmetered_time unmetered_energy)
        string(JSON ${what} GET ${summary} scope_costs ${what}_pct)
    endforeach()
    string(JSON says_so GET ${summary} scope_costs nothing_to_gain)
    if(metered_time GREATER 0.05 OR metered_energy GREATER 0.05 OR unmetered_time GREATER 0.005
       OR unmetered_energy GREATER 0.005 OR NOT (says_so OR gpu STREQUAL rtx_3080_ti))
        message(FATAL_ERROR "on ${gpu} scopes that do not switch cost: metered ${metered_time} %, "
                            "${metered_energy} %; unmetered ${unmetered_time} %, "
                            "${unmetered_energy} %; says so: ${says_so}")
    endif()
endforeach()

# expect_refused(WORDS arguments...): exit code 1, and a sentence.
function(expect_refused words)
    execute_process(COMMAND ${PROGRAM} ${ARGN} RESULT_VARIABLE status
                    OUTPUT_QUIET ERROR_VARIABLE text)
    if(NOT status EQUAL 1 OR NOT text MATCHES "${words}")
        message(FATAL_ERROR "${ARGN}: exit code ${status}, said: ${text}")
    endif()
endfunction()
expect_refused("no simulated GPU 'voodoo'" --gpu voodoo)
expect_refused("usage" --gpu)
expect_refused("usage" --frobnicate)
file(WRITE ${FOLDER}/file "")
expect_refused("cannot make the folder" --out ${FOLDER}/file/below)
