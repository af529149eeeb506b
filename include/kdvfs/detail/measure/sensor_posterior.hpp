// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/sensor_model.hpp>
#include <kdvfs/detail/measure/sensor_prior.hpp>
#include <kdvfs/detail/measure/sensor_rows.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// How a sensor is sought.
struct SensorSearch {
    std::size_t guesses = 32;            ///< how many hypotheses the cloud has
    std::optional<SensorGuess> about{};  ///< where to look first, beside all that the prior allows
    /// The cloud of an earlier posterior of this sensor, which is not sought again.
    std::span<const SensorGuess> known{};
};

/// The sensor as a sample of readings shows it, with the powers of the columns integrated out: a
/// cloud of equally likely hypotheses, found by sequential Monte Carlo (Del Moral, Doucet, Jasra,
/// JRSS B 68, 2006) that begins with the prior and lets in ever more rows (Chopin, Biometrika 89,
/// 2002). docs/measuring.md has the equations. Deterministic.
class SensorPosterior : public SensorRows {
public:
    /// @param counter rows are differences of a counter, not readings of a log
    SensorPosterior(const SensorSample& sample, bool counter, const ColumnPrior& columns,
                    SensorPrior prior = {}, const SensorSearch& search = {});

    /// Whether there were rows to learn from.
    [[nodiscard]] bool solved() const { return !cloud_.empty(); }
    [[nodiscard]] std::span<const SensorGuess> cloud() const { return cloud_; }
    [[nodiscard]] Sensor sensor(const SensorGuess& guess) const {
        return guess.sensor(period(), counter());
    }
    /// The mean of the guesses of the likeliest shape.
    [[nodiscard]] Sensor likely() const {
        std::array<int, 3> votes{};
        for (const SensorGuess& guess : cloud_) ++votes[static_cast<std::size_t>(guess.shape)];
        const auto most = std::max_element(votes.begin(), votes.end());
        SensorGuess mean{.shape = static_cast<SensorShape>(most - votes.begin())};
        for (const SensorGuess& guess : cloud_) {
            if (guess.shape != mean.shape) continue;
            for (std::size_t k = 0; k < 3; ++k) mean.at[k] += guess.at[k] / *most;
        }
        return sensor(mean);
    }
    /// Whether the readings do not speak against a hypothesis.
    [[nodiscard]] bool plausible(const Sensor& sensor) const {
        constexpr double much = 8;  // of the logarithm of the likelihood
        double highest = -std::numeric_limits<double>::infinity();
        for (const SensorGuess& guess : cloud_) {
            highest = std::max(highest, log_likelihood(guess, rows()));
        }
        return fit(sensor, rows()).log_likelihood > highest - much;
    }

private:
    struct Weighed {
        SensorGuess guess;
        double prior = 0;
        double last = 0;  // log likelihood of the stage before
        double next = 0;
    };

    /// Guesses of one shape.
    struct Population {
        std::vector<Weighed> guesses{};
        double evidence = 0;  // its logarithm
        double weight = 1;
    };
    [[nodiscard]] Population start(SensorShape shape);
    void weigh(std::vector<Population>& all, std::size_t rows);
    void advance(Population& population, std::size_t from, std::size_t to);
    void resample(std::vector<Weighed>& all, double by, std::size_t many);
    void move(std::vector<Weighed>& all, double part, std::size_t from, std::size_t to);
    [[nodiscard]] double log_likelihood(const SensorGuess& guess, std::size_t rows) const {
        return rows == 0 ? 0 : fit(sensor(guess), rows).log_likelihood;
    }
    [[nodiscard]] double uniform() { return std::uniform_real_distribution<double>{0, 1}(random_); }

    SensorPrior prior_;
    std::size_t guesses_;
    std::optional<SensorGuess> about_;
    std::vector<SensorGuess> cloud_;
};

