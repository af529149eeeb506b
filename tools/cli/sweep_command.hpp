// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/kernel_bench.hpp>
#include <kdvfs/tune/profile.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/measured_gpu.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/temporary_folder.hpp>
#include <tools/cli/text_options.hpp>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace cli {

/// "sweep: 1200 of 3036, 12 s left", on a terminal only, ten times a second at most.
class ProgressLine {
public:
    void operator()(std::size_t done, std::size_t all) {
        const auto now = std::chrono::steady_clock::now();
        if (!on_terminal_ || (done != all && now < next_)) return;
        next_ = now + std::chrono::milliseconds{100};
        const double taken = std::chrono::duration<double>(now - began_).count();
        const double left = taken / static_cast<double>(done) * static_cast<double>(all - done);
        std::fprintf(stderr, "\rsweep: %zu of %zu, %.0f s left ", done, all, left);
        if (done == all) std::fprintf(stderr, "\n");
    }

private:
    bool on_terminal_ = ::isatty(STDERR_FILENO) == 1;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point next_{};
};

/// `kdvfs sweep --device sim:mi300x -o profile.csv`
struct SweepCommand {
    std::string device;
    std::string output;
    std::uint32_t samples = 3;
    std::string noise = "0%";
    std::uint64_t seed = 1;
    bool adaptive = false;
    std::string max_slowdown = "1%";

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<SweepCommand>();
        CLI::App* sub = app.add_subcommand(
            "sweep", "Measure every kernel at every clock point; goes on where it was stopped");
        sub->add_option("--device", command->device, "sim:NAME or replay:FILE")->required();
        sub->add_option("-o,--output", command->output,
                        "Sweep file to make or to go on with; - prints it at the end")
            ->required();
        sub->add_option("--samples", command->samples,
                        "Measurements of each point; noise can be estimated from two")
            ->check(CLI::Range(1U, 100'000U))
            ->capture_default_str();
        sub->add_flag("--adaptive", command->adaptive,
                      "Measure only what matters for a plan of least waste: at most a quarter");
        sub->add_option("--max-slowdown", command->max_slowdown,
                        "With --adaptive: what that plan will tolerate")
            ->capture_default_str();
        sub->add_option("--noise", command->noise, "Of a simulated measurement, such as 1%")
            ->capture_default_str();
        sub->add_option("--seed", command->seed, "Of simulated noise and of replays")
            ->check(seeds())
            ->capture_default_str();
        sub->callback([command, sub] {
            command->check(*sub);
            command->run();
        });
    }

    void run() const {
        if (!is_special(output)) return sweep_into(output);
        const TemporaryFolder folder;
        const std::string file = folder.path / "sweep.csv";
        sweep_into(file);
        write(output, read_input(file).text);
    }

private:
    void check(const CLI::App& options) const {
        if (!adaptive) refuse_without_effect(options, "--max-slowdown", "without --adaptive");
        if (!device.starts_with("sim:"))
            refuse_without_effect(options, "--noise", "unless the device is sim:NAME");
    }

    void sweep_into(const std::string& path) const {
        const MeasuredGpu gpu =
            open_measured(device, parse_percent("--noise", noise, most_noise_pct), seed);
        kdvfs::tune::SweepFile file{path, gpu.name, gpu.baseline};
        if (!adaptive) {
            return kdvfs::tune::sweep_grid(file, gpu.kernels, gpu.points, samples, gpu.measure,
                                           ProgressLine{});
        }
        kdvfs::tune::AdaptiveOptions options;
        options.samples = samples;
        const auto outcome =
            kdvfs::tune::sweep_adaptively(file, gpu.kernels, gpu.points,
                                          kdvfs::tune::relaxed_waste(parse_percent(
                                              "--max-slowdown", max_slowdown, most_slowdown_pct)),
                                          options, gpu.measure, ProgressLine{});
        std::fprintf(is_standard_output(output) ? stderr : stdout,
                     "%zu of %zu measurements, expected regret %.3f %% of the energy\n",
                     outcome.measurements, outcome.grid, outcome.expected_regret_pct);
    }
};

}  // namespace cli
