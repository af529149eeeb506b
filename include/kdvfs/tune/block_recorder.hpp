// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/time.hpp>
#include <kdvfs/measure/energy_counter.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/tune/sweep_block.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::tune {

/// Turns what a GPU object records into measured blocks. Not thread-safe.
class BlockRecorder {
public:
    /// A block begins; its records carry its burst.
    void begin(const SweepBlock& block) { open_.emplace_back(block); }
    /// The block that began last has ended, on the host.
    void end(std::uint32_t iterations, std::uint64_t scopes) {
        open_.back().block().iterations = iterations;
        open_.back().block().scopes = scopes;
    }

    void take(const measure::MeterRecord& record) {
        for (const measure::MeteredRun& run : record.runs) {
            const auto block = std::find_if(open_.begin(), open_.end(), [&](const auto& open) {
                return open.block().burst == run.burst;
            });
            if (block != open_.end()) block->add(run.interval);
        }
        note_period(record.samples);
        samples_.insert(samples_.end(), record.samples.begin(), record.samples.end());
        clocks_.insert(clocks_.end(), record.clocks.begin(), record.clocks.end());
    }

    /// The blocks of which all is known, in order.
    std::vector<MeasuredBlock> take_measured() {
        std::vector<MeasuredBlock> measured;
        while (!open_.empty() && is_over(open_.front())) {
            const BlockRecord& block = open_.front();
            auto attributed = holds_its_clock(block) ? block.attribute(samples_) : std::nullopt;
            if (attributed)
                measured.push_back(*std::move(attributed));
            else
                dropped_.push_back(block.block());
            forget_until(block.to());
            open_.erase(open_.begin());
        }
        while (open_.size() > 1 && open_[1].is_complete()) {  // records of the first were lost
            dropped_.push_back(open_.front().block());
            open_.erase(open_.begin());
        }
        if (open_.empty() && samples_.size() > 4096) forget_until(samples_[samples_.size() / 2].at);
        return measured;
    }

    /// Blocks that could not be measured: records were lost, or the clocks did not hold.
    std::vector<SweepBlock> take_dropped() { return std::exchange(dropped_, {}); }

    [[nodiscard]] std::size_t open() const { return open_.size(); }

    /// The time between two samples of the counter, as seen last; 0 where unknown.
    [[nodiscard]] Duration sample_period() const { return sample_period_; }

private:
    [[nodiscard]] bool is_over(const BlockRecord& block) const {
        return block.is_complete() && !samples_.empty() && samples_.back().at >= block.to();
    }

    /// Whether the device held the block's clocks from its beginning to its end.
    [[nodiscard]] bool holds_its_clock(const BlockRecord& block) const {
        ClockPoint applied;  // what nobody has changed is at auto
        for (const measure::ClockChange& change : clocks_) {
            if (change.at > block.to()) break;
            if (change.at > block.from()) return false;
            applied = change.applied;
        }
        return applied == block.block().clock;
    }

    /// The median step, since reads may be late.
    void note_period(std::span<const measure::EnergySample> samples) {
        std::vector<Duration> steps;
        for (std::size_t i = 1; i < samples.size(); ++i)
            steps.push_back(samples[i].at - samples[i - 1].at);
        if (steps.empty()) return;
        const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
        std::nth_element(steps.begin(), middle, steps.end());
        sample_period_ = *middle;
    }

    /// Keeps the last change of clocks before: it still holds.
    void forget_until(TimePoint until) {
        std::erase_if(samples_, [&](const auto& sample) { return sample.at < until; });
        while (clocks_.size() > 1 && clocks_[1].at <= until) clocks_.erase(clocks_.begin());
    }

    std::vector<BlockRecord> open_;
    std::vector<measure::EnergySample> samples_;
    std::vector<measure::ClockChange> clocks_;
    std::vector<SweepBlock> dropped_;
    Duration sample_period_{0};
};

}  // namespace kdvfs::tune
