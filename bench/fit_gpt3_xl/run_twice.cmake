# SPDX-License-Identifier: MIT
# Runs a very short fit twice and compares what it writes.
foreach(run 1 2)
    execute_process(
        COMMAND ${PROGRAM} --rounds 1 --starts 0
            --write-kernels ${FOLDER}/kernels_${run}.hpp --write-board ${FOLDER}/board_${run}.hpp
        COMMAND_ERROR_IS_FATAL ANY)
endforeach()
foreach(part kernels board)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E compare_files
            ${FOLDER}/${part}_1.hpp ${FOLDER}/${part}_2.hpp
        COMMAND_ERROR_IS_FATAL ANY)
endforeach()
