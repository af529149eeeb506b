// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// Launches of an iteration by name, and how many iterations came so.
struct WeightedLaunches {
    double weight = 1;
    std::vector<std::uint32_t> names;
};

/// How one sequence of names is made out of another: which of its names stand at which place of the
/// template, by dynamic programming in a band around the diagonal (Sakoe and Chiba 1978).
class Alignment {
public:
    static constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();

    Alignment(std::span<const std::uint32_t> pattern, std::span<const std::uint32_t> names)
        : places_(names.size(), nowhere), pattern_{pattern}, names_{names} {
        const std::size_t longest = std::max(pattern.size(), names.size());
        const std::size_t difference = longest - std::min(pattern.size(), names.size());
        band_ = difference + std::min<std::size_t>(longest, 48 + longest / 16);
        fill();
        trace_back();
    }

    /// For each name: its place in the template, or `nowhere`.
    [[nodiscard]] const std::vector<std::size_t>& places() const { return places_; }
    /// Names and places that have no counterpart.
    [[nodiscard]] std::size_t edits() const { return edits_; }

private:
    [[nodiscard]] std::size_t first(std::size_t row) const { return row > band_ ? row - band_ : 0; }
    [[nodiscard]] std::size_t last(std::size_t row) const {
        return std::min(names_.size(), row + band_);
    }
    [[nodiscard]] std::uint32_t at(std::size_t row, std::size_t column) const {
        constexpr std::uint32_t far = std::numeric_limits<std::uint32_t>::max() / 2;
        if (column < first(row) || column > last(row)) return far;
        return cells_[row * width() + (column - first(row))];
    }
    [[nodiscard]] std::size_t width() const { return 2 * band_ + 2; }

    void fill() {
        cells_.assign((pattern_.size() + 1) * width(), 0);
        for (std::size_t row = 0; row <= pattern_.size(); ++row)
            for (std::size_t column = first(row); column <= last(row); ++column) {
                std::uint32_t best = std::numeric_limits<std::uint32_t>::max() / 2;
                if (row == 0 && column == 0) best = 0;
                if (row > 0) best = std::min(best, at(row - 1, column) + 1);
                if (column > first(row)) best = std::min(best, at(row, column - 1) + 1);
                if (row > 0 && column > 0 && pattern_[row - 1] == names_[column - 1])
                    best = std::min(best, at(row - 1, column - 1));
                cells_[row * width() + (column - first(row))] = best;
            }
        edits_ = at(pattern_.size(), names_.size());
    }

    void trace_back() {
        std::size_t row = pattern_.size();
        std::size_t column = names_.size();
        while (row > 0 && column > 0) {
            const std::uint32_t here = at(row, column);
            if (pattern_[row - 1] == names_[column - 1] && here == at(row - 1, column - 1)) {
                places_[--column] = --row;
            } else if (here == at(row - 1, column) + 1) {
                --row;
            } else {
                --column;
            }
        }
    }

    std::vector<std::size_t> places_;
    std::span<const std::uint32_t> pattern_;
    std::span<const std::uint32_t> names_;
    std::size_t band_ = 0;
    std::vector<std::uint32_t> cells_;
    std::size_t edits_ = 0;
};

/// The launches that most iterations of the commonest kind have, in order: each place is in more
/// than half of them. Iterations that have less than half in common with it are of another kind and
/// have no say.
class LaunchTemplate {
public:
    explicit LaunchTemplate(std::span<const WeightedLaunches> iterations) {
        if (iterations.empty()) return;
        const std::vector<std::size_t> chosen = spread(iterations);
        names_ = iterations[seed(iterations, chosen)].names;
        for (int round = 0; round < 3; ++round) {
            std::vector<std::uint32_t> voted = vote(iterations, chosen);
            const bool settled = voted == names_ || voted.empty();
            if (!voted.empty()) names_ = std::move(voted);
            if (settled) break;
        }
    }

    [[nodiscard]] const std::vector<std::uint32_t>& names() const { return names_; }

    /// Whether a sequence with so many edits is of the template's kind.
    [[nodiscard]] bool is_same_kind(const Alignment& alignment, std::size_t length) const {
        return 2 * alignment.edits() <= names_.size() + length;
    }

private:
    static constexpr std::size_t most_aligned = 64;
    static constexpr std::size_t most_launches = 400'000;  // times the band's width: a second

    /// Iterations that are looked at: the commonest, and others all over the trace.
    static std::vector<std::size_t> spread(std::span<const WeightedLaunches> iterations) {
        std::vector<std::size_t> order(iterations.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return iterations[a].weight > iterations[b].weight;
        });
        std::vector<std::size_t> chosen;
        std::size_t launches = 0;
        const std::size_t stride = 1 + (order.size() - 1) / most_aligned;
        for (std::size_t i = 0; i < order.size(); i += stride) {
            launches += iterations[order[i]].names.size();
            if (launches > most_launches && !chosen.empty()) break;
            chosen.push_back(order[i]);
        }
        return chosen;
    }

    /// Of the first few, the one that is nearest to the others.
    static std::size_t seed(std::span<const WeightedLaunches> iterations,
                            const std::vector<std::size_t>& chosen) {
        if (iterations[chosen.front()].names.size() > 2000) return chosen.front();
        constexpr std::size_t few = 12;
        std::size_t best = chosen.front();
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t a = 0; a < std::min(few, chosen.size()); ++a) {
            double sum = 0;
            for (std::size_t b = 0; b < std::min(few, chosen.size()); ++b) {
                const WeightedLaunches& other = iterations[chosen[b]];
                const Alignment alignment{iterations[chosen[a]].names, other.names};
                sum += other.weight * static_cast<double>(alignment.edits());
            }
            if (sum >= least) continue;
            least = sum;
            best = chosen[a];
        }
        return best;
    }

    [[nodiscard]] std::vector<std::uint32_t> vote(std::span<const WeightedLaunches> iterations,
                                                  const std::vector<std::size_t>& chosen) const {
        std::vector<double> present(names_.size(), 0);
        // Between places: what else comes there, by its number in a row and its name.
        std::vector<std::map<std::pair<std::size_t, std::uint32_t>, double>> added(names_.size() +
                                                                                   1);
        double all = 0;
        for (const std::size_t i : chosen) {
            const WeightedLaunches& each = iterations[i];
            const Alignment alignment{names_, each.names};
            if (!is_same_kind(alignment, each.names.size())) continue;
            all += each.weight;
            std::size_t behind = 0;
            std::size_t in_a_row = 0;
            for (std::size_t n = 0; n < each.names.size(); ++n) {
                const std::size_t place = alignment.places()[n];
                if (place == Alignment::nowhere) {
                    added[behind][{in_a_row++, each.names[n]}] += each.weight;
                    continue;
                }
                present[place] += each.weight;
                behind = place + 1;
                in_a_row = 0;
            }
        }
        std::vector<std::uint32_t> voted;
        for (std::size_t place = 0; place <= names_.size(); ++place) {
            for (const auto& [what, weight] : added[place])
                if (2 * weight > all) voted.push_back(what.second);
            if (place < names_.size() && 2 * present[place] > all) voted.push_back(names_[place]);
        }
        return voted;
    }

    std::vector<std::uint32_t> names_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
