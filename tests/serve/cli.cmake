# SPDX-License-Identifier: MIT
# `kdvfs recommend` and `kdvfs plan-pool` from end to end, and what they say to bad input.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

include(${CMAKE_CURRENT_LIST_DIR}/../cli/expect.cmake)

file(WRITE ${FOLDER}/rows.csv "task,model,gpu,gpus,batch,itl_p50_ms,joules_per_token\n"
     "chat,org/a,H100,1,8,10,5\nchat,org/a,H100,2,16,20,3\nchat,org/a,B200,1,16,30,2.5\n")
file(WRITE ${FOLDER}/twice.csv "batch,joules_per_token,batch\n1,2,3\n")
set(ask recommend rows.csv --task chat --model org/a --energy joules_per_token)
expect(0 "line" ${ask} --gpu H100,B200 --target itl_p50_ms=30 --format json)
string(JSON line GET "${said}" line)
string(JSON energy GET "${said}" row joules_per_token)
string(JSON gpu GET "${said}" row gpu)
if(NOT line EQUAL 4 OR NOT energy EQUAL 2.5 OR NOT gpu STREQUAL "B200")
    message(FATAL_ERROR "not the row of least energy:\n${said}")
endif()
expect(0 "line 3\n" ${ask} --gpu H100 --target itl_p50_ms=30)
expect(3 "^null\n$" ${ask} --gpu H100 --target itl_p50_ms=9 --format json)
expect(3 "nothing meets" ${ask} --gpu H100 --target itl_p50_ms=9)
expect(3 "\"frontier\"" ${ask} --target itl_p50_ms=9 --frontier --format json)
string(JSON points LENGTH "${said}" frontier)
if(NOT points EQUAL 3)
    message(FATAL_ERROR "a frontier of ${points} rows:\n${said}")
endif()
expect(1 "no column ttft" ${ask} --target ttft=9)
expect(1 "rows.csv:1: there are no columns ttft, tpot" ${ask} --target ttft=9,tpot=9)
expect(1 "COLUMN=VALUE" ${ask} --target itl_p50_ms)
expect(1 "rows2.csv" recommend rows2.csv)
expect(1 "twice.csv:1: the column 'batch' is there twice" recommend twice.csv)
execute_process(COMMAND ${KDVFS} recommend - --target itl_p50_ms=20 INPUT_FILE ${FOLDER}/rows.csv
                OUTPUT_VARIABLE said RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT said MATCHES "line 3\n")
    message(FATAL_ERROR "standard input gave another answer: ${result}, ${said}")
endif()

file(WRITE ${FOLDER}/pools.json [[{"gpus": 8, "classes": [
  {"name": "short", "load_rps": 3, "first_token_ms": 250, "gap_ms": 100,
   "profile": [{"parallelism": 2, "core_mhz": 1200, "load_rps": 2, "power_w": 500,
                "first_token_ms": 200, "gap_ms": 50},
               {"parallelism": 2, "core_mhz": 900, "load_rps": 2, "power_w": 400,
                "first_token_ms": 300, "gap_ms": 50}]}]}]])
expect(0 "\"feasible\": true" plan-pool pools.json)
string(JSON power GET "${said}" power_w)
string(JSON count GET "${said}" pools 0 instances 0 count)
if(NOT power EQUAL 1000 OR NOT count EQUAL 2)
    message(FATAL_ERROR "not the pool of least power:\n${said}")
endif()
execute_process(COMMAND ${KDVFS} plan-pool - INPUT_FILE ${FOLDER}/pools.json
                OUTPUT_VARIABLE piped RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT piped STREQUAL said)
    message(FATAL_ERROR "standard input gave another plan: ${result}, ${piped}")
endif()
file(READ ${FOLDER}/pools.json text)
string(REPLACE "\"gpus\": 8" "\"gpus\": 2" text "${text}")
file(WRITE ${FOLDER}/pools.json "${text}")
expect(3 "\"feasible\": false" plan-pool pools.json)
expect(1 "no JSON" plan-pool rows.csv)
