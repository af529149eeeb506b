// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/meter_response.hpp>
#include <kdvfs/detail/measure/sensor_finding.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/self_check.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
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
    /// What a power sample's watts are to be multiplied by.
    double power_scale = 1;
    MeterResponse response{};  ///< of the power samples, where they are used
    std::string reason;        ///< a sentence for the report
    LogClock clock{};          ///< by which the power samples are taken
};

[[nodiscard]] inline SourceChoice by_counter(const std::string& why) {
    return {EnergyFrom::counter, 1, {}, "joules are from the energy counter: " + why};
}

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
    if (!check.passed) {
        if (!has_power) return {EnergyFrom::nothing, 1, {}, "no joules: " + check.reason};
        return {EnergyFrom::power,
                1,
                {},
                io::format_text(
                    "joules are from power samples every %.1f ms; not from the energy counter: ",
                    milliseconds(periods.power)) +
                    check.reason};
    }
    if (!has_power) return {EnergyFrom::counter, 1, {}, "joules are from the energy counter alone"};
    if (periods.counter > Duration::zero() &&
        Seconds{periods.counter} < clearly_finer * Seconds{row}) {
        return {EnergyFrom::counter,
                1,
                {},
                io::format_text(
                    "joules are from the energy counter, which moves every %.1f ms; power samples "
                    "of %.1f ms are not clearly finer",
                    milliseconds(periods.counter), milliseconds(row))};
    }
    if (Seconds{window} < covers * Seconds{periods.power}) {
        const Duration shortest = periods.power / 10;  // that can be distinguished
        return by_counter(
            io::format_text("power samples are means over %s %.1f ms of every %.1f ms and miss "
                            "the rest",
                            window < shortest ? "at most" : "about",
                            milliseconds(std::max(window, shortest)), milliseconds(periods.power)));
    }
    const bool comparable = check.drawn && check.drawn->count > 0;
    const double scale = comparable ? check.counted.count / check.drawn->count : 1;
    return {EnergyFrom::both,
            scale,
            {},
            io::format_text(
                "joules are from power samples every %.1f ms, times %.3f as the energy counter has "
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
    /// How far moves of the counter are from as much by the log, root mean square, relative.
    [[nodiscard]] double apart() const { return deviation() * std::sqrt(moves_); }
    /// Relative standard error. Single moves of the counter err at their edges, each by what the
    /// next gains, so that this is too much rather than too little.
    [[nodiscard]] double deviation() const {
        if (moves_ < 2) return 0;
        const double g = gain();
        const double squares = joules_squared_ - 2 * g * products_ + g * g * powers_squared_;
        return std::sqrt(std::max(squares, 0.0) * moves_ / (moves_ - 1)) / joules_;
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
            if (begin && end && begin->second == end->second && from.segment == to.segment) {
                add((to.total - from.total).count, end->first - begin->first);
                seconds_ += Seconds{to.at - from.at}.count();
            }
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
    void add(double joules, double power) {
        joules_ += joules;
        powers_ += power;
        joules_squared_ += joules * joules;
        powers_squared_ += power * power;
        products_ += joules * power;
        ++moves_;
    }

    std::deque<EnergySample> counter_;
    std::deque<EnergySample> power_;
    double joules_ = 0;
    double powers_ = 0;
    double seconds_ = 0;
    double joules_squared_ = 0;
    double powers_squared_ = 0;
    double products_ = 0;
    double moves_ = 0;
};

/// As above, by what the counter and the log say of the same time.
/// @param window that a power sample is a mean over
[[nodiscard]] inline SourceChoice choose_source(const CounterGain& gain, Duration window,
                                                MeterPeriods periods) {
    SelfCheck check;
    check.power_window = window;
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
    return choose_source(check, periods);
}

/// Watches the energy counter and the power log of a board while kernels run, for some seconds,
/// until it can be said from which of them kernels are told apart best. Bounded. Not thread-safe.
class SourceFinder {
public:
    void take(const EnergySample& sample) { counter_.push_back(sample); }
    void take(const PowerReading& reading) {
        power_.push_back({reading.sampled_at, reading.watts.count});
    }
    void take(const KernelInterval& run) {
        if (runs_.size() < most_runs) runs_.push_back(run);
    }
    /// From `at` on it is known what runs, or not; in order of time. Known at the start.
    void metering(TimePoint at, bool on) { metered_.set(at, on); }

    [[nodiscard]] bool sees_power() const { return !power_.empty(); }
    /// Whether waiting longer would tell no more, or hold back too much.
    [[nodiscard]] bool seen_enough() const {
        constexpr Duration long_enough = std::chrono::seconds{6};  // of metered time
        constexpr Duration longest = std::chrono::seconds{20};
        constexpr double many = 150;  // samples of a slow log in it
        if (runs_.size() >= most_runs || counter_.size() + power_.size() >= most_readings) {
            return true;
        }
        if (!sees_power() || runs_.empty()) return false;
        const TimePoint from = std::max(power_.front().read_at, runs_.front().start);
        const TimePoint to = power_.back().read_at;
        const Duration seen = metered_.of(from, to);
        const double samples =
            static_cast<double>(power_.size()) * (Seconds{seen} / Seconds{to - from});
        return seen >= longest || (seen >= long_enough && samples >= many);
    }

    /// @param counter_period between two moves of the counter; 0 where unknown
    [[nodiscard]] SourceChoice choose(Duration counter_period) const;

    // What has been seen, for whoever goes on.
    [[nodiscard]] const std::vector<EnergySample>& counter() const { return counter_; }
    [[nodiscard]] const std::vector<TimedReading>& power() const { return power_; }

private:
    static constexpr std::size_t most_runs = 1 << 17;  // 10 s of short kernels
    static constexpr std::size_t most_readings = 1 << 14;

    LogClock align_clock();
    [[nodiscard]] Duration power_period() const;
    [[nodiscard]] std::vector<KernelInterval> runs_in_order() const;
    [[nodiscard]] CounterGain compare() const;
    [[nodiscard]] FoundResponse find_response(std::span<const KernelInterval> whole) const;
    [[nodiscard]] static std::vector<KernelInterval> in_thirds(
        std::span<const KernelInterval> whole, Duration from);
    [[nodiscard]] bool explains(const FoundResponse& found, std::span<const KernelInterval> runs,
                                double most_left) const;

    std::vector<EnergySample> counter_;
    std::vector<TimedReading> power_;
    std::deque<KernelInterval> runs_;  // grows without being moved: launching threads add
    MeteredTime metered_;
};

inline SourceChoice SourceFinder::choose(Duration counter_period) const {
    constexpr auto fewest = 50;      // power samples
    constexpr double clearly = 0.6;  // of their deviation may be left unexplained
    constexpr double unclear = 0.1;
    constexpr double far = 0.1;  // of the power: beyond what noise and late reads make of it
    if (std::count_if(power_.begin(), power_.end(), [&](const TimedReading& sample) {
            return metered_.holds(sample.read_at, sample.read_at);
        }) < fewest) {
        return by_counter("there are too few power samples of metered time to know them by");
    }
    const std::vector<KernelInterval> runs = runs_in_order();
    SourceFinder straight = *this;
    const LogClock clock = straight.align_clock();
    const FoundResponse found = straight.find_response(runs);
    const CounterGain gain = straight.compare();
    SourceChoice choice =
        choose_source(gain, found.response.window, {counter_period, straight.power_period()});
    if (choice.source == EnergyFrom::counter) return choice;
    if (choice.source == EnergyFrom::both && gain.apart() > far) {
        return by_counter("power samples differ from it by " +
                          std::to_string(std::lround(100 * gain.apart())) +
                          " % from move to move; over which time each is a mean was not found");
    }
    choice.response = found.response;
    choice.clock = clock;
    if (found.response.memory > Duration::zero()) {
        choice.reason +=
            io::format_text("; they follow the kernels %.1f ms late and with a memory of %.1f ms",
                            Seconds{found.response.delay}.count() * 1e3,
                            Seconds{found.response.memory}.count() * 1e3);
    }
    if (found.response.change_error > unclear) {
        if (choice.source == EnergyFrom::both) {
            return by_counter(
                "over which time each power sample is a mean is not clear from what has run so "
                "far");
        }
        choice.reason +=
            "; over which time each is a mean is not clear: their intervals may be too narrow";
    }
    if (choice.source == EnergyFrom::both && !straight.explains(found, runs, clearly)) {
        return by_counter(
            "power samples do not follow the kernels clearly enough to know over "
            "which time each is a mean");
    }
    return choice;
}

/// Puts the power samples to the times when they were taken. @returns by which clock
inline LogClock SourceFinder::align_clock() {
    std::vector<TimePoint> stamps;
    for (const TimedReading& sample : power_) stamps.push_back(sample.read_at);
    const LogClock found{stamps};
    LogClock clock = found;
    for (const TimedReading& sample : std::exchange(power_, {})) {
        const auto taken = clock.taken(sample.read_at);
        if (!taken || (!power_.empty() && *taken <= power_.back().read_at)) continue;
        power_.push_back({*taken, sample.value});
    }
    return found;
}

inline Duration SourceFinder::power_period() const {
    std::vector<Duration> between;
    for (std::size_t i = 1; i < power_.size(); ++i) {
        between.push_back(power_[i].read_at - power_[i - 1].read_at);
    }
    return between.empty() ? Duration{0} : median_of(between);
}

inline std::vector<KernelInterval> SourceFinder::runs_in_order() const {
    std::vector<KernelInterval> runs{runs_.begin(), runs_.end()};
    std::stable_sort(runs.begin(), runs.end(),
                     [](const auto& a, const auto& b) { return a.start < b.start; });
    return runs;
}

/// The counter against the samples, from move to move, at the lag that brings them closest: NVML's
/// counters are 10 to 25 ms behind the log (bench/results), others may be as late as they are slow.
/// Where the power changes within a move, the lag is most of what they differ by.
inline CounterGain SourceFinder::compare() const {
    using std::chrono::milliseconds;
    constexpr milliseconds earliest{-100};  // the log has delay and memory
    constexpr milliseconds latest{120};
    constexpr milliseconds step{5};
    const Duration period = power_period();
    LogEnergy energy;
    std::vector<EnergySample> log;
    for (const TimedReading& sample : power_) {
        log.push_back(energy.take(sample.read_at, {sample.value}, period));
    }
    // A slow log says little of where in a sample its joules were drawn.
    const Duration shortest = 4 * period;
    CounterGain best;
    for (Duration lag = earliest; lag <= latest; lag += step) {
        CounterGain gain;
        for (const EnergySample& end : log) gain.take_power(end);
        const EnergySample* last = nullptr;
        for (const EnergySample& sample : counter_) {
            if (last && last->segment == sample.segment && sample.at - last->at < shortest)
                continue;
            last = &sample;
            gain.take_counter({sample.at - lag, sample.total, sample.segment});
        }
        if (gain.means() && (!best.means() || gain.apart() < best.apart())) best = gain;
    }
    return best;
}

/// Thirds of runs that are longer than `from` as runs of kernels of their own.
inline std::vector<KernelInterval> SourceFinder::in_thirds(std::span<const KernelInterval> whole,
                                                           Duration from) {
    std::uint32_t next = 0;
    for (const KernelInterval& run : whole) next = std::max(next, run.kernel.value + 1);
    std::vector<std::uint32_t> later(next);  // the number of a kernel's second third
    std::vector<KernelInterval> runs;
    for (const KernelInterval& run : whole) {
        const Duration length = run.end - run.start;
        if (length <= from) {
            runs.push_back(run);
            continue;
        }
        std::uint32_t& number = later[run.kernel.value];
        if (number == 0) number = std::exchange(next, next + 2);
        for (int third = 0; third < 3; ++third) {
            KernelInterval& part = runs.emplace_back(run);
            part.start = run.start + third * length / 3;
            part.end = run.start + (third + 1) * length / 3;
            if (third > 0) part.kernel.value = number + static_cast<std::uint32_t>(third - 1);
        }
    }
    return runs;
}

/// A fixed mix is explained by many windows, each with other powers. A log is nearly always one of
/// means since the sample before, or with a memory, so these are tried; means over longer show
/// where they explain far more, and then nothing is clear.
inline FoundResponse SourceFinder::find_response(std::span<const KernelInterval> whole) const {
    constexpr double far_more = 0.85;  // as `LogMemories::or_better` asks of means
    const Duration period = power_period();
    const std::array since_last{period};
    const std::array longer{2 * period, 3 * period, 5 * period};
    const std::vector<KernelInterval> runs =
        in_thirds(whole, 4 * period / MeterResponse::shows_inside);
    const FoundResponse plain = find_meter_response(power_, runs, since_last, metered_);
    FoundResponse found = LogMemories{power_, runs, metered_}.or_better(plain);
    if (found.response.memory == Duration::zero()) {
        found.response.delay = exact_delay(plain, power_, runs, metered_);
    }
    const FoundResponse means = find_meter_response(power_, runs, longer, metered_);
    if (means.unexplained < far_more * found.unexplained) found.response.change_error = 1;
    return found;
}

/// Whether a power for each kernel, seen through the meter, leaves no more than this share of the
/// samples' deviation.
inline bool SourceFinder::explains(const FoundResponse& found, std::span<const KernelInterval> runs,
                                   double most_left) const {
    double sum = 0;
    double squares = 0;
    double count = 0;
    for (const TimedReading& sample : power_) {
        const TimePoint end = sample.read_at - found.response.delay;
        const TimePoint begin = end - found.response.window;
        if (runs.empty() || begin < runs.front().start || end > runs.back().end ||
            !metered_.holds(begin, end)) {
            continue;
        }
        sum += sample.value;
        squares += sample.value * sample.value;
        ++count;
    }
    if (count == 0) return false;
    const double deviation = std::sqrt(std::max(0.0, squares / count - std::pow(sum / count, 2)));
    return found.unexplained < most_left * deviation;
}

/// Whether kernels are told apart by the power log, and how its joules are those of the counter.
/// @param found  of the log's readings; nothing where there are too few
/// @param period of the log, s
[[nodiscard]] inline SourceChoice choose_source(const std::optional<SensorFinding>& found,
                                                const CounterGain& gain, double period,
                                                Duration counter_period) {
    constexpr double clearly = 0.6;  // of the readings' deviation may be left unexplained
    if (!found) {
        return by_counter("there are too few power samples of metered time to know them by");
    }
    const auto duration = [](double seconds) {
        return std::chrono::duration_cast<Duration>(Seconds{seconds});
    };
    SourceChoice choice =
        choose_source(gain, duration(found->window(period)), {counter_period, duration(period)});
    if (choice.source == EnergyFrom::both && found->left > clearly * found->deviation) {
        return by_counter(
            "power samples do not follow the kernels clearly enough to know over which time each "
            "is a mean");
    }
    return choice;
}

}  // namespace kdvfs::inline v0_3::measure
