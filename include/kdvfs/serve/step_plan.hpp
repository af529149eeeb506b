// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_clocks.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// How clocks follow the steps of an engine.
enum class StepPolicy {
    one_clock,   ///< the most frugal one that keeps the token gap
    no_harm,     ///< top clock while prompts are in the batch, a low one in pure decode
    two_clocks,  ///< one clock for steps with prompts, one for pure decode
    by_step,     ///< a clock per bucket, the top clock where the slack of a first token is short
};

/// What a plan must keep, and what it may count on.
struct StepTargets {
    StepPolicy policy = StepPolicy::no_harm;
    Seconds gap{0.1};          ///< longest time between two tokens of a sequence
    double gap_share = 0.999;  ///< of the tokens that must keep it
    Seconds switch_latency{0.006};
    std::uint32_t chunk_tokens = 512;  ///< most prompt tokens of one step
};

/// How long a step takes that begins at one clock and is at another after the switching latency.
inline Seconds raised_time(Seconds at_first, Seconds at_last, Seconds latency) {
    if (at_first <= latency) return at_first;
    return latency + at_last * (1 - latency / at_first);
}

namespace detail {
class StepPlanner;
}

/// The clock of every bucket of steps. Constant after it was made: threads may share it.
class StepPlan {
public:
    /// What a step is to run at; `slack` is how much later than at the top clock the tightest
    /// first token of its prompts may come (FirstTokenSlack); no number counts as none. Allocates
    /// nothing, throws nothing.
    [[nodiscard]] StepDecision decide(StepShape shape, Seconds slack,
                                      Megahertz floor = {}) const noexcept {
        return clocks_.decide(shape, slack, floor);
    }
    /// What decides, as data.
    [[nodiscard]] const StepClockTable& clock_table() const { return clocks_; }

    /// Whether the plan has one clock for everything, and why; empty where it follows the phases.
    [[nodiscard]] const std::string& reason() const { return reason_; }
    [[nodiscard]] StepPolicy policy() const { return policy_; }
    [[nodiscard]] const StepBuckets& buckets() const { return clocks_.buckets; }
    [[nodiscard]] const StepTable& table() const { return table_; }
    [[nodiscard]] std::uint32_t chunk_tokens() const { return chunk_tokens_; }
    /// The clock of a bucket where there is time.
    [[nodiscard]] Megahertz clock(std::size_t bucket) const {
        return clocks_.entries[bucket].clock;
    }
    /// How much longer than at the top clock a bucket's steps take there; none for decode.
    [[nodiscard]] Seconds delay(std::size_t bucket) const {
        return std::max(clocks_.entries[bucket].delay, Seconds{0});
    }
    /// The clock of decode steps that nothing else raises, and of an idle board.
    [[nodiscard]] Megahertz idle_clock() const { return clocks_.idle; }
    /// A clock of decode steps, and how much later than at the top clock prompts begin that arrive
    /// in them, on average: for the raise, and for the step that runs.
    struct DecodeClock {
        Megahertz clock;
        Seconds delay{0};
    };
    /// From the clock of least energy up, without the top clock. The first that is affordable is a
    /// floor of decode steps.
    [[nodiscard]] const std::vector<DecodeClock>& decode_clocks() const { return decode_clocks_; }
    /// Slack that is never given away: another full chunk may arrive before the next step.
    [[nodiscard]] Seconds reserve() const { return clocks_.reserve; }

private:
    friend class detail::StepPlanner;
    friend StepPlan own_clock_plan(StepBuckets buckets);

    explicit StepPlan(StepTable table, StepBuckets buckets) : table_{std::move(table)} {
        clocks_.buckets = std::move(buckets);
        clocks_.entries.resize(clocks_.buckets.size());
        clocks_.largest = table_.largest();
        clocks_.top = table_.clocks().back();
        clocks_.is_urgent = true;
    }
    /// One clock for everything, and why.
    void use_one_clock(std::string reason) {
        reason_ = std::move(reason);
        clocks_.is_urgent = false;
    }

