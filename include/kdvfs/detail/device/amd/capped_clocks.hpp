// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/settable_clocks.hpp>
#include <kdvfs/detail/device/amd/system_files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::device::amd {

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

/// `ClockControl` for every amdgpu board, whichever way its settings are written. What is read is
/// read from sysfs: ROCm SMI ends the process on texts it does not expect.
///
/// Facts that shape it (aldebaran_ppt.c, smu_v13_0_6_ppt.c and arcturus_ppt.c of the driver):
/// - limits are taken in level `manual` only, and the driver remembers edits that were never
///   committed, so both ends are always written;
/// - some boards refuse a limit on the wrong side of the present range, so a range that does not
///   touch the present one is reached by way of `auto`;
/// - only level `auto` undoes everything, for core and memory together;
/// - which core levels are allowed can be written but not read: a board that knows no other way is
///   driven only from a level in which they do not count, and while its level is `manual` it holds
///   the cap that was written last.
class CappedClocks {
public:
    CappedClocks(Card card, std::unique_ptr<ClockWriter> writer)
        : card_{std::move(card)},
          writer_{std::move(writer)},
          files_{card_},
          learnt_{SettableClocks::of(card_, files_)},
          clocks_{learnt_} {
        info_ = {card_.name, to_string(card_.address), card_.architecture, {}, false};
        describe();
    }

