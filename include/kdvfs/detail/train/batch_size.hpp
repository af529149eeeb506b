// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/batch_size.hpp>

#include <kdvfs/detail/train/batch_costs.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

namespace detail {

/// What `BatchSize` decides, on its state.
class BatchSizeLearner {
public:
    /// Both must outlive it.
    BatchSizeLearner(const BatchSizeOptions& options, BatchSizeState& state)
        : options_{options}, state_{state}, costs_{options, state} {}

    /// @throws Error (invalid_input) for sizes, options or a state that make no sense
    void check() const {
        const auto& sizes = options_.sizes;
        const bool distinct =
            std::adjacent_find(sizes.begin(), sizes.end()) == sizes.end() && !sizes.empty();
        const bool has_usual = std::binary_search(sizes.begin(), sizes.end(), options_.usual);
        const bool known =
            std::all_of(state_.sizes.begin(), state_.sizes.end(), [&](const auto& entry) {
                return std::binary_search(sizes.begin(), sizes.end(), entry.first);
            });
        const bool stops = !std::isnan(options_.stop_at) && options_.stop_at > 1;
        if (distinct && sizes.front() > 0 && has_usual && known && stops) return;
        throw Error{Errc::invalid_input,
                    {"learn a batch size", std::to_string(sizes.size()) + " sizes",
                     !distinct || sizes.front() == 0 ? "they are none, repeated or zero"
                     : !has_usual ? "the usual one, " + std::to_string(options_.usual) +
                                        ", is not among them"
                     : !known ? "the state to go on from has others"
                              : "runs would be stopped below the best cost",
                     "give distinct sizes with the usual one, and stop at more than 1"}};
    }

    SuggestedRun suggest(Seconds now) {
        forget_lost(now);
        const auto best = costs_.best_known();
        const bool busy = std::any_of(state_.pending.begin(), state_.pending.end(),
                                      [](const auto& entry) { return entry.second.explores; });
        const std::uint32_t size = best && must_finish()     ? surest_known()
                                   : best && busy            ? *best
                                   : best && state_.doubtful ? state_.doubtful->batch_size
                                                             : explore();
        const std::uint64_t id = state_.next_id++;
        state_.pending[id] = {size, size != best, now.count()};
        return {id, size, costs_.record(size).profile, most_cost()};
    }

    double profiled(std::uint64_t id, const EpochProfile& profile) {
        if (!is_positive(profile.cost) || (profile.limit && !is_positive(profile.limit->count)))
            fail("take an epoch's profile", id, "its cost or limit is not a positive number");
        const std::uint32_t size = pending(id).batch_size;
        state_.sizes[size].profile = profile;
        find_least_cost();
        if (!std::isfinite(most_cost()) || is_worth_going_on(size)) return most_cost();
        return 0;
    }

    void observe(std::uint64_t id, const RunOutcome& outcome) {
        const std::uint32_t size = pending(id).batch_size;
        const bool has_numbers = std::isfinite(outcome.epochs) && outcome.epochs >= 0 &&
                                 std::isfinite(outcome.cost) && outcome.cost >= 0;
        const bool reached = outcome.end == RunEnd::reached;
        if (!has_numbers || (reached && (outcome.epochs <= 0 || outcome.cost <= 0)))
            fail("take a run's outcome", id, "its epochs or cost are not positive numbers");
        BatchSizeRecord& record = state_.sizes[size];
        switch (outcome.end) {
            case RunEnd::reached: take_reached(size, outcome); break;
            case RunEnd::stopped:
                // Less than two epochs say next to nothing about how many it takes.
                if (outcome.epochs >= 2) record.stopped.push_back(outcome.epochs);
                ++state_.unreached;
                break;
            case RunEnd::failed:
                ++record.failures;
                if (outcome.epochs >= 2) record.stopped.push_back(outcome.epochs);
                ++state_.unreached;
                break;
            case RunEnd::lost: break;
        }
        // A size that no longer reaches the target is not asked for what it once did.
        if (!reached && state_.doubtful && state_.doubtful->batch_size == size)
            state_.doubtful.reset();
        state_.pending.erase(id);
    }

private:
    static constexpr double too_cheap = 0.5;  ///< of the best size's cost: asked again
    /// An epoch that costs more than this multiple of its profile runs on a changed board.
    static constexpr double same_board = 1.25;
    /// Runs of other sizes may be dearer than those of the usual one: by so many runs in all at
    /// first, and by this share of each run (conservative bandits: Wu, Shariff, Lattimore and
    /// Szepesvari, ICML 2016); by less where runs of the same size differ more. The constants were
    /// chosen on made-up jobs, that of the tests among them, and a V100's traces.
    static constexpr double first_risk = 1;
    static constexpr double risk_of_a_run = 0.02;
    static constexpr double sureness = 2;  ///< deviations by which a size is known to be better
    /// How much more than a run of the best size one may cost that tells of another size.
    static constexpr double worth_of_learning = 1.2;

