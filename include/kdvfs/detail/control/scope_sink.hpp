// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/units.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kdvfs::detail {

class FollowedPlan;
class StreamTrack;

/// What all scopes of one kernel, variant and policy share. Made at the first such scope, valid as
/// long as the GPU object; its number tags the markers.
struct ScopeKind {
    KernelId kernel{};
    std::uint32_t number = 0;
    ClockRequest request{};
    RequestIndex index = no_request;                     ///< of the request's clock point
    bool metered = true;                                 ///< whether the registry meters at all
    FollowedPlan* plan = nullptr;                        ///< that these scopes follow, if any
    std::uint32_t plan_kernel = 0;                       ///< the kernel, as that plan numbers it
    mutable std::atomic<Duration::rep> median_dwell{0};  ///< median of its dwell in ns, 0 = unseen
};

/// What a scope holds between entering and leaving. Without a track there is nothing to leave.
struct ScopeToken {
    StreamTrack* track = nullptr;
    std::uint64_t entry = 0;
    const ScopeKind* kind = nullptr;
    bool metered = false;
    bool ends_plan = false;  ///< of a captured track: the plan's last launch
};

/// The door between scopes and the GPU object behind them: what `FrequencyScope` needs to know of
/// it. Thread-safe.
class ScopeSink {
public:
    /// @throws Error for a stream of another device, or where no marker can be put
    virtual ScopeToken enter(StreamRef stream, const ScopeKind& kind) = 0;
    /// @throws Error where no marker can be put, or the scope straddles a capture's begin or end;
    ///         the scope has been left all the same
    virtual void leave(const ScopeToken& token) = 0;
    /// Leaves and keeps the error for `Gpu::check()`.
    virtual void leave_noexcept(const ScopeToken& token) noexcept = 0;

protected:
    ~ScopeSink() = default;
};

/// Remembers what was asked once: the kinds of the first shapes of kernels, by where their names
/// lie in the program. Grows to a fixed size and forgets nothing. Lock-free.
class KindMemo {
public:
    using Slot = std::atomic<const ScopeKind*>;
    static constexpr std::size_t shapes = 8;
    using Shapes = std::array<Slot, shapes>;

    /// @param name of static duration
    /// @returns where the kind is kept, which may be empty yet; null where there is no room for it
    Slot* slot(const char* name, Variant variant) noexcept {
        if (variant.index >= shapes) return nullptr;
        const auto start = static_cast<std::size_t>(
            reinterpret_cast<std::uintptr_t>(name) * 0x9e3779b97f4a7c15U >> 58U);
        for (std::size_t i = 0; i < kernels; ++i) {
            Kernel& kernel = kernels_[(start + i) % kernels];
            const char* known = kernel.name.load(std::memory_order_relaxed);
            if (known == nullptr &&
                kernel.name.compare_exchange_strong(known, name, std::memory_order_relaxed)) {
                known = name;
            }
            if (known == name) return &kernel.kinds[variant.index];
        }
        return nullptr;
    }

private:
    static constexpr std::size_t kernels = 64;

    struct Kernel {
        std::atomic<const char*> name{nullptr};
        Shapes kinds{};
    };
    std::array<Kernel, kernels> kernels_{};
};

}  // namespace kdvfs::detail
