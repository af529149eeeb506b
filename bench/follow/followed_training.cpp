// SPDX-License-Identifier: MIT
// What following a plan costs a training step (examples/gpt_train): no scopes, against scopes that
// follow plans of 4 and of 20 segments, and one with a boundary at every launch, which tells what
// a marker costs. Nothing sets clocks: the markers are put, and nobody listens to them.
//   followed_training OUTPUT_FOLDER
// Built by nvcc it runs on the GPU; built by a plain C++ compiler the kernels run on the host and
// the markers on the simulated GPU, which checks it all but says nothing about time.
#include <gpt_train/byte_text.hpp>
#include <gpt_train/initial_parameters.hpp>
#include <gpt_train/training_step.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/scope.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>
#if defined(__CUDACC__)
#include <kdvfs/cuda_markers.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>
#else
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kdvfs;
using Policies = PolicyRegistry<Default<KeepClock>>;

#if defined(__CUDACC__)
using Runtime = device::Cuda;
constexpr gpt::ModelShape shape{};
constexpr int steps_per_block = 32;
constexpr int rounds = 24;
std::shared_ptr<Runtime> make_runtime() { return std::make_shared<Runtime>(0); }
gpt::gpu::Stream make_stream(Runtime&) {
    cudaStream_t stream = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        throw Error{Errc::not_supported, {"make a stream", "CUDA device 0", "", ""}};
    return stream;
}
StreamRef scoped_stream(gpt::gpu::Stream stream, Runtime&) { return stream; }
void wait_for(Runtime& runtime, gpt::gpu::Stream stream) { runtime.synchronize(stream); }
#else
using Runtime = simulated::Device;
constexpr gpt::ModelShape shape{.batch = 1, .sequence = 4, .width = 16, .heads = 2, .layers = 1};
constexpr int steps_per_block = 1;
constexpr int rounds = 1;
std::shared_ptr<Runtime> make_runtime() { return std::make_shared<Runtime>(simulated::mi210()); }
gpt::gpu::Stream make_stream(Runtime&) { return {}; }
StreamRef scoped_stream(gpt::gpu::Stream, Runtime& device) {
    static simulated::Stream* const stream = device.create_stream();
    return stream;
}
void wait_for(Runtime& device, gpt::gpu::Stream) { device.synchronize(); }
#endif

/// Writes down which kernels a step launches.
struct RecordingScopes {
    PlannedSequence sequence{};
    std::map<KernelKey, std::uint32_t> numbers{};

    template <class Kernel, class Work>
    void run(gpt::gpu::Stream, Variant variant, Work&& work) {
        const KernelKey key{std::string{Kernel::name}, variant};
        const auto [known, is_new] =
            numbers.try_emplace(key, static_cast<std::uint32_t>(numbers.size()));
        if (is_new) sequence.kernels.push_back({key, {}});
        sequence.launches.push_back(known->second);
        work();
    }
};

/// Two clocks in turn, over so many segments of the same length.
PlannedSequence planned(PlannedSequence sequence, std::size_t segments) {
    for (std::size_t s = 0; s < segments; ++s)
        sequence.boundaries.push_back(
            {s * sequence.launches.size() / segments, {.core = {s % 2 == 0 ? 1300U : 1100U}}});
    return sequence;
}

/// Scopes of a GPU that nobody drives.
class FollowingScopes {
public:
    FollowingScopes(Runtime& runtime, const Gpu& gpu, const PlannedSequence& sequence)
        : runtime_{&runtime}, gpu_{gpu.with<Policies>(to_plan_table(sequence))} {}

    template <class Kernel, class Work>
    void run(gpt::gpu::Stream stream, Variant variant, Work&& work) {
        launch<Kernel>(gpu_, scoped_stream(stream, *runtime_), variant, std::forward<Work>(work));
    }
    void next_iteration() const { gpu_.next_iteration(); }
    [[nodiscard]] measure::Report report() const { return gpu_.report(); }

private:
    Runtime* runtime_;
    BoundGpu<Policies> gpu_;
};

template <class Scopes>
class Training {
public:
    Training(Scopes& scopes, Runtime& runtime, gpt::gpu::Stream stream)
        : scopes_{scopes},
          runtime_{runtime},
          stream_{stream},
          step_{shape, gpt::initial_parameters(shape, 1), scopes, stream} {
        std::mt19937 random{1};
        step_.load(gpt::random_batch(shape, gpt::training_text, random));
        wait_for(runtime_, stream_);
    }
    void step() {
        if constexpr (requires { scopes_.next_iteration(); }) scopes_.next_iteration();
        step_.forward();
        step_.backward();
        step_.update(gpt::AdamW{});
    }
    /// Of a step, over a block of them.
    double milliseconds() {
        wait_for(runtime_, stream_);
        const auto began = std::chrono::steady_clock::now();
        for (int i = 0; i < steps_per_block; ++i) step();
        wait_for(runtime_, stream_);
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - began;
        return took.count() / steps_per_block;
    }
    [[nodiscard]] double loss() const { return step_.read_loss(); }

private:
    Scopes& scopes_;
    Runtime& runtime_;
    gpt::gpu::Stream stream_;
    gpt::TrainingStep<Scopes> step_;
};

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

