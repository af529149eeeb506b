// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/tune/sweep_block.hpp>
#include <kdvfs/detail/tune/sweep_design.hpp>
#include <kdvfs/detail/tune/sweep_engine.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep_options.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// A kernel to be measured by itself.
struct SweepKernel {
    KernelKey key;
    std::string group{};
    std::uint32_t count = 1;  ///< launches per iteration
};

/// Whether a sweep has a sample already.
inline bool has_sample(const Profile& profile, const KernelKey& key, ClockPoint clock,
                       std::uint32_t index) {
    for (const KernelProfile& kernel : profile.kernels()) {
        if (kernel.key != key) continue;
        const ProfilePoint* point = kernel.find(clock);
        if (point == nullptr) return false;
        for (const auto& sample : point->samples)
            if (sample.index == index) return true;
    }
    return false;
}

/// Measures every kernel at every clock point, `samples` times, round by round so that drift
/// spreads over all. What the file holds already is not measured again.
/// `measure(kernel, clock)` returns the `Cost` of one launch, settled and warm;
/// `progress(done, all)` is called after each.
/// @throws Error as `SweepFile::append`; whatever `measure` throws
template <class Measure, class Progress>
void sweep_grid(SweepFile& file, std::span<const SweepKernel> kernels,
                std::span<const ClockPoint> points, std::uint32_t samples, Measure&& measure,
                Progress&& progress) {
    const std::size_t all = kernels.size() * points.size() * samples;
    std::size_t done = 0;
    for (std::uint32_t sample = 0; sample < samples; ++sample) {
        for (std::size_t k = 0; k < kernels.size(); ++k) {
            const SweepKernel& kernel = kernels[k];
            for (const ClockPoint clock : points) {
                if (!has_sample(file.profile(), kernel.key, clock, sample)) {
                    file.append(
                        {kernel.key, clock, measure(k, clock), kernel.group, kernel.count, sample});
                }
                progress(++done, all);
            }
        }
    }
}

struct AdaptiveOptions {
    std::uint32_t samples = 1;  ///< of each point that is measured
    double share = 0.25;        ///< of the full grid's measurements, at most
    double first_share = 0.1;   ///< of the grid, spread out, before the models decide
    /// Stop when so much of the baseline's energy is expected to be left.
    double regret_pct = 0.05;
};

/// How an adaptive sweep ended.
struct AdaptiveOutcome {
    std::size_t measurements = 0;  ///< in the file, those of earlier runs included
    std::size_t grid = 0;          ///< what the full grid would have taken
    double expected_regret_pct = 0;
};

namespace detail {

/// A measurement that an adaptive sweep could take next.
struct SweepCandidate {
    std::size_t kernel = 0;
    ClockPoint clock;
    double gain = 0;  ///< joules that it is expected to save an iteration
};

/// The best unmeasured point of each kernel, the most promising kernel first.
inline std::vector<SweepCandidate> best_candidates(const SweepDesign& design,
                                                   const Profile& profile,
                                                   std::span<const SweepKernel> kernels,
                                                   const Objective& objective) {
    const auto forecasts = design.forecast(profile, objective);
    std::vector<SweepCandidate> best;
    for (std::size_t k = 0; k < forecasts.size(); ++k) {
        const auto found =
            std::max_element(forecasts[k].begin(), forecasts[k].end(),
                             [](const auto& a, const auto& b) { return a.gain < b.gain; });
        if (found->gain <= 0) continue;
        std::size_t kernel = 0;
        while (kernels[kernel].key != profile.kernels()[k].key) ++kernel;
        const auto point = static_cast<std::size_t>(found - forecasts[k].begin());
        best.push_back({kernel, design.points()[point], found->gain});
    }
    std::sort(best.begin(), best.end(),
              [](const auto& a, const auto& b) { return a.gain > b.gain; });
    return best;
}

}  // namespace detail

/// Measures where it matters for the plan: a few points spread out, then, round by round, those
/// that a model of each kernel's time and power expects to lower the objective most, until the
/// regret left is small or the share of the grid is used up. Plans from such a file choose among
/// measured points alone. `measure` and `progress` as for `sweep_grid`; what the file holds
/// already is not measured again.
/// @throws Error (invalid_input) if the baseline is not among the points; as `sweep_grid`
template <class Measure, class Progress>
AdaptiveOutcome sweep_adaptively(SweepFile& file, std::span<const SweepKernel> kernels,
                                 std::span<const ClockPoint> points, const Objective& objective,
                                 const AdaptiveOptions& options, Measure&& measure,
                                 Progress&& progress) {
    const SweepDesign design{{points.begin(), points.end()}, file.baseline()};
    const std::size_t grid = kernels.size() * points.size() * options.samples;
    const auto most = static_cast<std::size_t>(options.share * static_cast<double>(grid));
    std::size_t done = 0;
    const auto take = [&](std::size_t k, ClockPoint clock) {
        const auto& known = file.profile().kernels();
        const auto measured = std::find_if(known.begin(), known.end(), [&](const auto& kernel) {
            return kernel.key == kernels[k].key;
        });
        if (clock != design.baseline() && measured != known.end() &&
            !keeps_bound(objective, design.longest_possible(*measured, clock)))
            return;
        for (std::uint32_t sample = 0; sample < options.samples; ++sample) {
            if (!has_sample(file.profile(), kernels[k].key, clock, sample)) {
                file.append({kernels[k].key, clock, measure(k, clock), kernels[k].group,
                             kernels[k].count, sample});
            }
            progress(++done, most);
        }
    };
    const auto first = static_cast<std::size_t>(
        std::max(4.0, options.first_share * static_cast<double>(points.size())));
    for (const ClockPoint clock : design.spread_out(first))
        for (std::size_t k = 0; k < kernels.size(); ++k) take(k, clock);

    AdaptiveOutcome outcome{done, grid, 0};
    for (;;) {
        const auto candidates = detail::best_candidates(design, file.profile(), kernels, objective);
        double regret = 0;
        for (const auto& candidate : candidates) regret += candidate.gain;
        const Cost baseline = mean_costs(file.profile()).baseline_cost();
        outcome.measurements = done;
        outcome.expected_regret_pct = 100 * regret / baseline.energy.count;
        if (candidates.empty() || outcome.expected_regret_pct < options.regret_pct) return outcome;
        // The half that promises most: the models learn from it before the rest is decided.
        for (std::size_t c = 0; c < std::max<std::size_t>(1, candidates.size() / 2); ++c) {
            if (done + options.samples > most) return outcome;
            take(candidates[c].kernel, candidates[c].clock);
            outcome.measurements = done;
        }
    }
}

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
    /// @throws Error (refused) if the clocks did not hold; (not_supported) if the counter is
    ///         silent; (invalid_input) if the device does not list the clocks
    Cost operator()(std::size_t kernel, ClockPoint clock) {
        const extend::ScopeKind& around = service().kind_of(
            "kdvfs.sweep", {}, {.asks = true, .point = clock, .ungated = true}, /*metered=*/false);
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
    Seconds settle(std::size_t kernel, const extend::ScopeKind& around) {
        service().begin_iteration(false);
        const extend::ScopeToken token = sink_.enter(stream_.stream, around);
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
        const extend::ScopeKind& kind =
            service().kind_of(key.name, key.variant, {}, /*metered=*/true);
        const extend::ScopeToken token = sink_.enter(stream_.stream, kind);
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

}  // namespace kdvfs::inline v0_3::tune
