// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/amd/system_files.hpp>
#include <kdvfs/device/contracts.hpp>

#include <string>
#include <string_view>

namespace kdvfs::device::amd {

/// The ends of a board's own clock ranges.
struct ClockBounds {
    Megahertz core_min;
    Megahertz core_max;
    Megahertz memory_max = auto_clock;  ///< auto where the memory clock cannot be set
    unsigned levels = 0;  ///< of a board whose only way is a list of allowed levels; else 0
};

/// How an amdgpu board is put back by a POSIX shell and nothing but its builtins. Words: the
/// device's folder; `memory` where the memory's limit counts, too, `level` where no limits can be
/// read, else `none`; the board's lowest and highest core and highest memory clock; the text that
/// allows all core levels. A state is seen as the performance level and, where limits count, the
/// numbers in pp_od_clk_voltage. What is written is what `CappedClocks::restore` writes, by way of
/// `auto`, from where every range is reached.
inline constexpr std::string_view restore_functions = R"sh(
level=$1/power_dpm_force_performance_level table=$1/pp_od_clk_voltage mask=$1/pp_dpm_sclk
watched=$2 core_min=$3 core_max=$4 memory_max=$5 all_levels=$6

see() { # what the board holds, in $seen
    seen= low= high= memory= section=
    IFS= read -r seen < "$level" || [ -n "$seen" ] || return 1
    case $watched$seen in level*) return 0 ;; *manual | *perf_determinism) ;; *) return 0 ;; esac
    while read -r key clock rest; do
        case $key$clock in
        OD_SCLK: | GFXCLK:) section=core ;;
        OD_MCLK:) section=$watched ;;
        S:*) ;;
        [0-9]*:[0-9]*)
            clock=${clock%%[!0-9]*}
            case $section in
            core) high=$clock low=${low:-$clock} ;;
            memory) memory=$clock ;;
            esac ;;
        *) section= ;;
        esac
    done < "$table" || return 1
    [ -n "$high" ] || return 1
    [ "$seen" = manual ] || memory=
    seen="$seen $low $high${memory:+ $memory}"
}

limit() { # $1 a clock, $2 what stands for 0, the board's own choice
    [ "$1" = 0 ] && limit=$2 || limit=$1
}

expect() { # mode, core, memory and floor of a state, in $expected
    expected=$1
    case $watched$1 in level*) return ;; *manual | *perf_determinism) ;; *) return ;; esac
    limit "$4" "$core_min"; expected="$expected $limit"
    limit "$2" "$core_max"; expected="$expected $limit"
    case $watched$1 in memorymanual) limit "$3" "$memory_max"; expected="$expected $limit" ;; esac
}

holds() {
    expect "$held_mode" "$held_core" "$held_memory" "$held_floor"
    [ "$seen" = "$expected" ]
}

is_back() {
    expect "$found_mode" "$found_core" "$found_memory" "$found_floor"
    [ "$seen" = "$expected" ]
}

edit() {
    limit "$2" "$3"
    printf '%s %s\n' "$1" "$limit" > "$table"
}

put_back() {
    [ "$found_mode" != manual ] || printf auto > "$level" || return 1
    printf %s "$found_mode" > "$level" || return 1
    case $watched$found_mode in
    levelmanual) printf %s "$all_levels" > "$mask" || return 1 ;;
    level*) ;;
    *manual)
        edit 's 0' "$found_floor" "$core_min" && edit 's 1' "$found_core" "$core_max" || return 1
        [ "$watched" != memory ] || edit 'm 1' "$found_memory" "$memory_max" || return 1
        printf 'c\n' > "$table" ;;
    *perf_determinism)
        edit 's 1' "$found_core" "$core_max" && printf 'c\n' > "$table" ;;
    esac
}
)sh";

inline RestoreScript restore_script(const std::string& folder, const ClockBounds& bounds) {
    const bool by_levels = bounds.levels > 0;
    const bool has_memory = bounds.memory_max != auto_clock;
    return {"amdgpu",
            std::string{restore_functions},
            {folder, by_levels ? "level" : (has_memory ? "memory" : "none"),
             std::to_string(bounds.core_min.count), std::to_string(bounds.core_max.count),
             std::to_string(bounds.memory_max.count),
             by_levels ? levels_up_to(bounds.levels - 1) : std::string{}}};
}

}  // namespace kdvfs::device::amd
