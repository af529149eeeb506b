// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_sums.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/source_choice.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// Which energies that are not known one by one are known together. Two kernels that always run in
/// the same mix trade energy in the estimate: what one is given too much, the other lacks, and the
/// error of their sum is small. So the two unresolved ones whose errors are most opposed are put
/// together, and so on, until a group is resolved or no errors oppose each other any more. The
/// choice looks at the spread of errors, never at the errors, so that a group's interval stays
/// honest.
class EnergyGroups {
public:
    struct Group {
        std::vector<std::size_t> units;
        double joules = 0;
        double half_width = 0;
    };

    /// @param refused units that are not resolved on their own, however narrow their interval
    EnergyGroups(std::span<const double> joules, SymmetricMatrix covariance, double student,
                 double widest_resolved, const std::vector<bool>& refused = {})
        : covariance_{std::move(covariance)}, student_{student}, widest_resolved_{widest_resolved} {
        for (std::size_t i = 0; i < joules.size(); ++i) {
            Group unit{{i}, joules[i], student_ * deviation(i)};
            const bool alone = resolved(unit) && !(i < refused.size() && refused[i]);
            if (!alone && covariance_(i, i) > 0) open_.push_back(std::move(unit));
        }
        while (join_most_opposed()) {
        }
        join_leftovers();
        std::sort(found_.begin(), found_.end(),
                  [](const Group& a, const Group& b) { return a.joules > b.joules; });
    }

    /// Groups of two or more units that are resolved together, largest first.
    [[nodiscard]] const std::vector<Group>& found() const { return found_; }

private:
    [[nodiscard]] double deviation(std::size_t i) const {
        return std::sqrt(std::max(covariance_(i, i), 0.0));
    }
    [[nodiscard]] bool resolved(const Group& group) const {
        return group.joules > 0 && group.half_width <= widest_resolved_ * group.joules;
    }

    [[nodiscard]] double correlation(const Group& a, const Group& b) const {
        const double spread = deviation(a.units.front()) * deviation(b.units.front());
        return spread > 0 ? covariance_(a.units.front(), b.units.front()) / spread : 0;
    }

    /// A group's variance lies in `covariance_` at its first unit, and so do its covariances.
    void join(Group& into, const Group& from) {
        const std::size_t i = into.units.front();
        const std::size_t j = from.units.front();
        covariance_(i, i) += 2 * covariance_(i, j) + covariance_(j, j);
        for (std::size_t k = 0; k < covariance_.size(); ++k) {
            if (k != i) covariance_(i, k) += covariance_(j, k);
        }
        into.units.insert(into.units.end(), from.units.begin(), from.units.end());
        into.joules += from.joules;
        into.half_width = student_ * deviation(i);
    }

    bool join_most_opposed() {
        std::size_t first = 0;
        std::size_t second = 0;
        double lowest = 0;
        for (std::size_t a = 0; a < open_.size(); ++a) {
            for (std::size_t b = a + 1; b < open_.size(); ++b) {
                if (correlation(open_[a], open_[b]) >= lowest) continue;
                lowest = correlation(open_[a], open_[b]);
                first = a;
                second = b;
            }
        }
        if (first == second) return false;
        join(open_[first], open_[second]);
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(second));
        if (resolved(open_[first])) {
            found_.push_back(std::move(open_[first]));
            open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(first));
        }
        return true;
    }

    /// What is left over goes to the resolved group that it trades most with, if that stays
    /// resolved.
    void join_leftovers() {
        for (const Group& rest : open_) {
            Group* partner = nullptr;
            double lowest = 2;
            for (Group& group : found_) {
                if (correlation(group, rest) >= lowest) continue;
                lowest = correlation(group, rest);
                partner = &group;
            }
            if (partner == nullptr) continue;
            const std::size_t i = partner->units.front();
            const std::size_t j = rest.units.front();
            const double variance = covariance_(i, i) + 2 * covariance_(i, j) + covariance_(j, j);
            if (resolved({{}, partner->joules + rest.joules, student_ * std::sqrt(variance)})) {
                join(*partner, rest);
            }
        }
    }

    SymmetricMatrix covariance_;
    double student_;
    double widest_resolved_;
    std::vector<Group> open_;
    std::vector<Group> found_;
};

