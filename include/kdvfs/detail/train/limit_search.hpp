// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// What equal numbers of training steps took under one power limit: the energy of all ranks, the
/// time of the slowest.
struct LimitWindow {
    Watts limit;
    Joules energy;
    Seconds time;
};

/// Which power limit is the best one.
struct LimitChoice {
    enum class Goal { energy, time, cost, bounded_slowdown };

    /// The least energy.
    static constexpr LimitChoice energy() { return {Goal::energy, 0}; }
    /// The least time: the lowest limit that is no slower than the highest.
    static constexpr LimitChoice time() { return {Goal::time, 0}; }
    /// The least eta * energy + (1 - eta) * highest limit * time (You, Chung and Chowdhury, Zeus,
    /// NSDI 2023). @pre 0 <= eta <= 1
    static constexpr LimitChoice cost(double eta = 0.5) { return {Goal::cost, eta}; }
    /// The lowest limit that is slower than the highest by at most a share, 0.05 for 5 %.
    static constexpr LimitChoice bounded_slowdown(double share) {
        return {Goal::bounded_slowdown, share};
    }

    Goal goal = Goal::cost;
    double parameter = 0.5;
};

/// Which power limit to measure next, and which is the best of those measured. Energy and cost
/// are taken to fall and rise again with the limit, apart from noise: the search goes downhill
/// until both neighbours are worse, or promise less than half a percent if the curve goes on
/// bending as it does. Time is taken to fall: slowdowns are bisected. Where no limit is low enough
/// to bind, all of them cost the same to try and differ by noise alone: they are tried until
/// another one promises no gain. A plain value, not thread-safe.
class LimitSearch {
public:
    /// @param step  between two limits, counted down from the highest
    /// @param ranks how many boards work together, each under the limit
    /// @throws Error (invalid_input) for a range, step or choice that makes no sense
    LimitSearch(PowerRange range, Watts step, LimitChoice choice, std::size_t ranks = 1)
        : choice_{choice}, top_power_{range.high * static_cast<double>(ranks)}, ranks_{ranks} {
        check(range, step);
        for (Watts limit = range.high; limit.count >= range.low.count - 1e-6; limit = limit - step)
            limits_.insert(limits_.begin(), limit);
        windows_.resize(limits_.size());
    }

    /// All limits, from the lowest.
    [[nodiscard]] const std::vector<Watts>& limits() const { return limits_; }

    /// What was measured, from the lowest limit.
    [[nodiscard]] std::vector<LimitWindow> windows() const {
        std::vector<LimitWindow> measured;
        for (const auto& window : windows_)
            if (window) measured.push_back(*window);
        return measured;
    }

    /// Adds a window; a second one of the same limit replaces the first.
    /// @throws Error (invalid_input) for a limit that is none of `limits()`, and for an energy or
    ///         time that is not positive
    void add(const LimitWindow& window) {
        const auto limit = std::find(limits_.begin(), limits_.end(), window.limit);
        const bool measured = is_positive(window.energy.count) && is_positive(window.time.count());
        if (limit == limits_.end() || !measured) {
            throw Error{Errc::invalid_input,
                        {"add a measured window", text(window.limit),
                         measured ? "that is none of the limits"
                                  : "its energy or its time is not a positive number",
                         "measure again"}};
        }
        windows_[static_cast<std::size_t>(limit - limits_.begin())] = window;
    }

    /// The limit to measure next; nothing once the search is over.
    [[nodiscard]] std::optional<Watts> next() const {
        const auto index = bounds_time() ? next_bisected() : next_downhill();
        return index ? std::optional{limits_[*index]} : std::nullopt;
    }

    /// The best limit of those measured, the lowest of equals; nothing before the first window.
    [[nodiscard]] std::optional<Watts> best() const {
        const auto index = best_index();
        return index ? std::optional{limits_[*index]} : std::nullopt;
    }

    /// What a window costs in the sense of the choice: joules, or seconds where time is bounded.
    [[nodiscard]] double value(const LimitWindow& window) const {
        switch (choice_.goal) {
            case LimitChoice::Goal::energy: return window.energy.count;
            case LimitChoice::Goal::cost:
                return choice_.parameter * window.energy.count +
                       (1 - choice_.parameter) * (top_power_ * window.time).count;
            default: return window.time.count();
        }
    }

private:
    /// A gain that is not worth a window, as a share.
    static constexpr double tolerance = 0.005;
    /// The same where windows cost nothing.
    static constexpr double free_tolerance = 0.002;
    /// A limit binds where a higher one lets the boards draw more, by this share.
    static constexpr double binding = 0.03;
    static constexpr std::size_t unseen = 3;
    /// Boards are most efficient at 60 to 80 % of their limit: where the search starts.
    static constexpr double usual_best = 0.7;

    static bool is_positive(double value) { return std::isfinite(value) && value > 0; }
    static std::string text(Watts power) { return std::to_string(power.count) + " W"; }

