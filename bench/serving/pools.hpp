// SPDX-License-Identifier: MIT
#pragma once

#include <bench/serving/clock_policies.hpp>
#include <bench/serving/requests.hpp>
#include <bench/serving/roofline_board.hpp>
#include <bench/serving/serving_engine.hpp>
#include <kdvfs/serve/pool.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <list>
#include <random>
#include <string>
#include <utility>
#include <vector>

/// Pools of instances on the built-in board, planned anew every five minutes, as DynamoLLM
/// (HPCA'25) does and as its baselines do with a part of the freedom. Answers' lengths are taken
/// for known.
namespace pools {

using namespace kdvfs;
using namespace kdvfs::serve;

/// What may follow the load.
struct Freedom {
    std::string name;
    bool parallelism = false;  ///< else one board an instance
    bool clocks = false;       ///< else the top clock
    bool instances = false;    ///< boards without an instance are off, else they idle
};

/// Boards, alone and spread over, and the engine's limits on each.
struct Spread {
    RooflineBoard board;
    EngineLimits limits;
};
inline const std::vector<Spread>& spreads() {
    static const std::vector<Spread> all = [] {
        std::vector<Spread> result;
        for (const std::uint32_t boards : {1U, 2U, 4U}) {
            EngineLimits limits;
            limits.cache_tokens *= boards;
            result.push_back({RooflineBoard{}.spread_over(boards), limits});
        }
        return result;
    }();
    return all;
}
inline const Spread& spread_of(std::uint32_t parallelism) {
    return *std::find_if(spreads().begin(), spreads().end(), [&](const Spread& spread) {
        return spread.board.parallelism == parallelism;
    });
}

/// Whatever the parallelism, targets are those of one board.
inline Seconds allowed(const Request& request, const LatencyTargets& targets) {
    return allowed_first_token(spreads().front().board, request, spreads().front().limits, targets);
}

/// Serves requests of one class, drawn with replacement and evenly at random in time, for two
/// minutes on one instance. Its latencies are told as shares of the targets late, so that a
/// class's targets are the shares that may be late.
inline InstancePoint measure_point(const std::vector<Request>& samples, const Spread& spread,
                                   Megahertz clock, double load, const LatencyTargets& targets) {
    constexpr double duration = 120;
    std::mt19937_64 random{1};
    const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    FixedClock policy{clock};
    ServingEngine engine{spread.board, policy, spread.limits, targets, Seconds{0}};
    double time = 0;
    while ((time += -std::log1p(-uniform()) / load) < duration) {
        Request request = samples[random() % samples.size()];
        request.arrival = Seconds{time};
        engine.advance(request.arrival);
        engine.submit(request, allowed(request, targets));
    }
    engine.drain();
    const ServingCounts counts = engine.counts();
    const double share = 0.01;
    return {spread.board.parallelism,
            clock,
            load,
            counts.energy / std::max(engine.now(), Seconds{duration}),
            Seconds{share * (100 - counts.first_tokens_pct())},
            Seconds{share * (100 - counts.gaps_pct())}};
}

/// All points of a class up to the load at which its targets break.
inline std::vector<InstancePoint> measure_class(const std::vector<Request>& samples,
                                                const ServiceClass& service,
                                                const LatencyTargets& targets) {
    std::vector<InstancePoint> points;
    if (samples.empty()) return points;
    for (const Spread& spread : spreads()) {
        for (const Megahertz clock : spread.board.clocks()) {
            for (double load = 0.25; load < 200; load *= 1.25) {
                const InstancePoint point = measure_point(samples, spread, clock, load, targets);
                if (point.first_token > service.first_token || point.gap > service.gap) break;
                points.push_back(point);
            }
        }
    }
    return points;
}

/// The nine classes with profiles measured on the trace's requests; 1 % of first tokens and 0.1 %
/// of the others may be late. Classes spill over only into longer answers: a short prompt's first
/// token would be late behind long prompts.
inline std::vector<ServiceClass> measured_classes(const std::vector<Request>& requests,
                                                  const LatencyTargets& targets) {
    std::vector<std::vector<Request>> samples(9);
    for (const Request& request : requests)
        samples[class_of(request.prompt_tokens, request.answer_tokens)].push_back(request);
    auto classes = nine_classes();
    for (std::size_t c = 0; c < classes.size(); ++c) {
        if (c % 3 == 2) classes[c].overflow_pool.reset();
        classes[c].first_token = Seconds{0.01};
        classes[c].gap = Seconds{0.001};
        classes[c].profile = measure_class(samples[c], classes[c], targets);
    }
    return classes;
}

/// Serves a trace with pools that are planned anew for each epoch, from the rates of the epoch
/// before and half as much again; the first from its own. It ends with the last answer, as a single
/// pool does. What a new plan has no use for ends its
/// answers beside its successors and is off then.
class PooledCluster {
public:
    PooledCluster(std::vector<ServiceClass> classes, std::size_t boards, Freedom freedom,
                  LatencyTargets targets)
        : classes_{std::move(classes)},
          boards_{boards},
          freedom_{std::move(freedom)},
          targets_{targets} {
        const Megahertz top = spreads().front().board.clocks().back();
        for (ServiceClass& service : classes_)
            std::erase_if(service.profile, [&](const InstancePoint& point) {
                return (!freedom_.parallelism && point.parallelism != 1) ||
                       (!freedom_.clocks && point.clock != top);
            });
    }

