// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/tune/rank_messages.hpp>
#include <kdvfs/detail/tune/rank_profiles.hpp>
#include <kdvfs/detail/tune/run_schedule.hpp>
#include <kdvfs/detail/tune/sweep_schedule.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/rank_link.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// A rank among the ranks of a job that tune themselves together. Rank 0 decides; what it decides
/// is an order that holds from an iteration on, some ahead, so that no rank waits for a message. A
/// rank that gets an order late runs on as found, and says so: orders then come earlier. Going back
/// to as found is never late. Not thread-safe.
class RunTeam {
public:
    /// So many ranks explore at most; the others run as found meanwhile.
    static constexpr std::size_t most_explorers = 64;

    explicit RunTeam(std::shared_ptr<RankLink> link)
        : link_{std::move(link)}, ready_(leads() ? size() : 0) {}

    [[nodiscard]] bool leads() const { return link_->rank() == 0; }
    [[nodiscard]] std::uint32_t rank() const { return link_->rank(); }
    [[nodiscard]] std::uint32_t size() const { return link_->size(); }

    [[nodiscard]] bool works() const { return link_->works(); }

    /// Takes what has arrived. @param iteration that begins
    void receive(std::uint64_t iteration) {
        if (!leads()) {
            for (const std::string& text : link_->take_announcements()) obey(text, iteration);
            return;
        }
        for (const auto& [rank, text] : link_->take_reports())
            if (rank < size()) reported(rank, text);
    }

    /// This rank has been steady. Once an epoch.
    void is_ready(const RankReady& ready) {
        if (said_ready_ == ready.epoch) return;
        said_ready_ = ready.epoch;
        if (leads())
            ready_[0] = ready;
        else
            link_->report(to_message(ready));
    }
    /// This rank runs another program.
    void object(std::uint32_t epoch) { link_->report("changed " + std::to_string(epoch)); }
    void measured(RankBlock block) {
        if (leads())
            blocks_.emplace_back(0, std::move(block));
        else
            link_->report(to_message(block));
    }

    // On rank 0.

    [[nodiscard]] bool all_ready(std::uint32_t epoch) const {
        return std::all_of(ready_.begin(), ready_.end(),
                           [&](const auto& ready) { return ready && ready->epoch == epoch; });
    }
    /// Whether a rank has seen another program since this was asked last.
    [[nodiscard]] bool take_objection(std::uint32_t epoch) {
        return std::exchange(objected_, std::nullopt) == epoch;
    }
    /// What ranks have measured since this was asked last, or could not.
    [[nodiscard]] std::vector<std::pair<std::uint32_t, RankBlock>> take_blocks(
        std::uint64_t iteration) {
        for (auto& [stage, waited] : waited_for_) {
            if (iteration < waited.until) continue;
            for (const std::uint32_t rank : waited.ranks)
                give_up(rank, stage, *waited.clocks[rank]);
        }
        std::vector<std::pair<std::uint32_t, RankBlock>> taken;
        for (auto& [rank, block] : std::exchange(blocks_, {})) {
            const auto waited = waited_for_.find(block.stage);
            if (waited == waited_for_.end() || waited->second.ranks.erase(rank) == 0) continue;
            if (waited->second.ranks.empty()) waited_for_.erase(waited);
            taken.emplace_back(rank, std::move(block));
        }
        return taken;
    }
    /// Draws those that explore: from each kind of ranks that can explore this rank's clocks as
    /// many, as far as there are.
    std::size_t choose_explorers() {
        waited_for_.clear();  // stages are numbered from 1 again
        blocks_.clear();
        std::map<std::string, std::deque<std::uint32_t>> kinds;
        std::size_t able = 0;
        for (std::uint32_t r = 0; r < size(); ++r) {
            if (ready_[r]->clocks != ready_[0]->clocks) continue;
            kinds[ready_[r]->program].push_back(r);
            ++able;
        }
        std::set<std::uint32_t> chosen{0};  // its own blocks are those that are known first
        while (chosen.size() < std::min(able, most_explorers)) {
            for (auto& [program, ranks] : kinds) {
                if (ranks.empty()) continue;
                if (chosen.size() < most_explorers) chosen.insert(ranks.front());
                ranks.pop_front();
            }
        }
        explorers_.assign(chosen.begin(), chosen.end());
        return explorers_.size();
    }
    [[nodiscard]] const std::vector<std::uint32_t>& explorers() const { return explorers_; }
    /// What a rank runs. @pre `all_ready`
    [[nodiscard]] const RankReady& program_of(std::uint32_t rank) const { return *ready_[rank]; }

