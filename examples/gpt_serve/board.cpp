// SPDX-License-Identifier: MIT
#include "board.hpp"

#if defined(__HIP_PLATFORM_AMD__)
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/rocm.hpp>
#elif defined(__CUDACC__)
#include <kdvfs/detail/device/nvidia/nvml_readings.hpp>
#include <kdvfs/nvidia.hpp>
#else
#define GPT_SERVE_SIMULATED 1
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#endif
#include <kdvfs/report.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

namespace gpt {

using namespace kdvfs;

#ifdef GPT_SERVE_SIMULATED

namespace {

/// A model of 7 billion parameters of 16 bits: weights are read once a step, keys and values of
/// each sequence (57 kB a token) once.
simulated::KernelModel work_of(const simulated::Board& board, serve::StepShape shape) {
    const double tokens = double{1} * shape.prompt_tokens + shape.sequences;
    return roofline(board, {.matrix_flops = 2 * 7.6e9 * tokens,
                            .vector_flops = 2e6 * tokens,
                            .memory_bytes = 15.2e9 + 57e3 * shape.sequences * double{1} *
                                                         shape.context_tokens});
}

}  // namespace

struct Board::State {
    simulated::Device device{simulated::h100()};
    simulated::Stream* stream = device.create_stream();
    Gpu gpu = simulated::open(device, {.meter_every = 1});
};

Board::Board() : state_{std::make_unique<State>()} {}
Seconds Board::now() const { return Seconds{state_->device.now().time_since_epoch()}; }
EnergyReading Board::read_energy() { return state_->device.read_energy(); }
StreamRef Board::stream() const { return state_->stream; }
void Board::enqueue(serve::StepShape shape) {
    state_->device.launch(state_->stream, work_of(state_->device.board(), shape));
}
void Board::wait() { state_->device.synchronize(state_->stream); }
void Board::let_pass(Seconds time) {
    state_->device.advance(std::chrono::duration_cast<Duration>(time));
}

std::optional<serve::StepTable> Board::known_costs(const serve::StepBuckets::Edges& grid) const {
    const simulated::Board& board = state_->device.board();
    std::vector<serve::StepRow> rows;
    for (const std::uint32_t mhz : {900U, 1200U, 1500U, 1740U, 1980U}) {
        const Megahertz clock{mhz};
        const auto cost = [&](serve::StepShape shape) {
            const auto point = operate(board, work_of(board, shape), {.core = clock});
            return tune::Cost{point.time, point.power * point.time};
        };
        for (const std::uint32_t tokens : grid.prompt_tokens)
            rows.push_back({serve::Phase::prefill, 1, tokens, clock, cost({tokens, 0, 0})});
        for (const std::uint32_t sequences : grid.sequences)
            for (const std::uint32_t context : grid.context_tokens)
                rows.push_back({serve::Phase::decode, sequences, context, clock,
                                cost({0, sequences, context})});
    }
    return serve::StepTable{rows};
}

#else

struct Board::State {
#if defined(__HIP_PLATFORM_AMD__)
    /// Drives the clocks where it may, and measures where it may not.
    Gpu gpu = rocm::open(0, {.on_refused = OnRefused::measure_only});
    device::AmdgpuSysfs readings{
        device::amd::find_card(*io::parse_pci_address(gpu.info().address))};
#else
    /// Measures only: NVIDIA GPUs are often shared. `kdvfs::nvidia::open` drives their clocks.
    Gpu gpu = nvidia::measure(0);
    device::NvmlReadings readings{gpu.info().address};
#endif
};

Board::Board() : state_{std::make_unique<State>()} {}
Seconds Board::now() const { return Seconds{std::chrono::steady_clock::now().time_since_epoch()}; }
EnergyReading Board::read_energy() { return state_->readings.read_energy(); }
StreamRef Board::stream() const { return nullptr; }
void Board::enqueue(serve::StepShape) {}
void Board::wait() {}
void Board::let_pass(Seconds time) { std::this_thread::sleep_for(time); }
std::optional<serve::StepTable> Board::known_costs(const serve::StepBuckets::Edges&) const {
    return std::nullopt;
}

#endif

Board::~Board() = default;
const Gpu& Board::gpu() const { return state_->gpu; }

void print_report(const Gpu& gpu) { std::cout << gpu.report() << std::flush; }

}  // namespace gpt
