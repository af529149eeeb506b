// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/attribution.hpp>
#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/energy_sums.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/sample_join.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// Iterations that were run at one clock point and metered: what was asked for.
struct SweepBlock {
    std::uint32_t window = 0;  ///< of its records
    ClockPoint clock;
    std::uint32_t iterations = 0;
    std::uint64_t scopes = 0;  ///< that were entered, on the host
    std::uint64_t stage = 0;   ///< of the schedule (`SweepStep::stage`)
};

/// What one launch of a kernel cost in a block.
struct BlockKernel {
    KernelId kernel;
    std::uint64_t launches = 0;
    Cost launch;
    Joules energy_sd;   ///< of the launch's energy: as much as itself where nothing tells it
    Joules attributed;  ///< the launch's energy without a bound below: what adds up to the block's
    Megahertz held = auto_clock;  ///< mean, by cycles; 0: not counted
    bool at_limit = false;        ///< the power limit may have held the board back
};

/// What a block turned out to be.
struct MeasuredBlock {
    SweepBlock block;
    Seconds iteration{0};
    Watts power{0};
    std::vector<BlockKernel> kernels;
    /// Of the kernels' attributed energies, joules^2; empty where the counter tells none.
    measure::SymmetricMatrix covariance{};
    std::vector<KernelInterval> intervals{};  ///< of its launches, as they came
    Seconds idle_time{0};                     ///< in which no kernel ran
    Joules idle{};                            ///< that the device used meanwhile
};

/// Gathers the records of a block. The energies of its kernels are attributed within the block:
/// one clock held, so each kernel has one power. Where the counter cannot tell kernels apart, they
/// share the mean power of what it can tell.
class BlockRecord {
public:
    explicit BlockRecord(SweepBlock block) : block_{block} {}

    SweepBlock& block() { return block_; }
    [[nodiscard]] const SweepBlock& block() const { return block_; }

    void add(const KernelInterval& interval) {
        from_ = intervals_.empty() ? interval.start : std::min(from_, interval.start);
        to_ = std::max(to_, interval.end);
        intervals_.push_back(interval);
        scopes_ += interval.ends_scope ? 1 : 0;
    }

    [[nodiscard]] TimePoint from() const { return from_; }
    [[nodiscard]] TimePoint to() const { return to_; }

    /// Whether every scope has left its interval.
    [[nodiscard]] bool is_complete() const { return scopes_ > 0 && scopes_ == block_.scopes; }

    /// @param samples the counter's, over the block and beyond its end
    /// @param limit   of the board's power; 0: unknown
    /// @returns nothing if the samples cannot tell any energy
    [[nodiscard]] std::optional<MeasuredBlock> attribute(
        std::span<const measure::EnergySample> samples, Watts limit = {}) const {
        const measure::EnergySums sums = this->sums(samples);
        if (sums.counted_time <= Seconds{0}) return std::nullopt;
        MeasuredBlock measured{
            block_,    Seconds{to_ - from_} / block_.iterations, sums.mean_power(), {}, {},
            intervals_};
        const measure::Attributing attributing{sums, {.spread = sums.mean_power() * spread}};
        if (attributing.solved()) {
            const std::vector<double> seconds = sums.idle_seconds();
            measured.idle_time = Seconds{std::accumulate(seconds.begin(), seconds.end(), 0.0)};
            measured.idle = {attributing.interval(seconds).joules};
        }
        std::vector<std::vector<double>> units;  // by kernel, seconds per column of a launch
        for (const auto& [kernel, tally] : tallies()) {
            if (tally.launches == 0 || tally.time <= Seconds{0}) continue;
            const double per_launch = 1 / static_cast<double>(tally.launches);
            const KernelPower power = power_of(kernel, sums, attributing);
            const Seconds share = tally.share * per_launch;
            measured.kernels.push_back(
                {kernel,
                 tally.launches,
                 {tally.time * per_launch, power.mean * share},
                 power.deviation * share,
                 power.attributed * share,
                 tally.held(),
                 limit.count > 0 && std::max(power.mean, measured.power) > limit * limited_above});
            units.push_back(sums.seconds_of(kernel));
            const double seen = std::accumulate(units.back().begin(), units.back().end(), 0.0);
            for (double& seconds : units.back()) seconds *= seen > 0 ? share.count() / seen : 0;
        }
        if (attributing.solved()) measured.covariance = attributing.covariance(units);
        return measured;
    }

private:
    /// Kernels' powers at one clock lie around their mean by about half of it: matters only where
    /// the counter says next to nothing.
    static constexpr double spread = 0.5;
    /// A board that works draws no less of its mean power than this (idle, an MI250 draws a sixth
    /// of its limit, an H100 too): keeps what the counter cannot tell from becoming free of charge.
    static constexpr double least_power = 0.1;

    /// A kernel or a block that draws more than this part of the limit is at it: recorded boards
    /// keep their mean within 3 % of the limit that holds them.
    static constexpr double limited_above = 0.97;

