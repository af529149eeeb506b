// SPDX-License-Identifier: MIT
//
// What kdvfs costs on top of the bare calls, each beside the other in one run, on a virtual MI210
// inside the process: the board's own time is that of a memory file, so only ratios mean anything.
#include <kdvfs/device/amd/clocks.hpp>

#include <tests/amdgpu/by_library.hpp>
#include <tests/virtual_amdgpu/interpose.hpp>

#include <benchmark/benchmark.h>
#include <rocm_smi/rocm_smi.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace kdvfs {
namespace {

using namespace kdvfs::literals;

/// A virtual MI210 and the two ways to drive it, for one benchmark.
struct Board {
    virtual_amdgpu::Machine machine{{virtual_amdgpu::mi210()}};
    virtual_amdgpu::Mounted mounted{machine};
    device::amd::Card card = device::amd::find_cards().front();
    device::AmdgpuSysfs by_files{card};
    device::RocmSmi by_library{card};
};

void energy_bare_pread(benchmark::State& state) {
    Board board;
    const kdvfs::detail::Descriptor file =
        device::amd::open_file(board.card.folder + "/gpu_metrics", O_RDONLY);
    std::array<std::byte, device::amd::metrics_bytes> table;
    for (auto _ : state) {
        benchmark::DoNotOptimize(::pread(file.get(), table.data(), table.size(), 0));
    }
}
BENCHMARK(energy_bare_pread);

void energy_amdgpu_sysfs(benchmark::State& state) {
    Board board;
    for (auto _ : state) benchmark::DoNotOptimize(board.by_files.read_energy());
}
BENCHMARK(energy_amdgpu_sysfs);

void energy_rsmi_dev_energy_count_get(benchmark::State& state) {
    Board board;
    std::uint64_t steps = 0;
    std::uint64_t time = 0;
    float resolution = 0;
    for (auto _ : state) {
        benchmark::DoNotOptimize(rsmi_dev_energy_count_get(0, &steps, &resolution, &time));
    }
}
BENCHMARK(energy_rsmi_dev_energy_count_get);

/// The same writes as one `apply`, and the library's own read back.
void apply_bare_rocm_smi_and_read_back(benchmark::State& state) {
    Board board;
    std::uint64_t clock = 1000;
    for (auto _ : state) {
        clock = clock == 1000 ? 1100 : 1000;
        rsmi_dev_clk_range_set(0, 500, clock, RSMI_CLK_TYPE_SYS);
        rsmi_dev_perf_level_t level{};
        rsmi_frequencies_t clocks{};
        rsmi_dev_perf_level_get(0, &level);
        benchmark::DoNotOptimize(rsmi_dev_gpu_clk_freq_get(0, RSMI_CLK_TYPE_SYS, &clocks));
        board.machine.clear_writes();
    }
}
BENCHMARK(apply_bare_rocm_smi_and_read_back);

template <class Device>
void apply_and_read_back(benchmark::State& state, Device Board::*device) {
    Board board;
    Megahertz clock = 1000_MHz;
    for (auto _ : state) {
        clock = clock == 1000_MHz ? 1100_MHz : 1000_MHz;
        (board.*device).apply({clock, auto_clock});
        benchmark::DoNotOptimize((board.*device).read_clock_state());
        board.machine.clear_writes();
    }
}
BENCHMARK_CAPTURE(apply_and_read_back, rocm_smi, &Board::by_library);
BENCHMARK_CAPTURE(apply_and_read_back, amdgpu_sysfs, &Board::by_files);

}  // namespace
}  // namespace kdvfs