    /// Ranks that follow one plan: as an explorer does, or would.
    [[nodiscard]] std::vector<std::uint32_t> ranks_like(std::uint32_t explorer) const {
        std::vector<std::uint32_t> ranks{explorer};
        const std::set<std::uint32_t> explore{explorers_.begin(), explorers_.end()};
        for (std::uint32_t r = 0; r < size(); ++r) {
            if (explore.contains(r) || ready_[r]->program != ready_[explorer]->program) continue;
            // The first of the explorers that are equal speaks for all others.
            const auto first = std::find_if(explorers_.begin(), explorers_.end(), [&](auto each) {
                return ready_[each]->program == ready_[r]->program;
            });
            if (*first == explorer) ranks.push_back(r);
        }
        return ranks;
    }

    /// What all run from now on, as decided. @param iteration that begins, of a time of `each`
    void decide(RankOrder order, const SweepStep& explored, std::uint64_t iteration, Seconds each) {
        if (order.step.as == RunStep::As::explored) {
            order.metered = explored.metered;
            order.stage = explored.stage;
            order.length = explored.length;
            order.clocks.assign(std::size_t{explorers_.back()} + 1, std::nullopt);
            for (std::size_t i = 0; i < explorers_.size(); ++i)
                order.clocks[explorers_[i]] =
                    explored.clocks ? (*explored.clocks)[i] : explored.clock;
        }
        if (decided_ && decided_->is_as(order)) return;
        if (ahead_ == 0 && each > Seconds{0}) ahead_ = ahead_of(each);
        order.from = iteration;
        if (!order.is_at_once()) {
            order.ahead = ahead_;
            order.from += ahead_;
            if (decided_) order.from = std::max(order.from, decided_->from + 1);
        }
        if (decided_ && decided_->metered) {  // its block ends
            const auto waited = waited_for_.find(decided_->stage);
            if (waited != waited_for_.end()) waited->second.until = order.from + patience_ * ahead_;
        }
        if (order.metered && order.stage > 0) wait_for(order);
        decided_ = order;
        link_->announce(to_message(order));
        enqueue(std::move(order));
    }
    /// @param plan of one kind of ranks
    void announce(RankPlan plan) {
        link_->announce(to_message(plan));
        keep(std::move(plan));
    }

    // On all ranks.

    /// What an iteration is to be run at.
    const RankOrder& due(std::uint64_t iteration) {
        while (!orders_.empty() && orders_.front().from <= iteration) {
            current_ = std::move(orders_.front());
            orders_.pop_front();
        }
        return current_;
    }
    /// The plan of this rank, once its number is due.
    [[nodiscard]] std::optional<RankPlan> take_plan(std::uint32_t number) {
        if (!plan_ || plan_->number > number) return std::nullopt;
        return std::exchange(plan_, {});
    }

private:
    /// A block of which some ranks have not said what they measured.
    struct Waited {
        std::set<std::uint32_t> ranks;
        std::vector<std::optional<ClockPoint>> clocks;
        std::uint64_t until = ~std::uint64_t{0};  ///< iteration, once the block's end is known
    };
    static constexpr std::uint64_t most_patience = 64;
    static constexpr std::uint32_t silent_blocks = 3;  ///< that show that a rank reports nothing

