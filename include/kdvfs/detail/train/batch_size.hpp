// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/batch_size.hpp>

#include <kdvfs/detail/solve/gaussian_condition.hpp>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <utility>

namespace kdvfs::inline v0_3::train {

namespace detail {

/// What runs of a recurring job are expected to cost, by their batch size.
class BatchCosts {
public:
    /// Both must outlive it.
    BatchCosts(const BatchSizeOptions& options, const BatchSizeState& state)
        : options_{options}, state_{state} {}

private:
    /// What the logarithm of a quantity that follows a law of batch size has beside that law: an
    /// unknown level, and smooth deviations over octaves.
    struct Deviations {
        double size;

        static constexpr double level = 3;   // wide: nothing is known
        static constexpr double length = 2;  // octaves
        static constexpr double own = 0.02;  // what a size has to itself

        double operator()(double a, double b) const {
            const double distance = std::sqrt(3.0) * std::abs(a - b) / length;
            return level * level + size * size * (1 + distance) * std::exp(-distance) +
                   (a == b ? own * own : 0);
        }
    };
    /// 1 - share + share * 2^(growth * octaves): one part is constant, the other grows or shrinks
    /// in proportion to the batch size. How large the shares are is not known.
    struct Law {
        double growth;
        double deviations;

        [[nodiscard]] double log(double share, double octaves) const {
            return std::log(1 - share + share * std::exp2(growth * octaves));
        }
    };
    /// Epochs grow as 1 + b / b_noise (McCandlish et al., An Empirical Model of Large-Batch
    /// Training, 2018), apart from very small batches.
    static constexpr Law epochs_law{+1, 0.2};
    /// An epoch costs as much for each sample, and as much for each step.
    static constexpr Law epoch_cost_law{-1, 0.1};
    static constexpr double usual_weight = 4;  ///< runs' evidence that `usual_deviation` is worth
    static constexpr std::size_t window = 10;  ///< runs of a size that count
    /// How far draws go, of the deviations that are known: recurrences are few, and each of them
    /// costs (Thompson sampling with a tempered posterior; 1 is the plain one).
    static constexpr double boldness = 0.4;

    struct Normal {
        double weight;
        Eigen::VectorXd mean;
        Eigen::MatrixXd covariance;
    };
    using Mixture = std::vector<Normal>;  ///< weights sum to 1

public:
    /// Runs of the same size differ in their epochs by about a tenth.
    static constexpr double usual_deviation = 0.1;

    [[nodiscard]] const BatchSizeRecord& record(std::uint32_t size) const {
        return state_.sizes.at(size);
    }
    [[nodiscard]] std::optional<std::uint32_t> best_known() const {
        return best_of([](const BatchSizeRecord&) { return true; });
    }
    template <class Allowed>
    [[nodiscard]] std::optional<std::uint32_t> best_of(const Allowed& allowed) const {
        std::vector<std::uint32_t> tried;
        for (const auto& [size, record] : state_.sizes)
            if (!record.reached.empty() && !is_failing(record) && allowed(record))
                tried.push_back(size);
        if (tried.empty()) return std::nullopt;
        return tried[argmin(mean(log_epochs(tried)) + mean(log_epoch_costs(tried)))];
    }

    /// The runs of a size that count.
    static std::span<const double> recent(const std::vector<double>& values) {
        return std::span{values}.last(std::min(window, values.size()));
    }

    [[nodiscard]] double octaves(std::uint32_t size) const {
        return std::log2(static_cast<double>(size) / options_.usual);
    }
    [[nodiscard]] std::vector<double> octaves(const std::vector<std::uint32_t>& sizes) const {
        std::vector<double> places;
        for (const std::uint32_t size : sizes) places.push_back(octaves(size));
        return places;
    }

    static bool is_failing(const BatchSizeRecord& record) {
        return record.failures > 2 * record.reached.size();
    }

    /// The logarithm of what runs cost, less that of the usual size.
    struct LogCost {
        double mean;
        double deviation;