    StepTable table_;
    StepClockTable clocks_;
    StepPolicy policy_ = StepPolicy::no_harm;
    std::uint32_t chunk_tokens_ = 0;
    std::vector<DecodeClock> decode_clocks_;
    std::string reason_;
};

namespace detail {

/// Makes one plan.
class StepPlanner {
public:
    StepPlanner(const StepTable& table, const StepLoad& load, const StepTargets& targets)
        : table_{table}, load_{load}, targets_{targets}, top_{table.clocks().size() - 1} {
        for (std::size_t bucket = 0; bucket < load.buckets().size(); ++bucket)
            costs_.push_back(costs_of(clipped(load.buckets().corner(bucket))));
    }

    [[nodiscard]] StepPlan make() const {
        StepPlan plan{table_, load_.buckets()};
        plan.policy_ = targets_.policy;
        plan.chunk_tokens_ = targets_.chunk_tokens;
        plan.clocks_.reserve = longest_step_with_prompts();
        const auto low = targets_.policy == StepPolicy::one_clock ? std::nullopt
                         : only_prefill()                         ? prefill_clock()
                                                                  : low_clock();
        const std::string reason = targets_.policy == StepPolicy::one_clock
                                       ? "one clock was asked for"
                                       : why_one_clock(low);
        if (!reason.empty()) return with_one_clock(std::move(plan), reason);
        plan.clocks_.idle = table_.clocks()[*low];
        for (std::size_t clock = *low; clock < top_; ++clock)
            plan.decode_clocks_.push_back({table_.clocks()[clock], raise_delay(clock)});
        const std::size_t high =
            targets_.policy == StepPolicy::two_clocks ? high_clock(*low) : top_;
        plan.clocks_.entries = entries(*low, high, 1 - targets_.gap_share).clocks;
        // Rare steps may break the gap more often than all do, as long as all keep it.
        for (double share = 2 * (1 - targets_.gap_share); share < 1; share *= 2) {
            Entries bolder = entries(*low, high, share);
            if (bolder.late > may_be_late * (1 - targets_.gap_share)) break;
            plan.clocks_.entries = std::move(bolder.clocks);
        }
        return plan;
    }

private:
    using PerClock = std::vector<std::optional<Cost>>;

    /// A bucket reaches as far as the table does; what lies beyond is never decided by it.
    [[nodiscard]] StepShape clipped(StepShape shape) const {
        const StepShape most = table_.largest();
        return {std::min(shape.prompt_tokens, most.prompt_tokens),
                std::min(shape.sequences, most.sequences),
                std::min(shape.context_tokens, most.context_tokens)};
    }

    [[nodiscard]] PerClock costs_of(StepShape shape) const {
        PerClock costs;
        for (std::size_t clock = 0; clock <= top_; ++clock)
            costs.push_back(table_.cost_at(shape, clock));
        return costs;
    }

    [[nodiscard]] bool has_prompts(std::size_t bucket) const {
        return load_.buckets().corner(bucket).prompt_tokens > 0;
    }
    [[nodiscard]] bool known(std::size_t bucket, std::size_t clock) const {
        return costs_[bucket][clock] && costs_[bucket][top_];
    }
    [[nodiscard]] Seconds time(std::size_t bucket, std::size_t clock) const {
        return costs_[bucket][clock]->time;
    }
    [[nodiscard]] Seconds raised(std::size_t bucket, std::size_t from, std::size_t to) const {
        return raised_time(slowest(bucket, from), time(bucket, to), targets_.switch_latency);
    }
    /// What a step takes at most: where it was not measured, what it took at a higher clock, slowed
    /// down by the ratio of the clocks. A step never ran there, if a sweep kept the gap.
    [[nodiscard]] Seconds slowest(std::size_t bucket, std::size_t clock) const {
        if (costs_[bucket][clock]) return costs_[bucket][clock]->time;
        Seconds longest{std::numeric_limits<double>::infinity()};
        for (std::size_t above = clock + 1; above <= top_; ++above) {
            const auto& clocks = table_.clocks();
            if (!costs_[bucket][above] || clocks[above] == auto_clock) continue;
            longest = std::min(
                longest, costs_[bucket][above]->time * (static_cast<double>(clocks[above].count) /
                                                        static_cast<double>(clocks[clock].count)));
        }
        return longest;
    }

