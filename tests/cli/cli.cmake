# SPDX-License-Identifier: MIT
# The kdvfs command from end to end: plan, validate, tune, report; and what it says to bad input.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

expect(0 "sim:mi300x" info)
foreach(profile "sweep mi300x 3" "once mi300x 1" "h100 h100 3")
    separate_arguments(profile)
    list(POP_FRONT profile name)
    execute_process(COMMAND ${PROFILE} ${profile} OUTPUT_FILE ${FOLDER}/${name}.csv COMMAND_ERROR_IS_FATAL ANY)
endforeach()

expect(0 "global .chosen." plan once.csv)
expect(0 "global .chosen." plan sweep.csv --max-slowdown 1%)
expect(0 "each launch under 95 ms" plan sweep.csv --keep-under 95ms)
expect(0 "46 of 46 kernels are not kept under 0.001 ms; [^ ]+ takes [0-9]" plan sweep.csv --keep-under 1us)
expect(0 "launch_limit_s" plan sweep.csv --keep-under 95ms --format json)
expect(0 "PolicyRegistry<" plan sweep.csv --format header)
expect(0 "\"aggregate\": \"local\"" plan sweep.csv --format json --aggregate local)
string(JSON kernels LENGTH "${said}" kernels)
string(JSON energy GET "${said}" plan energy_pct)
if(NOT kernels EQUAL 46 OR energy GREATER 0)
    message(FATAL_ERROR "a plan of ${kernels} kernels that changes energy by ${energy} %")
endif()
expect(0 "with 10000 W of the node: time .*The plan for the GPU alone: " plan sweep.csv --max-slowdown 5% --node-watts 10000)
foreach(objective waste edp ed2p energy zeus:0.5)
    expect(0 "baseline" plan sweep.csv --objective ${objective})
endforeach()

# Without a bound the command shows several; what its figures leave out is said.
expect(0 "slowdown up to.*0[.]1 %.*10 %.*global .chosen." plan sweep.csv)
expect(0 "no point was measured twice" plan once.csv --estimates shrunk)
expect(0 "not in these figures" plan sweep.csv --max-slowdown 1% --format json -o plan.json)
expect(1 "from 0.5 to below 1" plan sweep.csv --confidence 20%)
expect(1 "no effect" plan sweep.csv --confidence 80% --estimates mean)
set(few ${CMAKE_CURRENT_LIST_DIR}/../package/document_files/few.csv)
expect(0 "predicted, not validated: energy may be off by [0-9.]+ points.*gelu +1[0-9]+ " plan ${few}
       --predict 510:1410:30 --max-slowdown 1%)
expect(0 "predicted_within_pct" plan ${few} --predict 510,1230,1410 --format json)
expect(1 "give clocks in MHz" plan ${few} --predict fast)