        [[nodiscard]] double at_most(double deviations) const {
            return mean + deviations * deviation;
        }
        /// What a run may cost beyond one of the usual size, as a share.
        [[nodiscard]] double risk() const { return std::max(0.0, std::exp(at_most(1)) - 1); }
    };
    [[nodiscard]] std::vector<LogCost> beside_usual(std::vector<std::uint32_t> sizes) const {
        sizes.push_back(options_.usual);
        std::vector<LogCost> costs(sizes.size() - 1, LogCost{0, 0});
        for (const Mixture& mixture : {log_epochs(sizes), log_epoch_costs(sizes)}) {
            for (std::size_t k = 0; k < costs.size(); ++k) {
                const auto i = static_cast<Eigen::Index>(k);
                const auto usual = static_cast<Eigen::Index>(costs.size());
                double mean = 0;
                double square = 0;
                for (const Normal& part : mixture) {
                    const double less = part.mean(i) - part.mean(usual);
                    mean += part.weight * less;
                    square += part.weight *
                              (less * less + part.covariance(i, i) + part.covariance(usual, usual) -
                               2 * part.covariance(i, usual));
                }
                costs[k].mean += mean;
                costs[k].deviation =
                    std::hypot(costs[k].deviation, std::sqrt(std::max(0.0, square - mean * mean)));
            }
        }
        return costs;
    }

    /// Logarithms of what runs cost, drawn from what is known. Of a size whose epochs have not been
    /// profiled, the best of three draws: to know better takes no more than an epoch there.
    [[nodiscard]] Eigen::VectorXd sampled_costs(const std::vector<std::uint32_t>& sizes,
                                                std::uint64_t draw) const {
        constexpr int looks = 3;
        std::seed_seq seed{options_.seed, draw};
        std::mt19937_64 random{seed};
        const Mixture epochs = log_epochs(sizes);
        const Mixture epoch_costs = log_epoch_costs(sizes);
        Eigen::VectorXd least;
        for (int look = 0; look < looks; ++look) {
            const Eigen::VectorXd costs = sample(epochs, random) + sample(epoch_costs, random);
            if (look == 0) least = costs;
            for (std::size_t i = 0; i < sizes.size(); ++i) {
                const auto k = static_cast<Eigen::Index>(i);
                if (!record(sizes[i]).profile) least(k) = std::min(least(k), costs(k));
            }
        }
        return least;
    }

    static Eigen::VectorXd sample(const Mixture& mixture, std::mt19937_64& random) {
        double left = std::uniform_real_distribution<double>{}(random);
        const Normal* chosen = &mixture.back();
        for (const Normal& part : mixture) {
            left -= part.weight;
            if (left >= 0) continue;
            chosen = &part;
            break;
        }
        Eigen::MatrixXd covariance = chosen->covariance;
        covariance.diagonal().array() += 1e-9;  // rounding
        std::normal_distribution<double> standard;
        Eigen::VectorXd numbers(chosen->mean.size());
        for (double& number : numbers) number = boldness * standard(random);
        return chosen->mean + Eigen::LLT<Eigen::MatrixXd>{covariance}.matrixL() * numbers;
    }

    static Eigen::VectorXd mean(const Mixture& mixture) {
        Eigen::VectorXd sum = Eigen::VectorXd::Zero(mixture.front().mean.size());
        for (const Normal& part : mixture) sum += part.weight * part.mean;
        return sum;
    }

    static std::size_t argmin(const Eigen::VectorXd& values) {
        Eigen::Index least = 0;
        values.minCoeff(&least);
        return static_cast<std::size_t>(least);
    }

    /// The variance of log epochs between runs of the same size.
    [[nodiscard]] double run_variance() const {
        double squares = usual_weight * usual_deviation * usual_deviation;
        double freedom = usual_weight;
        for (const auto& [size, record] : state_.sizes) {
            const auto reached = recent(record.reached);
            if (reached.size() < 2) continue;
            const double mean = mean_log(reached);
            for (const double epochs : reached)
                squares += (std::log(epochs) - mean) * (std::log(epochs) - mean);
            freedom += static_cast<double>(reached.size() - 1);
        }
        return squares / freedom;
    }

    static double mean_log(std::span<const double> values) {
        double sum = 0;
        for (const double value : values) sum += std::log(value);
        return sum / static_cast<double>(values.size());
    }

private:
    struct Observed {
        std::vector<double> places;
        std::vector<double> logs;
        std::vector<double> variances;

