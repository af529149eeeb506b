// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/registry.hpp>

#include <gsl/pointers>

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3::detail {
/// What handles talk to in a forked child: does nothing, and refers to the parent's object for what
/// never changes.
KDVFS_INLINE GpuService& forked_service(const GpuService& parents);
}  // namespace kdvfs::inline v0_3::detail

namespace kdvfs::inline v0_3::extend {
using detail::GpuService;

/// The object behind the handles of a GPU, as `open_device` returns it.
using OpenGpu = std::shared_ptr<GpuService>;
}  // namespace kdvfs::inline v0_3::extend

namespace kdvfs::inline v0_3 {

template <class Registry>
class BoundGpu;
class StandingRequest;
class StandingPoint;

/// A GPU whose clocks kdvfs drives and whose energy it counts: a handle, cheap to copy. The clocks
/// are back where they were found when the last handle is gone. Thread-safe.
class Gpu {
public:
    /// For openers of devices. @param service what `extend::open_device` returned
    explicit Gpu(const gsl::not_null<extend::OpenGpu>& service) : shared_{service} {}

    /// The same GPU, obeying a registry's policies. Where the plan has a sequence of launches, the
    /// scopes of the stream that launches it follow the plan's segments: `next_iteration` says
    /// where an iteration begins, scopes say by their names where in it the stream is, and at each
    /// boundary the plan's clock is asked for, until the next. What the policies say is not asked
    /// there. Scopes that compile to nothing are not seen. Ends with the last copy of what is
    /// returned.
    /// @throws Error (invalid_input) if a policy asks for clocks that this device does not list
    template <class Registry>
    [[nodiscard]] BoundGpu<Registry> with(std::shared_ptr<const PlanTable> plan = nullptr) const {
        return BoundGpu<Registry>{*this, std::move(plan)};
    }

    [[nodiscard]] const DeviceInfo& info() const { return shared_->info(); }
    [[nodiscard]] const SupportedClocks& supported_clocks() const {
        return shared_->supported_clocks();
    }
    /// Whether clocks are never set, by explicit choice.
    [[nodiscard]] bool measure_only() const { return shared_->measure_only(); }

    /// Calls, times, joules and clocks per kernel, as far as the GPU has run.
    [[nodiscard]] measure::Report report() const { return service().report(); }

    /// Compares the energy counter with power times time for half a second or a little more, in
    /// which the calling thread waits. A counter that is off by a factor, stands still, goes back
    /// or fails does not pass; `reason` says why, and so does every later report. What the board
    /// does meanwhile should be steady: idle will do.
    /// @throws Error (invalid_input) once the GPU has been closed
    [[nodiscard]] measure::SelfCheck self_check() const { return service().self_check(); }

    /// Rethrows the first error that happened behind the user's back since the last call.
    void check() const { service().check(); }
    /// Drives the clocks again after an error has disarmed the controller.
    void rearm() const { service().rearm(); }
    /// Puts the clocks back now and stops driving them, for every handle.
    /// @throws Error, the first that nobody has seen yet
    void close() const {
        service().shut_down();
        service().check();
    }

    /// Keeps the scopes of other streams and standing requests from slowing work on this stream:
    /// they get no less than `at_least`. Never slows the device itself: where nothing else requests
    /// a clock, the device stays as it was found. Collectives (RCCL, NCCL) run on such streams.
    /// Thread-safe.
    /// @param at_least MHz by domain; by default `auto`, the highest request
    void protect(StreamRef stream, ClockPoint at_least = {}) const {
        service().protect(stream, at_least);
    }
    /// Asks for a clock from now until the end of what is returned, in the order of the host's own
    /// calls: for engines that hide their streams, and for a process beside the one that works.
    ///
    ///     auto request = gpu.request(1200_MHz);
    ///
    /// It votes as a stream inside a scope does: the highest request wins.
    /// @throws Error (invalid_input) if the device does not list the clock
    [[nodiscard]] StandingRequest request(ClockPoint clock) const;
    /// The same for the core clock, the memory's being left to the board.
    [[nodiscard]] StandingRequest request(Megahertz core) const;
    /// Switches the board to one of its prepared operating points (`info().prepared_points`) until
    /// the end of what is returned:
    ///
    ///     auto point = gpu.request(PreparedPoint{2});
    ///
    /// It is one for the whole board, for all streams and processes; clocks are set within it. Of
    /// several requests the newest holds; where it ends the board goes back to the one before it,
    /// and at last to the point that was found, unless somebody else has switched it since. Where
    /// the process dies its watchdog does that, as for clocks. The calling thread waits for the
    /// driver, a millisecond or so, and the switch does not wait for streams: synchronise first
    /// where work that is under way must not see it.
    ///
    /// Privileges: root, or the right to write `app_modes/active_profile` (AMD); root, or the
    /// capability that the administrator has given out for workload power profiles (NVIDIA).
    /// @throws Error (not_supported) where the board has no points, (invalid_input) for one that it
    ///         does not have, (refused) where the GPU is only measured, the process may not
    ///         switch, or the board holds another point afterwards, (busy) where another process
    ///         holds one
    [[nodiscard]] StandingPoint request(PreparedPoint point) const;

