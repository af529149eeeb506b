// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// What one instance of a model, spread over some GPUs, was measured to do at a clock under a load.
struct InstancePoint {
    std::uint32_t parallelism = 1;  ///< GPUs of the instance
    Megahertz clock = auto_clock;
    double load = 0;         ///< requests a second
    Watts power{0};          ///< of all its GPUs
    Seconds first_token{0};  ///< latencies at the percentile that the targets mean
    Seconds gap{0};
};

/// Instances that are alike.
struct InstanceGroup {
    std::uint32_t count = 0;
    InstancePoint point{};
};

namespace detail {

/// The instances of one pool: for each parallelism one operating point and a number of instances,
/// enough together for the load. Exact, depth first over the parallelisms, cut where even
/// fractions of instances would be too dear. Powers are over those of idle GPUs.
class PoolSearch {
public:
    struct Candidate {
        std::uint64_t gpus = 0;
        double watts = std::numeric_limits<double>::infinity();
        std::vector<InstanceGroup> groups{};
        /// Where each GPU costs `price` watts.
        [[nodiscard]] double cost(double price) const {
            return watts + price * static_cast<double>(gpus);
        }
    };

    /// `points` are not empty, `load` is positive.
    PoolSearch(const std::vector<InstancePoint>& points, double load, double idle_watts)
        : load_{load}, idle_watts_{idle_watts} {
        std::map<std::uint32_t, std::vector<InstancePoint>> kinds;
        for (const InstancePoint& point : points)
            if (point.load > 0) kinds[point.parallelism].push_back(point);
        for (auto& [parallelism, all] : kinds) kinds_.push_back(not_beaten(std::move(all)));
    }

    /// The pool of least power where each GPU costs `price` watts; of equal ones, fewer GPUs.
    [[nodiscard]] Candidate least(double price) const {
        Candidate best = best_alone(price);
        double cost = best.cost(price);
        visit(
            price, [&] { return cost; },
            [&](double found, const std::vector<InstanceGroup>& groups) {
                const std::uint64_t gpus = gpus_of(groups);
                if (found > cost || (found == cost && gpus >= best.gpus)) return;
                cost = found;
                best = candidate(groups);
            });
        return best;
    }

    /// For each number of GPUs up to `most` the pool of least power, of those that cost at most
    /// `slack` watts more than the cheapest at this price. None beats another in both.
    [[nodiscard]] std::vector<Candidate> within(double price, double slack,
                                                std::uint32_t most) const {
        const Candidate cheapest = least(price);
        const double limit = (cheapest.cost(price) + slack) * (1 + rounding);
        std::map<std::uint64_t, Candidate> best;
        visit(
            price, [&] { return limit; },
            [&](double, const std::vector<InstanceGroup>& groups) {
                if (gpus_of(groups) > most) return;
                Candidate found = candidate(groups);
                Candidate& known = best[found.gpus];
                if (found.watts < known.watts) known = std::move(found);
            });
        std::vector<Candidate> stairs;
        for (auto& [gpus, found] : best)
            if (stairs.empty() || found.watts < stairs.back().watts)
                stairs.push_back(std::move(found));
        return stairs;
    }

    /// At such a price GPUs outweigh all power. Nothing where no point has a load, or it would take
    /// more than a million instances.
    [[nodiscard]] std::optional<std::uint64_t> fewest_gpus() const {
        const Candidate fewest = least(1e12);
        if (!std::isfinite(fewest.watts)) return std::nullopt;
        return fewest.gpus;
    }

private:
    static constexpr double rounding = 1e-9;
    static constexpr double most_instances = 1e6;

    [[nodiscard]] double extra_watts(const InstancePoint& point) const {
        return point.power.count - idle_watts_ * point.parallelism;
    }

    /// Points of one parallelism that no other beats in both load and power.
    [[nodiscard]] std::vector<InstancePoint> not_beaten(std::vector<InstancePoint> points) const {
        std::stable_sort(points.begin(), points.end(), [&](const auto& a, const auto& b) {
            return extra_watts(a) != extra_watts(b) ? extra_watts(a) < extra_watts(b)
                                                    : a.load > b.load;
        });
        std::vector<InstancePoint> kept;
        for (const InstancePoint& point : points)
            if (kept.empty() || point.load > kept.back().load) kept.push_back(point);
        return kept;
    }