        void add(double place, double log, double variance) {
            places.push_back(place);
            logs.push_back(log);
            variances.push_back(variance);
        }
    };

    [[nodiscard]] Mixture log_epochs(const std::vector<std::uint32_t>& sizes) const {
        const double variance = run_variance();
        Observed observed;
        for (const auto& [size, record] : state_.sizes) {
            const auto reached = recent(record.reached);
            const auto stopped = recent(record.stopped);
            if (reached.empty() && stopped.empty()) continue;
            // A stopped run would have gone on for an unknown time: half as long again, or so.
            if (reached.empty())
                observed.add(octaves(size), mean_log(stopped) + 0.4,
                             (variance + 0.1) / static_cast<double>(stopped.size()));
            else
                observe_size(record, variance, octaves(size), observed);
        }
        return predict(observed, epochs_law, octaves(sizes));
    }

    /// What a run that reaches the target takes, with those that do not before it.
    static void observe_size(const BatchSizeRecord& record, double variance, double place,
                             Observed& observed) {
        const auto reached = recent(record.reached);
        const auto stopped = recent(record.stopped);
        const double once = std::exp(mean_log(reached));
        double vain = 0;  // epochs of stopped runs, for each that reaches the target
        for (const double epochs : stopped) vain += epochs / static_cast<double>(stopped.size());
        vain *=
            static_cast<double>(record.stopped.size()) / static_cast<double>(record.reached.size());
        const double share = vain / (once + vain);
        observed.add(
            place, std::log(once + vain),
            variance / static_cast<double>(reached.size()) +
                (stopped.empty() ? 0 : share * share / static_cast<double>(stopped.size())));
    }

    [[nodiscard]] Mixture log_epoch_costs(const std::vector<std::uint32_t>& sizes) const {
        Observed observed;
        for (const auto& [size, record] : state_.sizes)
            if (record.profile) observed.add(octaves(size), std::log(record.profile->cost), 1e-8);
        return predict(observed, epoch_cost_law, octaves(sizes));
    }

    /// One part for each share that the law may have, weighted by the likelihood of what was seen.
    [[nodiscard]] static Mixture predict(const Observed& observed, const Law& law,
                                         const std::vector<double>& at) {
        using Eigen::Index;
        const auto vector_of = [](const std::vector<double>& values) {
            return Eigen::Map<const Eigen::VectorXd>{values.data(),
                                                     static_cast<Index>(values.size())};
        };
        const auto between = [&](const std::vector<double>& rows,
                                 const std::vector<double>& columns) {
            const Deviations deviations{law.deviations};
            return Eigen::MatrixXd{Eigen::MatrixXd::NullaryExpr(
                static_cast<Index>(rows.size()), static_cast<Index>(columns.size()),
                [&](Index i, Index j) {
                    return deviations(rows[static_cast<std::size_t>(i)],
                                      columns[static_cast<std::size_t>(j)]);
                })};
        };
        const solve::GaussianCondition known{between(observed.places, observed.places),
                                             vector_of(observed.variances)};
        const Eigen::MatrixXd common = between(observed.places, at);
        const Eigen::MatrixXd explained = known.explained(common);
        const Eigen::MatrixXd covariance = between(at, at) - explained.transpose() * explained;
        double level = 0;
        for (const double log : observed.logs)
            level += log / static_cast<double>(observed.logs.size());
        Mixture mixture;
        double most = -std::numeric_limits<double>::infinity();
        for (const double share : {0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0}) {
            const auto expected = [&](const std::vector<double>& places) {
                return vector_of(places)
                    .unaryExpr([&](double octaves) { return level + law.log(share, octaves); })
                    .eval();
            };
            const Eigen::VectorXd beside = vector_of(observed.logs) - expected(observed.places);
            mixture.push_back({known.log_likelihoods(beside)(0),
                               expected(at) + common.transpose() * known.weights(beside),
                               covariance});
            most = std::max(most, mixture.back().weight);
        }
        double sum = 0;
        for (Normal& part : mixture) sum += part.weight = std::exp(part.weight - most);
        for (Normal& part : mixture) part.weight /= sum;
        return mixture;
    }

    const BatchSizeOptions& options_;
    const BatchSizeState& state_;
};

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
    /// How much more a run of another size may cost than one of the best size.
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