    /// Orders are given so many iterations ahead, until one comes late.
    static std::uint64_t ahead_of(Seconds each) {
        constexpr Seconds first{1};
        return static_cast<std::uint64_t>(std::clamp(std::ceil(first / each), 2.0, 1e6));
    }

    /// Ranks that report nothing are not waited for until they do.
    void wait_for(const RankOrder& order) {
        Waited& waited = waited_for_[order.stage];
        waited.clocks = order.clocks;
        waited.ranks.insert(explorers_.begin(), explorers_.end());
        for (const auto& [rank, blocks] : silent_)
            if (blocks >= silent_blocks && waited.ranks.contains(rank))
                give_up(rank, order.stage, *waited.clocks[rank]);
    }
    void give_up(std::uint32_t rank, std::uint64_t stage, ClockPoint clock) {
        ++silent_[rank];
        blocks_.emplace_back(rank, RankBlock{stage, clock, 1});
    }
    void has_measured(std::uint32_t rank, RankBlock block) {
        // Late: others are waited for longer from now on.
        if (silent_.erase(rank) > 0) patience_ = std::min(2 * patience_, most_patience);
        blocks_.emplace_back(rank, std::move(block));
    }

    void reported(std::uint32_t rank, const std::string& text) {
        MessageReader words{text};
        const std::string_view kind = words.word();
        if (kind == "ready") {
            ready_[rank] = read_ready(words);
        } else if (kind == "block") {
            has_measured(rank, read_block(words));
        } else if (kind == "changed") {
            objected_ = words.number<std::uint32_t>();
        } else if (kind == "late") {
            constexpr std::uint64_t most = 1'000'000;
            ahead_ = std::max(ahead_, std::min(words.number<std::uint64_t>() + 2, most));
        } else {
            words.fail();
        }
    }
    void obey(const std::string& text, std::uint64_t iteration) {
        MessageReader words{text};
        const std::string_view kind = words.word();
        if (kind == "order") {
            RankOrder order = read_order(words);
            if (order.from < iteration && !order.is_at_once()) {
                link_->report("late " + std::to_string(order.ahead + iteration - order.from));
                if (order.step.as == RunStep::As::explored || order.step.block > 0)
                    order.step = {}, order.clocks.clear();
            }
            enqueue(std::move(order));
        } else if (kind == "plan") {
            keep(read_plan(words));
        } else {
            words.fail();
        }
    }
    void keep(RankPlan plan) {
        if (std::find(plan.ranks.begin(), plan.ranks.end(), rank()) != plan.ranks.end())
            plan_ = std::move(plan);
    }
    /// An order takes the place of those for later iterations that were given before it.
    void enqueue(RankOrder order) {
        while (!orders_.empty() && orders_.back().from >= order.from) orders_.pop_back();
        orders_.push_back(std::move(order));
    }

    std::shared_ptr<RankLink> link_;
    std::deque<RankOrder> orders_;
    RankOrder current_;
    std::optional<RankPlan> plan_;
    std::optional<std::uint32_t> said_ready_;

    // On rank 0.
    std::vector<std::optional<RankReady>> ready_;  ///< by rank
    std::vector<std::uint32_t> explorers_;
    std::vector<std::pair<std::uint32_t, RankBlock>> blocks_;
    std::map<std::uint64_t, Waited> waited_for_;       ///< by stage
    std::map<std::uint32_t, std::uint32_t> silent_{};  ///< blocks in a row that a rank has missed
    std::uint64_t patience_ = 4;  ///< times the time ahead, to wait for reports
    std::optional<std::uint32_t> objected_;
    std::optional<RankOrder> decided_;
    std::uint64_t ahead_ = 0;  ///< iterations that orders are given ahead; 0: not known yet
};

}  // namespace kdvfs::inline v0_3::tune::detail
