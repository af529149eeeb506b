// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/kernel.hpp>

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace kdvfs {

/// A plan as data: what each kernel and variant is to ask for. Immutable while a GPU obeys it.
class PlanTable {
public:
    void set(const KernelKey& key, ClockRequest request) { requests_[key] = request; }

    /// @returns the plan's request for a kernel, or nothing where the plan does not name it
    [[nodiscard]] std::optional<ClockRequest> find(std::string_view kernel, Variant variant) const {
        const auto found = requests_.find(KernelKey{std::string{kernel}, variant});
        if (found == requests_.end()) return std::nullopt;
        return found->second;
    }

    [[nodiscard]] const std::map<KernelKey, ClockRequest>& requests() const { return requests_; }

private:
    std::map<KernelKey, ClockRequest> requests_;
};

}  // namespace kdvfs
