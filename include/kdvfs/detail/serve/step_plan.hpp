// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/serve/step_plan.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace kdvfs::inline v0_3::serve {

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
        plan.late_first_tokens_ = targets_.late_first_tokens;
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
                std::min(shape.context_tokens, most.context_tokens),
                std::min(shape.prompt_context, most.prompt_context)};
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
            return kdvfs::io::format_text("%.3g ms", time.count() * 1e3);
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

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE Seconds raised_time(Seconds at_first, Seconds at_last, Seconds latency) {
    if (at_first <= latency) return at_first;
    return latency + at_last * (1 - latency / at_first);
}

KDVFS_INLINE StepDecision StepPlan::decide(StepShape shape, Seconds slack,
                                           Megahertz floor) const noexcept {
    return clocks_.decide(shape, slack, floor);
}

KDVFS_INLINE Megahertz StepPlan::clock(std::size_t bucket) const {
    return clocks_.entries[bucket].clock;
}

KDVFS_INLINE Seconds StepPlan::delay(std::size_t bucket) const {
    return std::max(clocks_.entries[bucket].delay, Seconds{0});
}

KDVFS_INLINE StepPlan::StepPlan(StepTable table, StepBuckets buckets) : table_{std::move(table)} {
    clocks_.buckets = std::move(buckets);
    clocks_.entries.resize(clocks_.buckets.size());
    clocks_.largest = table_.largest();
    clocks_.top = table_.clocks().back();
    clocks_.is_urgent = true;
}

KDVFS_INLINE void StepPlan::use_one_clock(std::string reason) {
    reason_ = std::move(reason);
    clocks_.is_urgent = false;
}

KDVFS_INLINE StepPlan make_step_plan(const StepTable& table, const StepLoad& load,
                                     const StepTargets& targets) {
    const auto reject = [](const char* what, const char* remedy) {
        throw Error{Errc::invalid_input, {"plan the clocks of steps", what, "", remedy}};
    };
    if (!(targets.gap.count() > 0)) reject("token gap", "give a positive time");
    if (!(targets.switch_latency.count() >= 0) || !std::isfinite(targets.switch_latency.count()))
        reject("switching latency", "give a time of at least 0");
    if (!(targets.gap_share >= 0 && targets.gap_share <= 1))
        reject("share of tokens that keep the gap", "give a share between 0 and 1");
    if (!(targets.late_first_tokens >= 0 && targets.late_first_tokens <= 1))
        reject("share of first tokens that may be late", "give a share between 0 and 1");
    double steps = 0;
    for (std::size_t bucket = 0; bucket < load.buckets().size(); ++bucket)
        steps += load.steps(bucket);
    if (steps == 0) reject("load", "record steps for some minutes at the top clock");
    return detail::StepPlanner{table, load, targets}.make();
}

KDVFS_INLINE StepPlan own_clock_plan(StepBuckets buckets) {
    const Cost unknown{Seconds{1}, Joules{1}};  // of one token: what lies beyond is never asked for
    StepPlan plan{StepTable{{{Phase::prefill, 1, 1, auto_clock, unknown},
                             {Phase::decode, 1, 1, auto_clock, unknown}}},
                  std::move(buckets)};
    plan.policy_ = StepPolicy::one_clock;
    plan.use_one_clock("the board's own clock was asked for");
    return plan;
}

KDVFS_INLINE StepDecision StepClocks::decide(StepShape shape, Seconds slack) noexcept {
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

KDVFS_INLINE Seconds StepClocks::most_lag() const noexcept {
    return std::min(nearby * (late_share * plan_->late_first_tokens() / near_), Seconds{0.2});
}

KDVFS_INLINE void StepClocks::begin_decode() noexcept {
    // Where prompts queue, a delay is passed on to all behind; elsewhere gaps take it up.
    const double passed_on = std::min(lately_near_ / queued, 1.0);
    const double share = plan_->late_first_tokens();
    const double allowed = decode_share * share + std::max(saved_up_, 0.0) * spent_at_once;
    saved_up_ = std::min(saved_up_ + decode_share * share, most_saved_up * share);
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

KDVFS_INLINE FirstTokenSlack::FirstTokenSlack(const StepPlan& plan, std::uint32_t sequences,
                                              std::uint32_t context_tokens)
    : plan_{plan}, sequences_{sequences}, context_{context_tokens} {
    chunk_time_ = time_of(plan.chunk_tokens(), 0);
}

KDVFS_INLINE void FirstTokenSlack::prompt(std::uint32_t tokens_left, Seconds time_left,
                                          std::uint32_t tokens_read) {
    const std::uint32_t chunk = plan_.chunk_tokens();
    tokens_ += tokens_left;
    // The mean over its chunks.
    const std::uint32_t context = tokens_read + (tokens_left > chunk ? tokens_left - chunk : 0) / 2;
    until_ += (context == 0 ? chunk_time_ : time_of(chunk, context)) *
              (static_cast<double>(tokens_left) / chunk);
    const Seconds until =
        tokens_ < chunk ? std::max(until_, time_of(static_cast<std::uint32_t>(tokens_), context))
                        : until_;
    slack_ = std::min(slack_, time_left - until);
}

KDVFS_INLINE Seconds FirstTokenSlack::time_of(std::uint32_t tokens,
                                              std::uint32_t read_before) const {
    const auto cost = plan_.table().cost_at({tokens, sequences_, context_, read_before},
                                            plan_.table().clocks().size() - 1);
    // Unknown: no first token is taken to be in time.
    return cost ? cost->time : Seconds{std::numeric_limits<double>::infinity()};
}

#endif

}  // namespace kdvfs::inline v0_3::serve
