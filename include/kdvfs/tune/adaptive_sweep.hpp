// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/objective.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep_design.hpp>
#include <kdvfs/tune/sweep_file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kdvfs::tune {

/// A kernel to be measured by itself.
struct SweepKernel {
    KernelKey key;
    std::string group{};
    std::uint32_t count = 1;  ///< launches per iteration
};

/// Whether a sweep has a sample already.
inline bool has_sample(const Profile& profile, const KernelKey& key, ClockPoint clock,
                       std::uint32_t index) {
    for (const KernelProfile& kernel : profile.kernels()) {
        if (kernel.key != key) continue;
        const ProfilePoint* point = kernel.find(clock);
        if (point == nullptr) return false;
        for (const auto& sample : point->samples)
            if (sample.index == index) return true;
    }
    return false;
}

/// Measures every kernel at every clock point, `samples` times, round by round so that drift
/// spreads over all. What the file holds already is not measured again.
/// `measure(kernel, clock)` returns the `Cost` of one launch, settled and warm;
/// `progress(done, all)` is called after each.
/// @throws Error as `SweepFile::append`; whatever `measure` throws
template <class Measure, class Progress>
void sweep_grid(SweepFile& file, std::span<const SweepKernel> kernels,
                std::span<const ClockPoint> points, std::uint32_t samples, Measure&& measure,
                Progress&& progress) {
    const std::size_t all = kernels.size() * points.size() * samples;
    std::size_t done = 0;
    for (std::uint32_t sample = 0; sample < samples; ++sample) {
        for (std::size_t k = 0; k < kernels.size(); ++k) {
            const SweepKernel& kernel = kernels[k];
            for (const ClockPoint clock : points) {
                if (!has_sample(file.profile(), kernel.key, clock, sample)) {
                    file.append(
                        {kernel.key, clock, measure(k, clock), kernel.group, kernel.count, sample});
                }
                progress(++done, all);
            }
        }
    }
}

struct AdaptiveOptions {
    std::uint32_t samples = 1;  ///< of each point that is measured
    double share = 0.25;        ///< of the full grid's measurements, at most
    double first_share = 0.1;   ///< of the grid, spread out, before the models decide
    /// Stop when so much of the baseline's energy is expected to be left.
    double regret_pct = 0.05;
};

/// How an adaptive sweep ended.
struct AdaptiveOutcome {
    std::size_t measurements = 0;  ///< in the file, those of earlier runs included
    std::size_t grid = 0;          ///< what the full grid would have taken
    double expected_regret_pct = 0;
};

namespace detail {

/// A measurement that an adaptive sweep could take next.
struct SweepCandidate {
    std::size_t kernel = 0;
    ClockPoint clock;
    double gain = 0;  ///< joules that it is expected to save an iteration
};

/// The best unmeasured point of each kernel, the most promising kernel first.
inline std::vector<SweepCandidate> best_candidates(const SweepDesign& design,
                                                   const Profile& profile,
                                                   std::span<const SweepKernel> kernels,
                                                   const Objective& objective) {
    const auto forecasts = design.forecast(profile, objective);
    std::vector<SweepCandidate> best;
    for (std::size_t k = 0; k < forecasts.size(); ++k) {
        const auto found =
            std::max_element(forecasts[k].begin(), forecasts[k].end(),
                             [](const auto& a, const auto& b) { return a.gain < b.gain; });
        if (found->gain <= 0) continue;
        std::size_t kernel = 0;
        while (kernels[kernel].key != profile.kernels()[k].key) ++kernel;
        const auto point = static_cast<std::size_t>(found - forecasts[k].begin());
        best.push_back({kernel, design.points()[point], found->gain});
    }
    std::sort(best.begin(), best.end(),
              [](const auto& a, const auto& b) { return a.gain > b.gain; });
    return best;
}

}  // namespace detail

/// Measures where it matters for the plan: a few points spread out, then, round by round, those
/// that a model of each kernel's time and power expects to lower the objective most, until the
/// regret left is small or the share of the grid is used up. Plans from such a file choose among
/// measured points alone. `measure` and `progress` as for `sweep_grid`; what the file holds
/// already is not measured again.
/// @throws Error (invalid_input) if the baseline is not among the points; as `sweep_grid`
template <class Measure, class Progress>
AdaptiveOutcome sweep_adaptively(SweepFile& file, std::span<const SweepKernel> kernels,
                                 std::span<const ClockPoint> points, const Objective& objective,
                                 const AdaptiveOptions& options, Measure&& measure,
                                 Progress&& progress) {
    const SweepDesign design{{points.begin(), points.end()}, file.baseline()};
    const std::size_t grid = kernels.size() * points.size() * options.samples;
    const auto most = static_cast<std::size_t>(options.share * static_cast<double>(grid));
    std::size_t done = 0;
    const auto take = [&](std::size_t k, ClockPoint clock) {
        const auto& known = file.profile().kernels();
        const auto measured = std::find_if(known.begin(), known.end(), [&](const auto& kernel) {
            return kernel.key == kernels[k].key;
        });
        if (clock != design.baseline() && measured != known.end() &&
            !keeps_bound(objective, design.longest_possible(*measured, clock)))
            return;
        for (std::uint32_t sample = 0; sample < options.samples; ++sample) {
            if (!has_sample(file.profile(), kernels[k].key, clock, sample)) {
                file.append({kernels[k].key, clock, measure(k, clock), kernels[k].group,
                             kernels[k].count, sample});
            }
            progress(++done, most);
        }
    };
    const auto first = static_cast<std::size_t>(
        std::max(4.0, options.first_share * static_cast<double>(points.size())));
    for (const ClockPoint clock : design.spread_out(first))
        for (std::size_t k = 0; k < kernels.size(); ++k) take(k, clock);

    AdaptiveOutcome outcome{done, grid, 0};
    for (;;) {
        const auto candidates = detail::best_candidates(design, file.profile(), kernels, objective);
        double regret = 0;
        for (const auto& candidate : candidates) regret += candidate.gain;
        const Cost baseline = mean_costs(file.profile()).baseline_cost();
        outcome.measurements = done;
        outcome.expected_regret_pct = 100 * regret / baseline.energy.count;
        if (candidates.empty() || outcome.expected_regret_pct < options.regret_pct) return outcome;
        // The half that promises most: the models learn from it before the rest is decided.
        for (std::size_t c = 0; c < std::max<std::size_t>(1, candidates.size() / 2); ++c) {
            if (done + options.samples > most) return outcome;
            take(candidates[c].kernel, candidates[c].clock);
            outcome.measurements = done;
        }
    }
}

}  // namespace kdvfs::tune
