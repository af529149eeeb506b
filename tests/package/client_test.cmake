# SPDX-License-Identifier: MIT
# Configures, builds and runs CLIENT in a fresh BUILD folder.
file(REMOVE_RECURSE ${BUILD})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CLIENT} -B ${BUILD} -G ${GENERATOR}
                        -DCMAKE_CXX_COMPILER=${COMPILER} ${OPTIONS} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${BUILD}/client COMMAND_ERROR_IS_FATAL ANY)
