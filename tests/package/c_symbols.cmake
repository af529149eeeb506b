# SPDX-License-Identifier: MIT
# cmake -DLIBRARY=file -DMAP=file -DHEADER=file -DNM=nm -P c_symbols.cmake
# The C interface is what its header declares, its map file lists and the library exports.
file(STRINGS ${HEADER} declared REGEX "kdvfs_[a-z_]+\\(")
list(TRANSFORM declared REPLACE ".*(kdvfs_[a-z_]+)\\(.*" "\\1")
file(STRINGS ${MAP} listed REGEX "kdvfs_[a-z_]+;")
list(TRANSFORM listed REPLACE ".*(kdvfs_[a-z_]+);.*" "\\1")
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " T kdvfs_[a-z_]+@@KDVFS_C_1" exported "${symbols}")
list(TRANSFORM exported REPLACE " T (kdvfs_[a-z_]+)@.*" "\\1")
foreach(set declared listed exported)
    list(REMOVE_DUPLICATES ${set})
    list(SORT ${set})
endforeach()
if(NOT declared STREQUAL listed OR NOT listed STREQUAL exported OR listed STREQUAL "")
    message(FATAL_ERROR "declared: ${declared}\nlisted:   ${listed}\nexported: ${exported}")
endif()
list(LENGTH listed count)
message("${count} functions of the C interface are declared, listed and exported")
