// SPDX-License-Identifier: MIT
#pragma once

#include <bench/power_profile/smooth_curve.hpp>
#include <bench/power_profile/time_sync.hpp>
#include <kdvfs/detail/io/json_writer.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/units.hpp>

#include <gsl/assert>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// One line of a power logger: the GPU's time and a value per component (total first).
struct PowerLog {
    GpuTime at;
    std::vector<double> watts;
};

/// One run: executions of the kernel back to back, while the logger ran.
struct ProfiledRun {
    struct Execution {
        TimePoint start;
        TimePoint end;
    };
    std::vector<Execution> executions;
    std::vector<TimeAnchor> anchors;  ///< the GPU's clock, read before the executions
    std::vector<PowerLog> logs;
};

/// Does one run of so many executions. What runs before them makes the profile an isolated or an
/// interleaved one, and is the runner's choice.
using ProfileRunner = std::function<ProfiledRun(std::size_t executions)>;

/// FinGraV's table (arXiv 2412.12426): how much to measure for a kernel of some duration.
struct ProfileGuidance {
    std::size_t runs;
    Duration per_log;  ///< one log of interest for each such stretch of the kernel
    double margin;     ///< of the bin of golden executions
};

constexpr ProfileGuidance profile_guidance(Duration execution) {
    using namespace std::chrono_literals;
    if (execution < 50us) return {400, 5us, 0.05};
    if (execution < 200us) return {200, 10us, 0.05};
    return {200, 10us, 0.02};
}

struct ProfileSettings {
    std::vector<std::string> components{"total"};
    Duration read_delay{0};     ///< of a read of the GPU's clock, measured separately
    Duration logger_window{0};  ///< that each log averages over; 0 = an instant
    /// What the runner lets run before the executions, as it is to be told; empty = isolated.
    std::vector<std::string> ran_before{};
    double steady = 0.02;  ///< power that changes by less has arrived
    std::size_t most_executions = 4096;
    std::size_t most_runs = 10;  ///< times the guidance's runs, while logs of interest are too few
    /// Each switched off shows what it is good for.
    bool synchronise = true;
    bool bin = true;
    /// 0 is the fullest bin of execution times, 1 the next: outliers have profiles of their own.
    std::size_t bin_rank = 0;
};

/// The power of a kernel over its own duration.
struct PowerProfile {
    struct Point {
        Duration time;  ///< since the kernel began
        std::vector<double> watts;
    };
    /// What a log that averages has seen: stretches of executions, by their parts of an execution
    /// from 0 to 1, one after the other.
    struct WindowedLog {
        struct Stretch {
            double from;
            double to;
            double share;  ///< of the window
        };
        std::vector<Stretch> stretches;
        std::vector<double> watts;
    };
    std::vector<std::string> components;
    std::vector<std::string> ran_before;
    std::vector<Point> points;
    std::vector<WindowedLog> windowed;  ///< of a logger that averages; for `deblur`
    std::vector<SmoothCurve> curves;    ///< per component
    std::size_t execution = 0;          ///< the first execution of a run that counts, from 1
    Duration duration{0};               ///< of the executions in the bin, median
    std::size_t runs = 0;
    std::size_t executions = 0;  ///< that counted
    std::size_t wanted = 0;      ///< logs of interest that the guidance asks for
    double drift_ppm = 0;
    Duration sync_spread{0};
    double uneven = 0;  ///< how far the mean of their durations is off the median, as a part of it
    Duration blur{0};   ///< features shorter than this are smeared by the logger
    std::vector<std::string> notes;
};

/// FinGraV: fine-grain power profiles of kernels that are shorter than a power logger's period, by
/// running them often and putting the logs that fell into them side by side.
class PowerProfiler {
public:
    static constexpr std::size_t steady_execution = 4;  // three warm-ups, then the one that counts

    PowerProfiler(ProfileRunner run, ProfileSettings settings)
        : run_{std::move(run)}, settings_{std::move(settings)} {
        Expects(run_ && !settings_.components.empty());
    }

    /// The steady-state-execution profile: of the 4th execution of each run.
    PowerProfile profile_execution() { return profile(steady_execution, steady_execution); }
    /// The steady-state-power profile: of executions from the first whose power has arrived.
    PowerProfile profile_power() {
        const std::size_t first = steady_power_execution();
        return profile(first, 2 * first);
    }
    /// The first execution of a run whose power is that of all later ones: looked for at 4, 8, 16
    /// ... executions, for as long as the slowest boards take, then searched by halves. A power
    /// that changes little from one of these to the next may still be on its way.
    std::size_t steady_power_execution();

private:
    struct Collection {
        std::vector<ProfiledRun> runs;
        std::vector<TimeAnchor> anchors;
    };
    struct Bin {
        Duration low;
        Duration high;
        [[nodiscard]] bool holds(Duration time) const { return low <= time && time <= high; }
    };

