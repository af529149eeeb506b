# SPDX-License-Identifier: MIT
# A second opinion on the way programs are shown virtual GPUs: umockdev's, which is not ours.
# cmake -DTREE=program -DPROGRAM=kdvfs-restore -DPRELOAD=library -DFOLDER=folder -P umockdev.cmake
file(MAKE_DIRECTORY ${FOLDER}/runtime)
execute_process(COMMAND ${TREE} ${FOLDER} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -E env UMOCKDEV_DIR=${FOLDER} LD_PRELOAD=${PRELOAD}
                        ${PROGRAM} --folder ${FOLDER}/runtime
                OUTPUT_VARIABLE out ERROR_VARIABLE errors RESULT_VARIABLE result)
message("${out}${errors}")
foreach(line "AMD Instinct MI210 (0000:c1:00.0): nothing to do"
        "AMD Instinct MI300X (0000:c4:00.0): nothing to do")
    string(FIND "${out}" "${line}" at)
    if(at EQUAL -1)
        message(SEND_ERROR "not found: ${line}")
    endif()
endforeach()
if(NOT result EQUAL 0)
    message(SEND_ERROR "ended with ${result}")
endif()