    /// Tells iterations apart: metering is on in one of `GpuOptions::meter_every`.
    void next_iteration() const { service().next_iteration(); }

    /// Writes Chrome trace events of metered scopes from now on. `out` must outlive the trace.
    void trace_to(std::ostream& out) const { service().trace_to(out); }
    /// Ends the trace. @throws Error if it could not be written
    void end_trace() const { service().end_trace(); }

    /// For scopes.
    [[nodiscard]] extend::ScopeSink& scope_sink() const { return service(); }

protected:
    /// What this handle talks to: in a forked child, whose parent drives the GPU, something that
    /// does nothing.
    [[nodiscard]] detail::GpuService& service() const {
        if (is_parents()) return detail::forked_service(*shared_);
        return *shared_;
    }
    [[nodiscard]] bool is_parents() const { return detail::fork_generation() != generation_; }
    static detail::GpuService& service_of(const Gpu& gpu) { return gpu.service(); }

private:
    friend class StandingRequest;
    friend class StandingPoint;

    gsl::not_null<extend::OpenGpu> shared_;
    std::uint32_t generation_ = detail::fork_generation();
};

/// A request for a clock without a stream, as `Gpu::request` returns it: holds while it lives, and
/// keeps the GPU open. In a forked child it does nothing. Thread-safe.
class [[nodiscard]] StandingRequest {
public:
    /// @throws Error (invalid_input) if the device does not list the clock
    StandingRequest(Gpu gpu, ClockPoint clock)
        : gpu_{std::move(gpu)}, request_{gpu_.service().begin_request(clock)} {}
    ~StandingRequest() { gpu_.service().end_request(request_); }

    StandingRequest(const StandingRequest&) = delete;
    StandingRequest& operator=(const StandingRequest&) = delete;
    StandingRequest(StandingRequest&&) = delete;
    StandingRequest& operator=(StandingRequest&&) = delete;

    /// Asks for another clock from now on. Allocates nothing.
    /// @throws Error (invalid_input) if the device does not list the clock
    void change(ClockPoint clock) { gpu_.service().change_request(request_, clock); }
    void change(Megahertz core) { change(ClockPoint{.core = core}); }

private:
    Gpu gpu_;
    TrackId request_;
};

/// A request for a prepared operating point, as `Gpu::request` returns it: holds while it lives,
/// and keeps the GPU open. In a forked child it does nothing. Thread-safe.
class [[nodiscard]] StandingPoint {
public:
    /// @throws Error as `Gpu::request`
    StandingPoint(Gpu gpu, PreparedPoint point)
        : gpu_{std::move(gpu)}, request_{gpu_.service().begin_request(point)} {}
    /// An error is told by the next `Gpu::check`.
    ~StandingPoint() { gpu_.service().end_point_request_noexcept(request_); }

    StandingPoint(const StandingPoint&) = delete;
    StandingPoint& operator=(const StandingPoint&) = delete;
    StandingPoint(StandingPoint&&) = delete;
    StandingPoint& operator=(StandingPoint&&) = delete;

