// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/amdgpu/card.hpp>
#include <kdvfs/device/amdgpu/clock_text.hpp>
#include <kdvfs/device/amdgpu/clock_writer.hpp>
#include <kdvfs/device/amdgpu/guard_script.hpp>
#include <kdvfs/device/clock_control.hpp>
#include <kdvfs/device/guard_order.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::device::amdgpu {

/// `ClockControl` for every amdgpu board, whichever way its settings are written. What is read is
/// read from sysfs: ROCm SMI ends the process on texts it does not expect.
///
/// Facts that shape it (aldebaran_ppt.c and smu_v13_0_6_ppt.c of the driver):
/// - limits are taken in level `manual` only, and the driver remembers edits that were never
///   committed, so both ends are always written;
/// - some boards refuse a limit on the wrong side of the present range, so a range that does not
///   touch the present one is reached by way of `auto`;
/// - only level `auto` undoes everything, for core and memory together.
template <ClockWriter Writer>
class CappedClocks {
public:
    CappedClocks(Card card, Writer writer) : card_{std::move(card)}, writer_{std::move(writer)} {
        info_ = {card_.name, to_string(card_.address), card_.architecture, {}, false};
        learn_clocks();
        describe();
    }

    [[nodiscard]] const Card& card() const noexcept { return card_; }
    [[nodiscard]] const DeviceInfo& info() const noexcept { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const noexcept { return supported_; }

    /// @throws Error where a file cannot be read or understood.
    [[nodiscard]] ClockState read_clock_state() const {
        ClockState state;
        state.mode = read_level();
        if (state.mode != manual && state.mode != determinism) return state;
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
        } else if (by_determinism_) {
            writer_.write_determinism(or_highest(point.core, bounds_.core_max));
        } else {
            move_to({bounds_.core_min, or_highest(point.core, bounds_.core_max),
                     or_highest(point.memory, bounds_.memory_max)});
        }
    }

    /// @throws Error (invalid_input) for a mode the driver does not know, else what it said.
    void restore(const ClockState& state) {
        if (std::find(levels.begin(), levels.end(), state.mode) == levels.end()) {
            throw Error{Errc::invalid_input,
                        {"restore the clocks", to_string(info_),
                         "there is no performance level '" + state.mode + "'", ""}};
        }
        asked_ = state.cap;
        if (state.mode == determinism) {
            writer_.write_determinism(or_highest(state.cap.core, bounds_.core_max));
        } else if (state.mode == manual) {
            move_to({or_highest(state.floor.core, bounds_.core_min),
                     or_highest(state.cap.core, bounds_.core_max),
                     or_highest(state.cap.memory, bounds_.memory_max)});
        } else {
            writer_.write_level(state.mode);
        }
    }

    /// What puts the board back without kdvfs, and how it sees a state.
    [[nodiscard]] GuardOrder guard_order(const ClockState& found) const {
        return amdgpu::guard_order(card_.folder, bounds_, found);
    }
    [[nodiscard]] std::string guard_words(const ClockState& state) const {
        return amdgpu::guard_words(bounds_, state);
    }

