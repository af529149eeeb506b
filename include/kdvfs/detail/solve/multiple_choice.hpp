// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::solve {

/// One way to run one kernel: seconds and joules of all its launches in an iteration.
struct Choice {
    double time = 0;
    double energy = 0;

    Choice& operator+=(const Choice& other) {
        time += other.time;
        energy += other.energy;
        return *this;
    }
    Choice& operator-=(const Choice& other) {
        time -= other.time;
        energy -= other.energy;
        return *this;
    }
    friend Choice operator+(Choice a, const Choice& b) { return a += b; }
    friend bool operator==(const Choice&, const Choice&) = default;
};

/// A multiple-choice problem: out of each class, exactly one choice. Stored flat, so that 10^5
/// classes of 128 choices take 200 MB and no more.
class MultipleChoice {
public:
    void reserve(std::size_t classes, std::size_t choices) {
        ends_.reserve(classes);
        choices_.reserve(choices);
    }
    /// Adds a class; times and energies are finite, the class is not empty.
    void add_class(std::span<const Choice> choices) {
        choices_.insert(choices_.end(), choices.begin(), choices.end());
        ends_.push_back(choices_.size());
    }
    [[nodiscard]] std::size_t size() const { return ends_.size(); }
    [[nodiscard]] std::size_t choices() const { return choices_.size(); }
    [[nodiscard]] std::span<const Choice> operator[](std::size_t index) const {
        const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
        return std::span{choices_}.subspan(begin, ends_[index] - begin);
    }

private:
    std::vector<Choice> choices_;
    std::vector<std::size_t> ends_;
};

/// What is chosen out of each class, and what that sums to.
struct Selection {
    std::vector<std::uint32_t> chosen;
    Choice total;
};

/// Sums a selection anew, in the order of the classes.
inline Choice sum_of(const MultipleChoice& problem, std::span<const std::uint32_t> chosen) {
    Choice total;
    for (std::size_t i = 0; i < problem.size(); ++i) total += problem[i][chosen[i]];
    return total;
}

/// Finds the choices on the lower left convex hull of a class: from the fastest to the most
/// frugal, each step saving less energy per added second than the one before.
class ConvexHull {
public:
    /// Indices into `choices`, fastest first. Valid until the next call; reuses its memory.
    std::span<const std::uint32_t> operator()(std::span<const Choice> choices) {
        hull_.clear();
        select_candidates(choices);
        for (const std::uint32_t next : candidates_) {
            if (!hull_.empty() && choices[next].energy >= choices[hull_.back()].energy) continue;
            while (hull_.size() >= 2 && !is_convex(choices[hull_[hull_.size() - 2]],
                                                   choices[hull_.back()], choices[next])) {
                hull_.pop_back();
            }
            hull_.push_back(next);
        }
        return hull_;
    }

private:
    /// Sorting is what costs, so only what lies on or under the line between the two ends is
    /// sorted.
    void select_candidates(std::span<const Choice> choices) {
        std::uint32_t fastest = 0;
        std::uint32_t frugal = 0;
        for (std::uint32_t i = 1; i < choices.size(); ++i) {
            if (before(choices[i], choices[fastest])) fastest = i;
            if (choices[i].energy < choices[frugal].energy ||
                (choices[i].energy == choices[frugal].energy &&
                 choices[i].time < choices[frugal].time))
                frugal = i;
        }
        const Choice a = choices[fastest];
        const Choice b = choices[frugal];
        candidates_.assign(1, fastest);
        for (std::uint32_t i = 0; i < choices.size(); ++i) {
            const Choice c = choices[i];
            if (c.time >= b.time || c.energy >= a.energy || i == fastest) continue;
            if ((c.energy - a.energy) * (b.time - a.time) <
                (b.energy - a.energy) * (c.time - a.time))
                candidates_.push_back(i);
        }
        std::sort(candidates_.begin() + 1, candidates_.end(),
                  [&](std::uint32_t x, std::uint32_t y) { return before(choices[x], choices[y]); });
        if (frugal != fastest) candidates_.push_back(frugal);
    }

    static bool before(const Choice& x, const Choice& y) {
        return x.time < y.time || (x.time == y.time && x.energy < y.energy);
    }
    static bool is_convex(const Choice& a, const Choice& b, const Choice& c) {
        return (a.energy - b.energy) * (c.time - b.time) >
               (b.energy - c.energy) * (b.time - a.time);
    }

    std::vector<std::uint32_t> candidates_;
    std::vector<std::uint32_t> hull_;
};

/// The convex hull of all sums that a problem allows, as a walk: from everything at its fastest,
/// step by step to everything at its most frugal, best bargain first. Stopping after a step gives
/// a selection that minimises energy + price * time for some price: no selection of the same time
/// uses less energy. Memory: 24 bytes a step.
class HullWalk {
public:
    struct Step {
        double price = 0;  ///< joules saved per second added; falls along the walk
        std::uint32_t of_class = 0;
        std::uint32_t from = 0;
        std::uint32_t to = 0;
    };

    explicit HullWalk(const MultipleChoice& problem) : problem_{&problem} {
        ConvexHull hull_of;
        start_.chosen.reserve(problem.size());
        for (std::size_t i = 0; i < problem.size(); ++i) {
            const std::span<const Choice> choices = problem[i];
            const std::span<const std::uint32_t> hull = hull_of(choices);
            start_.chosen.push_back(hull.front());
            start_.total += choices[hull.front()];
            for (std::size_t k = 1; k < hull.size(); ++k) {
                const Choice& a = choices[hull[k - 1]];
                const Choice& b = choices[hull[k]];
                const double price = (a.energy - b.energy) / (b.time - a.time);
                steps_.push_back({price, static_cast<std::uint32_t>(i), hull[k - 1], hull[k]});
            }
        }
        sort_steps();
    }

    [[nodiscard]] const Selection& start() const { return start_; }
    [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }

    [[nodiscard]] Choice after(Choice total, const Step& step) const {
        total -= (*problem_)[step.of_class][step.from];
        return total += (*problem_)[step.of_class][step.to];
    }

    /// The selection after the first `count` steps, summed anew.
    [[nodiscard]] Selection selection_after(std::size_t count) const {
        Selection selection = start_;
        for (std::size_t k = 0; k < count; ++k) selection.chosen[steps_[k].of_class] = steps_[k].to;
        selection.total = sum_of(*problem_, selection.chosen);
        return selection;
    }

private:
    // The steps of one class come in falling price; a stable sort keeps them so among equals.
    void sort_steps() {
        std::stable_sort(steps_.begin(), steps_.end(),
                         [](const Step& a, const Step& b) { return a.price > b.price; });
    }

    const MultipleChoice* problem_;
    Selection start_;
    std::vector<Step> steps_;
};

}  // namespace kdvfs::inline v0_3::solve
