// SPDX-License-Identifier: MIT
// A scope that somebody has to delete: what is a warning is an error here. Owners are no mistake.
// expected: declare the scope in a block: a scope made by new ends only by delete
#include <kdvfs/scope.hpp>

#include <memory>
#include <optional>

#pragma GCC diagnostic error "-Wdeprecated-declarations"

struct Gelu : kdvfs::Kernel<"gelu"> {};

struct SomeGpu {
    template <class>
    static constexpr bool has_scope_for = false;
};

void run(const SomeGpu& gpu) {
    std::optional<kdvfs::FrequencyScope<Gelu>> scope;
    scope.emplace(gpu, nullptr);
    const auto owned = std::make_unique<kdvfs::FrequencyScope<Gelu>>(gpu, nullptr);
#ifdef KDVFS_MISTAKE
    auto* const forgotten = new kdvfs::FrequencyScope<Gelu>{gpu, nullptr};
    static_cast<void>(forgotten);
#endif
}
