// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/self_check.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <cstdint>
#include <cstring>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string_view>

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
    virtual void end_holding() noexcept = 0;
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

    /// The process opens the same GPU again: takes what is stricter in the options, and streams
    /// where it has none.
    /// @param bring returns the opener's streams; empty where it has none
    /// @throws Error (invalid_input) for options that contradict those of the first opening,
    ///         (refused) where clocks must be set and the GPU is only measured; and what `bring`
    ///         throws
    virtual void open_again(const GpuOptions& options,
                            const std::function<std::shared_ptr<AnyStreams>()>& bring) = 0;
};

/// What objects of this layout have in common, for modules of one process that are compiled from
/// different sources: a function that is added to the interface moves those after it.
inline std::uint64_t service_layout() {
    const auto last = &GpuService::open_again;
    std::uint64_t place = 0;  // where the function is in the table of virtual functions
    static_assert(sizeof last >= sizeof place);
    std::memcpy(&place, &last, sizeof place);
    for (const std::uint64_t size :
         {sizeof(ScopeKind), sizeof(DeviceInfo), sizeof(measure::Report), sizeof(SupportedClocks),
          sizeof(measure::MeterRecord), sizeof(PlannedSequence), sizeof(ScopeToken)}) {
        place = place * 1000003 + size;
    }
    return place;
}

/// What a forked child's copies of handles talk to: it does nothing and waits for no lock, since
/// the parent's may be held by nobody there. What never changes (`info` and the like) is asked of
/// the parent's object.
class ForkedService final : public GpuService {
public:
    explicit ForkedService(const GpuService& parents) : parents_{parents} {}

    ScopeToken enter(StreamRef, const ScopeKind&) override { return {}; }
    ScopeToken enter_holding(StreamRef, const ScopeKind&) override { return {}; }
    void end_holding() noexcept override {}
    void leave(const ScopeToken&) override {}
    void leave_noexcept(const ScopeToken&) noexcept override {}
    [[nodiscard]] const DeviceInfo& info() const override { return parents_.info(); }
    [[nodiscard]] const SupportedClocks& supported_clocks() const override {
        return parents_.supported_clocks();
    }
    [[nodiscard]] bool measure_only() const override { return parents_.measure_only(); }
    [[nodiscard]] bool ended() const override { return true; }
    [[nodiscard]] measure::Report report() override {
        measure::Report report;
        report.device = info();
        report.measure_only = measure_only();
        report.notes.emplace_back("a forked process measures nothing: ask the one it is of");
        return report;
    }
    [[nodiscard]] measure::SelfCheck self_check() override {
        throw Error{Errc::invalid_input,
                    {.action = "check the energy counter",
                     .object = to_string(info()),
                     .vendor_words = "this process was forked from the one that opened it",
                     .remedy = "check it there, or open the GPU here"}};
    }
    void check() override {}
    void rearm() override {}
    void shut_down() noexcept override {}
    [[nodiscard]] std::optional<Error> take_error() noexcept override { return std::nullopt; }
    void protect(StreamRef, ClockPoint) override {}
    TrackId begin_request(ClockPoint) override { return {}; }
    void change_request(TrackId, ClockPoint) override {}
    void end_request(TrackId) noexcept override {}
    std::uint64_t begin_request(PreparedPoint) override { return 0; }
    void end_point_request(std::uint64_t) override {}
    void end_point_request_noexcept(std::uint64_t) noexcept override {}
    void next_iteration() override {}
    [[nodiscard]] TimePoint now() const override { return {}; }
    void trace_to(std::ostream&) override {}
    void end_trace() override {}
    std::uint32_t begin_iteration(bool) override { return 0; }
    [[nodiscard]] Duration sample_period() const override { return parents_.sample_period(); }
    void keep_record(bool) override {}
    [[nodiscard]] measure::MeterRecord take_record() override { return {}; }
    const ScopeKind& kind_of(std::string_view, Variant, ClockRequest, bool,
                             FollowedPlan*) override {
        static const ScopeKind kind;
        return kind;
    }
    const ScopeKind& enclosing_kind(std::string_view) override {
        static const ScopeKind kind;
        return kind;
    }
    void leave_unmarked(const ScopeToken&) noexcept override {}
    void check_clocks(std::string_view, const ClockRequest&) const override {}
    void note_kept(std::string_view) override {}
    void open_again(const GpuOptions&,
                    const std::function<std::shared_ptr<AnyStreams>()>&) override {}
    FollowedPlan& follow(const PlannedSequence&) override {
        throw Error{Errc::invalid_input,
                    {.action = "follow a plan",
                     .object = to_string(info()),
                     .vendor_words = "this process was forked from the one that opened it",
                     .remedy = "follow it there, or open the GPU here"}};
    }
    void unfollow(FollowedPlan&) noexcept override {}

private:
    const GpuService& parents_;
};

}  // namespace kdvfs::inline v0_3::detail
