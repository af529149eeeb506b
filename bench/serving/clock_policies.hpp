// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/serve/step_sweep.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <utility>

namespace kdvfs::inline v0_3::serve {

/// Decides the clock of one simulated engine, step by step.
class ClockPolicy {
public:
    ClockPolicy() = default;
    ClockPolicy(const ClockPolicy&) = delete;
    ClockPolicy& operator=(const ClockPolicy&) = delete;
    virtual ~ClockPolicy() = default;

    /// The clock for a step that begins now; `slack` as of FirstTokenSlack.
    virtual Megahertz for_step(Seconds now, StepShape shape, Seconds slack) = 0;
    /// The clock for a board that has nothing to do.
    virtual Megahertz when_idle(Seconds now) = 0;
    /// What the board has done, in order: a step, or nothing for an idle shape; `energy` is all
    /// that it has drawn by then.
    virtual void observe(StepShape, Seconds /*begin*/, Seconds /*end*/, Joules /*energy*/) {}
    /// The plan to reckon slack with; none where slack is of no use.
    [[nodiscard]] virtual const StepPlan* slack_plan() const { return nullptr; }
};

/// The same clock always.
class FixedClock final : public ClockPolicy {
public:
    explicit FixedClock(Megahertz clock) : clock_{clock} {}
    Megahertz for_step(Seconds, StepShape, Seconds) override { return clock_; }
    Megahertz when_idle(Seconds) override { return clock_; }

private:
    Megahertz clock_;
};

/// What a plan decides for each step.
class PlannedClocks final : public ClockPolicy {
public:
    /// Refers to the plan.
    explicit PlannedClocks(const StepPlan& plan) : plan_{plan}, clocks_{plan} {}
    Megahertz for_step(Seconds, StepShape shape, Seconds slack) override {
        return clocks_.decide(shape, slack).clock;
    }
    Megahertz when_idle(Seconds) override {
        clocks_.rest();
        return plan_.idle_clock();
    }
    [[nodiscard]] const StepPlan* slack_plan() const override {
        return plan_.policy() != StepPolicy::two_clocks && plan_.reason().empty() ? &plan_
                                                                                  : nullptr;
    }

private:
    const StepPlan& plan_;
    StepClocks clocks_;
};

/// Gives what reads a board's energy counter every 100 ms its values.
class CounterReader {
public:
    /// @param late    so late a value is read
    /// @param quantum of the counter; 0: it has none
    explicit CounterReader(Seconds late = Seconds{0}, Joules quantum = {})
        : late_{late}, quantum_{quantum} {}

    /// @param take called with the time of each reading, and the reading
    template <class Take>
    void observe(Seconds begin, Seconds end, Joules energy, Take take) {
        for (; next_ <= end; next_ += Seconds{0.1}) {
            const double part = end > begin ? std::max((next_ - begin) / (end - begin), 0.0) : 1;
            const Joules exact = before_ + (energy - before_) * part;
            values_.push_back(
                {next_, quantum_ > Joules{} ? quantum_ * std::floor(exact / quantum_) : exact});
        }
        before_ = energy;
        for (; !values_.empty() && values_.front().first + late_ <= end; values_.pop_front())
            take(values_.front().first + late_, values_.front().second);
    }

private:
    Seconds late_;
    Joules quantum_;
    Seconds next_{0};
    Joules before_{0};
    std::deque<std::pair<Seconds, Joules>> values_;
};

/// A sweep while serving.
class SweepingClocks final : public ClockPolicy {
public:
    /// Refers to the sweep.
    explicit SweepingClocks(StepSweep& sweep, CounterReader counter = CounterReader{})
        : sweep_{sweep}, counter_{std::move(counter)} {}
    Megahertz for_step(Seconds now, StepShape shape, Seconds) override {
        return sweep_.clock_for(now, shape);
    }
    Megahertz when_idle(Seconds now) override { return sweep_.clock_for(now, {}); }
    void observe(StepShape shape, Seconds begin, Seconds end, Joules energy) override {
        if (phase_of(shape) == Phase::idle)
            sweep_.idled(end);
        else
            sweep_.ran(shape, begin, end);
        counter_.observe(begin, end, energy,
                         [&](Seconds time, Joules value) { sweep_.energy(time, value); });
    }

private:
    StepSweep& sweep_;
    CounterReader counter_;
};

/// One clock for an epoch of 5 s, chosen from what the epoch before it did (the instance manager of
/// DynamoLLM, HPCA'25): the most frugal clock at which a full chunk beside as many sequences keeps
/// the token gap and prompts take at most half of the time; the top clock where none does.
class EpochLoop final : public ClockPolicy {
public:
    /// Refers to the table.
    EpochLoop(const StepTable& table, Seconds gap, std::uint32_t chunk_tokens)
        : table_{table}, gap_{gap}, chunk_{chunk_tokens}, clock_{table.clocks().back()} {}

    Megahertz for_step(Seconds now, StepShape shape, Seconds) override {
        next_epoch(now);
        prompt_tokens_ += shape.prompt_tokens;
        if (shape.sequences > most_.sequences) most_ = shape;
        return clock_;
    }
    Megahertz when_idle(Seconds now) override {
        next_epoch(now);
        return clock_;
    }

private:
    static constexpr Seconds epoch{5};
    static constexpr double most_prompt_time = 0.5;

    void next_epoch(Seconds now) {
        if (now - began_ < epoch) return;
        clock_ = choose(now - began_);
        began_ = now;
        prompt_tokens_ = 0;
        most_ = {};
    }

    [[nodiscard]] Megahertz choose(Seconds span) const {
        const StepShape full{prompt_tokens_ > 0 ? chunk_ : 0, most_.sequences,
                             most_.context_tokens};
        Megahertz best = table_.clocks().back();
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t c = 0; c < table_.clocks().size(); ++c) {
            const auto cost = table_.cost_at(full, c);
            if (!cost) continue;
            const double busy = prompt_tokens_ / chunk_ * cost->time.count() / span.count();
            if (cost->time > gap_ || busy > most_prompt_time) continue;
            const auto rest = table_.cost_at({0, most_.sequences, most_.context_tokens}, c);
            if (!rest) continue;
            // The engine works all the time: what is not spent on prompts goes into decode steps.
            const double decode_watts =
                most_.sequences == 0 ? 0 : (rest->energy / rest->time).count;
            const double watts =
                busy * (cost->energy / cost->time).count + (1 - busy) * decode_watts;
            if (watts >= least) continue;
            least = watts;
            best = table_.clocks()[c];
        }
        return best;
    }

    const StepTable& table_;
    Seconds gap_;
    std::uint32_t chunk_;
    Megahertz clock_;
    Seconds began_{0};
    double prompt_tokens_ = 0;
    StepShape most_{};
};

}  // namespace kdvfs::inline v0_3::serve