    void check(PowerRange range, Watts step) const {
        constexpr double most_limits = 1000;
        const bool in_order = is_positive(range.low.count) && is_positive(range.high.count) &&
                              range.low <= range.high;
        const bool steps = is_positive(step.count) &&
                           (range.high.count - range.low.count) / step.count < most_limits;
        const bool chosen = std::isfinite(choice_.parameter) && choice_.parameter >= 0 &&
                            (choice_.goal != LimitChoice::Goal::cost || choice_.parameter <= 1);
        if (in_order && steps && chosen && ranks_ > 0) return;
        throw Error{
            Errc::invalid_input,
            {"search for a power limit", text(range.low) + " to " + text(range.high),
             !in_order ? "the range is empty or not positive"
             : !steps  ? "a step of " + text(step) + " makes no sense"
             : !chosen ? "the choice's parameter " + std::to_string(choice_.parameter) + " does not"
                       : "there are no ranks",
             "give a range of positive watts, a step of some watts, eta from 0 to 1 or a "
             "slowdown from 0"}};
    }

    [[nodiscard]] bool bounds_time() const {
        return choice_.goal == LimitChoice::Goal::time ||
               choice_.goal == LimitChoice::Goal::bounded_slowdown;
    }
    [[nodiscard]] bool is_measured(std::size_t index) const { return windows_[index].has_value(); }
    [[nodiscard]] double value_at(std::size_t index) const { return value(*windows_[index]); }

    /// What each board drew on average, in watts.
    [[nodiscard]] double drawn_at(std::size_t index) const {
        const LimitWindow& window = *windows_[index];
        return (window.energy / window.time).count / static_cast<double>(ranks_);
    }

    [[nodiscard]] bool keeps_time(std::size_t index) const {
        const double shortest = windows_.back()->time.count();
        return windows_[index]->time.count() <= shortest * (1 + choice_.parameter);
    }

