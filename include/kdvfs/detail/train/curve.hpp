// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// One way to run an operation, as measured: at this clock it takes this time and this energy.
struct CurvePoint {
    ClockPoint clock{};
    Seconds time{};
    Joules energy{};
};

/// What a list of points promises about its shape.
enum class Shape {
    measured,   ///< any points; those above the lower convex hull are not used
    convex,     ///< a model or a frontier of kernels: each point is a corner of the hull
    schedules,  ///< a frontier of kernels: clocks change within, several points may begin alike
    constant,  ///< one point: an operation that takes the same at all clocks, as communication does
};

/// Energies in femtojoules, which are microwatts times nanoseconds: sums of any pipeline fit.
__extension__ using Femtojoules = __int128;

constexpr Joules to_joules(Femtojoules energy) { return {static_cast<double>(energy) / 1e15}; }
constexpr Seconds to_seconds(std::int64_t nanoseconds) {
    return Seconds{static_cast<double>(nanoseconds) / 1e9};
}

/// Time and effective energy of an operation, in integers: the lower convex hull of its points.
/// The effective energy is what the operation needs above a GPU that is blocked for as long.
/// Between corner k and k + 1 each further nanosecond saves `saving[k]` femtojoules, less and less.
struct Hull {
    std::vector<std::int64_t> time;     ///< nanoseconds, rising
    std::vector<std::int64_t> saving;   ///< microwatts, falling, one less than corners
    std::vector<Femtojoules> energy;    ///< at each corner, falling
    std::vector<std::uint32_t> corner;  ///< which of the points each corner is

    [[nodiscard]] std::size_t size() const { return time.size(); }

    /// The energy at a duration: between corners on the line, beyond the last as at the last.
    /// The duration is at least the first corner's.
    [[nodiscard]] Femtojoules energy_at(std::int64_t duration) const {
        const auto after = std::upper_bound(time.begin(), time.end(), duration);
        const auto k = static_cast<std::size_t>(after - time.begin()) - 1;
        if (after == time.end()) return energy[k];
        return energy[k] - static_cast<Femtojoules>(saving[k]) * (duration - time[k]);
    }
};

/// The points of one (stage, operation) and their hull. Immutable; copies are cheap enough.
class Curve {
public:
    /// `name` is what errors call the curve: "stage 3, forward".
    /// @throws Error (invalid_input) for fewer than two points, or more than one of a constant, for
    /// times or energies that are not positive finite numbers, for two points at one clock, and for
    /// a `Shape::convex` that is not.
    Curve(std::string name, std::vector<CurvePoint> points, Watts blocking_power,
          Shape shape = Shape::measured)
        : name_{std::move(name)}, points_{std::move(points)} {
        check(blocking_power, shape);
        std::sort(points_.begin(), points_.end(), [](const CurvePoint& a, const CurvePoint& b) {
            return a.time < b.time || (a.time == b.time && a.energy < b.energy);
        });
        for (const CurvePoint& point : points_) {
            time_.push_back(std::llround(point.time.count() * 1e9));
            effective_.push_back(to_femtojoules(point.energy - blocking_power * point.time));
        }
        if (shape == Shape::convex) check_convex();
        make_hull();
    }

    [[nodiscard]] const std::string& name() const { return name_; }
    /// All points, fastest first.
    [[nodiscard]] std::span<const CurvePoint> points() const { return points_; }
    /// The duration of a point, rounded to nanoseconds.
    [[nodiscard]] std::int64_t time(std::size_t point) const { return time_[point]; }
    /// The effective energy of a point.
    [[nodiscard]] Femtojoules effective(std::size_t point) const { return effective_[point]; }
    [[nodiscard]] const Hull& hull() const { return hull_; }
    /// Whether it takes the same at all clocks.
    [[nodiscard]] bool is_constant() const { return points_.size() == 1; }

private:
    static Femtojoules to_femtojoules(Joules energy) {
        return static_cast<Femtojoules>(std::round(energy.count * 1e15));
    }

    /// Microwatts: with these, sums over thousands of stages fit into 64 bits.
    static constexpr Femtojoules steepest = 100'000'000'000'000;

    [[noreturn]] void reject(const std::string& why, const std::string& remedy) const {
        throw Error{Errc::invalid_input, {"plan a pipeline", "the curve of " + name_, why, remedy}};
    }