/// Half-width of a 95 % interval in standard errors: Student's t, by Fisher's expansion in the
/// degrees of freedom (Abramowitz and Stegun 26.7.5). Within 0.3 % from 3 degrees on; infinite
/// below 2, where it would be far off.
inline double student_95(double degrees_of_freedom) {
    if (degrees_of_freedom < 2) return std::numeric_limits<double>::infinity();
    constexpr double z = 1.959963984540054;
    constexpr double z3 = z * z * z;
    constexpr double z5 = z3 * z * z;
    constexpr double z7 = z5 * z * z;
    constexpr double z9 = z7 * z * z;
    const double n = degrees_of_freedom;
    return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n) +
           (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / (92160 * n * n * n * n);
}

/// When attribution keeps silent.
struct AttributionSettings {
    /// An energy whose 95 % half-width is a larger share of it is `unresolved`.
    double widest_resolved = 0.10;
    /// Kernels' powers lie around the board's mean power, by about this: `PowerPrior::spread`.
    Watts spread{500};
};

/// A kernel under one clock.
struct AttributedPower {
    KernelId kernel;
    ClockPoint applied;
    Seconds time{0};  ///< under trusted samples
    EnergyEstimate energy;

    /// Of an energy that is resolved.
    [[nodiscard]] Watts power() const { return energy.joules / time; }
};

struct AttributedKernel {
    KernelId kernel;
    Seconds time{0};
    EnergyEstimate energy;
};

/// Kernels whose energies are known only together.
struct AttributedGroup {
    std::vector<KernelId> kernels;
    bool with_idle = false;
    EnergyEstimate energy;
};

/// A power that rows ask for and no board draws.
struct ImpossiblePower {
    std::optional<KernelId> kernel{};  ///< none: idle, or kernels that are attributed together
    std::size_t column = 0;
    Watts power;
    Watts half_width;  ///< of its interval, which does not reach what is possible
};

/// Gaps between kernels in which the board draws what no idle board does.
struct UnscopedWork {
    std::optional<KernelId> after;  ///< the kernel before them; none: any
    Seconds time;                   ///< of all these gaps
    Watts power;
    Watts half_width;
};

/// Where the joules of the counter went.
struct Attribution {
    std::vector<AttributedPower> powers;    ///< by kernel and clock
    std::vector<AttributedKernel> kernels;  ///< over all clocks
    std::vector<AttributedGroup> groups;    ///< not resolved one by one, largest first
    EnergyTotals totals;
    AttributionFit fit;
    std::vector<ImpossiblePower> impossible;  ///< powers that were refused, the worst first
    std::vector<UnscopedWork> unscoped;
};

/// Attributes the joules of the counter: weighted least squares of the rows' powers on the shares
/// of their time, with powers that are not negative, a wide prior for what the rows leave open, and
/// intervals (95 %) that hold where the noise lasts from row to row and where a kernel's power
/// depends on what ran before it; see `RowFit`, `PowerEstimate` and `UnlikeRuns`. Kernels that are
/// resolved only together form groups; that choice looks at the spread of errors. Throws nothing;
/// without rows nothing is resolved.
class Attributing {
public:
    static constexpr double any_width = std::numeric_limits<double>::infinity();

    explicit Attributing(const EnergySums& sums, AttributionSettings settings = {});

    [[nodiscard]] bool solved() const { return estimate_.has_value(); }
    struct Interval {
        double joules = 0;
        double half_width = any_width;
        double sensor_half_width = 0;  ///< of it, as `EnergyEstimate` has it
    };
    /// Whether the edges of runs and the idle time beside them are in the same sum: what either has
    /// of the other's joules then does not matter.
    enum class Edges { apart, together };
    /// The energy of `seconds[j]` seconds, which may be negative, of each column j.
    [[nodiscard]] Interval interval(std::span<const double> seconds,
                                    Edges edges = Edges::apart) const;
    /// The same, resolved or not by `widest_resolved`.
    [[nodiscard]] EnergyEstimate energy(std::span<const double> seconds, double widest_resolved,
                                        Edges edges = Edges::apart) const;
    /// What a level drew, of any width.
    [[nodiscard]] EnergyEstimate energy(const LevelTime& level) const;
    [[nodiscard]] EnergyEstimate energy(std::span<const double> seconds) const {
        return energy(seconds, settings_.widest_resolved);
    }
    [[nodiscard]] Attribution result() const;
    /// Of the energies of units, each given by its seconds per column; joules^2.
    /// @pre solved()
    [[nodiscard]] SymmetricMatrix covariance(const std::vector<std::vector<double>>& units) const;

private:
    static constexpr double fewest_degrees = 3;
    static constexpr double negligible_idle = 1e-3;  // of the time