# A validation judges: by its exit status, its table and its JSON. This program takes what it is told by a plan, and 1 s and
# 100 J else.
file(WRITE ${FOLDER}/obeys.sh "
[ -z \"$KDVFS_PLAN\" ] && set -- 1 100
printf 'time_s,energy_j\\n%s,%s\\n' $1 $2 > $KDVFS_COST
")
set(runs validate plan.json --counter program -- sh obeys.sh)
expect(0 "time [^\n]* kept\nenergy [^\n]* kept\nslowdown up to 1 %: kept" ${runs} 1.001 90)
expect(3 "energy [^\n]*not known  undecided.*2 pairs are too few" validate plan.json --counter program --pairs 2 -- sh obeys.sh 1.001 90)
expect(3 "" validate plan.json --counter program --pairs 2 --format json -o two.json -- sh obeys.sh 1.001 90)
expect(0 "\"name\":\"kept: two\"" report sweep.csv plan.json two.json)
expect(4 "energy [^\n]* broken" ${runs} 1.001 101)
expect(4 "time [^\n]* broken" ${runs} 1.02 90)
expect(4 "\"verdict\": \"broken\"" validate plan.json --counter program --format json -- sh obeys.sh 1.02 90)
string(JSON verdict GET "${said}" energy verdict)
if(NOT verdict STREQUAL "kept")
    message(FATAL_ERROR "a saving without noise was ${verdict}")
endif()
expect(0 "<!doctype html>.*\"frontier\"" report sweep.csv)
expect(0 "<!doctype html>.*\"plans\"" report plan.json)

file(WRITE ${FOLDER}/trace.csv "kernel\n")
foreach(launch RANGE 30)
    file(APPEND ${FOLDER}/trace.csv "wte_wpe_00\ngemm_02\n")
endforeach()
expect(0 "launches +core" plan sweep.csv --trace trace.csv --switch-latency 100us)
expect(0 "\"segments\"" plan sweep.csv --trace trace.csv --switch-latency 6ms --format json)
expect(0 "\"segment\"" plan sweep.csv --trace trace.csv --switch-latency 6ms --format header)

# A plan of segments has its launches, and knows what switching costs.
file(WRITE ${FOLDER}/phases.csv "kernel\n")
foreach(launch RANGE 1 30)
    file(APPEND ${FOLDER}/phases.csv "gemm_02\n")
endforeach()
foreach(launch RANGE 1 500)
    file(APPEND ${FOLDER}/phases.csv "permute_03\n")
endforeach()
expect(0 "^$" plan sweep.csv --trace phases.csv --switch-latency 1ms --max-slowdown 1% --format json
       -o segments.json)
expect(0 "energy +-[1-9][^\n]* -[1-9][^\n]* kept" validate segments.json --counter program -- sh obeys.sh 1.001 80)
expect(0 "\"frontier\".*\"name\":\"segments\"" report sweep.csv segments.json)
expect(0 "\"plans\".*\"name\":\"segments\"" report segments.json)
expect(0 "\"name\":\"global\".*\"name\":\"segments\"" report plan.json segments.json sweep.csv)
expect(4 "broken" validate segments.json --counter program -- sh obeys.sh 1.001 101)

# A program profiles itself, is planned for, and is run with the plan and without: step by step ...
set(ENV{XDG_DATA_HOME} ${FOLDER}/data)
execute_process(COMMAND ${CMAKE_COMMAND} -E env KDVFS_MODE=sweep:self.csv ${SELF_TUNING} 1000
                WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result OUTPUT_VARIABLE output)
if(NOT result EQUAL 0 OR NOT output MATCHES "sweep done")
    message(FATAL_ERROR "self_tuning ended with ${result}: ${output}")
endif()
expect(0 "" plan self.csv --max-slowdown 2% --format json -o self.json)
expect(3 "energy +-[1-9][^\n]* -[1-9]" validate self.json --pairs 2 --counter program -- ${SELF_TUNING})

# ... and by one command, which keeps bound and promise, survives being killed at any point, and
# refuses what is another job.
expect(0 "energy +-6[^\n]* -6[^\n]* kept" tune --max-slowdown 2% --pairs 4 -- ${SELF_TUNING})
string(REGEX MATCHALL "kept\n" verdicts "${said}")
list(LENGTH verdicts count)
if(NOT count EQUAL 3 OR NOT said MATCHES "about [0-9]+ runs for the sweep, 8 to validate at most")
    message(FATAL_ERROR "kdvfs tune did not keep both, or did not say how long it takes:\n${said}")
endif()
string(REGEX MATCH "about ([0-9]+) runs" _ "${said}")
set(runs ${CMAKE_MATCH_1})
foreach(file plan.json policies.hpp kept.json report.html)
    if(NOT EXISTS ${FOLDER}/kdvfs_tune/${file})
        message(FATAL_ERROR "kdvfs tune left no ${file}")
    endif()
endforeach()
expect(0 "kept" tune --max-slowdown 2% --pairs 4 -- ${SELF_TUNING})  # all is there
# Its forecast knows what the environment says of sweeps.
set(ENV{KDVFS_SWEEP_ROWS} 2)
expect(0 "kept" tune --max-slowdown 2% --pairs 2 -o few -- ${SELF_TUNING})
unset(ENV{KDVFS_SWEEP_ROWS})
string(REGEX MATCH "about ([0-9]+) runs" _ "${said}")
if(NOT CMAKE_MATCH_1 LESS runs)
    message(FATAL_ERROR "short measurements take ${CMAKE_MATCH_1} runs, long ones ${runs}")
endif()
expect(1 "from 0.5 to below 1" tune --confidence 20% -o none -- ${SELF_TUNING})
expect(1 "of another program" tune --max-slowdown 2% -- ${SELF_TUNING} 40)
expect(0 "segments" plan kdvfs_tune --max-slowdown 2% --format json)
file(WRITE ${FOLDER}/cost.sh "printf 'time_s,energy_j\\n1,1\\n' > $KDVFS_COST\n")
set(ENV{KDVFS_NVML} ${FOLDER}/absent.so)  # whatever board the machine has
# What is there to gain is said from a run as it is, or from what a tuning has recorded.
expect(0 "MI250X: [^\n]* of 560 W\n.*one clock +unknown +0 - [0-9.]+ +0 - [0-9.]+ *\n.*memory clock stays.*recommended: .*next: kdvfs tune"
       worth -- ${SELF_TUNING})
# The limit is that of the board that the program used, not of one that is in the machine.
set(ENV{KDVFS_NVML} ${NVML_DOUBLE})
expect(0 "simulated[^\n]*MI250X: [^\n]* of 560 W" worth -- ${SELF_TUNING})
set(ENV{KDVFS_NVML} ${FOLDER}/absent.so)
expect(0 "by_kernel" worth kdvfs_tune --format json)
string(JSON one_clock GET "${said}" one_clock 1 high_pct)
string(JSON by_kernel GET "${said}" by_kernel 1 high_pct)
if(one_clock GREATER by_kernel)
    message(FATAL_ERROR "one clock may save ${one_clock} %, clocks by kernel ${by_kernel} %")
endif()
expect(1 "power limit is not known" worth -- sh cost.sh)
expect(0 "% of 300 W" worth --power-limit 300 --format table -- sh cost.sh)
unset(ENV{KDVFS_NVML})
expect(1 "no report of kdvfs run" worth plan.json)
# With a run at 0.85 of the clock: 8 % slower, 20 % fewer watts.
foreach(run "found 100 30000" "lower 108 25920")
    separate_arguments(run UNIX_COMMAND "${run}")
    list(GET run 0 name)
    list(GET run 1 seconds)
    list(GET run 2 joules)
    file(WRITE ${FOLDER}/${name}.json "{\"processes\":[{\"pid\":1,\"rank\":\"\",\"ended\":true,\"notes\":[],\"devices\":[
        {\"launches\":1,\"iterations\":{\"count\":1,\"launches\":1},\"report\":{\"device\":{\"name\":\"H100\",\"address\":\"\"},
        \"totals\":{\"counted_time_s\":${seconds},\"counter_j\":${joules},\"kernels\":{\"status\":\"\"},
        \"idle\":{\"status\":\"\"}},\"rows\":[],\"levels\":[]}}]}]}")
endforeach()
expect(0 "one clock, by the lower one +unknown +0.0 - [0-9.]+ +0.0 - [0-9.]+ *\n"
       worth found.json --lower lower.json --lower-clock 0.85)
expect(1 "lower-clock" worth found.json --lower lower.json)
# Two processes on one board at once: its energy counts once, and none knows when it was idle.
foreach(process "1 10 3000" "2 10 2900")
    separate_arguments(process UNIX_COMMAND "${process}")
    list(GET process 0 pid)
    list(GET process 1 seconds)
    list(GET process 2 joules)
    set(process${pid} "{\"pid\":${pid},\"rank\":\"\",\"ended\":true,\"notes\":[],\"begin_s\":${pid},\"end_s\":11,\"devices\":[
        {\"launches\":1,\"iterations\":{\"count\":1,\"launches\":1},\"report\":{\"device\":{\"name\":\"H100\",\"address\":\"0:1\"},
        \"totals\":{\"counted_time_s\":${seconds},\"counter_j\":${joules},\"idle_time_s\":5,\"kernels\":{\"status\":\"\"},
        \"idle\":{\"status\":\"resolved\",\"joules\":500}},\"rows\":[],\"levels\":[]}}]}")
endforeach()
file(WRITE ${FOLDER}/shared.json "{\"processes\":[${process1},${process2}]}")
expect(0 "H100: 10 s, 3000 J; 300 W .*idle time is not known" worth shared.json)
file(WRITE ${FOLDER}/killed.sh "
kills=0
for delay in 0.02 0.05 0.1 0.03 0.15 0.08 0.06 0.2 0.04 0.3; do
    timeout -s KILL $delay \"$@\" && break
    kills=$((kills + 1))
done
\"$@\" && echo \"after $kills kills\"
")
execute_process(COMMAND sh killed.sh ${KDVFS} tune --max-slowdown 2% --pairs 40 -o killed
                        -- ${SELF_TUNING}
                WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result OUTPUT_VARIABLE output
                ERROR_VARIABLE error)
if(NOT result EQUAL 0 OR NOT output MATCHES "energy +-6[^\n]* kept.*after ([3-9]|10) kills")
    message(FATAL_ERROR "a killed kdvfs tune did not go on (${result}):\n${output}\n${error}")
endif()
# Strict: this board has nothing to give, which no runs are spent on.
expect(5 "nothing to gain" tune --max-slowdown 0% --pairs 4 -o strict -- ${SELF_TUNING})
expect(1 "no kdvfs::tune::Session" tune -o none -- sh cost.sh)
expect(1 "exit code 1" tune -o fails -- false)
expect(1 "--run-slowdown" tune -o slow --run-slowdown 0% -- ${SELF_TUNING})
# Five runs of one step measure nothing.
expect(1 "two runs in a row" tune -o short -- ${SELF_TUNING} 1)

# Switching latencies are kept where plans look for them.
expect(0 "assumed" plan kdvfs_tune --max-slowdown 2% --format json -o assumed.json)
expect(0 "kept in .*simulated_AMD_Instinct_MI250X.csv" measure-latency --device sim:mi250x --repeat 3 --clocks 500,1700)
execute_process(COMMAND ${KDVFS} plan kdvfs_tune --max-slowdown 2% WORKING_DIRECTORY ${FOLDER}
                RESULT_VARIABLE result ERROR_VARIABLE error OUTPUT_QUIET)
if(NOT result EQUAL 0 OR error MATCHES "assumed")
    message(FATAL_ERROR "a plan did not use the measured latencies: ${error}")
endif()
expect(1 "exit code 2" measure-latency --device sim:voodoo)
# So are sensors: of the power log of one board, of the counter of another.
expect(0 "power log: a reading every 20 ms.*kept in .*sensor/simulated_NVIDIA_H100.*csv" measure-sensor --device sim:h100)
expect(0 "energy counter.*mean since the one before" measure-sensor --device sim:mi210 --seconds 20 -o sensor.csv)
expect(1 "exit code 2" measure-sensor --device sim:voodoo)
expect(1 "obey a plan" validate plan.json --counter program -- ${SELF_TUNING})  # another GPU's

# Joules from a counter: here a file in which the program itself counts up, slower under a plan.
file(WRITE ${FOLDER}/joules "0\n")
file(WRITE ${FOLDER}/program.sh "
joules=$(cat joules)
step=400000
[ -z \"$KDVFS_PLAN\" ] || step=300000
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    joules=$((joules + step)); echo $joules > joules; sleep 0.02
done
")
expect(3 "energy +[^ ]+ % +-[23][0-9]\\.[0-9]+ %" validate self.json --pairs 3 --counter hwmon:joules -- sh program.sh)
expect(2 "stood still" validate self.json --pairs 2 --counter hwmon:joules -- true)
expect(1 "exit code 3" validate self.json --counter hwmon:joules -- sh -c "exit 3")
expect(1 "No such file" validate self.json --counter hwmon:joules -- ./absent)
expect(1 "absent" validate self.json --counter hwmon:absent -- true)
expect(1 "did not report" validate self.json --counter program -- true)
expect(2 "--counter" validate self.json --counter 0000:ff:00.0 -- true)
expect(1 "command is required" validate self.json)

# Bad input ends with 1 and names file and line.
file(WRITE ${FOLDER}/bad.csv "gpu,kernel,core_mhz,mem_mhz,time_s,energy_j\ng,a,auto,auto,1,nan\n")
expect(1 "bad.csv:2: the energy is not finite" plan bad.csv)
expect(1 "absent.csv" plan absent.csv)
expect(1 "profile is required" plan)
expect(1 "subcommand" nonsense)
expect(1 "--objective" plan sweep.csv --objective zeus:x)
expect(1 "--max-slowdown" plan sweep.csv --max-slowdown -1%)
expect(1 "--keep-under" plan sweep.csv --keep-under soon)
expect(1 "bound the time of a launch" plan sweep.csv --keep-under 0s)
expect(1 "--switch-latency" plan sweep.csv --trace trace.csv --switch-latency 6parsecs)
expect(1 "namespace" plan sweep.csv --format header --namespace "a{}int b")
file(WRITE ${FOLDER}/broken.json "{\n\"gpu\": }\n")
expect(1 "broken.json:2: this is no JSON" validate broken.json -- true)
file(WRITE ${FOLDER}/unknown.csv "kernel\nsort\n")
expect(1 "sort: the profile does not have" plan sweep.csv --trace unknown.csv)
file(CREATE_LINK ${FOLDER}/plan.json ${FOLDER}/link.json SYMBOLIC)
expect(1 "symbolic link" validate link.json -- true)
