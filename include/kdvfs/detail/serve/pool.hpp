// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/serve/pool.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace kdvfs::inline v0_3::serve {

namespace detail {

/// Points of a pool that keep the targets of all classes it serves.
inline std::vector<InstancePoint> points_in_time(const std::vector<InstancePoint>& profile,
                                                 Seconds first_token, Seconds gap) {
    std::vector<InstancePoint> points;
    for (const InstancePoint& point : profile)
        if (point.first_token <= first_token && point.gap <= gap) points.push_back(point);
    return points;
}

inline void check_points(const ServiceClass& service, Watts idle_gpu) {
    const auto reject = [&](const char* why) {
        throw Error{Errc::invalid_input, {"plan a pool", "class '" + service.name + "'", why, ""}};
    };
    if (!(service.load >= 0) || !std::isfinite(service.load)) reject("its load is no rate");
    if (!(idle_gpu.count >= 0) || !std::isfinite(idle_gpu.count)) reject("idle GPUs have no power");
    for (const InstancePoint& point : service.profile) {
        if (point.parallelism == 0) reject("a point has a parallelism of 0");
        if (!(point.load >= 0) || !std::isfinite(point.load)) reject("a point's load is no rate");
        if (!std::isfinite(point.power.count) ||
            point.power.count < idle_gpu.count * point.parallelism)
            reject("a point draws less than its GPUs do when idle");
        if (std::isnan(point.first_token.count()) || std::isnan(point.gap.count()))
            reject("a point's latency is no number");
    }
    if (std::isnan(service.first_token.count()) || std::isnan(service.gap.count()))
        reject("a target is no number");
}

/// Solves all ways of spilling over at once. A price on GPUs makes pools independent of each other:
/// the pools' least priced powers bound a way from below (Lagrange). What is left of the gap is
/// closed by trying every pool that is dearer than its least by no more than that.
class ClusterSearch {
public:
    ClusterSearch(std::span<const ServiceClass> classes, std::uint32_t gpus, Watts idle_gpu)
        : classes_{classes}, gpus_{gpus}, idle_{idle_gpu} {
        std::vector<std::size_t> may_spill;
        for (std::size_t c = 0; c < classes.size(); ++c)
            if (classes[c].overflow_pool) may_spill.push_back(c);
        std::set<std::vector<std::size_t>> seen;
        for (std::uint32_t way = 0; way < 1U << may_spill.size(); ++way) {
            std::uint32_t spilled = 0;
            for (std::size_t s = 0; s < may_spill.size(); ++s)
                if (way >> s & 1U) spilled |= 1U << may_spill[s];
            auto pools = pools_of(spilled);
            if (pools && seen.insert(*pools).second) ways_.push_back(std::move(*pools));
        }
    }

    ClusterPlan best() {
        if (ways_.empty()) return refused("a class has no measured point that keeps its targets");
        const auto fewest = fewest_gpus();
        if (!fewest)
            return refused(
                "a class has no measured point with a load, or needs more than a million "
                "instances");
        if (*fewest > gpus_)
            return refused("the loads need " + std::to_string(*fewest) + " GPUs, and there are " +
                           std::to_string(gpus_));
        double low = 0, high = 1;
        if (relax(low).gpus <= gpus_) return plan();
        while (relax(high).gpus > gpus_ && high < 1e12) high *= 4;
        for (int round = 0; round < 12; ++round) {
            const double price = (low + high) / 2;
            (relax(price).gpus > gpus_ ? low : high) = price;
        }
        close_gap(high);
        return plan();
    }

private:
    using Way = std::vector<std::size_t>;  ///< indices into `pools_`
    using Candidates = std::vector<PoolSearch::Candidate>;
    using Choices = std::vector<std::size_t>;  ///< by number of GPUs
    static constexpr double infinity = std::numeric_limits<double>::infinity();

    struct Pool {
        std::size_t owner;
        std::uint32_t members;  ///< bits
        PoolSearch search;
        PoolSearch::Candidate least{};  ///< at the price that was tried last
    };
    struct Relaxed {
        double bound;
        std::uint64_t gpus;
    };

    static ClusterPlan refused(std::string why) { return {{}, 0, {}, std::move(why)}; }

