// SPDX-License-Identifier: MIT
#pragma once

#include <tests/restoring/temporary_folder.hpp>

#include <kdvfs/detail/tune/trace_planner.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/extend.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/segments.hpp>
#include <kdvfs/tune/session.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// Programs that tune themselves on simulated boards, in virtual time, beside twins at the clocks
/// as found with the same noise.
namespace self_tuning_bed {

using namespace kdvfs;

/// An empty store of profiles for the programs that run beside it, gone with it.
class OwnStore {
public:
    OwnStore() { ::setenv("KDVFS_STORE", path().c_str(), 1); }
    ~OwnStore() { ::unsetenv("KDVFS_STORE"); }
    OwnStore(const OwnStore&) = delete;
    OwnStore& operator=(const OwnStore&) = delete;

    [[nodiscard]] std::filesystem::path path() const { return folder_.at("store"); }
    void clear() const { std::filesystem::remove_all(path()); }

private:
    TemporaryFolder folder_;
};

/// A program: the launches of its iteration, in order.
struct Program {
    std::vector<simulated::KernelModel> kernels;
    std::vector<std::size_t> launches;  ///< indices into `kernels`
    double scatter = 0.005;             ///< of an iteration's time, from one to the next

    [[nodiscard]] std::string name(std::size_t kernel) const {
        return prefix + std::to_string(kernel);
    }
    std::string prefix = "kernel_";
};

/// Draws a program: 3 to 7 kernels between compute-bound and memory-bound, of 30 to 150 ms, and an
/// iteration of 5 to 14 launches.
inline Program draw_program(const simulated::Board& board, std::uint64_t seed) {
    std::mt19937_64 random{seed * 7919};
    const auto between = [&](double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random);
    };
    Program program;
    program.prefix = "program_" + std::to_string(seed) + "_kernel_";
    program.scatter = between(0.001, 0.01);
    const auto kernels = static_cast<std::size_t>(between(3, 8));
    for (std::size_t k = 0; k < kernels; ++k) {
        const double compute = between(0, 1);  // of the time that memory takes, or more
        const double seconds = std::exp(between(std::log(0.03), std::log(0.15)));
        const simulated::Throughput& peak = board.throughput;
        const double bytes =
            seconds * peak.memory_bytes_per_second * 0.9 * (compute < 0.5 ? 1 : 2 - 2 * compute);
        const double flops = seconds * 1e6 * board.reference_core.count *
                             peak.matrix_flops_per_cycle * 0.9 * (compute < 0.5 ? compute : 1);
        program.kernels.push_back(roofline(board, {.matrix_flops = flops, .memory_bytes = bytes}));
    }
    const auto launches = static_cast<std::size_t>(between(5, 15));
    for (std::size_t i = 0; i < launches; ++i)
        program.launches.push_back(i < kernels ? i : random() % kernels);
    std::shuffle(program.launches.begin(), program.launches.end(), random);
    return program;
}

/// A board on which every lower clock costs energy: it draws the same whatever it does.
inline simulated::Board without_gain(simulated::Board board) {
    board.core_overhead = {};
    board.auto_memory_voltage = {};
    board.voltage = {};
    for (simulated::MemoryState& state : board.memory_states) state.power = {};
    board.static_power = {300};
    return board;
}

/// A program whose iterations are of several kinds: gradients are accumulated over four, of which
/// the last has the optimiser's kernels, too; each hundredth is a validation step of forward
/// launches only.
struct VariedProgram {
    Program accumulate;
    Program step;
    Program validation;
};
/// @param scatter of work, from one iteration to the next
inline VariedProgram draw_varied_program(const simulated::Board& board, std::uint64_t seed,
                                         double scatter) {
    Program program = draw_program(board, seed);
    program.scatter = scatter;
    VariedProgram varied{program, program, program};
    varied.step.launches.push_back(0);
    varied.step.launches.push_back(program.kernels.size() - 1);
    const auto half = static_cast<std::ptrdiff_t>(program.launches.size() / 2);
    varied.validation.launches.clear();
    for (int i = 0; i < 6; ++i)
        varied.validation.launches.insert(varied.validation.launches.end(),
                                          program.launches.begin(),
                                          program.launches.begin() + half);
    return varied;
}