    static bool is_positive(double value) { return std::isfinite(value) && value > 0; }

    [[noreturn]] static void fail(const char* action, std::uint64_t id, const char* why) {
        throw Error{Errc::invalid_input, {action, "run " + std::to_string(id), why, ""}};
    }

    [[nodiscard]] const BatchSizeState::Pending& pending(std::uint64_t id) const {
        const auto run = state_.pending.find(id);
        if (run == state_.pending.end()) fail("take a report", id, "no such run is under way");
        return run->second;
    }
    /// The best size that seldom misses the target, if there is one: its run is not stopped.
    /// @pre a size has reached the target
    [[nodiscard]] std::uint32_t surest_known() const {
        const auto sure = costs_.best_of([](const BatchSizeRecord& record) {
            return 5 * (record.stopped.size() + record.failures) <= record.reached.size();
        });
        return sure ? *sure : costs_.best_known().value();
    }
    /// Whether the next run must reach the target, as two in a row have not.
    [[nodiscard]] bool must_finish() const { return state_.unreached >= 2; }
    [[nodiscard]] double usual_most_cost() const {
        const double spread =
            std::max(0.0, std::sqrt(costs_.run_variance()) - BatchCosts::usual_deviation);
        return options_.stop_at * std::exp(2 * spread) * state_.least_cost;
    }
    [[nodiscard]] double most_cost() const {
        return must_finish() ? std::numeric_limits<double>::infinity() : usual_most_cost();
    }

    void take_reached(std::uint32_t size, const RunOutcome& outcome) {
        if (must_finish() && outcome.cost > usual_most_cost())
            begin_anew(size, outcome.epochs, outcome.cost / outcome.epochs);
        state_.unreached = 0;
        BatchSizeRecord& record = state_.sizes[size];
        if (is_in_doubt(size, outcome)) {
            state_.doubtful = {size, outcome.epochs};
            return;
        }
        if (state_.doubtful && state_.doubtful->batch_size == size) {
            // Only a second run that is about as cheap confirms the first.
            if (outcome.epochs <= state_.doubtful->epochs / too_cheap)
                record.reached.push_back(state_.doubtful->epochs);
            state_.doubtful.reset();
        }
        record.reached.push_back(outcome.epochs);
        if (!record.profile)
            record.profile = EpochProfile{std::nullopt, outcome.cost / outcome.epochs};
        find_least_cost();
    }

    /// Whether a run is too cheap to count before another one of that size was, too.
    [[nodiscard]] bool is_in_doubt(std::uint32_t size, const RunOutcome& outcome) const {
        if (!std::isfinite(state_.least_cost)) return false;
        if (state_.doubtful && state_.doubtful->batch_size == size) return false;
        const auto& profile = costs_.record(size).profile;
        const double cost = profile ? outcome.epochs * profile->cost : outcome.cost;
        return cost < too_cheap * state_.least_cost;
    }

