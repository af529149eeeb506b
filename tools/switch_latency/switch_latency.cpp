// SPDX-License-Identifier: MIT
//
// switch_latency: how long a clock switch takes on a GPU, for every pair of some core clocks:
// a matrix as JSON, which `kdvfs report` draws. Some minutes. The clocks are put back at the end,
// after an error, and after the program's death. Ends with 2 where there is no GPU whose clocks can
// be set.
//
//     switch_latency [--vendor amd|nvidia] [--device N] [--clocks 500,1100,1700] [--longest MS]
//     [--repeat N] [FOLDER] switch_latency --board NAME [FOLDER] switch_latency --simulated
//     [FOLDER]
//
// With --board it is a simulated board with its own latencies. With --simulated it is a simulated
// MI210 whose latencies are invented, and the program says how
// far its findings are from the truth; it ends with 1 where that is more than 5 % and one
// iteration.
#include "arguments.hpp"
#include "simulated_bench.hpp"
#include "switch_bench.hpp"

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/measure/switch_latency.hpp>
#include <kdvfs/device/simulated/presets.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace kdvfs;
using ::arguments::number;
using measure::SwitchLatency;

struct Arguments {
    bool simulated = false;
    std::string board;
    int device = 0;
    bool nvidia = false;
    std::vector<std::uint32_t> clocks;
    IterationSettings iterations{};
    std::size_t repetitions = 25;
    std::string folder = ".";
};

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const auto next = [&]() -> std::string_view {
            if (++i == argc) throw std::invalid_argument{std::string{word} + " wants a value"};
            return argv[i];
        };
        if (word == "--simulated") {
            arguments.simulated = true;
        } else if (word == "--board") {
            arguments.board = next();
        } else if (word == "--device") {
            arguments.device = static_cast<int>(number(next()));
        } else if (word == "--vendor") {
            const std::string_view vendor = next();
            if (vendor != "amd" && vendor != "nvidia")
                throw std::invalid_argument{"no vendor: '" + std::string{vendor} + "'"};
            arguments.nvidia = vendor == "nvidia";
        } else if (word == "--longest") {
            arguments.iterations.longest = std::chrono::milliseconds{number(next())};
        } else if (word == "--repeat") {
            arguments.repetitions = std::max(1U, number(next()));
        } else if (word == "--clocks") {
            std::istringstream list{std::string{next()}};
            for (std::string clock; std::getline(list, clock, ',');) {
                arguments.clocks.push_back(number(clock));
            }
        } else if (word.starts_with("-")) {
            throw std::invalid_argument{"no such option: " + std::string{word}};
        } else {
            arguments.folder = word;
        }
    }
    return arguments;
}

/// Those that were asked for, else five over the device's range.
std::vector<ClockPoint> choose_clocks(const std::vector<std::uint32_t>& asked,
                                      const SupportedClocks& supported) {
    std::vector<ClockPoint> clocks;
    if (!asked.empty()) {
        for (const std::uint32_t core : asked) clocks.push_back({{core}, auto_clock});
    } else {
        constexpr std::uint32_t count = 5;
        const auto& listed = supported.core.listed;
        const std::uint32_t low = listed.front().count;
        const std::uint32_t high = listed.back().count;
        for (std::uint32_t i = 0; i < count; ++i) {
            ClockPoint point{{low + (high - low) * i / (count - 1)}, auto_clock};
            if (!supported.core.continuous) point.core = listed[i * (listed.size() - 1) / 4];
            if (clocks.empty() || clocks.back() != point) clocks.push_back(point);
        }
    }
    for (const ClockPoint point : clocks) {
        if (supports(supported, point)) continue;
        throw std::invalid_argument{"the device does not list " + to_string(point)};
    }
    return clocks;
}

/// One line on the terminal: how much is done, and how long the rest may take.
class Progress {
public:
    void operator()(double part) const {
        const Seconds passed = std::chrono::steady_clock::now() - began_;
        if (part <= 0) {
            std::fprintf(stderr, "\r  0 %%");
        } else {
            std::fprintf(stderr, "\r%3.0f %%, %.0f s left   ", 100 * part,
                         passed.count() * (1 - part) / part);
        }
    }
    static void clear() { std::fprintf(stderr, "\r%*s\r", 24, ""); }

private:
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

void write_file(const std::string& path, const std::ostringstream& text) {
    kdvfs::io::write_file_atomically(path, text.str());
    std::printf("wrote %s\n", path.c_str());
}

void print(const std::vector<SwitchLatency>& latencies) {
    for (const SwitchLatency& entry : latencies) {
        std::printf("%5u -> %5u MHz: %-17s", entry.from.core.count, entry.to.core.count,
                    std::string{to_string(entry.status)}.c_str());
        if (entry.status == measure::SwitchStatus::measured) {
            std::printf(" %8.3f ms (95 %%: %.3f to %.3f), pause %.3f ms, %zu of %zu are outliers",
                        1e3 * Seconds{entry.switching}.count(),
                        1e3 * Seconds{entry.switching_low}.count(),
                        1e3 * Seconds{entry.switching_high}.count(),
                        1e3 * Seconds{entry.transition}.count(), entry.outliers, entry.repetitions);
        }
        std::printf("\n");
    }
}

/// Whether all entries are near the simulated truth.
bool near_the_truth(const std::vector<SwitchLatency>& latencies) {
    std::size_t near = 0;
    for (const SwitchLatency& entry : latencies) {
        const Seconds truth =
            SimulatedBench::invented_delays(entry.from, entry.to).switching_latency;
        const double error = std::abs((Seconds{entry.switching} - truth).count());
        const bool is_near =
            entry.status == measure::SwitchStatus::measured &&
            error <= std::max(0.05 * truth.count(), Seconds{entry.iteration}.count());
        near += is_near ? 1 : 0;
    }
    std::printf("%zu of %zu within 5 %% or one iteration of the simulated truth\n", near,
                latencies.size());
    return near == latencies.size();
}

std::unique_ptr<SwitchBench> open(const Arguments& arguments) {
    if (arguments.simulated)
        return std::make_unique<SimulatedBench>(
            simulated::mi210(), simulated::SwitchModel{.delays = SimulatedBench::invented_delays},
            arguments.iterations);
    if (arguments.board.empty())
        return arguments.nvidia ? open_nvidia_gpu(arguments.device, arguments.iterations)
                                : open_amd_gpu(arguments.device, arguments.iterations);
    const simulated::Board board = ::arguments::simulated_board(arguments.board);
    return std::make_unique<SimulatedBench>(board, simulated::switch_model(board.clock_switch),
                                            arguments.iterations);
}

int run(const Arguments& arguments) {
    const std::unique_ptr<SwitchBench> bench = open(arguments);
    std::printf("%s%s, clocks by %s\n", bench->info().simulated ? "SIMULATED GPU " : "",
                to_string(bench->info()).c_str(), bench->info().mechanism.c_str());
    const auto clocks = choose_clocks(arguments.clocks, bench->supported_clocks());
    measure::SwitchExperiment experiment = bench->experiment();
    experiment.progress = Progress{};
    const auto latencies =
        measure::measure_switch_latencies(clocks, experiment, arguments.repetitions);
    bench->restore();
    Progress::clear();
    print(latencies);
    std::ostringstream json;
    measure::write_switch_json(json, bench->info(), latencies);
    write_file(arguments.folder + "/switch_latency.json", json);
    return arguments.simulated && !near_the_truth(latencies) ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(parse(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "\nswitch-latency: %s\n", error.what());
        return 2;
    }
}
