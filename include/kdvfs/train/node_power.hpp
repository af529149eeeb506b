// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/train/share_watts.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/node_forecast.hpp>
#include <kdvfs/units.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// What is to be had by moving watts between the GPUs of a node.
enum class NodeGoal {
    speed,  ///< the shortest iteration under the same sum of limits
    power,  ///< the least sum of limits at the iteration time found
};

struct NodePowerOptions {
    Watts cap{};  ///< of the sum of all limits; 0: the sum of the limits found
    NodeGoal goal = NodeGoal::speed;
    std::size_t window = 8;  ///< iterations whose median one decision uses
    std::size_t settle = 2;  ///< iterations discarded after limits have changed
    /// A GPU that computes 1 % longer than the others gets so many percent more watts. Stable where
    /// 1 % more watts shorten the compute time by less than 2 / gain percent.
    double gain = 1;
    double largest_change = 0.05;  ///< of a limit, in one decision
    double deadband = 0.003;       ///< relative differences of compute time that change nothing
    /// A GPU that draws less than this share of its limit is not held by the limit, and gets no
    /// more watts. An assumption: means over a computation stay below a limit that clips its peaks.
    double limited_above = 0.8;
    /// A GPU as hot as this gets no more watts. Neither does one whose temperature was known and is
    /// older than `stale_after`.
    double hottest_celsius = std::numeric_limits<double>::infinity();
    Seconds stale_after{10};
    unsigned tries = 3;             ///< of a limit that fails, before the GPU's limit is left alone
    std::size_t retry_after = 100;  ///< iterations for which it is
};

/// A GPU as it was found.
struct NodeGpu {
    PowerRange range{};
    Watts limit{};
};

/// One write to a board: the next may come when this one has been read back.
struct LimitWrite {
    std::size_t gpu = 0;
    Watts limit{};

    friend bool operator==(const LimitWrite&, const LimitWrite&) = default;
};

/// Moves watts between the GPUs of a node to those that the others wait for, by their limits. A
/// pure state machine: it touches no device (`NodePowerGuard` does) and knows no clock.
///
/// The sum of the limits that the boards may hold is never above the cap, but for what a board
/// rounds a limit up until that is read back: a limit that was written counts as held until another
/// one is read back, a limit is raised by no more than what others were read back to have given up,
/// and a GPU that does not answer keeps its watts. This assumes that a board whose limit comes late
/// takes the one written last. Where the limits found sum up to more than the cap, they are lowered
/// first.
///
/// Compute times are compared by the median of a window, among the GPUs that reported at least half
/// of it. Not thread-safe.
class NodePower {
public:
    /// @throws Error (invalid_input) for fewer than two GPUs, limits out of range, options of 0,
    ///         and a cap below the sum of the lowest limits
    explicit NodePower(std::span<const NodeGpu> gpus, const NodePowerOptions& options = {})
        : options_{options} {
        double found = 0;
        double lowest = 0;
        for (const NodeGpu& gpu : gpus) {
            check(gpu.range.low.count > 0 && gpu.range.low.count <= gpu.limit.count &&
                      gpu.limit.count <= gpu.range.high.count,
                  "a limit that is not in its range", "give each GPU's range and limit");
            gpus_.push_back(
                {gpu.range, gpu.limit.count, gpu.limit.count, gpu.limit.count, gpu.limit.count});
            found += gpu.limit.count;
            lowest += gpu.range.low.count;
        }
        check(gpus_.size() >= 2, "fewer than two GPUs", "give all GPUs of the node");
        check(options.window > 0 && options.gain > 0 && options.largest_change > 0 &&
                  options.deadband >= 0 && options.tries > 0,
              "options of 0", "leave those at their defaults");
        if (options_.cap.count == 0) options_.cap.count = found;
        check(options_.cap.count >= lowest, "a cap of " + std::to_string(options_.cap.count) + " W",
              "the lowest limits sum up to " + std::to_string(lowest) + " W");
        settling_ = options_.window;  // the first iterations are no others
        fit_targets();
    }

    /// Call after each iteration with what each GPU did; nothing for a GPU that has not reported in
    /// time. Values that are no numbers count as not reported.
    /// @throws Error (invalid_input) for another number of GPUs
    void add_iteration(std::span<const std::optional<GpuIteration>> iterations) {
        check(iterations.size() == gpus_.size(), std::to_string(iterations.size()) + " GPUs",
              "the node has " + std::to_string(gpus_.size()));
        ++iteration_;
        for (std::size_t i = 0; i < gpus_.size(); ++i) look_at(gpus_[i], iterations[i]);
        if (settling_ > 0) {
            --settling_;
            return;
        }
        for (std::size_t i = 0; i < gpus_.size(); ++i)
            if (iterations[i] && is_usable(*iterations[i])) {
                gpus_[i].times.push_back(iterations[i]->compute.count());
                gpus_[i].powers.push_back(iterations[i]->power.count);
            }
        if (++rounds_ < options_.window) return;
        rounds_ = 0;
        decide();
        for (Gpu& gpu : gpus_) {
            gpu.times.clear();
            gpu.powers.clear();
        }
    }