    Duration time_execution();
    PowerProfile profile(std::size_t first, std::size_t executions);
    double power_of_last(std::size_t executions);
    void collect(Collection& collection, std::size_t runs, std::size_t executions);
    [[nodiscard]] std::optional<TimeSync> sync(const Collection& collection) const;
    void add_windowed(const ProfiledRun& run, std::size_t first, Bin bin, const TimeSync& map,
                      PowerProfile& profile) const;
    [[nodiscard]] Bin golden(const Collection& collection, std::size_t first, double margin) const;
    void concatenate(const Collection& collection, std::size_t first, PowerProfile& profile) const;

    ProfileRunner run_;
    ProfileSettings settings_;
    std::optional<Duration> execution_time_;
};

namespace power_profile_detail {

inline Duration median(std::vector<Duration> times) {
    return times.empty() ? Duration{0} : median_of(times);
}

struct MeanPower {
    double watts = 0;
    double standard_error = std::numeric_limits<double>::infinity();
};

/// Mean over the kernel's duration: of those sixteenths that were met, so that uneven logs weigh
/// nothing.
inline MeanPower mean_power(const PowerProfile& profile) {
    constexpr std::size_t parts = 16;
    std::vector<double> sum(parts);
    std::vector<double> squares(parts);
    std::vector<double> count(parts);
    for (const PowerProfile::Point& point : profile.points) {
        const double part = Seconds{point.time} / Seconds{profile.duration};
        const auto at = std::min(parts - 1, static_cast<std::size_t>(part * parts));
        sum[at] += point.watts.front();
        squares[at] += point.watts.front() * point.watts.front();
        ++count[at];
    }
    MeanPower mean{0, 0};
    bool enough = true;
    double met = 0;
    for (std::size_t i = 0; i < parts; ++i) {
        enough = enough && count[i] > 1;
        if (count[i] == 0) continue;
        const double middle = sum[i] / count[i];
        mean.watts += middle;
        const double variance = std::max(squares[i] / count[i] - middle * middle, 0.0);
        mean.standard_error += variance / std::max(count[i] - 1, 1.0);
        ++met;
    }
    if (met == 0) return {};
    mean.watts /= met;
    mean.standard_error = std::sqrt(mean.standard_error) / met;
    return enough ? mean : MeanPower{mean.watts};
}

}  // namespace power_profile_detail

inline Duration PowerProfiler::time_execution() {
    if (execution_time_) return *execution_time_;
    std::vector<Duration> times;
    for (int run = 0; run < 5; ++run) {
        const auto executions = run_(steady_execution).executions;
        Expects(executions.size() == steady_execution);
        times.push_back(executions.back().end - executions.back().start);
    }
    return *(execution_time_ = power_profile_detail::median(times));
}

inline void PowerProfiler::collect(Collection& collection, std::size_t runs,
                                   std::size_t executions) {
    for (std::size_t i = 0; i < runs; ++i) {
        ProfiledRun run = run_(executions);
        Expects(run.executions.size() == executions);
        collection.anchors.insert(collection.anchors.end(), run.anchors.begin(), run.anchors.end());
        collection.runs.push_back(std::move(run));
    }
}

inline std::optional<TimeSync> PowerProfiler::sync(const Collection& collection) const {
    if (settings_.synchronise) return TimeSync::fit(collection.anchors, settings_.read_delay);
    // Without: the first look at the GPU's clock is believed as it is, for good.
    if (collection.anchors.empty()) return {};
    return TimeSync::fit(std::span{collection.anchors}.first(1), {});
}

/// The bin of execution times, one margin to either side of its middle, that holds most; or, by
/// `bin_rank`, the fullest of those that do not overlap a fuller one.
inline PowerProfiler::Bin PowerProfiler::golden(const Collection& collection, std::size_t first,
                                                double margin) const {
    if (!settings_.bin) return {Duration::zero(), Duration::max()};
    std::vector<Duration> times;
    for (const ProfiledRun& run : collection.runs) {
        for (std::size_t i = first - 1; i < run.executions.size(); ++i) {
            times.push_back(run.executions[i].end - run.executions[i].start);
        }
    }
    std::sort(times.begin(), times.end());
    Bin best{};
    for (std::size_t rank = 0; rank <= settings_.bin_rank && !times.empty(); ++rank) {
        std::size_t most = 0;
        std::size_t low = 0;
        for (std::size_t high = 0; high < times.size(); ++high) {
            while (Seconds{times[high]} > (1 + margin) / (1 - margin) * Seconds{times[low]}) ++low;
            if (high - low + 1 <= most) continue;
            most = high - low + 1;
            best = {times[low], times[high]};
        }
        std::erase_if(times, [&](Duration time) { return best.holds(time); });
    }
    return best;
}

