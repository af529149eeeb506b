// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// Compares an energy counter with power times time. Hand it what half a second or more of reading
/// gave; `result` refuses a counter that is absent, stands still, goes back, or is off by a factor.
/// Pure; not thread-safe.
class SelfCheckRun {
public:
    /// Counters and power readings of one board differ by their filters and sampling; by more than
    /// this factor, one of them is wrong.
    static constexpr double most_off = 1.25;
    static constexpr Duration shortest = std::chrono::milliseconds{500};

    explicit SelfCheckRun(CounterLimits limits = {}) : counter_{limits}, limits_{limits} {}

    void take(const EnergyReading& reading, TimePoint now);
    /// A power reading, where the device has one.
    void take(Watts power, TimePoint now);

    /// The mean power by a sensor outside the GPU.
    void take_reference(std::string name, Watts power);

    [[nodiscard]] SelfCheck result() const;

private:
    void hold_against(SelfCheck& check, const std::string& other, Watts power) const;
    [[nodiscard]] std::string fault() const;
    [[nodiscard]] std::optional<Watts> mean_power() const;

    EnergyCounter counter_;
    CounterLimits limits_;
    std::optional<TimePoint> first_;
    TimePoint last_;
    std::optional<EnergySample> begin_;
    std::optional<EnergySample> end_;
    std::vector<TimedReading> energy_;
    std::vector<TimedReading> power_;
    std::string reference_name_;
    std::optional<Watts> reference_;
};

/// The joules at the beginning of a text: "1234567 J 1700000000000000 us", "12.5".
KDVFS_INLINE std::optional<Joules> leading_joules(std::string_view text);

/// HPE Cray's counter of an accelerator, by the blade's controller: `accelN_energy`, ten times a
/// second ("PM counters" in HPE's Cray EX documentation; "JOULES J MICROSECONDS us"). For all
/// users.
KDVFS_INLINE ReferenceSensor
pm_counters(int accelerator, const std::filesystem::path& folder = "/sys/cray/pm_counters");

/// What a program prints: joules at the beginning of its first line, "12.5" or "12.5 J". It is run
/// by the shell for each reading.
KDVFS_INLINE ReferenceSensor joules_printed_by(const std::string& command);

}  // namespace kdvfs::inline v0_3::measure

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/measure/self_check.hpp>
#endif
