// SPDX-License-Identifier: MIT
//
// How long a clock switch takes, for every pair of some clocks: a matrix as JSON and a heat map as
// SVG, in the folder that is the only argument (default: here). The GPU is a simulated MI210 whose
// latencies are invented, 2 to 32 ms by target, so that the program can also say how far its
// findings are from the truth; it ends with 1 where that is more than 5 % and one iteration.
#include <kdvfs/core/atomic_file.hpp>
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/measure/switch_latency_output.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace kdvfs;
using namespace std::chrono_literals;
using measure::ClockedIteration;
using measure::SwitchLatency;

simulated::SwitchDelays invented_delays(ClockPoint, ClockPoint to) {
    return {.switching_latency = 2ms * (1 << (to.core.count / 100 % 5)), .transition = 500us};
}

/// Puts the device's clocks back as they were found, whatever happens.
class [[nodiscard]] Restoring {
public:
    explicit Restoring(simulated::Device& device)
        : device_{device}, found_{device.read_clock_state()} {}
    Restoring(const Restoring&) = delete;
    Restoring& operator=(const Restoring&) = delete;
    ~Restoring() {
        try {
            device_.restore(found_);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "switch_latency: %s\n", error.what());
        }
    }

private:
    simulated::Device& device_;
    ClockState found_;
};

/// Short, identical iterations that wait for the core clock alone.
class Iterations {
public:
    Iterations(simulated::Device& device, const simulated::Board& board)
        : device_{device},
          stream_{device.create_stream()},
          kernel_{simulated::roofline(board, {.vector_flops = 2e9})},
          events_(4001) {
        for (auto*& event : events_) event = device.create_event();
    }

    std::vector<ClockedIteration> steady(ClockPoint clock) {
        settle_at(clock);
        enqueue(200);
        device_.synchronize(stream_);
        return seen(200);
    }

    measure::SwitchTrace change(ClockPoint from, ClockPoint to) {
        settle_at(from);
        const std::size_t count = events_.size() - 1;
        enqueue(count);
        device_.advance(5ms + 37us * (++changes_ % 16));  // at any place in an iteration
        const TimePoint called = device_.now();
        device_.apply(to);
        device_.synchronize(stream_);
        return {called, seen(count)};
    }

private:
    void settle_at(ClockPoint clock) {
        device_.apply(clock);
        device_.advance(500ms);  // longer than any published switching latency
    }
    void enqueue(std::size_t count) {
        device_.record(stream_, events_[0]);
        for (std::size_t i = 1; i <= count; ++i) {
            device_.launch(stream_, kernel_);
            device_.record(stream_, events_[i]);
        }
    }
    [[nodiscard]] std::vector<ClockedIteration> seen(std::size_t count) const {
        std::vector<ClockedIteration> iterations;
        for (std::size_t i = 1; i <= count; ++i) {
            iterations.push_back({events_[i - 1]->time(), events_[i]->time()});
        }
        return iterations;
    }

    simulated::Device& device_;
    simulated::Stream* stream_;
    simulated::KernelModel kernel_;
    std::vector<simulated::Event*> events_;
    int changes_ = 0;
};

void write_file(const std::string& path, const std::ostringstream& text) {
    write_file_atomically(path, text.str());
    std::printf("wrote %s\n", path.c_str());
}

/// Prints the matrix beside the truth; whether all entries are near it.
bool near_the_truth(const std::vector<SwitchLatency>& latencies) {
    bool all_near = true;
    for (const SwitchLatency& entry : latencies) {
        const auto truth = Seconds{invented_delays(entry.from, entry.to).switching_latency};
        const double error = std::abs((Seconds{entry.switching} - truth).count());
        const bool near = entry.status == measure::SwitchStatus::measured &&
                          error <= std::max(0.05 * truth.count(), Seconds{entry.iteration}.count());
        all_near = all_near && near;
        std::printf("%5u -> %5u MHz: %-17s %7.3f ms, pause %5.3f ms (true %5.1f ms)%s\n",
                    entry.from.core.count, entry.to.core.count,
                    std::string{to_string(entry.status)}.c_str(),
                    1e3 * Seconds{entry.switching}.count(), 1e3 * Seconds{entry.transition}.count(),
                    1e3 * truth.count(), near ? "" : "  FAR OFF");
    }
    return all_near;
}

}  // namespace

int main(int argc, char** argv) try {
    const std::string folder = argc > 1 ? argv[1] : ".";
    const simulated::Board board = simulated::mi210();
    simulated::Device device{board,
                             {.clock_switch = simulated::SwitchModel{.delays = invented_delays}}};
    std::printf("SIMULATED GPU %s\n", to_string(device.info()).c_str());
    const Restoring restoring{device};
    std::vector<ClockPoint> clocks;
    for (const std::uint32_t core : {500U, 800U, 1100U, 1400U, 1700U}) {
        clocks.push_back({{core}, auto_clock});
    }
    Iterations iterations{device, board};
    const auto latencies = measure::measure_switch_latencies(
        clocks,
        {.steady = [&](ClockPoint clock) { return iterations.steady(clock); },
         .change = [&](ClockPoint from, ClockPoint to) { return iterations.change(from, to); },
         .progress = [](double part) { std::fprintf(stderr, "\r%3.0f %%", 100 * part); }});
    std::fprintf(stderr, "\r      \r");
    const bool near = near_the_truth(latencies);
    std::ostringstream json;
    measure::write_switch_json(json, device.info(), latencies);
    write_file(folder + "/switch_latency.json", json);
    std::ostringstream svg;
    measure::write_switch_svg(svg, device.info(), latencies);
    write_file(folder + "/switch_latency.svg", svg);
    return near ? 0 : 1;
} catch (const std::exception& error) {
    std::fprintf(stderr, "switch_latency: %s\n", error.what());
    return 2;
}
