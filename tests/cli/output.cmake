# SPDX-License-Identifier: MIT
# What the kdvfs command does to files and streams: "-" is a stream, nothing special is replaced,
# what could not be written is an error, and an option without effect is refused.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

# shell(CODE WORDS LINE): LINE, run by sh, ends with CODE and says WORDS (a regular expression);
# "kdvfs" in it is the command.
function(shell code words line)
    string(REPLACE "kdvfs " "'${KDVFS}' " line "${line}")
    execute_process(COMMAND sh -c "${line}" WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result
                    OUTPUT_VARIABLE output ERROR_VARIABLE error TIMEOUT 60)
    if(NOT result STREQUAL "${code}" OR NOT "${output}${error}" MATCHES "${words}")
        message(SEND_ERROR "${line}\nended with ${result}, not ${code}, or did not say "
                            "\"${words}\":\n${output}${error}")
    endif()
endfunction()

shell(0 "^kdvfs [0-9]+\\.[0-9]+\\.[0-9]+\n$" "kdvfs --version")

# "-" is standard input and output.
shell(0 "^$" "'${PROFILE}' mi210 3 > sweep.csv")
shell(0 "global .chosen." "kdvfs plan - < sweep.csv")
shell(0 "^{.*\"kernels\"" "kdvfs plan - --format json -o - < sweep.csv")
shell(0 "^{.*\"kernels\"" "kdvfs plan sweep.csv --format json -o /dev/stdout")
shell(0 "From: standard input" "kdvfs plan - --format header < sweep.csv")
# 5: nothing to gain.
set(as_found "--counter program -- sh -c 'printf \"time_s,energy_j\\\\n1,1\\\\n\" > $KDVFS_COST'")
shell(5 "promised" "kdvfs plan sweep.csv --format json | kdvfs validate - ${as_found}")
shell(0 "<!doctype html>" "kdvfs report - < sweep.csv")
shell(0 "launches +core" "printf 'kernel\\ngemm_02\\n' | kdvfs plan sweep.csv --trace -")
shell(0 "^$" "kdvfs plan sweep.csv --format json -o plan.json")
shell(1 "standard input:2" "printf 'gpu,kernel,core_mhz,mem_mhz,time_s,energy_j\\ng,a,b,c,d,e\\n' | kdvfs plan -")
shell(3 "KDVFS_PLAN=.*plan.json" "kdvfs validate - --pairs 2 --counter program -- \
sh -c 'env | grep KDVFS_PLAN >&2; echo time_s,energy_j > \"$KDVFS_COST\"; echo 1,1 >> \"$KDVFS_COST\"' < plan.json")

# Devices, FIFOs and links stay what they are; what is no sweep is left as it is.
shell(0 "^$" "kdvfs plan sweep.csv -o /dev/null && test -c /dev/null")
shell(1 "No space left" "kdvfs plan sweep.csv -o /dev/full")
shell(0 "global .chosen." "mkfifo fifo && { kdvfs plan sweep.csv -o fifo & cat fifo; } && test -p fifo")
shell(0 "global .chosen." "ln -s target link && touch target && kdvfs plan sweep.csv -o link && \
test -L link && cat target")
shell(1 "leads nowhere" "ln -s absent dangling && kdvfs plan sweep.csv -o dangling")
shell(1 "directory" "mkdir folder && kdvfs plan sweep.csv -o folder")

# What did not arrive is an error.
foreach(command "plan sweep.csv" "report sweep.csv" "info" "doctor" "--version" "--help"
        "validate plan.json ${as_found}")
    shell(1 "No space left|did not arrive" "kdvfs ${command} > /dev/full")
endforeach()

# Closed streams: files that are opened later do not take their numbers.
shell(1 "standard output" "kdvfs --version >&-")
shell(1 "standard input" "kdvfs plan - <&-")
shell(1 "Bad file descriptor" "KDVFS_ATTACH='${KDVFS}' kdvfs run --report - -- touch ran >&- || { test ! -e ran && exit 1; }")
shell(7 "^$" "env KDVFS_ATTACH='${KDVFS}' timeout 20 kdvfs run --report x.txt -- sh -c 'exit 7' <&- 2>&- >&-")

# Where the file of a result has become one that cannot be written, the result is printed.
shell(1 "slowdown.*|promised.*kept.*directory" "kdvfs validate plan.json --pairs 2 -o late.json --counter program -- \
sh -c 'mkdir -p late.json; echo time_s,energy_j > $KDVFS_COST; echo 1,1 >> $KDVFS_COST'")

# Words in brackets behind "--" are what they are.
shell(1 "'?.x].json: No such file" "kdvfs validate -- '[x].json' true")
shell(1 "open a file: .a,b.: No such file" "kdvfs merge -- '[a,b]'")

# Who is ended by a signal leaves no temporary folder.
shell(143 "." "mkdir temporary; TMPDIR=temporary kdvfs tune --counter program -o ended -- sh -c 'kill $PPID; sleep 9'; \
code=$?; test -z \"$(ls temporary)\" && exit $code")

# A folder is no file.
foreach(command "plan sweep.csv --trace folder" "report folder" "recommend folder"
        "plan-pool folder" "plan-pipeline folder")
    shell(1 "folder: it is a folder" "kdvfs ${command}")
endforeach()

# Ranges.
foreach(command "validate plan.json --pairs -1 -- true" "validate plan.json --pairs 1 -- true"
        "validate plan.json --pairs 1000000000 -- true" "validate plan.json --seed -1 -- true"
        "validate plan.json --seed 1.5 -- true" "validate plan.json --seed 99999999999999999999 -- true"
        "plan sweep.csv --max-slowdown 1e9%"
        "plan sweep.csv --max-slowdown nan"
        "plan sweep.csv --max-slowdown ''" "plan sweep.csv --format= "
        "plan sweep.csv --objective zeus:2"
        "plan sweep.csv --trace sweep.csv --switch-latency 1000s")
    shell(1 "." "kdvfs ${command}")
