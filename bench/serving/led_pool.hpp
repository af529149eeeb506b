// SPDX-License-Identifier: MIT
#pragma once

#include <bench/serving/clock_policies.hpp>
#include <bench/serving/requests.hpp>
#include <bench/serving/roofline_board.hpp>
#include <bench/serving/serving_engine.hpp>
#include <bench/serving/synthetic_requests.hpp>
#include <kdvfs/serve/pool_controller.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

/// A pool of instances on the built-in board that takes time and power to start, drain and change
/// its parallelism, led by a `PoolController`, by a constant, or by a plan that knows the future.
namespace led_pool {

using namespace kdvfs;
using namespace kdvfs::serve;

/// How much of an instance a request takes: seconds of one board at the top clock.
struct WorkOf {
    double prompt_token = 0;
    double answer_token = 0;

    explicit WorkOf(const RooflineBoard& board = {}) {
        const Megahertz top = board.clocks().back();
        prompt_token = board.cost({512, 0, 0}, top)->time.count() / 512;
        answer_token = board.cost({0, 16, 1024}, top)->time.count() / 16;
    }
    [[nodiscard]] double operator()(double prompt, double answer) const {
        return prompt * prompt_token + answer * answer_token;
    }
};

/// Boards of one parallelism with the step plans that its instances follow.
struct Kind {
    RooflineBoard board;
    EngineLimits limits;
    StepTable table;
    std::map<StepPolicy, StepPlan> plans{};

    explicit Kind(std::uint32_t parallelism)
        : board{RooflineBoard{}.spread_over(parallelism)}, table{sample_steps(board)} {
        limits.cache_tokens *= parallelism;
    }
};

/// An engine's clocks by a step plan that may be exchanged between steps.
class ExchangedPlan final : public ClockPolicy {
public:
    explicit ExchangedPlan(const StepPlan& plan) { use(plan); }
    void use(const StepPlan& plan) {
        if (plan_ == &plan) return;
        plan_ = &plan;
        clocks_.emplace(plan);
    }
    Megahertz for_step(Seconds, StepShape shape, Seconds slack) override {
        return clocks_->decide(shape, slack).clock;
    }
    Megahertz when_idle(Seconds) override {
        clocks_->rest();
        return plan_->idle_clock();
    }
    [[nodiscard]] const StepPlan* slack_plan() const override {
        return plan_->reason().empty() ? plan_ : nullptr;
    }

private:
    const StepPlan* plan_ = nullptr;
    std::optional<StepClocks> clocks_;
};

/// What a pool did.
struct PoolRun {
    ServingCounts counts{};
    double board_seconds = 0;  ///< serving or starting
    std::size_t starts = 0;
    Seconds end{0};
};

/// Requests whose lengths have nothing to do with any trace: exponential, evenly at random in time.
inline std::vector<Request> made_up_requests(Seconds duration, double per_second,
                                             std::uint64_t seed) {
    std::mt19937_64 random{seed};
    const auto exponential = [&] {
        return -std::log((static_cast<double>(random() >> 11) + 0.5) * 0x1p-53);
    };
    const auto length = [&](double mean) {
        return static_cast<std::uint32_t>(std::clamp(std::ceil(mean * exponential()), 1.0, 8000.0));
    };
    std::vector<Request> requests;
    for (double time = 0; (time += exponential() / per_second) < duration.count();)
        requests.push_back({Seconds{time}, length(1000), length(200)});
    return requests;
}

/// A made-up day: three times as many requests at noon as at midnight, and bursts of one to five
/// minutes at 1.8 times the rate, every forty minutes on average. Lengths are those of
/// conversations.
inline std::vector<Request> made_up_day(Seconds duration, double noon_per_second,
                                        std::uint64_t seed) {
    std::mt19937_64 random{seed};
    const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
    const std::vector<Request> lengths = synthetic_conversations(Seconds{3600}, seed + 1);
    std::vector<Request> requests;
    double burst_begins = -std::log(uniform()) * 2400;
    double burst_ends = burst_begins + 60 + 240 * uniform();
    for (double time = 0;;) {
        const double day = 2 * 3.141592653589793 * time / duration.count();
        double rate = noon_per_second * (2 - std::cos(day)) / 3;
        if (time > burst_ends) {
            burst_begins = time - std::log(uniform()) * 2400;
            burst_ends = burst_begins + 60 + 240 * uniform();
        }
        if (time > burst_begins) rate *= 1.8;
        time -= std::log(uniform()) / rate;
        if (time >= duration.count()) return requests;
        Request request = lengths[random() % lengths.size()];
        request.arrival = Seconds{time};
        requests.push_back(request);
    }
}

/// The pool in virtual time.
class Pool {
public:
    Pool(const std::map<std::uint32_t, Kind>& kinds, const PoolControlOptions& physics,
         const PoolDecision& first, bool top_clock = false)
        : kinds_{&kinds}, physics_{physics}, top_clock_{top_clock} {
        for (std::uint32_t i = 0; i < first.instances; ++i)
            instances_.emplace_back(kinds.at(first.parallelism), plan(first), Seconds{0},
                                    top_clock);
    }

