# SPDX-License-Identifier: MIT
# Every seed, then two seconds of what grows from them. The generator's own seed is fixed.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
execute_process(COMMAND ${PROGRAM} -seed=1 -max_total_time=2 -timeout=10 -max_len=4096
                        -rss_limit_mb=1024 -artifact_prefix=${FOLDER}/ ${FOLDER} ${SEEDS}
                RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(failed)
    message(FATAL_ERROR "${said}")
endif()