    /// How far the joules of metered iterations may be off those of as many others: by how they
    /// differ; 95 %. 0 where there are fewer than three, or all were metered.
    [[nodiscard]] Joules half_width_of_choice(const LevelTime& iteration) const;
    [[nodiscard]] Joules most_beyond_rest(const LevelTime& iteration) const;
    void refuse_impossible();
    void find_unscoped();
    /// Whether none of the columns that have seconds was refused, or lies beside work without a
    /// scope, and nothing else draws power. Where a sensor may lag, a column that was refused
    /// shows that the board is not as the model has it, whoever is asked for.
    [[nodiscard]] bool all_possible(std::span<const double> seconds) const;
    [[nodiscard]] EnergyTotals totals() const;
    [[nodiscard]] std::vector<AttributedGroup> groups(const std::vector<KernelId>& kernels,
                                                      const std::vector<std::vector<double>>& units,
                                                      const SymmetricMatrix& covariance) const;
    const EnergySums* sums_;
    AttributionSettings settings_;
    std::optional<PowerEstimate> estimate_;
    std::vector<ImpossiblePower> impossible_;
    std::vector<UnscopedWork> unscoped_;
    std::vector<char> beside_unscoped_;  // by column, may be shorter
};

[[nodiscard]] inline Attribution attribute(const EnergySums& sums,
                                           AttributionSettings settings = {}) {
    return Attributing{sums, settings}.result();
}

inline Attributing::Attributing(const EnergySums& sums, AttributionSettings settings)
    : sums_{&sums}, settings_{settings} {
    if (sums.rows.rows <= fewest_degrees) return;
    const double spread =
        sums.hypotheses.empty() ? settings.spread.count : PowerPrior::differing(sums.rows);
    estimate_.emplace(sums.rows, sums.column_seconds, spread, sums.column_edges, sums.repeated);
    std::vector<PowerEstimate> others;
    for (const RowSums& rows : sums.late_rows) {
        if (rows.rows > fewest_degrees) {
            others.emplace_back(rows, sums.column_seconds, settings.spread.count, sums.column_edges,
                                sums.repeated);
        }
    }
    estimate_->mix(others, sums.sensor_may_lag);
    estimate_->integrate(sums.assumed, sums.hypotheses);
    estimate_->doubt(sums.doubts, sums.column_seconds);
    estimate_->add_errors(sums.unlike);
    // The sample that the sensor is found by is not all that the counter counted.
    if (!sums.hypotheses.empty()) {
        estimate_->agree(sums.column_seconds, sums.counter.count / sums.gain);
    }
    estimate_->add_common_error(sums.possible.may_hide() / sums.gain);
    if (estimate_->degrees_of_freedom() < fewest_degrees) estimate_.reset();
    refuse_impossible();
    find_unscoped();
}

/// Work without a scope shows as gaps that draw more than the board at rest. It has a power of its
/// own, but not one power, and when in the gap it ran nobody knows: kernels beside it have the
/// error, and are not resolved.
inline void Attributing::find_unscoped() {
    if (!estimate_) return;
    const double most = sums_->possible.most_waiting(sums_->gain * sums_->rows.power.mean_watts());
    beside_unscoped_.resize(sums_->columns_seen());
    for (const KernelGap& gap : sums_->all_gaps(sums_->gaps)) {
        if (!gap.matters(sums_->counted_time.count())) continue;
        std::vector<double> second(sums_->columns_seen());
        second[gap.column] = 1;
        const Interval power = interval(second);
        if (!(power.joules - power.half_width > most)) continue;
        unscoped_.push_back({sums_->columns.kernel(gap.after),
                             Seconds{gap.seconds},
                             {power.joules},
                             {power.half_width}});
        for (std::size_t j = 0; j < beside_unscoped_.size(); ++j) {
            if (gap.lies_beside(j)) beside_unscoped_[j] = 1;
        }
    }
}