    void submit(const Request& request) {
        last_arrival_ = request.arrival;
        Instance* best = nullptr;
        for (Instance& instance : instances_) {
            if (instance.serves_from > request.arrival) continue;
            instance.engine.advance(request.arrival);
            const auto load = [](const Instance& of) {
                return of.engine.load() / of.kind->board.parallelism;
            };
            if (!best || load(instance) < load(*best)) best = &instance;
        }
        const Kind& one = kinds_->at(1);
        best->engine.submit(request,
                            allowed_first_token(one.board, request, one.limits, LatencyTargets{}));
    }

    /// Carries a decision out.
    void apply(const PoolDecision& decision, Seconds now) {
        for (Instance& instance : instances_)
            instance.policy->use(plan(decision, instance.kind->board.parallelism));
        std::uint32_t have = count(decision.parallelism, nullptr);
        for (; have < decision.instances; ++have) {
            instances_.emplace_back(kinds_->at(decision.parallelism), plan(decision),
                                    now + physics_.start, top_clock_);
            ++run_.starts;
        }
        for (; have > decision.instances; --have) drop_one(decision.parallelism, now);
        // Others serve until their successors do.
        if (count(decision.parallelism, &now) < decision.instances) return;
        for (auto it = instances_.begin(); it != instances_.end();)
            it =
                it->kind->board.parallelism == decision.parallelism ? std::next(it) : drop(it, now);
    }

