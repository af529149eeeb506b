// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/tune/compared_blocks.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/tune/sweep_options.hpp>

#include <atomic>
#include <vector>

/// A plan against the clocks as found, within one run.
namespace kdvfs::inline v0_3::tune::detail {

/// The scopes of a program whose plan is compared: they follow the plan in its blocks and do
/// nothing in others. Scopes are entered by any thread; `next_iteration` is called by one.
class PlanComparison final : public kdvfs::detail::ScopeSink {
public:
    /// `service` must outlive it.
    PlanComparison(kdvfs::detail::GpuService& service, const SweepOptions& options)
        : service_{&service}, blocks_{options.block, service.sample_period(), options.seed} {
        service_->keep_record(true);
    }
    ~PlanComparison() { service_->keep_record(false); }
    PlanComparison(const PlanComparison&) = delete;
    PlanComparison& operator=(const PlanComparison&) = delete;

    void next_iteration() {
        const measure::MeterRecord record = service_->take_record();
        blocks_.add(record.samples);
        const bool planned = blocks_.next(service_->now());
        const bool before = planned_.exchange(planned, std::memory_order_relaxed);
        if (before && !planned) service_->end_holding(true);
        if (planned)
            service_->next_iteration();
        else
            static_cast<void>(service_->begin_iteration(false));
    }

    [[nodiscard]] const std::vector<ComparedPair>& pairs() const { return blocks_.pairs(); }

    kdvfs::detail::ScopeToken enter(StreamRef stream,
                                    const kdvfs::detail::ScopeKind& kind) override {
        if (!planned_.load(std::memory_order_relaxed)) return {};
        return service_->enter(stream, kind);
    }
    void leave(const kdvfs::detail::ScopeToken& token) override {
        if (token.track != nullptr) service_->leave(token);
    }
    void leave_noexcept(const kdvfs::detail::ScopeToken& token) noexcept override {
        if (token.track != nullptr) service_->leave_noexcept(token);
    }

private:
    kdvfs::detail::GpuService* service_;
    ComparedBlocks blocks_;
    std::atomic<bool> planned_{true};
};

}  // namespace kdvfs::inline v0_3::tune::detail