    /// The write to make now: set this limit, read it back, and say so by `written()`. Nothing
    /// until the next iteration. Lowers come before raises.
    [[nodiscard]] std::optional<LimitWrite> next_write() {
        if (pending_) return pending_;
        for (std::size_t i = 0; i < gpus_.size(); ++i)
            if (!is_left_alone(gpus_[i]) && gpus_[i].target < gpus_[i].highest)
                return begin_write(i, gpus_[i].target);
        const double room = options_.cap.count - highest_sum().count;
        for (std::size_t i = 0; i < gpus_.size(); ++i) {
            if (is_left_alone(gpus_[i])) continue;
            const double limit = std::floor(std::min(gpus_[i].target, gpus_[i].highest + room));
            if (limit > gpus_[i].highest + least_change) return begin_write(i, limit);
        }
        return std::nullopt;
    }

    /// The answer to `next_write()`.
    /// @param read_back the limit that the board holds now; nothing where it does not answer
    void written(std::optional<Watts> read_back) {
        Expects(pending_.has_value());
        Gpu& gpu = gpus_[pending_->gpu];
        const double limit = pending_->limit.count;
        pending_.reset();
        settling_ = options_.settle;
        const bool answers = read_back && std::isfinite(read_back->count);
        const double before = gpu.held;
        if (answers) gpu.held = read_back->count;
        if (answers && std::abs(gpu.held - limit) <= same_limit) {
            if (gpu.held != before) gpu.failures = 0;
            gpu.highest = gpu.held;
            if (std::abs(gpu.target - gpu.held) <= same_limit) gpu.target = gpu.held;
        } else {
            // What was written may still come to hold.
            gpu.highest = std::max(gpu.highest, gpu.held);
            gpu.target = std::min(gpu.target, gpu.held);
            ++refused_;
            if (++gpu.failures >= options_.tries) {
                gpu.failures = 0;
                gpu.left_alone_until = iteration_ + options_.retry_after;
            }
        }
        if (highest_sum().count > options_.cap.count) fit_targets();
    }

    /// Takes the limit that a board holds, read at any other time. Where somebody else has raised
    /// it, or a reset has, it is left alone from then on, and the others are lowered.
    void observe(std::size_t gpu, Watts held) {
        Gpu& raised = gpus_.at(gpu);
        if (!(held.count > raised.highest + same_limit)) return;
        raised.held = raised.highest = raised.target = held.count;
        raised.left_alone_until = std::numeric_limits<std::size_t>::max();
        if (highest_sum().count > options_.cap.count) fit_targets();
    }

    [[nodiscard]] std::size_t size() const { return gpus_.size(); }
    [[nodiscard]] Watts cap() const { return options_.cap; }
    /// The limit that was read back last.
    [[nodiscard]] Watts limit(std::size_t gpu) const { return {gpus_.at(gpu).held}; }
    /// The highest sum of limits that the boards may hold.
    [[nodiscard]] Watts highest_sum() const {
        double sum = 0;
        for (const Gpu& gpu : gpus_) sum += gpu.highest;
        return {sum};
    }
    /// How often limits were moved.
    [[nodiscard]] std::size_t decisions() const { return decisions_; }
    /// How many writes did not take.
    [[nodiscard]] std::size_t refused() const { return refused_; }

private:
    static constexpr double same_limit = 1;    // W: firmware rounds to whole watts at worst
    static constexpr double least_change = 1;  // W

    struct Gpu {
        PowerRange range{};
        double found = 0;
        double held = 0;     // read back last
        double highest = 0;  // that it may hold
        double target = 0;
        std::vector<double> times{};
        std::vector<double> powers{};
        bool may_rise = true;
        bool had_temperature = false;
        unsigned failures = 0;
        std::size_t left_alone_until = 0;
    };
    /// A GPU that takes part in a decision.
    struct Part {
        Gpu* gpu = nullptr;
        double time = 0;
        double power = 0;
    };

    static void check(bool holds, const std::string& what, const std::string& remedy) {
        if (holds) return;
        throw Error{Errc::invalid_input, {"share the power of a node", "its GPUs", what, remedy}};
    }

    static bool is_usable(const GpuIteration& iteration) {
        const auto is_positive = [](double value) { return std::isfinite(value) && value > 0; };
        return is_positive(iteration.compute.count()) && is_positive(iteration.power.count);
    }

    [[nodiscard]] bool is_left_alone(const Gpu& gpu) const {
        return gpu.left_alone_until > iteration_;
    }

