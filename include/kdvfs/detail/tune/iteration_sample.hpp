// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// An iteration of a sample.
struct SampledIteration {
    std::size_t place = 0;   ///< in the whole sample
    std::uint64_t kind = 0;  ///< the same for iterations that launch the same kernels
    std::size_t launches = 0;
    double weight = 1;  ///< how many iterations of the program it stands for
};

/// A sample of a program's iterations that becomes smaller and keeps each kind's share.
class IterationSample {
public:
    void add(std::uint64_t kind, std::size_t launches, double weight = 1) {
        iterations_.push_back({iterations_.size(), kind, launches, weight});
        launches_ += launches;
    }

    /// In the order in which they were added.
    [[nodiscard]] const std::vector<SampledIteration>& iterations() const { return iterations_; }

    /// Halves the kinds until so many launches are left, but keeps one iteration of each. Where
    /// these are still too many, all rare kinds become one, which is halved likewise. Where the
    /// frequent kinds alone have `most_beyond` times as many, these are put together, too, and
    /// halved until they have not, or until one iteration is left.
    void limit(std::size_t most_launches) {
        halve_until(most_launches);
        if (launches_ <= most_launches) return;
        merge_kinds_below(frequent);
        halve_until(most_launches);
        if (launches_ <= most_beyond * most_launches) return;
        merge_kinds_below(all_kinds);
        halve_until(most_beyond * most_launches);
    }

private:
    static constexpr double frequent = 1.0 / 16;  ///< of all weights
    static constexpr double all_kinds = 2;        ///< likewise: no kind has as much
    static constexpr std::size_t most_beyond = 4;
    static constexpr std::uint64_t merged = 0;  ///< the kind that others become

    /// Of each two iterations of a kind the first or the second, in an order without a period:
    /// iterations of a kind may alternate, too.
    static bool is_kept(std::size_t number) {
        constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15;
        return number % 2 == (number / 2 * golden_ratio) >> 63U;
    }

    void halve_until(std::size_t most_launches) {
        while (launches_ > most_launches) {
            const std::size_t before = iterations_.size();
            halve();
            if (iterations_.size() == before) return;
        }
    }

    void halve() {
        struct Kind {
            std::size_t iterations = 0;
            double before = 0;
            double after = 0;
        };
        std::map<std::uint64_t, Kind> kinds;
        std::vector<SampledIteration> kept;
        launches_ = 0;
        for (const SampledIteration& each : iterations_) {
            Kind& kind = kinds[each.kind];
            kind.before += each.weight;
            if (!is_kept(kind.iterations++)) continue;
            kind.after += each.weight;
            launches_ += each.launches;
            kept.push_back(each);
        }
        for (SampledIteration& each : kept)
            each.weight *= kinds[each.kind].before / kinds[each.kind].after;
        iterations_ = std::move(kept);
    }

    void merge_kinds_below(double share) {
        std::map<std::uint64_t, double> weights;
        double all = 0;
        for (const SampledIteration& each : iterations_) {
            weights[each.kind] += each.weight;
            all += each.weight;
        }
        for (SampledIteration& each : iterations_)
            if (weights[each.kind] < share * all) each.kind = merged;
    }

    std::vector<SampledIteration> iterations_;
    std::size_t launches_ = 0;
};

/// A sample of iterations within a limit (`IterationSample::limit`), in order. Kinds are of the
/// same kernels in the same order.
/// @param kernel of a launch, @param weight of an iteration: both as members
template <class Iteration, class Launch>
[[nodiscard]] std::vector<Iteration> limited_to(std::size_t most_launches,
                                                std::vector<Iteration> all,
                                                std::uint32_t Launch::*kernel,
                                                double Iteration::*weight) {
    IterationSample sample;
    std::map<std::vector<std::uint32_t>, std::uint64_t> kinds;
    for (const Iteration& each : all) {
        std::vector<std::uint32_t> launched;
        for (const Launch& launch : each.launches) launched.push_back(launch.*kernel);
        const auto kind = kinds.try_emplace(std::move(launched), kinds.size() + 1).first;
        sample.add(kind->second, each.launches.size(), each.*weight);
    }
    sample.limit(most_launches);
    std::vector<Iteration> kept;
    for (const SampledIteration& each : sample.iterations()) {
        kept.push_back(std::move(all[each.place]));
        kept.back().*weight = each.weight;
    }
    return kept;
}

}  // namespace kdvfs::inline v0_3::tune::detail
