// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/node_power.hpp>

#include <kdvfs/detail/train/share_watts.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cmath>

namespace kdvfs::inline v0_3::train {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE NodePower::NodePower(std::span<const NodeGpu> gpus, const NodePowerOptions& options)
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
              options.deadband >= 0 && options.tries > 0 && options.retry_after > 0,
          "options of 0", "leave those at their defaults");
    if (options_.cap.count == 0) options_.cap.count = found;
    check(options_.cap.count >= lowest, "a cap of " + std::to_string(options_.cap.count) + " W",
          "the lowest limits sum up to " + std::to_string(lowest) + " W");
    settling_ = options_.window;  // the first iterations are no others
    fit_targets();
}

KDVFS_INLINE void NodePower::add_iteration(
    std::span<const std::optional<GpuIteration>> iterations) {
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

KDVFS_INLINE std::optional<LimitWrite> NodePower::next_write() {
    if (pending_) return pending_;
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
        const Gpu& gpu = gpus_[i];
        if (is_left_alone(gpu)) continue;
        // A limit that did not take is written again: until then its watts are lost.
        if (gpu.target < gpu.highest || gpu.held + same_limit < gpu.highest)
            return begin_write(i, std::min(gpu.target, gpu.highest));
    }
    const double room = options_.cap.count - highest_sum().count;
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
        if (is_left_alone(gpus_[i])) continue;
        const double limit = std::floor(std::min(gpus_[i].target, gpus_[i].highest + room));
        if (limit > gpus_[i].highest + least_change) return begin_write(i, limit);
    }
    return std::nullopt;
}

KDVFS_INLINE void NodePower::written(std::optional<Watts> read_back) {
    Expects(pending_.has_value());
    Gpu& gpu = gpus_[pending_->gpu];
    const double limit = pending_->limit.count;
    pending_.reset();
    settling_ = options_.settle;
    const bool answers = read_back && std::isfinite(read_back->count) && read_back->count > 0;
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

KDVFS_INLINE void NodePower::observe(std::size_t gpu, Watts held) {
    Gpu& raised = gpus_.at(gpu);
    if (!(held.count > raised.highest + same_limit)) return;
    raised.held = raised.highest = raised.target = held.count;
    raised.left_alone_until = std::numeric_limits<std::size_t>::max();
    if (highest_sum().count > options_.cap.count) fit_targets();
}

KDVFS_INLINE Watts NodePower::highest_sum() const {
    double sum = 0;
    for (const Gpu& gpu : gpus_) sum += gpu.highest;
    return {sum};
}

KDVFS_INLINE std::size_t NodePower::left_alone() const {
    return static_cast<std::size_t>(std::count_if(
        gpus_.begin(), gpus_.end(), [&](const Gpu& gpu) { return is_left_alone(gpu); }));
}

KDVFS_INLINE void NodePower::check(bool holds, const std::string& what, const std::string& remedy) {
    if (holds) return;
    throw Error{Errc::invalid_input, {"share the power of a node", "its GPUs", what, remedy}};
}

KDVFS_INLINE bool NodePower::is_usable(const GpuIteration& iteration) {
    const auto is_positive = [](double value) { return std::isfinite(value) && value > 0; };
    return is_positive(iteration.compute.count()) && is_positive(iteration.power.count);
}

KDVFS_INLINE bool NodePower::is_left_alone(const Gpu& gpu) const {
    return gpu.left_alone_until > iteration_;
}

KDVFS_INLINE void NodePower::look_at(Gpu& gpu, const std::optional<GpuIteration>& iteration) const {
    const auto& temperature = iteration ? iteration->temperature : std::nullopt;
    const bool fresh = temperature && std::isfinite(temperature->celsius) &&
                       temperature->age <= options_.stale_after;
    gpu.had_temperature = gpu.had_temperature || fresh;
    gpu.may_rise = fresh ? temperature->celsius < options_.hottest_celsius : !gpu.had_temperature;
}

KDVFS_INLINE bool NodePower::may_rise(const Part& part) const {
    return part.gpu->may_rise && part.gpu->held + least_change < part.gpu->range.high.count &&
           part.power > options_.limited_above * part.gpu->held;
}

KDVFS_INLINE double NodePower::median(std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

KDVFS_INLINE std::optional<LimitWrite> NodePower::begin_write(std::size_t gpu, double limit) {
    gpus_[gpu].highest = std::max(gpus_[gpu].highest, limit);
    pending_ = LimitWrite{gpu, {limit}};
    return pending_;
}

KDVFS_INLINE void NodePower::fit_targets() {
    std::vector<Part> parts;
    for (Gpu& gpu : gpus_)
        if (!is_left_alone(gpu)) parts.push_back({&gpu, 0, 0});
    std::vector<double> weights;
    std::vector<PowerRange> bounds;
    for (const Part& part : parts) {
        weights.push_back(part.gpu->target);
        bounds.push_back(
            {std::min(part.gpu->range.low, Watts{part.gpu->target}), {part.gpu->target}});
    }
    set_targets(parts, weights, bounds);
}

// NOLINTNEXTLINE(readability-make-member-function-const): of GPUs that it holds by pointers
KDVFS_INLINE void NodePower::set_targets(const std::vector<Part>& parts,
                                         const std::vector<double>& weights,
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

KDVFS_INLINE void NodePower::decide() {
    std::vector<Part> parts;
    for (Gpu& gpu : gpus_)
        if (!is_left_alone(gpu) && 2 * gpu.times.size() >= options_.window)
            parts.push_back({&gpu, median(gpu.times), median(gpu.powers)});
    if (parts.size() < 2) return;
    const auto [fastest, slowest] = std::minmax_element(
        parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.time < b.time; });
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
        bounds.push_back({{std::min(gpu.held, std::max(gpu.range.low.count,
                                                       gpu.held * (1 - options_.largest_change)))},
                          {may_rise(part) ? std::max(most, gpu.held) : gpu.held}});
        if (for_speed) continue;
        bounds.back().high.count =
            std::clamp(weights.back(), bounds.back().low.count, bounds.back().high.count);
    }
    ++decisions_;
    set_targets(parts, weights, bounds);
}

#endif

}  // namespace kdvfs::inline v0_3::train
