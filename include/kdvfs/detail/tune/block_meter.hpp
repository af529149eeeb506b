// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// Consecutive iterations that were run in one way, on the host's clock.
struct CountedBlock {
    std::uint32_t number = 0;  ///< the caller's own, by which it knows the block
    double iterations = 0;     ///< or what counts as one, where they are of several kinds
    TimePoint from;
    TimePoint to;
};

/// What an iteration of a block cost; nothing where the energy counter has seen too little of it.
struct CountedCost {
    std::uint32_t number = 0;
    std::optional<Cost> iteration;
};

/// Gives blocks of iterations their energy: the power that the energy counter's samples within a
/// block show, times the block's time. Blocks come in order; their samples may come later. Pure.
class BlockMeter {
public:
    /// A block has ended; it began behind the end of the one before.
    void ended(const CountedBlock& block) { blocks_.push_back(block); }
    /// Blocks that have ended and those under way are of no interest any more.
    void forget() {
        blocks_.clear();
        samples_.clear();
    }

    /// @param samples of the energy counter, which came in since the last call
    /// @returns the blocks of which all is known now, in order
    std::vector<CountedCost> add(std::span<const measure::EnergySample> samples) {
        samples_.insert(samples_.end(), samples.begin(), samples.end());
        std::vector<CountedCost> known;
        while (!blocks_.empty() && !samples_.empty() && samples_.back().at >= blocks_.front().to) {
            const CountedBlock& block = blocks_.front();
            known.push_back({block.number, cost_of(block)});
            const TimePoint until = block.to;
            blocks_.pop_front();
            std::erase_if(samples_, [&](const auto& sample) { return sample.at < until; });
        }
        return known;
    }
    /// Samples before this time are of no block. Keeps what is remembered small between blocks.
    void skip_to(TimePoint from) {
        if (blocks_.empty())
            std::erase_if(samples_, [&](const auto& sample) { return sample.at < from; });
    }

private:
    /// An iteration of the block, at the power that the samples within it show.
    [[nodiscard]] std::optional<Cost> cost_of(const CountedBlock& block) const {
        const measure::EnergySample* first = nullptr;
        const measure::EnergySample* last = nullptr;
        for (const measure::EnergySample& sample : samples_) {
            if (sample.at < block.from || sample.at > block.to) continue;
            if (first == nullptr) first = &sample;
            last = &sample;
        }
        if (first == nullptr || first->segment != last->segment) return std::nullopt;
        if (2 * (last->at - first->at) < block.to - block.from) return std::nullopt;
        const Seconds time = Seconds{block.to - block.from} / block.iterations;
        const Watts power = (last->total - first->total) / Seconds{last->at - first->at};
        const Cost cost{time, power * time};
        return find_fault(cost) ? std::nullopt : std::optional{cost};
    }

    std::deque<CountedBlock> blocks_;
    std::vector<measure::EnergySample> samples_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
