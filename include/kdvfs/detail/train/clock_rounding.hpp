// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/train/network.hpp>
#include <kdvfs/detail/train/stage_clocks.hpp>
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/pipeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// Rounds the durations of the exact frontier to measured points: one clock for each operation, in
/// an iteration that ends in time.
///
/// The frontier's durations, at this length and at lengths close by, are rounded to points and
/// repaired where the iteration would end late. The best few are improved: chains of operations are
/// chosen anew by dynamic programming while all others keep their times. A chain is the operations
/// of a stage, or operations that follow one another from stage to stage. Its operations have
/// slots, which depend on where the others lie between their earliest and latest start: that
/// changes from sweep to sweep. Then parts of the iteration are disturbed and settled again. No
/// kept plan is worse than the one before, none ends late. The work is bounded by a count, so that
/// a plan does not depend on the machine's speed.
class ClockRounding {
public:
    ClockRounding(const Pipeline& pipeline, const Network& network, const ClockTable& table,
                  std::int64_t length)
        : pipeline_{&pipeline},
          network_{&network},
          table_{&table},
          length_{length},
          most_work_{std::min<std::size_t>(250'000'000, 1'000'000 * pipeline.operations.size())} {
        index_neighbours();
        make_chains();
    }

    /// @param frontier of the same pipeline
    /// @returns the clock of each operation, as index into the table
    [[nodiscard]] std::vector<std::uint32_t> round(const Frontier& frontier) {
        list_points(frontier.timing(to_seconds(length_)));
        std::vector<Start> starts = make_starts(frontier);
        Start best = starts.front();
        for (Start& start : starts) {
            chosen_ = std::move(start.chosen);
            touched_ = chains_;
            settle();
            if (const double now = total(); now < best.energy) best = {now, chosen_};
        }
        improve(best);
        std::vector<std::uint32_t> clocks(best.chosen.size());
        for (std::uint32_t i = 0; i < clocks.size(); ++i)
            clocks[i] = points_[i][best.chosen[i]].clock;
        keep_clocks(clocks);
        return clocks;
    }

private:
    /// A measured point that no other beats in both time and energy.
    struct Point {
        std::int64_t time = 0;
        double energy = 0;  ///< effective, joules
        std::uint32_t clock = 0;
    };
    struct Label {
        std::int64_t end = 0;
        double energy = 0;
        std::uint32_t before = 0;
        std::uint32_t point = 0;
    };

    [[nodiscard]] std::int64_t time(std::uint32_t i) const { return points_[i][chosen_[i]].time; }
    [[nodiscard]] double energy(std::uint32_t i) const { return points_[i][chosen_[i]].energy; }

    /// Operations that take the same at all clocks get the clock of the one before in their stage,
    /// those at the stage's begin the clock behind them: no switches for them.
    void keep_clocks(std::vector<std::uint32_t>& clocks) const {
        const auto is_constant = [&](std::uint32_t i) {
            return pipeline_->curves[pipeline_->operations[i].curve].is_constant();
        };
        for (std::uint32_t s = 0; s < pipeline_->stages; ++s) {
            const std::uint32_t begin = pipeline_->stage_begin[s];
            const std::uint32_t end = pipeline_->stage_begin[s + 1];
            std::uint32_t first = begin;
            while (first < end && is_constant(first)) ++first;
            for (std::uint32_t i = begin; first < end && i < first; ++i) clocks[i] = clocks[first];
            for (std::uint32_t i = first; i < end; ++i)
                if (is_constant(i)) clocks[i] = clocks[i - 1];
        }
    }

    void index_neighbours() {
        before_.resize(network_->operations);
        after_.resize(network_->operations);
        for (const Dependency& d : pipeline_->dependencies) {
            before_[d.then].push_back({d.first, d.nanoseconds()});
            after_[d.first].push_back({d.then, d.nanoseconds()});
        }
    }

