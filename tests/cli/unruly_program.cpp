// SPDX-License-Identifier: MIT
//
// A program for `kdvfs tune` on the simulated MI250X that does not behave: unruly WAY [STEPS]
//
//     crash  ends by SIGABRT in an iteration of a sweep below 900 MHz
//     hang   never ends such an iteration
//     typo   ends with 2, as interpreters do that do not find their script
//     after  a kernel takes 4 % longer if the one before it ran at another clock
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/session.hpp>
#include <kdvfs/tune/validation.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

namespace {

struct Gemm : kdvfs::Kernel<"gemm"> {};
struct Softmax : kdvfs::Kernel<"softmax"> {};
struct Update : kdvfs::Kernel<"update"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::AutoClock>>>;

class Program {
public:
    Program(kdvfs::simulated::Device& device, std::string_view way) : device_{device}, way_{way} {}

    void step(const kdvfs::tune::Session<Policies>& session) {
        launch<Gemm>(session, gemm_);
        launch<Softmax>(session, softmax_);
        launch<Update>(session, update_);
        device_.synchronize(stream_);
        fail_at_low_clocks(session);
    }

private:
    template <class Kernel>
    void launch(const kdvfs::tune::Session<Policies>& session,
                const kdvfs::simulated::KernelModel& model) {
        kdvfs::launch<Kernel>(session, stream_, [&] {
            device_.launch(stream_, way_ == "after" ? after_other_clock(model) : model);
        });
    }

    [[nodiscard]] kdvfs::simulated::KernelModel after_other_clock(
        kdvfs::simulated::KernelModel model) {
        device_.synchronize(stream_);
        const kdvfs::Megahertz now = device_.effective_clocks().core;
        const double factor = launched_ && last_ != now ? 1.04 : 1;
        launched_ = true;
        last_ = now;
        model.core_time *= factor;
        model.memory_time *= factor;
        model.core_energy = model.core_energy * factor;
        model.memory_energy = model.memory_energy * factor;
        return model;
    }

    void fail_at_low_clocks(const kdvfs::tune::Session<Policies>& session) {
        constexpr kdvfs::Megahertz lowest{900};
        const kdvfs::Megahertz core = device_.effective_clocks().core;
        if (session.mode() != kdvfs::tune::SessionMode::Kind::sweep || core == kdvfs::auto_clock ||
            core >= lowest)
            return;
        if (way_ == "crash") std::abort();
        while (way_ == "hang") std::this_thread::sleep_for(std::chrono::seconds{1});
    }

    kdvfs::simulated::Device& device_;
    std::string_view way_;
    kdvfs::simulated::Stream* stream_ = device_.create_stream();
    kdvfs::simulated::KernelModel gemm_ = roofline(device_.board(), {.matrix_flops = 1.2e14});
    kdvfs::simulated::KernelModel softmax_ = roofline(device_.board(), {.memory_bytes = 5e11});
    kdvfs::simulated::KernelModel update_ =
        roofline(device_.board(), {.vector_flops = 1e11, .memory_bytes = 3e11});
    bool launched_ = false;
    kdvfs::Megahertz last_ = kdvfs::auto_clock;
};

}  // namespace

int main(int argc, char** argv) try {
    const std::string_view way = argc > 1 ? argv[1] : "";
    if (way == "typo") return 2;
    kdvfs::simulated::Device device{kdvfs::simulated::mi250x()};
    const kdvfs::Gpu gpu = kdvfs::simulated::open(device);
    const auto began = device.now();
    const auto before = device.true_energy();
    {
        const kdvfs::tune::Session<Policies> session{gpu};
        Program program{device, way};
        const int steps = argc > 2 ? std::stoi(argv[2]) : 150;
        for (int step = 0; step < steps; ++step) {
            session.next_iteration();
            program.step(session);
        }
    }
    const kdvfs::tune::Cost cost{device.now() - began, device.true_energy() - before};
    gpu.close();
    kdvfs::tune::report_cost(cost);
    std::cout << "a run of " << cost.time.count() << " s, simulated\n";
    return 0;
} catch (const std::exception& error) {
    std::cerr << "unruly: " << error.what() << '\n';
    return 1;
}
