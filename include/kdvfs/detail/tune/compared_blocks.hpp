// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/tune/block_meter.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <kdvfs/units.hpp>

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// What an iteration cost in two neighbouring blocks, one of which followed a plan.
struct ComparedPair {
    Cost planned;
    Cost found;
};

namespace detail {

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

    /// @param often so many pairs come one after the other; from then on each tenth is compared and
    ///        the others follow the plan
    ComparedBlocks(const BlockOptions& options, Duration sample_period, std::uint64_t seed,
                   std::uint64_t often = std::numeric_limits<std::uint64_t>::max())
        : options_{options}, sample_period_{sample_period}, random_{seed}, often_{often} {}

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
            meter_.ended({ended_++, iterations_ - 1.0, since_, now});
            ways_.push_back(planned_);
        }
        const std::uint64_t pair = begun_ / 2;
        const bool is_compared = pair < often_ || pair % 10 == 0;
        if (begun_++ % 2 == 0) first_ = pair % 2 == 0 ? (random_() & 1U) == 0 : !first_;
        planned_ = !is_compared || (begun_ % 2 == 1) == first_;
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
                first_way_ = planned;
                continue;
            }
            if (planned != first_way_ && first_cost_ && cost.iteration)
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
    std::uint64_t often_;
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
    bool first_way_ = false;          ///< likewise
    std::vector<ComparedPair> pairs_;
};

}  // namespace detail
}  // namespace kdvfs::inline v0_3::tune
