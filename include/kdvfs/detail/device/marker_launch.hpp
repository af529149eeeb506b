// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/process_objects.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/device/contracts.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define KDVFS_HOST_DEVICE __host__ __device__
#else
#define KDVFS_HOST_DEVICE
#endif

namespace kdvfs::inline v0_3::device {

/// The unit of a marker where the compiler offers no way to ask: its count of cycles means nothing.
inline constexpr std::uint32_t unknown_unit = ~std::uint32_t{0};

/// A timestamp as a marker leaves it in host memory: in the device's own time, under a check
/// instead of a lock. The marker needs no fence (two would cost it a microsecond each), so the
/// words of an entry may arrive in any order: it is whole when its check fits its ticket.
struct alignas(64) TimestampEntry {
    std::uint64_t ticks = 0;    ///< the device's wall clock
    std::uint64_t cycles = 0;   ///< the core clock's free-running count of `unit`
    std::int64_t enqueued = 0;  ///< the host's time then, in ns; 0 in a graph, which is replayed
    std::uint32_t track = 0;
    std::uint32_t scope_kind = 0;
    std::uint32_t window = 0;
    std::uint32_t leaving = 0;
    std::uint32_t unit = 0;  ///< which compute unit it ran on, or `unknown_unit`
    std::uint32_t spare = 0;
    std::uint64_t check = 0;
    std::uint64_t unused = 0;  ///< named, so that no padding has to be kept byte by byte
};
static_assert(sizeof(TimestampEntry) == 64);

/// What makes an entry whole. Tickets count from 1, so that zeroed memory is never whole.
/// Odd multipliers spread each word over the check (the 64-bit constants of splitmix64).
KDVFS_HOST_DEVICE inline std::uint64_t timestamp_check(const TimestampEntry& entry,
                                                       std::uint64_t ticket) {
    constexpr std::uint64_t a = 0x9e3779b97f4a7c15U;
    constexpr std::uint64_t b = 0xbf58476d1ce4e5b9U;
    constexpr std::uint64_t c = 0x94d049bb133111ebU;
    std::uint64_t sum = ticket * a;
    sum = (sum ^ entry.ticks) * b;
    sum = (sum ^ entry.cycles) * c;
    sum = (sum ^ static_cast<std::uint64_t>(entry.enqueued)) * a;
    sum = (sum ^ (static_cast<std::uint64_t>(entry.track) << 32U ^ entry.scope_kind)) * b;
    sum = (sum ^ (static_cast<std::uint64_t>(entry.window) << 32U ^ entry.unit)) * c;
    return (sum ^ entry.leaving) * a | 1U;
}

#undef KDVFS_HOST_DEVICE

/// The host's end of a ring that markers write: takes out whole entries in the order of their
/// tickets. One thread at a time.
class TimestampReader {
public:
    TimestampReader(const TimestampEntry* entries, std::size_t count)
        : entries_{entries}, count_{count} {}

    /// The oldest entry not yet taken, if it has arrived whole.
    [[nodiscard]] std::optional<TimestampEntry> take() noexcept {
        if (const auto entry = read(next_)) {
            ++next_;
            return entry;
        }
        skip_overwritten();
        return std::nullopt;
    }

    /// How many were overwritten before they were taken.
    [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }

private:
    [[nodiscard]] std::optional<TimestampEntry> read(std::uint64_t ticket) const noexcept {
        // The device writes behind the compiler's back, whole words at a time.
        using Word [[gnu::may_alias]] = std::uint64_t;
        const auto* from = reinterpret_cast<const Word*>(entries_ + (ticket - 1) % count_);
        std::array<std::uint64_t, sizeof(TimestampEntry) / sizeof(Word)> words;
        for (std::uint64_t& word : words) word = __atomic_load_n(from++, __ATOMIC_ACQUIRE);
        const auto entry = std::bit_cast<TimestampEntry>(words);
        if (entry.check != timestamp_check(entry, ticket)) return std::nullopt;
        return entry;
    }

    /// If the entry of a later round stands where the awaited one should, those of the rounds
    /// between are gone; the last round's may still be there.
    void skip_overwritten() noexcept {
        for (std::uint64_t rounds = 1; rounds <= most_rounds; ++rounds) {
            const std::uint64_t later = next_ + rounds * count_;
            if (!read(later)) continue;
            const std::uint64_t oldest = later - count_ + 1;
            lost_ += oldest - next_;
            next_ = oldest;
            return;
        }
    }

    // Being further behind than this is for ever; at a ring of 2^16 it takes millions of
    // timestamps.
    static constexpr std::uint64_t most_rounds = 64;

    const TimestampEntry* entries_;
    std::size_t count_;
    std::uint64_t next_ = 1;
    std::uint64_t lost_ = 0;
};

/// What a marker kernel is launched with. All addresses are the device's.
struct MarkerArguments {
    std::uint32_t* cell = nullptr;  ///< where the request word goes
    std::uint32_t level = 0;
    TimestampEntry* ring = nullptr;             ///< null: no timestamp
    unsigned long long* next_ticket = nullptr;  ///< in the device's own memory
    std::uint64_t ring_mask = 0;                ///< entries of the ring - 1
    TimestampEntry timestamp;                   ///< all but what only the device knows
};

/// Launches a marker kernel on the vendor's stream; returns the vendor's status.
using LaunchMarker = int (*)(void* stream, const MarkerArguments& arguments);

/// The process's marker kernel for an API: null unless a file compiled for the device includes
/// kdvfs, which then serves the files compiled by a host compiler, too, in all modules.
template <class Api>
[[gnu::visibility("hidden")]] std::atomic<LaunchMarker>& marker_kernel_of_program() {
    static auto& launch = kdvfs::detail::shared_by_process<std::atomic<LaunchMarker>>(
        std::string{"marker kernel of "} + Api::name, sizeof(MarkerArguments));
    return launch;
}

/// Gives the program its marker kernel; the first one stays. The library that brings it is never
/// unloaded from then on: other libraries launch it, too, and the device may run it at any time.
template <class Api>
[[gnu::visibility("hidden")]] bool offer_marker_kernel(LaunchMarker launch) {
    if (marker_kernel_of_program<Api>() != nullptr) return false;
    kdvfs::detail::keep_loaded(reinterpret_cast<const void*>(launch));
    LaunchMarker none = nullptr;
    return marker_kernel_of_program<Api>().compare_exchange_strong(none, launch);
}

}  // namespace kdvfs::inline v0_3::device
