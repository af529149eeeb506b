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

# Whether a result can be written is known before the work: "touch ran" is not run.
set(work -- touch ran)
mistake(1 "nowhere" "folder" run --sweep nowhere/sweep.csv ${work})
mistake(1 "--meter: \"0\"" "need records" run --meter 0 --repeat ${work})
mistake(1 "nowhere" "folder" run --save --ledger nowhere/ledger.jsonl ${work})
mistake(1 "words.txt" "." run --plan words.txt ${work})
mistake(1 "records" "." run --plan records ${work})
mistake(1 "nowhere" "folder" validate plan.json --counter program -o nowhere/kept.json ${work})
mistake(1 "nowhere" "folder" power-limit --device sim:h100 -o nowhere/limit.json)
mistake(1 "words.txt/x" "." measure-latency --program ./touch_ran -o words.txt/x)
if(EXISTS ${FOLDER}/ran)
    message(SEND_ERROR "a program was run whose result could not be written")
endif()

# Reports that lack what is read of them, or have it of another type
set(kernel "{\"kernel\": \"a\", \"variant\": 0, \"calls\": 1, \"metered_calls\": 1, \"time_s\": 1,
    \"energy\": {\"status\": \"resolved\", \"joules\": 1}, \"asked\": {}, \"applied\": {}, \"held_core_mhz\": 9}")
set(report "{\"processes\": [{\"pid\": 1, \"rank\": \"\", \"ended\": true, \"notes\": [], \"devices\": [{
    \"launches\": 1, \"iterations\": {\"count\": 1, \"launches\": 1}, \"report\": {
    \"device\": {\"name\": \"GPU\", \"address\": \"0\"}, \"totals\": {\"counter_j\": 1,
    \"kernels\": {\"status\": \"resolved\"}, \"idle\": {\"status\": \"resolved\"}}, \"rows\": [${kernel}],
    \"levels\": [{\"level\": \"iteration\", \"runs\": 1, \"time_s\": 1, \"energy\": {\"status\": \"unresolved\"}}]}}]}]}")
file(WRITE ${FOLDER}/whole.json "${report}")
execute_process(COMMAND ${KDVFS} merge whole.json WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result
                OUTPUT_VARIABLE output ERROR_VARIABLE error)
if(NOT result EQUAL 0 OR NOT output MATCHES "1 launches, 1 iterations\n")
    message(SEND_ERROR "merge of a report without \"by\" ended with ${result}:\n${output}${error}")
endif()
foreach(change ", \"joules\": 1> " ", \"joules\": 1>, \"joules\": \"1\"" ", \"joules\": 1>, \"joules\": null"
        "\"count\": 1>\"count\": 1, \"by\": 1" "\"counter_j\": 1>\"counter_j\": 1, \"outside_j\": \"\"")
    string(REPLACE ">" ";" change "${change}")
    list(GET change 0 from)
    list(GET change 1 to)
    string(REPLACE "${from}" "${to}" broken "${report}")
    file(WRITE ${FOLDER}/broken.json "${broken}")
    foreach(command merge node-power worth)
        mistake(1 "broken.json: one of its processes has no report" "kdvfs run --report" ${command} broken.json)
    endforeach()
endforeach()
string(REPEAT "[" 100000 deep)
string(REPEAT "]" 100000 end)
file(WRITE ${FOLDER}/deep.json "{\"processes\": ${deep}${end}}")
mistake(1 "deep.json: it is nested too deep" "kdvfs run --report" merge deep.json)
file(WRITE ${FOLDER}/typed.json "{\"job\": 5}")
mistake(1 "typed.json" "another file" batch-size typed.json)

# A ledger is what programs and users wrote.
function(segment id changes)
    set(line "{\"kdvfs_ledger\": 1, \"id\": \"${id}\", \"job\": \"j\\u001b[2J\\nforged\", \"user\": \"u\", \"board\": \"b\", \"began\": 1,")
    string(APPEND line " \"passed_s\": 1, \"saved_j\": 5, \"saved_low_j\": 4, \"saved_high_j\": 6, \"lost_s\": 1}")
    if(changes)
        string(REPLACE ${changes} line "${line}")
    endif()
    file(APPEND ${FOLDER}/ledger.jsonl "${line}\n")
endfunction()
segment(slow "\"passed_s\": 1;\"passed_s\": -10")
segment(lost "\"lost_s\": 1;\"lost_s\": -1e300")
segment(huge "\"saved_high_j\": 6;\"saved_high_j\": 1e308")
mistake(1 "ledger.jsonl: none of its 3 lines" "kdvfs run --save" ledger ledger.jsonl)
mistake(1 "plan.json: none of its" "kdvfs run --save" ledger plan.json)
segment(good "")
execute_process(COMMAND ${KDVFS} ledger ledger.jsonl WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result
                OUTPUT_VARIABLE output)
string(ASCII 27 escape)
if(NOT result EQUAL 0 OR output MATCHES "${escape}|\nforged" OR NOT output MATCHES "\nj.u001b\\[2J.u000aforged +1 ")
    message(SEND_ERROR "a ledger's names are not escaped, ${result}:\n${output}")
endif()


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

foreach(value nan inf -1 x)
    mistake(1 "--every: Value ${value} not in" "kdvfs top --help" top --every ${value})
    mistake(1 "--node-watts: Value ${value} not in" "kdvfs plan --help" plan sweep.csv --node-watts ${value})
    mistake(1 "--node-watts: Value ${value} not in" "kdvfs tune --help" tune --node-watts ${value} -- true)
    mistake(1 "--cap: Value ${value} not in" "." node-power --device sim:h100 --cap ${value})
    mistake(1 "--highest: Value ${value} not in" "." node-power plan.json --highest ${value})
    mistake(1 "--lower-clock: Value ${value} not in" "." worth plan.json --lower plan.json --lower-clock ${value})
    mistake(1 "--power-limit: Value ${value} not in" "." plan sweep.csv --trace sweep.csv --power-limit ${value})
endforeach()

# What does not go together
mistake(1 "--sweep excludes --plan|--plan excludes --sweep" "kdvfs run --help" run --plan plan.json --sweep s.csv -- true)
mistake(1 "--dry-run" "." run --dry-run -- true)
mistake(1 "./absent: there is no such program" "check its name" tune -- ./absent)

# Homes
set(ENV{XDG_STATE_HOME} state)
unset(ENV{HOME})
mistake(1 "neither names a folder" "give the ledger's file" ledger)
set(ENV{KDVFS_ATTACH} ${KDVFS})
mistake(0 "no account and no profiles are kept: HOME is not set" "--ledger" run --save --report x.txt -- true)
if(EXISTS ${FOLDER}/state)
    message(SEND_ERROR "a relative XDG_STATE_HOME was taken")
endif()

if(tried LESS 40)
    message(FATAL_ERROR "${tried} mistakes are fewer than 40")
endif()
message("${tried} mistakes were answered in a line each")
