// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/sensor_finding.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/self_check.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// What a device's joules are taken from.
enum class EnergyFrom {
    nothing,
    counter,
    power,  ///< samples of the power, each a mean over a window
    both,   ///< the power's samples say when, the counter how much in all
};

[[nodiscard]] constexpr const char* to_string(EnergyFrom source) {
    switch (source) {
        case EnergyFrom::counter: return "energy counter";
        case EnergyFrom::power: return "power samples";
        case EnergyFrom::both: return "power samples, scaled to the energy counter";
        case EnergyFrom::nothing: break;
    }
    return "nothing";
}

/// How often a device can say what it drew; 0 where it cannot, or nobody knows.
struct MeterPeriods {
    Duration counter{0};  ///< between two moves of the energy counter
    Duration power{0};    ///< between two samples of the power
};

struct SourceChoice {
    EnergyFrom source = EnergyFrom::nothing;
    std::string reason;  ///< a sentence for the report
};

/// Which source tells kernels apart best. A source's rows are as long as its period, or as the
/// window that a sample is a mean over; shorter rows hold fewer kernels. Power samples whose
/// windows leave time out miss what happened there, so they do not replace a counter that works.
/// Pure.
/// @param check of the counter against the power readings
[[nodiscard]] inline SourceChoice choose_source(const SelfCheck& check, MeterPeriods periods) {
    constexpr double clearly_finer = 2;
    constexpr double covers = 0.75;  // of the time, with the jitter of the samples
    const auto milliseconds = [](Duration time) { return Seconds{time}.count() * 1e3; };
    const Duration window = check.power_window.value_or(periods.power);
    const bool has_power = periods.power > Duration::zero();
    const Duration row = std::max(periods.power, window);
    std::array<char, 320> text;
    const auto say = [&](const char* format, auto... values) {
        std::snprintf(text.data(), text.size(), format, values...);
        return std::string{text.data()};
    };
    if (!check.passed) {
        if (!has_power) return {EnergyFrom::nothing, "no joules: " + check.reason};
        return {EnergyFrom::power,
                say("joules are from power samples every %.1f ms; not from the energy counter: ",
                    milliseconds(periods.power)) +
                    check.reason};
    }
    if (!has_power) return {EnergyFrom::counter, "joules are from the energy counter alone"};
    if (periods.counter > Duration::zero() &&
        Seconds{periods.counter} < clearly_finer * Seconds{row}) {
        return {EnergyFrom::counter,
                say("joules are from the energy counter, which moves every %.1f ms; power samples "
                    "of %.1f ms are not clearly finer",
                    milliseconds(periods.counter), milliseconds(row))};
    }
    if (Seconds{window} < covers * Seconds{periods.power}) {
        return {EnergyFrom::counter,
                say("joules are from the energy counter: power samples are means over %.1f ms of "
                    "every %.1f ms and miss the rest",
                    milliseconds(window), milliseconds(periods.power))};
    }
    const bool comparable = check.drawn && check.drawn->count > 0;
    const double scale = comparable ? check.counted.count / check.drawn->count : 1;
    return {EnergyFrom::both,
            say("joules are from power samples every %.1f ms, times %.3f as the energy counter has "
                "it, which moves every %.1f ms only",
                milliseconds(periods.power), scale, milliseconds(periods.counter))};
}

/// How much more an energy counter counts than the rows of a power log, from the time that both
/// have seen. Not thread-safe.
class CounterGain {
public:
    void take_counter(const EnergySample& sample) {
        counter_.push_back(sample);
        match();
    }
    /// The end of a window of the log, as an energy sample.
    void take_power(const EnergySample& sample) {
        power_.push_back(sample);
        match();
    }