    /// The stages, and chains along the dependencies between stages: each operation is in one of
    /// either kind.
    void make_chains() {
        for (std::uint32_t s = 0; s < pipeline_->stages; ++s) {
            chains_.emplace_back();
            for (std::uint32_t i = pipeline_->stage_begin[s]; i < pipeline_->stage_begin[s + 1];
                 ++i)
                chains_.back().push_back(i);
        }
        const auto& operations = pipeline_->operations;
        std::vector<bool> taken(operations.size(), false);
        for (const std::uint32_t first : pipeline_->topological_order) {
            if (taken[first]) continue;
            std::vector<std::uint32_t> chain{first};
            taken[first] = true;
            for (bool grows = true; grows;) {
                grows = false;
                for (const auto& [next, transfer] : after_[chain.back()]) {
                    if (taken[next] || operations[next].stage == operations[chain.back()].stage)
                        continue;
                    chain.push_back(next);
                    taken[next] = grows = true;
                    break;
                }
            }
            if (chain.size() > 1) chains_.push_back(std::move(chain));
        }
    }

    /// The points near the frontier's duration: others are hardly ever chosen.
    void list_points(const Timing& timing) {
        points_.resize(network_->operations);
        for (std::uint32_t i = 0; i < network_->operations; ++i) {
            std::vector<Point> all;
            for (std::uint32_t c = 0; c < table_->size(); ++c) {
                const ClockTable::Cell& cell = table_->at(i, c);
                if (cell.time != ClockTable::never) all.push_back({cell.time, cell.energy, c});
            }
            std::sort(all.begin(), all.end(), [](const Point& a, const Point& b) {
                return std::tie(a.time, a.energy) < std::tie(b.time, b.energy);
            });
            double least = std::numeric_limits<double>::infinity();
            std::erase_if(all, [&](const Point& point) {
                if (point.energy >= least) return true;
                least = point.energy;
                return false;
            });
            const auto after = std::upper_bound(
                all.begin(), all.end(), timing.durations[i],
                [](std::int64_t duration, const Point& point) { return duration < point.time; });
            const auto at = after - all.begin();
            const auto size = static_cast<std::ptrdiff_t>(all.size());
            points_[i].assign(all.begin() + std::clamp<std::ptrdiff_t>(at - nearby, 0, size - 1),
                              all.begin() + std::min(at + nearby, size));
        }
    }
    static constexpr std::ptrdiff_t nearby = 6;

    /// The slowest points that end no later than the frontier's durations, or by `share` of the
    /// step later.
    void fit(const Timing& timing, double factor, double share) {
        chosen_.assign(network_->operations, 0);
        std::vector<double> ends(network_->operations, 0);
        for (const std::uint32_t i : pipeline_->topological_order) {
            double begin = 0;
            for (const auto& [p, transfer] : before_[i])
                begin = std::max(begin, ends[p] + static_cast<double>(transfer));
            const double latest =
                factor * static_cast<double>(timing.starts[i] + timing.durations[i]);
            while (chosen_[i] + 1 < points_[i].size()) {
                const auto now = static_cast<double>(points_[i][chosen_[i]].time);
                const auto next = static_cast<double>(points_[i][chosen_[i] + 1].time);
                if (begin + next - share * (next - now) > latest) break;
                ++chosen_[i];
            }
            ends[i] = begin + static_cast<double>(time(i));
        }
    }

    /// Makes operations of a longest path faster, where that costs least, until the iteration ends
    /// in time; all of them, where that does not suffice.
    void repair() {
        const auto duration = [&](std::uint32_t i) { return time(i); };
        for (;;) {
            network_->earliest(duration, earliest_);
            const std::int64_t late = earliest_.back() - length_;
            if (late <= 0) return;
            network_->latest(duration, earliest_.back(), latest_);
            work_ += 2 * network_->arcs.size();
            double cheapest = std::numeric_limits<double>::infinity();
            std::uint32_t chosen = 0;
            for (const std::uint32_t i : longest_path()) {
                if (chosen_[i] == 0) continue;
                const Point& slow = points_[i][chosen_[i]];
                const Point& fast = points_[i][chosen_[i] - 1];
                const auto gained = static_cast<double>(std::min(late, slow.time - fast.time));
                const double price = (fast.energy - slow.energy) / gained;
                if (price >= cheapest) continue;
                cheapest = price;
                chosen = i;
            }
            if (cheapest == std::numeric_limits<double>::infinity())
                return chosen_.assign(chosen_.size(), 0);
            --chosen_[chosen];
        }
    }

