// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// The other operation of a dependency, and the nanoseconds that it takes.
struct Neighbour {
    std::uint32_t operation = 0;
    std::int64_t transfer = 0;
};

/// A pipeline as a network of points in time: each operation leads from its start to its end, each
/// dependency from an end to a start, with the time that it takes. Starts and ends that can be one
/// point without changing what is possible are one: an operation with a single predecessor starts
/// at that one's end, one with a single successor ends at that one's start. Nodes are numbered in
/// topological order, from the iteration's start to its end.
struct Network {
    struct Arc {
        std::uint32_t tail = 0;
        std::uint32_t head = 0;
    };

    std::uint32_t nodes = 0;
    std::uint32_t operations = 0;
    std::vector<Arc> arcs;  ///< first the operations in their order, then what remains of waiting
    std::vector<Dependency> waits;             ///< what the arcs after the operations stand for
    std::vector<std::int64_t> transfers;       ///< how long these take at least, nanoseconds
    std::vector<std::uint32_t> leaving_begin;  ///< first in `leaving` of each node, and the end
    std::vector<std::uint32_t> leaving;        ///< arcs by their tail

    [[nodiscard]] std::uint32_t source() const { return 0; }
    [[nodiscard]] std::uint32_t sink() const { return nodes - 1; }

    explicit Network(const Pipeline& pipeline)
        : operations{static_cast<std::uint32_t>(pipeline.operations.size())} {
        contract(without_repeats(pipeline.dependencies));
        index();
        number_topologically();
    }

    /// How long an arc takes that is no operation.
    [[nodiscard]] std::int64_t transfer(std::uint32_t arc) const {
        return transfers[arc - operations];
    }

    /// The earliest time of every node when operations last `duration(i)` nanoseconds.
    template <class Duration>
    void earliest(const Duration& duration, std::vector<std::int64_t>& time) const {
        time.assign(nodes, 0);
        for (std::uint32_t v = 0; v < nodes; ++v)
            for (std::uint32_t k = leaving_begin[v]; k < leaving_begin[v + 1]; ++k) {
                const std::uint32_t a = leaving[k];
                const std::int64_t length = a < operations ? duration(a) : transfer(a);
                std::int64_t& head = time[arcs[a].head];
                head = std::max(head, time[v] + length);
            }
    }

    /// The latest time of every node with which the iteration still ends at `end`.
    template <class Duration>
    void latest(const Duration& duration, std::int64_t end, std::vector<std::int64_t>& time) const {
        time.assign(nodes, end);
        for (std::uint32_t v = nodes; v-- > 0;)
            for (std::uint32_t k = leaving_begin[v]; k < leaving_begin[v + 1]; ++k) {
                const std::uint32_t a = leaving[k];
                const std::int64_t length = a < operations ? duration(a) : transfer(a);
                time[v] = std::min(time[v], time[arcs[a].head] - length);
            }
    }

private:
    static std::vector<Dependency> without_repeats(std::vector<Dependency> waits) {
        const auto key = [](const Dependency& d) { return std::pair{d.first, d.then}; };
        // The longest of those between the same operations comes first, and stays.
        std::sort(waits.begin(), waits.end(), [&](const Dependency& a, const Dependency& b) {
            return key(a) != key(b) ? key(a) < key(b) : a.time > b.time;
        });
        const auto end =
            std::unique(waits.begin(), waits.end(),
                        [&](const Dependency& a, const Dependency& b) { return key(a) == key(b); });
        waits.erase(end, waits.end());
        return waits;
    }

    /// Points in time before they are merged: the iteration's start and end, then each operation's.
    static constexpr std::uint32_t begin_point = 0;
    static constexpr std::uint32_t end_point = 1;
    static std::uint32_t start(std::uint32_t operation) { return 2 + 2 * operation; }
    static std::uint32_t end(std::uint32_t operation) { return 3 + 2 * operation; }

    void contract(const std::vector<Dependency>& all) {
        std::vector<std::uint32_t> before(operations, 0);
        std::vector<std::uint32_t> after(operations, 0);
        for (const Dependency& d : all) {
            ++before[d.then];
            ++after[d.first];
        }
        std::vector<std::uint32_t> same(2 + 2 * std::size_t{operations});
        std::iota(same.begin(), same.end(), 0U);
        const auto find = [&](std::uint32_t point) {
            while (same[point] != point) point = same[point] = same[same[point]];
            return point;
        };
        const auto merge = [&](std::uint32_t a, std::uint32_t b) {
            a = find(a);
            b = find(b);
            same[std::max(a, b)] = std::min(a, b);
        };
        for (std::uint32_t i = 0; i < operations; ++i) {
            if (before[i] == 0) merge(start(i), begin_point);
            if (after[i] == 0) merge(end(i), end_point);
        }
        for (const Dependency& d : all)
            if ((before[d.then] == 1 || after[d.first] == 1) && d.nanoseconds() == 0)
                merge(end(d.first), start(d.then));

        std::vector<std::uint32_t> number(same.size(), 0);
        for (std::uint32_t p = 0; p < same.size(); ++p)
            if (find(p) == p) number[p] = nodes++;
        for (std::uint32_t i = 0; i < operations; ++i)
            arcs.push_back({number[find(start(i))], number[find(end(i))]});
        for (const Dependency& d : all) {
            const Arc arc{number[find(end(d.first))], number[find(start(d.then))]};
            if (arc.tail == arc.head) continue;
            arcs.push_back(arc);
            waits.push_back(d);
            transfers.push_back(d.nanoseconds());
        }
    }

    void index() {
        leaving_begin.assign(nodes + 1, 0);
        for (const Arc& arc : arcs) ++leaving_begin[arc.tail + 1];
        std::partial_sum(leaving_begin.begin(), leaving_begin.end(), leaving_begin.begin());
        std::vector<std::uint32_t> next = leaving_begin;
        leaving.resize(arcs.size());
        for (std::uint32_t a = 0; a < arcs.size(); ++a) leaving[next[arcs[a].tail]++] = a;
    }

    void number_topologically() {
        std::vector<std::uint32_t> missing(nodes, 0);
        for (const Arc& arc : arcs) ++missing[arc.head];
        std::vector<std::uint32_t> queue;
        std::vector<std::uint32_t> number(nodes, 0);
        for (std::uint32_t v = 0; v < nodes; ++v)
            if (missing[v] == 0) queue.push_back(v);
        for (std::size_t k = 0; k < queue.size(); ++k) {
            const std::uint32_t v = queue[k];
            number[v] = static_cast<std::uint32_t>(k);
            for (std::uint32_t e = leaving_begin[v]; e < leaving_begin[v + 1]; ++e)
                if (--missing[arcs[leaving[e]].head] == 0) queue.push_back(arcs[leaving[e]].head);
        }
        for (Arc& arc : arcs) arc = {number[arc.tail], number[arc.head]};
        index();
    }
};

}  // namespace kdvfs::inline v0_3::train::detail