/// Puts the logs that fell into golden executions side by side.
inline void PowerProfiler::concatenate(const Collection& collection, std::size_t first,
                                       PowerProfile& profile) const {
    const auto map = sync(collection);
    const Bin bin = golden(collection, first, profile_guidance(*execution_time_).margin);
    profile.points.clear();
    profile.windowed.clear();
    profile.executions = 0;
    std::vector<Duration> durations;
    for (const ProfiledRun& run : collection.runs) {
        if (map && settings_.logger_window > Duration::zero()) {
            add_windowed(run, first, bin, *map, profile);
        }
        for (std::size_t i = first - 1; i < run.executions.size(); ++i) {
            const auto& [start, end] = run.executions[i];
            if (!bin.holds(end - start)) continue;
            ++profile.executions;
            durations.push_back(end - start);
            for (const PowerLog& log : run.logs) {
                if (!map || log.watts.size() != settings_.components.size()) continue;
                const bool sound = std::all_of(log.watts.begin(), log.watts.end(),
                                               [](double watts) { return std::isfinite(watts); });
                const TimePoint at = (*map)(log.at) - settings_.logger_window / 2;
                if (sound && start <= at && at <= end) {
                    profile.points.push_back({at - start, log.watts});
                }
            }
        }
    }
    double sum = 0;
    for (const Duration each : durations) sum += Seconds{each}.count();
    const double mean = sum / static_cast<double>(std::max<std::size_t>(durations.size(), 1));
    profile.duration = power_profile_detail::median(std::move(durations));
    const double median = Seconds{profile.duration}.count();
    profile.uneven = median > 0 ? std::abs(mean / median - 1) : 0;
    profile.runs = collection.runs.size();
    profile.drift_ppm = map ? map->drift_ppm() : 0;
    profile.sync_spread = map ? map->spread() : Duration{0};
}

/// Logs whose whole window lies in golden executions.
inline void PowerProfiler::add_windowed(const ProfiledRun& run, std::size_t first, Bin bin,
                                        const TimeSync& map, PowerProfile& profile) const {
    constexpr double whole = 0.98;  // launches leave gaps of a microsecond or two
    const Seconds window = settings_.logger_window;
    for (const PowerLog& log : run.logs) {
        const TimePoint to = map(log.at);
        const TimePoint from = to - settings_.logger_window;
        PowerProfile::WindowedLog seen{{}, log.watts};
        double share = 0;
        for (std::size_t i = first - 1; i < run.executions.size(); ++i) {
            const auto& [start, end] = run.executions[i];
            const TimePoint begin = std::max(from, start);
            const TimePoint stop = std::min(to, end);
            if (stop <= begin || !bin.holds(end - start)) continue;
            const Seconds length = end - start;
            seen.stretches.push_back({Seconds{begin - start} / length,
                                      Seconds{stop - start} / length,
                                      Seconds{stop - begin} / window});
            share += seen.stretches.back().share;
        }
        const bool sound = log.watts.size() == settings_.components.size() &&
                           std::all_of(log.watts.begin(), log.watts.end(),
                                       [](double watts) { return std::isfinite(watts); });
        if (sound && share >= whole) profile.windowed.push_back(std::move(seen));
    }
}

inline PowerProfile PowerProfiler::profile(std::size_t first, std::size_t executions) {
    const ProfileGuidance guidance = profile_guidance(time_execution());
    PowerProfile profile;
    profile.components = settings_.components;
    profile.ran_before = settings_.ran_before;
    profile.execution = first;
    profile.blur = settings_.logger_window;
    Collection collection;
    do {
        collect(collection, guidance.runs, executions);
        concatenate(collection, first, profile);
        profile.wanted = static_cast<std::size_t>(profile.duration / guidance.per_log);
    } while (profile.points.size() < profile.wanted &&
             collection.runs.size() < settings_.most_runs * guidance.runs);
    if (profile.points.size() < std::max<std::size_t>(profile.wanted, 1)) {
        profile.notes.push_back(
            "too few logs of interest: " + std::to_string(profile.points.size()) + " of " +
            std::to_string(profile.wanted));
    }
    if (profile.blur > Duration::zero()) {
        profile.notes.push_back("each log is a mean over " +
                                std::to_string(profile.blur.count() / 1000) +
                                " us: shorter features are smeared (deblur undoes some)");
    }
    for (std::size_t c = 0; c < settings_.components.size(); ++c) {
        std::vector<CurvePoint> points;
        for (const PowerProfile::Point& point : profile.points) {
            points.push_back({Seconds{point.time}.count(), point.watts[c]});
        }
        profile.curves.push_back(smooth(points, Seconds{profile.duration}.count(),
                                        Seconds{profile.sync_spread}.count(), profile.uneven));
    }
    return profile;
}