    [[nodiscard]] const Card& card() const noexcept { return card_; }
    [[nodiscard]] const DeviceInfo& info() const noexcept { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const noexcept {
        return clocks_.supported;
    }

    /// @throws Error where a file cannot be read or understood, or a level mask holds that kdvfs
    /// has not written.
    [[nodiscard]] ClockState read_clock_state() const {
        ClockState state;
        seen_.reset();
        state.mode = files_.level();
        if (state.mode == manual && clocks_.way == ClockWay::level_mask) {
            state.cap.core = masked_cap();
        } else if (state.mode == manual || state.mode == determinism) {
            read_limits_into(state);
        } else if (state.mode == "auto") {
            seen_ = {clocks_.bounds.core_min, clocks_.bounds.core_max};
        }
        return state;
    }

    /// Caps the clocks. The highest clock of a domain and `auto_clock` are the same limit to the
    /// board where the other domain is capped.
    /// @throws Error (invalid_input) for a clock that is not supported, (not_supported) where
    /// clocks cannot be set, else what the driver said.
    void apply(ClockPoint point) {
        require_settable(point);
        asked_ = point;
        if (point.is_auto()) {
            write_level("auto");
        } else if (clocks_.way == ClockWay::determinism) {
            cap_by_determinism(point.core);
        } else if (clocks_.way == ClockWay::level_mask) {
            allow_levels_up_to(point.core);
        } else {
            const Megahertz cap = or_highest(point.core, clocks_.bounds.core_max);
            // A cap at or below the floor that was found leaves it: the user has allowed that.
            move_to({cap > lowest_allowed() ? lowest_allowed() : clocks_.bounds.core_min, cap,
                     or_highest(point.memory, clocks_.bounds.memory_max)});
            if (point.memory != auto_clock) prove_domains(cap);
        }
    }

    /// @throws Error (invalid_input) for a mode the driver does not know, else what it said.
    void restore(const ClockState& state) {
        if (!ClockFiles::knows_level(state.mode)) {
            throw Error{Errc::invalid_input,
                        {"restore the clocks", to_string(info_),
                         "there is no performance level '" + state.mode + "'", ""}};
        }
        asked_ = state.cap;
        if (state.mode == determinism) {
            cap_by_determinism(state.cap.core);
        } else if (state.mode == manual && clocks_.way == ClockWay::level_mask) {
            allow_levels_up_to(state.cap.core);
        } else if (state.mode == manual) {
            move_to({or_highest(state.floor.core, clocks_.bounds.core_min),
                     or_highest(state.cap.core, clocks_.bounds.core_max),
                     or_highest(state.cap.memory, clocks_.bounds.memory_max)});
        } else {
            write_level(state.mode);
        }
    }

    /// What an earlier owner that died left behind. A limit at the top is then called as that owner
    /// called it; a board that does not tell which levels are allowed holds what that owner wrote.
    void adopt(const std::optional<ClockState>& written) {
        if (written) asked_ = written->cap;
        // Limits have a floor: that owner had tried the board, and found it to take levels alone.
        if (written && written->mode == manual && written->floor.core == auto_clock) {
            clocks_.way = ClockWay::level_mask;
        }
        if (clocks_.way != ClockWay::level_mask) return;
        masked_cap_ = written ? written->cap.core : clocks_.supported.core.listed.front();
    }

    /// What puts the board back without kdvfs.
    [[nodiscard]] RestoreScript restore_script() const {
        return amd::restore_script(card_.folder, clocks_.bounds);
    }
    /// Whoever may write to it may set the clocks.
    [[nodiscard]] std::string settings_file() const {
        return card_.folder + "/power_dpm_force_performance_level";
    }

    /// Tries the ways to set the core clock, the cheapest first, and settles on the first that
    /// works: a range, else determinism, which sleeps up to 1 ms in the driver, else the list of
    /// allowed levels. A way is tried by one cap slightly below what was found, read back and taken
    /// away again; the list by allowing all of it, since it cannot be read back. The memory's limit
    /// is written along at its highest, never lower; where that undoes the core's, it is left
    /// alone. The state found is there again when it returns or throws. Writes nothing where
    /// somebody has pinned the clocks.
    /// @throws Error with the driver's answer where no way works, or the state did not come back.
    Capabilities probe() {
        clocks_ = learnt_;
        require_settable({});
        const ClockState found = read_clock_state();
        Capabilities result;
        if (pins_clocks(found)) {
            info_.mechanism += ", pinned by level '" + found.mode + "': left as it is";
            return result;
        }
        if (found.mode == manual) floor_ = found.floor.core;
        list_memory_clock(found.cap.memory);
        std::optional<Error> refusal;
        if (!clocks_.has_table || !try_table(found, result, refusal)) {
            const ClockList levels = try_levels(found, result.level_mask, refusal);
            if (result.level_mask != Capability::supported) throw Error{*refusal};
            clocks_ = SettableClocks::by_levels(levels);
        }
        describe();
        if (result.memory == Capability::supported && result.both != Capability::supported) {
            info_.mechanism +=
                ", memory clock left alone: with a limit of its own the core's does not hold";
        }
        return result;
    }

protected:
    /// Settings are written this way from now on.
    void write_by(std::unique_ptr<ClockWriter> writer) { writer_ = std::move(writer); }
    /// Adds words to `info().mechanism`.
    void add_to_mechanism(const std::string& words) { info_.mechanism += words; }
    /// What `info()` is to say beside the clocks.
    void say(std::string energy, std::string operating_point, std::vector<PreparedPoint> points) {
        info_.energy = std::move(energy);
        info_.operating_point = std::move(operating_point);
        info_.prepared_points = std::move(points);
    }

private:
    static constexpr std::string_view manual = "manual";
    static constexpr std::string_view determinism = "perf_determinism";
    static constexpr const char* core_levels = "pp_dpm_sclk";

    static Megahertz or_highest(Megahertz clock, Megahertz highest) {
        return clock == auto_clock ? highest : clock;
    }

    // Each write makes what was seen before worthless, whether it succeeds or not.

    void write_level(const std::string& level) {
        seen_.reset();
        writer_->write_level(level);
    }
    void cap_by_determinism(Megahertz cap) {
        seen_.reset();
        writer_->write_determinism(or_highest(cap, clocks_.bounds.core_max));
    }

    /// A limit that was found is one that the board takes, whatever its levels are.
    void list_memory_clock(Megahertz clock) {
        auto& listed = clocks_.supported.memory.listed;
        const auto at = std::lower_bound(listed.begin(), listed.end(), clock);
        if (clock != auto_clock && at != listed.end() && *at != clock) listed.insert(at, clock);
    }
    void leave_memory_alone() {
        clocks_.supported.memory = {};
        clocks_.bounds.memory_max = auto_clock;
    }

    /// Below the cap that was found, above its floor.
    [[nodiscard]] Megahertz slightly_below(const ClockState& found) const {
        const Megahertz highest = or_highest(found.cap.core, clocks_.bounds.core_max);
        const Megahertz lowest = lowest_allowed();
        return Megahertz{highest.count - (highest.count - std::min(lowest, highest).count) / 8};
    }
    /// The lower end of the ranges that are written: that of the range found, where there was one.
    [[nodiscard]] Megahertz lowest_allowed() const {
        return std::max(clocks_.bounds.core_min, floor_);
    }

    [[nodiscard]] ClockLimits read_limits() const {
        const OverdriveTable table = files_.table();
        ClockLimits limits{table.core.clocks.front(), table.core.clocks.back()};
        if (clocks_.bounds.memory_max != auto_clock && !table.memory.clocks.empty()) {
            limits.memory_max = table.memory.clocks.back();
        }
        return limits;
    }

    void read_limits_into(ClockState& state) const {
        const ClockLimits limits = read_limits();
        seen_ = limits;
        // A limit at the top has two names, `auto_clock` and the number: it gets the asked one.
        const auto cap = [](Megahertz limit, Megahertz highest, Megahertz asked) {
            return limit == highest && asked != highest ? auto_clock : limit;
        };
        state.cap.core = cap(limits.core_max, clocks_.bounds.core_max, asked_.core);
        if (state.mode == manual) {
            state.floor.core = limits.core_min;
            state.cap.memory = cap(limits.memory_max, clocks_.bounds.memory_max, asked_.memory);
        }
    }

    /// The cap of the levels that kdvfs has allowed.
    [[nodiscard]] Megahertz masked_cap() const {
        if (masked_cap_) return *masked_cap_;
        throw Error{Errc::refused,
                    {"read the clock settings", to_string(info_),
                     "its level is 'manual', and it does not show which core levels somebody has "
                     "allowed",
                     "set its performance level to auto first"}};
    }

    void allow_levels_up_to(Megahertz cap) {
        const Megahertz highest = or_highest(cap, clocks_.bounds.core_max);
        const auto& levels = clocks_.supported.core.listed;
        const auto above = std::upper_bound(levels.begin(), levels.end(), highest);
        seen_.reset();
        masked_cap_ = cap;  // before: what a write that fails half-way leaves is kdvfs's own, too
        writer_->write_levels_up_to(static_cast<unsigned>(above - levels.begin()) - 1);
    }

    void describe() {
        if (!clocks_.why_not.empty()) {
            info_.mechanism = "none: " + clocks_.why_not;
            return;
        }
        info_.mechanism = writer_->name() + " " + std::string{to_string(clocks_.way)};
        if (card_.secondary_die) info_.mechanism += ", second die of its package";
        if (card_.shares_counter) info_.mechanism += ", energy of both dies of the package";
        if (card_.energy_folder.empty())
            info_.mechanism += ", whose first die was not found: no energy";
    }

    void require_settable(ClockPoint point) const {
        if (!clocks_.why_not.empty()) {
            throw Error{Errc::not_supported,
                        {"set the clocks", to_string(info_), clocks_.why_not,
                         "open the GPU to measure only, or see why it cannot be set"}};
        }
        if (!supports(clocks_.supported, point)) {
            throw Error{Errc::invalid_input,
                        {"set " + to_string(point), to_string(info_), "not a clock of this board",
                         "ask for a clock of supported_clocks()"}};
        }
    }

    /// Sets a range, by way of `auto` where it does not touch the present one: the one that was
    /// read last, unless the board refuses and shows another one.
    void move_to(ClockLimits wanted) {
        const auto apart = [&](ClockLimits present) {
            return wanted.core_max <= present.core_min || wanted.core_min >= present.core_max;
        };
        const auto write = [&](bool by_way_of_auto) {
            if (by_way_of_auto) writer_->write_level("auto");
            writer_->write_limits(wanted);
        };
        const auto seen = std::exchange(seen_, std::nullopt);
        const bool detour = apart(seen ? *seen : read_limits());
        try {
            write(detour);
        } catch (const Error& refusal) {
            if (!seen || detour || refusal.code() != Errc::refused || !apart(read_limits())) throw;
            write(true);  // somebody else has set limits since
        }
    }

    /// Once, behind the first limit of the memory clock: opening does not lower it.
    /// @throws Error (not_supported) where it has undone the core's
    void prove_domains(Megahertz core) {
        if (std::exchange(domains_are_proven_, true)) return;
        if (read_limits().core_max == core) return;
        leave_memory_alone();
        throw Error{Errc::not_supported,
                    {"set a limit of the memory clock", to_string(info_),
                     "with one the core's limit does not hold on this board",
                     "plan without memory clocks, or try another ClockPath"}};
    }

    /// A range, else determinism; that alone where it was found, since leaving its level lifts its
    /// cap. @returns whether one of them works
    bool try_table(const ClockState& found, Capabilities& result, std::optional<Error>& refusal) {
        if (found.mode != determinism && try_range(found, result, refusal)) return true;
        leave_memory_alone();
        auto answer = try_out(found, {slightly_below(found), auto_clock}, ClockWay::determinism,
                              result.determinism);
        if (!refusal) refusal = std::move(answer);  // the first one says more
        return result.determinism == Capability::supported;
    }
    bool try_range(const ClockState& found, Capabilities& result, std::optional<Error>& refusal) {
        const bool has_memory = !clocks_.supported.memory.listed.empty();
        const ClockPoint below{slightly_below(found), found.cap.memory};
        refusal = try_out(found, below, ClockWay::range, result.range);
        if (result.range == Capability::supported) {
            if (has_memory) result.memory = result.both = Capability::supported;
            return true;
        }
        if (!has_memory || result.range != Capability::refused) return false;
        // Each range is written with a memory limit: perhaps that undid the core's.
        leave_memory_alone();
        static_cast<void>(try_out(found, below, ClockWay::range, result.range));
        if (result.range != Capability::supported) return false;
        result.memory = Capability::supported;
        result.both = Capability::refused;
        return true;
    }

    /// One way, tried and undone. @returns what was said where it does not work
    /// @throws Error (not_supported) where level `auto` does not undo what was written
    std::optional<Error> try_out(const ClockState& found, ClockPoint point, ClockWay way,
                                 Capability& capability) {
        std::optional<Error> refusal;
        const ClockLimits before = read_limits();
        clocks_.way = way;
        capability = Capability::refused;
        try {
            apply(point);
            if (read_clock_state().cap == point) {
                capability = Capability::supported;
            } else {
                refusal = Error{Errc::refused,
                                {"set " + to_string(point), to_string(info_),
                                 "written without an error, but the board did not take it", ""}};
            }
        } catch (const Error& error) {
            if (error.code() == Errc::not_supported) capability = Capability::absent;
            refusal = error;
        }
        put_back(found);
        if (read_limits() != before) table_stays(found, before);
        return refusal;
    }

    /// The level is back and its table is not: writes that, too.
    [[noreturn]] void table_stays(const ClockState& found, const ClockLimits& before) {
        writer_->write_limits(before);
        writer_->write_level(found.mode);
        const bool is_back = read_limits() == before;
        throw Error{is_back ? Errc::not_supported : Errc::io,
                    {"restore the clocks after trying them", to_string(info_),
                     "level '" + found.mode + "' leaves the clock limits as they were written" +
                         (is_back ? ", which were written back" : ""),
                     "open it to measure only"}};
    }

    /// The list of allowed levels, tried by allowing all of it, and undone.
    /// @returns the levels of level `manual`; they may be others than those of `auto`
    ClockList try_levels(const ClockState& found, Capability& capability,
                         std::optional<Error>& refusal) {
        ClockList levels;
        capability = Capability::refused;
        try {
            masked_cap_ = auto_clock;
            write_level(std::string{manual});
            levels = files_.levels_of(core_levels);
            writer_->write_levels_up_to(static_cast<unsigned>(levels.clocks.size()) - 1);
            capability = Capability::supported;
        } catch (const Error& error) {
            if (error.code() == Errc::not_supported) capability = Capability::absent;
            if (!refusal) refusal = error;
        }
        put_back(found);
        return levels;
    }

    /// After a trial.
    void put_back(const ClockState& found) {
        if (read_clock_state() != found) restore(found);
        if (read_clock_state() == found) return;
        throw Error{Errc::io,
                    {"restore the clocks after trying them", to_string(info_),
                     "the board did not take back mode " + found.mode, ""}};
    }

    Card card_;
    std::unique_ptr<ClockWriter> writer_;
    ClockFiles files_;
    DeviceInfo info_;
    SettableClocks learnt_;  // by reading alone, before any trial
    SettableClocks clocks_;
    ClockPoint asked_;              // last, by this object
    Megahertz floor_ = auto_clock;  // of the range that was found when the clocks were tried
    /// The range that the board showed last; nothing since it was written.
    mutable std::optional<ClockLimits> seen_;
    std::optional<Megahertz> masked_cap_;
    bool domains_are_proven_ = false;
};

}  // namespace kdvfs::inline v0_3::device::amd
