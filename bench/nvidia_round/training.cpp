// SPDX-License-Identifier: MIT
// What scopes on every kernel cost a training step: bare launches, metering in 1 of 16 iterations,
// metering in every one, in turn. Opened to measure only.
//   training OUTPUT_FOLDER
#include "probe_kernels.hpp"
#include "round.hpp"

#include <gpt_train/frequency_scopes.hpp>
#include <gpt_train/gradient_check.hpp>
#include <gpt_train/training_step.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>
#include <kdvfs/nvidia.hpp>
#include <kdvfs/report.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace measuring;
using gpt::Policies;

constexpr int steps_per_block = 32;
constexpr int rounds = 16;

/// Counts scopes and runs them bare.
struct CountingScopes {
    int scopes = 0;
    template <class Kernel, class Work>
    void run(gpt::gpu::Stream, kdvfs::Variant, Work&& work) {
        ++scopes;
        work();
    }
};

/// What the stream pays for the markers of a step: each kernel is launched over and over at its
/// first scope, with and without a marker between the launches, and all its scopes cost that much
/// at both ends.
class MarkerCostScopes {
public:
    explicit MarkerCostScopes(kdvfs::device::Cuda& cuda) : cuda_{cuda}, cell_{cuda.make_cell()} {
        check(cudaEventCreate(&begin_), "make an event");
        check(cudaEventCreate(&end_), "make an event");
    }
    ~MarkerCostScopes() {
        (void)cudaEventDestroy(begin_);
        (void)cudaEventDestroy(end_);
    }
    MarkerCostScopes(const MarkerCostScopes&) = delete;
    MarkerCostScopes& operator=(const MarkerCostScopes&) = delete;

    template <class Kernel, class Work>
    void run(gpt::gpu::Stream stream, kdvfs::Variant shape, Work&& work) {
        auto [known, first] = costs_.try_emplace({std::string{Kernel::name}, shape.index}, 0.0);
        if (first) known->second = cost(stream, work);
        microseconds_ += 2 * known->second;
        ++scopes_;
        work();
    }
    [[nodiscard]] double microseconds() const { return microseconds_; }
    [[nodiscard]] double per_marker() const { return microseconds_ / (2.0 * scopes_); }

private:
    static constexpr int launches = 32;

    template <class Work>
    double cost(gpt::gpu::Stream stream, Work& work) {
        std::vector<double> added;
        for (int round = -1; round < 9; ++round) {
            const double bare = time(stream, work, false);
            const double marked = time(stream, work, true);
            if (round >= 0) added.push_back(marked - bare);
        }
        return Percentiles{added}.median();
    }

    template <class Work>
    double time(gpt::gpu::Stream stream, Work& work, bool marked) {
        probe<><<<1, 1, 0, stream>>>(nullptr, nullptr, 2'000'000);  // the host runs ahead
        check(cudaEventRecord(begin_, stream), "record an event");
        for (int i = 0; i < launches; ++i) {
            work();
            if (marked) cuda_.put_marker(stream, {cell_, {}, {}, true});
        }
        check(cudaEventRecord(end_, stream), "record an event");
        cuda_.synchronize(stream);
        std::array<kdvfs::MarkerTimestamp, launches> timestamps;
        while (cuda_.drain_timestamps(timestamps) > 0) {
        }
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin_, end_), "read events");
        return 1e3 * static_cast<double>(milliseconds) / launches;
    }

    kdvfs::device::Cuda& cuda_;
    kdvfs::RequestCell* cell_;
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
    std::map<std::pair<std::string, std::uint32_t>, double> costs_;
    double microseconds_ = 0;
    int scopes_ = 0;
};

template <class Scopes>
class Block {
public:
    Block(const gpt::ModelShape& shape, Scopes& scopes, const Stream& stream)
        : step_{shape, gpt::initial_parameters(shape, 1), scopes, stream.get()}, stream_{stream} {
        std::mt19937 random{1};
        step_.load(gpt::random_batch(shape, gpt::training_text, random));
        stream.synchronize();
    }
    void one_step() {
        step_.forward();
        step_.backward();
        step_.update(gpt::AdamW{});
    }
    template <class BetweenSteps>
    double milliseconds_per_step(BetweenSteps between) {
        stream_.synchronize();
        const TimePoint start = now();
        for (int i = 0; i < steps_per_block; ++i) {
            one_step();
            between();
        }
        stream_.synchronize();
        return static_cast<double>((now() - start).count()) * 1e-6 / steps_per_block;
    }
    [[nodiscard]] double loss() const { return step_.read_loss(); }

private:
    gpt::TrainingStep<Scopes> step_;
    const Stream& stream_;
};

double percent(double part) { return 100 * part; }

