// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/boards.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/train/node_power.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace gpt3 {

/// Simulated GPUs of one node that train the model data-parallel, each on a batch of its own. One
/// of them is hotter: it leaks so much more that its clock is lower at the same watts. After Lit
/// Silicon (arXiv 2511.09861), without what it found of overlapped collectives.
class Node {
public:
    /// @param each the case of every GPU
    /// @param gpus of the node; the last one is the hot one
    /// @param slower share by which its clock is lower at the board's own limit
    Node(const Case& each, std::size_t gpus, double slower)
        : case_{each}, boards_(gpus, each.board) {
        const kdvfs::Watts limit = each.board.power_cap;
        const double wanted = (1 - slower) * run(each.board, limit).clock;
        double low = each.board.core_overhead.leakage.count;
        double high = limit.count;
        for (int halvings = 0; slower > 0 && halvings < 30; ++halvings) {
            boards_.back().core_overhead.leakage = {(low + high) / 2};
            (run(boards_.back(), limit).clock < wanted ? high : low) = (low + high) / 2;
        }
    }

    [[nodiscard]] std::size_t size() const { return boards_.size(); }
    [[nodiscard]] const kdvfs::simulated::Board& board(std::size_t gpu) const {
        return boards_[gpu];
    }

    /// One iteration under these limits, one of each GPU.
    [[nodiscard]] std::vector<kdvfs::train::GpuIteration> iterate(
        const std::vector<kdvfs::Watts>& limits) const {
        std::vector<kdvfs::train::GpuIteration> iterations;
        kdvfs::Seconds longest{0};
        for (std::size_t gpu = 0; gpu < boards_.size(); ++gpu) {
            const Run done = run(boards_[gpu], limits[gpu]);
            iterations.push_back({done.time, {}, done.power, {}});
            longest = std::max(longest, done.time);
        }
        for (auto& each : iterations) each.waited = longest - each.compute + all_reduce(size());
        return iterations;
    }

private:
    struct Run {
        kdvfs::Seconds time;
        kdvfs::Watts power;
        double clock;  // MHz, mean over time
    };

    /// 1.3e9 gradients of 2 bytes by a ring; 7 links of 64 GB/s each way (MI300X data sheet).
    static kdvfs::Seconds all_reduce(std::size_t gpus) {
        const double share = 2 * (1 - 1 / static_cast<double>(gpus));
        return kdvfs::Seconds{share * 2.6e9 / (7 * 64e9)};
    }

    [[nodiscard]] Run run(kdvfs::simulated::Board board, kdvfs::Watts limit) const {
        board.power_cap = limit;
        kdvfs::Joules energy{};
        kdvfs::Seconds time{0};
        double cycles = 0;
        for (std::size_t entry = 0; entry < kernel_count; ++entry) {
            const auto point = kdvfs::simulated::operate(board, case_.kernels[entry], {});
            const kdvfs::Seconds all =
                point.time * static_cast<double>(published_table[entry].repeats);
            time += all;
            energy += point.power * all;
            cycles += all.count() * point.core.count;
        }
        return {time, energy / time, cycles / time.count()};
    }

    Case case_;
    std::vector<kdvfs::simulated::Board> boards_;
};

}  // namespace gpt3
