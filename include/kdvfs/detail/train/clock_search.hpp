// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/train/clock_rounding.hpp>
#include <kdvfs/detail/train/network.hpp>
#include <kdvfs/detail/train/stage_clocks.hpp>
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/pipeline.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// An iteration as it runs with a plan.
struct PlayedPlan {
    std::vector<std::int64_t> start;  ///< by operation, nanoseconds
    std::vector<std::int64_t> time;
    std::vector<double> energy;    ///< effective, joules
    std::vector<HeldClock> found;  ///< by stage, as the iteration begins
    std::int64_t length = 0;
    double total = 0;
};

/// One clock for each operation of a pipeline.
struct ClockPlan {
    std::vector<std::uint32_t> clock;  ///< by operation, index into the `ClockTable`
    double energy = 0;                 ///< effective, joules
    std::uint32_t switches = 0;        ///< changes between neighbours of a stage
};

/// Makes plans with one clock per operation, and adapts them to clocks that come late: chooses
/// again for one stage after the other, while the other stages keep their times. No step makes a
/// plan worse.
class ClockSearch {
public:
    ClockSearch(const Pipeline& pipeline, const Network& network, std::int64_t length)
        : pipeline_{&pipeline},
          network_{&network},
          table_{pipeline},
          length_{length},
          late_(pipeline.stages) {
        index_waits();
    }

    [[nodiscard]] const ClockTable& table() const { return table_; }

    /// The clocks of the rounded frontier, for clocks that come at once.
    [[nodiscard]] ClockPlan round(const Frontier& frontier) const {
        ClockPlan plan{ClockRounding{*pipeline_, *network_, table_, length_}.round(frontier)};
        account(plan);
        return plan;
    }

    /// Sums energy and switches anew.
    void account(ClockPlan& plan) const {
        plan.energy = 0;
        plan.switches = 0;
        for (std::uint32_t s = 0; s < pipeline_->stages; ++s) {
            const Share of = share(plan.clock, begin(s), s);
            plan.energy += of.energy;
            plan.switches += of.switches;
        }
    }

    /// Makes a plan one for clocks that come late, which the plans made so far take to come at
    /// once. One stage after the other has its turn, and keeps the time that it had as far as it
    /// can: where a raise would come too late, the operation before gets the higher clock, or the
    /// switch is left out, whichever needs less. Switches that save less than `worth` are left out.
    void adapt(ClockPlan& plan, const Lateness& late, double worth) {
        PlayedPlan now = play(plan);
        for (std::uint32_t sweep = 0; sweep < 5; ++sweep) {
            const double before = now.total;
            for (std::uint32_t s = 0; s < pipeline_->stages; ++s)
                adapt_stage(plan, now, s, sweep, late, worth);
            if (sweep > 1 && before - now.total < 1e-6 * std::abs(before)) break;
        }
        plan.energy = now.total;
    }

    /// The iteration that comes again and again with this plan, one right after the other: between
    /// two of them a stage that has nothing more to do asks for no clock.
    [[nodiscard]] PlayedPlan play(const ClockPlan& plan) const {
        const HeldClock found{table_.found(), table_.found(), 0};
        PlayedPlan played;
        std::vector<HeldClock> before(pipeline_->stages, found);
        for (std::uint32_t round = 0; round < 4; ++round) {
            played.found = before;
            simulate_once(plan, played, before);
            const auto same = [](const HeldClock& a, const HeldClock& b) {
                return a.now == b.now && a.asked == b.asked &&
                       std::max<std::int64_t>(a.arrives, 0) == std::max<std::int64_t>(b.arrives, 0);
            };
            if (std::equal(before.begin(), before.end(), played.found.begin(), same)) break;
        }
        return played;
    }

private:
    [[nodiscard]] std::uint32_t begin(std::uint32_t stage) const {
        return pipeline_->stage_begin[stage];
    }
    [[nodiscard]] std::uint32_t end(std::uint32_t stage) const {
        return pipeline_->stage_begin[stage + 1];
    }
    /// What one stage contributes to a plan.
    struct Share {
        double energy = 0;
        std::uint32_t switches = 0;
    };
    /// `clocks[at]` is the clock of the stage's first operation.
    [[nodiscard]] Share share(const std::vector<std::uint32_t>& clocks, std::uint32_t at,
                              std::uint32_t stage) const {
        Share sum;
        for (std::uint32_t k = 0; k < end(stage) - begin(stage); ++k) {
            sum.energy += table_.at(begin(stage) + k, clocks[at + k]).energy;
            sum.switches += k > 0 && clocks[at + k] != clocks[at + k - 1] ? 1U : 0U;
        }
        return sum;
    }

    /// Who waits for whom between stages, or for a transfer, by operation.
    void index_waits() {
        awaited_.resize(pipeline_->operations.size());
        awaiting_.resize(pipeline_->operations.size());
        for (const Dependency& d : pipeline_->dependencies) {
            const std::int64_t transfer = d.nanoseconds();
            if (transfer == 0 &&
                pipeline_->operations[d.first].stage == pipeline_->operations[d.then].stage)
                continue;
            awaited_[d.then].push_back({d.first, transfer});
            awaiting_[d.first].push_back({d.then, transfer});
        }
    }

