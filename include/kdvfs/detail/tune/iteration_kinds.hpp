// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace kdvfs::inline v0_3::tune::detail {

/// What iterations of several kinds, such as steps with and without the optimiser and validation
/// steps, take at the clocks as found. Kinds are known by how much they launch. Blocks of different
/// kinds compare by their time and energy for each second that they would take as found. Pure.
class IterationKinds {
public:
    /// An iteration was run as found.
    void add(std::uint32_t launches, Seconds time) {
        if (launches == 0 || time <= Seconds{0}) return;
        all_.add(time, launches);
        const auto kind = kinds_.find(launches);
        if (kind != kinds_.end())
            kind->second.add(time, 1);
        else if (kinds_.size() < most_kinds)
            kinds_[launches].add(time, 1);
    }
    /// Another program runs.
    void forget() { *this = {}; }

    /// The time of an iteration as found; from its launches where it is of no known kind.
    [[nodiscard]] Seconds as_found(std::uint32_t launches) const {
        const auto kind = kinds_.find(launches);
        if (kind != kinds_.end()) return kind->second.mean();
        const double each = std::max(launches, 1U);
        return all_.count > 0 ? all_.mean() * each : Seconds{each};
    }

private:
    static constexpr std::size_t most_kinds = 64;

    struct Mean {
        Seconds sum{0};
        double count = 0;

        void add(Seconds time, double counts) {
            sum += time;
            count += counts;
        }
        [[nodiscard]] Seconds mean() const { return sum / count; }
    };

    std::map<std::uint32_t, Mean> kinds_;  ///< by launches
    Mean all_;                             ///< of a launch
};

}  // namespace kdvfs::inline v0_3::tune::detail