/// A power beyond what the board's limit allows, or below what it draws at rest, proves that
/// something is wrong that no interval holds: work without a scope, load from outside, a sensor's
/// delay. The power is refused, and what it is off by is taken into the intervals of all that trade
/// power with it.
inline void Attributing::refuse_impossible() {
    if (!estimate_) return;
    const std::size_t columns = sums_->columns_seen();
    // What ran for a moment only, such as a kernel until its clock switched, has a power that edges
    // of rows make up, and hardly any energy. Where the sensor was sought, edges are in the
    // interval.
    const double least_share = sums_->hypotheses.empty() ? 0.01 : 0.001;
    double all = 0;
    for (std::size_t j = 0; j < columns; ++j) all += sums_->seconds(j);
    std::vector<char> refused(columns);
    const auto worst = [&]() -> std::optional<std::pair<ImpossiblePower, double>> {
        std::optional<std::pair<ImpossiblePower, double>> found;
        double largest = 1;
        constexpr double least = 1;  // W: rounding
        for (std::size_t j = 0; j < columns; ++j) {
            const bool inside = j < sums_->rows.inside.size() && sums_->rows.inside[j] != 0;
            if (refused[j] || inside || sums_->seconds(j) < least_share * all) continue;
            std::vector<double> second(columns);
            second[j] = 1;
            const double half_width = interval(second).half_width;
            const double watts = sums_->gain * estimate_->unbounded_watts()[j];
            const double beyond = sums_->beyond(j, watts);
            if (!(std::abs(beyond) > largest * std::max(half_width, least))) continue;
            largest = std::abs(beyond) / std::max(half_width, least);
            found.emplace(ImpossiblePower{{}, j, {watts}, {half_width}}, beyond);
        }
        return found;
    };
    while (const auto next = worst()) {
        impossible_.push_back(next->first);
        refused[next->first.column] = 1;
        estimate_->widen(next->first.column, next->second / sums_->gain);
    }
    for (ImpossiblePower& each : impossible_) each.kernel = sums_->columns.kernel(each.column);
}

inline bool Attributing::all_possible(std::span<const double> seconds) const {
    if (sums_->hides_work || sums_->has_outside_load() || sums_->too_uneven()) return false;
    for (std::size_t j = 0; j < std::min(seconds.size(), beside_unscoped_.size()); ++j) {
        if (seconds[j] != 0 && beside_unscoped_[j] != 0) return false;
    }
    if (!sums_->hypotheses.empty() || sums_->sensor_may_lag) return impossible_.empty();
    return std::none_of(impossible_.begin(), impossible_.end(), [&](const ImpossiblePower& each) {
        return each.column < seconds.size() && seconds[each.column] != 0;
    });
}

inline Attributing::Interval Attributing::interval(std::span<const double> seconds,
                                                   Edges edges) const {
    if (!estimate_) return {};
    double joules = 0;
    double variance = 0;
    double of_sensor = 0;
    double rows = 0;
    const SymmetricMatrix& sensor = estimate_->sensor_covariance();
    std::vector<std::size_t> used;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        if (seconds[i] == 0) continue;
        used.push_back(i);
        joules += seconds[i] * estimate_->watts()[i];
        rows += estimate_->rows_of(i);
        for (const std::size_t j : used) {
            const double product = (i == j ? 1 : 2) * seconds[i] * seconds[j];
            variance += product * estimate_->covariance()(i, j);
            if (sensor.size() > 0) of_sensor += product * sensor(i, j);
        }
    }
    if (edges == Edges::together)
        variance = std::max(variance - estimate_->edge_variance(seconds), 0.0);
    variance += std::pow(joules * sums_->gain_deviation, 2);
    const double deviations =
        sums_->gain * student_95(std::min(rows - 1, estimate_->degrees_of_freedom()));
    return {sums_->gain * joules, deviations * std::sqrt(std::max(variance, 0.0)),
            deviations * std::sqrt(std::max(of_sensor, 0.0))};
}

inline EnergyEstimate Attributing::energy(std::span<const double> seconds, double widest_resolved,
                                          Edges edges) const {
    const auto [joules, half_width, sensor] = interval(seconds, edges);
    // What all kernels drew together the counter says, whatever single ones are given.
    const bool possible = widest_resolved == any_width || all_possible(seconds);
    const bool resolved = possible && joules > 0 && std::isfinite(half_width) &&
                          half_width <= widest_resolved * joules;
    return resolved ? EnergyEstimate{{joules}, {half_width}, true, {sensor}} : EnergyEstimate{};
}

inline Joules Attributing::half_width_of_choice(const LevelTime& iteration) const {
    const auto& batches = iteration.batches.sums();
    if (!iteration.some_metered || batches.size() < 3) return {};
    std::vector<double> joules;  // of a run
    for (const std::vector<double>& seconds : batches) {
        double sum = 0;
        for (std::size_t j = 0; j < std::min(seconds.size(), estimate_->watts().size()); ++j) {
            sum += seconds[j] * estimate_->watts()[j];
        }
        joules.push_back(sums_->gain * sum / static_cast<double>(iteration.batches.length()));
    }
    return {student_95(static_cast<double>(joules.size() - 1)) * standard_error(joules) *
            static_cast<double>(iteration.runs)};
}