/// Mean power of the last of so many executions.
inline double PowerProfiler::power_of_last(std::size_t executions) {
    constexpr double sure = 0.2;  // of the change that counts: two means then differ by 3.5 sigma
    constexpr std::size_t most_runs = 4000;
    PowerProfile probe;
    Collection collection;
    power_profile_detail::MeanPower mean;
    do {
        collect(collection, std::max<std::size_t>(50, collection.runs.size() / 2), executions);
        concatenate(collection, executions, probe);
        mean = power_profile_detail::mean_power(probe);
    } while (mean.standard_error > sure * settings_.steady * mean.watts &&
             collection.runs.size() < most_runs);
    return mean.watts;
}

inline std::size_t PowerProfiler::steady_power_execution() {
    time_execution();
    const auto arrived = [&](double power, double final) {
        return std::abs(power - final) <= settings_.steady * final;
    };
    constexpr double slowest = 0.06;  // s: five times a rise of 12 ms
    const auto needed = static_cast<std::size_t>(slowest / Seconds{*execution_time_}.count());
    const std::size_t most = std::clamp(2 * needed, 2 * steady_execution,
                                        std::max(settings_.most_executions, 2 * steady_execution));
    std::vector<double> powers;
    for (std::size_t n = steady_execution; n <= most; n *= 2) powers.push_back(power_of_last(n));
    const double final = powers.back();
    std::size_t scale = powers.size() - 1;
    while (scale > 0 && arrived(powers[scale - 1], final)) --scale;
    std::size_t high = steady_execution << scale;
    std::size_t low = scale == 0 ? 0 : high / 2;
    while (high - low > 1) {
        const std::size_t middle = low + (high - low) / 2;
        (arrived(power_of_last(middle), final) ? high : low) = middle;
    }
    return high;
}

/// Every stitched point: time_us, then watts per component.
inline void write_profile_csv(std::ostream& out, const PowerProfile& profile) {
    out << "time_us";
    for (const std::string& component : profile.components)
        out << ',' << kdvfs::detail::csv_field(component + "_w");
    out << '\n';
    for (const PowerProfile::Point& point : profile.points) {
        out << kdvfs::detail::json_number(Seconds{point.time}.count() * 1e6);
        for (const double watts : point.watts) out << ',' << kdvfs::detail::json_number(watts);
        out << '\n';
    }
}

/// A profile with the name that a drawing gives it: "SSE", "SSP".
struct NamedProfile {
    std::string name;
    const PowerProfile* profile;
    std::size_t component = 0;
};

/// "isolated", or "after" the kernels that ran before.
inline std::string setting_of(const PowerProfile& profile) {
    std::string text;
    for (const std::string& kernel : profile.ran_before) {
        text += (text.empty() ? "after " : ", ") + kernel;
    }
    return text.empty() ? "isolated" : text;
}

/// Profiles as one JSON object: of each its points (us, W) and its smoothed curve with the half
/// width of its 95 % band (us, W, W). `kdvfs report` draws it.
inline void write_profile_json(std::ostream& out, const std::vector<NamedProfile>& profiles,
                               bool simulated) {
    using io::JsonFields;
    std::vector<std::function<void(JsonFields&)>> each;
    for (const NamedProfile& named : profiles)
        each.emplace_back([&named](JsonFields& fields) {
            const auto& [name, profile, c] = named;
            std::vector<std::array<double, 2>> points;
            for (const PowerProfile::Point& point : profile->points)
                points.push_back({Seconds{point.time}.count() * 1e6, point.watts[c]});
            std::vector<std::array<double, 3>> curve;
            if (c < profile->curves.size())
                for (const auto& p : profile->curves[c].points)
                    curve.push_back({p.x * 1e6, p.y, p.half_width});
            fields("name", name)("setting", setting_of(*profile));
            fields("duration_us", Seconds{profile->duration}.count() * 1e6);
            fields("points", points)("curve", curve);
        });
    std::string text;
    io::append_json(text, [&](JsonFields& fields) {
        fields("simulated", simulated)("profiles", io::JsonLines{each});
    });
    out << text << '\n';
}

}  // namespace kdvfs::inline v0_3::measure
