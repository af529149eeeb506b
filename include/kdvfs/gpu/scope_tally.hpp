// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/report.hpp>
#include <kdvfs/scope/clock_controller.hpp>
#include <kdvfs/scope/lane_counts.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace kdvfs {

/// Adds up the scopes of all lanes and settles, with the controller's counts, what became of each.
class ScopeTally {
public:
    void add(const LaneCounts& lane) {
        for (std::size_t i = 0; i < fates_.size(); ++i) fates_[i] += lane.fates[i];
        unmetered_ += lane.unmetered;
    }

    /// @param controller its counts, taken before those of the lanes
    [[nodiscard]] measure::ScopeCounts counts(const ControllerCounts& controller) const {
        measure::ScopeCounts counts;
        for (const std::uint64_t fate : fates_) counts.scopes += fate;
        counts.unmetered = unmetered_;
        counts.kept = at(ScopeCount::kept);
        counts.stream_elided = at(ScopeCount::stream_elided);
        counts.not_worth_it = at(ScopeCount::not_worth_it) + controller.overtaken_scopes;
        counts.captured = at(ScopeCount::captured);
        counts.followed = at(ScopeCount::followed);
        counts.switches = controller.switched_scopes;
        counts.refused = at(ScopeCount::refused) + controller.refused_scopes;
        counts.device_elided = at(ScopeCount::asked) - controller.switched_scopes -
                               controller.refused_scopes - controller.overtaken_scopes;
        return counts;
    }

private:
    [[nodiscard]] std::uint64_t at(ScopeCount fate) const {
        return fates_[static_cast<std::size_t>(fate)];
    }

    std::array<std::uint64_t, 7> fates_{};
    std::uint64_t unmetered_ = 0;
};

}  // namespace kdvfs
