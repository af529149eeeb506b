// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/amdgpu/capabilities.hpp>
#include <kdvfs/device/amdgpu/card.hpp>
#include <kdvfs/device/amdgpu/clock_files.hpp>
#include <kdvfs/device/amdgpu/clock_writer.hpp>
#include <kdvfs/device/amdgpu/guard_script.hpp>
#include <kdvfs/device/clock_control.hpp>
#include <kdvfs/device/guard_order.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::device::amdgpu {

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
template <ClockWriter Writer>
class CappedClocks {
public:
    CappedClocks(Card card, Writer writer)
        : card_{std::move(card)}, writer_{std::move(writer)}, files_{card_} {
        info_ = {card_.name, to_string(card_.address), card_.architecture, {}, false};
        learn_clocks();
        describe();
    }

    [[nodiscard]] const Card& card() const noexcept { return card_; }
    [[nodiscard]] const DeviceInfo& info() const noexcept { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const noexcept { return supported_; }

    /// @throws Error where a file cannot be read or understood, or a level mask holds that kdvfs
    /// has not written.
    [[nodiscard]] ClockState read_clock_state() const {
        ClockState state;
        state.mode = files_.level();
        if (state.mode == manual && way_ == ClockWay::level_mask) {
            state.cap.core = masked_cap();
        } else if (state.mode == manual || state.mode == determinism) {
            read_limits_into(state);
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
            writer_.write_level("auto");
        } else if (way_ == ClockWay::determinism) {
            writer_.write_determinism(or_highest(point.core, bounds_.core_max));
        } else if (way_ == ClockWay::level_mask) {
            allow_levels_up_to(point.core);
        } else {
            move_to({bounds_.core_min, or_highest(point.core, bounds_.core_max),
                     or_highest(point.memory, bounds_.memory_max)});
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
            writer_.write_determinism(or_highest(state.cap.core, bounds_.core_max));
        } else if (state.mode == manual && way_ == ClockWay::level_mask) {
            allow_levels_up_to(state.cap.core);
        } else if (state.mode == manual) {
            move_to({or_highest(state.floor.core, bounds_.core_min),
                     or_highest(state.cap.core, bounds_.core_max),
                     or_highest(state.cap.memory, bounds_.memory_max)});
        } else {
            writer_.write_level(state.mode);
        }
    }

    /// What an earlier owner that died left behind, for a board that does not tell which levels are
    /// allowed; nothing = it cannot be known, but was that owner's.
    void adopt(const std::optional<ClockState>& written) {
        if (way_ != ClockWay::level_mask) return;
        masked_cap_ = written ? written->cap.core : supported_.core.listed.front();
    }

    /// What puts the board back without kdvfs, and how it sees a state.
    [[nodiscard]] GuardOrder guard_order(const ClockState& found) const {
        return amdgpu::guard_order(card_.folder, bounds_, found);
    }
    [[nodiscard]] std::string guard_words(const ClockState& state) const {
        return amdgpu::guard_words(bounds_, state);
    }

    /// Tries every way to set the clocks and settles on the cheapest: a range, else determinism,
    /// which sleeps up to 1 ms in the driver, else the list of allowed levels. A clock is tried by
    /// a cap slightly below the highest, read back and taken away again; the list by allowing all
    /// of it, since it cannot be read back. The state found is there again when it returns or
    /// throws.
    /// @throws Error with the driver's answer where no way works, or the state did not come back.
    Capabilities probe() {
        require_settable({});
        const ClockState found = read_clock_state();
        Capabilities result;
        std::optional<Error> refusal;
        if (has_table_) {
            const std::uint32_t range = bounds_.core_max.count - bounds_.core_min.count;
            const ClockPoint below{Megahertz{bounds_.core_max.count - range / 8}, auto_clock};
            refusal = try_out(found, below, ClockWay::range, result.range);
            const auto other = try_out(found, below, ClockWay::determinism, result.determinism);
            static_cast<void>(other);  // the first answer says more
        }
        const ClockList levels = try_levels(found, result.level_mask, refusal);
        if (result.range == Capability::supported) {
            way_ = ClockWay::range;
        } else if (result.determinism == Capability::supported) {
            way_ = ClockWay::determinism;
        } else if (result.level_mask == Capability::supported) {
            take_levels(levels);
        } else {
            throw Error{*refusal};
        }
        if (!supported_.memory.listed.empty()) {
            const ClockPoint lowest{auto_clock, supported_.memory.listed.front()};
            static_cast<void>(try_out(found, lowest, way_, result.memory));
        }
        if (result.memory != Capability::supported) {
            supported_.memory = {};
            bounds_.memory_max = auto_clock;
        }
        describe();
        return result;
    }

private:
    static constexpr std::string_view manual = "manual";
    static constexpr std::string_view determinism = "perf_determinism";
    static constexpr const char* core_levels = "pp_dpm_sclk";

    static Megahertz or_highest(Megahertz clock, Megahertz highest) {
        return clock == auto_clock ? highest : clock;
    }

    [[nodiscard]] ClockLimits read_limits() const {
        const OverdriveTable table = files_.table();
        ClockLimits limits{table.core.clocks.front(), table.core.clocks.back()};
        if (bounds_.memory_max != auto_clock && !table.memory.clocks.empty()) {
            limits.memory_max = table.memory.clocks.back();
        }
        return limits;
    }

    void read_limits_into(ClockState& state) const {
        const ClockLimits limits = read_limits();
        // A limit at the top has two names, `auto_clock` and the number: it gets the asked one.
        const auto cap = [](Megahertz limit, Megahertz highest, Megahertz asked) {
            return limit == highest && asked != highest ? auto_clock : limit;
        };
        state.cap.core = cap(limits.core_max, bounds_.core_max, asked_.core);
        if (state.mode == manual) {
            state.floor.core = limits.core_min;
            state.cap.memory = cap(limits.memory_max, bounds_.memory_max, asked_.memory);
        }
    }

    /// The cap of the levels that kdvfs has allowed.
    [[nodiscard]] Megahertz masked_cap() const {
        if (masked_cap_) return *masked_cap_;
        throw Error{Errc::refused,
                    {"read the clock settings", to_string(info_),
                     "its level is 'manual', and it does not tell which core levels somebody has "
                     "allowed",
                     "set its performance level to auto first"}};
    }

    void allow_levels_up_to(Megahertz cap) {
        const Megahertz highest = or_highest(cap, bounds_.core_max);
        const auto& levels = supported_.core.listed;
        const auto above = std::upper_bound(levels.begin(), levels.end(), highest);
        writer_.write_levels_up_to(static_cast<unsigned>(above - levels.begin()) - 1);
        masked_cap_ = cap;
    }

    /// Finds out which clocks there are; leaves none where they cannot be set, and says why.
    void learn_clocks() {
        if (!card_.partition.empty() && card_.partition != "SPX") {
            unsettable_ = "the GPU is partitioned (" + card_.partition +
                          "), and the driver sets clocks in SPX mode only";
            return;
        }
        try {
            learn_range(files_.table());
            has_table_ = true;
        } catch (const Error& error) {
            learn_levels(error.text().vendor_words);
        }
    }

    void learn_range(const OverdriveTable& table) {
        bounds_.core_min = lowest_core_clock(table);
        bounds_.core_max = card_.core_max != auto_clock ? card_.core_max : table.core.clocks.back();
        if (bounds_.core_min >= bounds_.core_max) {
            unsettable_ = "its clock range does not show in performance level " + files_.level();
            return;
        }
        supported_.core = {{Megahertz{bounds_.core_min.count + 1}, bounds_.core_max}, true};
        if (table.memory_is_settable) learn_memory();
    }

    /// A board without a table may still have a list of levels.
    void learn_levels(const std::string& why_no_table) {
        try {
            take_levels(files_.levels_of(core_levels));
        } catch (const Error&) {  // what the table's file said, says more
        }
        if (supported_.core.listed.size() < 2) unsettable_ = why_no_table;
    }

    void take_levels(const ClockList& list) {
        way_ = ClockWay::level_mask;
        supported_.core = {list.clocks, false};
        supported_.memory = {};
        bounds_ = {list.clocks.front(), list.clocks.back(), auto_clock,
                   static_cast<unsigned>(list.clocks.size())};
    }

    /// The bottom of the board's own range. The table tells it in level `auto` or in a section of
    /// its own; else it shows somebody's limit, and only MI200's 500 MHz is known beforehand. The
    /// limit then bounds what kdvfs asks for.
    [[nodiscard]] Megahertz lowest_core_clock(const OverdriveTable& table) const {
        if (table.core_min) return *table.core_min;
        if (card_.architecture == "gfx90a" && files_.level() != "auto") return Megahertz{500};
        return table.core.clocks.front();
    }

    void learn_memory() {
        supported_.memory.listed = files_.levels_of("pp_dpm_mclk").clocks;
        std::sort(supported_.memory.listed.begin(), supported_.memory.listed.end());
        bounds_.memory_max = supported_.memory.listed.back();
    }

    void describe() {
        if (!unsettable_.empty()) {
            info_.mechanism = "none: " + unsettable_;
            return;
        }
        info_.mechanism = std::string{Writer::name} + " " + std::string{to_string(way_)};
        if (card_.secondary_die) info_.mechanism += ", second die of its package";
        if (card_.shares_counter) info_.mechanism += ", energy of both dies of the package";
        if (card_.energy_folder.empty())
            info_.mechanism += ", whose first die was not found: no energy";
    }

    void require_settable(ClockPoint point) const {
        if (!unsettable_.empty()) {
            throw Error{Errc::not_supported,
                        {"set the clocks", to_string(info_), unsettable_,
                         "open the GPU to measure only, or see why it cannot be set"}};
        }
        if (!supports(supported_, point)) {
            throw Error{Errc::invalid_input,
                        {"set " + to_string(point), to_string(info_), "not a clock of this board",
                         "ask for a clock of supported_clocks()"}};
        }
    }

    /// Sets a range, by way of `auto` where it does not touch the present one.
    void move_to(ClockLimits wanted) {
        const ClockLimits present = read_limits();
        if (wanted.core_max <= present.core_min || wanted.core_min >= present.core_max) {
            writer_.write_level("auto");
        }
        writer_.write_limits(wanted);
    }

    /// One way, tried and undone. @returns what was said where it does not work
    std::optional<Error> try_out(const ClockState& found, ClockPoint point, ClockWay way,
                                 Capability& capability) {
        std::optional<Error> refusal;
        way_ = way;
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
        return refusal;
    }

    /// The list of allowed levels, tried by allowing all of it, and undone.
    /// @returns the levels of level `manual`; they may be others than those of `auto`
    ClockList try_levels(const ClockState& found, Capability& capability,
                         std::optional<Error>& refusal) {
        ClockList levels;
        capability = Capability::refused;
        try {
            writer_.write_level(std::string{manual});
            masked_cap_ = auto_clock;
            levels = files_.levels_of(core_levels);
            writer_.write_levels_up_to(static_cast<unsigned>(levels.clocks.size()) - 1);
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
    Writer writer_;
    ClockFiles files_;
    DeviceInfo info_;
    SupportedClocks supported_;
    std::string unsettable_;  // why the clocks cannot be set; empty where they can
    ClockBounds bounds_;
    ClockPoint asked_;  // last, by this object
    std::optional<Megahertz> masked_cap_;
    ClockWay way_ = ClockWay::range;
    bool has_table_ = false;
};

}  // namespace kdvfs::device::amdgpu
