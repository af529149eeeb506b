// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/serve/step_clocks.hpp>
#include <kdvfs/serve/step_table.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
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
    /// Share of first tokens that may be late beside those late at the top clock. With `gap_share`:
    /// requests within both their targets fall by this share at most, where gaps are kept.
    double late_first_tokens = 0.001;
};

/// How long a step takes that begins at one clock and is at another after the switching latency.
KDVFS_INLINE Seconds raised_time(Seconds at_first, Seconds at_last, Seconds latency);

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
                                      Megahertz floor = {}) const noexcept;
    /// What decides, as data.
    [[nodiscard]] const StepClockTable& clock_table() const { return clocks_; }

    /// Whether the plan has one clock for everything, and why; empty where it follows the phases.
    [[nodiscard]] const std::string& reason() const { return reason_; }
    [[nodiscard]] StepPolicy policy() const { return policy_; }
    [[nodiscard]] const StepBuckets& buckets() const { return clocks_.buckets; }
    [[nodiscard]] const StepTable& table() const { return table_; }
    [[nodiscard]] std::uint32_t chunk_tokens() const { return chunk_tokens_; }
    /// The clock of a bucket where there is time.
    [[nodiscard]] Megahertz clock(std::size_t bucket) const;
    /// How much longer than at the top clock a bucket's steps take there; none for decode.
    [[nodiscard]] Seconds delay(std::size_t bucket) const;
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
    /// Of `StepTargets`.
    [[nodiscard]] double late_first_tokens() const { return late_first_tokens_; }

private:
    friend class detail::StepPlanner;
    friend StepPlan own_clock_plan(StepBuckets buckets);

    explicit StepPlan(StepTable table, StepBuckets buckets);
    /// One clock for everything, and why.
    void use_one_clock(std::string reason);

    StepTable table_;
    StepClockTable clocks_;
    StepPolicy policy_ = StepPolicy::no_harm;
    std::uint32_t chunk_tokens_ = 0;
    double late_first_tokens_ = 0.001;
    std::vector<DecodeClock> decode_clocks_;
    std::string reason_;
};

/// Chooses clocks by phase from what steps cost and which steps the load is made of. The token gap
/// is kept first, energy is saved second. Where a raise would come too late for the gap, or phases
/// are shorter than three switching latencies, the plan has one clock and `reason()` says why: for
/// `no_harm` the top clock, else the most frugal one that keeps the gap. A load of one phase is
/// that of an instance that only decodes, or only reads prompts. The first gets the most frugal
/// clock that keeps the gap, whatever the policy; the second a low clock with `by_step` alone.
/// @throws Error (invalid_input) where targets make no sense or the load is empty
KDVFS_INLINE StepPlan make_step_plan(const StepTable& table, const StepLoad& load,
                                     const StepTargets& targets);

/// Leaves every step to the board's own clock: for counting and metering the steps of an engine
/// that has no step table yet, and for GPUs that are only measured.
KDVFS_INLINE StepPlan own_clock_plan(StepBuckets buckets = StepBuckets{});

/// Decides the clocks of one engine's steps by a plan, and limits what first tokens may lose by it.
/// Relaxed steps put off all prompts that come before the engine has caught up; how far it is
/// behind is the sum of their delays since its last step without prompts. Decode steps at a low
/// clock put off the prompts that arrive during them (`StepPlan::decode_clocks`). The share of
/// first tokens that come too late for a delay is the delay times the density of slacks near none,
/// which is counted: both are kept so short that this share stays near what it may be. The higher
/// of the low clocks save most of what the lowest does, and delay a fraction. A function of the
/// shapes and slacks so far. Not thread-safe; refers to the plan.
class StepClocks {
public:
    explicit StepClocks(const StepPlan& plan)
        : plan_{&plan}, saved_up_{10 * plan.late_first_tokens()} {}

    /// As `StepPlan::decide`, for the step that follows the one before.
    [[nodiscard]] StepDecision decide(StepShape shape, Seconds slack) noexcept;
    /// The engine has nothing to do: it has caught up.
    void rest() noexcept { lag_ = Seconds{0}; }

    /// How long prompts may be put off now.
    [[nodiscard]] Seconds most_lag() const noexcept;

    /// The lowest clock of decode steps now.
    [[nodiscard]] Megahertz floor() const noexcept { return floor_; }

    /// The slack that makes any step urgent.
    static constexpr Seconds none{std::numeric_limits<double>::quiet_NaN()};

private:
    /// A stretch of decode steps is at low clocks while such stretches, on average, make no more
    /// first tokens late than they may.
    void begin_decode() noexcept;

    /// Of the first tokens that may be late: those of relaxed steps. Not all that are put off miss.
    static constexpr double late_share = 1.8;
    /// Likewise for decode. It is counted by stretch: those before many prompts make more late.
    static constexpr double decode_share = 0.12;
    static constexpr double queued = 0.1;          ///< share of short slacks at which prompts queue
    static constexpr double remembered = 1000;     ///< steps with prompts, a few minutes of them
    static constexpr double lately = 200;          ///< likewise, for the clock of decode
    static constexpr Seconds nearby{0.15};         ///< slacks below count as near none
    static constexpr double most_saved_up = 40;    ///< shares that may be late
    static constexpr double spent_at_once = 0.02;  ///< share of them that a stretch may use

    const StepPlan* plan_;
    Seconds lag_{0};
    double near_ = 0.05;  ///< share of steps whose slack is near none: at first, that of a busy one
    double lately_near_ = 0.05;
    double lately_tight_ = 0.01;  ///< share of those that can still be made late
    double saved_up_;             ///< late first tokens that earlier stretches did not use
    bool after_prompts_ = false;
    bool is_low_ = true;
    Megahertz floor_{};  ///< of decode steps
};

/// How much later than at the top clock the first tokens of waiting prompts may come, prompt by
/// prompt in the order in which they are read. Allocates nothing. For one step, one thread.
class FirstTokenSlack {
public:
    /// `sequences` of `context_tokens` are decoded beside the prompts.
    FirstTokenSlack(const StepPlan& plan, std::uint32_t sequences, std::uint32_t context_tokens);

    /// The next prompt: tokens still to read, the time left until its first token is due, and how
    /// many of its tokens are read.
    void prompt(std::uint32_t tokens_left, Seconds time_left, std::uint32_t tokens_read = 0);

    /// Infinite before the first prompt.
    [[nodiscard]] Seconds value() const { return slack_; }

private:
    [[nodiscard]] Seconds time_of(std::uint32_t tokens, std::uint32_t read_before) const;

    const StepPlan& plan_;
    std::uint32_t sequences_;
    std::uint32_t context_;
    std::uint64_t tokens_ = 0;
    Seconds chunk_time_{0};
    Seconds until_{0};  ///< of the prompts so far, at the top clock
    Seconds slack_{std::numeric_limits<double>::infinity()};
};

}  // namespace kdvfs::inline v0_3::serve

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/serve/step_plan.hpp>
#endif
