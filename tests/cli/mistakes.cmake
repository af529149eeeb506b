# SPDX-License-Identifier: MIT
# Typical mistakes: each is answered by one line, which names the mistake and, behind a semicolon, the fix.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
unset(ENV{KDVFS_ATTACH})
set(ENV{KDVFS_NVML} ${FOLDER}/absent.so)

set(tried 0)
# mistake(CODE MISTAKE FIX argument...): regular expressions.
function(mistake code words fix)
    execute_process(COMMAND ${KDVFS} ${ARGN} WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result
                    OUTPUT_VARIABLE output ERROR_VARIABLE error)
    if(NOT result MATCHES "^(${code})$" OR NOT "${output}" STREQUAL "" OR
       NOT "${error}" MATCHES "^kdvfs[^\n]*(${words})[^\n]*;[^\n]*(${fix})[^\n]*\n$")
        message(SEND_ERROR "kdvfs ${ARGN}\nended with ${result}, not ${code}, or did not say \"${words}; ${fix}\" "
                            "in one line:\n${output}${error}")
    endif()
    math(EXPR tried "${tried} + 1")
    set(tried ${tried} PARENT_SCOPE)
endfunction()

execute_process(COMMAND ${PROFILE} mi210 1 OUTPUT_FILE ${FOLDER}/sweep.csv)
execute_process(COMMAND ${KDVFS} plan sweep.csv --max-slowdown 1% --format json -o plan.json WORKING_DIRECTORY ${FOLDER} ERROR_QUIET)
file(WRITE ${FOLDER}/bad.csv "gpu,kernel,core_mhz,mem_mhz,time_s,energy_j\ng,a,auto,auto,1,nan\n")
file(WRITE ${FOLDER}/blank.csv "")
file(WRITE ${FOLDER}/words.txt "hello\n")
file(WRITE ${FOLDER}/job.json "[{\"rank\": 0}]")

# Names
mistake(1 "no subcommand" "kdvfs --help")
mistake(1 "foo: there is none of this name" "kdvfs --help" foo)
mistake(1 "tun: there is none" "did you mean kdvfs tune" tun -- true)
mistake(1 "reprot: there is none" "did you mean kdvfs report" reprot sweep.csv)
mistake(1 "no argument '--max-slowdwon'" "did you mean --max-slowdown" plan sweep.csv --max-slowdwon 1%)
mistake(1 "no argument '--ouput=x'" "did you mean --output" plan sweep.csv --ouput=x)
mistake(1 "no argument '--lr'" "put -- before" tune ./train --lr 3)
mistake(1 "no argument '--epochs'" "put -- before" run ./train --epochs 3)
mistake(1 "--device: \"sim:mi300\"" "mi300x" node-power --device sim:mi300)

# What is missing
mistake(1 "profile is required" "kdvfs plan --help" plan)
mistake(1 "command is required" "kdvfs tune --help" tune)
mistake(1 "command is required" "kdvfs run --help" run --report x.json)
mistake(1 "command is required" "kdvfs validate --help" validate plan.json)
mistake(1 "power-limit.*command|command" "program after --" power-limit)
mistake(1 "--usual" "batch size in use" batch-size x.json --sizes 32,64)
mistake(1 "x.json: there is no such file" "--sizes" batch-size x.json)
mistake(1 "is empty" "give a value" plan sweep.csv --max-slowdown=)

# Files
mistake(1 "absent.csv: No such file" "check its path" plan absent.csv)
mistake(1 "absent.json: No such file" "kdvfs plan --format json" validate absent.json -- true)
mistake(1 "absent.json: there is no such file" "kdvfs plan" run --plan absent.json -- true)
mistake(1 "bad.csv:2: the energy is not finite" "." plan bad.csv)
mistake(1 "blank.csv" "." plan blank.csv)
mistake(1 "words.txt" "." plan words.txt)
mistake(1 "sweep.csv:1: this is no JSON" "." validate sweep.csv -- true)
mistake(1 "words.txt" "." report words.txt)
mistake(1 "job.json: this is nothing that kdvfs writes" "a profile .CSV." report job.json)
mistake(1 "absent.csv" "check its path" report absent.csv)
mistake(1 "nowhere" "folder" run --report nowhere/report.json -- true)

# Values
mistake(1 "--max-slowdown: \"-1%\"" "such as 1%" plan sweep.csv --max-slowdown -1%)
mistake(1 "--objective: \"speed\"" "waste, edp" plan sweep.csv --objective speed)
mistake(1 "--format: xml" "kdvfs plan --help" plan sweep.csv --format xml)
mistake(1 "--pairs" "kdvfs validate --help" validate plan.json --pairs 1 -- true)
mistake(1 "--pairs" "kdvfs validate --help" validate plan.json --pairs ten -- true)
mistake(1 "--seed" "kdvfs validate --help" validate plan.json --seed -1 -- true)
mistake(1 "--format: xml" "kdvfs validate --help" validate plan.json --format xml -- true)
mistake(1 "--timeout: \"30\"" "such as 90s" tune --timeout 30 -- true)
mistake(1 "--exclude-below: \"low\"" "in MHz" tune --exclude-below low -- true)
mistake(1 "--power-limit: \"700W\"" "a number of watts" worth --power-limit 700W -- true)
mistake(1 "--power-limit: \"abc\"" "a number of watts" worth --power-limit abc -- true)
mistake(1 "--goal: \"speed\"" "energy, time" power-limit --goal speed -- true)

# What does not go together
mistake(1 "--sweep excludes --plan|--plan excludes --sweep" "kdvfs run --help" run --plan plan.json --sweep s.csv -- true)
mistake(1 "--dry-run" "." run --dry-run -- true)
mistake(1 "./absent: there is no such program" "check its name" tune -- ./absent)

if(tried LESS 40)
    message(FATAL_ERROR "${tried} mistakes are fewer than 40")
endif()
message("${tried} mistakes were answered in a line each")