    /// The operations of one longest path, by the earliest and latest times.
    [[nodiscard]] std::vector<std::uint32_t> longest_path() const {
        std::vector<std::uint32_t> path;
        for (std::uint32_t v = network_->source(); v != network_->sink();) {
            const auto tight = [&](std::uint32_t a) {
                const std::int64_t lasts =
                    a < network_->operations ? time(a) : network_->transfer(a);
                return earliest_[v] + lasts == latest_[network_->arcs[a].head];
            };
            const auto begin = network_->leaving.begin() + network_->leaving_begin[v];
            const std::uint32_t a = *std::find_if(begin, network_->leaving.end(), tight);
            if (a < network_->operations) path.push_back(a);
            v = network_->arcs[a].head;
        }
        return path;
    }

    /// Choices of points, and the effective energy that they need.
    struct Start {
        double energy = 0;
        std::vector<std::uint32_t> chosen;
        friend bool operator==(const Start&, const Start&) = default;
        friend auto operator<=>(const Start&, const Start&) = default;
    };

    /// Roundings of frontiers at this length and slightly longer ones, repaired: the best few.
    [[nodiscard]] std::vector<Start> make_starts(const Frontier& frontier) {
        std::vector<Start> starts;
        for (const double stretch : {1.0, 1.0025, 1.005}) {
            const Timing timing = frontier.timing(to_seconds(length_) * stretch);
            const double scale =
                static_cast<double>(length_) / static_cast<double>(timing.nanoseconds);
            for (const double share : {0.0, 0.25, 0.5, 0.75})
                for (const double factor : {1.0, scale}) {
                    fit(timing, factor, share);
                    repair();
                    starts.push_back({total(), chosen_});
                }
        }
        std::sort(starts.begin(), starts.end());
        starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
        starts.resize(std::min<std::size_t>(starts.size(), 4));
        return starts;
    }

    /// Disturbs a part of the best plan and settles it again, as long as there is work to spend.
    void improve(Start& best) {
        while (work_ < most_work_) {
            chosen_ = best.chosen;
            disturb();
            settle();
            if (const double now = total(); now <= best.energy) best = {now, chosen_};
        }
    }

    /// Chooses chains anew until none of them gets any better.
    void settle() {
        std::size_t idle = 0;
        for (std::size_t turn = 0; idle < 2 * touched_.size() && work_ < most_work_; ++turn) {
            const std::size_t c = turn % touched_.size();
            if (c == 0) begin_sweep(turn / touched_.size());
            idle = choose(touched_[c]) ? 0 : idle + 1;
        }
    }

    /// Moves some operations of a part of the iteration to a neighbouring point, and repairs what
    /// ends late then; the chains that cross the part are to be chosen anew.
    void disturb() {
        network_->earliest([&](std::uint32_t i) { return time(i); }, earliest_);
        const auto length = static_cast<double>(length_);
        const double width = (0.02 + 0.15 * random()) * length;
        const double from = random() * length - width / 2;
        const auto begins_within = [&](std::uint32_t i, double margin) {
            const auto begin = static_cast<double>(earliest_[network_->arcs[i].tail]);
            return begin >= from - margin && begin < from + width + margin;
        };
        const double share = 0.1 + 0.4 * random();
        for (std::uint32_t i = 0; i < chosen_.size(); ++i)
            if (begins_within(i, 0) && random() < share) shift(i);
        repair();
        touched_.clear();
        for (const auto& chain : chains_) {
            touched_.emplace_back();
            for (const std::uint32_t i : chain)
                if (begins_within(i, width / 2 + 0.02 * length)) touched_.back().push_back(i);
            if (touched_.back().empty()) touched_.pop_back();
        }
        if (touched_.empty()) touched_ = chains_;
    }
    void shift(std::uint32_t i) {
        if (random() < 0.5) {
            if (chosen_[i] > 0) --chosen_[i];
        } else if (chosen_[i] + 1 < points_[i].size()) {
            ++chosen_[i];
        }
    }
    [[nodiscard]] double total() const {
        double sum = 0;
        for (std::uint32_t i = 0; i < chosen_.size(); ++i) sum += energy(i);
        return sum;
    }

    /// Where between earliest and latest the others lie: in the middle, early, late, then anywhere.
    void begin_sweep(std::size_t sweep) {
        static constexpr double first[] = {0.5, 0, 1};
        place_ = sweep < 3 ? first[sweep] : random();
    }
    double random() {
        seed_ = seed_ * 6364136223846793005U + 1442695040888963407U;
        return static_cast<double>(seed_ >> 11U) * 0x1p-53;
    }