int run(const std::filesystem::path& folder) {
    const auto runtime = make_runtime();
    gpt::gpu::Stream stream = make_stream(*runtime);
    RecordingScopes recording;
    Training{recording, *runtime, stream}.step();
    wait_for(*runtime, stream);
    const std::size_t launches = recording.sequence.launches.size();
    std::printf("gpt_train on %s, markers by %s, %zu scopes a step; clocks are never set\n",
                gpt::gpu::device_name().c_str(), std::string{runtime->marker_mechanism()}.c_str(),
                launches);

    GpuOptions unmetered;
    unmetered.meter_every = 1'000'000;
    unmetered.switch_latency = Duration{0};
    const std::array<std::size_t, 3> segments{4, 20, launches};
    std::vector<Gpu> gpus;
    std::vector<std::unique_ptr<FollowingScopes>> scopes;
    std::vector<std::unique_ptr<Training<FollowingScopes>>> followed;
    for (const std::size_t count : segments) {
        gpus.push_back(doubles::open_undriven(runtime, unmetered));
        scopes.push_back(std::make_unique<FollowingScopes>(*runtime, gpus.back(),
                                                           planned(recording.sequence, count)));
        followed.push_back(
            std::make_unique<Training<FollowingScopes>>(*scopes.back(), *runtime, stream));
    }
    gpt::BareLaunches bare_launches;
    Training bare{bare_launches, *runtime, stream};
    bare.milliseconds();  // warm-up, all of them alike
    for (const auto& training : followed) training->milliseconds();

    std::vector<double> bare_times;
    std::array<std::vector<double>, segments.size()> added;
    std::ofstream csv{folder / "followed_training.csv"};
    csv << "round,bare_ms,segments_4_ms,segments_20_ms,every_launch_ms\n";
    for (int round = 0; round < rounds; ++round) {
        std::array<double, segments.size() + 1> times{};
        for (std::size_t turn = 0; turn < times.size(); ++turn) {
            // Forth and back, so that a slow drift of the clock favours none.
            const std::size_t which = round % 2 == 0 ? turn : times.size() - 1 - turn;
            times[which] = which == 0 ? bare.milliseconds() : followed[which - 1]->milliseconds();
        }
        csv << round;
        for (const double time : times) csv << ',' << time;
        csv << '\n';
        bare_times.push_back(times[0]);
        for (std::size_t s = 0; s < segments.size(); ++s)
            added[s].push_back(times[s + 1] - times[0]);
    }
#if !defined(__CUDACC__)
    for (std::size_t s = 0; s < segments.size(); ++s) {
        const std::uint64_t before = runtime->markers();
        followed[s]->step();
        wait_for(*runtime, stream);
        const std::uint64_t markers = runtime->markers() - before;
        std::printf("%4zu segments: %ju markers\n", segments[s], std::uintmax_t{markers});
        if (markers > segments[s] + 1) return 1;
    }
    bare.step();
#endif
    const double step = median(bare_times);
    const double marker = median(added.back()) / static_cast<double>(launches);
    std::printf("step %.3f ms without scopes; %.3f us a marker, from %zu of them a step\n", step,
                1e3 * marker, launches);
    bool good = true;
    for (std::size_t s = 0; s < segments.size(); ++s) {
        const double count = static_cast<double>(segments[s]);
        const double measured = 100 * median(added[s]) / step;
        const double expected = 100 * count * marker / step;
        const auto share = scopes[s]->report().followed->share();
        const bool within = measured <= expected + 0.1;
        const bool same = followed[s]->loss() == bare.loss();
        const char* verdict = gpt::gpu::on_host ? "on the host it says nothing"
                              : within          ? "within 0.1 points"
                                                : "NOT WITHIN 0.1 points";
        std::printf("%4zu segments: step %+.3f %%, expected %+.3f %% (%s), followed %.2f %%%s\n",
                    segments[s], measured, expected, verdict, 100 * share,
                    same ? "" : ", OTHER RESULTS");
        good = good && same && share == 1 && (within || gpt::gpu::on_host);
    }
    return good ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        return run(count > 1 ? arguments[1] : ".");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "followed_training: %s\n", error.what());
        return 2;
    }
}