    /// A step's energy over that of the same time without work.
    [[nodiscard]] double energy(std::size_t bucket, std::size_t clock) const {
        const Cost& cost = *costs_[bucket][clock];
        return cost.energy.count -
               table_.idle_power(table_.clocks().front()).count * cost.time.count();
    }

    /// What a bucket runs at where `clock` is meant for it: the next one that it was measured at.
    [[nodiscard]] std::size_t measured_from(std::size_t bucket, std::size_t clock) const {
        while (clock < top_ && !known(bucket, clock)) ++clock;
        return clock;
    }

    /// The sum of `energy` over the load's buckets that `which` chooses. What is unknown at the
    /// top clock has no choice.
    template <class Which>
    [[nodiscard]] double load_energy(std::size_t clock, Which which) const {
        double sum = 0;
        for (std::size_t bucket = 0; bucket < costs_.size(); ++bucket) {
            if (load_.steps(bucket) == 0 || !which(bucket) || !costs_[bucket][top_]) continue;
            sum += load_.steps(bucket) * energy(bucket, measured_from(bucket, clock));
        }
        return sum;
    }
    [[nodiscard]] bool knows_load(std::size_t clock) const {
        for (std::size_t bucket = 0; bucket < costs_.size(); ++bucket)
            if (load_.steps(bucket) > 0 && costs_[bucket][top_] && !known(bucket, clock))
                return false;
        return true;
    }

    /// The share of a bucket's steps that break the gap, where its largest shape takes so long in
    /// the mean. Its steps are shorter, and vary.
    [[nodiscard]] double late_share(std::size_t bucket, Seconds largest) const {
        const bool seen = load_.steps(bucket) > 0 && costs_[bucket][top_];
        const double part = seen ? std::min(load_.mean_time(bucket) / time(bucket, top_), 1.0) : 1;
        return load_.spread().share_beyond(targets_.gap, largest * part);
    }
    /// Whether the load keeps the gap: decode at `low`, steps with prompts begun there, at `high`
    /// after the latency. A decode step that would break it may have a higher clock of its own.
    [[nodiscard]] bool keeps_gap(std::size_t low, std::size_t high) const {
        double all = 0, late = 0;
        for (std::size_t bucket = 0; bucket < costs_.size(); ++bucket) {
            const double tokens = load_.tokens(bucket);
            if (tokens == 0 || !costs_[bucket][top_]) continue;
            all += tokens;
            const std::size_t runs_at = measured_from(bucket, has_prompts(bucket) ? high : low);
            const Seconds longest =
                runs_at == low ? time(bucket, low) : raised(bucket, low, runs_at);
            late += tokens * late_share(bucket, longest);
        }
        return late <= (1 - targets_.gap_share) * all;
    }

    /// The most frugal clock of those that `allowed` admits.
    template <class Allowed, class Which>
    [[nodiscard]] std::optional<std::size_t> cheapest(Allowed allowed, Which which) const {
        std::optional<std::size_t> best;
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t clock = 0; clock <= top_; ++clock) {
            const double sum = load_energy(clock, which);
            if (!(sum < least) || !allowed(clock)) continue;
            best = clock;
            least = sum;
        }
        return best;
    }