    /// The data or the board have changed. Of how many epochs sizes take beside one another, what
    /// was known counts as one run of each.
    void begin_anew(std::uint32_t size, double epochs, double epoch_cost) {
        const auto known = costs_.record(size).profile;
        const bool is_board = known && epoch_cost > same_board * known->cost;
        const auto before = BatchCosts::recent(costs_.record(size).reached);
        const double longer = before.empty() ? 1 : epochs / std::exp(BatchCosts::mean_log(before));
        for (auto& [other, record] : state_.sizes) {
            if (!record.reached.empty())
                record.reached = {
                    longer * std::exp(BatchCosts::mean_log(BatchCosts::recent(record.reached)))};
            record.stopped.clear();
            if (is_board) record.profile.reset();
        }
        if (is_board) state_.sizes[size].profile = EpochProfile{known->limit, epoch_cost};
        state_.doubtful.reset();
    }

    void find_least_cost() {
        state_.least_cost = std::numeric_limits<double>::infinity();
        for (const auto& [size, record] : state_.sizes) {
            if (record.reached.empty() || !record.profile || BatchCosts::is_failing(record))
                continue;
            const auto counted = BatchCosts::recent(record.reached);
            std::vector<double> epochs{counted.begin(), counted.end()};
            const auto middle = epochs.begin() + static_cast<std::ptrdiff_t>(epochs.size() / 2);
            std::nth_element(epochs.begin(), middle, epochs.end());
            state_.least_cost = std::min(state_.least_cost, *middle * record.profile->cost);
        }
    }

    /// Sizes that may be suggested: none that fails or lies beyond one that fails, and none farther
    /// than an octave, or one size, from those that have reached the target.
    /// @pre one has
    [[nodiscard]] std::vector<std::uint32_t> candidates() const {
        std::uint32_t low = costs_.best_known().value();  // of those that have reached the target
        std::uint32_t high = low;
        std::uint32_t floor = 0;  // failing sizes
        std::uint32_t ceiling = std::numeric_limits<std::uint32_t>::max();
        for (const auto& [size, record] : state_.sizes) {
            if (!BatchCosts::is_failing(record)) continue;
            if (size <= low) floor = size;
            if (size >= high) ceiling = std::min(ceiling, size);
        }
        for (const auto& [size, record] : state_.sizes) {
            if (record.reached.empty()) continue;
            low = std::min(low, size);
            high = std::max(high, size);
        }
        std::vector<std::uint32_t> sizes;
        const auto next_up = state_.sizes.upper_bound(high);
        const auto at_low = state_.sizes.find(low);
        for (auto entry = state_.sizes.begin(); entry != state_.sizes.end(); ++entry) {
            const std::uint32_t size = entry->first;
            if (size <= floor || size >= ceiling) continue;
            const bool near = 2.0 * size >= low && size <= 2.0 * high;
            const bool next =
                entry == next_up || (at_low != state_.sizes.begin() && entry == std::prev(at_low));
            if (near || next) sizes.push_back(size);
        }
        return sizes;
    }

    /// A lost run keeps nobody from exploring; much later it is forgotten.
    void forget_lost(Seconds now) {
        const auto age = [&](const BatchSizeState::Pending& run) {
            return now.count() - run.started;
        };
        for (auto& [id, run] : state_.pending)
            if (age(run) > options_.lost_after.count()) run.explores = false;
        std::erase_if(state_.pending, [&](const auto& entry) {
            return age(entry.second) > 30 * options_.lost_after.count();
        });
    }

    std::uint32_t explore() {
        if (!costs_.best_known()) return nearest_untried();
        const std::vector<std::uint32_t> sizes = candidates();
        const std::uint32_t drawn =
            sizes[BatchCosts::argmin(costs_.sampled_costs(sizes, state_.draws++))];
        const BatchSizeRecord& usual = costs_.record(options_.usual);
        return usual.reached.empty() || BatchCosts::is_failing(usual) ? drawn : affordable(drawn);
    }

