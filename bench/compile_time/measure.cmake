# SPDX-License-Identifier: MIT
# The time to compile <kdvfs/kdvfs.hpp> against that of the std and GSL headers it includes, both at
# -O0: medians of ROUNDS turns, taken alternately so that a busy machine disturbs both.
set(allowed_percent 150)
if(NOT ROUNDS)
    set(ROUNDS 11)
endif()
set(compile ${COMPILER} -std=c++20 -O0 -I${INCLUDE})
file(WRITE ${FOLDER}/kdvfs.cpp "#include <kdvfs/kdvfs.hpp>\n")

execute_process(COMMAND ${compile} -MM ${FOLDER}/kdvfs.cpp OUTPUT_VARIABLE dependencies
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^ \n\\]+\\.hpp" headers "${dependencies}")
foreach(header ${headers})
    file(STRINGS ${header} lines REGEX "^#include <")
    list(APPEND external ${lines})
endforeach()
list(FILTER external EXCLUDE REGEX "<kdvfs/")
list(REMOVE_DUPLICATES external)
list(LENGTH external count)
list(JOIN external "\n" text)
file(WRITE ${FOLDER}/external.cpp "${text}\n")

# compile_once(NAME): appends the microseconds that FOLDER/NAME.cpp takes to times_NAME.
macro(compile_once name)
    string(TIMESTAMP start "%s%f")
    execute_process(COMMAND ${compile} -c ${FOLDER}/${name}.cpp -o ${FOLDER}/${name}.o
                    COMMAND_ERROR_IS_FATAL ANY)
    string(TIMESTAMP end "%s%f")
    math(EXPR time "${end} - ${start}")
    list(APPEND times_${name} ${time})
endmacro()

macro(median_milliseconds name)
    list(SORT times_${name} COMPARE NATURAL)
    math(EXPR middle "${ROUNDS} / 2")
    list(GET times_${name} ${middle} median_${name})
    math(EXPR milliseconds_${name} "${median_${name}} / 1000")
endmacro()

foreach(round RANGE 1 ${ROUNDS})
    compile_once(external)
    compile_once(kdvfs)
endforeach()
median_milliseconds(external)
median_milliseconds(kdvfs)
math(EXPR percent "100 * ${median_kdvfs} / ${median_foreign}")
message("${count} std and GSL headers: ${milliseconds_foreign} ms; <kdvfs/kdvfs.hpp>: "
        "${milliseconds_kdvfs} ms, ${percent} % of that (at most ${allowed_percent} %)")
if(percent GREATER allowed_percent)
    message(FATAL_ERROR "<kdvfs/kdvfs.hpp> has grown too heavy")
endif()
