// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/gpu.hpp>

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/meter_record.hpp>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string_view>

namespace kdvfs::inline v0_3::detail {

/// What a forked child's copies of handles talk to: it does nothing and waits for no lock, since
/// the parent's may be held by nobody there. What never changes (`info` and the like) is asked of
/// the parent's object.
class ForkedService final : public GpuService {
public:
    explicit ForkedService(const GpuService& parents) : parents_{parents} {}

    ScopeToken enter(StreamRef, const ScopeKind&) override { return {}; }
    ScopeToken enter_holding(StreamRef, const ScopeKind&) override { return {}; }
    void end_holding(bool) noexcept override {}
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
    [[nodiscard]] std::optional<measure::FollowedShare> followed() const override { return {}; }
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
    std::uint32_t begin_window() override { return 0; }
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
    void note_bound(std::string_view) override {}
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

KDVFS_INLINE GpuService& forked_service(const GpuService& parents) {
    // Never freed: a scope may hold it. A forked child that uses its parent's GPUs has few.
    thread_local const GpuService* known = nullptr;
    thread_local ForkedService* forked = nullptr;
    if (known != &parents) {
        known = &parents;
        forked = new ForkedService{parents};
    }
    return *forked;
}

}  // namespace kdvfs::inline v0_3::detail
