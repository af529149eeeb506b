# SPDX-License-Identifier: MIT
# kdvfs power-limit: on a simulated board, and around a program on a double of NVML whose writes the
# program reads: its time and its energy depend on the limit that is set.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

expect(0 "simulated NVIDIA H100.* best\n" power-limit --device sim:h100 --goal energy)
expect(0 "\"best_w\"" power-limit --device sim:h100 --goal slowdown:2% --format json)
string(JSON best GET "${said}" best_w)
string(JSON found GET "${said}" found_w)
if(NOT best LESS found)
    message(FATAL_ERROR "2 % of time buy no lower limit than ${found} W")
endif()

# Watts moved between the GPUs of a node: on a simulated one, and as its ranks' reports foretell.
# 0.94 of the clock on one of two: 0.94^-1 / ((1 + 0.94^-2.2) / 2)^(1 / 2.2) = 1.0303, and half of
# 1 - 0.94^2.2 is 6.36 %. Collectives count as waiting.
expect(0 "8 x AMD Instinct MI300X.*[+]3[.][0-9]+ % speed.*at most 5100[.]0 of 5100[.]0 W"
       node-power --device sim:mi300x)
foreach(rank 0 1)
    math(EXPR time "${rank} * 638298 + 10000000")
    set(row "\"variant\": 0, \"calls\": 10, \"metered_calls\": 10, \"asked\": {}, \"applied\": {}, \"held_core_mhz\": 900")
    file(WRITE ${FOLDER}/rank${rank}.json "{\"processes\": [{\"pid\": 1, \"rank\": \"${rank}\", \"ended\": true, \"notes\": [],
        \"devices\": [{\"launches\": 10, \"iterations\": {\"count\": 10, \"launches\": 1}, \"report\": {
        \"device\": {\"name\": \"GPU\", \"address\": \"0000:c${rank}:00.0\"},
        \"totals\": {\"counter_j\": 1, \"kernels\": {\"status\": \"resolved\"}, \"idle\": {\"status\": \"resolved\"}},
        \"rows\": [{\"kernel\": \"gemm\", \"time_s\": ${time}e-6, \"energy\": {\"status\": \"resolved\", \"joules\": ${time}e-4}, ${row}},
                 {\"kernel\": \"ncclDevKernel\", \"time_s\": 9, \"energy\": {\"status\": \"unresolved\"}, ${row}}],
        \"levels\": [{\"level\": \"iteration\", \"runs\": 10, \"time_s\": 10.638298, \"energy\": {\"status\": \"resolved\"}}]}}]}]}")
endforeach()
expect(0 "c1:00.0, rank 1 .*1063.83 ms .*100.0 W .*the slowest.*[+]3[.]03 % speed.*-6[.]36 % watts"
       node-power rank0.json rank1.json)
# A rack: the same ranks on two nodes of one GPU, which have nothing to move within themselves.
foreach(rank 0 1)
    file(READ ${FOLDER}/rank${rank}.json report)
    string(REPLACE "\"pid\": 1," "\"pid\": 1, \"host\": \"n${rank}\"," report "${report}")
    file(WRITE ${FOLDER}/node${rank}.json "${report}")
endforeach()
expect(0 "node n0: 1 GPUs, 100[.]0 W; 9[0-9.]+ W for speed, 87[.]3 W for power.*node n1: 1 GPUs, 100[.]0 W; 10.*each node alone: [+]0[.]00 % speed.*[+]3[.]03 % speed"
       node-power node0.json node1.json)
expect(1 "1 GPUs" node-power rank0.json)
expect(1 "give reports" node-power)
file(WRITE ${FOLDER}/none.json "{}")
expect(1 "none.json.*no report of kdvfs run" node-power none.json)

set(ENV{KDVFS_NVML} ${NVML_DOUBLE})
set(ENV{KDVFS_RECORDS} ${FOLDER}/records)
set(ENV{NVML_DOUBLE_LOG} ${FOLDER}/writes)
# It takes 5 s + 4e7 / (limit in W)^3 and draws nine tenths of the limit, 700 W as found.
file(WRITE ${FOLDER}/program.sh "
limit=$(sed -n 's/^power limit //p' writes 2> none | tail -n 1)
awk -v limit=\${limit:-700000} 'BEGIN {
    w = limit / 1000; time = 5 + 4e7 / w ^ 3
    printf \"time_s,energy_j\\n%.9g,%.9g\\n\", time, 0.9 * w * time }' > \"$KDVFS_COST\"
")
set(search power-limit --counter program --format json)

# Nothing is written by a dry run, and no program is run.
expect(0 "nvmlDeviceSetPowerManagementLimit\\(475000\\).*restores +nvmlDeviceSetPowerManagementLimit\\(700000\\).*by hand +nvidia-smi -i 0000:1b:00.0 -pl 700.000"
       power-limit --dry-run -- touch ran)
if(EXISTS ${FOLDER}/writes OR EXISTS ${FOLDER}/ran OR EXISTS ${FOLDER}/records)
    message(FATAL_ERROR "a dry run has written or run something")
endif()

# A bound of 5 % of time: the formula gives 475.3 W, of which 500 W is the next step.
expect(0 "kdvfs: 500 W: 5.32 s" ${search} --goal slowdown:5% -- sh program.sh)
string(JSON best GET "${said}" best_w)
if(NOT best EQUAL 500)
    message(FATAL_ERROR "${best} W keep 5 % of time, not 500 W")
endif()
file(STRINGS ${FOLDER}/writes writes)
list(GET writes -1 last)
list(LENGTH writes count)
if(NOT last STREQUAL "power limit 700000" OR count LESS 4)
    message(FATAL_ERROR "the limit that was found was not put back: ${writes}")
endif()

# Least energy: no limit on the grid of 25 W needs 1 % less than the one found.
file(REMOVE ${FOLDER}/writes)
expect(0 "\"best_w\"" ${search} --goal energy -- sh program.sh)
string(JSON best GET "${said}" best_w)
execute_process(COMMAND awk -v found=${best} "
    function energy(w) { return 0.9 * w * (5 + 4e7 / w ^ 3) }
    BEGIN { for (w = 200; w <= 700; w += 25) if (energy(w) < 0.99 * energy(found)) exit 1 }"
    RESULT_VARIABLE result)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "${best} W is not the limit of least energy")
endif()

# Within one run: a double of an attached program counts its iterations and its microjoules, and goes on until
# the limit has stayed the same for a while.
file(REMOVE ${FOLDER}/writes)
file(WRITE ${FOLDER}/trains.sh "
count=0 energy=0 same=0 before=
while [ $same -lt 600 ] && [ $count -lt 300000 ]; do
    limit=$(tail -n 1 writes 2> none); limit=\${limit##* }
    [ \"$limit\" = \"$before\" ] && same=$((same + 1)) || same=0
    before=$limit
    watts=$((\${limit:-700000} / 1000))
    count=$((count + 5))
    energy=$((energy + 5 * 9 * watts * (5000 + 40000000000 / (watts * watts * watts)) / 100))  # a plausible power
    printf '%020d\\n' $energy 1<> microjoules  # never empty, as a driver's file
    echo '{\"pid\":1,\"rank\":\"\",\"ended\":false,\"notes\":[],\"devices\":[{\"launches\":1,\"iterations\":{\"count\":'$count',\"launches\":1},
        \"report\":{\"device\":{\"name\":\"\",\"address\":\"0000:1b:00.0\"},\"totals\":{\"counter_j\":0,\"kernels\":{\"status\":\"\"},
        \"idle\":{\"status\":\"\"}},\"rows\":[],\"levels\":[]}}]}' > report.new
    mv report.new \"$KDVFS_ATTACH_FOLDER/attached.1.json\"
done
echo $limit > limit_at_the_end
exit 7
")
file(WRITE ${FOLDER}/microjoules "00000000000000000000\n")
set(ENV{KDVFS_ATTACH} ${KDVFS})
expect(7 "\"complete\": true" power-limit --goal energy --step 50 --window 400 --counter hwmon:microjoules --format json
       -- sh trains.sh)
unset(ENV{KDVFS_ATTACH})
string(JSON best GET "${said}" best_w)
file(READ ${FOLDER}/limit_at_the_end limit)
file(STRINGS ${FOLDER}/writes writes)
list(GET writes -1 last)
string(REGEX REPLACE "\\..*" "" best "${best}")
math(EXPR milliwatts "${best} * 1000")
string(STRIP "${limit}" limit)
if(best GREATER 350 OR NOT limit EQUAL milliwatts OR NOT last STREQUAL "power limit 700000")
    message(FATAL_ERROR "found ${best} W, the run ended at ${limit} mW, and then there was: ${last}")
endif()

# After an error in the search the run goes on at the limit that was found: here the counter ends with the first
# limit that is tried. The program waits for the one of before, and its own status is the command's.
file(REMOVE ${FOLDER}/writes)
file(WRITE ${FOLDER}/loses_counter.sh "
count=0 energy=0 waited=0
while [ $waited -lt 1000 ]; do
    limit=$(tail -n 1 writes 2> none)
    case \"$limit\" in
        '') count=$((count + 5)) energy=$((energy + 8000000)); printf '%020d\\n' $energy 1<> microjoules ;;
        'power limit 700000') exit 7 ;;
        *) count=$((count + 5)) waited=$((waited + 1)); echo gone > microjoules ;;
    esac
    echo '{\"pid\":1,\"rank\":\"\",\"ended\":false,\"notes\":[],\"devices\":[{\"launches\":1,\"iterations\":{\"count\":'$count',\"launches\":1},
        \"report\":{\"device\":{\"name\":\"\",\"address\":\"0000:1b:00.0\"},\"totals\":{\"counter_j\":0,\"kernels\":{\"status\":\"\"},
        \"idle\":{\"status\":\"\"}},\"rows\":[],\"levels\":[]}}]}' > report.new
    mv report.new \"$KDVFS_ATTACH_FOLDER/attached.1.json\"
    sleep 0.01
done
exit 8
")
file(WRITE ${FOLDER}/microjoules "00000000000000000000\n")
set(ENV{KDVFS_ATTACH} ${KDVFS})
expect(7 "the search has ended, the program goes on: .*counter" power-limit --goal energy --step 50 --window 100
       --counter hwmon:microjoules -- sh loses_counter.sh)
unset(ENV{KDVFS_ATTACH})

# What cannot be searched is said, and nothing stays changed.
file(REMOVE ${FOLDER}/writes)
expect(1 "exit code 3" ${search} -- sh -c "exit 3")
expect(1 "no such program|No such file" ${search} -- ./absent)
expect(1 "--goal.*slowdown:5%" ${search} --goal speed -- true)
expect(1 "a step of" ${search} --step 0 -- sh program.sh)
expect(1 "program after --" power-limit)
expect(2 "there are 0000:1b:00.0" power-limit --gpu 0000:ff:00.0 -- true)
# A board has its address for a name, as sysfs, lspci and nvidia-smi spell it, and no part of it.
foreach(name 0000:1b:00.0 1b:00.0 00000000:1B:00.0)
    expect(0 "restores" power-limit --gpu ${name} --dry-run)
endforeach()
foreach(name 1 0000 b:00.0 00.0 GPU 1:1b:00.0)
    expect(2 "there are 0000:1b:00.0" power-limit --gpu ${name} --dry-run)
    expect(2 "there are 0000:1b:00.0.*report_cost.*Python: kdvfs.report_cost" worth --counter ${name} -- true)
endforeach()
