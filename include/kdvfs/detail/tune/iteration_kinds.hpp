// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace kdvfs::inline v0_3::tune::detail {

/// What iterations of several kinds, such as steps with and without the optimiser and validation
/// steps, take at the clocks as found. Kinds are known by how much they launch. Blocks of different
/// kinds compare by their time and energy for each second that they would take as found. Medians:
/// the first steps of a program, and those that stall, take much longer than others. Pure.
class IterationKinds {
public:
    /// An iteration was run as found.
    void add(std::uint32_t launches, Seconds time) {
        if (launches == 0 || time <= Seconds{0}) return;
        const auto kind = kinds_.find(launches);
        if (kind != kinds_.end())
            kind->second.add(time);
        else if (kinds_.size() < most_kinds)
            kinds_[launches].add(time);
    }
    /// Another program runs.
    void forget() { *this = {}; }

    /// What is known by now holds from now on: blocks that are compared are counted alike.
    void fix() {
        fixed_.clear();
        Seconds time{0};
        double launches = 0;
        for (const auto& [its_launches, times] : kinds_) {
            fixed_[its_launches] = times.median();
            time += times.median() * static_cast<double>(times.count);
            launches += static_cast<double>(its_launches) * static_cast<double>(times.count);
        }
        each_ = launches > 0 ? time / launches : Seconds{1};
    }
    /// The time of an iteration as found, as it was known when `fix` was called last; from its
    /// launches where it is of no kind that was known.
    [[nodiscard]] Seconds as_found(std::uint32_t launches) const {
        const auto kind = fixed_.find(launches);
        return kind != fixed_.end() ? kind->second : each_ * std::max(launches, 1U);
    }

private:
    static constexpr std::size_t most_kinds = 64;

    /// The last ones.
    struct Times {
        std::array<Seconds, 31> last{};
        std::size_t count = 0;

        void add(Seconds time) { last[count++ % last.size()] = time; }
        [[nodiscard]] Seconds median() const {
            auto sorted = last;
            const auto end =
                sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count, sorted.size()));
            const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
            std::nth_element(sorted.begin(), middle, end);
            return *middle;
        }
    };

    std::map<std::uint32_t, Times> kinds_;    ///< by launches
    std::map<std::uint32_t, Seconds> fixed_;  ///< likewise
    Seconds each_{1};                         ///< of a launch
};

}  // namespace kdvfs::inline v0_3::tune::detail
