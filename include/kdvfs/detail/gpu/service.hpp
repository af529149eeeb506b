// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/measure/settings.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string_view>

namespace kdvfs::inline v0_3::measure {
struct MeterRecord;
}

namespace kdvfs::inline v0_3 {
struct GpuOptions;
}

namespace kdvfs::inline v0_3::detail {

class AnyStreams;

/// What a `Gpu` handle needs of the object behind it, and nothing of how it is done: files with hot
/// kernels compile against this, the files that open a GPU against `GpuCore`. Thread-safe.
/// `Gpu` documents each of these functions.
class GpuService : public ScopeSink {
public:
    virtual ~GpuService() = default;

    [[nodiscard]] virtual const DeviceInfo& info() const = 0;
    [[nodiscard]] virtual const SupportedClocks& supported_clocks() const = 0;
    [[nodiscard]] virtual bool measure_only() const = 0;
    [[nodiscard]] virtual measure::Report report() = 0;
    /// `Report::followed` alone, which costs no attribution.
    [[nodiscard]] virtual std::optional<measure::FollowedShare> followed() const = 0;
    [[nodiscard]] virtual measure::SelfCheck self_check() = 0;
    virtual void check() = 0;
    virtual void rearm() = 0;
    virtual void shut_down() noexcept = 0;
    [[nodiscard]] virtual bool ended() const = 0;
    /// The first error that nobody has asked for yet.
    [[nodiscard]] virtual std::optional<Error> take_error() noexcept = 0;
    virtual void protect(StreamRef stream, ClockPoint at_least) = 0;
    /// A standing request, known by what is returned.
    /// @throws Error (invalid_input) if the device does not list the clocks
    virtual TrackId begin_request(ClockPoint point) = 0;
    virtual void change_request(TrackId request, ClockPoint point) = 0;
    virtual void end_request(TrackId request) noexcept = 0;
    /// A request for a prepared operating point, known by what is returned; waits for the driver.
    /// @throws Error as `Gpu::request`
    virtual std::uint64_t begin_request(PreparedPoint point) = 0;
    virtual void end_point_request(std::uint64_t request) = 0;
    virtual void end_point_request_noexcept(std::uint64_t request) noexcept = 0;
    virtual void next_iteration() = 0;
    /// By the clock that intervals are stamped with.
    [[nodiscard]] virtual TimePoint now() const = 0;
    virtual void trace_to(std::ostream& out) = 0;
    virtual void end_trace() = 0;

    /// Tells iterations apart, the caller choosing the metered ones.
    /// @returns the window that the records of this iteration carry, if it is metered
    virtual std::uint32_t begin_iteration(bool metered) = 0;
    /// The same, metered in a window of its own: what scopes around iterations run is metered all
    /// the same, from one to the next.
    virtual std::uint32_t begin_window() = 0;
    /// How often the energy counter is to be read.
    [[nodiscard]] virtual Duration sample_period() const = 0;
    /// Keeps what is metered for `take_record`, or no longer.
    virtual void keep_record(bool on) = 0;
    /// What has been metered since the last call.
    [[nodiscard]] virtual measure::MeterRecord take_record() = 0;

    /// The kind that scopes of a kernel, a variant and a request share.
    /// @throws Error (invalid_input) if the device does not list the requested clocks
    /// @param plan that the scopes follow, from `follow`
    virtual const ScopeKind& kind_of(std::string_view kernel, Variant variant, ClockRequest request,
                                     bool metered, FollowedPlan* plan = nullptr) = 0;
    /// The kind of scopes that only enclose others and ask for nothing, such as ranges that a
    /// program names: their joules are those of the scopes in them (`Report::levels`); time in
    /// which none of these runs is idle, and no range's.
    virtual const ScopeKind& enclosing_kind(std::string_view name) = 0;
    /// Leaves a scope by the host's word alone: nothing is put into its stream, which may be idle,
    /// another thread's, or gone. Its request ends at once, wherever the stream is.
    virtual void leave_unmarked(const ScopeToken& token) noexcept = 0;
    /// As `enter`, but what the scope asks for is the stream's outermost request beyond its end,
    /// until the stream's next such scope, or `end_holding`: neighbours that ask for the same cost
    /// no switch between them. @throws Error (not_supported) in a capture, and as `enter`
    virtual ScopeToken enter_holding(StreamRef stream, const ScopeKind& kind) = 0;
    /// No stream is held at a clock any more.
    /// @param by_plans also those that a plan holds, until their next scope that follows it
    virtual void end_holding(bool by_plans) noexcept = 0;
    /// A plan that scopes are to follow. Valid as long as the GPU object.
    /// @throws Error (invalid_input) for a sequence that makes no sense, or clocks that the device
    ///         does not list
    virtual FollowedPlan& follow(const PlannedSequence& plan) = 0;
    /// Nothing follows the plan any more: its requests end.
    virtual void unfollow(FollowedPlan& plan) noexcept = 0;
    /// @throws Error (invalid_input) if the device does not list the requested clocks
    virtual void check_clocks(std::string_view kernel, const ClockRequest& request) const = 0;
    /// A kernel whose scopes compile to nothing: the report lists it as kept, not counted.
    virtual void note_kept(std::string_view kernel) = 0;
    /// A kernel that a registry names: the report says so where none of its scopes is entered.
    virtual void note_bound(std::string_view kernel) = 0;

    /// The process opens the same GPU again: takes what is stricter in the options, and streams
    /// where it has none.
    /// @param bring returns the opener's streams; empty where it has none
    /// @throws Error (invalid_input) for options that contradict those of the first opening,
    ///         (refused) where clocks must be set and the GPU is only measured; and what `bring`
    ///         throws
    virtual void open_again(const GpuOptions& options,
                            const std::function<std::shared_ptr<AnyStreams>()>& bring) = 0;
};

}  // namespace kdvfs::inline v0_3::detail
