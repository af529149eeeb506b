// SPDX-License-Identifier: MIT
#pragma once

#include "load.hpp"
#include "table.hpp"

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/rocm.hpp>

#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <thread>

namespace amd_round {

struct Before : kdvfs::Kernel<"before"> {};
struct Measured : kdvfs::Kernel<"measured"> {};
inline constexpr kdvfs::Megahertz scope_clock{1000};  // every Instinct has it
using ScopePolicies = kdvfs::PolicyRegistry<kdvfs::Bind<"before", kdvfs::CapClock<scope_clock>>,
                                            kdvfs::Bind<"measured", kdvfs::CapClock<scope_clock>>>;

/// The way of users: a GPU is opened, a kernel runs in a scope, the report says what it drew.
class ScopeCheck {
public:
    /// @param seconds of the board's time, about, that the kernels are made of, three halves of
    ///        them measured
    ScopeCheck(Table& table, const kdvfs::device::amd::Card& card, double seconds)
        : table_{table}, metrics_{card}, seconds_{seconds} {}

    void run(int device) {
        const char* const assumption =
            "the reported power of a scope's kernel is the counter's, within 1 %";
        kdvfs::GpuOptions options;
        options.meter_every = 1;
        options.switch_latency = kdvfs::Duration{0};
        options.sampler.period = std::chrono::milliseconds{2};
        try {
            const auto gpu = kdvfs::rocm::open(device, options).with<ScopePolicies>();
            const auto counted = run_kernels(gpu);
            const kdvfs::measure::Report report = gpu.report();
            gpu.close();
            for (const auto& row : report.rows) {
                if (row.kernel.name == "measured") judge(assumption, row, counted);
            }
        } catch (const kdvfs::Error& error) {
            table_.leave_out(assumption, error.what());
        }
    }

private:
    /// The switch happens under the first kernel; the second one runs between two markers and
    /// nothing else. @returns the watts by the counter, in the second one's middle
    template <class BoundGpu>
    std::optional<double> run_kernels(const BoundGpu& gpu) {
        const double second = seconds_ * scope_clock.count;  // megacycles of one
        const auto part = [&](double share) {
            return std::chrono::duration_cast<kdvfs::Duration>(kdvfs::Seconds{seconds_ * share});
        };
        const Stream stream;
        gpu.next_iteration();
        {
            kdvfs::FrequencyScope<Before> before{gpu, stream.get()};
            check(burn(stream.get(), 0.5 * second), "launch a kernel");
            kdvfs::FrequencyScope<Measured> measured{gpu, stream.get()};
            check(burn(stream.get(), 1.5 * second), "launch a kernel");
        }
        std::this_thread::sleep_for(part(0.9));
        const auto first = metrics_.read_energy();
        kdvfs::EnergyReading last = first;
        const kdvfs::TimePoint end = now() + part(0.7);
        while (now() < end) {  // where power is integrated, it is by looking
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
            if (!stream.is_idle()) last = metrics_.read_energy();
        }
        stream.synchronize();
        gpu.next_iteration();
        const kdvfs::Duration time = last.sampled_at - first.sampled_at;
        const bool is_resolved = last.status == kdvfs::ReadingStatus::ok && time.count() > 0 &&
                                 last.joules.count > first.joules.count;
        if (!is_resolved) return std::nullopt;
        return ((last.joules - first.joules) / kdvfs::Seconds{time}).count;
    }

    void judge(const std::string& assumption, const kdvfs::measure::ReportRow& row,
               std::optional<double> counted) {
        if (!counted || row.counted_time.count() <= 0) {
            table_.leave_out(assumption, "no energy is counted");
            return;
        }
        const bool held_it = row.held == kdvfs::auto_clock ||
                             std::abs(row.held.count / (1.0 * scope_clock.count) - 1) < 0.03;
        if (!held_it) {
            table_.leave_out(assumption, "it ran at " + std::to_string(row.held.count) +
                                             " MHz, not at the 1000 that its scope asked for");
            return;
        }
        const double reported = (row.energy.joules / row.counted_time).count;
        const std::string held =
            row.held == kdvfs::auto_clock ? "-" : std::to_string(row.held.count);
        table_.add(assumption,
                   number(reported, 1) + " W reported, " + number(*counted, 1) +
                       " W counted; asked 1000, applied " + to_string(row.applied) + ", held " +
                       held + " MHz",
                   std::abs(reported / *counted - 1) <= 0.01);
    }

    Table& table_;
    kdvfs::device::amd::MetricsFile metrics_;
    double seconds_;
};

}  // namespace amd_round