    /// Tries every way to set the clocks, each by a cap slightly below the highest clock that is
    /// read back and taken away again, and settles on the cheapest: a range, else determinism,
    /// which sleeps up to 1 ms in the driver. The state found is there again when it returns or
    /// throws.
    /// @throws Error with the driver's answer where no way works, or the state did not come back.
    ClockCapabilities probe() {
        require_settable({});
        const ClockState found = read_clock_state();
        ClockCapabilities result;
        const ClockPoint below{Megahertz{bounds_.core_max.count -
                                         (bounds_.core_max.count - bounds_.core_min.count) / 8},
                               auto_clock};
        Error refusal = try_out(found, below, false, result.range);
        if (result.range != Capability::supported) {
            refusal = try_out(found, below, true, result.determinism);
        } else {
            static_cast<void>(try_out(found, below, true, result.determinism));
        }
        by_determinism_ = result.range != Capability::supported;
        if (by_determinism_ && result.determinism != Capability::supported) throw refusal;
        if (!supported_.memory.listed.empty()) {
            static_cast<void>(try_out(found, {auto_clock, supported_.memory.listed.front()}, false,
                                      result.memory));
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
    static constexpr std::array<std::string_view, 10> levels{"auto",
                                                             "low",
                                                             "high",
                                                             "manual",
                                                             "profile_exit",
                                                             "profile_standard",
                                                             "profile_peak",
                                                             "profile_min_sclk",
                                                             "profile_min_mclk",
                                                             "perf_determinism"};

    static Megahertz or_highest(Megahertz clock, Megahertz highest) {
        return clock == auto_clock ? highest : clock;
    }

    [[nodiscard]] std::string path(std::string_view file) const {
        return card_.folder + "/" + std::string{file};
    }

    [[nodiscard]] FileText read_or_throw(std::string_view file) const {
        FileText answer = read_file(path(file));
        if (answer.error != 0) {
            throw file_error("read the clock settings", to_string(info_), path(file), answer.error);
        }
        return answer;
    }

    [[nodiscard]] Error not_understood(std::string_view file, const std::string& text) const {
        return Error{Errc::io,
                     {"read the clock settings", to_string(info_),
                      path(file) + " says '" + text.substr(0, 60) + "'",
                      "the GPU may be in reset or halted by a memory error; see the kernel log"}};
    }

    [[nodiscard]] std::string read_level() const {
        const FileText file = read_or_throw("power_dpm_force_performance_level");
        std::string level{detail::trimmed(file.text)};
        if (std::find(levels.begin(), levels.end(), level) == levels.end()) {
            throw not_understood("power_dpm_force_performance_level", file.text);
        }
        return level;
    }

    [[nodiscard]] OverdriveTable read_table() const {
        const FileText file = read_or_throw("pp_od_clk_voltage");
        auto table = parse_overdrive_table(file.text);
        if (!table) throw not_understood("pp_od_clk_voltage", file.text);
        return std::move(*table);
    }

    [[nodiscard]] ClockLimits read_limits() const {
        const OverdriveTable table = read_table();
        ClockLimits limits{table.core.clocks.front(), table.core.clocks.back()};
        if (bounds_.memory_max != auto_clock && !table.memory.clocks.empty()) {
            limits.memory_max = table.memory.clocks.back();
        }
        return limits;
    }

    /// Finds out which clocks there are; leaves none where they cannot be set, and says why.
    void learn_clocks() {
        if (!card_.partition.empty() && card_.partition != "SPX") {
            unsettable_ = "the GPU is partitioned (" + card_.partition +
                          "), and the driver sets clocks in SPX mode only";
            return;
        }
        try {
            const OverdriveTable table = read_table();
            bounds_.core_min = lowest_core_clock(table);
            bounds_.core_max =
                card_.core_max != auto_clock ? card_.core_max : table.core.clocks.back();
            if (bounds_.core_min >= bounds_.core_max) {
                unsettable_ = "its clock range does not show in performance level " + read_level();
                return;
            }
            supported_.core = {{Megahertz{bounds_.core_min.count + 1}, bounds_.core_max}, true};
            if (table.memory_is_settable) learn_memory();
        } catch (const Error& error) {
            unsettable_ = error.text().vendor_words;
        }
    }

    /// The bottom of the board's own range. The table tells it in level `auto` or in a section of
    /// its own; else it shows somebody's limit, and only MI200's 500 MHz is known beforehand. The
    /// limit then bounds what kdvfs asks for.
    [[nodiscard]] Megahertz lowest_core_clock(const OverdriveTable& table) const {
        if (table.core_min) return *table.core_min;
        if (card_.architecture == "gfx90a" && read_level() != "auto") return Megahertz{500};
        return table.core.clocks.front();
    }

    void learn_memory() {
        const auto list = parse_clock_list(read_file(path("pp_dpm_mclk")).text);
        if (!list) return;
        supported_.memory.listed = list->clocks;
        std::sort(supported_.memory.listed.begin(), supported_.memory.listed.end());
        bounds_.memory_max = supported_.memory.listed.back();
    }

    void describe() {
        if (!unsettable_.empty()) {
            info_.mechanism = "none: " + unsettable_;
            return;
        }
        info_.mechanism = std::string{Writer::name} + (by_determinism_ ? " determinism" : " range");
        if (card_.secondary_die) info_.mechanism += ", second die of its package";
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

    /// One way, tried and undone; what was said where it does not work.
    Error try_out(const ClockState& found, ClockPoint point, bool determinism_way,
                  Capability& capability) {
        Error refusal{Errc::refused,
                      {"set " + to_string(point), to_string(info_),
                       "written without an error, but the board did not take it", ""}};
        by_determinism_ = determinism_way;
        capability = Capability::refused;
        try {
            apply(point);
            if (read_clock_state().cap == point) capability = Capability::supported;
        } catch (const Error& error) {
            if (error.code() == Errc::not_supported) capability = Capability::absent;
            refusal = error;
        }
        if (read_clock_state() != found) restore(found);
        if (read_clock_state() != found) {
            throw Error{Errc::io,
                        {"restore the clocks after trying them", to_string(info_),
                         "the board did not take back mode " + found.mode, ""}};
        }
        return refusal;
    }

    Card card_;
    Writer writer_;
    DeviceInfo info_;
    SupportedClocks supported_;
    std::string unsettable_;  // why the clocks cannot be set; empty where they can
    ClockBounds bounds_;
    ClockPoint asked_;  // last, by this object
    bool by_determinism_ = false;
};

}  // namespace kdvfs::device::amdgpu