    /// The size that was drawn, where it is known to be better than the usual one or its risk can
    /// be afforded; else the usual size, or the one most surely better.
    [[nodiscard]] std::uint32_t affordable(std::uint32_t drawn) const {
        std::vector<std::uint32_t> sizes;
        double runs = 0;
        for (const auto& [size, record] : state_.sizes) {
            runs += static_cast<double>(record.reached.size());
            if (!record.reached.empty() && !BatchCosts::is_failing(record)) sizes.push_back(size);
        }
        sizes.push_back(drawn);
        const std::vector<BatchCosts::LogCost> costs = costs_.beside_usual(sizes);
        if (costs.back().at_most(sureness) <= 0) return drawn;
        double risk = costs.back().risk();
        std::size_t surest = costs.size() - 1;
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
            risk += static_cast<double>(costs_.record(sizes[i]).reached.size()) * costs[i].risk();
            if (const double most = costs[i].at_most(sureness); most < least) {
                least = most;
                surest = i;
            }
        }
        const double spread =
            std::max(1.0, std::sqrt(costs_.run_variance()) / BatchCosts::usual_deviation);
        const double allowed = (first_risk + risk_of_a_run * runs) / std::pow(spread, 1.5);
        return risk <= allowed ? drawn : sizes[surest];
    }

    /// While none has reached the target: the size nearest to the usual one that has not failed.
    [[nodiscard]] std::uint32_t nearest_untried() const {
        std::optional<std::uint32_t> nearest;
        for (const auto& [size, record] : state_.sizes) {
            if (BatchCosts::is_failing(record)) continue;
            if (!nearest || std::abs(costs_.octaves(size)) < std::abs(costs_.octaves(*nearest)))
                nearest = size;
        }
        if (nearest) return *nearest;
        throw Error{Errc::not_supported,
                    {"suggest a batch size", "the recurring job",
                     "every size that was tried has failed to reach the target",
                     "give other sizes, or more epochs"}};
    }

    /// Whether the rest of a run at this size, just profiled, is thought to cost less than a run
    /// at the best other size that has reached the target.
    bool is_worth_going_on(std::uint32_t size) {
        std::vector<std::uint32_t> sizes{size};
        for (const auto& [other, record] : state_.sizes)
            if (other != size && !record.reached.empty() && !BatchCosts::is_failing(record))
                sizes.push_back(other);
        if (sizes.size() == 1) return true;
        const Eigen::VectorXd costs = costs_.sampled_costs(sizes, state_.draws++);
        const double rest = std::exp(costs(0)) - costs_.record(size).profile->cost;
        return rest <= worth_of_learning * std::exp(costs.tail(costs.size() - 1).minCoeff());
    }

    const BatchSizeOptions& options_;
    BatchSizeState& state_;
    BatchCosts costs_;
};

}  // namespace detail

KDVFS_INLINE BatchSize::BatchSize(BatchSizeOptions options, BatchSizeState state)
    : options_{std::move(options)}, state_{std::move(state)} {
    std::sort(options_.sizes.begin(), options_.sizes.end());
    detail::BatchSizeLearner{options_, state_}.check();
    for (const std::uint32_t size : options_.sizes) state_.sizes.try_emplace(size);
}

KDVFS_INLINE SuggestedRun BatchSize::suggest(Seconds now) {
    return detail::BatchSizeLearner{options_, state_}.suggest(now);
}

KDVFS_INLINE double BatchSize::profiled(std::uint64_t id, const EpochProfile& profile) {
    return detail::BatchSizeLearner{options_, state_}.profiled(id, profile);
}

KDVFS_INLINE void BatchSize::observe(std::uint64_t id, const RunOutcome& outcome) {
    detail::BatchSizeLearner{options_, state_}.observe(id, outcome);
}

KDVFS_INLINE std::optional<std::uint32_t> BatchSize::best_known() const {
    return detail::BatchCosts{options_, state_}.best_known();
}

}  // namespace kdvfs::inline v0_3::train