    [[nodiscard]] std::optional<std::size_t> low_clock() const {
        return cheapest([&](std::size_t clock) { return keeps_gap(clock, top_); },
                        [&](std::size_t bucket) { return !has_prompts(bucket); });
    }
    /// Of an instance that only reads prompts: where first tokens have slack, the most frugal
    /// clock. No harm means the top clock.
    [[nodiscard]] std::optional<std::size_t> prefill_clock() const {
        if (targets_.policy != StepPolicy::by_step) return std::nullopt;
        return cheapest([](std::size_t) { return true; }, [](std::size_t) { return true; });
    }
    [[nodiscard]] std::size_t high_clock(std::size_t low) const {
        return cheapest([&](std::size_t clock) { return clock >= low && keeps_gap(low, clock); },
                        [&](std::size_t bucket) { return has_prompts(bucket); })
            .value_or(top_);
    }

    // Instances of disaggregated engines have one phase: there is no raise between phases.
    [[nodiscard]] bool only_decode() const { return load_.prompt_phase() == Seconds{0}; }
    [[nodiscard]] bool only_prefill() const { return load_.decode_phase() == Seconds{0}; }

    [[nodiscard]] std::string why_one_clock(std::optional<std::size_t> low) const {
        const auto ms = [](Seconds time) {
            char text[32];
            std::snprintf(text, sizeof text, "%.3g ms", time.count() * 1e3);
            return std::string{text};
        };
        const Seconds shortest = std::min(load_.prompt_phase(), load_.decode_phase());
        if (shortest > Seconds{0} && shortest < targets_.switch_latency * 3)
            return "phases last " + ms(shortest) + ", less than three switching latencies of " +
                   ms(targets_.switch_latency);
        if (!keeps_gap(top_, top_))
            return "not even the top clock keeps a token gap of " + ms(targets_.gap);
        if (top_ == 0) return "the table has no other clock";
        if (only_prefill() && !low) return "only prompts were seen, which run at the top clock";
        if (low && *low == top_ && keeps_gap(top_ - 1, top_))
            return std::string{"no clock of the table needs less energy for "} +
                   (only_prefill() ? "prompts" : "decode");
        if (!low || *low == top_)
            return "raises take " + ms(targets_.switch_latency) + ", too long for a token gap of " +
                   ms(targets_.gap);
        return "";
    }

    /// No harm means the top clock, where it cannot mean two.
    [[nodiscard]] StepPlan with_one_clock(StepPlan plan, const std::string& reason) const {
        plan.use_one_clock(reason);
        const auto best = cheapest(
            [&](std::size_t clock) { return knows_load(clock) && keeps_gap(clock, clock); },
            [](std::size_t) { return true; });
        const bool stay = targets_.policy == StepPolicy::no_harm;
        plan.clocks_.idle = table_.clocks()[stay ? top_ : best.value_or(top_)];
        for (auto& entry : plan.clocks_.entries)
            entry = {plan.clocks_.idle, -Seconds{std::numeric_limits<double>::infinity()}};
        return plan;
    }

    struct Entries {
        std::vector<StepClockTable::Entry> clocks{};
        double late = 0;  ///< share of the load's tokens that break the gap
    };
    /// @param share of a bucket's tokens that may break the gap
    [[nodiscard]] Entries entries(std::size_t low, std::size_t high, double share) const {
        const Seconds never = -Seconds{std::numeric_limits<double>::infinity()};
        Entries found;
        double all = 0;
        for (std::size_t bucket = 0; bucket < costs_.size(); ++bucket) {
            const bool prompts = has_prompts(bucket);
            const bool by_step = targets_.policy == StepPolicy::by_step;
            const std::size_t clock = !prompts  ? decode_clock(bucket, low, share)
                                      : by_step ? prompt_clock(bucket, low, share)
                                                : measured_from(bucket, high);
            const bool waits = prompts && by_step && clock != top_;
            found.clocks.push_back(
                {table_.clocks()[clock],
                 waits ? raised(bucket, low, clock) - raised(bucket, low, top_) : never});
            const double tokens = load_.tokens(bucket);
            if (tokens == 0 || !costs_[bucket][top_]) continue;
            all += tokens;
            found.late += tokens * late_share(bucket, begun_low(bucket, low, clock));
        }
        found.late /= std::max(all, 1.0);
        return found;
    }
    /// A step's time at a clock; one with prompts begins at the low one.
    [[nodiscard]] Seconds begun_low(std::size_t bucket, std::size_t low, std::size_t clock) const {
        return has_prompts(bucket) ? raised(bucket, low, clock) : time(bucket, clock);
    }