    struct Tally {
        std::uint64_t launches = 0;
        Seconds time{0};
        Seconds share{0};  ///< of the device: of n kernels at once, each has 1/n
        std::uint64_t cycles = 0;
        Duration counted{};  ///< of the intervals whose cycles are counted

        [[nodiscard]] Megahertz held() const {
            if (counted <= Duration{}) return auto_clock;
            return {static_cast<std::uint32_t>(1e3 * static_cast<double>(cycles) /
                                               static_cast<double>(counted.count()))};
        }
    };

    /// Hands out the time of kernels that overlap.
    struct Shares {
        std::map<KernelId, Tally>& tallies;

        void passes(TimePoint, TimePoint, bool) const {}
        void run(KernelId kernel, TrackId, ClockPoint, std::uint32_t, Seconds share, bool,
                 std::optional<measure::RunPart>) const {
            tallies[kernel].share += share;
        }
        void idle(Seconds, ClockPoint, bool) const {}
        void scope_ended(KernelId, TrackId, bool) const {}
        void mark_iteration(measure::IterationMark, std::uint64_t) const {}
        void end_row(double, Seconds, bool) const {}
        void break_row(bool) const {}
        void measured_directly(KernelId, ClockPoint, measure::CountedJoules) const {}
    };

    [[nodiscard]] measure::EnergySums sums(std::span<const measure::EnergySample> samples) const {
        const measure::KernelTable unused;
        measure::EnergyAccumulator accumulator{
            unused, {.capacity = std::max(intervals_.size(), samples.size()) + 1}};
        accumulator.clocks_applied(from_, block_.clock);
        for (const KernelInterval& interval : intervals_) accumulator.add(interval);
        // Only rows that lie in the block as a whole.
        for (const measure::EnergySample& sample : samples)
            if (from_ <= sample.at && sample.at <= to_) accumulator.add(sample);
        accumulator.advance(to_ + Duration{1});
        return accumulator.sums();
    }

    [[nodiscard]] std::map<KernelId, Tally> tallies() const {
        std::map<KernelId, Tally> found;
        const Shares shares{found};
        measure::SampleJoin join{intervals_.size() + 1, Duration::max()};
        for (const KernelInterval& interval : intervals_) {
            Tally& tally = found[interval.kernel];
            tally.launches += interval.ends_scope ? 1 : 0;
            tally.time += interval.end - interval.start;
            if (interval.core_cycles > 0) {
                tally.cycles += interval.core_cycles;
                tally.counted += interval.end - interval.start;
            }
            join.add(interval, shares);
        }
        join.advance(to_, shares);
        return found;
    }

    struct KernelPower {
        Watts mean;
        Watts deviation;   ///< standard, at most the mean
        Watts attributed;  ///< without a bound below
    };

    /// Over the time for which the counter saw the kernel.
    static KernelPower power_of(KernelId kernel, const measure::EnergySums& sums,
                                const measure::Attributing& attributing) {
        const Watts mean = sums.mean_power();
        const std::vector<double> seconds = sums.seconds_of(kernel);
        const double time = std::accumulate(seconds.begin(), seconds.end(), 0.0);
        if (!attributing.solved() || time <= 0) return {mean, mean, mean};
        constexpr double of_95_percent = 1.96;
        const measure::Attributing::Interval found = attributing.interval(seconds);
        const Watts attributed{found.joules / time};
        const Watts power = std::max(attributed, mean * least_power);
        return {power, std::min(Watts{found.half_width / of_95_percent / time}, power), attributed};
    }

    SweepBlock block_;
    std::vector<KernelInterval> intervals_;
    std::uint64_t scopes_ = 0;
    TimePoint from_{};
    TimePoint to_{};
};

/// Turns what a GPU object records into measured blocks. Not thread-safe.
class BlockRecorder {
public:
    /// A block begins; its records carry its window.
    void begin(const SweepBlock& block) { open_.emplace_back(block); }
    /// The block that began last has ended, on the host.
    void end(std::uint32_t iterations, std::uint64_t scopes) {
        open_.back().block().iterations = iterations;
        open_.back().block().scopes = scopes;
    }

    void take(const measure::MeterRecord& record) {
        for (const measure::MeteredRun& run : record.runs) {
            const auto block = std::find_if(open_.begin(), open_.end(), [&](const auto& open) {
                return open.block().window == run.window;
            });
            if (block != open_.end()) block->add(run.interval);
        }
        limit_ = record.power_limit;
        note_period(record.samples);
        samples_.insert(samples_.end(), record.samples.begin(), record.samples.end());
        clocks_.insert(clocks_.end(), record.clocks.begin(), record.clocks.end());
    }

    /// The blocks of which all is known, in order.
    std::vector<MeasuredBlock> take_measured() {
        std::vector<MeasuredBlock> measured;
        while (!open_.empty() && is_over(open_.front())) {
            const BlockRecord& block = open_.front();
            auto attributed =
                holds_its_clock(block) ? block.attribute(samples_, limit_) : std::nullopt;
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
        if (!steps.empty()) sample_period_ = measure::median_of(steps);
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
    Watts limit_{};
};

}  // namespace kdvfs::inline v0_3::tune
