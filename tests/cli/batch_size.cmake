# SPDX-License-Identifier: MIT
# kdvfs batch-size: a job that recurs asks for its batch size and says how it ended. Here the cost of a
# run is known: the test has the formula, and each call is a process of its own.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

set(sizes 32,64,128,256,512)
set(ask batch-size memory.json --job train --sizes ${sizes} --usual 256)

# Epochs to the target grow with the size; an epoch costs 1000 + 60000 / size. The usual size comes first.
function(cost size)
    execute_process(COMMAND awk -v b=${size} "BEGIN { e = 8 * (1 + b / 100); printf \"%.6g;%.6g\", e, e * (1000 + 60000 / b) }"
                    OUTPUT_VARIABLE result)
    set(result "${result}" PARENT_SCOPE)
endfunction()

set(first TRUE)
foreach(round RANGE 1 12)
    expect(0 "\"batch_size\"" ${ask})
    string(JSON run GET "${said}" run)
    string(JSON size GET "${said}" batch_size)
    string(JSON stop TYPE "${said}" most_cost)
    if(first AND NOT (size EQUAL 256 AND stop STREQUAL "NULL"))
        message(FATAL_ERROR "the first run is not of the usual size, or is stopped:\n${said}")
    endif()
    set(first FALSE)
    cost(${size})
    list(GET result 0 epochs)
    list(GET result 1 joules)
    expect(0 "\"best\": [0-9]" batch-size memory.json --run ${run} --end reached --epochs ${epochs} --cost ${joules})
endforeach()
expect(0 "\"running\": \\[\\]" batch-size memory.json)
string(JSON best GET "${said}" best)
cost(${best})
list(GET result 1 found)
set(least ${found})
foreach(size 32 64 128 256 512)
    cost(${size})
    list(GET result 1 joules)
    if(joules LESS least)
        set(least ${joules})
    endif()
endforeach()
execute_process(COMMAND awk -v found=${found} -v least=${least} "BEGIN { exit !(found <= 1.05 * least) }"
                RESULT_VARIABLE result)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "size ${best} costs ${found}, the best one ${least}")
endif()

# A profile of an epoch, a run that failed, and runs that are unknown.
expect(0 "\"run\": 13" ${ask})
expect(0 "\"most_cost\": [0-9]" batch-size memory.json --run 13 --epoch-cost 1500 --limit 250)
expect(0 "\"power_limit_w\": 250.0" batch-size memory.json --run 13 --end lost)
expect(1 "run 13: no such run" batch-size memory.json --run 13 --end lost)
expect(1 "run 0: no such run" batch-size memory.json --run 0 --end lost)
expect(1 "--run: \"0\"|--epoch-cost" batch-size memory.json --run 0)
expect(1 "of another job" batch-size memory.json --job other --sizes ${sizes} --usual 256)
expect(1 "others" batch-size memory.json --sizes 32,64 --usual 64)
expect(1 "no such file.*--sizes" batch-size absent.json)
expect(1 "--usual" batch-size new.json --sizes 32,64)
expect(1 "not among them" batch-size new.json --sizes 32,64 --usual 48)
expect(1 "--epoch-cost COST" batch-size memory.json --run 4)
