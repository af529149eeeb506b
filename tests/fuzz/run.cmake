# SPDX-License-Identifier: MIT
# Every seed, then two seconds, or RUNS inputs, of what grows from them. The generator's own seed is
# fixed.
if(RUNS)
    set(length -runs=${RUNS} -rss_limit_mb=2048 -print_final_stats=1)
else()
    set(length -max_total_time=2 -rss_limit_mb=1024)
endif()
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
execute_process(COMMAND ${PROGRAM} -seed=1 ${length} -timeout=10 -max_len=4096
                        -artifact_prefix=${FOLDER}/ ${FOLDER} ${SEEDS}
                RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(failed)
    message(FATAL_ERROR "${said}")
endif()
string(REGEX MATCHALL "stat::number_of_executed_units:[^\n]*" inputs "${said}")
message(STATUS "${inputs}")
