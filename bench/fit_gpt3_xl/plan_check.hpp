// SPDX-License-Identifier: MIT
#pragma once

#include <bench/fit_gpt3_xl/targets.hpp>
#include <examples/gpt3_xl/published_table.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

/// What plans on fitted constants would save: a check of the fit, not the planner.
namespace gpt3_fit {

/// Relative to auto: 0 = equal, negative = saved.
struct Effect {
    double time_pct = 0;
    double energy_pct = 0;
};

struct PlanEffects {
    Effect local;
    Effect global;
    Effect edp;
    Effect published_points;
    Effect pass_waste;  ///< one clock point a pass, the sum within the baseline's time
    Effect pass_edp;
};

using Sweeps = std::array<Sweep, gpt3::kernel_count>;

namespace plan_detail {

struct Total {
    double seconds = 0;
    double joules = 0;

    void add(const Sweep& sweep, std::size_t point, int repeats) {
        seconds += repeats * sweep.seconds[point];
        joules += repeats * sweep.joules[point];
    }
    [[nodiscard]] Effect against(const Total& base) const {
        return {100 * (seconds / base.seconds - 1), 100 * (joules / base.joules - 1)};
    }
};

inline Total cheapest(const Sweeps& sweeps, double price) {
    Total total;
    for (std::size_t k = 0; k < sweeps.size(); ++k) {
        std::size_t best = baseline;
        const auto cost = [&](std::size_t i) {
            return sweeps[k].joules[i] + price * sweeps[k].seconds[i];
        };
        for (std::size_t i = 0; i < points.size(); ++i) {
            if (cost(i) < cost(best)) best = i;
        }
        total.add(sweeps[k], best, gpt3::published_table[k].repeats);
    }
    return total;
}

/// Least energy with the sum of times bounded: dynamic programming over time saved and lost in
/// cells of 1/40000 of the bound, times rounded up.
inline Total least_energy_within(const Sweeps& sweeps, double bound) {
    constexpr int cells = 40000;
    constexpr double never = std::numeric_limits<double>::infinity();
    // Times are counted from each kernel's fastest point, so that only differences are rounded.
    double spare = bound;
    std::vector<double> fastest;
    for (std::size_t k = 0; k < sweeps.size(); ++k) {
        const auto& t = sweeps[k].seconds;
        fastest.push_back(*std::min_element(t.begin(), t.end()));
        spare -= gpt3::published_table[k].repeats * fastest.back();
    }
    const double cell = spare / cells;
    std::vector<double> joules(cells + 1, 0);
    std::vector<double> seconds(cells + 1, 0);
    for (std::size_t k = 0; k < sweeps.size(); ++k) {
        const int repeats = gpt3::published_table[k].repeats;
        std::vector<double> next_joules(cells + 1, never);
        std::vector<double> next_seconds(cells + 1, 0);
        for (std::size_t i = 0; i < points.size(); ++i) {
            const double late = repeats * (sweeps[k].seconds[i] - fastest[k]);
            if (late > spare) continue;
            const int used = static_cast<int>(std::ceil(late / cell - 1e-9));
            for (int c = used; c <= cells; ++c) {
                const auto to = static_cast<std::size_t>(c);
                const auto from = static_cast<std::size_t>(c - used);
                const double sum = joules[from] + repeats * sweeps[k].joules[i];
                if (sum < next_joules[to]) {
                    next_joules[to] = sum;
                    next_seconds[to] = seconds[from] + repeats * sweeps[k].seconds[i];
                }
            }
        }
        joules = next_joules;
        seconds = next_seconds;
    }
    return {seconds.back(), joules.back()};
}

/// The best of all pairs of clock points, one for each pass, by `score`; lower is better.
template <class Score>
Total best_pair(const Sweeps& sweeps, const Total& base, Score score) {
    const Sums sums{sweeps};
    Total best = base;
    for (std::size_t f = 0; f < points.size(); ++f) {
        for (std::size_t b = 0; b < points.size(); ++b) {
            const Total trial{sums.forward.seconds[f] + sums.backward.seconds[b],
                              sums.forward.joules[f] + sums.backward.joules[b]};
            if (score(trial) < score(best)) best = trial;
        }
    }
    return best;
}

}  // namespace plan_detail

inline PlanEffects plan_effects(const Sweeps& sweeps) {
    using plan_detail::Total;
    Total base;
    Total local;
    Total published;
    for (std::size_t k = 0; k < sweeps.size(); ++k) {
        const Sweep& s = sweeps[k];
        const int repeats = gpt3::published_table[k].repeats;
        std::size_t best = baseline;
        for (std::size_t i = 0; i < points.size(); ++i) {
            if (s.seconds[i] <= s.seconds[baseline] && s.joules[i] < s.joules[best]) best = i;
        }
        base.add(s, baseline, repeats);
        local.add(s, best, repeats);
        published.add(s, index_of(gpt3::published_table[k].best), repeats);
    }
    Total edp = base;
    for (double price = 1; price < 2000; price *= 1.002) {
        const Total trial = plan_detail::cheapest(sweeps, price);
        if (trial.seconds * trial.joules < edp.seconds * edp.joules) edp = trial;
    }
    const auto strict = [&](const Total& total) {
        constexpr double never = std::numeric_limits<double>::infinity();
        return total.seconds <= base.seconds * (1 + 1e-12) ? total.joules : never;
    };
    const auto product = [](const Total& total) { return total.seconds * total.joules; };
    return {local.against(base),
            plan_detail::least_energy_within(sweeps, base.seconds).against(base),
            edp.against(base),
            published.against(base),
            plan_detail::best_pair(sweeps, base, strict).against(base),
            plan_detail::best_pair(sweeps, base, product).against(base)};
}

}  // namespace gpt3_fit
