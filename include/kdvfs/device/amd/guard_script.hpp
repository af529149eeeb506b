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

/// The guard of an amdgpu board, for a POSIX shell and nothing but its builtins. Arguments: the
/// device's folder, `memory` where the memory's limit counts too or `level` where no limits can be
/// read, then pairs of a file and a text to write. It sees a state as the performance level and,
/// where limits count, the numbers in pp_od_clk_voltage. Only what it sees five times in a row to
/// be another's stays.
inline constexpr std::string_view guard_script = R"(
trap '' HUP INT QUIT TERM PIPE
folder=$1 watched=$2
shift 2
note=idle
while IFS= read -r line; do note=$line; done
see() {
    words= low= high= memory= section=
    IFS= read -r words < "$folder/power_dpm_force_performance_level"
    case $watched$words in levelmanual) return ;; *manual | *perf_determinism) ;; *) return ;; esac
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
    done < "$folder/pp_od_clk_voltage"
    [ "$words" = manual ] || memory=
    words="$words $low $high${memory:+ $memory}"
}
case $note in
idle) exit ;;
uncertain) ;;
*)
    for look in 1 2 3 4 5; do
        see && [ "$note" = "held $words" ] && break
        words=external
        sleep 0.01
    done
    [ "$words" != external ] || exit ;;
esac
while [ $# -gt 1 ]; do
    for attempt in 1 2 3 4 5; do
        printf '%s' "$2" > "$folder/$1" && break
        sleep 0.01
    done
    shift 2
done
)";

inline std::string guard_words(const ClockBounds& bounds, const ClockState& state) {
    const bool is_manual = state.mode == "manual";
    if (!is_manual && state.mode != "perf_determinism") return state.mode;
    if (bounds.levels > 0) return state.mode;
    const auto number = [](Megahertz clock, Megahertz otherwise) {
        return " " + std::to_string(clock == auto_clock ? otherwise.count : clock.count);
    };
    std::string words = state.mode + number(state.floor.core, bounds.core_min) +
                        number(state.cap.core, bounds.core_max);
    if (is_manual && bounds.memory_max != auto_clock) {
        words += number(state.cap.memory, bounds.memory_max);
    }
    return words;
}

/// The same writes as `CappedClocks::restore`, by way of `auto`, from where every range is reached.
inline GuardOrder guard_order(const std::string& folder, const ClockBounds& bounds,
                              const ClockState& found) {
    const bool has_memory = bounds.memory_max != auto_clock;
    const char* const watched = bounds.levels > 0 ? "level" : (has_memory ? "memory" : "none");
    GuardOrder order{std::string{guard_script}, {folder, watched}};
    const auto write = [&](const char* file, std::string text) {
        order.arguments.emplace_back(file);
        order.arguments.push_back(std::move(text));
    };
    const auto edit = [&](const std::string& command, Megahertz clock, Megahertz otherwise) {
        const Megahertz limit = clock == auto_clock ? otherwise : clock;
        write("pp_od_clk_voltage", command + std::to_string(limit.count) + "\n");
    };
    const char* const level = "power_dpm_force_performance_level";
    const bool is_manual = found.mode == "manual";
    if (is_manual) write(level, "auto");
    write(level, found.mode);
    if (!is_manual && found.mode != "perf_determinism") return order;
    if (bounds.levels > 0) {
        if (is_manual) write("pp_dpm_sclk", levels_up_to(bounds.levels - 1));
        return order;
    }
    if (is_manual) edit("s 0 ", found.floor.core, bounds.core_min);
    edit("s 1 ", found.cap.core, bounds.core_max);
    if (is_manual && has_memory) {
        edit("m 1 ", found.cap.memory, bounds.memory_max);
    }
    write("pp_od_clk_voltage", "c\n");
    return order;
}

}  // namespace kdvfs::device::amd
