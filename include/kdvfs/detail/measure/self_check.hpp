// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/self_check.hpp>

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/settings.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <istream>
#include <system_error>
#include <utility>

namespace kdvfs::inline v0_3::measure {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE void SelfCheckRun::take(const EnergyReading& reading, TimePoint now) {
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

KDVFS_INLINE void SelfCheckRun::take(Watts power, TimePoint now) {
    if (std::isfinite(power.count) && power.count >= 0) power_.push_back({now, power.count});
}

KDVFS_INLINE void SelfCheckRun::take_reference(std::string name, Watts power) {
    reference_name_ = std::move(name);
    reference_ = power;
}

KDVFS_INLINE SelfCheck SelfCheckRun::result() const {
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

KDVFS_INLINE void SelfCheckRun::hold_against(SelfCheck& check, const std::string& other,
                                             Watts power) const {
    const double ratio = check.counted.count / power.count;
    check.passed = ratio <= most_off && ratio * most_off >= 1;
    if (check.passed) return;
    check.reason = io::format_text("the counter says %.1f W and %s %.1f W: off by a factor of %.3g",
                                   check.counted.count, other.c_str(), power.count, ratio);
}

KDVFS_INLINE std::string SelfCheckRun::fault() const {
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

KDVFS_INLINE std::optional<Watts> SelfCheckRun::mean_power() const {
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

KDVFS_INLINE std::optional<Joules> leading_joules(std::string_view text) {
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

KDVFS_INLINE ReferenceSensor pm_counters(int accelerator, const std::filesystem::path& folder) {
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

KDVFS_INLINE ReferenceSensor joules_printed_by(const std::string& command) {
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

#endif

}  // namespace kdvfs::inline v0_3::measure
