// SPDX-License-Identifier: MIT
#pragma once

#include "load.hpp"
#include "table.hpp"

#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/detail/device/kernel_markers.hpp>
#include <kdvfs/device/contracts.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace amd_round {

/// The marker kernel on a real stream: what `open` proves, each part a row, and what it does not:
/// work between markers, graphs, cost, the clock that held.
class MarkerChecks {
public:
    /// @param megacycles of the kernels between markers: as long as the host must be able to see
    MarkerChecks(Table& table, int device, double megacycles)
        : table_{table},
          megacycles_{megacycles},
          current_{device},
          cell_{kdvfs::device::map_for_ever<kdvfs::device::HipApi, kdvfs::RequestCell>(1, "cell")},
          markers_{device} {}

    /// @returns whether the rest can be tried
    bool prove() {
        const std::string flaw = markers_.prove(*cell_.host, &cell_.device->word);
        struct Part {
            const char* assumption;
            std::vector<std::string> flaws;
        };
        const std::array<Part, 5> parts{
            {{"this program has a marker kernel", {"no device code"}},
             {"a marker's store arrives in host memory", {"nothing arrives in host memory"}},
             {"markers run in the order of their stream", {"out of order"}},
             {"a marker's stamp arrives in host memory", {"its timestamps do not arrive"}},
             {"the wall clock runs at the rate that HIP tells, 100 MHz on CDNA", {"wall clock"}}}};
        bool found = false;
        for (const Part& part : parts) {
            bool is_it = false;
            for (const auto& words : part.flaws) is_it |= flaw.find(words) != std::string::npos;
            if (is_it && !found) {
                table_.add(part.assumption, flaw, false);
            } else if (found) {
                table_.leave_out(part.assumption, "no marker kernel");
            } else {
                const bool is_last = &part == &parts.back();
                table_.add(part.assumption, is_last ? markers_.description() : "proven", true);
            }
            found = found || is_it;
        }
        if (!flaw.empty() && !found) table_.add("markers can be launched", flaw, false);
        return flaw.empty();
    }

    /// Markers around kernels: each request is seen while the kernel behind it runs.
    void check_order_around_kernels() {
        const auto seen = watch([&] { put_three(false); });
        table_.add("a request is seen while the kernel behind it runs", to_text(seen),
                   seen == all_three);
    }

    void check_order_in_graphs() {
        hipGraph_t graph = nullptr;
        hipGraphExec_t ready = nullptr;
        cell_.host->store({});
        check(hipStreamBeginCapture(stream_.get(), hipStreamCaptureModeThreadLocal),
              "begin a capture");
        put_three(true);
        check(hipStreamEndCapture(stream_.get(), &graph), "end a capture");
        check(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0), "make a graph");
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
        const bool ran_early = cell_.host->load() != kdvfs::RequestWord{};
        bool right = !ran_early;
        std::string words = ran_early ? "a capture ran the marker at once" : "";
        for (int replay = 0; replay < 3; ++replay) {
            const auto seen =
                watch([&] { check(hipGraphLaunch(ready, stream_.get()), "replay a graph"); });
            right = right && seen == all_three;
            words += (words.empty() ? "" : "; ") + to_text(seen);
        }
        static_cast<void>(hipGraphExecDestroy(ready));
        static_cast<void>(hipGraphDestroy(graph));
        table_.add("a graph's replays ask anew, a capture asks for nothing", words, right);
    }

    /// By the stamps themselves, of markers put one behind the other.
    void check_cost() {
        constexpr std::uint32_t batch = 400;
        constexpr double most_microseconds = 20;
        double best = 1e9;
        for (int turn = 0; turn < 8; ++turn) {
            for (std::uint32_t i = 0; i < batch; ++i) put(10 + i, true);
            const auto stamps = drain(batch);
            if (stamps.size() != batch) {
                table_.add(
                    "a marker costs a stream 20 us at most",
                    std::to_string(stamps.size()) + " of " + std::to_string(batch) + " stamps came",
                    false);
                return;
            }
            const kdvfs::Duration took = stamps.back().time - stamps.front().time;
            best = std::min(best, microseconds(took) / (batch - 1));
        }
        table_.add("a marker costs a stream 20 us at most", number(best, 1) + " us",
                   best <= most_microseconds);
    }

    /// The clock by cycles over time between markers of one unit, against the firmware's.
    void check_held(kdvfs::device::amd::MetricsFile& metrics) {
        constexpr int pairs = 8;
        const char* const assumption =
            "cycles over time between markers give the core clock of gpu_metrics, within 3 %";
        std::vector<double> held;
        std::vector<kdvfs::device::amd::GpuMetrics> looks;
        for (int turn = 0; turn < pairs; ++turn) {
            put(1, true);
            check(burn(stream_.get(), megacycles_), "launch a kernel");
            put(2, true);
            while (!stream_.is_idle()) {
                std::this_thread::sleep_for(std::chrono::milliseconds{2});
                looks.push_back(metrics.read_metrics());
            }
            const auto stamps = drain(2);
            if (stamps.size() != 2 || stamps[0].unit != stamps[1].unit) continue;
            const auto cycles = static_cast<double>(stamps[1].core_cycles - stamps[0].core_cycles);
            if (cycles > 0) held.push_back(cycles / microseconds(stamps[1].time - stamps[0].time));
        }
        const std::vector<double> resolved = clocks_under_load(looks);
        if (resolved.empty()) {
            table_.leave_out(assumption, "gpu_metrics tells no core clock");
            return;
        }
        if (held.empty()) {
            table_.leave_out(assumption, "no two markers ran on one unit: no clock is told");
            return;
        }
        const double ratio = median(held) / median(resolved);
        table_.add(assumption,
                   number(median(held), 0) + " MHz held, " + number(median(resolved), 0) +
                       " MHz told, " + std::to_string(held.size()) + " of " +
                       std::to_string(pairs) + " pairs of one unit",
                   std::abs(ratio - 1) <= 0.03);
    }

