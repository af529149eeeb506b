// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/profile.hpp>

#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace cli::report {

/// What repeated samples say about how far measured means may be off.
class Noise {
public:
    /// Relative variances of a mean at one clock point.
    struct Variance {
        double time = 0;
        double energy = 0;
    };
    /// Half widths of 95 % intervals, in percent of the baseline.
    struct HalfWidth {
        double time = 0;
        double energy = 0;
    };

    explicit Noise(const kdvfs::tune::Profile& profile) {
        for (const auto& kernel : profile.kernels()) {
            const Variance one = of_one_sample(kernel);
            for (const auto& point : kernel.points) {
                const double count = static_cast<double>(point.samples.size());
                of_mean_[{kernel.key, point.clock}] = {one.time / count, one.energy / count};
            }
        }
    }

    /// Whether any point was measured more than once: without that, nothing is known.
    [[nodiscard]] bool known() const { return freedom_ > 0; }

    [[nodiscard]] Variance at(const kdvfs::KernelKey& key, kdvfs::ClockPoint clock) const {
        const auto found = of_mean_.find({key, clock});
        return found == of_mean_.end() ? Variance{} : found->second;
    }

    /// Of an iteration's change, each kernel `k` at its point `chosen[k]`. Errors of kernels are
    /// taken for independent; those of the baseline count, too.
    [[nodiscard]] HalfWidth of_change(const kdvfs::tune::CostTable& table,
                                      const std::vector<std::size_t>& chosen) const {
        kdvfs::tune::Cost total;
        for (std::size_t k = 0; k < table.kernels.size(); ++k)
            total += table.kernels[k].at(chosen[k]);
        const kdvfs::tune::Cost baseline = table.baseline_cost();
        Variance sum;
        for (std::size_t k = 0; k < table.kernels.size(); ++k) {
            const auto& kernel = table.kernels[k];
            add(
                sum.time, kernel, chosen[k], total.time / baseline.time,
                [&](const kdvfs::tune::Cost& cost) { return cost.time.count(); },
                [](const Variance& v) { return v.time; });
            add(
                sum.energy, kernel, chosen[k], total.energy / baseline.energy,
                [&](const kdvfs::tune::Cost& cost) { return cost.energy.count; },
                [](const Variance& v) { return v.energy; });
        }
        return {width(sum.time) / baseline.time.count(), width(sum.energy) / baseline.energy.count};
    }

    /// Of one kernel's change at a point against its baseline.
    [[nodiscard]] HalfWidth of_change(const kdvfs::tune::KernelCosts& kernel,
                                      std::size_t point) const {
        kdvfs::tune::CostTable alone{"", kernel.points[kernel.baseline].clock, {kernel}};
        return of_change(alone, {point});
    }

private:
    static double width(double variance) { return 100 * 1.96 * std::sqrt(variance); }

    /// (chosen - ratio * baseline) has this much more variance by one kernel.
    template <class Quantity, class Part>
    void add(double& sum, const kdvfs::tune::KernelCosts& kernel, std::size_t chosen, double ratio,
             Quantity quantity, Part part) const {
        const double at_baseline = quantity(kernel.at(kernel.baseline));
        const double of_baseline =
            at_baseline * at_baseline * part(at(kernel.key, kernel.points[kernel.baseline].clock));
        if (chosen == kernel.baseline) {
            sum += (1 - ratio) * (1 - ratio) * of_baseline;
            return;
        }
        const double at_chosen = quantity(kernel.at(chosen));
        sum += at_chosen * at_chosen * part(at(kernel.key, kernel.points[chosen].clock)) +
               ratio * ratio * of_baseline;
    }

    /// Over all clock points of a kernel, as few samples say little by themselves.
    Variance of_one_sample(const kdvfs::tune::KernelProfile& kernel) {
        Variance sum;
        std::size_t freedom = 0;
        for (const auto& point : kernel.points) {
            const kdvfs::tune::Cost mean = point.mean();
            for (const auto& sample : point.samples) {
                const double time = sample.cost.time / mean.time - 1;
                const double energy =
                    mean.energy.count > 0 ? sample.cost.energy / mean.energy - 1 : 0;
                sum.time += time * time;
                sum.energy += energy * energy;
            }
            freedom += point.samples.size() - 1;
        }
        freedom_ += freedom;
        if (freedom == 0) return {};
        return {sum.time / static_cast<double>(freedom), sum.energy / static_cast<double>(freedom)};
    }

    std::map<std::pair<kdvfs::KernelKey, kdvfs::ClockPoint>, Variance> of_mean_;
    std::size_t freedom_ = 0;
};

}  // namespace cli::report