    /// Nothing where a pool has no point that keeps its targets.
    std::optional<Way> pools_of(std::uint32_t spilled) {
        std::map<std::size_t, std::uint32_t> members;
        for (std::size_t c = 0; c < classes_.size(); ++c) {
            if (classes_[c].load == 0) continue;
            std::size_t owner = c;
            while (spilled >> owner & 1U) owner = *classes_[owner].overflow_pool;
            members[owner] |= 1U << c;
        }
        Way way;
        for (const auto& [owner, served] : members) {
            const auto pool = pool_index(owner, served);
            if (!pool) return std::nullopt;
            way.push_back(*pool);
        }
        return way;
    }

    std::optional<std::size_t> pool_index(std::size_t owner, std::uint32_t members) {
        const auto [place, fresh] = known_.try_emplace({owner, members});
        if (!fresh) return place->second;
        Seconds first_token{std::numeric_limits<double>::infinity()}, gap = first_token;
        double load = 0;
        for (std::size_t c = 0; c < classes_.size(); ++c) {
            if (!(members >> c & 1U)) continue;
            first_token = std::min(first_token, classes_[c].first_token);
            gap = std::min(gap, classes_[c].gap);
            load += classes_[c].load;
        }
        const auto points = points_in_time(classes_[owner].profile, first_token, gap);
        if (points.empty()) return std::nullopt;
        place->second = pools_.size();
        pools_.push_back({owner, members, PoolSearch{points, load, idle_.count}});
        return place->second;
    }

    /// Nothing where no way carries the loads, however many GPUs there are.
    [[nodiscard]] std::optional<std::uint64_t> fewest_gpus() const {
        std::vector<std::optional<std::uint64_t>> fewest;
        for (const Pool& pool : pools_) fewest.push_back(pool.search.fewest_gpus());
        std::optional<std::uint64_t> least;
        for (const Way& way : ways_) {
            std::optional<std::uint64_t> sum{0};
            for (const std::size_t pool : way)
                sum = sum && fewest[pool] ? std::optional{*sum + *fewest[pool]} : std::nullopt;
            if (sum && (!least || *sum < *least)) least = sum;
        }
        return least;
    }

    /// The best way where GPUs cost `price` watts each instead of being few. Keeps it if it fits.
    Relaxed relax(double price) {
        for (Pool& pool : pools_) pool.least = pool.search.least(price);
        Relaxed best{std::numeric_limits<double>::infinity(), 0};
        for (const Way& way : ways_) {
            double watts = 0;
            std::uint64_t gpus = 0;
            for (const std::size_t pool : way) {
                watts += pools_[pool].least.watts;
                gpus += pools_[pool].least.gpus;
            }
            const double bound = watts + price * (static_cast<double>(gpus) - gpus_);
            if (bound < best.bound) best = {bound, gpus};
            if (gpus > gpus_ || watts >= least_) continue;
            Candidates chosen;
            for (const std::size_t pool : way) chosen.push_back(pools_[pool].least);
            adopt(way, watts, std::move(chosen));
        }
        return best;
    }

    void close_gap(double price) {
        const double bound = relax(price).bound;
        double slack = std::max((least_ - bound) / 16, 1e-9 * std::abs(bound));
        if (!std::isfinite(slack)) slack = std::abs(bound) / 100 + 1;
        for (;; slack *= 2) {
            for (const Way& way : ways_) {
                const double left = bound + slack - bound_of(way, price);
                if (left >= 0) try_all(way, price, left);
            }
            if (least_ <= bound + slack) return;
        }
    }

    [[nodiscard]] double bound_of(const Way& way, double price) const {
        double sum = -price * gpus_;
        for (const std::size_t pool : way) sum += pools_[pool].least.cost(price);
        return sum;
    }