/// What the rest outside iterations may have been given beyond what a board at rest draws: one
/// power of gaps and rest is too high for the rest where gaps have work without a scope.
inline Joules Attributing::most_beyond_rest(const LevelTime& iteration) const {
    const std::vector<double> idle = sums_->idle_seconds();
    double joules = 0;
    for (std::size_t j = 0; j < idle.size(); ++j) {
        const double inside = j < iteration.column_seconds.size() ? iteration.column_seconds[j] : 0;
        const double watts = sums_->gain * estimate_->watts()[j] - sums_->possible.lowest;
        joules += std::max(idle[j] - inside, 0.0) * std::max(watts, 0.0);
    }
    return {joules};
}

/// An iteration has its part of what the powers lack of the counter's joules. Behind the last one,
/// which nobody ended, the board may rest, or go on as in the gaps inside iterations.
inline EnergyEstimate Attributing::energy(const LevelTime& level) const {
    const Edges edges = level.scope ? Edges::apart : Edges::together;
    EnergyEstimate found = energy(level.column_seconds, any_width, edges);
    if (level.scope || !found.resolved) return found;
    const std::vector<double>& all = sums_->column_seconds;
    const double share = std::min(level.counted_seconds / sums_->counted_time.count(), 1.0);
    const Joules lack = sums_->counter - energy(all, any_width).joules;
    found.joules += lack * share;
    // Where between iterations and rest it lies nobody knows.
    double apart = std::abs(lack.count) * (1 - share);
    if (lack.count < 0)
        apart = std::max(apart, std::min(-lack.count * share, most_beyond_rest(level).count));
    found.half_width += Joules{apart};
    for (const ClockTime& at : sums_->rests) {
        if (!at.has_gaps()) continue;
        const double more = estimate_->watts()[at.gaps] - estimate_->watts()[at.column];
        const double behind = std::max(all[at.gaps] - level.column_seconds[at.gaps], 0.0);
        const Joules half{0.5 * sums_->gain * behind * more};
        found.joules += half;
        found.half_width += Joules{std::abs(half.count)};
    }
    found.half_width.count = std::hypot(found.half_width.count, half_width_of_choice(level).count);
    return found;
}

inline SymmetricMatrix Attributing::covariance(
    const std::vector<std::vector<double>>& units) const {
    SymmetricMatrix result{units.size()};
    std::vector<double> half(sums_->columns_seen());
    const double scale = std::pow(sums_->gain, 2);
    std::vector<double> joules;
    for (std::size_t a = 0; a < units.size(); ++a) {
        std::fill(half.begin(), half.end(), 0.0);
        for (std::size_t i = 0; i < half.size(); ++i) {
            if (units[a][i] == 0) continue;
            for (std::size_t j = 0; j < half.size(); ++j) {
                half[j] += units[a][i] * estimate_->covariance()(i, j);
            }
        }
        joules.push_back(interval(units[a]).joules);
        for (std::size_t b = 0; b <= a; ++b) {
            for (std::size_t j = 0; j < half.size(); ++j) {
                result(a, b) += scale * half[j] * units[b][j];
            }
            result(a, b) += joules[a] * joules[b] * std::pow(sums_->gain_deviation, 2);
        }
    }
    return result;
}

inline std::vector<AttributedGroup> Attributing::groups(
    const std::vector<KernelId>& kernels, const std::vector<std::vector<double>>& units,
    const SymmetricMatrix& covariance) const {
    std::vector<double> joules;
    std::vector<bool> refused;
    std::vector<double> times;
    for (const auto& seconds : units) {
        joules.push_back(interval(seconds).joules);
        refused.push_back(!all_possible(seconds));
        times.push_back(std::accumulate(seconds.begin(), seconds.end(), 0.0));
    }
    const EnergyGroups found{joules, covariance, student_95(sums_->rows.fewer_rows),
                             settings_.widest_resolved, refused};
    std::vector<AttributedGroup> result;
    for (const EnergyGroups::Group& group : found.found()) {
        double time = 0;
        for (const std::size_t unit : group.units) time += times[unit];
        if (sums_->possible.beyond(group.joules / time, PossiblePower::most_room) != 0) continue;
        AttributedGroup& resolved = result.emplace_back();
        resolved.energy = {{group.joules}, {group.half_width}, true};
        for (const std::size_t unit : group.units) {
            if (unit == kernels.size()) {
                resolved.with_idle = true;
            } else {
                resolved.kernels.push_back(kernels[unit]);
            }
        }
    }
    return result;
}

