// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/train/network.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// What a lower and an upper bound on a pipeline's effective energy are, at one iteration length.
struct Certificate {
    Femtojoules primal = 0;  ///< of durations that keep the length
    Femtojoules dual = 0;    ///< no durations that keep the length need less
};

/// Walks the time-energy frontier of a pipeline from its least energy to its shortest time.
///
/// The cheapest durations under a deadline are a linear program; its dual is a flow from start to
/// end in which an operation's durations are lengths and its savings capacities (microwatts). The
/// flow's value is what the last nanosecond costs (Kelley 1961; Fulkerson 1961). Each round sends
/// all flow that fits along the longest paths, then shifts the points in time until a path opens
/// again: reduced costs stay non-negative, and every round ends at one corner of the frontier.
/// Everything is an integer, so primal and dual are equal to the last femtojoule.
class ParametricFlow {
public:
    /// Where a walk stands: enough to go on from there.
    struct State {
        std::vector<std::int64_t> times;
        std::vector<std::int64_t> flows;
        std::int64_t price = 0;
        bool at_shortest = false;
    };

    /// Begins at the least energy. `hulls`: one for each operation; they and the network outlive
    /// this.
    ParametricFlow(const Network& network, std::vector<const Hull*> hulls)
        : network_{&network}, hulls_{std::move(hulls)} {
        build_half_arcs();
        network.earliest([&](std::uint32_t i) { return hulls_[i]->time.back(); }, time_);
        flow_.assign(network.arcs.size(), 0);
        set_all_lengths();
        saturate();
    }

    /// Goes on from where another walk on the same hulls stood.
    ParametricFlow(const Network& network, std::vector<const Hull*> hulls, State state)
        : network_{&network}, hulls_{std::move(hulls)} {
        build_half_arcs();
        time_ = std::move(state.times);
        flow_ = std::move(state.flows);
        price_ = state.price;
        at_shortest_ = state.at_shortest;
        set_all_lengths();
    }

    [[nodiscard]] State state() const { return {time_, flow_, price_, at_shortest_}; }

    /// The iteration's length, in nanoseconds.
    [[nodiscard]] std::int64_t length() const {
        return time_[network_->sink()] - time_[network_->source()];
    }
    /// What the next shorter nanosecond costs at least, in femtojoules, while there is one.
    [[nodiscard]] std::int64_t price() const { return price_; }
    /// Whether no shorter iteration is possible.
    [[nodiscard]] bool at_shortest() const { return at_shortest_; }

    /// Goes on to the next corner, or by `most` nanoseconds, if that comes first. Call while not
    /// `at_shortest`.
    void advance(std::int64_t most = std::numeric_limits<std::int64_t>::max() / 4) {
        if (shift(most)) saturate();
    }

    /// When each node happens, and what flows through each arc.
    [[nodiscard]] const std::vector<std::int64_t>& times() const { return time_; }
    [[nodiscard]] const std::vector<std::int64_t>& flows() const { return flow_; }

    /// The time an operation has for itself; it may be longer than any of its durations.
    [[nodiscard]] std::int64_t window(std::uint32_t operation) const {
        const Network::Arc& arc = network_->arcs[operation];
        return time_[arc.head] - time_[arc.tail];
    }

    /// Bounds at this length by curves that may be others than those walked on, but have the same
    /// shortest and longest times. Primal and dual are equal where they are the same.
    [[nodiscard]] Certificate certificate(const std::vector<const Hull*>& hulls) const {
        Certificate sums{0, -static_cast<Femtojoules>(price_) * length()};
        for (std::uint32_t i = 0; i < network_->operations; ++i) {
            sums.primal += hulls[i]->energy_at(window(i));
            sums.dual += least(*hulls[i], flow_[i]);
        }
        for (std::uint32_t a = network_->operations; a < flow_.size(); ++a)
            sums.dual += static_cast<Femtojoules>(flow_[a]) * network_->transfer(a);
        return sums;
    }

    /// The least energy of one operation when a nanosecond costs `price`, that cost included.
    static Femtojoules least(const Hull& hull, std::int64_t price) {
        const auto corner =
            std::lower_bound(hull.saving.begin(), hull.saving.end(), price, std::greater<>{}) -
            hull.saving.begin();
        const auto k = static_cast<std::size_t>(corner);
        return hull.energy[k] + static_cast<Femtojoules>(price) * hull.time[k];
    }

private:
    static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max() / 4;
    static constexpr std::int64_t far = unlimited;
    static constexpr std::int64_t closed = -2 * unlimited;

    /// One direction of an arc: with more flow in it, tail's time + length <= head's time.
    struct HalfArc {
        std::int64_t length = 0;  ///< `closed` if it takes no more flow
        std::uint32_t head = 0;
        std::uint32_t half = 0;  ///< twice the arc's number, plus 1 if backwards
    };

