// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/system_files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3::device::amd {

/// What a board was found to allow when it was tried.
enum class Capability {
    absent,     ///< there is no file for it, or no need to try it
    refused,    ///< the driver said no
    supported,  ///< tried and seen to work; a clock was read back and put back
};

constexpr std::string_view to_string(Capability capability) {
    switch (capability) {
        case Capability::absent: return "absent";
        case Capability::refused: return "refused";
        case Capability::supported: return "supported";
    }
    return "unknown";
}

/// The ways to set the clocks of a board, tried until one works, and whether it counts its energy.
struct Capabilities {
    Capability range = Capability::absent;        ///< limits in performance level `manual`
    Capability determinism = Capability::absent;  ///< a limit in level `perf_determinism`
    /// A list of allowed core levels. The driver does not say which are allowed: what it accepts
    /// counts.
    Capability level_mask = Capability::absent;
    Capability memory = Capability::absent;  ///< an upper limit of the memory clock
    /// The two domains hold their limits beside one another; else the memory's is left alone.
    Capability both = Capability::absent;
    Capability energy = Capability::absent;  ///< a counter; a second die's is its package's
};

/// How the core clock is capped.
enum class ClockWay { range, determinism, level_mask };

constexpr std::string_view to_string(ClockWay way) {
    switch (way) {
        case ClockWay::range: return "range";
        case ClockWay::determinism: return "determinism";
        case ClockWay::level_mask: return "level mask";
    }
    return "unknown";
}

/// What the clock files of a board say, or an error that names the file. Reads only.
class ClockFiles {
public:
    explicit ClockFiles(const Card& card) : folder_{card.folder}, object_{to_string(card)} {}

    /// Whether the driver has a performance level of this name.
    static bool knows_level(std::string_view level) {
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
        return std::find(levels.begin(), levels.end(), level) != levels.end();
    }

    /// @throws Error
    [[nodiscard]] std::string level() const {
        const std::string text = text_of("power_dpm_force_performance_level");
        std::string level{detail::trimmed(text)};
        if (!knows_level(level)) throw not_understood("power_dpm_force_performance_level", text);
        return level;
    }

    /// The limits that hold, as pp_od_clk_voltage tells them. @throws Error
    [[nodiscard]] OverdriveTable table() const {
        const std::string text = text_of("pp_od_clk_voltage");
        auto table = parse_overdrive_table(text);
        if (!table) throw not_understood("pp_od_clk_voltage", text);
        return std::move(*table);
    }

    /// The levels of pp_dpm_sclk or pp_dpm_mclk. @throws Error
    [[nodiscard]] ClockList levels_of(std::string_view file) const {
        const std::string text = text_of(file);
        auto list = parse_clock_list(text);
        if (!list) throw not_understood(file, text);
        return std::move(*list);
    }

private:
    [[nodiscard]] std::string path(std::string_view file) const {
        return folder_ + "/" + std::string{file};
    }

    [[nodiscard]] std::string text_of(std::string_view file) const {
        FileText answer = read_file(path(file));
        if (answer.error != 0) {
            throw file_error("read the clock settings", object_, path(file), answer.error);
        }
        return std::move(answer.text);
    }

    [[nodiscard]] Error not_understood(std::string_view file, const std::string& text) const {
        return Error{
            Errc::io,
            {"read the clock settings", object_, path(file) + " says '" + text.substr(0, 60) + "'",
             "the GPU may be in reset or halted by a memory error; see the kernel log"}};
    }

    std::string folder_;
    std::string object_;
};

/// The ends of a board's own clock ranges.
struct ClockBounds {
    Megahertz core_min;
    Megahertz core_max;
    Megahertz memory_max = auto_clock;  ///< auto where the memory clock cannot be set
    unsigned levels = 0;  ///< of a board whose only way is a list of allowed levels; else 0
};

/// Which clocks a board can be capped at, and how, as far as its files tell.
struct SettableClocks {
    SupportedClocks supported;
    ClockBounds bounds;
    ClockWay way = ClockWay::range;
    bool has_table = false;  ///< pp_od_clk_voltage is there
    std::string why_not;     ///< why the clocks cannot be set; empty where they can

    /// Reads only, and never throws: what cannot be read is a reason why not.
    static SettableClocks of(const Card& card, const ClockFiles& files) {
        SettableClocks clocks;
        if (!card.partition.empty() && card.partition != "SPX") {
            clocks.why_not = "the GPU is partitioned (" + card.partition +
                             "), and the driver sets clocks in SPX mode only; its counter is of "
                             "all partitions together";
            return clocks;
        }
        try {
            clocks.learn_range(card, files, files.table());
        } catch (const Error& error) {
            clocks = without_table(files, error.text().vendor_words);
        }
        return clocks;
    }

