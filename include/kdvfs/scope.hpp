// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/kernel.hpp>

#include <cstddef>
#include <functional>
#include <new>
#include <utility>

namespace kdvfs::inline v0_3 {

namespace detail {

/// Takes values, not the scope: a destructor's slow path that took `this` would keep the scope
/// alive in memory even where it compiles to nothing.
inline void leave_at_end(extend::ScopeSink* sink, extend::ScopeToken token) noexcept {
    sink->leave_noexcept(token);
}

/// A GPU with policies, which says whether scopes of `K` do anything.
template <class BoundGpu, class K>
concept HasPoliciesFor = requires {
    BoundGpu::template has_scope_for<K>;
};

}  // namespace detail

/// While it lives, work enqueued on `stream` runs at the clock that the registry gives to `K`:
///
///     {
///         kdvfs::FrequencyScope<Gelu> scope{gpu, stream};
///         gelu<<<grid, block, 0, stream>>>(out, in, n);
///     }
///
/// The clock is asked for when the *stream* gets here and given back when it gets past the end;
/// the host never waits. Scopes of one stream may nest, and may be left in any order.
/// A scope whose policy is `KeepClock`, in an unmetered registry, compiles to nothing.
/// The constructor throws `Error` for a stream of another device or where the runtime refuses the
/// marker. The destructor never throws: what went wrong is kept for `gpu.check()`.
/// Enter and leave may happen on any thread. In a forked child all of it does nothing.
template <NamedKernel K>
class [[nodiscard]] FrequencyScope {
public:
    /// @param gpu     what `Gpu::with<Registry>()` returned
    /// @param stream  a stream of that GPU; null is the default stream. On NVIDIA it must outlive
    ///                the scope
    /// @param variant which of the kernel's shapes runs
    template <class BoundGpu>
    [[nodiscard("name the scope: a temporary ends before the kernel is launched")]] FrequencyScope(
        const BoundGpu& gpu, StreamRef stream, Variant variant = {}) {
        static_assert(detail::HasPoliciesFor<BoundGpu, K>,
                      "this GPU has no policies: pass what gpu.with<YourRegistry>() returns");
        if constexpr (detail::HasPoliciesFor<BoundGpu, K>) {
            if constexpr (BoundGpu::template has_scope_for<K>) {
                token_ = gpu.scope_sink().enter(stream, gpu.template kind_of<K>(variant));
                sink_ = &gpu.scope_sink();
            }
        }
    }

    /// A temporary GPU would be gone before the scope: keep it in a variable.
    template <class BoundGpu>
    FrequencyScope(const BoundGpu&& gpu, StreamRef stream, Variant variant = {}) = delete;

    FrequencyScope(const FrequencyScope&) = delete;
    FrequencyScope& operator=(const FrequencyScope&) = delete;
    FrequencyScope(FrequencyScope&&) = delete;
    FrequencyScope& operator=(FrequencyScope&&) = delete;

    /// A scope made by `new` ends when somebody deletes it, which is a warning; for one that ends
    /// elsewhere than its block there are std::optional and std::make_unique.
    [[deprecated(
        "declare the scope in a block: a scope made by new ends only by delete")]] static void*
    operator new(std::size_t size) {
        return ::operator new(size);
    }
    static void operator delete(void* scope) noexcept { ::operator delete(scope); }

    // Inlined early, or g++ 12 sees too late that a KeepClock scope is empty and gives up the tail
    // call.
    [[gnu::always_inline]] ~FrequencyScope() {
        if (sink_ != nullptr) detail::leave_at_end(sink_, token_);
    }

    /// Leaves now. The throwing twin of the destructor; a second call does nothing.
    /// @throws Error where no marker can be put, or where the scope straddles the begin or end of
    ///         a capture
    void close() {
        if (extend::ScopeSink* sink = std::exchange(sink_, nullptr)) sink->leave(token_);
    }

private:
    extend::ScopeSink* sink_ = nullptr;  // null: nothing to leave
    extend::ScopeToken token_{};
};

/// Calls `work`, which enqueues on `stream`, inside a `FrequencyScope<K>`:
/// `kdvfs::launch<QkvGemm>(gpu, stream, [&] { hipblasGemmEx(handle, ...); });`
/// Where the GPU was opened to repeat (`GpuOptions::repeat`), `work` is called many times before.
/// @returns what `work` returns; whatever it throws leaves the scope first
template <NamedKernel K, class BoundGpu, std::invocable Work>
decltype(auto) launch(const BoundGpu& gpu, StreamRef stream, Variant variant, Work&& work) {
    if constexpr (!detail::HasPoliciesFor<BoundGpu, K>) {
        // The scope below says what is missing.
    } else if constexpr (BoundGpu::template has_scope_for<K> && !RunsOnce<K> &&
                         std::invocable<Work&>) {
        if (gpu.scope_sink().repeats()) [[unlikely]] {
            gpu.scope_sink().repeat(
                stream, [&] { return &gpu.template kind_of<K>(variant); },
                [&] { static_cast<void>(std::invoke(work)); });
        }
    }
    FrequencyScope<K> scope{gpu, stream, variant};
    return std::invoke(std::forward<Work>(work));
}

/// The same for a kernel with one shape.
template <NamedKernel K, class BoundGpu, std::invocable Work>
decltype(auto) launch(const BoundGpu& gpu, StreamRef stream, Work&& work) {
    return launch<K>(gpu, stream, Variant{}, std::forward<Work>(work));
}

}  // namespace kdvfs::inline v0_3