endforeach()

# Options without effect.
foreach(command "plan sweep.csv --namespace a" "plan sweep.csv --objective edp --confidence 80%"
        "plan sweep.csv --trace sweep.csv --keep-under 1s" "plan sweep.csv --arch gfx90a"
        "plan sweep.csv --switch-latency 6ms" "plan sweep.csv --trace sweep.csv --aggregate local"
        "plan-pipeline case.json --at 0.17s --namespace a" "plan-pipeline case.json --clocks two"
        "top --once --every 3")
    shell(1 "no effect" "kdvfs ${command}")
endforeach()

# A report takes files of each kind, and says what it cannot take.
shell(5 "^$" "kdvfs validate plan.json --format json -o kept.json ${as_found}")
shell(0 "\"promises\"" "kdvfs report kept.json")
shell(1 "another plan already" "kdvfs report plan.json plan.json")
shell(1 "nothing that kdvfs writes" "echo '{}' | kdvfs report -")
shell(1 "standard input:1" "echo 'a;b' | kdvfs report -")
shell(1 "standard input" "echo '{\"rows\":[{\"kernel\":1,\"energy\":{}}]}' | kdvfs report -")
set(rest "{\"clock\":{\"core_mhz\":800,\"memory_mhz\":0},\"time_s\":1.5,\"energy\":")
string(APPEND rest "{\"joules\":60,\"half_width_95\":3,\"status\":\"resolved\"}}")
shell(0 "<td>core 800 MHz, memory auto</td><td>1.500</td><td>60.0 .+ 3.0</td><td>40.0</td>"
      "echo '{\"rows\":[],\"totals\":{\"rests\":[${rest}]}}' | kdvfs report -")

# A pipeline: its frontier, and its stages before and after.
set(points "[[1700, 0.02, 9.0], [1400, 0.023, 7.5], [1100, 0.029, 6.8]]")
string(CONFIGURE [=[{"format": "pipeline-case-1", "name": "two stages", "schedule": "1f1b",
    "stages": 2, "chunks": 1, "microbatches": 3, "blocking_power_w": 90, "profiles": [
    {"stage": 0, "op": "forward", "points": @points@},
    {"stage": 0, "op": "backward", "points": @points@},
    {"stage": 1, "op": "forward", "points": @points@},
    {"stage": 1, "op": "backward", "points": @points@}]}]=] case @ONLY)
file(WRITE ${FOLDER}/case.json "${case}")
shell(0 "<title>two stages.*\"pipeline-frontier\".*\"all at their fastest clock\""
      "kdvfs report case.json")
shell(0 "^$" "kdvfs plan-pipeline case.json --slowdown 5% --format json -o stages.json")
shell(0 "\"id\":\"pipeline\"" "kdvfs report stages.json")
shell(0 "\"total_j\": 102\\.13" "kdvfs plan-pipeline case.json --at 0.17s")
shell(0 "\"total_j\": 106\\.14" "kdvfs plan-pipeline case.json --at 0.17s --latency 10ms")
shell(1 "a second clock within an operation"
      "kdvfs plan-pipeline case.json --at 0.17s --clocks two --latency 10ms")
shell(1 "a frontier has none" "kdvfs plan-pipeline case.json --latency 10ms")
shell(0 "\"total_j\": 102\\.13" "kdvfs plan-pipeline - --at 0.17s < case.json")
shell(0 "From: standard input" "kdvfs plan-pipeline - --at 0.17s --format header < case.json")
shell(1 "another pipeline already" "kdvfs report case.json case.json")

# Tables of other customs.
shell(1 "there are no columns gpu, core_mhz, time_s$|there are no columns gpu, core_mhz, time_s"
      "printf 'kernel,mem_mhz,energy_j\\n' | kdvfs plan -")
shell(1 "semicolons" "printf 'gpu;kernel;core_mhz;mem_mhz;time_s;energy_j\\n' | kdvfs plan -")
set(columns "gpu,kernel,core_mhz,mem_mhz,time_s,energy_j")
shell(1 "time_s has a decimal comma: .0,5.; write 0.5"
      "printf '${columns}\\ng,a,auto,auto,\"0,5\",1\\n' | kdvfs plan -")
shell(1 "7 fields instead of 6; numbers have decimal points"
      "printf '${columns}\\ng,a,auto,auto,0,5,1\\n' | kdvfs plan -")
foreach(row "1e308,1e308" "1e-300,1" "1,1e308" "1e9,1")
    shell(1 "standard input:2" "printf '${columns}\\ng,a,auto,auto,${row}\\n' | kdvfs plan -")
endforeach()

# Names as compilers and profilers write them go everywhere and come back.
file(WRITE ${FOLDER}/names.csv "${columns}\n")
foreach(name "void f<int, 2>(float*)::{lambda()#1}::operator()(int [8]) const" "~a|b!=c&'d'??/e"
        "</script>")
    foreach(row "auto,auto,1,100" "1000,auto,1.001,80")
        file(APPEND ${FOLDER}/names.csv "g,\"${name}\",${row}\n")
    endforeach()
endforeach()
shell(0 "lambda" "kdvfs plan names.csv --max-slowdown 1%")
shell(0 "Bind<\"~a.b!=c&'d'[?]\\\\[?]/e\".*struct ABCDE : kdvfs::Kernel<" "kdvfs plan names.csv --format header")
shell(5 "promised" "kdvfs plan names.csv --format json | kdvfs validate - ${as_found}")