    /// When an operation starts if all are as early as possible (way 0), as late (1) or half way.
    [[nodiscard]] std::int64_t start(std::int64_t lasts, std::uint32_t i, std::uint32_t way) const {
        const std::int64_t early = earliest_[network_->arcs[i].tail];
        const std::int64_t late = latest_[network_->arcs[i].head] - lasts;
        return way == 0 ? early : way == 1 ? late : early + (late - early) / 2;
    }

    /// The time each operation of a stage has while the other stages keep theirs. Operations of a
    /// stage follow each other, so a slot may begin before the operation before has ended.
    template <class Duration>
    [[nodiscard]] std::vector<Slot> slots(const Duration& duration, std::int64_t length,
                                          std::uint32_t stage, std::uint32_t sweep) {
        static constexpr std::array<std::uint32_t, 3> ways{2, 0, 1};
        const std::uint32_t way = ways[sweep % ways.size()];
        network_->earliest(duration, earliest_);
        network_->latest(duration, length, latest_);
        std::vector<Slot> all;
        for (std::uint32_t i = begin(stage); i < end(stage); ++i) {
            Slot slot{0, length};
            for (const auto& [p, transfer] : awaited_[i])
                slot.begin =
                    std::max(slot.begin, start(duration(p), p, way) + duration(p) + transfer);
            for (const auto& [q, transfer] : awaiting_[i])
                slot.end = std::min(slot.end, start(duration(q), q, way) - transfer);
            all.push_back(slot);
        }
        return all;
    }

    void set(ClockPlan& plan, std::uint32_t stage, const StageClocks::Choice& choice) const {
        if (choice.clock.empty()) return;
        std::copy(choice.clock.begin(), choice.clock.end(), plan.clock.begin() + begin(stage));
    }

    /// Runs an iteration that the stages begin with these clocks, and leaves in their place those
    /// with which the next one begins.
    void simulate_once(const ClockPlan& plan, PlayedPlan& played,
                       std::vector<HeldClock>& held) const {
        const std::size_t count = pipeline_->operations.size();
        played.start.assign(count, 0);
        played.time.assign(count, 0);
        played.energy.assign(count, 0);
        played.length = 0;
        std::vector<std::int64_t> free(pipeline_->stages, 0);
        for (const std::uint32_t i : pipeline_->topological_order) {
            const std::uint32_t s = pipeline_->operations[i].stage;
            std::int64_t start = free[s];
            for (const auto& [p, transfer] : awaited_[i])
                start = std::max(start, played.start[p] + played.time[p] + transfer);
            held[s] = held[s].after_asking(plan.clock[i], free[s], late_[s]);
            const ClockTable::Run run = table_.run(i, start, held[s], late_[s]);
            played.start[i] = start;
            played.time[i] = run.end - start;
            played.energy[i] = run.energy;
            free[s] = run.end;
            played.length = std::max(played.length, run.end);
        }
        played.total = std::accumulate(played.energy.begin(), played.energy.end(), 0.0);
        for (std::uint32_t s = 0; s < pipeline_->stages; ++s) {
            if (free[s] < played.length)
                held[s] = held[s].after_asking(table_.found(), free[s], late_[s]);
            held[s].arrives -= played.length;
        }
    }

    /// Takes the best of what there is, of the stage's fastest clocks, and of what is chosen anew
    /// in the time that the other stages leave it.
    void adapt_stage(ClockPlan& plan, PlayedPlan& now, std::uint32_t s, std::uint32_t sweep,
                     const Lateness& late, double worth) {
        std::vector<ClockPlan> tried(2, plan);
        for (std::uint32_t i = begin(s); i < end(s); ++i) tried[1].clock[i] = table_.fastest(i);
        for (std::uint32_t way = 0; way < 3; ++way) {
            StageClocks stage{table_, begin(s),
                              slots([&](std::uint32_t i) { return now.time[i]; },
                                    std::max(length_, now.length), s, way),
                              late, now.found[s]};
            tried.push_back(plan);
            set(tried.back(), s, stage.at_price(worth));
            if (sweep > 0 && way == sweep % 3) break;
        }
        late_[s] = late;
        const auto value = [&](const ClockPlan& of, const PlayedPlan& played) {
            return std::pair{std::max(played.length, length_),
                             played.total + worth * share(of.clock, begin(s), s).switches};
        };
        plan = tried.front();
        now = play(plan);
        for (const ClockPlan& other : tried) {
            PlayedPlan played = play(other);
            if (value(other, played) >= value(plan, now)) continue;
            plan = other;
            now = std::move(played);
        }
        account(plan);
    }

    const Pipeline* pipeline_;
    const Network* network_;
    ClockTable table_;
    std::int64_t length_;
    std::vector<Lateness> late_;  ///< by stage
    std::vector<std::vector<Neighbour>> awaited_;
    std::vector<std::vector<Neighbour>> awaiting_;
    std::vector<std::int64_t> earliest_;
    std::vector<std::int64_t> latest_;
};

}  // namespace kdvfs::inline v0_3::train::detail