    /// Requests whose first token has come by now, and those of them that were in time.
    [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> answered(Seconds now) {
        std::pair<std::uint64_t, std::uint64_t> sum{run_.counts.requests,
                                                    run_.counts.first_tokens_in_time};
        for (Instance& instance : instances_) {
            if (instance.serves_from > now) continue;
            instance.engine.advance(now);
            const ServingCounts counts = instance.engine.counts();
            sum.first += counts.requests;
            sum.second += counts.first_tokens_in_time;
        }
        return sum;
    }

    PoolRun finish() {
        Seconds end{0};
        for (Instance& instance : instances_) {
            if (instance.serves_from > last_arrival_) continue;  // nobody comes any more
            instance.engine.drain();
            end = std::max(end, instance.engine.now());
        }
        while (!instances_.empty()) {
            instances_.front().engine.advance(end);
            drop(instances_.begin(), end);
        }
        run_.end = end;
        return run_;
    }

private:
    struct Instance {
        Instance(const Kind& of, const StepPlan& plan, Seconds begin, bool top_clock)
            : kind{&of},
              serves_from{begin},
              policy{std::make_unique<ExchangedPlan>(plan)},
              top{of.board.clocks().back()},
              engine{of.board,       top_clock ? static_cast<ClockPolicy&>(top) : *policy,
                     of.limits,      LatencyTargets{},
                     Seconds{0.006}, nullptr,
                     begin} {}
        const Kind* kind;
        Seconds serves_from;
        std::unique_ptr<ExchangedPlan> policy;
        FixedClock top;
        ServingEngine<RooflineBoard> engine;
    };
    using Place = std::list<Instance>::iterator;

    [[nodiscard]] const StepPlan& plan(const PoolDecision& decision,
                                       std::optional<std::uint32_t> parallelism = {}) const {
        return kinds_->at(parallelism.value_or(decision.parallelism)).plans.at(decision.policy);
    }
    /// Instances of a parallelism; with a time, those that serve by then.
    [[nodiscard]] std::uint32_t count(std::uint32_t parallelism, const Seconds* by) const {
        std::uint32_t found = 0;
        for (const Instance& instance : instances_)
            if (instance.kind->board.parallelism == parallelism &&
                (by == nullptr || instance.serves_from <= *by))
                ++found;
        return found;
    }
    /// The one that starts last, else the one with the least to do.
    void drop_one(std::uint32_t parallelism, Seconds now) {
        auto least = instances_.end();
        const auto rank = [&](const Instance& of) {
            return std::pair{-std::max(of.serves_from, now).count(), of.engine.load()};
        };
        for (auto it = instances_.begin(); it != instances_.end(); ++it)
            if (it->kind->board.parallelism == parallelism &&
                (least == instances_.end() || rank(*it) < rank(*least)))
                least = it;
        if (count(parallelism, &now) > 1 || least->serves_from > now) drop(least, now);
    }
    /// Ends its answers; then it is off.
    Place drop(Place it, Seconds now) {
        const std::uint32_t boards = it->kind->board.parallelism;
        const bool was_there = it->serves_from == Seconds{0};
        const Seconds asked = it->serves_from - (was_there ? Seconds{0} : physics_.start);
        const Seconds started = std::min(now, it->serves_from) - asked;
        run_.counts.energy += physics_.starting * (started * static_cast<double>(boards));
        Seconds off = now;
        if (it->serves_from <= now) {
            it->engine.advance(now);
            it->engine.drain();
            off = it->engine.now();
            run_.counts += it->engine.counts();
        }
        run_.board_seconds += (off - asked).count() * boards;
        return instances_.erase(it);
    }

    const std::map<std::uint32_t, Kind>* kinds_;
    PoolControlOptions physics_;
    bool top_clock_;
    Seconds last_arrival_{0};
    std::list<Instance> instances_;
    PoolRun run_;
};

/// Measures pools of up to `most` instances under requests that have nothing to do with the trace
/// that they will serve, and makes the step plans of the kinds.
/// @param requests_each point is measured with
inline std::vector<PoolPoint> measure_pools(std::map<std::uint32_t, Kind>& kinds,
                                            std::uint32_t most, double requests_each) {
    const WorkOf work;
    const double each = work(1000, 200);
    std::vector<PoolPoint> points;
    for (auto& [parallelism, kind] : kinds) {
        ClusterOptions cluster;
        cluster.limits = kind.limits;
        const auto top = [&kind = kind] {
            return std::make_unique<FixedClock>(kind.board.clocks().back());
        };
        StepLoad load{StepBuckets{ordinary_steps()}};
        cluster.boards = 1;
        serve_trace(kind.board, made_up_requests(Seconds{600}, 0.5 * parallelism / each, 1),
                    cluster, top, &load);
        for (const StepPolicy policy : {StepPolicy::no_harm, StepPolicy::by_step})
            kind.plans.emplace(policy, make_step_plan(kind.table, load, {policy}));
        for (std::uint32_t n = 1; n * parallelism <= most; ++n) {
            cluster.boards = n;
            for (const auto& [policy, plan] : kind.plans) {
                for (double used = 0.1; used < 3; used += used < 0.55 ? 0.15 : 0.05) {
                    const double arriving = used * n * parallelism;
                    const Seconds seconds{requests_each * each / arriving};
                    const auto requests = made_up_requests(seconds, arriving / each, n);
                    const ServingCounts counts = serve_trace(
                        kind.board, requests, cluster,
                        [&plan = plan] { return std::make_unique<PlannedClocks>(plan); });
                    const double late = 1 - 0.01 * counts.first_tokens_pct();
                    points.push_back({parallelism, n, policy, arriving, counts.energy / seconds,
                                      std::max(late, 1 - 0.01 * counts.gaps_pct())});
                    if (late > 0.3) break;
                }
            }
        }
    }
    return points;
}

/// Work of a trace by window, each answer counted for as long as the mean of those before it:
/// nobody knows an answer's length before its end.
class ArrivingWork {
public:
    double operator()(const Request& request) {
        const double expected = answers_ / count_;
        answers_ += request.answer_tokens;
        ++count_;
        return work_(request.prompt_tokens, expected);
    }

private:
    WorkOf work_;
    double answers_ = 200;
    double count_ = 1;
};

/// Serves a trace; `decide(window, pool)` says how the pool is to be from the end of each window
/// on.
template <class Decide, class Arrived>
PoolRun serve(Pool pool, std::span<const Request> requests, Seconds window, Decide decide,
              Arrived arrived) {
    std::size_t ended = 0;
    for (const Request& request : requests) {
        for (; request.arrival >= window * static_cast<double>(ended + 1); ++ended)
            pool.apply(decide(ended, pool), window * static_cast<double>(ended + 1));
        arrived(request);
        pool.submit(request);
    }
    return pool.finish();
}

inline PoolRun serve_constant(const std::map<std::uint32_t, Kind>& kinds,
                              std::span<const Request> requests, const PoolDecision& pool,
                              bool top_clock) {
    return led_pool::serve(
        Pool{kinds, {}, pool, top_clock}, requests, Seconds{1e9},
        [&](std::size_t, const Pool&) { return pool; }, [](const Request&) {});
}

/// The fewest boards, always on at the top clock, that keep the target: what pools are compared
/// with.
inline std::pair<std::uint32_t, PoolRun> fewest_constant(const std::map<std::uint32_t, Kind>& kinds,
                                                         std::span<const Request> requests,
                                                         double late) {
    for (std::uint32_t n = 1;; ++n) {
        PoolRun run = serve_constant(kinds, requests, {1, n, StepPolicy::no_harm, 0, 0}, true);
        if (run.counts.first_tokens_pct() >= 100 * (1 - late)) return {n, std::move(run)};
    }
}

inline PoolRun serve_led(const std::map<std::uint32_t, Kind>& kinds,
                         std::span<const Request> requests, PoolController& controller,
                         const PoolControlOptions& options) {
    ArrivingWork work;
    std::pair<std::uint64_t, std::uint64_t> before{0, 0};
    return led_pool::serve(
        Pool{kinds, options, controller.current()}, requests, options.window,
        [&](std::size_t ended, Pool& pool) {
            const auto now = pool.answered(options.window * static_cast<double>(ended + 1));
            for (; before.second < now.second; ++before.second, ++before.first)
                controller.answered(true);
            for (; before.first < now.first; ++before.first) controller.answered(false);
            return controller.window_ended();
        },
        [&](const Request& request) { controller.arrived(work(request)); });
}

/// Plans that know the future, with the same instances, starts and step plans. Windows need the
/// work that really arrives in them, over a margin that is found for this very trace: the cheapest
/// whose first tokens are no more than `points` below those of the baseline. Between windows the
/// least power and starts are chosen by dynamic programming.
class KnownFuture {
public:
    KnownFuture(const std::map<std::uint32_t, Kind>& kinds, std::span<const Request> requests,
                const std::vector<PoolPoint>& profile, const PoolControlOptions& options,
                const PoolDecision& first)
        : kinds_{&kinds}, requests_{requests}, options_{options}, first_{first} {
        PoolCapacity capacity{profile, options.late};
        for (const PoolCapacity::Kind& kind : capacity.kinds())
            if (kind.pool.parallelism == first.parallelism) pools_.push_back(kind);
        const WorkOf work;
        for (const Request& request : requests) {
            const auto window = static_cast<std::size_t>(request.arrival / options.window);
            if (window >= work_.size()) work_.resize(window + 1);
            work_[window] +=
                work(request.prompt_tokens, request.answer_tokens) / options.window.count();
        }
    }

