// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::detail {
class FollowedPlan;
class StreamTrack;
}  // namespace kdvfs::inline v0_3::detail

/// What tools and bindings may name beyond the words of user code; see `kdvfs/extend.hpp`.
namespace kdvfs::inline v0_3::extend {

using detail::FollowedPlan;
using detail::StreamTrack;

/// What all scopes of one kernel, variant and policy share. Made at the first such scope, valid as
/// long as the GPU object; its number tags the markers.
struct ScopeKind {
    KernelId kernel{};
    std::uint32_t number = 0;
    ClockRequest request{};
    RequestIndex index = no_request;                     ///< of the request's clock point
    bool metered = true;                                 ///< whether the registry meters at all
    bool encloses = false;                               ///< has no work but that of scopes in it
    FollowedPlan* plan = nullptr;                        ///< that these scopes follow, if any
    std::uint32_t plan_kernel = 0;                       ///< the kernel, as that plan numbers it
    mutable std::atomic<Duration::rep> median_dwell{0};  ///< median of its dwell in ns, 0 = unseen
    mutable std::atomic<std::uint32_t> unmetered{0};     ///< scopes that could have been timed
    mutable std::atomic<std::uint32_t> own_clock{
        0};  ///< in kHz, while nothing lowers it; 0 = unseen
};

/// What a scope holds between entering and leaving. Without a track there is nothing to leave.
struct ScopeToken {
    StreamTrack* track = nullptr;
    std::uint64_t entry = 0;
    const ScopeKind* kind = nullptr;
    bool metered = false;
    bool timed = false;               ///< for the gate alone
    bool ends_plan = false;           ///< of a captured track: the plan's last launch
    RequestIndex rests = no_request;  ///< what a plan asks for in the gap behind the scope
};

/// What `FrequencyScope` needs to know of the GPU object behind it. Thread-safe.
class ScopeSink {
public:
    /// @throws Error for a stream of another device, or where no marker can be put
    virtual ScopeToken enter(StreamRef stream, const ScopeKind& kind) = 0;
    /// @throws Error where no marker can be put, or the scope straddles a capture's begin or end;
    ///         the scope has been left all the same
    virtual void leave(const ScopeToken& token) = 0;
    /// Leaves and keeps the error for `Gpu::check()`.
    virtual void leave_noexcept(const ScopeToken& token) noexcept = 0;

    /// Whether `launch` is to offer its work to `repeat`.
    [[nodiscard]] bool repeats() const noexcept { return repeats_; }
    /// Calls `work`, which enqueues on `stream`, until the meter can tell what it draws; nothing
    /// where that is known, or where repeating has not begun (`RepeatOptions::after`).
    /// @param kind asked for once repeating has begun, so that it may run the work to find out;
    ///        null: it is not repeated
    /// @throws Error that names the kernel, where the work fails
    virtual void repeat(StreamRef /*stream*/, const std::function<const ScopeKind*()>& /*kind*/,
                        const std::function<void()>& /*work*/) {}

protected:
    ~ScopeSink() = default;
    bool repeats_ = false;  ///< does not change once there are scopes
};

}  // namespace kdvfs::inline v0_3::extend

namespace kdvfs::inline v0_3::detail {

using extend::ScopeKind;
using extend::ScopeSink;
using extend::ScopeToken;

/// Remembers which kind a kernel and variant have, by where the kernel's name lies in the program:
/// names may begin at the same place, and end at others.
/// Looking up takes no lock and costs the same for any number of variants; the table grows doubling
/// when half full, and what was looked up stays valid.
class KindMemo {
public:
    KindMemo() { grow(64); }

    /// @param name of static duration
    /// @returns null before `keep` was called for it
    [[nodiscard]] const ScopeKind* find(std::string_view name, Variant variant) const noexcept {
        const Table& table = *table_.load(std::memory_order_acquire);
        for (std::size_t i = start_of(name, variant);; ++i) {
            const Slot& slot = table.slots[i & table.mask];
            const char* known = slot.name.load(std::memory_order_acquire);
            if (known == nullptr) return nullptr;
            if (known == name.data() && slot.size == name.size() && slot.variant == variant)
                return slot.kind;
        }
    }

    void keep(std::string_view name, Variant variant, const ScopeKind& kind) {
        const std::lock_guard lock{mutex_};
        if (find(name, variant) != nullptr) return;
        if (2 * ++used_ > tables_.back()->mask) {
            const Table& before = *tables_.back();
            grow(2 * (before.mask + 1));
            for (std::size_t i = 0; i <= before.mask; ++i) {
                const Slot& slot = before.slots[i];
                if (const char* known = slot.name)
                    insert({known, slot.size}, slot.variant, *slot.kind);
            }
            insert(name, variant, kind);
            table_.store(tables_.back().get(), std::memory_order_release);
            return;
        }
        insert(name, variant, kind);
    }

private:
    struct Slot {
        std::atomic<const char*> name{nullptr};  ///< written last: the others hold once it is there
        Variant variant{};
        std::uint32_t size = 0;  ///< of the name
        const ScopeKind* kind = nullptr;
    };
    struct Table {
        std::size_t mask = 0;
        std::unique_ptr<Slot[]> slots;
    };

    static std::size_t start_of(std::string_view name, Variant variant) noexcept {
        const auto key =
            reinterpret_cast<std::uintptr_t>(name.data()) + std::uintptr_t{variant.index} * 2;
        return static_cast<std::size_t>(key * 0x9e3779b97f4a7c15U >> 40U);
    }

    /// A table to fill; `table_` is what readers see. Older ones stay for readers still in them.
    void grow(std::size_t size) {
        auto table = std::make_unique<Table>();
        table->mask = size - 1;
        table->slots = std::make_unique<Slot[]>(size);
        tables_.push_back(std::move(table));
        if (tables_.size() == 1) table_.store(tables_.back().get(), std::memory_order_release);
    }

    void insert(std::string_view name, Variant variant, const ScopeKind& kind) {
        Table& table = *tables_.back();
        std::size_t i = start_of(name, variant) & table.mask;
        while (table.slots[i].name != nullptr) i = (i + 1) & table.mask;
        table.slots[i].variant = variant;
        table.slots[i].size = static_cast<std::uint32_t>(name.size());
        table.slots[i].kind = &kind;
        table.slots[i].name.store(name.data(), std::memory_order_release);
    }

    std::atomic<const Table*> table_{nullptr};
    std::mutex mutex_;
    std::vector<std::unique_ptr<Table>> tables_;
    std::size_t used_ = 0;
};

}  // namespace kdvfs::inline v0_3::detail
