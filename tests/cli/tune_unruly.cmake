# SPDX-License-Identifier: MIT
# `kdvfs tune` with programs that fail, and with options that are corrected.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# has_clocks_from(FILE FLOOR): a profile has rows, and none of a core clock below FLOOR MHz.
function(has_clocks_from file floor)
    file(STRINGS ${FOLDER}/${file} lines)
    set(clocks 0)
    foreach(line ${lines})
        if(NOT line MATCHES "^[^,]*,[^,]*,[0-9]+,[^,]*,([0-9]+),")
            continue()
        endif()
        math(EXPR clocks "${clocks} + 1")
        if(CMAKE_MATCH_1 LESS floor)
            message(FATAL_ERROR "${file}: measured below ${floor} MHz: ${line}")
        endif()
    endforeach()
    if(clocks LESS 3)
        message(FATAL_ERROR "${file} has ${clocks} rows with a core clock")
    endif()
endfunction()

# A crash at a clock excludes the clock; two, those below. The plan has none of them.
expect(0 "kept.*by signal 6: the clock is excluded" tune --max-slowdown 5% -o crash -- ${UNRULY} crash)
file(STRINGS ${FOLDER}/crash/excluded.csv rows)
list(LENGTH rows count)
if(count LESS 2 OR count GREATER 5 OR NOT rows MATCHES "ended by signal 6" OR rows MATCHES "[^0-9]9[0-9][0-9],")
    message(FATAL_ERROR "excluded.csv has other rows than the header and one to four low clocks: ${rows}")
endif()
has_clocks_from(crash/profile.csv 900)

# So does one that never ends, where runs have a limit.
expect(0 "kept.*ended after 4[^\n]* s: the clock is excluded" tune --max-slowdown 5% --timeout 4s -o hang
       -- ${UNRULY} hang)
expect(2 "ended after 1[^\n]* s" tune --timeout 1s -o sleeps -- sh -c "sleep 30 & wait")
expect(1 "give a time such as" tune --timeout 3 -o none -- ${UNRULY} hang)

# Clocks that are excluded beforehand are never set.
expect(0 "kept" tune --max-slowdown 5% --exclude-below 900 -o floor -- ${UNRULY} crash)
if(EXISTS ${FOLDER}/floor/excluded.csv)
    message(FATAL_ERROR "the program met a clock below 900 MHz")
endif()
has_clocks_from(floor/profile.csv 900)
expect(1 "give a core clock in MHz" tune --exclude-below auto -o none -- ${UNRULY})

# What failed before anything was measured may be corrected; then options that measurements do not
# depend on.
expect(1 "exit code 2" tune --max-slowdown 2% -o corrected -- ${UNRULY} typo)
expect(0 "kept" tune --max-slowdown 2% -o corrected -- ${UNRULY} plain)
file(READ ${FOLDER}/corrected/profile.csv measured)
expect(0 "slowdown up to 3 %" tune --max-slowdown 3% --exclude-below 800 -o corrected -- ${UNRULY} plain)
file(READ ${FOLDER}/corrected/profile.csv later)
string(FIND "${later}" "${measured}" at)
if(NOT at EQUAL 0)
    message(FATAL_ERROR "a bound of its own lost what had been measured")
endif()
expect(1 "of another program" tune --max-slowdown 3% -o corrected -- ${UNRULY} plain 200)
