# SPDX-License-Identifier: MIT
# What headers define may be defined by each file that includes them: an object of them has no strong
# symbol that other files see, but those of its source.
# cmake -DNM=nm -DOBJECT=file.o -P defined_once.cmake
execute_process(COMMAND ${NM} --extern-only --defined-only --demangle --format=posix ${OBJECT}
                OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "" symbols "${symbols}")
string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
list(FILTER symbols INCLUDE REGEX " [A-Z] [0-9a-f]")
set(strong ${symbols})
list(FILTER strong EXCLUDE REGEX " [VWU] [0-9a-f]")
list(FILTER strong EXCLUDE REGEX "^every_header_was_included\\(\\) ")
list(LENGTH symbols count)
if(count LESS 50)  # clang makes code of what is called alone
    message(FATAL_ERROR "${OBJECT} has ${count} symbols: it is not made of the headers")
endif()
if(strong)
    list(JOIN strong "\n  " lines)
    message(FATAL_ERROR "a second file that includes these headers would define again:\n  ${lines}")
endif()