    /// Mean powers by the counter and by the log, where the counter moved in time of both.
    [[nodiscard]] std::optional<std::pair<double, double>> means() const {
        if (joules_ <= 0 || powers_ <= 0) return {};
        return std::pair{joules_ / seconds_, powers_ / seconds_};
    }
    /// 1 where there was no time together.
    [[nodiscard]] double gain() const { return powers_ > 0 ? joules_ / powers_ : 1; }
    /// Relative standard error. A move errs at its edges, each by what the next one gains: what
    /// follows each other cancels for the most part.
    [[nodiscard]] double deviation() const {
        if (moves_ < 2) return 0;
        constexpr double least = 0.1;  // of what moves without neighbors would err by
        const double squares = of_.square(gain());
        const double sum = std::max(squares + 2 * next_.square(gain()), least * squares);
        return std::sqrt(std::max(sum, 0.0) * moves_ / (moves_ - 1)) / joules_;
    }

private:
    void match() {
        constexpr std::size_t most = 1 << 14;
        while (counter_.size() >= 2 && !power_.empty() && power_.back().at >= counter_[1].at) {
            const EnergySample from = counter_.front();
            counter_.pop_front();
            const EnergySample& to = counter_.front();
            const auto begin = logged_at(from.at);
            const auto end = logged_at(to.at);
            const bool whole =
                begin && end && begin->second == end->second && from.segment == to.segment;
            if (whole) {
                add({(to.total - from.total).count, end->first - begin->first}, follows_);
                seconds_ += Seconds{to.at - from.at}.count();
            }
            follows_ = whole;
            while (power_.size() >= 2 && power_[1].at <= to.at) power_.pop_front();
        }
        while (counter_.size() > most) counter_.pop_front();
        while (power_.size() > most) power_.pop_front();
    }
    /// The log's joules and segment at a moment within it.
    [[nodiscard]] std::optional<std::pair<double, std::uint32_t>> logged_at(TimePoint at) const {
        const auto after =
            std::lower_bound(power_.begin(), power_.end(), at,
                             [](const EnergySample& sample, TimePoint t) { return sample.at < t; });
        if (after == power_.end() || after == power_.begin()) return {};
        const EnergySample& before = *(after - 1);
        if (before.segment != after->segment) return {};
        const double part = Seconds{at - before.at} / Seconds{after->at - before.at};
        return std::pair{before.total.count + part * (after->total - before.total).count,
                         before.segment};
    }
    /// Sums of products of what two moves have more than the log, for any gain of it.
    struct Products {
        double joules = 0;
        double both = 0;
        double powers = 0;

        void add(std::pair<double, double> a, std::pair<double, double> b) {
            joules += a.first * b.first;
            both += 0.5 * (a.first * b.second + a.second * b.first);
            powers += a.second * b.second;
        }
        [[nodiscard]] double square(double gain) const {
            return joules - 2 * gain * both + gain * gain * powers;
        }
    };
    void add(std::pair<double, double> move, bool follows) {
        joules_ += move.first;
        powers_ += move.second;
        of_.add(move, move);
        if (follows) next_.add(move, last_);
        last_ = move;
        ++moves_;
    }

    std::deque<EnergySample> counter_;
    std::deque<EnergySample> power_;
    double joules_ = 0;
    double powers_ = 0;
    double seconds_ = 0;
    Products of_;                       // of each move
    Products next_;                     // of it and the one before it
    std::pair<double, double> last_{};  // joules by counter and log
    bool follows_ = false;
    double moves_ = 0;
};

/// Whether kernels are told apart by the power log, and how its joules are those of the counter.
/// @param found  of the log's readings; nothing where there are too few
/// @param period of the log, s
[[nodiscard]] inline SourceChoice choose_source(const std::optional<SensorFinding>& found,
                                                const CounterGain& gain, double period,
                                                Duration counter_period) {
    constexpr double clearly = 0.6;  // of the readings' deviation may be left unexplained
    const auto by_counter = [](const char* why) {
        return SourceChoice{EnergyFrom::counter,
                            std::string{"joules are from the energy counter: "} + why};
    };
    if (!found) {
        return by_counter("there are too few power samples of metered time to know them by");
    }
    SelfCheck check;
    check.power_window = std::chrono::duration_cast<Duration>(Seconds{found->window(period)});
    if (const auto means = gain.means()) {
        check.passed = true;
        check.counted = {means->first};
        check.drawn = Watts{means->second};
        const double ratio = means->first / means->second;
        if (ratio > SelfCheckRun::most_off || ratio * SelfCheckRun::most_off < 1) {
            return by_counter("power samples disagree with it by a factor");
        }
    } else {
        check.reason = "it did not move while there were power samples";
    }
    SourceChoice choice = choose_source(
        check, {counter_period, std::chrono::duration_cast<Duration>(Seconds{period})});
    if (choice.source == EnergyFrom::both && found->left > clearly * found->deviation) {
        return by_counter(
            "power samples do not follow the kernels clearly enough to know over which time each "
            "is a mean");
    }
    return choice;
}

}  // namespace kdvfs::inline v0_3::measure
