# SPDX-License-Identifier: MIT
# cmake -DSOURCE_DIR=folder -DWORK=folder -DPRESET=name -DTARGET=name -P preset_flags.cmake
# Configures one preset in a folder of its own, without the tests, whose questions to the compiler take
# longer than all the rest, and compiles a small file of the tree there with all flags of the preset and
# the project's warnings as errors: a preset that cannot build is seen before somebody needs it.
execute_process(COMMAND ${CMAKE_COMMAND} --preset ${PRESET} -B ${WORK}/${PRESET} -DKDVFS_BUILD_TESTS=OFF
                        -DKDVFS_BUILD_EXAMPLES=OFF -DKDVFS_BUILD_BENCH=OFF
                WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE status)
if(status)
    message(FATAL_ERROR "cannot configure the preset ${PRESET}:\n${out}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/${PRESET} --target ${TARGET}
                OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE status)
if(status)
    message(FATAL_ERROR "the preset ${PRESET} cannot build ${TARGET}:\n${out}")
endif()