    [[nodiscard]] std::size_t decode_clock(std::size_t bucket, std::size_t low,
                                           double share) const {
        for (std::size_t clock = low; clock < top_; ++clock)
            if (known(bucket, clock) && late_share(bucket, time(bucket, clock)) <= share)
                return clock;
        return top_;
    }

    [[nodiscard]] std::size_t prompt_clock(std::size_t bucket, std::size_t low,
                                           double share) const {
        std::size_t best = top_;
        for (std::size_t clock = top_; clock-- > low;) {
            if (!known(bucket, clock)) continue;
            const bool gap_kept = load_.buckets().corner(bucket).sequences == 0 ||
                                  late_share(bucket, raised(bucket, low, clock)) <= share;
            if (gap_kept && energy(bucket, clock) < energy(bucket, best)) best = clock;
        }
        return best;
    }

    /// Nothing where decode and prompts do not meet.
    [[nodiscard]] Seconds raise_delay(std::size_t low) const {
        if (only_decode() || only_prefill()) return Seconds{0};
        Seconds prompts{0}, decode{0};
        double prompt_steps = 0, decode_steps = 0;
        for (std::size_t bucket = 0; bucket < costs_.size(); ++bucket) {
            const double steps = load_.steps(bucket);
            if (steps == 0 || !known(bucket, top_)) continue;
            if (has_prompts(bucket)) {
                prompts += (raised(bucket, low, top_) - time(bucket, top_)) * steps;
                prompt_steps += steps;
            } else if (known(bucket, low)) {
                // A prompt arrives halfway through a step on average.
                decode += (time(bucket, low) - time(bucket, top_)) * (steps / 2);
                decode_steps += steps;
            }
        }
        const auto mean = [](Seconds sum, double count) {
            return count > 0 ? sum / count : Seconds{0};
        };
        return mean(prompts, prompt_steps) + mean(decode, decode_steps);
    }

    [[nodiscard]] Seconds longest_step_with_prompts() const {
        Seconds longest{0};
        for (std::size_t bucket = 0; bucket < costs_.size(); ++bucket)
            if (load_.steps(bucket) > 0 && has_prompts(bucket) && known(bucket, top_))
                longest = std::max(longest, time(bucket, top_));
        return longest;
    }

    /// Of the late tokens that there may be, what a plan counts on: loads differ.
    static constexpr double may_be_late = 0.5;

    const StepTable& table_;
    const StepLoad& load_;
    StepTargets targets_;
    std::size_t top_;
    std::vector<PerClock> costs_;  ///< of each bucket's largest shape, by clock
};

}  // namespace detail