    /// Every choice of pools that are each dearer than their least by at most `slack`.
    void try_all(const Way& way, double price, double slack) {
        std::vector<Candidates> candidates;
        std::vector<Choices> choices;
        std::vector<double> watts(std::size_t{gpus_} + 1, infinity);
        watts[0] = 0;
        for (const std::size_t pool : way) {
            candidates.push_back(pools_[pool].search.within(price, slack, gpus_));
            choices.push_back(add_pool(watts, candidates.back()));
        }
        const auto best = std::min_element(watts.begin(), watts.end());
        if (*best >= least_) return;
        auto gpus = static_cast<std::size_t>(best - watts.begin());
        Candidates chosen(way.size());
        for (std::size_t p = way.size(); p-- > 0;) {
            chosen[p] = candidates[p][choices[p][gpus]];
            gpus -= chosen[p].gpus;
        }
        adopt(way, *best, std::move(chosen));
    }

    /// Least power by number of GPUs with one pool more, and which candidate that takes.
    static Choices add_pool(std::vector<double>& watts, const Candidates& candidates) {
        std::vector<double> sum(watts.size(), infinity);
        Choices choices(watts.size());
        for (std::size_t c = 0; c < candidates.size(); ++c) {
            for (std::size_t gpus = candidates[c].gpus; gpus < watts.size(); ++gpus) {
                const double with = watts[gpus - candidates[c].gpus] + candidates[c].watts;
                if (with >= sum[gpus]) continue;
                sum[gpus] = with;
                choices[gpus] = c;
            }
        }
        watts = std::move(sum);
        return choices;
    }

    void adopt(const Way& way, double watts, Candidates chosen) {
        least_ = watts;
        best_way_ = way;
        best_ = std::move(chosen);
    }

    [[nodiscard]] ClusterPlan plan() const {
        ClusterPlan plan;
        for (std::size_t p = 0; p < best_way_.size(); ++p) {
            const Pool& pool = pools_[best_way_[p]];
            const auto gpus = static_cast<std::uint32_t>(best_[p].gpus);  // at most gpus_
            const Watts power{best_[p].watts + idle_.count * gpus};
            ClusterPool planned{pool.owner, {}, {best_[p].groups, gpus, power}};
            for (std::size_t c = 0; c < classes_.size(); ++c)
                if (pool.members >> c & 1U) planned.serves.push_back(c);
            plan.gpus += gpus;
            plan.pools.push_back(std::move(planned));
        }
        plan.power = Watts{least_ + idle_.count * gpus_};
        return plan;
    }

    std::span<const ServiceClass> classes_;
    std::uint32_t gpus_;
    Watts idle_;
    std::vector<Pool> pools_;
    std::map<std::pair<std::size_t, std::uint32_t>, std::optional<std::size_t>> known_;
    std::vector<Way> ways_;
    double least_ = std::numeric_limits<double>::infinity();
    Way best_way_;
    Candidates best_;
};

inline void check_spills(std::span<const ServiceClass> classes) {
    const auto reject = [&](const std::string& object, const char* why, const char* remedy) {
        throw Error{Errc::invalid_input, {"plan a cluster", object, why, remedy}};
    };
    if (classes.empty() || classes.size() > 16)
        reject(std::to_string(classes.size()) + " classes", "", "give 1 to 16");
    for (const ServiceClass& service : classes) {
        std::size_t steps = 0;
        for (auto next = service.overflow_pool; next; next = classes[*next].overflow_pool) {
            if (*next >= classes.size()) reject(service.name, "it spills into no class", "");
            if (++steps > classes.size()) reject(service.name, "it spills into itself", "");
        }
    }
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE ClusterPlan plan_cluster(std::span<const ServiceClass> classes, std::uint32_t gpus,
                                      Watts idle_gpu) {
    detail::check_spills(classes);
    for (const ServiceClass& service : classes) detail::check_points(service, idle_gpu);
    return detail::ClusterSearch{classes, gpus, idle_gpu}.best();
}

KDVFS_INLINE std::vector<ServiceClass> nine_classes() {
    std::vector<ServiceClass> classes;
    for (std::size_t prompt = 0; prompt < 3; ++prompt) {
        for (std::size_t answer = 0; answer < 3; ++answer) {
            ServiceClass service;
            service.name = {"SML"[prompt], "SML"[answer]};
            const std::size_t index = 3 * prompt + answer;
            if (answer < 2)
                service.overflow_pool = index + 1;
            else if (prompt < 2)
                service.overflow_pool = index + 3;
            classes.push_back(std::move(service));
        }
    }
    return classes;
}

#endif

}  // namespace kdvfs::inline v0_3::serve
