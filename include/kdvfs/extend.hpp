// SPDX-License-Identifier: MIT
#pragma once

/// For bindings, plugins and tools: scopes of kernels whose names are known at run time only. The
/// same scopes, tracks and meter as `FrequencyScope`.
#include <kdvfs/clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/policy.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3 {

/// A kernel's name and variant with the clock that its scopes request: what `Scope` enters. Look it
/// up once where scopes are short: making one takes a lock, entering it does not. Cheap to copy,
/// valid as long as a handle of the GPU lives. Thread-safe.
class ScopeName {
public:
    /// @param name    1 to 1024 printable ASCII characters but `"` and `\`
    /// @param variant which of the kernel's shapes runs
    /// @param request the clock; by default none, so that the scope measures only
    /// @throws Error (invalid_input) if the name is not valid or the device does not list the clock
    ScopeName(const Gpu& gpu, std::string_view name, Variant variant = {},
              ClockRequest request = {})
        : service_{&Access::service_of(gpu)},
          kind_{&service_->kind_of(checked(name), variant, request, /*metered=*/true)} {}

    /// The clock that `Policy` requests of this kernel.
    /// @throws Error as above
    template <ClockPolicy Policy>
    [[nodiscard]] static ScopeName with_policy(const Gpu& gpu, std::string_view name,
                                               Variant variant = {}) {
        const PolicyQuestion question{
            .kernel = name, .variant = variant, .architecture = gpu.info().architecture};
        return ScopeName{gpu, name, variant, Policy::request(question)};
    }

    /// A range that encloses other scopes and requests nothing: its energy is that of the scopes in
    /// it (`Report::levels`).
    /// @throws Error (invalid_input) if the name is not valid
    [[nodiscard]] static ScopeName range(const Gpu& gpu, std::string_view name) {
        auto& service = Access::service_of(gpu);
        return ScopeName{service, service.enclosing_kind(checked(name))};
    }

private:
    friend class Scope;
    struct Access : Gpu {
        static detail::GpuService& service_of(const Gpu& gpu) { return Gpu::service_of(gpu); }
    };

    ScopeName(detail::GpuService& service, const detail::ScopeKind& kind)
        : service_{&service}, kind_{&kind} {}

    static std::string_view checked(std::string_view name) {
        if (is_kernel_name(name)) return name;
        throw Error{Errc::invalid_input,
                    {.action = "enter a scope",
                     .object = '"' + std::string{name.substr(0, 64)} + '"',
                     .vendor_words = "this is not a kernel name",
                     .remedy = "give 1 to 1024 printable ASCII characters without \" and \\"}};
    }

    detail::GpuService* service_;
    const detail::ScopeKind* kind_;
};

/// A scope of a kernel whose name is known at run time. Work that is enqueued on `stream` while it
/// lives runs at the name's clock and is measured under its name. Scopes of one stream may nest and
/// may be left in any order, on any thread.
class [[nodiscard]] Scope {
public:
    /// @throws Error for a stream of another device, or where no marker can be put into the stream
    [[nodiscard]] Scope(StreamRef stream, const ScopeName& name)
        : service_{name.service_}, token_{service_->enter(stream, *name.kind_)} {}
    /// @throws Error as above, and as `ScopeName`
    [[nodiscard]] Scope(const Gpu& gpu, StreamRef stream, std::string_view name,
                        Variant variant = {}, ClockRequest request = {})
        : Scope{stream, ScopeName{gpu, name, variant, request}} {}

    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    Scope(Scope&&) = delete;
    Scope& operator=(Scope&&) = delete;

    /// Never throws: an error is kept for `Gpu::check`.
    ~Scope() {
        if (service_ != nullptr) service_->leave_noexcept(token_);
    }

    /// Leaves now. The throwing twin of the destructor; a second call does nothing.
    /// @throws Error where no marker can be put, or the scope straddles the begin or end of a
    ///         capture
    void close() {
        if (auto* const service = std::exchange(service_, nullptr)) service->leave(token_);
    }

private:
    detail::GpuService* service_;
    detail::ScopeToken token_;
};

}  // namespace kdvfs::inline v0_3
