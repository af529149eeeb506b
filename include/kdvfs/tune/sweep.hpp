// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep_options.hpp>

#include <memory>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3::tune {

/// The engine behind `Sweeping` views: hands out clocks to scopes, iteration by iteration, and
/// turns what was metered into a profile. Thread-safe; `next_iteration` is called by one thread.
class SweepControl {
public:
    virtual ~SweepControl() = default;
    virtual void next_iteration() = 0;
    [[nodiscard]] virtual SweepProgress progress() const = 0;
    [[nodiscard]] virtual LaunchSequence sequence() = 0;
    [[nodiscard]] virtual Profile measured() const = 0;
    /// The kind of a scope that is about to be entered.
    /// @param policy what the registry says; `KeepClock` kernels are not swept
    virtual const extend::ScopeKind& kind_of(std::string_view kernel, Variant variant,
                                             ClockRequest policy, bool metered) = 0;
    [[nodiscard]] virtual extend::ScopeSink& scope_sink() = 0;
};

/// Begins a sweep. @param service must outlive it  @throws Error as `Sweeping`
KDVFS_INLINE std::shared_ptr<SweepControl> begin_sweep(extend::GpuService& service,
                                                       const SweepOptions& options);

/// Turns a program into its own profiler: stands where the GPU with its policies would stand.
///
///     auto gpu = kdvfs::rocm::open(hip_device);
///     kdvfs::tune::Sweeping<Policies> sweep{gpu, {.file = "profile.csv"}};
///     for (int step = 0; step < steps; ++step) {
///         sweep.next_iteration();
///         train(sweep, batch);  // kdvfs::FrequencyScope<Gelu> scope{sweep, stream}; ...
///     }
///
/// Most iterations run at the baseline; in between, blocks of iterations run all scopes at one
/// clock point, and what each kernel took and drew there goes to the profile. Once measuring more
/// would hardly change the plan, scopes follow the registry, as they would without the sweep.
/// A kernel bound to `KeepClock` is not swept. Kernels in captured graphs cannot be swept.
///
/// Streams that scopes use must live until the last copy of the view is gone. A handle, cheap to
/// copy. Thread-safe, but for `next_iteration`: one thread calls it, between iterations.
template <class Registry>
class Sweeping : public Gpu {
public:
    /// @throws Error (not_supported) for a GPU that is only measured, (invalid_input) for clocks
    ///         that it does not list or options that make no sense, (io, busy) for the file
    explicit Sweeping(const Gpu& gpu, const SweepOptions& options = {},
                      std::shared_ptr<const PlanTable> plan = nullptr)
        : Gpu{gpu}, plan_{std::move(plan)}, engine_{begin_sweep(service(), options)} {}

    /// Says that an iteration begins: the one line to add to a program. Takes in what was measured
    /// meanwhile and never waits for the GPU.
    /// @throws Error if a measurement cannot be written, and (not_supported), saying what it would
    ///         take, once a time that the options state is over without a point
    void next_iteration() const {
        if (!is_parents()) engine_->next_iteration();
    }

    [[nodiscard]] SweepProgress progress() const { return engine_->progress(); }
    /// Whether the sweep is over.
    [[nodiscard]] bool done() const { return progress().done; }
    /// The launches of an iteration, in order, on the stream with most time; none until two were
    /// alike. The sweep keeps them in its file's `.sequence.csv`.
    [[nodiscard]] LaunchSequence sequence() const { return engine_->sequence(); }
    /// What has been measured so far, by this run and, in its file, by those before.
    [[nodiscard]] Profile profile() const { return engine_->measured(); }

    // For scopes, as `BoundGpu`.

    template <NamedKernel K>
    static constexpr bool has_scope_for =
        Registry::metered || !Registry::template policy_of<K>::always_keeps;

    template <NamedKernel K>
    [[nodiscard]] const extend::ScopeKind& kind_of(Variant variant) const {
        return kind_of<typename Registry::template policy_of<K>>(K::name, variant);
    }
    /// The same for a kernel whose name is known at run time only; it follows `Policy`.
    template <ClockPolicy Policy>
    [[nodiscard]] const extend::ScopeKind& kind_of(std::string_view kernel, Variant variant) const {
        const PolicyQuestion question{.kernel = kernel,
                                      .variant = variant,
                                      .architecture = info().architecture,
                                      .plan = plan_.get()};
        return engine_->kind_of(kernel, variant, Policy::request(question), Registry::metered);
    }

    [[nodiscard]] extend::ScopeSink& scope_sink() const { return engine_->scope_sink(); }

private:
    std::shared_ptr<const PlanTable> plan_;
    std::shared_ptr<SweepControl> engine_;
};

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/sweep_engine.hpp>
#endif
