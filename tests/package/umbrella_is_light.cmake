# SPDX-License-Identifier: MIT
# <kdvfs/kdvfs.hpp> reaches no Eigen, no JSON library and no vendor's header.
if(NOT EXISTS ${INCLUDE}/kdvfs/kdvfs.hpp)
    message("skipped: no kdvfs/kdvfs.hpp")
    return()
endif()
execute_process(COMMAND ${COMPILER} ${FLAGS} -M -x c++ ${INCLUDE}/kdvfs/kdvfs.hpp
                OUTPUT_VARIABLE dependencies COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^ \n\\]+" files "${dependencies}")
list(LENGTH files count)
list(FILTER files INCLUDE REGEX "/(Eigen|nlohmann|hip|rocm_smi|CLI)/|/(nvml|cuda)[^/]*\\.h$")
if(files)
    message(FATAL_ERROR "kdvfs.hpp reaches ${files}")
endif()
message("kdvfs.hpp reaches ${count} files, none of them heavy or a vendor's")