int run(const std::filesystem::path& folder) {
    kdvfs::GpuOptions sparse;
    sparse.meter_every = 16;
    kdvfs::GpuOptions always;
    always.meter_every = 1;
    const kdvfs::device::NvmlReadings board{kdvfs::device::pci_address<kdvfs::device::CudaApi>(0)};
    const std::string about = machine(0, board.driver_version());
    std::printf("%s\n", about.c_str());

    const gpt::GradientCheck exact = gpt::check_gradient(
        {.batch = 3, .sequence = 40, .width = 48, .heads = 3, .layers = 2}, gpt::gpu::Stream{});
    std::printf(
        "against the double-precision host reference: loss %.1e, gradient %.1e, "
        "update %.1e (relative)\n",
        exact.loss_difference, exact.gradient_difference, exact.parameter_difference);
    const bool right = exact.gradient_difference < 1e-4 && exact.parameter_difference < 1e-4;

    const gpt::ModelShape shape;
    // Two objects for one device, by keys of their own: `measure` would give the first one again.
    const std::string address = kdvfs::device::pci_address<kdvfs::device::CudaApi>(0);
    const auto open = [&](const kdvfs::GpuOptions& options) {
        const std::string key = address + " metered 1 in " + std::to_string(options.meter_every);
        return kdvfs::Gpu{
            kdvfs::detail::open_device(
                key, [] { return std::make_shared<kdvfs::device::Cuda>(0); },
                [] { return std::shared_ptr<kdvfs::nvidia::detail::OwnedBoard>{}; },
                [&] { return std::make_shared<kdvfs::device::NvmlReadings>(address); }, options)}
            .with<Policies>();
    };
    const auto sparse_gpu = open(sparse);
    const auto always_gpu = open(always);
    gpt::FrequencyScopes<std::remove_const_t<decltype(sparse_gpu)>> sparse_scopes{sparse_gpu};
    gpt::FrequencyScopes<std::remove_const_t<decltype(always_gpu)>> always_scopes{always_gpu};
    CountingScopes bare_scopes;
    Stream stream;
    Block bare{shape, bare_scopes, stream};
    Block every_16th{shape, sparse_scopes, stream};
    Block every{shape, always_scopes, stream};
    const auto nothing = [] {};
    // Each block's first steps, all three alike: the same work gives the same bits.
    (void)bare.milliseconds_per_step(nothing);
    (void)every_16th.milliseconds_per_step([&] { sparse_gpu.next_iteration(); });
    (void)every.milliseconds_per_step([&] { always_gpu.next_iteration(); });
    const int scopes = bare_scopes.scopes / steps_per_block;
    const double first_loss = bare.loss();

    std::vector<std::array<double, 3>> times;
    std::vector<double> slower_16;
    std::vector<double> slower_every;
    for (int round = 0; round < rounds; ++round) {
        std::array<double, 3> t{};
        // Forth and back, so that a slow drift of the clock favours none.
        for (const int which : round % 2 == 0 ? std::array{0, 1, 2} : std::array{2, 1, 0}) {
            if (which == 0) t[0] = bare.milliseconds_per_step(nothing);
            if (which == 1) {
                t[1] = every_16th.milliseconds_per_step([&] { sparse_gpu.next_iteration(); });
            }
            if (which == 2) {
                t[2] = every.milliseconds_per_step([&] { always_gpu.next_iteration(); });
            }
        }
        times.push_back(t);
        slower_16.push_back(t[1] / t[0] - 1);
        slower_every.push_back(t[2] / t[0] - 1);
    }
    std::vector<double> bare_times;
    CsvFile csv{folder, "training_steps.csv",
                about + "; ms per step, blocks of " + std::to_string(steps_per_block) + " steps; " +
                    std::to_string(scopes) + " scopes a step",
                "round,bare_ms,metered_1_in_16_ms,metered_every_ms"};
    for (std::size_t i = 0; i < times.size(); ++i) {
        csv.row(i, times[i][0], times[i][1], times[i][2]);
        bare_times.push_back(times[i][0]);
    }
    const double step = Percentiles{bare_times}.median();
    const Percentiles p16{slower_16};
    const Percentiles p1{slower_every};
    std::printf(
        "training step: %.3f ms bare, %d scopes; loss %.3f after %d steps, %.3f at the end\n"
        "metering 1 in 16: %+.3f %% (quartiles %+.3f to %+.3f)\n"
        "metering every iteration: %+.3f %% (quartiles %+.3f to %+.3f)\n",
        step, scopes, first_loss, steps_per_block, bare.loss(), percent(p16.median()),
        percent(p16.at(0.25)), percent(p16.at(0.75)), percent(p1.median()), percent(p1.at(0.25)),
        percent(p1.at(0.75)));
    CsvFile summary{folder, "training.csv", about,
                    "step_ms,scopes,slower_1_in_16_pct,slower_every_pct,expected_every_pct,"
                    "us_per_marker,gradient_difference"};
    kdvfs::device::Cuda cuda{0, kdvfs::device::MarkerWay::kernel};
    MarkerCostScopes cost_scopes{cuda};
    Block costed{shape, cost_scopes, stream};
    costed.one_step();
    const double expected = percent(cost_scopes.microseconds() * 1e-3 / step);
    std::printf(
        "expected: %d boundaries x %.2f us, measured between launches of each kernel = "
        "%+.3f %%\n",
        2 * scopes, cost_scopes.per_marker(), expected);
    summary.row(step, scopes, percent(p16.median()), percent(p1.median()), expected,
                cost_scopes.per_marker(), exact.gradient_difference);
    std::cout << always_gpu.report() << std::flush;
    const bool same = bare.loss() == every.loss() && bare.loss() == every_16th.loss();
    if (!same) std::printf("WRONG: scopes changed what is computed\n");
    return right && same && bare.loss() < first_loss ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        return run(count > 1 ? arguments[1] : ".");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "training: %s\n", error.what());
        return 2;
    }
}