inline SensorPosterior::SensorPosterior(const SensorSample& sample, bool counter,
                                        const ColumnPrior& columns, SensorPrior prior,
                                        const SensorSearch& search)
    : SensorRows{sample, counter, columns},
      prior_{prior},
      guesses_{search.guesses},
      about_{search.about} {
    if (rows() < fewest_rows) return;
    if (!search.known.empty()) {
        cloud_.assign(search.known.begin(), search.known.end());
        judge(likely(), rows());
        return;
    }
    std::vector<Population> all;
    for (const SensorShape shape : prior_.shapes(counter)) all.push_back(start(shape));
    std::size_t from = 0;
    std::size_t to = std::min(rows(), std::max<std::size_t>(160, 3 * SensorRows::columns()));
    while (true) {
        for (Population& each : all) advance(each, from, to);
        weigh(all, to);
        if (to == rows()) break;
        from = to;
        to = to > rows() / 6 ? rows() : 4 * to;
    }
    // As many guesses of each shape as it is likely.
    double before = 0;
    for (Population& each : all) {
        const auto first =
            static_cast<std::size_t>(std::lround(before * static_cast<double>(guesses_)));
        before += each.weight;
        const auto last =
            static_cast<std::size_t>(std::lround(before * static_cast<double>(guesses_)));
        for (std::size_t i = first; i < last; ++i) {
            cloud_.push_back(each.guesses[i % each.guesses.size()].guess);
        }
    }
}

/// The prior, evenly sampled.
inline SensorPosterior::Population SensorPosterior::start(SensorShape shape) {
    const std::size_t many = 16 * guesses_;
    Population all;
    for (std::size_t i = 0; i < many; ++i) {
        SensorGuess guess = prior_.draw(shape, period(), [this] { return uniform(); });
        if (about_ && about_->shape == shape && i % 8 == 0) {
            constexpr double near = 0.5e-3;  // s
            constexpr double alike = 0.1;    // of a memory or window
            guess.at[0] = about_->at[0] + near * (2 * uniform() - 1) - guess.at[2];
            guess.at[1] = about_->at[1] + alike * (2 * uniform() - 1);
            if (!std::isfinite(prior_.density(guess, period()))) continue;
        }
        all.guesses.push_back({guess, prior_.density(guess, period()), 0, 0});
    }
    return all;
}

/// How likely each shape is: the height of its best guess times the room that its guesses take of
/// the prior's (Laplace). What is out of the question is dropped.
inline void SensorPosterior::weigh(std::vector<Population>& all, std::size_t rows) {
    constexpr double hopeless = 15;
    const auto best_of = [](Population& each) -> Weighed& {
        return *std::max_element(
            each.guesses.begin(), each.guesses.end(),
            [](const Weighed& a, const Weighed& b) { return a.next < b.next; });
    };
    const Weighed* best = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (Population& each : all) {
        const Weighed& own = best_of(each);
        const double square = fit(sensor(own.guess), rows).square;
        if (square < least) {
            least = square;
            best = &own;
        }
    }
    judge(sensor(best->guess), rows);
    double highest = -std::numeric_limits<double>::infinity();
    for (Population& each : all) {
        for (Weighed& guess : each.guesses) guess.next = log_likelihood(guess.guess, rows);
        const Weighed& own = best_of(each);
        each.evidence = own.next + own.prior;
        for (std::size_t k = 0; k < 3; ++k) {
            if (k == 1 && own.guess.shape == SensorShape::since_last) continue;
            double mean = 0;
            double square = 0;
            for (const Weighed& guess : each.guesses) mean += guess.guess.at[k];
            mean /= static_cast<double>(each.guesses.size());
            for (const Weighed& guess : each.guesses)
                square += std::pow(guess.guess.at[k] - mean, 2);
            square /= static_cast<double>(each.guesses.size());
            each.evidence += 0.5 * std::log(6.2832 * square + 1e-16);
        }
        highest = std::max(highest, each.evidence);
    }
    std::erase_if(all, [&](const Population& each) { return each.evidence < highest - hopeless; });
    double sum = 0;
    for (Population& each : all) sum += each.weight = std::exp(each.evidence - highest);
    for (Population& each : all) each.weight /= sum;
}