/// Chooses clocks by phase from what steps cost and which steps the load is made of. The token gap
/// is kept first, energy is saved second. Where a raise would come too late for the gap, or phases
/// are shorter than three switching latencies, the plan has one clock and `reason()` says why: for
/// `no_harm` the top clock, else the most frugal one that keeps the gap. A load of one phase is
/// that of an instance that only decodes, or only reads prompts. The first gets the most frugal
/// clock that keeps the gap, whatever the policy; the second a low clock with `by_step` alone.
/// @throws Error (invalid_input) where targets make no sense or the load is empty
inline StepPlan make_step_plan(const StepTable& table, const StepLoad& load,
                               const StepTargets& targets) {
    const auto reject = [](const char* what, const char* remedy) {
        throw Error{Errc::invalid_input, {"plan the clocks of steps", what, "", remedy}};
    };
    if (!(targets.gap.count() > 0)) reject("token gap", "give a positive time");
    if (!(targets.switch_latency.count() >= 0) || !std::isfinite(targets.switch_latency.count()))
        reject("switching latency", "give a time of at least 0");
    if (!(targets.gap_share >= 0 && targets.gap_share <= 1))
        reject("share of tokens that keep the gap", "give a share between 0 and 1");
    double steps = 0;
    for (std::size_t bucket = 0; bucket < load.buckets().size(); ++bucket)
        steps += load.steps(bucket);
    if (steps == 0) reject("load", "record steps for some minutes at the top clock");
    return detail::StepPlanner{table, load, targets}.make();
}

/// Leaves every step to the board's own clock: for counting and metering the steps of an engine
/// that has no step table yet, and for GPUs that are only measured.
inline StepPlan own_clock_plan(StepBuckets buckets = StepBuckets{}) {
    const Cost unknown{Seconds{1}, Joules{1}};  // of one token: what lies beyond is never asked for
    StepPlan plan{StepTable{{{Phase::prefill, 1, 1, auto_clock, unknown},
                             {Phase::decode, 1, 1, auto_clock, unknown}}},
                  std::move(buckets)};
    plan.policy_ = StepPolicy::one_clock;
    plan.use_one_clock("the board's own clock was asked for");
    return plan;
}

/// Decides the clocks of one engine's steps by a plan, and limits what first tokens may lose by it.
/// Relaxed steps put off all prompts that come before the engine has caught up; how far it is
/// behind is the sum of their delays since its last step without prompts. Decode steps at a low
/// clock put off the prompts that arrive during them (`StepPlan::decode_clocks`). The share of
/// first tokens that come too late for a delay is the delay times the density of slacks near none,
/// which is counted: both are kept so short that this share stays near 0.1 % at most. The higher of
/// the low clocks save most of what the lowest does, and delay a fraction. A function of the shapes
/// and slacks so far. Not thread-safe; refers to the plan.
class StepClocks {
public:
    explicit StepClocks(const StepPlan& plan) : plan_{&plan} {}

    /// As `StepPlan::decide`, for the step that follows the one before.
    [[nodiscard]] StepDecision decide(StepShape shape, Seconds slack) noexcept {
        const StepDecision decision = plan_->decide(shape, slack);
        if (!plan_->reason().empty()) return decision;
        if (shape.prompt_tokens == 0) {
            lag_ = Seconds{0};
            if (std::exchange(after_prompts_, false)) begin_decode();
            return is_low_ ? plan_->decide(shape, slack, floor_) : plan_->decide(shape, none);
        }
        after_prompts_ = true;
        const double is_near = slack < nearby ? 1 : 0;
        near_ += (is_near - near_) / remembered;
        lately_near_ += (is_near - lately_near_) / lately;
        lately_tight_ += ((slack > Seconds{0} ? is_near : 0) - lately_tight_) / lately;
        const Seconds delay = plan_->delay(plan_->buckets().bucket(shape));
        if (decision.urgent || delay == Seconds{0}) return decision;
        if (lag_ + delay > most_lag()) return plan_->decide(shape, none);
        lag_ += delay;
        return decision;
    }
    /// The engine has nothing to do: it has caught up.
    void rest() noexcept { lag_ = Seconds{0}; }

    /// How long prompts may be put off now.
    [[nodiscard]] Seconds most_lag() const noexcept {
        return std::min(nearby * (late_share / near_), Seconds{0.2});
    }

    /// The lowest clock of decode steps now.
    [[nodiscard]] Megahertz floor() const noexcept { return floor_; }