/// What an iteration does: a program's launches, each so many times as long.
struct Work {
    const Program* program = nullptr;
    double longer = 1;
    double throttled = 1;  ///< factor of the time that follows the core clock
};
using Script = std::function<Work(std::size_t iteration)>;

/// @param program must outlive it
inline Script script_of(const VariedProgram& program) {
    return [&program](std::size_t i) {
        if (i % 100 == 99) return Work{&program.validation};
        return Work{i % 4 == 3 ? &program.step : &program.accumulate};
    };
}

/// What a run was like, iteration by iteration.
struct Course {
    std::vector<double> passed;  ///< seconds at each iteration's end
    std::vector<double> energy;  ///< joules, in truth
    std::vector<bool> lowered;   ///< whether a clock was asked for at its end
    std::optional<tune::Saving> saving{};
    std::vector<tune::Saving> minutes{};    ///< as it said itself, once a minute
    std::vector<std::size_t> minutes_at{};  ///< iterations before
};

/// A program that becomes another at an iteration.
struct Change {
    std::size_t at = ~std::size_t{0};
    Program to{};
};

/// A simulated board whose clocks follow after `latency`, with the counter that it has.
class Bed {
public:
    Bed(simulated::Board board, Duration latency, std::uint64_t seed)
        : board_{std::move(board)}, latency_{latency}, seed_{seed} {}

    [[nodiscard]] const simulated::Board& board() const { return board_; }

    /// Runs so many iterations, or for so long; a twin as found where `mode` is `off`.
    [[nodiscard]] Course run(const Program& first, tune::SessionMode::Kind mode,
                             std::size_t iterations, Seconds longest, const Change& change = {},
                             double max_slowdown = 0.01) const {
        return run([&](std::size_t i) { return Work{i < change.at ? &first : &change.to}; }, mode,
                   iterations, longest, max_slowdown);
    }
    [[nodiscard]] Course run(const Script& script, tune::SessionMode::Kind mode,
                             std::size_t iterations, Seconds longest,
                             double max_slowdown = 0.01) const {
        simulated::Device device{board_, options()};
        const Gpu gpu = simulated::open(device, gpu_options());
        tune::SweepOptions sweep;
        sweep.objective = tune::relaxed_waste(max_slowdown);
        sweep.seed = seed_;
        const tune::Session<Policies> session{gpu, {mode}, sweep};
        Course course;
        run_iterations(device, session, script, iterations, longest, course);
        course.saving = session.saving();
        return course;
    }

    /// Energy that a plan from the board's own constants saves, as a fraction, and what it costs.
    struct Oracle {
        double saved = 0;
        double slower = 0;
    };
    [[nodiscard]] Oracle oracle(const Program& program, double max_slowdown = 0.01) const {
        simulated::Device device{board_, options()};
        const Gpu gpu = simulated::open(device, gpu_options());
        tune::Profile profile{gpu_name(gpu.info())};
        for (std::size_t k = 0; k < program.kernels.size(); ++k) {
            const auto count = static_cast<std::uint32_t>(
                std::count(program.launches.begin(), program.launches.end(), k));
            if (count == 0) continue;
            for (const ClockPoint clock : tune::clock_grid(gpu.supported_clocks())) {
                const auto point = simulated::operate(board_, program.kernels[k], clock);
                profile.add({{program.name(k), {}},
                             clock,
                             {point.time, point.power * point.time},
                             "",
                             count,
                             0,
                             clock == ClockPoint{}});
            }
        }
        tune::LaunchSequence sequence;
        for (const std::size_t k : program.launches)
            sequence.launches.push_back({program.name(k), {}});
        const tune::SegmentPlan plan = tune::plan_program(
            mean_costs(profile), sequence, {}, tune::uniform_switch_costs(Seconds{latency_}),
            tune::relaxed_waste(max_slowdown));
        constexpr std::size_t few = 60;
        Course planned;
        Course found;
        const auto table = tune::to_plan_table(plan.sequence, gpu.info(), gpu.supported_clocks());
        run_iterations(
            device, gpu.with<Policies>(table), [&](std::size_t) { return Work{&program}; }, few,
            Seconds{1e9}, planned);
        found = run(program, tune::SessionMode::Kind::off, few, Seconds{1e9});
        return {1 - planned.energy.back() / found.energy.back(),
                planned.passed.back() / found.passed.back() - 1};
    }

private:
    using Policies = PolicyRegistry<Default<AutoClock>>;

