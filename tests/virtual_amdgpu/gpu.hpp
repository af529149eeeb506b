// SPDX-License-Identifier: MIT
#pragma once

#include "board.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace virtual_amdgpu {

/// The lower and upper limit of a clock, MHz; 0 where nothing was written.
struct Limits {
    unsigned min = 0;
    unsigned max = 0;

    friend bool operator==(Limits, Limits) = default;
};

/// Everything that kdvfs could leave changed.
struct Settings {
    std::string level = "auto";
    Limits core;
    unsigned memory_max = 0;
    std::uint64_t power_cap_microwatts = 0;
    unsigned point = 0;  ///< the prepared operating point that holds

    friend bool operator==(const Settings&, const Settings&) = default;
};

/// What is wrong with a board.
struct Ailments {
    bool stuck_clock = false;       ///< what runs, runs at the board's highest clock
    bool deaf = false;              ///< limits are accepted and not taken
    bool slow_counter = false;      ///< a sample in 50 ms
    bool coarse_counter = false;    ///< joules in whole numbers
    bool inflated_counter = false;  ///< half a joule too much for each
    bool unknown_metrics = false;   ///< a gpu_metrics of a revision to come
    bool mixes_domains = false;     ///< a memory limit takes the core's away
    unsigned clinging = 0;          ///< MHz: from there it does not go back to auto
};

/// One virtual amdgpu: the driver's rules for its clock files, a power model, an energy counter.
/// Every call takes the device's lock, as in the driver, and holds it while a slow access sleeps.
/// Writes return 0 or an errno.
class Gpu {
public:
    using Nanoseconds = std::chrono::nanoseconds;

    explicit Gpu(Board board);

    const Board& board() const { return board_; }

    std::string performance_level() const;
    std::string core_levels() const;      ///< pp_dpm_sclk
    std::string memory_levels() const;    ///< pp_dpm_mclk
    std::string overdrive_table() const;  ///< pp_od_clk_voltage
    std::string metrics();                ///< gpu_metrics, binary
    std::string average_power() const;    ///< microwatts
    std::string power_cap() const;        ///< microwatts
    std::string active_point() const;     ///< app_modes/active_profile

    int write_performance_level(std::string_view text);
    int write_core_levels(std::string_view text);
    int write_overdrive(std::string_view text);
    int write_power_cap(std::string_view text);
    int write_active_point(std::string_view text);

    Settings settings() const;
    /// What a GPU reset leaves behind: every setting at its default.
    void reset();
    /// The share of time in which kernels run, 0 to 1.
    void set_busy(double busy);
    /// The clock a running kernel gets now, MHz.
    unsigned running_clock() const;
    double watts() const;
    double joules();
    /// Replaces CLOCK_MONOTONIC, so that energy becomes a function of the test's own time.
    void set_time_source(std::function<Nanoseconds()> now);
    void set_access_time(Nanoseconds read, Nanoseconds write);
    /// The text of pp_dpm_sclk, whatever the state; empty brings the honest text back.
    void set_core_levels_text(std::string text);
    /// Lets this die's counter count the other die of its package, too.
    void count_for(Gpu& second_die);
    void set_ailments(const Ailments& ailments);
    /// Stops the energy counter, as seen on MI210 boards in the field.
    void freeze_counter(bool frozen);

    /// Sleep for as long as one access takes, with the device's lock held.
    void spend_read_time() const;
    void spend_write_time() const;

private:
    unsigned clock_now(double busy) const;
    int set_core_limits(Limits wanted);
    int commit();
    int edit(char table, unsigned index, unsigned clock);
    void advance();
    double sampled_joules();

    const Board board_;
    mutable std::recursive_mutex mutex_;
    std::function<Nanoseconds()> now_;
    Settings settings_;
    Limits custom_core_;  // edited, not yet committed; the driver forgets to clear it
    unsigned custom_memory_ = 0;
    bool memory_edited_ = false;
    double busy_ = 0;
    std::string core_levels_text_;
    Nanoseconds read_time_{0};
    Nanoseconds write_time_{0};
    Nanoseconds integrated_to_{0};
    double joules_ = 0;
    Nanoseconds sampled_at_{0};  // the firmware's latest sample, once per millisecond
    double sampled_joules_ = 0;
    bool frozen_ = false;
    Ailments ailments_;
    Gpu* second_die_ = nullptr;
};

}  // namespace virtual_amdgpu
