// SPDX-License-Identifier: MIT
//
// A training loop that is its own profiler, on the simulated MI250X (no real joule in it):
//
//     self_tuning profile.csv                                       sweeps while it trains
//     kdvfs plan profile.csv --max-slowdown 2% --format json -o plan.json
//     kdvfs validate plan.json --counter program -- self_tuning     with the plan and without
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/sweep.hpp>
#include <kdvfs/tune/validation.hpp>

#include <exception>
#include <iostream>

namespace {

struct Gemm : kdvfs::Kernel<"gemm"> {};
struct Softmax : kdvfs::Kernel<"softmax"> {};
struct Update : kdvfs::Kernel<"update"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::AutoClock>>>;

/// One step of something that trains; `gpu` is a GPU with policies, or a sweep of it.
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

void sweep(kdvfs::simulated::Device& device, const kdvfs::Gpu& gpu, const char* profile) {
    Training training{device};
    kdvfs::tune::Sweeping<Policies> sweep{gpu, {.file = profile}};
    while (!sweep.done()) {
        sweep.next_iteration();  // the one line that a sweep adds to a loop
        training.step(sweep);
    }
    std::cout << "simulated " << to_string(sweep.progress()) << '\n';
}

void train(kdvfs::simulated::Device& device, const kdvfs::Gpu& opened) {
    const auto gpu = opened.with<Policies>(
        kdvfs::tune::plan_from_environment<Policies>(opened.info(), opened.supported_clocks()));
    Training training{device};
    const auto began = device.now();
    const auto before = device.true_energy();
    for (int step = 0; step < 50; ++step) {
        gpu.next_iteration();
        training.step(gpu);
    }
    const kdvfs::tune::Cost cost{device.now() - began, device.true_energy() - before};
    std::cout << "50 steps: " << cost.time.count() << " s, " << cost.energy.count
              << " J, simulated\n";
    kdvfs::tune::report_cost(cost);
}

}  // namespace

int main(int argc, char** argv) try {
    kdvfs::simulated::Device device{kdvfs::simulated::mi250x()};
    const kdvfs::Gpu gpu = kdvfs::simulated::open(device);
    argc > 1 ? sweep(device, gpu, argv[1]) : train(device, gpu);
    gpu.close();
    return 0;
} catch (const std::exception& error) {
    std::cerr << "self_tuning: " << error.what() << '\n';
    return 1;
}