    void build_half_arcs() {
        const auto& arcs = network_->arcs;
        begin_.assign(network_->nodes + 1, 0);
        for (const auto& arc : arcs) {
            ++begin_[arc.tail + 1];
            ++begin_[arc.head + 1];
        }
        for (std::size_t v = 1; v < begin_.size(); ++v) begin_[v] += begin_[v - 1];
        halves_.resize(2 * arcs.size());
        place_.resize(2 * arcs.size());
        std::vector<std::uint32_t> next = begin_;
        for (std::uint32_t a = 0; a < arcs.size(); ++a) {
            const std::uint32_t forth = 2 * a;
            const std::uint32_t back = forth + 1;
            place_[forth] = next[arcs[a].tail]++;
            place_[back] = next[arcs[a].head]++;
            halves_[place_[forth]] = {0, arcs[a].head, forth};
            halves_[place_[back]] = {0, arcs[a].tail, back};
        }
        distance_.assign(network_->nodes, far);
        seen_.assign(network_->nodes, 0);
        next_.assign(network_->nodes, 0);
    }

    void set_all_lengths() {
        corner_.resize(network_->operations);
        for (std::uint32_t i = 0; i < network_->operations; ++i) {
            const auto& saving = hulls_[i]->saving;
            corner_[i] = static_cast<std::uint32_t>(
                std::lower_bound(saving.begin(), saving.end(), flow_[i],
                                 [](std::int64_t s, std::int64_t flow) { return s > flow; }) -
                saving.begin());
        }
        for (std::uint32_t a = 0; a < flow_.size(); ++a) set_lengths(a);
    }

    /// While an operation lasts as long as at a corner of its hull, its flow is at least `lowest`
    /// and at most `highest`. `corner_` is the one with lowest <= flow < highest.
    [[nodiscard]] std::int64_t lowest(std::uint32_t operation, std::size_t corner) const {
        const auto& saving = hulls_[operation]->saving;
        return corner < saving.size() ? saving[corner] : 0;
    }
    [[nodiscard]] std::int64_t highest(std::uint32_t operation, std::size_t corner) const {
        return corner == 0 ? unlimited : hulls_[operation]->saving[corner - 1];
    }

    void set_lengths(std::uint32_t a) {
        const std::size_t half = std::size_t{2} * a;
        HalfArc& forth = halves_[place_[half]];
        HalfArc& back = halves_[place_[half + 1]];
        if (a >= network_->operations) {
            forth.length = network_->transfer(a);
            back.length = flow_[a] > 0 ? -forth.length : closed;
            return;
        }
        const auto& time = hulls_[a]->time;
        const std::uint32_t k = corner_[a];
        forth.length = time[k];
        if (flow_[a] == 0)
            back.length = closed;
        else
            back.length = flow_[a] > lowest(a, k) ? -time[k] : -time[k + 1];
    }

    /// How much more flow fits at the half arc's present length.
    [[nodiscard]] std::int64_t room(std::uint32_t half) const {
        const std::uint32_t a = half / 2;
        const bool back = half % 2 != 0;
        if (a >= network_->operations) return back ? flow_[a] : unlimited;
        const std::uint32_t k = corner_[a];
        if (!back) return k == 0 ? unlimited : highest(a, k) - flow_[a];
        const std::int64_t low = lowest(a, k);
        return flow_[a] > low ? flow_[a] - low : flow_[a] - lowest(a, k + 1);
    }

    void push(std::uint32_t half, std::int64_t amount) {
        const std::uint32_t a = half / 2;
        flow_[a] += half % 2 != 0 ? -amount : amount;
        if (a < network_->operations) {
            while (flow_[a] >= highest(a, corner_[a])) --corner_[a];
            while (flow_[a] < lowest(a, corner_[a])) ++corner_[a];
        }
        set_lengths(a);
    }

    [[nodiscard]] std::uint32_t tail_of(std::uint32_t place) const {
        return halves_[place_[halves_[place].half ^ 1U]].head;
    }

    /// Dijkstra on reduced costs until the sink is reached, or `most` is; every node that is nearer
    /// then happens later by what it is nearer. Nodes at no distance need no heap.
    /// @return whether a path has opened
    bool shift(std::int64_t most) {
        ++round_;
        near_.clear();
        heap_.clear();
        nearest_path_ = most;
        bool open = false;
        std::int64_t now = 0;
        distance_[network_->source()] = 0;
        seen_[network_->source()] = round_;
        stack_.assign(1, network_->source());
        do {
            while (!stack_.empty()) {
                const std::uint32_t u = stack_.back();
                stack_.pop_back();
                near_.push_back(u);
                open = look_around(u, now) || open;
            }
        } while (nearest_path_ > now && pop_next(now));
        for (const std::uint32_t v : near_) time_[v] += nearest_path_ - distance_[v];
        return open;
    }