    [[nodiscard]] simulated::DeviceOptions options() const {
        simulated::DeviceOptions options;
        options.seed = seed_;
        options.clock_switch = simulated::uniform_switch(latency_);
        return options;
    }
    static GpuOptions gpu_options() {
        GpuOptions options;
        options.switch_latency = Duration{0};  // no gate: plans know what switches cost
        return options;
    }

    static simulated::KernelModel scaled(simulated::KernelModel kernel, double by,
                                         double throttled) {
        kernel.core_time *= by * throttled;
        kernel.memory_time *= by;
        kernel.core_energy = kernel.core_energy * by;
        kernel.memory_energy = kernel.memory_energy * by;
        return kernel;
    }

    template <class View>
    void run_iterations(simulated::Device& device, const View& view, const Script& script,
                        std::size_t iterations, Seconds longest, Course& course) const {
        simulated::Stream* const stream = device.create_stream();
        std::mt19937_64 random{seed_ * 104729 + 1};
        const TimePoint began = device.now();
        const Joules before = device.true_energy();
        for (std::size_t i = 0; i < iterations && Seconds{device.now() - began} < longest; ++i) {
            const Work work = script(i);
            const Program& program = *work.program;
            const double noise = work.longer * std::exp(std::normal_distribution<double>{
                                                   0, program.scatter}(random));
            view.next_iteration();
            if constexpr (requires { view.saving(); }) {
                wait_for_plan(view);
                const auto saving = view.saving();
                if (saving &&
                    saving->passed.count() >= 60.0 * static_cast<double>(course.minutes.size())) {
                    course.minutes.push_back(*saving);
                    course.minutes_at.push_back(i);
                }
            }
            for (const std::size_t k : program.launches) {
                const Scope scope{view, stream, program.name(k)};
                device.launch(stream, scaled(program.kernels[k], noise, work.throttled));
            }
            device.synchronize(stream);
            course.passed.push_back(Seconds{device.now() - began}.count());
            course.energy.push_back((device.true_energy() - before).count);
            course.lowered.push_back(device.effective_clocks() != ClockPoint{});
        }
    }

    /// Plans are made on a thread in real time, in which virtual time stands still.
    template <class View>
    static void wait_for_plan(const View& view) {
        const auto saving = view.saving();
        if (saving && saving->phase == tune::RunPhase::plan)
            std::this_thread::sleep_for(std::chrono::milliseconds{300});
    }

    simulated::Board board_;
    Duration latency_;
    std::uint64_t seed_;
};

/// Against the twin: at the iterations that both have.
struct Judged {
    double saved = 0;           ///< fraction of the twin's energy
    double lost = 0;            ///< seconds, at the end
    double beyond = 0;          ///< most seconds lost beyond the budget at any moment
    double beyond_allowed = 0;  ///< the same less 0.3 % of the time passed and 5 s
};

inline Judged judge(const Course& run, const Course& twin, double max_slowdown = 0.01,
                    double start_loss = 20) {
    Judged judged;
    const std::size_t count = std::min(run.passed.size(), twin.passed.size());
    for (std::size_t i = 0; i < count; ++i) {
        judged.lost = run.passed[i] - twin.passed[i];
        const double beyond = judged.lost - start_loss - max_slowdown * twin.passed[i];
        judged.beyond = std::max(judged.beyond, beyond);
        judged.beyond_allowed = std::max(judged.beyond_allowed, beyond - 0.003 * run.passed[i] - 5);
    }
    judged.saved = 1 - run.energy[count - 1] / twin.energy[count - 1];
    return judged;
}

}  // namespace self_tuning_bed