    static std::uint64_t gpus_of(const std::vector<InstanceGroup>& groups) {
        std::uint64_t gpus = 0;
        for (const InstanceGroup& group : groups)
            gpus += std::uint64_t{group.count} * group.point.parallelism;
        return gpus;
    }
    [[nodiscard]] Candidate candidate(const std::vector<InstanceGroup>& groups) const {
        Candidate result{gpus_of(groups), 0, {}};
        for (const InstanceGroup& group : groups) {
            if (group.count == 0) continue;
            result.watts += group.count * extra_watts(group.point);
            result.groups.push_back(group);
        }
        return result;
    }

    /// Instances of one kind only: where to begin.
    [[nodiscard]] Candidate best_alone(double price) const {
        std::vector<InstanceGroup> best(1);
        double least = std::numeric_limits<double>::infinity();
        for (const auto& kind : kinds_) {
            for (const InstancePoint& point : kind) {
                const double count = enough(load_, point);
                if (count > most_instances || count * cost(point, price) >= least) continue;
                least = count * cost(point, price);
                best[0] = {static_cast<std::uint32_t>(count), point};
            }
        }
        return std::isfinite(least) ? candidate(best) : Candidate{};
    }

    /// Instances that carry a load.
    static double enough(double load, const InstancePoint& point) {
        return std::max(std::ceil(load / point.load * (1 - rounding)), 1.0);
    }

    /// What the walk through the kinds carries along.
    template <class Limit, class Found>
    struct Walk {
        double price;
        Limit limit;
        Found found;
        std::vector<double> rest;  ///< least cost per load of a kind and all that follow
        std::vector<InstanceGroup> groups;
    };

    /// Calls `found` with all pools that may cost no more than `limit()`, which may fall meanwhile.
    template <class Limit, class Found>
    void visit(double price, Limit limit, Found found) const {
        Walk<Limit, Found> walk{price, limit, found, {}, {}};
        walk.rest.assign(kinds_.size() + 1, std::numeric_limits<double>::infinity());
        for (std::size_t k = kinds_.size(); k-- > 0;) {
            walk.rest[k] = walk.rest[k + 1];
            for (const InstancePoint& point : kinds_[k])
                walk.rest[k] = std::min(walk.rest[k], cost(point, price) / point.load);
        }
        walk.groups.resize(kinds_.size());
        descend(walk, 0, load_, 0);
    }

    [[nodiscard]] double cost(const InstancePoint& point, double price) const {
        return extra_watts(point) + price * point.parallelism;
    }

    template <class Walk>
    void descend(Walk& walk, std::size_t k, double load, double spent) const {
        if (k == kinds_.size()) return;
        const double rest = walk.rest[k + 1];
        for (const InstancePoint& point : kinds_[k]) {
            const double each = cost(point, walk.price);
            const double needed = enough(load, point);
            if (needed > most_instances) continue;
            const auto all = static_cast<std::uint32_t>(needed);
            if (spent + all * each <= walk.limit()) {
                walk.groups[k] = {all, point};
                walk.found(spent + all * each, walk.groups);
            }
            if (!std::isfinite(rest)) continue;
            // With fractions of instances for the rest, the cost is a line over the count.
            const double slope = each - rest * point.load;
            const double room = walk.limit() * (1 + rounding) - spent - rest * load;
            double first = 1, last = needed - 1;
            if (slope > 0) last = std::min(last, std::floor(room / slope + rounding));
            if (slope < 0) first = std::max(first, std::ceil(room / slope - rounding));
            if (slope == 0 && room < 0) continue;
            // From the most on: what a good count leaves is found early.
            for (double count = last; count >= first; --count) {
                walk.groups[k] = {static_cast<std::uint32_t>(count), point};
                descend(walk, k + 1, load - count * point.load, spent + count * each);
            }
        }
        walk.groups[k] = {};
        if (spent + rest * load <= walk.limit() * (1 + rounding)) descend(walk, k + 1, load, spent);
    }

    double load_;
    double idle_watts_;
    std::vector<std::vector<InstancePoint>> kinds_;  ///< by parallelism
};

}  // namespace detail
}  // namespace kdvfs::inline v0_3::serve
