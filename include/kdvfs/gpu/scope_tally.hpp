// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/report.hpp>
#include <kdvfs/scope/clock_controller.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kdvfs {

/// What enqueueing can tell of a scope's fate. `asked` is settled by the controller: switched,
/// refused, or elided because the device already held the request.
enum class ScopeCount : std::uint8_t {
    kept,
    stream_elided,
    not_worth_it,
    refused,
    captured,
    asked,
};

/// Counts scopes, each once. Thread-safe, relaxed: the counts are right when scopes are at rest.
class ScopeTally {
public:
    void count(ScopeCount fate, bool metered) {
        at(fate).fetch_add(1, std::memory_order_relaxed);
        if (!metered) unmetered_.fetch_add(1, std::memory_order_relaxed);
    }

    [[nodiscard]] measure::ScopeCounts counts(const ControllerCounts& controller) {
        measure::ScopeCounts counts;
        for (const auto& fate : fates_) counts.scopes += fate.load(std::memory_order_relaxed);
        counts.unmetered = unmetered_.load(std::memory_order_relaxed);
        counts.kept = at(ScopeCount::kept).load(std::memory_order_relaxed);
        counts.stream_elided = at(ScopeCount::stream_elided).load(std::memory_order_relaxed);
        counts.not_worth_it = at(ScopeCount::not_worth_it).load(std::memory_order_relaxed);
        counts.captured = at(ScopeCount::captured).load(std::memory_order_relaxed);
        counts.switches = controller.switched_scopes;
        counts.refused =
            at(ScopeCount::refused).load(std::memory_order_relaxed) + controller.refused_scopes;
        counts.device_elided = at(ScopeCount::asked).load(std::memory_order_relaxed) -
                               controller.switched_scopes - controller.refused_scopes;
        return counts;
    }

private:
    std::atomic<std::uint64_t>& at(ScopeCount fate) {
        return fates_[static_cast<std::size_t>(fate)];
    }

    std::array<std::atomic<std::uint64_t>, 6> fates_{};
    std::atomic<std::uint64_t> unmetered_{0};
};

}  // namespace kdvfs
