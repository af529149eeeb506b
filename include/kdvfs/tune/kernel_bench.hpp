// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/adaptive_sweep.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep_block.hpp>
#include <kdvfs/tune/sweep_engine.hpp>
#include <kdvfs/tune/sweep_options.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::tune {

/// A stream to run kernels on by themselves.
struct BenchStream {
    StreamRef stream{};
    /// Waits until all that was enqueued is done: `[&] { hipStreamSynchronize(stream); }`.
    std::function<void()> wait{};
};

/// Measures kernels by themselves on a GPU, whichever it is: what `sweep_grid` and
/// `sweep_adaptively` call for each measurement.
///
///     kdvfs::tune::KernelBench bench{gpu, {stream, [&] { hipStreamSynchronize(stream); }}};
///     bench.add({{"gelu", {}}, "forward", 24}, [&] { gelu<<<grid, block, 0, stream>>>(out, in);
///     }); kdvfs::tune::SweepFile file{"profile.csv", gpu_name(gpu.info()), kdvfs::ClockPoint{}};
///     sweep_grid(file, bench.kernels(), clock_grid(gpu.supported_clocks()), 3, bench, progress);
///
/// A kernel is launched again and again: while clocks and temperatures settle, then for as long as
/// the energy counter needs, between two markers. Not thread-safe.
class KernelBench : private Gpu {
public:
    /// @throws Error (not_supported) for a GPU that is only measured
    KernelBench(const Gpu& gpu, BenchStream stream, const BlockOptions& options = {})
        : Gpu{gpu}, stream_{std::move(stream)}, options_{options}, sink_{service()} {
        if (measure_only())
            throw Error{Errc::not_supported,
                        {"sweep clocks", to_string(info()), "it is only measured",
                         "open it with its clocks"}};
        service().keep_record(true);
    }
    ~KernelBench() {
        sink_.leave_all();
        service().keep_record(false);
    }
    KernelBench(const KernelBench&) = delete;
    KernelBench& operator=(const KernelBench&) = delete;

    /// A kernel; `enqueue` puts one launch of it into the stream.
    void add(SweepKernel kernel, std::function<void()> enqueue) {
        kernels_.push_back(std::move(kernel));
        enqueue_.push_back(std::move(enqueue));
    }
    [[nodiscard]] std::span<const SweepKernel> kernels() const { return kernels_; }

    /// What one launch costs at a clock point, settled and warm.
    /// @throws Error (refused) if the clocks did not hold, (not_supported) if the counter is
    /// silent,
    ///         (invalid_input) if the device does not list the clocks
    Cost operator()(std::size_t kernel, ClockPoint clock) {
        const kdvfs::detail::ScopeKind& around =
            service().kind_of("kdvfs.sweep", {}, {.asks = true, .point = clock}, /*metered=*/false);
        sink_.enclose(&around);
        const Seconds launch = settle(kernel, around);
        constexpr int tries = 3;
        for (int attempt = 0; attempt < tries; ++attempt)
            if (const auto cost = measure(kernel, clock, launch)) return *cost;
        throw Error{Errc::refused,
                    {"measure " + to_string(kernels_[kernel].key) + " at " + to_string(clock),
                     to_string(info()), "the clocks did not hold",
                     "see that nothing else sets them or asks for more"}};
    }

private:
    void launch(std::size_t kernel, std::uint32_t times) {
        for (std::uint32_t i = 0; i < times; ++i) enqueue_[kernel]();
    }

    static std::uint32_t launches_in(Seconds time, Seconds each) {
        return static_cast<std::uint32_t>(std::clamp(std::ceil(time / each), 1.0, 1e6));
    }

    /// Runs the kernel until all has settled. @returns what a launch takes then
    Seconds settle(std::size_t kernel, const kdvfs::detail::ScopeKind& around) {
        service().begin_iteration(false);
        const kdvfs::detail::ScopeToken token = sink_.enter(stream_.stream, around);
        launch(kernel, 1);
        stream_.wait();
        sink_.leave(token);
        Seconds each = time(kernel, 1);
        Seconds settled{0};
        while (settled < Seconds{options_.settling()}) {
            // A tenth at a time, since launches may become slower when the clocks follow.
            const std::uint32_t times =
                launches_in(Seconds{options_.settling()} / 10, std::max(each, Seconds{1e-9}));
            each = time(kernel, times);
            settled += each * times;
        }
        return each;
    }

    /// What one of some launches takes, by the markers around all of them.
    Seconds time(std::size_t kernel, std::uint32_t times) {
        const std::uint32_t window = service().begin_iteration(true);
        run(kernel, times);
        service().begin_iteration(false);
        stream_.wait();
        const measure::MeterRecord record = service().take_record();
        recorder_.take(record);  // for its samples
        for (const measure::MeteredRun& seen : record.runs)
            if (seen.window == window)
                return Seconds{seen.interval.end - seen.interval.start} / times;
        throw Error{
            Errc::io,
            {"time " + to_string(kernels_[kernel].key), to_string(info()),
             "its markers left no timestamps", "see that the work is enqueued on the stream"}};
    }

    void run(std::size_t kernel, std::uint32_t times) {
        const KernelKey& key = kernels_[kernel].key;
        const kdvfs::detail::ScopeKind& kind =
            service().kind_of(key.name, key.variant, {}, /*metered=*/true);
        const kdvfs::detail::ScopeToken token = sink_.enter(stream_.stream, kind);
        launch(kernel, times);
        sink_.leave(token);
    }

    /// Nothing if the clocks did not hold.
    std::optional<Cost> measure(std::size_t kernel, ClockPoint clock, Seconds each) {
        const Duration period = recorder_.sample_period();
        const std::uint32_t times = launches_in(options_.measuring(period), each);
        recorder_.begin({.window = service().begin_iteration(true), .clock = clock});
        run(kernel, times);
        recorder_.end(1, 1);
        service().begin_iteration(false);
        // The kernel runs on until the counter has been read behind the last marker.
        const Duration tail = std::max<Duration>(2 * period, std::chrono::milliseconds{20});
        for (int wait = 0; wait < 50; ++wait) {
            launch(kernel, launches_in(tail, each));
            stream_.wait();
            recorder_.take(service().take_record());
            const std::vector<MeasuredBlock> found = recorder_.take_measured();
            if (!found.empty()) return found.front().kernels.front().launch * (1.0 / times);
            if (!recorder_.take_dropped().empty()) return std::nullopt;
        }
        throw Error{Errc::not_supported,
                    {"measure " + to_string(kernels_[kernel].key), to_string(info()),
                     "its energy counter gives no samples", "check it with gpu.report()"}};
    }

    BenchStream stream_;
    BlockOptions options_;
    SweepSink sink_;
    BlockRecorder recorder_;
    std::vector<SweepKernel> kernels_;
    std::vector<std::function<void()>> enqueue_;
};

}  // namespace kdvfs::tune
