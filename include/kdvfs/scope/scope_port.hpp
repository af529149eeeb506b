// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/kernel_interval.hpp>
#include <kdvfs/core/time.hpp>
#include <kdvfs/device/level_cell.hpp>
#include <kdvfs/device/stream_runtime.hpp>
#include <kdvfs/policy/clock_request.hpp>

#include <atomic>
#include <cstdint>

namespace kdvfs {

class Lane;
namespace detail {
class FollowedPlan;
}

/// What all scopes of one kernel, variant and policy share. Made at the first such scope, valid as
/// long as the GPU object; its number tags the markers.
struct ScopeKind {
    KernelId kernel{};
    std::uint32_t number = 0;
    ClockRequest request{};
    RequestIndex index = no_request;                     ///< of the request's clock point
    bool metered = true;                                 ///< whether the registry meters at all
    detail::FollowedPlan* plan = nullptr;                ///< that these scopes follow, if any
    std::uint32_t plan_kernel = 0;                       ///< the kernel, as that plan numbers it
    mutable std::atomic<Duration::rep> seen_to_last{0};  ///< median of its dwell in ns, 0 = unseen
};

/// What a scope holds between entering and leaving. Without a lane there is nothing to leave.
struct ScopePass {
    Lane* lane = nullptr;
    std::uint64_t entry = 0;
    const ScopeKind* kind = nullptr;
    bool metered = false;
    bool ends_plan = false;  ///< of a captured lane: the plan's last launch
};

/// The door between scopes and the GPU object behind them: what `FrequencyScope` needs to know of
/// it. Thread-safe.
class ScopePort {
public:
    /// @throws Error for a stream of another device, or where no marker can be put
    virtual ScopePass enter(StreamRef stream, const ScopeKind& kind) = 0;
    /// @throws Error where no marker can be put, or the scope straddles a capture's begin or end;
    ///         the scope has been left all the same
    virtual void leave(const ScopePass& pass) = 0;
    /// Leaves and keeps the error for `Gpu::check()`.
    virtual void leave_noexcept(const ScopePass& pass) noexcept = 0;

protected:
    ~ScopePort() = default;
};

}  // namespace kdvfs
