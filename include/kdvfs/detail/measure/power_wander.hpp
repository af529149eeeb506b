// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// How far the power of a board wanders from second to second about what its kernels explain, by
/// means of windows. What calls and noise make of a mean is seen in every other run, which a load
/// from outside moves like the others.
class PowerWander {
public:
    /// @param period of readings, s
    explicit PowerWander(double period) : length_{std::max(0.5, 2.0 * fewest * period)} {}

    /// What is unexplained of a reading at `at` s, in every other run (`half` 0) or between (1).
    void add(double at, std::size_t half, double watts) {
        windows_[static_cast<std::int64_t>(at / length_)][half].add(watts);
    }
    /// Standard deviation, W, without a straight line through all; 0 where too little was seen.
    [[nodiscard]] double deviation() const;

private:
    static constexpr std::size_t fewest = 12;  // windows

    struct Mean {
        double count = 0;
        double watts = 0;
        void add(double more) { watts += (more - watts) / ++count; }
    };

    double length_;  // of a window, s
    std::map<std::int64_t, std::array<Mean, 2>> windows_;
};

inline double PowerWander::deviation() const {
    std::vector<std::array<double, 3>>
        means;  // window, its mean, and half of what halves differ by
    Mean differ;
    for (const auto& [window, halves] : windows_) {
        const auto& [even, odd] = halves;
        if (std::min(even.count, odd.count) < 4) continue;
        means.push_back({static_cast<double>(window), 0.5 * (even.watts + odd.watts),
                         0.5 * (even.watts - odd.watts)});
        differ.add(means.back()[2]);
    }
    if (means.size() < fewest) return 0;
    Mean at;
    Mean mean;
    for (const auto& [window, watts, half] : means) {
        at.add(window);
        mean.add(watts);
    }
    double along = 0;
    double times = 0;
    double squares = 0;
    double chance = 0;
    for (const auto& [window, watts, half] : means) {
        along += (window - at.watts) * (watts - mean.watts);
        times += (window - at.watts) * (window - at.watts);
        squares += (watts - mean.watts) * (watts - mean.watts);
        chance += (half - differ.watts) * (half - differ.watts);
    }
    return std::sqrt(std::max(squares - along * along / times - chance, 0.0) / (mean.count - 2));
}

}  // namespace kdvfs::inline v0_3::measure
