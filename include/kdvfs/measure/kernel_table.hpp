// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/kernel.hpp>
#include <kdvfs/core/kernel_interval.hpp>

#include <gsl/assert>

#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <utility>

namespace kdvfs::measure {

/// Numbers kernels: a key gets the next number when it is first seen and keeps it for the table's
/// life. Thread-safe. Finding a known key neither allocates nor excludes other readers.
class KernelTable {
public:
    /// The number of a kernel, given out now if it has none yet.
    /// `name` must satisfy `is_kernel_name`.
    KernelId id(std::string_view name, Variant variant = {}) {
        Expects(is_kernel_name(name));
        if (const auto known = find(name, variant)) return *known;
        const std::unique_lock lock{mutex_};
        if (const auto it = ids_.find(Name{name, variant}); it != ids_.end()) return it->second;
        Expects(keys_.size() < std::numeric_limits<std::uint32_t>::max());
        const KernelId id{static_cast<std::uint32_t>(keys_.size())};
        const KernelKey& key = keys_.emplace_back(KernelKey{std::string{name}, variant});
        ids_.emplace(Name{key.name, variant}, id);
        return id;
    }

    KernelId id(const KernelKey& key) { return id(key.name, key.variant); }

    /// The number of a kernel, if it has one.
    [[nodiscard]] std::optional<KernelId> find(std::string_view name, Variant variant = {}) const {
        const std::shared_lock lock{mutex_};
        const auto it = ids_.find(Name{name, variant});
        return it == ids_.end() ? std::nullopt : std::optional{it->second};
    }

    /// The kernel behind a number that this table gave out. The reference stays valid.
    [[nodiscard]] const KernelKey& key(KernelId id) const {
        const std::shared_lock lock{mutex_};
        Expects(id.value < keys_.size());
        return keys_[id.value];
    }

    /// How many kernels there are; their numbers are 0 to size() - 1.
    [[nodiscard]] std::size_t size() const {
        const std::shared_lock lock{mutex_};
        return keys_.size();
    }

private:
    using Name = std::pair<std::string_view, Variant>;

    mutable std::shared_mutex mutex_;
    std::deque<KernelKey> keys_;  // a deque: its elements, which `ids_` points into, never move
    std::map<Name, KernelId> ids_;
};

}  // namespace kdvfs::measure