    ServingCounts serve(const std::vector<Request>& requests) {
        auto next = requests.begin();
        for (Seconds begin{0}; next != requests.end(); begin += epoch) {
            const auto end = std::find_if(next, requests.end(), [&](const Request& request) {
                return request.arrival >= begin + epoch;
            });
            if (begin == Seconds{0}) count_rates(next, end);
            replan(begin);
            count_rates(next, end);
            for (; next != end; ++next) submit(*next);
            finish_epoch(begin, next == requests.end() ? drained() : begin + epoch);
        }
        for (Instance& instance : instances_) total_ += instance.engine.counts();
        return total_;
    }
    /// How many epochs had more load than any plan carries; they used all boards at the top clock.
    [[nodiscard]] std::size_t overloaded() const { return overloaded_; }
    /// The mean number of boards that had an instance.
    [[nodiscard]] double mean_boards() const { return used_ / static_cast<double>(epochs_); }

private:
    static constexpr Seconds epoch{300};
    static constexpr double headroom = 1.5;

    struct Instance {
        Instance(std::size_t pool_of, std::uint32_t parallelism, Megahertz at,
                 const LatencyTargets& targets, Seconds begin)
            : owner{pool_of},
              boards{parallelism},
              clock{at},
              policy{at},
              engine{spread_of(parallelism).board,
                     policy,
                     spread_of(parallelism).limits,
                     targets,
                     Seconds{0},
                     nullptr,
                     begin} {}
        std::size_t owner;
        std::uint32_t boards;
        Megahertz clock;
        FixedClock policy;
        ServingEngine<RooflineBoard> engine;
        bool wanted = true;
    };

    template <class Iterator>
    void count_rates(Iterator begin, Iterator end) {
        for (ServiceClass& service : classes_) service.load = 0;
        for (; begin != end; ++begin)
            classes_[class_of(begin->prompt_tokens, begin->answer_tokens)].load +=
                headroom / epoch.count();
    }

    void replan(Seconds now) {
        const auto gpus = static_cast<std::uint32_t>(boards_);
        // Boards that cannot be off idle anyway, so only what instances draw beyond that counts.
        const Megahertz low = spreads().front().board.clocks().front();
        const Watts idle = freedom_.instances ? Watts{0} : spreads().front().board.idle_power(low);
        const ClusterPlan plan = plan_cluster(classes_, gpus, idle);
        for (Instance& instance : instances_) instance.wanted = false;
        pool_of_.assign(classes_.size(), 0);
        if (!plan.refused.empty()) {
            ++overloaded_;
            use(0, 1, spreads().front().board.clocks().back(), gpus, now);
        }
        for (const ClusterPool& pool : plan.pools) {
            for (const std::size_t served : pool.serves) pool_of_[served] = pool.owner;
            for (const InstanceGroup& group : pool.plan.groups)
                use(pool.owner, group.point.parallelism, group.point.clock, group.count, now);
        }
        in_use_ = plan.refused.empty() ? plan.gpus : gpus;
        if (in_use_ == 0) {  // nobody came: one board waits for who may come
            use(classes_.size() - 1, 1, spreads().front().board.clocks().back(), 1, now);
            in_use_ = 1;
        }
        used_ += in_use_;
        ++epochs_;
        // A class that was not seen in the last epoch goes to the largest pool there is.
        for (std::size_t& owner : pool_of_)
            if (!has_pool(owner)) owner = largest_pool();
    }

    void use(std::size_t owner, std::uint32_t parallelism, Megahertz clock, std::uint32_t count,
             Seconds now) {
        for (Instance& instance : instances_) {
            if (count == 0) return;
            if (instance.wanted || instance.owner != owner || instance.boards != parallelism ||
                instance.clock != clock)
                continue;
            instance.wanted = true;
            --count;
        }
        for (; count > 0; --count)
            instances_.emplace_back(owner, parallelism, clock, targets_, now);
    }

    [[nodiscard]] bool has_pool(std::size_t owner) const {
        return std::any_of(instances_.begin(), instances_.end(), [&](const Instance& instance) {
            return instance.wanted && instance.owner == owner;
        });
    }
    [[nodiscard]] std::size_t largest_pool() const {
        std::size_t largest = 0;
        for (const Instance& instance : instances_)
            if (instance.wanted) largest = std::max(largest, instance.owner);
        return largest;
    }

    void submit(const Request& request) {
        const std::size_t owner = pool_of_[class_of(request.prompt_tokens, request.answer_tokens)];
        Instance* best = nullptr;
        for (Instance& instance : instances_) {
            if (!instance.wanted || instance.owner != owner) continue;
            instance.engine.advance(request.arrival);
            if (!best ||
                instance.engine.load() / instance.boards < best->engine.load() / best->boards)
                best = &instance;
        }
        best->engine.submit(request, allowed(request, targets_));
    }

    /// Ends all answers. @returns when the last one has ended
    Seconds drained() {
        Seconds end{0};
        for (Instance& instance : instances_) {
            instance.engine.drain();
            end = std::max(end, instance.engine.now());
        }
        return end;
    }

    void finish_epoch(Seconds begin, Seconds end) {
        for (auto instance = instances_.begin(); instance != instances_.end();) {
            if (instance->wanted) {
                (instance++)->engine.advance(end);
                continue;
            }
            instance->engine.drain();
            total_ += instance->engine.counts();
            instance = instances_.erase(instance);
        }
        if (freedom_.instances) return;
        const RooflineBoard& board = spreads().front().board;
        const Megahertz clock = freedom_.clocks ? board.clocks().front() : board.clocks().back();
        total_.energy +=
            board.idle_power(clock) * (static_cast<double>(boards_) - in_use_) * (end - begin);
    }

    std::vector<ServiceClass> classes_;
    std::size_t boards_;
    Freedom freedom_;
    LatencyTargets targets_;
    std::list<Instance> instances_;
    std::vector<std::size_t> pool_of_;
    double in_use_ = 0;
    double used_ = 0;
    std::size_t epochs_ = 0;
    std::size_t overloaded_ = 0;
    ServingCounts total_;
};

}  // namespace pools
