// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/tune/block_meter.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <kdvfs/units.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <span>
#include <vector>

/// A plan against the clocks as found, within one run.
namespace kdvfs::inline v0_3::tune::detail {

/// Which iterations of a run follow a plan, and what they cost: blocks in pairs of random order; of
/// two pairs in a row one begins with the plan. Each block begins with iterations that do not
/// count, while clocks change. Times are those between iterations on the host, so that all that the
/// program does is in them. A pure state machine: times and samples in, decisions out.
class ComparedBlocks {
public:
    /// The follower looks at so many iterations to see whether a plan is the program's.
    static constexpr std::uint32_t first_iterations = 4;
    /// A block has no fewer, so that iterations that are not alike weigh less.
    static constexpr std::uint32_t fewest_iterations = 2;

    ComparedBlocks(const BlockOptions& options, Duration sample_period, std::uint64_t seed)
        : options_{options}, sample_period_{sample_period}, random_{seed} {}

    /// An iteration begins.
    /// @returns whether it follows the plan
    bool next(TimePoint now) {
        ++iterations_;
        if (!counting_) {
            const std::uint32_t fewest = begun_ == 0 ? first_iterations : 1;
            if (iterations_ > fewest && now - since_ >= settling()) {
                counting_ = true;
                since_ = now;
                iterations_ = 1;
            } else if (iterations_ == 1) {
                since_ = now;
            }
            return planned_;
        }
        if (iterations_ <= fewest_iterations || now - since_ < options_.measuring(sample_period_))
            return planned_;
        if (begun_ > 0) {
            meter_.ended({ended_++, iterations_ - 1, since_, now});
            ways_.push_back(planned_);
        }
        if (begun_++ % 2 == 0) first_ = begun_ % 4 == 1 ? (random_() & 1U) == 0 : !first_;
        planned_ = begun_ % 2 == 1 ? first_ : !first_;
        counting_ = false;
        since_ = now;
        iterations_ = 1;
        return planned_;
    }

    /// @param samples of the energy counter, that came in since
    void add(std::span<const measure::EnergySample> samples) {
        for (const CountedCost& cost : meter_.add(samples)) {
            const bool planned = ways_.front();
            ways_.pop_front();
            if (cost.number % 2 == 0) {
                first_cost_ = cost.iteration;
                continue;
            }
            if (first_cost_ && cost.iteration)
                pairs_.push_back(planned ? ComparedPair{*cost.iteration, *first_cost_}
                                         : ComparedPair{*first_cost_, *cost.iteration});
        }
    }

    [[nodiscard]] const std::vector<ComparedPair>& pairs() const { return pairs_; }

private:
    /// Blocks are neighbours: temperatures need not follow, clocks must.
    [[nodiscard]] Duration settling() const { return 10 * options_.switch_latency; }

    BlockOptions options_;
    Duration sample_period_;
    std::mt19937_64 random_;
    bool planned_ = true;
    bool first_ = true;  ///< whether the pair begins with the plan
    bool counting_ = false;
    std::uint32_t iterations_ = 0;  ///< of this block, counted or not
    std::uint64_t begun_ = 0;       ///< blocks
    TimePoint since_{};
    BlockMeter meter_;
    std::uint32_t ended_ = 0;  ///< blocks; the even ones begin a pair
    std::deque<bool> ways_;    ///< whether each block that is not known yet followed the plan
    std::optional<Cost> first_cost_;  ///< of the pair whose second block is not known yet
    std::vector<ComparedPair> pairs_;
};

/// The scopes of a program whose plan is compared: they follow the plan in its blocks and do
/// nothing in others. Scopes are entered by any thread; `next_iteration` is called by one.
class PlanComparison final : public kdvfs::detail::ScopeSink {
public:
    /// `service` must outlive it.
    PlanComparison(kdvfs::detail::GpuService& service, const SweepOptions& options)
        : service_{&service}, blocks_{options.block, service.sample_period(), options.seed} {
        service_->keep_record(true);
    }
    ~PlanComparison() { service_->keep_record(false); }
    PlanComparison(const PlanComparison&) = delete;
    PlanComparison& operator=(const PlanComparison&) = delete;

    void next_iteration() {
        const measure::MeterRecord record = service_->take_record();
        blocks_.add(record.samples);
        const bool planned = blocks_.next(service_->now());
        const bool before = planned_.exchange(planned, std::memory_order_relaxed);
        if (before && !planned) service_->end_holding(true);
        if (planned)
            service_->next_iteration();
        else
            static_cast<void>(service_->begin_iteration(false));
    }

    [[nodiscard]] const std::vector<ComparedPair>& pairs() const { return blocks_.pairs(); }

    kdvfs::detail::ScopeToken enter(StreamRef stream,
                                    const kdvfs::detail::ScopeKind& kind) override {
        if (!planned_.load(std::memory_order_relaxed)) return {};
        return service_->enter(stream, kind);
    }
    void leave(const kdvfs::detail::ScopeToken& token) override {
        if (token.track != nullptr) service_->leave(token);
    }
    void leave_noexcept(const kdvfs::detail::ScopeToken& token) noexcept override {
        if (token.track != nullptr) service_->leave_noexcept(token);
    }

private:
    kdvfs::detail::GpuService* service_;
    ComparedBlocks blocks_;
    std::atomic<bool> planned_{true};
};

}  // namespace kdvfs::inline v0_3::tune::detail