    /// Relaxes what leaves a node. @return whether the sink got nearer
    bool look_around(std::uint32_t u, std::int64_t now) {
        bool open = false;
        const std::int64_t offset = now - time_[u];
        for (std::uint32_t h = begin_[u]; h < begin_[u + 1]; ++h) {
            const std::uint32_t v = halves_[h].head;
            const std::int64_t distance = offset + time_[v] - halves_[h].length;
            if (distance > nearest_path_ || (distance == nearest_path_ && v != network_->sink()))
                continue;
            if (seen_[v] == round_ && distance_[v] <= distance) continue;
            seen_[v] = round_;
            distance_[v] = distance;
            if (v == network_->sink()) {
                nearest_path_ = distance;
                open = true;
            } else if (distance == now) {
                stack_.push_back(v);
            } else {
                heap_.emplace_back(distance, v);
                std::push_heap(heap_.begin(), heap_.end(), std::greater<>{});
            }
        }
        return open;
    }

    bool pop_next(std::int64_t& now) {
        while (!heap_.empty() && heap_.front().first < nearest_path_) {
            const auto [distance, v] = heap_.front();
            std::pop_heap(heap_.begin(), heap_.end(), std::greater<>{});
            heap_.pop_back();
            if (distance_[v] != distance) continue;
            now = distance;
            stack_.push_back(v);
            return true;
        }
        return false;
    }

    /// Sends flow along tight paths, depth first. A node without a way to the sink is left for
    /// good; a path that was missed so is found by the next shift, at no distance.
    void saturate() {
        ++round_;
        path_.clear();
        std::uint32_t u = network_->source();
        seen_[u] = round_;
        next_[u] = begin_[u];
        for (;;) {
            if (u == network_->sink()) {
                if (!augment(u)) return;
            } else if (const std::uint32_t h = next_tight(u); h != begin_[u + 1]) {
                path_.push_back(h);
                u = halves_[h].head;
                seen_[u] = round_;
                next_[u] = begin_[u];
            } else {
                if (path_.empty()) return;
                u = tail_of(path_.back());
                path_.pop_back();
                ++next_[u];
            }
        }
    }

    /// The next tight half arc out of a node to one that was not seen.
    std::uint32_t next_tight(std::uint32_t u) {
        std::uint32_t& h = next_[u];
        for (; h < begin_[u + 1]; ++h) {
            const HalfArc& half = halves_[h];
            if (time_[half.head] - time_[u] == half.length &&
                (half.head == network_->sink() || seen_[half.head] != round_))
                break;
        }
        return h;
    }

    /// Sends what fits along the path and goes back to where it is full. @return false if the path
    /// takes any amount: no shorter iteration is possible.
    bool augment(std::uint32_t& u) {
        std::int64_t amount = unlimited;
        for (const std::uint32_t h : path_) amount = std::min(amount, room(halves_[h].half));
        if (amount == unlimited) {
            at_shortest_ = true;
            return false;
        }
        price_ += amount;
        std::size_t full = path_.size();
        for (std::size_t k = path_.size(); k-- > 0;) {
            HalfArc& half = halves_[path_[k]];
            const std::int64_t length = half.length;
            push(half.half, amount);
            if (half.length != length) full = k;
        }
        for (std::size_t k = full; k < path_.size(); ++k) seen_[halves_[path_[k]].head] = 0;
        u = tail_of(path_[full]);
        path_.resize(full);
        return true;
    }

    const Network* network_;
    std::vector<const Hull*> hulls_;
    std::vector<std::uint32_t> begin_;  ///< first of `halves_` that leaves each node, and the end
    std::vector<HalfArc> halves_;
    std::vector<std::uint32_t> place_;  ///< where in `halves_` each half arc is
    std::vector<std::int64_t> time_;
    std::vector<std::int64_t> flow_;
    std::vector<std::uint32_t> corner_;
    std::int64_t price_ = 0;
    bool at_shortest_ = false;

    // What the searches work with.
    std::uint32_t round_ = 0;
    std::int64_t nearest_path_ = 0;
    std::vector<std::int64_t> distance_;
    std::vector<std::uint32_t> seen_;  ///< the round in which a node was seen last
    std::vector<std::uint32_t> next_;  ///< where the depth-first search of a node goes on
    std::vector<std::uint32_t> near_;
    std::vector<std::uint32_t> stack_;
    std::vector<std::uint32_t> path_;
    std::vector<std::pair<std::int64_t, std::uint32_t>> heap_;
};

}  // namespace kdvfs::inline v0_3::train::detail