    /// The slack that makes any step urgent.
    static constexpr Seconds none{std::numeric_limits<double>::quiet_NaN()};

private:
    /// A stretch of decode steps is at low clocks while such stretches, on average, make no more
    /// first tokens late than they may.
    void begin_decode() noexcept {
        // Where prompts queue, a delay is passed on to all behind; elsewhere gaps take it up.
        const double passed_on = std::min(lately_near_ / queued, 1.0);
        const double allowed = decode_share + std::max(saved_up_, 0.0) * spent_at_once;
        saved_up_ = std::min(saved_up_ + decode_share, most_saved_up);
        is_low_ = plan_->decode_clocks().empty();
        for (const StepPlan::DecodeClock& each : plan_->decode_clocks()) {
            const double late = each.delay / nearby * lately_tight_ * passed_on;
            if (late > allowed) continue;
            is_low_ = true;
            floor_ = each.clock;
            saved_up_ -= late;
            return;
        }
    }

    static constexpr double late_share = 0.0018;  ///< of first tokens, too late for a relaxed step
    /// Likewise for decode. It is counted by stretch: those before many prompts make more late.
    static constexpr double decode_share = 0.00012;
    static constexpr double queued = 0.1;          ///< share of short slacks at which prompts queue
    static constexpr double remembered = 1000;     ///< steps with prompts, a few minutes of them
    static constexpr double lately = 200;          ///< likewise, for the clock of decode
    static constexpr Seconds nearby{0.15};         ///< slacks below count as near none
    static constexpr double most_saved_up = 0.04;  ///< late first tokens, of a hundred stretches
    static constexpr double spent_at_once = 0.02;  ///< share of them that a stretch may use

    const StepPlan* plan_;
    Seconds lag_{0};
    double near_ = 0.05;  ///< share of steps whose slack is near none: at first, that of a busy one
    double lately_near_ = 0.05;
    double lately_tight_ = 0.01;  ///< share of those that can still be made late
    double saved_up_ = 0.01;
    bool after_prompts_ = false;
    bool is_low_ = true;
    Megahertz floor_{};  ///< of decode steps
};

/// How much later than at the top clock the first tokens of waiting prompts may come, prompt by
/// prompt in the order in which they are read. Allocates nothing. For one step, one thread.
class FirstTokenSlack {
public:
    /// `sequences` of `context_tokens` are decoded beside the prompts.
    FirstTokenSlack(const StepPlan& plan, std::uint32_t sequences, std::uint32_t context_tokens)
        : plan_{plan}, sequences_{sequences}, context_{context_tokens} {
        chunk_time_ = time_of(plan.chunk_tokens());
    }

    /// The next prompt: tokens still to read, and the time left until its first token is due.
    void prompt(std::uint32_t tokens_left, Seconds time_left) {
        tokens_ += tokens_left;
        const double chunks = static_cast<double>(tokens_) / plan_.chunk_tokens();
        Seconds until = chunk_time_ * chunks;
        if (tokens_ < plan_.chunk_tokens())
            until = std::max(until, time_of(static_cast<std::uint32_t>(tokens_)));
        slack_ = std::min(slack_, time_left - until);
    }

    /// Infinite before the first prompt.
    [[nodiscard]] Seconds value() const { return slack_; }

private:
    [[nodiscard]] Seconds time_of(std::uint32_t tokens) const {
        const auto cost = plan_.table().cost_at({tokens, sequences_, context_},
                                                plan_.table().clocks().size() - 1);
        // Unknown: no first token is taken to be in time.
        return cost ? cost->time : Seconds{std::numeric_limits<double>::infinity()};
    }

    const StepPlan& plan_;
    std::uint32_t sequences_;
    std::uint32_t context_;
    std::uint64_t tokens_ = 0;
    Seconds chunk_time_{0};
    Seconds slack_{std::numeric_limits<double>::infinity()};
};

}  // namespace kdvfs::inline v0_3::serve
