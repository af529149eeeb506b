# SPDX-License-Identifier: MIT
# bench/serving from end to end, and what it says to bad input.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

include(${CMAKE_CURRENT_LIST_DIR}/../cli/expect.cmake)

# What it writes, it reads: the same trace and table give the same figures, but for CPU seconds.
expect(0 "by_step" --policy by_step --write-trace trace.csv --write-table table.csv --format csv)
set(own "${said}")
expect(0 "by_step" --policy by_step --trace trace.csv --table table.csv --format csv)
foreach(figures own said)
    string(REGEX MATCH "\nby_step,[^,]*,(-[0-9.]+)," ${figures}_row "${${figures}}")
    set(${figures}_saved ${CMAKE_MATCH_1})
    if(NOT ${figures}_saved LESS -27)
        message(FATAL_ERROR "by_step saved ${${figures}_saved} %:\n${${figures}}")
    endif()
endforeach()

expect(0 "overloaded" --pools --boards 2 --trace trace.csv)
expect(0 "fixed 1500 MHz" --policy fixed --clock 1500)
expect(1 "it has 900 MHz, 1200 MHz" --policy fixed --clock 1000)
expect(1 "give --policy fixed" --policy no_harm --clock 1500)
expect("[1-9][0-9]*" "--pools excludes --policy|--policy excludes --pools" --pools --policy by_step)
expect("[1-9][0-9]*" "--boards" --boards 0)
expect("[1-9][0-9]*" "--boards" --boards -1)
expect(1 "give a time such as 6ms" --gap -5ms)
expect(1 "token gap" --gap 0ms)
expect(0 "not even the top clock keeps a token gap of 1 ms" --policy by_step --gap 1ms)
expect(0 "less than three switching latencies" --policy no_harm --switch-latency 100ms)

# The first request is the beginning, also where times are those of a wall clock.
file(WRITE ${FOLDER}/late.csv "arrival_s,prompt_tokens,answer_tokens\n")
foreach(second RANGE 100 400)
    file(APPEND ${FOLDER}/late.csv "1732240${second},500,100\n")
endforeach()
expect(0 "no_harm" --policy no_harm --trace late.csv)
expect(0 "boards in use" --pools --trace late.csv)

function(expect_trace words text)
    file(WRITE ${FOLDER}/bad.csv "${text}")
    expect(1 "${words}" --policy no_harm --trace bad.csv)
endfunction()
expect_trace("bad.csv:3: the time goes back" "dms,in,out\n5,10,10\n-5,10,10\n")
expect_trace("at least one prompt token" "dms,in,out\n5,0,10\n")
expect_trace("no column out" "dms,in\n5,10\n")
expect_trace("no requests" "dms,in,out\n")
expect_trace("the cache holds" "dms,in,out\n5,4000000000,3\n")