    /// Ends the request now: the throwing twin of the destructor. A second call does nothing.
    /// @throws Error where the board does not go back; (external_change) where somebody else has
    ///         switched it since, whose point was left
    void close() { gpu_.service().end_point_request(request_); }

private:
    Gpu gpu_;
    std::uint64_t request_;
};

inline StandingPoint Gpu::request(PreparedPoint point) const { return StandingPoint{*this, point}; }
inline StandingRequest Gpu::request(ClockPoint clock) const {
    return StandingRequest{*this, clock};
}
inline StandingRequest Gpu::request(Megahertz core) const {
    return request(ClockPoint{.core = core});
}

/// A GPU together with the policies its scopes follow.
template <class Registry>
class BoundGpu : public Gpu {
public:
    BoundGpu(const Gpu& gpu, std::shared_ptr<const PlanTable> plan)
        : Gpu{gpu}, bound_{std::make_shared<Bound>(gpu, std::move(plan))} {
        check_rows(static_cast<Registry*>(nullptr));
        if (bound_->plan == nullptr) return;
        for (const auto& [kernel, request] : bound_->plan->requests()) {
            service().check_clocks(to_string(kernel), request);
        }
        if (bound_->plan->sequence()) {
            bound_->followed = &service().follow(*bound_->plan->sequence());
        }
    }

    /// Whether a scope of this kernel does anything at all.
    template <NamedKernel K>
    static constexpr bool has_scope_for =
        Registry::metered || !Registry::template policy_of<K>::always_keeps;

    /// What scopes of this kernel and variant share. Lock-free once it has been asked for.
    template <NamedKernel K>
    [[nodiscard]] const extend::ScopeKind& kind_of(Variant variant) const {
        if (const auto* kind = bound_->kinds.find(K::name, variant)) return *kind;
        const auto& kind = ask<typename Registry::template policy_of<K>>(K::name, variant);
        if (!is_parents()) bound_->kinds.keep(K::name, variant, kind);
        return kind;
    }

    /// The same for a kernel whose name is known at run time only; it follows `Policy`.
    /// @param kernel a name that satisfies `is_kernel_name`
    template <ClockPolicy Policy>
    [[nodiscard]] const extend::ScopeKind& kind_of(std::string_view kernel, Variant variant) const {
        return ask<Policy>(kernel, variant);
    }

private:
    struct Bound {
        Bound(Gpu its_gpu, std::shared_ptr<const PlanTable> obeyed)
            : gpu{std::move(its_gpu)}, plan{std::move(obeyed)} {}
        ~Bound() {
            if (followed != nullptr) BoundGpu::service_of(gpu).unfollow(*followed);
        }
        Bound(const Bound&) = delete;
        Bound& operator=(const Bound&) = delete;

        Gpu gpu;
        std::shared_ptr<const PlanTable> plan;
        detail::KindMemo kinds;
        detail::FollowedPlan* followed = nullptr;
    };

    template <ClockPolicy Policy>
    [[nodiscard]] const extend::ScopeKind& ask(std::string_view kernel, Variant variant) const {
        const PolicyQuestion question{.kernel = kernel,
                                      .variant = variant,
                                      .architecture = info().architecture,
                                      .plan = bound_->plan.get()};
        return service().kind_of(kernel, variant, Policy::request(question), Registry::metered,
                                 bound_->followed);
    }

    /// Clocks that the device does not have are found now, not in the middle of a run.
    template <class... Rows>
    void check_rows(const PolicyRegistry<Rows...>*) const {
        static_cast<void>(std::initializer_list<int>{(check_row<Rows>(), 0)...});
    }

    template <class Row>
    void check_row() const {
        if constexpr (!Row::name.empty()) {
            if constexpr (!Registry::metered && Row::policy::always_keeps) {
                service().note_kept(Row::name);
            } else {
                static_cast<void>(ask<typename Row::policy>(Row::name, Variant{}));
                service().note_bound(Row::name);
            }
        }
        const std::string_view name = Row::name.empty() ? "any other" : Row::name;
        const auto check = [&](const ClockRequest& request) {
            service().check_clocks(name, request);
        };
        detail::EachRequest<typename Row::policy>::visit(
            {.kernel = name, .architecture = info().architecture}, check);
    }

    std::shared_ptr<Bound> bound_;
};

}  // namespace kdvfs::inline v0_3

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/gpu/forked_service.hpp>
#endif