    /// @returns whether the chain needs less now
    bool choose(const std::vector<std::uint32_t>& chain) {
        find_slots(chain);
        layers_.assign(1, {Label{}});
        double now = 0;
        for (std::size_t k = 0; k < chain.size(); ++k) {
            now += energy(chain[k]);
            extend(chain[k], slots_[k], transfers_[k]);
            if (layers_.back().empty()) return false;
        }
        const Label* label = &layers_.back().back();
        if (label->energy > now - 1e-9 * std::abs(now)) return false;
        for (std::size_t k = chain.size(); k-- > 0;) {
            chosen_[chain[k]] = label->point;
            label = &layers_[k][label->before];
        }
        return true;
    }

    void find_slots(const std::vector<std::uint32_t>& chain) {
        const auto duration = [&](std::uint32_t i) { return time(i); };
        network_->earliest(duration, earliest_);
        network_->latest(duration, length_, latest_);
        work_ += 2 * network_->arcs.size();
        const auto start = [&](std::uint32_t i) {
            const std::int64_t early = earliest_[network_->arcs[i].tail];
            const std::int64_t late = latest_[network_->arcs[i].head] - time(i);
            return early + static_cast<std::int64_t>(place_ * static_cast<double>(late - early));
        };
        slots_.clear();
        transfers_.clear();
        for (std::size_t k = 0; k < chain.size(); ++k) {
            Slot slot{0, length_};
            std::int64_t after = 0;
            for (const auto& [p, transfer] : before_[chain[k]]) {
                if (k > 0 && p == chain[k - 1])
                    after = std::max(after, transfer);
                else
                    slot.begin = std::max(slot.begin, start(p) + time(p) + transfer);
            }
            for (const auto& [q, transfer] : after_[chain[k]])
                if (k + 1 == chain.size() || q != chain[k + 1])
                    slot.end = std::min(slot.end, start(q) - transfer);
            slots_.push_back(slot);
            transfers_.push_back(after);
        }
    }

    /// The labels behind one more operation: those that no other beats in both end and energy.
    void extend(std::uint32_t i, const Slot& slot, std::int64_t transfer) {
        const std::vector<Label>& from = layers_.back();
        fresh_.clear();
        for (std::uint32_t p = 0; p < points_[i].size(); ++p) {
            const Point& point = points_[i][p];
            for (std::uint32_t l = 0; l < from.size(); ++l) {
                const std::int64_t end = std::max(from[l].end + transfer, slot.begin) + point.time;
                if (end > slot.end) break;
                fresh_.push_back({end, from[l].energy + point.energy, l, p});
            }
        }
        work_ += 4 * fresh_.size();  // sorted, too
        std::sort(fresh_.begin(), fresh_.end(), [](const Label& a, const Label& b) {
            return a.end < b.end || (a.end == b.end && a.energy < b.energy);
        });
        double least = std::numeric_limits<double>::infinity();
        std::erase_if(fresh_, [&](const Label& label) {
            if (label.energy >= least) return true;
            least = label.energy;
            return false;
        });
        layers_.emplace_back();
        const std::size_t count = std::min(fresh_.size(), most_labels);
        for (std::size_t k = 0; k < count; ++k)
            layers_.back().push_back(fresh_[count < 2 ? k : k * (fresh_.size() - 1) / (count - 1)]);
    }
    static constexpr std::size_t most_labels = 100;

    const Pipeline* pipeline_;
    const Network* network_;
    const ClockTable* table_;
    std::int64_t length_;
    std::vector<std::vector<Neighbour>> before_;
    std::vector<std::vector<Neighbour>> after_;
    std::vector<std::vector<std::uint32_t>> chains_;
    std::vector<std::vector<Point>> points_;  ///< by operation, fastest first
    std::vector<std::uint32_t> chosen_;       ///< index into them
    std::vector<std::int64_t> earliest_;
    std::vector<std::int64_t> latest_;
    std::vector<Slot> slots_;
    std::vector<std::int64_t> transfers_;  ///< from the operation before in the chain
    std::vector<std::vector<Label>> layers_;
    std::vector<Label> fresh_;
    std::vector<std::vector<std::uint32_t>> touched_;  ///< chains, or parts of them, to choose anew
    double place_ = 0.5;
    std::uint64_t seed_ = 1;
    std::size_t work_ = 0;  ///< labels and arcs that were looked at
    std::size_t most_work_;
};

}  // namespace kdvfs::inline v0_3::train::detail
