// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/kernel.hpp>
#include <kdvfs/scope/scope_port.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kdvfs {

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

}  // namespace kdvfs