    [[nodiscard]] PoolRun cheapest(double least_first_tokens_pct) const {
        std::optional<PoolRun> best;
        for (double margin = 0.6; margin < 2; margin *= 1.06) {
            PoolRun run = run_with(margin);
            if (run.counts.first_tokens_pct() < least_first_tokens_pct) continue;
            if (!best || run.counts.energy < best->counts.energy) best = std::move(run);
        }
        return best.value_or(PoolRun{});
    }

private:
    [[nodiscard]] PoolRun run_with(double margin) const {
        const std::vector<std::size_t> chosen = schedule(margin);
        const auto ahead = static_cast<std::size_t>(std::ceil(options_.start / options_.window));
        return led_pool::serve(
            Pool{*kinds_, options_, first_}, requests_, options_.window,
            [&](std::size_t ended, const Pool&) {
                const std::size_t now = std::min(ended + 1, chosen.size() - 1);
                PoolDecision decision = pools_[chosen[now]].pool;
                for (std::size_t w = now; w < chosen.size() && w <= now + ahead; ++w)
                    decision.instances =
                        std::max(decision.instances, pools_[chosen[w]].pool.instances);
                return decision;
            },
            [](const Request&) {});
    }

    /// The pool of each window, as an index into `pools_`.
    [[nodiscard]] std::vector<std::size_t> schedule(double margin) const {
        const double start = (options_.starting * options_.start).count;
        std::vector<std::vector<std::size_t>> from(work_.size());
        std::vector<double> cost;
        for (const PoolCapacity::Kind& pool : pools_)
            cost.push_back(start * more(first_.instances, pool.pool.instances));
        for (std::size_t w = 0; w < work_.size(); ++w) {
            std::vector<double> next(pools_.size(), std::numeric_limits<double>::infinity());
            from[w].resize(pools_.size());
            for (std::size_t p = 0; p < pools_.size(); ++p) {
                const bool is_largest = pools_[p].pool.instances == largest();
                if (pools_[p].most < work_[w] * margin && !is_largest) continue;
                const double here = (pools_[p].power(work_[w]) * options_.window).count;
                for (std::size_t q = 0; q < pools_.size(); ++q) {
                    const double starts =
                        w == 0 ? 0 : more(pools_[q].pool.instances, pools_[p].pool.instances);
                    const double total = cost[q] + here + start * starts;
                    if (total >= next[p]) continue;
                    next[p] = total;
                    from[w][p] = q;
                }
            }
            cost = std::move(next);
        }
        std::vector<std::size_t> chosen(work_.size());
        auto at =
            static_cast<std::size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
        for (std::size_t w = work_.size(); w-- > 0; at = from[w][at]) chosen[w] = at;
        return chosen;
    }
    static double more(std::uint32_t before, std::uint32_t after) {
        return after > before ? after - before : 0;
    }
    [[nodiscard]] std::uint32_t largest() const {
        std::uint32_t most = 0;
        for (const PoolCapacity::Kind& pool : pools_) most = std::max(most, pool.pool.instances);
        return most;
    }