    /// Of a board whose only way is its list of levels.
    static SettableClocks by_levels(const ClockList& list) {
        SettableClocks clocks;
        clocks.way = ClockWay::level_mask;
        clocks.supported.core = {list.clocks, false};
        clocks.bounds = {list.clocks.front(), list.clocks.back(), auto_clock,
                         static_cast<unsigned>(list.clocks.size())};
        return clocks;
    }

private:
    static SettableClocks without_table(const ClockFiles& files, const std::string& why_no_table) {
        try {
            const ClockList list = files.levels_of("pp_dpm_sclk");
            if (list.clocks.size() > 1) return by_levels(list);
        } catch (const Error&) {  // what the table's file said, says more
        }
        SettableClocks none;
        none.why_not = why_no_table;
        return none;
    }

    void learn_range(const Card& card, const ClockFiles& files, const OverdriveTable& table) {
        has_table = true;
        bounds.core_min = lowest_core_clock(card, files, table);
        bounds.core_max = card.core_max != auto_clock ? card.core_max : table.core.clocks.back();
        if (bounds.core_min >= bounds.core_max) {
            why_not = "its clock range does not show in performance level " + files.level();
            return;
        }
        supported.core = {{Megahertz{bounds.core_min.count + 1}, bounds.core_max}, true};
        if (table.memory_is_settable) learn_memory(files);
    }

    /// The core clock needs nothing of it: where the list is missing, the memory is left alone.
    void learn_memory(const ClockFiles& files) {
        try {
            supported.memory.listed = files.levels_of("pp_dpm_mclk").clocks;
        } catch (const Error&) {
            return;
        }
        std::sort(supported.memory.listed.begin(), supported.memory.listed.end());
        bounds.memory_max = supported.memory.listed.back();
    }

    /// The bottom of the board's own range. The table tells it in level `auto` or in a section of
    /// its own; else it shows somebody's limit, and only MI200's 500 MHz is known beforehand. The
    /// limit then bounds what kdvfs asks for.
    static Megahertz lowest_core_clock(const Card& card, const ClockFiles& files,
                                       const OverdriveTable& table) {
        if (table.core_min) return *table.core_min;
        if (card.architecture == "gfx90a" && files.level() != "auto") return Megahertz{500};
        return table.core.clocks.front();
    }
};

/// Limits as the driver takes them: all of them are numbers.
struct ClockLimits {
    Megahertz core_min;
    Megahertz core_max;
    Megahertz memory_max = auto_clock;  ///< auto: there is none to write

    friend bool operator==(ClockLimits, ClockLimits) = default;
};

/// How settings get to the driver: by its files, or through a library that writes the same files.
/// Each call throws `Error` and may then have done its first half: no setter of the driver is
/// atomic. What is read back is read from the files, whoever has written.
class ClockWriter {
public:
    virtual ~ClockWriter() = default;

    /// "rocm_smi", for `info()`.
    [[nodiscard]] virtual std::string name() const = 0;
    virtual void write_level(const std::string& level) = 0;
    /// In level `manual`.
    virtual void write_limits(const ClockLimits& limits) = 0;
    /// In level `perf_determinism`.
    virtual void write_determinism(Megahertz cap) = 0;
    /// Allows the core levels from the lowest to this one, in level `manual`.
    virtual void write_levels_up_to(unsigned highest) = 0;
};

/// Writes the driver's own files, in the words of its documentation (amdgpu_pm.c): no library, and
/// no root where the files allow it.
class SysfsWriter : public ClockWriter {
public:
    explicit SysfsWriter(const Card& card)
        : object_{to_string(card)},
          level_{card.folder + "/power_dpm_force_performance_level"},
          table_{card.folder + "/pp_od_clk_voltage"},
          mask_{card.folder + "/pp_dpm_sclk"} {}

    [[nodiscard]] std::string name() const override { return "amdgpu sysfs"; }

    void write_level(const std::string& level) override {
        write(level_, level, [&] { return "set the performance level " + level; });
    }

    void write_limits(const ClockLimits& limits) override {
        write_level("manual");
        edit("s 0 ", limits.core_min);
        edit("s 1 ", limits.core_max);
        if (limits.memory_max != auto_clock) edit("m 1 ", limits.memory_max);
        write(table_, "c\n", [] { return "commit the clock limits"; });
    }

    void write_determinism(Megahertz cap) override {
        write_level("perf_determinism");
        edit("s 1 ", cap);
        write(table_, "c\n", [] { return "commit the clock limit"; });
    }

    void write_levels_up_to(unsigned highest) override {
        write_level("manual");
        write(mask_, levels_up_to(highest),
              [&] { return "allow core levels up to " + std::to_string(highest); });
    }

private:
    /// @returns an errno, or 0
    virtual int put(const std::string& path, std::string_view text) {
        return write_file(path, text);
    }

    void edit(std::string_view command, Megahertz clock) {
        write(table_, std::string{command} + std::to_string(clock.count) + "\n",
              [&] { return "set a clock limit of " + to_string(clock); });
    }

    /// @param action what is tried, in words, for the error alone
    template <class Action>
    void write(const std::string& path, std::string_view text, Action action) {
        if (const int error = put(path, text)) {
            throw file_error(action(), object_, path, error);
        }
    }

    std::string object_;
    std::string level_;
    std::string table_;
    std::string mask_;
};

}  // namespace kdvfs::inline v0_3::device::amd