inline EnergyTotals Attributing::totals() const {
    EnergyTotals totals;
    totals.counter = totals.unexplained = sums_->counter;
    totals.outside = sums_->outside;
    totals.counted_time = sums_->counted_time;
    for (const ClockTime& at : sums_->rests)
        if (at.seconds > 0)
            totals.rests.push_back({at.clock, Seconds{at.seconds}, energy(sums_->seconds_of(at))});
    std::stable_sort(totals.rests.begin(), totals.rests.end(),
                     [](const auto& a, const auto& b) { return a.time > b.time; });
    const std::vector<double> idle_seconds = sums_->idle_seconds();
    totals.idle_time = Seconds{std::accumulate(idle_seconds.begin(), idle_seconds.end(), 0.0)};
    if (!estimate_) return totals;
    std::vector<double> all = sums_->column_seconds;
    const EnergyEstimate explained = totals.together = energy(all, any_width);
    const EnergyEstimate kernels = energy(sums_->kernel_seconds(), any_width);
    const EnergyEstimate idle = energy(idle_seconds, any_width);
    const double widest = settings_.widest_resolved * explained.joules.count;
    const bool apart = sums_->columns.kernels().empty() || totals.idle_time.count() == 0 ||
                       (idle.resolved && kernels.resolved && idle.half_width.count <= widest &&
                        kernels.half_width.count <= widest);
    if (apart) {
        totals.kernels = kernels;
        totals.idle = idle;
    } else if (totals.idle_time < negligible_idle * totals.counted_time) {
        totals.kernels = explained;
    }
    // What cannot be told apart is not unexplained.
    totals.unexplained = totals.counter - explained.joules;
    if (!explained.resolved) {
        totals.unexplained_half_width = totals.counter;
        return totals;
    }
    // The counter's own noise counts, too, where the fit has seen through it.
    const double noise = sums_->gain * student_95(estimate_->degrees_of_freedom()) *
                         std::sqrt(std::max(estimate_->total_variance(), 0.0));
    totals.unexplained_half_width = {std::max(explained.half_width.count, noise)};
    return totals;
}

inline Attribution Attributing::result() const {
    Attribution result;
    result.totals = totals();
    if (sums_->by_power) {
        result.fit.source =
            to_string(sums_->gain_deviation > 0 ? EnergyFrom::both : EnergyFrom::power);
    }
    result.fit.sensor = sums_->sensor;
    result.impossible = impossible_;
    result.unscoped = unscoped_;
    result.fit.rows = sums_->row_count;
    result.fit.refused_rows = sums_->refused_rows;
    result.fit.scatter = {sums_->gain * sums_->scatter().count};
    result.fit.autocorrelation = sums_->rows.autocorrelation();
    const std::vector<KernelId> kernels = sums_->columns.kernels();
    std::vector<std::vector<double>> units;
    for (const KernelId kernel : kernels) {
        units.push_back(sums_->seconds_of(kernel));
        double time = 0;
        for (const double seconds : units.back()) time += seconds;
        result.kernels.push_back({kernel, Seconds{time}, energy(units.back())});
        if (!solved()) continue;
        for (const auto& [applied, column] : sums_->columns.of(kernel)) {
            std::vector<double> seconds(sums_->columns_seen());
            seconds[column] = units.back()[column];
            result.powers.push_back({kernel, applied, Seconds{seconds[column]}, energy(seconds)});
        }
    }
    if (!solved()) return result;
    units.push_back(sums_->idle_seconds());
    const SymmetricMatrix spread = covariance(units);
    result.groups = groups(kernels, units, spread);
    result.fit.whitened = estimate_->whitened();
    result.fit.repeated_scale = estimate_->repeated_scale();
    result.fit.repeated_spread = estimate_->repeated_spread();
    for (std::size_t a = 0; a < units.size(); ++a) {
        auto& row = result.fit.covariance.emplace_back();
        for (std::size_t b = 0; b < units.size(); ++b) row.push_back(spread(a, b));
    }
    return result;
}

}  // namespace kdvfs::inline v0_3::measure
