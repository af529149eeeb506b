// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/gate.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/meter_record.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::detail {

/// The kernels of a GPU object by number, and the kinds of their scopes. Only grows; what it
/// returns stays valid. Thread-safe: its lock is never held for longer than a look-up or an
/// insertion.
class ScopeKinds {
public:
    const ScopeKind& find(std::string_view kernel, Variant variant, ClockRequest request,
                          RequestIndex index, bool metered) {
        const std::lock_guard lock{mutex_};
        const KernelId id = kernels_.id(kernel, variant);
        const auto [found, is_new] =
            numbers_.try_emplace({id, request.asks, request.point, metered}, kinds_.size());
        if (is_new) {
            ScopeKind& kind = kinds_.emplace_back();
            kind.kernel = id;
            kind.number = static_cast<std::uint32_t>(found->second);
            kind.request = request;
            kind.index = index;
            kind.metered = metered;
        }
        return kinds_[found->second];
    }

    /// @pre the number came with a kind
    [[nodiscard]] const ScopeKind& at(std::uint32_t number) const {
        const std::lock_guard lock{mutex_};
        return kinds_.at(number);
    }
    [[nodiscard]] std::size_t size() const {
        const std::lock_guard lock{mutex_};
        return kinds_.size();
    }
    /// All kernels so far, by number; a table that locks itself.
    [[nodiscard]] const measure::KernelTable& kernels() const { return kernels_; }

    /// A kernel whose scopes compile to nothing.
    void note_kept(std::string_view kernel) {
        const std::lock_guard lock{mutex_};
        kept_.insert(kernels_.id(kernel));
    }
    [[nodiscard]] std::set<KernelId> kept() const {
        const std::lock_guard lock{mutex_};
        return kept_;
    }

private:
    mutable std::mutex mutex_;
    measure::KernelTable kernels_;
    std::map<std::tuple<KernelId, bool, ClockPoint, bool>, std::size_t> numbers_;
    std::deque<ScopeKind> kinds_;
    std::set<KernelId> kept_;
};

}  // namespace kdvfs::detail
