// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/serve/step_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// What a pool of equal instances was measured to do under a load.
struct PoolPoint {
    std::uint32_t parallelism = 1;  ///< GPUs of an instance
    std::uint32_t instances = 1;
    StepPolicy policy = StepPolicy::no_harm;  ///< of the step plan that each instance follows
    double load = 0;  ///< work of arriving requests, seconds of one instance a second
    Watts power{0};   ///< of the whole pool
    double late = 0;  ///< share of the requests that missed their targets
};

/// What changing a pool costs, and how it is led.
struct PoolControlOptions {
    Seconds start{120};   ///< from a decision to an instance that serves, 0 to 3600 s
    Watts starting{100};  ///< what each GPU draws meanwhile
    double late = 0.01;   ///< share of the requests that may miss their targets
    Seconds window{30};   ///< arrivals are counted in such windows
    std::uint32_t most_gpus = 64;
};

/// How a pool is to be: instances that serve or start. More are started, the surplus is drained:
/// it ends its answers and is off.
struct PoolDecision {
    std::uint32_t parallelism = 1;
    std::uint32_t instances = 1;
    StepPolicy policy = StepPolicy::no_harm;
    double expected = 0;  ///< load when an instance that is started now would serve
    double late = 0;      ///< share of the requests then that is expected to miss the targets
};

/// Forecasts a load by its recent mean, and how wrong that is by its own errors so far. Pure.
class LoadForecast {
public:
    /// @param horizon in windows: how far ahead loads are forecast
    explicit LoadForecast(std::size_t horizon) : horizon_{horizon} {}

    /// The load of the window that has ended.
    void add(double load);
    [[nodiscard]] double expected() const { return level_.value_or(0); }
    /// Whether enough windows have ended for a forecast.
    [[nodiscard]] bool is_ready() const { return loads_.size() >= fewest || judged_forecasts_ > 0; }
    /// Loads met over loads forecast, the last ones; some are assumed until there are as many.
    [[nodiscard]] const std::deque<double>& errors() const { return errors_; }

private:
    static constexpr double weight = 0.2;
    static constexpr std::size_t fewest = 8;
    static constexpr std::ptrdiff_t judged = 2;     ///< windows from the horizon on
    static constexpr std::size_t remembered = 960;  ///< eight hours of half minutes

    std::size_t horizon_;
    std::optional<double> level_;
    std::deque<double> made_;   ///< forecasts whose time has not come
    std::deque<double> loads_;  ///< since the first of these
    std::deque<double> errors_{0.7, 0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4};
    bool is_assumed_ = true;
    int assumed_left_ = 12;
    std::size_t judged_forecasts_ = 0;
};

/// What measured pools can carry, and what it takes: the profile of a `PoolController`, and of
/// plans that know the future.
class PoolCapacity {
public:
    /// @throws Error (invalid_input) for points that make no sense, or none that keeps the targets
    PoolCapacity(const std::vector<PoolPoint>& points, double late);

    /// Measured pools of one size and step policy.
    class Kind {
    public:
        explicit Kind(const PoolPoint& point)
            : pool{point.parallelism, point.instances, point.policy, 0, 0} {}

        PoolDecision pool;
        double most = 0;  ///< load up to which the targets are kept
        std::vector<PoolPoint> points{};

        /// Power at a load, on the line between its neighbours.
        [[nodiscard]] Watts power(double load) const {
            return Watts{between(load, [](const PoolPoint& point) { return point.power.count; })};
        }
        /// Share of the requests that miss their targets at a load; beyond the largest that was
        /// measured, also what the pool cannot serve.
        [[nodiscard]] double late(double load) const {
            const double measured =
                between(load, [](const PoolPoint& point) { return point.late; });
            return std::max(measured, 1 - points.back().load / load);
        }
        [[nodiscard]] std::uint32_t gpus() const { return pool.parallelism * pool.instances; }

    private:
        template <class Quantity>
        [[nodiscard]] double between(double load, const Quantity& quantity) const {
            const auto above = std::find_if(points.begin(), points.end(),
                                            [&](const PoolPoint& p) { return p.load >= load; });
            if (above == points.begin()) return quantity(*above);
            if (above == points.end()) return quantity(points.back());
            const PoolPoint& below = *std::prev(above);
            const double share = (load - below.load) / (above->load - below.load);
            return quantity(below) + (quantity(*above) - quantity(below)) * share;
        }
    };
    [[nodiscard]] const std::vector<Kind>& kinds() const { return kinds_; }

private:
    [[noreturn]] static void reject(const char* why);
    /// More load is never served better: where that was measured, it is chance (isotonic regression
    /// by pooling neighbours).
    static void make_late_ascend(std::vector<PoolPoint>& points);
    Kind& kind_of(const PoolPoint& point);

    double late_;
    std::vector<Kind> kinds_;
};

/// Leads a pool of instances of one model: how many, of which parallelism, and which step plan they
/// follow. Decides from the past alone: the load forecast for when an instance that is started now
/// would serve, with the error that such forecasts had. Instances that are no longer needed stay
/// until what they draw is what a start would cost (the break-even rule of ski rental). A pure
/// state machine: arrivals in, decisions out; an orchestrator or a simulation carries them out.
class PoolController {
public:
    /// @param first what serves at the beginning
    /// @throws Error (invalid_input) as `PoolCapacity`, and for options that make no sense
    PoolController(std::vector<PoolPoint> profile, const PoolControlOptions& options,
                   const PoolDecision& first);

    /// A request has arrived. @param work that it is, in seconds of one instance
    void arrived(double work) { work_ += work; }

    /// A request's first token has come, or is too late already.
    void answered(bool in_time);

    /// Decides at the end of each window.
    const PoolDecision& window_ended();
    [[nodiscard]] const PoolDecision& current() const { return current_; }
    /// What forecasts are multiplied by, as learned from late requests.
    [[nodiscard]] double margin() const { return margin_; }

private:
    static const PoolControlOptions& checked(const PoolControlOptions& options);

    /// Profiles are of other requests than those that come: the margin over them settles where the
    /// targets are missed as often as they may be (stochastic approximation: Robbins and Monro,
    /// Annals of Mathematical Statistics 22, 1951).
    void learn_margin();

    /// Windows for which an idle instance draws what a start costs.
    [[nodiscard]] std::size_t hold() const;

    /// The cheapest pool that is expected to keep the targets, each start paid off within
    /// `paid_back`; where none does, the one that carries most.
    [[nodiscard]] PoolDecision cheapest() const;
    [[nodiscard]] double expected_late(const PoolCapacity::Kind& kind) const;

    static constexpr double idle_share = 0.7;  ///< of a starting GPU's power, while it idles
    static constexpr Seconds paid_back{900};
    static constexpr double unserved = 1e12;
    static constexpr double aim = 0.75;  ///< of the share that may be late
    static constexpr double first_step = 0.005;
    static constexpr double last_step = 0.0005;
    static constexpr double least_margin = 0.6;
    static constexpr double most_margin = 2;

    PoolControlOptions options_;
    PoolCapacity capacity_;
    LoadForecast forecast_;
    PoolDecision current_;
    double work_ = 0;
    double answered_ = 0;
    double late_ = 0;
    double margin_ = 1;
    double windows_ = 0;
    double usual_answered_ = 0;  ///< requests in a window
    std::deque<PoolDecision> needed_;
};

}  // namespace kdvfs::inline v0_3::serve

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/serve/pool_controller.hpp>
#endif
