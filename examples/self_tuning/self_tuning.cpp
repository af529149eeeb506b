// SPDX-License-Identifier: MIT
//
// A training loop that can be tuned, on the simulated MI250X (no real joule in it):
//
//     kdvfs tune --max-slowdown 2% -- self_tuning
//
// The environment says what a run does (`kdvfs::tune::Session`); by itself it is measured:
//
//     KDVFS_MODE=sweep:profile.csv self_tuning 1000    measures its kernels at many clocks
//     KDVFS_MODE=follow:plan.json self_tuning          obeys a plan, for 50 steps
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/session.hpp>
#include <kdvfs/tune/validation.hpp>

#include <cstdlib>
#include <exception>
#include <iostream>

namespace {

struct Gemm : kdvfs::Kernel<"gemm"> {};
struct Softmax : kdvfs::Kernel<"softmax"> {};
struct Update : kdvfs::Kernel<"update"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::AutoClock>>>;

/// One step of something that trains; `gpu` is a GPU with policies, or a session of it.
class Training {
public:
    explicit Training(kdvfs::simulated::Device& device)
        : device_{device}, stream_{device.create_stream()} {}

    template <class GpuView>
    void step(const GpuView& gpu) {
        // Long enough for the clocks to follow: this board takes about 10 ms.
        kdvfs::launch<Gemm>(gpu, stream_, [&] { repeat(gemm_, 100); });
        kdvfs::launch<Softmax>(gpu, stream_, [&] { repeat(softmax_, 100); });
        kdvfs::launch<Update>(gpu, stream_, [&] { repeat(update_, 100); });
        device_.synchronize(stream_);
    }

private:
    void repeat(const kdvfs::simulated::KernelModel& kernel, int times) {
        for (int i = 0; i < times; ++i) device_.launch(stream_, kernel);
    }

    kdvfs::simulated::Device& device_;
    kdvfs::simulated::Stream* stream_;
    kdvfs::simulated::KernelModel gemm_ = roofline(device_.board(), {.matrix_flops = 2e12});
    kdvfs::simulated::KernelModel softmax_ = roofline(device_.board(), {.memory_bytes = 8e9});
    kdvfs::simulated::KernelModel update_ =
        roofline(device_.board(), {.vector_flops = 5e10, .memory_bytes = 8e9});
};

/// @returns what the steps took
kdvfs::tune::Cost train(kdvfs::simulated::Device& device, const kdvfs::Gpu& gpu, int steps) {
    Training training{device};
    const auto began = device.now();
    const auto before = device.true_energy();
    const kdvfs::tune::Session<Policies> session{gpu};
    for (int step = 0; step < steps; ++step) {
        session.next_iteration();  // the one line that a session adds to a loop
        training.step(session);
    }
    if (const auto progress = session.progress())
        std::cout << "simulated " << to_string(*progress) << '\n';
    return {device.now() - began, device.true_energy() - before};
}

}  // namespace

int main(int argc, char** argv) try {
    kdvfs::simulated::Device device{kdvfs::simulated::mi250x()};
    const kdvfs::Gpu gpu = kdvfs::simulated::open(device);
    const kdvfs::tune::Cost cost = train(device, gpu, argc > 1 ? std::atoi(argv[1]) : 50);
    gpu.close();
    std::cout << cost.time.count() << " s, " << cost.energy.count << " J, simulated\n";
    kdvfs::tune::report_cost(cost);
    return 0;
} catch (const std::exception& error) {
    std::cerr << "self_tuning: " << error.what() << '\n';
    return 1;
}
