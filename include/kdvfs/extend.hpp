// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/registry.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

/// What extensions need beyond the words of user code: scopes whose names are known at run time
/// only, for framework hooks, plugins and bindings to other languages.
namespace kdvfs::inline v0_3 {

namespace detail {

/// The object behind a handle.
struct ServiceBehind : Gpu {
    static GpuService& of(const Gpu& gpu) { return service_of(gpu); }
};

inline void check_kernel_name(std::string_view name) {
    if (is_kernel_name(name)) return;
    throw Error{Errc::invalid_input,
                {.action = "enter a scope",
                 .object = "'" + std::string{name.substr(0, 64)} + "'",
                 .vendor_words = "this is not a kernel name",
                 .remedy = "use 1 to 1024 printable ASCII characters without quotes and "
                           "backslashes"}};
}

template <template <class> class Bound, class... Rows>
const ScopeKind& kind_by_name(const Bound<PolicyRegistry<Rows...>>& gpu, std::string_view name,
                              Variant variant) {
    check_kernel_name(name);
    const ScopeKind* kind = nullptr;
    std::size_t at = 0;
    const std::size_t row = PolicyRegistry<Rows...>::row_of(name);
    const auto look = [&]<class Row>(const Row*) {
        if (at++ == row) kind = &gpu.template kind_of<typename Row::policy>(name, variant);
    };
    (look(static_cast<const Rows*>(nullptr)), ...);
    if (kind != nullptr) return *kind;
    throw Error{Errc::invalid_input,
                {.action = "enter a scope",
                 .object = std::string{name},
                 .vendor_words = "the registry has no policy for this kernel",
                 .remedy = "add kdvfs::Default<kdvfs::AutoClock> to the registry"}};
}

}  // namespace detail

/// A `FrequencyScope` whose kernel's name is known at run time only:
///
///     kdvfs::Scope scope{gpu, stream, "attention"};
///
/// While it lives, work enqueued on `stream` runs at the clock that the registry and its plan give
/// to the name (`Gpu::with`), or that the call asks for. Each name and variant keeps about 100
/// bytes until the GPU is closed, so names must not carry numbers that grow. Entering looks the
/// name up under a lock. Scopes may nest, end in any order and end on another thread; moving one is
/// not thread-safe. Privileges: those of `gpu`. In a forked child it does nothing.
class [[nodiscard]] Scope {
public:
    /// Follows the registry of `gpu`, and the plan that it was bound to.
    /// @param gpu     what `Gpu::with` returned, or a `tune::Session`; must outlive the scope
    /// @param stream  a stream of that GPU; null is the default stream
    /// @param name    a text that satisfies `is_kernel_name`; it is copied
    /// @param variant which of the kernel's shapes runs
    /// @throws Error (invalid_input) for an unusable name, a name without a policy or a stream of
    ///         another device; and where the runtime refuses the marker
    template <template <class> class Bound, class... Rows>
    Scope(const Bound<PolicyRegistry<Rows...>>& gpu, StreamRef stream, std::string_view name,
          Variant variant = {})
        : Scope{gpu.scope_sink(), stream, detail::kind_by_name(gpu, name, variant)} {}

    /// Asks for what the call says; by default for nothing: the scope is measured only.
    /// @param gpu     must outlive the scope
    /// @param stream  a stream of that GPU; null is the default stream
    /// @param name    a text that satisfies `is_kernel_name`; it is copied
    /// @param variant which of the kernel's shapes runs
    /// @param request the clock point in MHz, where it asks for one
    /// @throws Error (invalid_input) for an unusable name, for clocks that the device does not list
    ///         or for a stream of another device; and where the runtime refuses the marker
    Scope(const Gpu& gpu, StreamRef stream, std::string_view name, Variant variant = {},
          ClockRequest request = {})
        : Scope{gpu.scope_sink(), stream, kind(gpu, name, variant, request)} {}

    Scope(Scope&& other) noexcept
        : sink_{std::exchange(other.sink_, nullptr)}, token_{other.token_} {}
    Scope& operator=(Scope&&) = delete;
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    /// Leaves. An error is kept for `Gpu::check`.
    ~Scope() {
        if (sink_ != nullptr) sink_->leave_noexcept(token_);
    }

    /// Leaves now. A second call does nothing.
    /// @throws Error where no marker can be put, or where the scope straddles the begin or end of a
    ///         capture
    void close() {
        if (extend::ScopeSink* sink = std::exchange(sink_, nullptr)) sink->leave(token_);
    }

protected:
    Scope(extend::ScopeSink& sink, StreamRef stream, const extend::ScopeKind& kind)
        : sink_{&sink}, token_{sink.enter(stream, kind)} {}

private:
    static const extend::ScopeKind& kind(const Gpu& gpu, std::string_view name, Variant variant,
                                         const ClockRequest& request) {
        detail::check_kernel_name(name);
        return detail::ServiceBehind::of(gpu).kind_of(name, variant, request, true);
    }

    extend::ScopeSink* sink_;  // null: nothing to leave
    extend::ScopeToken token_;
};

/// A scope that encloses others, such as the forward pass of an iteration: it asks for no clock and
/// has no work of its own. The report gives the energy of the scopes in it (`Report::levels`).
class [[nodiscard]] Phase : public Scope {
public:
    /// @param gpu    must outlive the phase
    /// @param stream a stream of that GPU; null is the default stream
    /// @param name   a text that satisfies `is_kernel_name`; it is copied
    /// @throws Error as `Scope`
    Phase(const Gpu& gpu, StreamRef stream, std::string_view name)
        : Scope{gpu.scope_sink(), stream, kind(gpu, name)} {}

private:
    static const extend::ScopeKind& kind(const Gpu& gpu, std::string_view name) {
        detail::check_kernel_name(name);
        return detail::ServiceBehind::of(gpu).enclosing_kind(name);
    }
};

namespace extend {

/// The object behind a handle, for programs that keep all of a GPU's readings.
[[nodiscard]] inline GpuService& service(const Gpu& gpu) { return detail::ServiceBehind::of(gpu); }

}  // namespace extend
}  // namespace kdvfs::inline v0_3