    void check(Watts blocking_power, Shape shape) const {
        const double watts = blocking_power.count;
        if (!(watts >= 0 && watts <= 1e5))
            reject("the blocking power is not a number from 0 to 100000 W",
                   "measure what a GPU draws while it waits for another stage");
        if (shape == Shape::constant && points_.size() > 1)
            reject("it has several points, but is said to be constant",
                   "give its only point, or say that the curve is measured");
        if (points_.size() < (shape == Shape::constant ? 1 : 2))
            reject(points_.empty() ? "it has no points" : "it has one point only",
                   "measure the operation at two clocks or more, or say that it is constant");
        for (const CurvePoint& point : points_) {
            const double time = point.time.count();
            if (!(time >= 1e-8 && time <= 1000))
                reject("a time is not a number from 10 ns to 1000 s", "measure it again");
            if (!(point.energy.count > 0 && point.energy.count <= 1e9))
                reject("an energy is not a positive number up to 1e9 J", "measure it again");
        }
        if (shape != Shape::schedules) check_clocks();
    }

    void check_clocks() const {
        std::vector<ClockPoint> clocks;
        for (const CurvePoint& point : points_) clocks.push_back(point.clock);
        std::sort(clocks.begin(), clocks.end());
        const auto twice = std::adjacent_find(clocks.begin(), clocks.end());
        if (twice != clocks.end())
            reject("two points are at " + to_string(*twice), "average the samples of a clock");
    }

    /// A tolerance of 1e-6 of the energy, as such curves come with rounded decimals.
    void check_convex() const {
        for (std::size_t k = 1; k < points_.size(); ++k) {
            if (time_[k] == time_[k - 1] || effective_[k] >= effective_[k - 1])
                reject(
                    "effective energy does not fall as time grows, but the curve is said to be "
                    "convex",
                    "leave out points that are slower and save nothing, or say that the curve "
                    "is measured");
            if (k < 2) continue;
            const auto on_line = static_cast<double>(effective_[k - 2]) +
                                 static_cast<double>(effective_[k] - effective_[k - 2]) *
                                     static_cast<double>(time_[k - 1] - time_[k - 2]) /
                                     static_cast<double>(time_[k] - time_[k - 2]);
            const auto actual = static_cast<double>(effective_[k - 1]);
            if (actual - on_line > 1e-6 * std::abs(actual))
                reject("it bulges at " + to_string(points_[k - 1].clock) +
                           ", but is said to be convex",
                       "say that the curve is measured: its convex hull is taken then");
        }
    }

    /// Savings are rounded to whole microwatts; corners whose savings do not fall then are left
    /// out. The energies of corners follow from the rounded savings, so that all sums are exact.
    void make_hull() {
        std::vector<std::uint32_t> kept;
        for (std::uint32_t i = 0; i < points_.size(); ++i) {
            if (!kept.empty() && (time_[i] == time_[kept.back()] || saving(kept.back(), i) <= 0))
                continue;
            // Points so close in time are one; the slower needs less.
            while (!kept.empty() && saving(kept.back(), i) > steepest) kept.pop_back();
            while (kept.size() >= 2 &&
                   saving(kept[kept.size() - 2], kept.back()) <= saving(kept.back(), i)) {
                kept.pop_back();
            }
            kept.push_back(i);
        }
        Femtojoules energy = effective_[kept.front()];
        for (std::size_t k = 0; k < kept.size(); ++k) {
            if (k > 0) {
                const Femtojoules rate = saving(kept[k - 1], kept[k]);
                energy -= rate * (time_[kept[k]] - time_[kept[k - 1]]);
                hull_.saving.push_back(static_cast<std::int64_t>(rate));
            }
            hull_.time.push_back(time_[kept[k]]);
            hull_.energy.push_back(energy);
        }
        hull_.corner = std::move(kept);
    }

    [[nodiscard]] Femtojoules saving(std::uint32_t from, std::uint32_t to) const {
        const Femtojoules saved = effective_[from] - effective_[to];
        const Femtojoules span = time_[to] - time_[from];
        const Femtojoules doubled = 2 * saved + (saved < 0 ? -span : span);
        return doubled / (2 * span);
    }

    std::string name_;
    std::vector<CurvePoint> points_;
    std::vector<std::int64_t> time_;
    std::vector<Femtojoules> effective_;
    Hull hull_;
};

}  // namespace kdvfs::inline v0_3::train