    [[nodiscard]] std::optional<std::size_t> best_index() const {
        if (bounds_time() && !is_measured(limits_.size() - 1)) return std::nullopt;
        std::optional<std::size_t> best;
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            if (!is_measured(i)) continue;
            if (bounds_time()) {
                if (keeps_time(i)) return i;
            } else if (!best || value_at(i) < value_at(*best)) {
                best = i;
            }
        }
        return best;
    }

    /// The middle between the lowest limit that keeps the time and the next that does not.
    [[nodiscard]] std::optional<std::size_t> next_bisected() const {
        const auto keeping = best_index();
        if (!keeping) return limits_.size() - 1;
        std::size_t unknown = *keeping;  // how many limits below are not known to be too slow
        for (std::size_t i = 0; i < *keeping; ++i)
            if (is_measured(i)) unknown = *keeping - i - 1;
        if (unknown == 0) return std::nullopt;
        return *keeping - (unknown + 1) / 2;
    }

    [[nodiscard]] std::optional<std::size_t> next_downhill() const {
        const auto best = best_index();
        if (!best) return start();
        if (no_limit_binds()) return next_by_chance();
        const std::size_t from = plateau_end(*best);
        // A board of many limits is crossed in strides first.
        for (std::size_t stride = std::max<std::size_t>(1, (limits_.size() + 4) / 8); stride > 0;
             stride /= 2)
            for (const int side : {-1, +1})
                if (const auto index = promising(from, side, stride)) return index;
        return unseen_middle(from);
    }

    /// The lowest measured limit that takes and draws what the best one does: limits that do not
    /// bind differ by noise alone.
    [[nodiscard]] std::size_t plateau_end(std::size_t best) const {
        std::size_t end = best;
        for (auto below = neighbour(end, -1);
             below && value_at(*below) < value_at(best) * (1 + binding) &&
             std::abs(drawn_at(*below) / drawn_at(best) - 1) < binding;
             below = neighbour(end, -1))
            end = *below;
        return end;
    }

    /// Noise of a few windows can end the way downhill early: where three limits or more beyond
    /// the outermost windows were not looked at, the middle of them is.
    [[nodiscard]] std::optional<std::size_t> unseen_middle(std::size_t best) const {
        std::size_t lowest = best;
        std::size_t highest = best;
        for (auto next = neighbour(lowest, -1); next; next = neighbour(lowest, -1)) lowest = *next;
        for (auto next = neighbour(highest, +1); next; next = neighbour(highest, +1))
            highest = *next;
        const std::size_t above = limits_.size() - 1 - highest;
        if (above >= unseen && drawn_at(highest) > (1 - binding) * limits_[highest].count)
            return highest + (above + 1) / 2;
        if (lowest >= unseen) return lowest - (lowest + 1) / 2;
        return std::nullopt;
    }

    [[nodiscard]] std::size_t start() const {
        const double wanted = usual_best * limits_.back().count;
        const auto nearest =
            std::min_element(limits_.begin(), limits_.end(), [&](Watts a, Watts b) {
                return std::abs(a.count - wanted) < std::abs(b.count - wanted);
            });
        return static_cast<std::size_t>(nearest - limits_.begin());
    }

    /// The measured limit next to `index` on one side.
    [[nodiscard]] std::optional<std::size_t> neighbour(std::size_t index, int side) const {
        while (side < 0 ? index > 0 : index + 1 < limits_.size()) {
            index = side < 0 ? index - 1 : index + 1;
            if (is_measured(index)) return index;
        }
        return std::nullopt;
    }

    /// The limit a stride away from the best on one side, if it is not known to be worse.
    [[nodiscard]] std::optional<std::size_t> promising(std::size_t best, int side,
                                                       std::size_t stride) const {
        const std::size_t room = side < 0 ? best : limits_.size() - 1 - best;
        const std::size_t reach = std::min(stride, room);
        if (reach == 0) return std::nullopt;
        const auto seen = neighbour(best, side);
        if (seen && distance(best, *seen) <= reach) return std::nullopt;
        if (promise(best, side) * static_cast<double>(reach) < tolerance)
            return side < 0 ? below_plateau(best) : std::nullopt;
        return side < 0 ? best - reach : best + reach;
    }

    /// Where limits do not bind the curve is flat, and promises nothing of lower limits that do:
    /// the highest of those, else the one above it, where power that varies binds already.
    [[nodiscard]] std::optional<std::size_t> below_plateau(std::size_t best) const {
        const double drawn = drawn_at(best);
        if (drawn_at(*neighbour(best, +1)) > (1 + binding) * drawn) return std::nullopt;
        std::size_t above = best;  // the lowest limit above what is drawn
        while (above > 0 && limits_[above - 1].count > drawn) --above;
        if (above > 0 && !is_measured(above - 1)) return above - 1;
        return is_measured(above) ? std::nullopt : std::optional{above};
    }

    /// The most that a step beyond the best promises, as a share: what the last step downhill
    /// gained, and less where the curve flattens.
    [[nodiscard]] double promise(std::size_t best, int side) const {
        const auto before = neighbour(best, -side);
        if (!before) return std::numeric_limits<double>::infinity();
        const double slope = slope_between(*before, best);
        const auto earlier = neighbour(*before, -side);
        if (!earlier) return slope;
        const double earlier_slope = slope_between(*earlier, *before);
        return earlier_slope > slope ? slope * slope / earlier_slope : slope;
    }

    static std::size_t distance(std::size_t a, std::size_t b) { return a < b ? b - a : a - b; }

    [[nodiscard]] double slope_between(std::size_t from, std::size_t to) const {
        return (value_at(from) / value_at(to) - 1) / static_cast<double>(distance(from, to));
    }

    /// Whether the boards drew less than the lowest limit wherever they were measured.
    [[nodiscard]] bool no_limit_binds() const {
        for (std::size_t i = 0; i < limits_.size(); ++i)
            if (is_measured(i) && drawn_at(i) >= limits_.front().count) return false;
        return true;
    }

    /// The limit farthest from those measured, while its expected improvement (Jones, Schonlau and
    /// Welch, 1998) under a normal distribution of what was seen is worth a look.
    [[nodiscard]] std::optional<std::size_t> next_by_chance() const {
        std::vector<double> logs;
        std::optional<std::size_t> farthest;
        std::size_t gap = 0;
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            if (is_measured(i)) {
                logs.push_back(std::log(value_at(i)));
                continue;
            }
            const auto below = neighbour(i, -1);
            const auto above = neighbour(i, +1);
            const std::size_t nearest = std::min(below ? distance(*below, i) : limits_.size(),
                                                 above ? distance(*above, i) : limits_.size());
            if (nearest <= gap) continue;
            gap = nearest;
            farthest = i;
        }
        if (logs.size() >= 3 && expected_improvement(logs) < free_tolerance) return std::nullopt;
        return farthest;
    }

    static double expected_improvement(const std::vector<double>& logs) {
        const auto n = static_cast<double>(logs.size());
        double mean = 0;
        for (const double value : logs) mean += value / n;
        double variance = 0;
        for (const double value : logs) variance += (value - mean) * (value - mean) / (n - 1);
        const double deviation = std::sqrt(variance * (1 + 1 / n));
        if (deviation <= 0) return 0;
        const double z = (mean - *std::min_element(logs.begin(), logs.end())) / deviation;
        const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
        return deviation * (density - z * std::erfc(z / std::numbers::sqrt2) / 2);
    }

    LimitChoice choice_;
    Watts top_power_;
    std::size_t ranks_;
    std::vector<Watts> limits_;
    std::vector<std::optional<LimitWindow>> windows_;  ///< by index of the limit
};

}  // namespace kdvfs::inline v0_3::train
