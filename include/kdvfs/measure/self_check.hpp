// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/settings.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
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

    void take(const EnergyReading& reading, TimePoint now) {
        if (!first_) first_ = now;
        last_ = now;
        const CounterStep step = counter_.take(reading, now);
        if (!step.sample) return;
        if (!begin_ || begin_->segment != step.sample->segment) {
            begin_ = step.sample;
            energy_.clear();
        }
        end_ = step.sample;
        energy_.push_back({step.sample->at, step.sample->total.count});
    }
    /// A power reading, where the device has one.
    void take(Watts power, TimePoint now) {
        if (std::isfinite(power.count) && power.count >= 0) power_.push_back({now, power.count});
    }

    /// The mean power by a sensor outside the GPU.
    void take_reference(std::string name, Watts power) {
        reference_name_ = std::move(name);
        reference_ = power;
    }

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

inline SelfCheck SelfCheckRun::result() const {
    SelfCheck check;
    check.reason = fault();
    if (!check.reason.empty()) return check;
    check.counted = (end_->total - begin_->total) / Seconds{end_->at - begin_->at};
    check.drawn = mean_power();
    check.power_window = find_averaging_window(power_, energy_);
    check.reference = reference_;
    check.passed = true;
    if (check.reference) hold_against(check, reference_name_, *check.reference);
    if (!check.drawn && check.passed) {
        if (!check.reference) {
            check.reason = "the device gives no power to compare the counter with";
        }
        return check;
    }
    if (check.passed) hold_against(check, "the power readings", *check.drawn);
    return check;
}

inline void SelfCheckRun::hold_against(SelfCheck& check, const std::string& other,
                                       Watts power) const {
    const double ratio = check.counted.count / power.count;
    check.passed = ratio <= most_off && ratio * most_off >= 1;
    if (check.passed) return;
    std::array<char, 256> text;
    std::snprintf(text.data(), text.size(),
                  "the counter says %.1f W and %s %.1f W: off by a factor of %.3g",
                  check.counted.count, other.c_str(), power.count, ratio);
    check.reason = text.data();
}

/// What is wrong with the counter alone; empty where nothing is.
inline std::string SelfCheckRun::fault() const {
    const CounterFaults& faults = counter_.faults();
    if (!first_ || last_ - *first_ < shortest) return "watched for less than half a second";
    if (faults.absent > 0) return "the device has no energy counter";
    if (faults.backwards > 0) return "the counter went backwards";
    if (faults.implausible > 0) return "the counter grew by more than a board can draw";
    if (faults.failed > 0) return "a read of the counter failed";
    const Duration patience = std::max(shortest / 2, 3 * limits_.period);
    if (!begin_ || end_->at == begin_->at || last_ - end_->at > patience) {
        return "the counter stands still";
    }
    return {};
}

/// Mean of the power readings over the counter's samples, each holding until the next.
inline std::optional<Watts> SelfCheckRun::mean_power() const {
    double joules = 0;
    double seconds = 0;
    for (std::size_t i = 1; i < power_.size(); ++i) {
        const TimePoint from = std::max(power_[i - 1].read_at, begin_->at);
        const TimePoint to = std::min(power_[i].read_at, end_->at);
        if (to <= from) continue;
        const double time = Seconds{to - from}.count();
        joules += time * (power_[i - 1].value + power_[i].value) / 2;
        seconds += time;
    }
    if (seconds <= 0 || joules <= 0) return {};
    return Watts{joules / seconds};
}

/// The joules at the beginning of a text: "1234567 J 1700000000000000 us", "12.5".
inline std::optional<Joules> leading_joules(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    double joules = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), joules);
    if (error != std::errc{} || !std::isfinite(joules) || joules < 0) return {};
    const std::string_view rest{end, static_cast<std::size_t>(text.data() + text.size() - end)};
    const std::size_t unit = std::min(rest.find_first_not_of(" \t"), rest.size());
    const bool bare = unit == rest.size() || rest[unit] == '\n';
    if (!bare && (rest[unit] != 'J' || (unit + 1 < rest.size() && rest[unit + 1] > ' '))) return {};
    return Joules{joules};
}

/// HPE Cray's counter of an accelerator, by the blade's controller: `accelN_energy`, ten times a
/// second ("PM counters" in HPE's Cray EX documentation; "JOULES J MICROSECONDS us"). For all
/// users.
inline ReferenceSensor pm_counters(int accelerator,
                                   const std::filesystem::path& folder = "/sys/cray/pm_counters") {
    const std::filesystem::path path = folder / ("accel" + std::to_string(accelerator) + "_energy");
    return {"pm_counters " + path.filename().string(), [path] {
                std::ifstream in{path};
                std::string line;
                std::getline(in, line);
                if (const auto joules = leading_joules(line)) return *joules;
                throw Error{Errc::io,
                            {.action = "read the reference sensor",
                             .object = path.string(),
                             .vendor_words = line,
                             .remedy = "name a sensor that this machine has"}};
            }};
}

/// What a program prints: joules at the beginning of its first line, "12.5" or "12.5 J". It is run
/// by the shell for each reading.
inline ReferenceSensor joules_printed_by(const std::string& command) {
    return {command, [command] {
                std::array<char, 256> line{};
                int status = -1;
                if (std::FILE* const pipe = popen(command.c_str(), "r")) {
                    if (std::fgets(line.data(), line.size(), pipe) == nullptr) line[0] = '\0';
                    while (std::fgetc(pipe) != EOF) {
                    }
                    status = pclose(pipe);
                }
                const auto joules = leading_joules(line.data());
                if (joules && status == 0) return *joules;
                throw Error{Errc::io,
                            {.action = "read the reference sensor",
                             .object = command,
                             .vendor_words = line.data(),
                             .remedy = "name a program that prints joules and ends with status 0"}};
            }};
}

}  // namespace kdvfs::inline v0_3::measure