    void look_at(Gpu& gpu, const std::optional<GpuIteration>& iteration) const {
        const auto& temperature = iteration ? iteration->temperature : std::nullopt;
        const bool fresh = temperature && std::isfinite(temperature->celsius) &&
                           temperature->age <= options_.stale_after;
        gpu.had_temperature = gpu.had_temperature || fresh;
        gpu.may_rise =
            fresh ? temperature->celsius < options_.hottest_celsius : !gpu.had_temperature;
    }

    [[nodiscard]] bool may_rise(const Part& part) const {
        return part.gpu->may_rise && part.gpu->held + least_change < part.gpu->range.high.count &&
               part.power > options_.limited_above * part.gpu->held;
    }

    static double median(std::vector<double>& values) {
        const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        std::nth_element(values.begin(), middle, values.end());
        return *middle;
    }

    std::optional<LimitWrite> begin_write(std::size_t gpu, double limit) {
        gpus_[gpu].highest = std::max(gpus_[gpu].highest, limit);
        pending_ = LimitWrite{gpu, {limit}};
        return pending_;
    }

    /// Scales the targets to what the cap leaves beside the GPUs that are left alone.
    void fit_targets() {
        std::vector<Part> parts;
        for (Gpu& gpu : gpus_)
            if (!is_left_alone(gpu)) parts.push_back({&gpu, 0, 0});
        std::vector<double> weights;
        std::vector<PowerRange> bounds;
        for (const Part& part : parts) {
            weights.push_back(part.gpu->target);
            bounds.push_back({part.gpu->range.low, {part.gpu->target}});
        }
        set_targets(parts, weights, bounds);
    }

    void set_targets(const std::vector<Part>& parts, const std::vector<double>& weights,
                     const std::vector<PowerRange>& bounds) {
        double room = options_.cap.count - highest_sum().count;
        for (const Part& part : parts) room += part.gpu->highest;
        const std::vector<double> shares = detail::share_watts(room, weights, bounds);
        for (std::size_t i = 0; i < parts.size(); ++i) {
            Gpu& gpu = *parts[i].gpu;
            gpu.target = std::floor(shares[i] + 1e-6);
            if (shares[i] > gpu.highest - 1e-6) {
                gpu.target = std::max(gpu.target, gpu.highest);
            } else if (gpu.highest - gpu.target <= same_limit) {  // would pass for the limit held
                gpu.target -= least_change;
            }
            gpu.target = std::max(gpu.target, gpu.range.low.count);
        }
    }

    void decide() {
        std::vector<Part> parts;
        for (Gpu& gpu : gpus_)
            if (!is_left_alone(gpu) && 2 * gpu.times.size() >= options_.window)
                parts.push_back({&gpu, median(gpu.times), median(gpu.powers)});
        if (parts.size() < 2) return;
        const auto [fastest, slowest] =
            std::minmax_element(parts.begin(), parts.end(),
                                [](const Part& a, const Part& b) { return a.time < b.time; });
        const bool for_speed = options_.goal == NodeGoal::speed;
        if (!for_speed && !kept_time_) kept_time_ = slowest->time;
        const double reference = for_speed ? slowest->time : *kept_time_;
        if (for_speed &&
            (slowest->time < fastest->time * (1 + options_.deadband) || !may_rise(*slowest)))
            return;
        std::vector<double> weights;
        std::vector<PowerRange> bounds;
        for (const Part& part : parts) {
            const Gpu& gpu = *part.gpu;
            const double ratio = part.time / reference;
            const bool stays = !for_speed && std::abs(ratio - 1) < options_.deadband;
            weights.push_back(gpu.held * (stays ? 1 : std::pow(ratio, options_.gain)));
            const double most = std::min(for_speed ? gpu.range.high.count : gpu.found,
                                         gpu.held * (1 + options_.largest_change));
            bounds.push_back(
                {{std::max(gpu.range.low.count, gpu.held * (1 - options_.largest_change))},
                 {may_rise(part) ? std::max(most, gpu.held) : gpu.held}});
            if (for_speed) continue;
            bounds.back().high.count =
                std::clamp(weights.back(), bounds.back().low.count, bounds.back().high.count);
        }
        ++decisions_;
        set_targets(parts, weights, bounds);
    }

    NodePowerOptions options_;
    std::vector<Gpu> gpus_;
    std::optional<LimitWrite> pending_;
    std::optional<double> kept_time_;  // s, of `NodeGoal::power`
    std::size_t iteration_ = 0;
    std::size_t rounds_ = 0;    // iterations of this window
    std::size_t settling_ = 0;  // iterations that are discarded yet
    std::size_t decisions_ = 0;
    std::size_t refused_ = 0;
};

}  // namespace kdvfs::inline v0_3::train
