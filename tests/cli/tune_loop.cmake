# SPDX-License-Identifier: MIT
# `kdvfs tune` compares plans within a run, and plans again what was not kept.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# Launches that take 4 % longer after a change of the clock: no sweep sees that, the first plan is
# broken. The next knows what a switch costs.
expect(0 ", plan 2\n.*slowdown up to 3 %: kept.*plan 1 broken: .* more for a switch" tune
       --max-slowdown 3% -o after -- ${UNRULY} after)
file(STRINGS ${FOLDER}/after/comparisons.csv rows)
list(LENGTH rows pairs)
if(pairs LESS 20 OR EXISTS ${FOLDER}/after/runs.csv)
    message(FATAL_ERROR "whole runs were compared, or ${pairs} lines are too few for two plans")
endif()
file(READ ${FOLDER}/after/program.log log)

# What was compared is kept: the same command runs nothing.
expect(0 "kept" tune --max-slowdown 3% -o after -- ${UNRULY} after)
file(READ ${FOLDER}/after/program.log later)
if(NOT log STREQUAL later)
    message(FATAL_ERROR "a tuning that was over ran the program")
endif()

# Nor does it print into a file of its folder where standard output is closed.
execute_process(COMMAND sh -c "exec '${KDVFS}' tune --max-slowdown 3% -o after -- '${UNRULY}' after >&-"
                WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result ERROR_VARIABLE error)
file(SIZE ${FOLDER}/after/.lock printed)
if(NOT result EQUAL 1 OR NOT error MATCHES "standard output" OR NOT printed EQUAL 0)
    message(FATAL_ERROR "ended with ${result}, ${printed} bytes in the lock's file: ${error}")
endif()

# A run of thirty iterations has too few pairs of blocks: whole runs are compared.
set(ENV{KDVFS_SWEEP_ROWS} 20)
set(ENV{KDVFS_SWEEP_BLOCK} 0.05)
set(ENV{KDVFS_SWEEP_WARM_UP} 2)
expect("0|3" "[^0-9]4 pairs" tune --max-slowdown 5% --pairs 4 -o short -- ${UNRULY} plain 30)
if(NOT EXISTS ${FOLDER}/short/runs.csv)
    message(FATAL_ERROR "four pairs of blocks were found in a run of thirty iterations")
endif()

# A run that opens no session has no pairs of blocks: those of the run before it do not count again.
set(ENV{KDVFS_SWEEP_BLOCK})
file(WRITE ${FOLDER}/wrapped.sh "[ -e gone ] && exec cp cost.csv \"$KDVFS_COST\"
'${UNRULY}' plain && cp \"$KDVFS_COST\" cost.csv\n")
expect("0|3|4" "blocks of iterations" tune --max-slowdown 5% -o stale -- sh wrapped.sh)
file(REMOVE ${FOLDER}/stale/comparisons.csv)
file(TOUCH ${FOLDER}/gone)
expect("3|4" "run 1 of 8" tune --max-slowdown 5% --pairs 4 -o stale -- sh wrapped.sh)
if(EXISTS ${FOLDER}/stale/comparisons.csv OR EXISTS ${FOLDER}/stale/compare_status.json)
    message(FATAL_ERROR "a run without a session was credited with the pairs of an earlier one")
endif()

# Nor does what was known of its session: such a program is attached to.
file(COPY ${FOLDER}/short/trial_status.json DESTINATION ${FOLDER}/trial)
set(ENV{KDVFS_ATTACH} ${FOLDER}/absent.so)
expect(1 "it has no session: it runs once more, attached to" tune -o trial -- sh wrapped.sh)