    const std::map<std::uint32_t, Kind>* kinds_;
    std::span<const Request> requests_;
    PoolControlOptions options_;
    PoolDecision first_;
    std::vector<PoolCapacity::Kind> pools_;
    std::vector<double> work_;  ///< by window, seconds a second
};

/// A led pool beside the fewest boards that are always on, and beside plans that know the future.
struct Comparison {
    std::uint32_t boards = 0;  ///< of the baseline
    PoolRun baseline;          ///< at the top clock
    PoolRun constant;          ///< as many with the step plan
    PoolRun led;
    PoolRun known;

    [[nodiscard]] double energy_pct(const PoolRun& run) const {
        return 100 * (run.counts.energy / baseline.counts.energy - 1);
    }
    [[nodiscard]] double points(const PoolRun& run) const {
        return run.counts.first_tokens_pct() - baseline.counts.first_tokens_pct();
    }
};

inline Comparison compare(const std::map<std::uint32_t, Kind>& kinds,
                          const std::vector<PoolPoint>& profile, std::span<const Request> requests,
                          const PoolControlOptions& options) {
    Comparison made;
    std::tie(made.boards, made.baseline) = fewest_constant(kinds, requests, options.late);
    const PoolDecision first{1, made.boards, StepPolicy::by_step, 0, 0};
    made.constant = serve_constant(kinds, requests, first, false);
    PoolController controller{profile, options, first};
    made.led = serve_led(kinds, requests, controller, options);
    made.known = KnownFuture{kinds, requests, profile, options, first}.cheapest(
        made.baseline.counts.first_tokens_pct() - 0.5);
    return made;
}

}  // namespace led_pool