private:
    /// Of the looks with most of the power: the others were before or after a kernel.
    static std::vector<double> clocks_under_load(
        const std::vector<kdvfs::device::amd::GpuMetrics>& looks) {
        double highest = 0;
        for (const auto& look : looks) highest = std::max(highest, watts(look));
        std::vector<double> clocks;
        for (const auto& look : looks) {
            if (look.core_clock && watts(look) >= 0.8 * highest)
                clocks.push_back(look.core_clock->count);
        }
        return clocks;
    }
    static double watts(const kdvfs::device::amd::GpuMetrics& look) {
        return look.power ? look.power->count : 0;
    }

    static double microseconds(kdvfs::Duration time) {
        return static_cast<double>(time.count()) / 1e3;
    }

    void put(std::uint32_t value, bool timestamped, bool captured = false) {
        const kdvfs::Marker marker{.cell = cell_.host,
                                   .word = kdvfs::RequestWord{value},
                                   .tag = {.scope_kind = value},
                                   .timestamped = timestamped,
                                   .captured = captured};
        check(markers_.put(stream_.get(), &cell_.device->word, marker), "put a marker");
    }

    /// A marker, a kernel, a marker, a kernel, a marker.
    void put_three(bool captured) {
        for (std::uint32_t i = 1; i <= 3; ++i) {
            put(i, false, captured);
            if (i < 3) check(burn(stream_.get(), megacycles_), "launch a kernel");
        }
    }

    inline static const std::vector<std::uint32_t> all_three{1, 2, 3};

    /// The values that the cell takes until the stream is idle; looked for again where one was
    /// missed, as the host may have been kept from looking.
    template <class Act>
    std::vector<std::uint32_t> watch(Act act) {
        std::vector<std::uint32_t> seen;
        for (int tries = 0; tries < 4 && seen != all_three; ++tries) seen = watch_once(act);
        return seen;
    }

    template <class Act>
    std::vector<std::uint32_t> watch_once(Act act) {
        cell_.host->store({});
        std::vector<std::uint32_t> seen;
        act();
        const auto look = [&] {
            const std::uint32_t value = cell_.host->load().raw();
            if (value != 0 && (seen.empty() || seen.back() != value)) seen.push_back(value);
        };
        while (!stream_.is_idle()) {
            look();
            std::this_thread::sleep_for(std::chrono::microseconds{100});
        }
        look();
        return seen;
    }

    /// Waits for stamps until as many have come, or none comes for a second.
    std::vector<kdvfs::MarkerTimestamp> drain(std::size_t count) {
        stream_.synchronize();
        std::vector<kdvfs::MarkerTimestamp> all;
        std::array<kdvfs::MarkerTimestamp, 64> some;
        const kdvfs::TimePoint deadline = now() + std::chrono::seconds{1};
        while (all.size() < count && now() < deadline) {
            const std::size_t came = markers_.drain(some);
            all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(came));
        }
        return all;
    }

    static std::string to_text(const std::vector<std::uint32_t>& seen) {
        std::string text = "seen";
        for (const auto value : seen) text += " " + std::to_string(value);
        return text + " of 1 2 3";
    }

    Table& table_;
    double megacycles_;
    kdvfs::device::OnDevice<kdvfs::device::HipApi> current_;
    kdvfs::device::MappedArray<kdvfs::RequestCell> cell_;
    kdvfs::device::KernelMarkers<kdvfs::device::HipApi> markers_;
    Stream stream_;
};

}  // namespace amd_round
