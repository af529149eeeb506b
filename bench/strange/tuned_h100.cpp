// SPDX-License-Identifier: MIT
//
// The GPT-3 XL iteration on the simulated H100, for `kdvfs tune`: tuned_h100 [SECONDS]
//
// Times have noise as recorded in bench/results/h100*/mix_runs.csv, runs of about 250 ms: kernels
// at the power limit scatter by 2.5 to 3.7 % from run to run, others by 0.03 to 0.8 %. Here each
// launch has 3 % of its own, and all share 0.3 % that comes and goes in 10 s. SEED draws them.
#include <examples/gpt3_iteration/scoped_iteration.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/session.hpp>
#include <kdvfs/tune/validation.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <random>

namespace {

namespace simulated = kdvfs::simulated;
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::AutoClock>>>;

class RecordedNoise {
public:
    explicit RecordedNoise(std::uint64_t seed) : random_{seed} {}

    void pass(kdvfs::Seconds time) {
        const double kept = std::exp(-time.count() / 10);
        common_ = kept * common_ + std::sqrt(1 - kept * kept) * 0.003 * normal_(random_);
    }
    simulated::KernelModel operator()(simulated::KernelModel model) {
        const double factor = std::exp(common_ + 0.03 * normal_(random_));
        model.core_time *= factor;
        model.memory_time *= factor;
        model.core_energy = model.core_energy * factor;
        model.memory_energy = model.memory_energy * factor;
        return model;
    }

private:
    std::mt19937_64 random_;
    std::normal_distribution<double> normal_;
    double common_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
    const kdvfs::Seconds length{argc > 1 ? std::atof(argv[1]) : 300};
    const char* seed = std::getenv("SEED");
    const gpt3::Case board = *gpt3::find_case("h100");
    RecordedNoise noise{seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10)};
    simulated::Device device{board.board};
    const kdvfs::Gpu gpu = simulated::open(device);
    const auto began = device.now();
    const auto before = device.true_energy();
    // As many iterations whatever the clocks: as many as fill the length at auto.
    kdvfs::Seconds iteration{0};
    for (const std::size_t entry : gpt3::launch_sequence())
        iteration += simulated::operate(board.board, board.kernels[entry], {}).time;
    {
        const kdvfs::tune::Session<Policies> session{gpu};
        simulated::Stream* stream = device.create_stream();
        const auto steps = static_cast<int>(length / iteration);
        for (int step = 0; step < steps; ++step) {
            session.next_iteration();
            noise.pass(iteration);
            gpt3::launch_iteration(session, stream, [&](std::size_t entry) {
                device.launch(stream, noise(board.kernels[entry]));
            });
            device.synchronize(stream);
        }
    }
    const kdvfs::tune::Cost cost{device.now() - began, device.true_energy() - before};
    gpu.close();
    kdvfs::tune::report_cost(cost);
    std::cout << cost.time.count() << " s " << cost.energy.count << " J, simulated" << std::endl;
    return 0;
} catch (const std::exception& error) {
    std::cerr << "tuned_h100: " << error.what() << '\n';
    return 1;
}