/// From what the first `from` rows say to what the first `to` rows do.
inline void SensorPosterior::advance(Population& population, std::size_t from, std::size_t to) {
    std::vector<Weighed>& all = population.guesses;
    constexpr double least = 0.5;  // of the guesses must stay effective
    for (Weighed& each : all) each.next = log_likelihood(each.guess, to);
    const auto likeliest = [&] {
        return std::max_element(all.begin(), all.end(),
                                [](const Weighed& a, const Weighed& b) { return a.next < b.next; });
    };
    const auto judge_all = [&] {  // the noise as the likeliest hypothesis leaves it
        judge(sensor(likeliest()->guess), to);
        for (Weighed& each : all) {
            each.last = log_likelihood(each.guess, from);
            each.next = log_likelihood(each.guess, to);
        }
    };
    double done = 0;
    for (int step = 0; done < 1 && step < 40; ++step) {
        if (step % 4 == 0) judge_all();
        const auto effective = [&](double by) {
            double highest = -std::numeric_limits<double>::infinity();
            for (const Weighed& each : all)
                highest = std::max(highest, by * (each.next - each.last));
            double sum = 0;
            double squares = 0;
            for (const Weighed& each : all) {
                const double weight = std::exp(by * (each.next - each.last) - highest);
                sum += weight;
                squares += weight * weight;
            }
            return sum * sum / squares;
        };
        const double needed =
            std::min(least * static_cast<double>(all.size()), static_cast<double>(guesses_));
        double by = 1 - done;
        if (effective(by) < needed) {
            double low = 0;
            for (int i = 0; i < 30; ++i) {
                const double middle = 0.5 * (low + by);
                (effective(middle) < needed ? by : low) = middle;
            }
            by = low;
        }
        done += by;
        resample(all, by, from == 0 ? 2 * guesses_ : guesses_);
        move(all, done, from, to);
    }
    judge_all();
    move(all, 1, from, to);
}

/// Systematic resampling.
inline void SensorPosterior::resample(std::vector<Weighed>& all, double by, std::size_t many) {
    double highest = -std::numeric_limits<double>::infinity();
    for (const Weighed& each : all) highest = std::max(highest, by * (each.next - each.last));
    std::vector<double> weights;
    double sum = 0;
    for (const Weighed& each : all) {
        sum += std::exp(by * (each.next - each.last) - highest);
        weights.push_back(sum);
    }
    std::vector<Weighed> chosen;
    const double offset = uniform();
    std::size_t from = 0;
    for (std::size_t i = 0; i < many; ++i) {
        const double at = sum * (static_cast<double>(i) + offset) / static_cast<double>(many);
        while (from + 1 < weights.size() && weights[from] < at) ++from;
        chosen.push_back(all[from]);
    }
    all = std::move(chosen);
}

/// Differential evolution Markov chain (ter Braak, Statistics and Computing 16, 2006): steps as
/// long as guesses are apart, whatever the directions and however many modes.
inline void SensorPosterior::move(std::vector<Weighed>& all, double part, std::size_t from,
                                  std::size_t to) {
    const int rounds = part < 1 ? 1 : 2;
    std::normal_distribution<double> normal;
    for (int round = 0; round < rounds; ++round) {
        for (Weighed& each : all) {
            const Weighed& a = all[random_() % all.size()];
            const Weighed& b = all[random_() % all.size()];
            if (a.guess.shape != each.guess.shape || b.guess.shape != each.guess.shape) continue;
            const double length = random_() % 5 == 0 ? 1 : (random_() % 2 == 0 ? 0.4 : 0.97);
            Weighed tried = each;
            for (std::size_t k = 0; k < 3; ++k) {
                constexpr std::array jitter{2e-6, 1e-4, 4e-6};
                tried.guess.at[k] +=
                    length * (a.guess.at[k] - b.guess.at[k]) + jitter[k] * normal(random_);
            }
            tried.prior = prior_.density(tried.guess, period());
            if (!std::isfinite(tried.prior)) continue;
            tried.next = log_likelihood(tried.guess, to);
            tried.last = part < 1 ? log_likelihood(tried.guess, from) : 0;
            const auto height = [&](const Weighed& of) {
                return of.prior + part * of.next + (part < 1 ? (1 - part) * of.last : 0);
            };
            if (std::log(uniform()) < height(tried) - height(each)) each = tried;
        }
    }
}

}  // namespace kdvfs::inline v0_3::measure
