// SPDX-License-Identifier: MIT
//
// What kdvfs costs on top of the bare calls, each beside the other in one run, on virtual boards
// inside the process: a board's own time is that of a memory file, so only ratios mean anything.
#include <kdvfs/detail/device/amd/clocks.hpp>

#include <tests/amdgpu/by_library.hpp>
#include <tests/virtual_amdgpu/interpose.hpp>

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <rocm_smi/rocm_smi.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kdvfs {
namespace {

using namespace kdvfs::literals;

/// A virtual board and the two ways to drive it, for one benchmark.
struct Board {
    explicit Board(const virtual_amdgpu::Board& kind = virtual_amdgpu::mi210()) : machine{{kind}} {}

    virtual_amdgpu::Machine machine;
    virtual_amdgpu::Mounted mounted{machine};
    device::amd::Card card = device::amd::find_cards().front();
    device::AmdgpuSysfs by_files{card};
};

/// ROCm SMI ends the process on gpu_metrics that it does not know: for an MI210 alone.
struct BoardOfLibrary : Board {
    device::RocmSmi by_library{card};
};

/// gpu_metrics 1.3, and 1.9, whose tables describe themselves.
using Kind = virtual_amdgpu::Board (*)();
virtual_amdgpu::Board of_1_3() { return virtual_amdgpu::mi210(); }
virtual_amdgpu::Board of_1_9() { return virtual_amdgpu::mi300x(9); }

/// As many bytes as the reader asks for.
void energy_bare_pread(benchmark::State& state, Kind kind) {
    Board board{kind()};
    const kdvfs::detail::Descriptor file =
        device::amd::open_file(board.card.folder + "/gpu_metrics", O_RDONLY);
    std::array<std::byte, device::amd::most_metrics_bytes> page;
    const std::size_t bytes =
        kind == &of_1_9 ? device::amd::most_metrics_bytes : device::amd::metrics_bytes;
    for (auto _ : state) {
        benchmark::DoNotOptimize(::pread(file.get(), page.data(), bytes, 0));
        benchmark::DoNotOptimize(page);
    }
}
BENCHMARK_CAPTURE(energy_bare_pread, gpu_metrics_1_3, &of_1_3);
BENCHMARK_CAPTURE(energy_bare_pread, gpu_metrics_1_9, &of_1_9);

void energy_amdgpu_sysfs(benchmark::State& state, Kind kind) {
    Board board{kind()};
    for (auto _ : state) benchmark::DoNotOptimize(board.by_files.read_energy());
}
BENCHMARK_CAPTURE(energy_amdgpu_sysfs, gpu_metrics_1_3, &of_1_3);
BENCHMARK_CAPTURE(energy_amdgpu_sysfs, gpu_metrics_1_9, &of_1_9);

void energy_rsmi_dev_energy_count_get(benchmark::State& state) {
    BoardOfLibrary board;
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
    BoardOfLibrary board;
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

/// The same writes as one `apply`, and reads as one `read_clock_state`, of the driver's files, with
/// nothing made of what was read.
void apply_bare_files_and_read_back(benchmark::State& state) {
    Board board;
    const std::string level = board.card.folder + "/power_dpm_force_performance_level";
    const std::string table = board.card.folder + "/pp_od_clk_voltage";
    const auto write = [](const std::string& path, std::string_view text) {
        const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
        benchmark::DoNotOptimize(::write(file, text.data(), text.size()));
        ::close(file);
    };
    const auto read = [](const std::string& path) {
        std::array<char, 4096> page;
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        benchmark::DoNotOptimize(::read(file, page.data(), page.size()));
        benchmark::DoNotOptimize(page);
        ::close(file);
    };
    bool low = false;
    for (auto _ : state) {
        low = !low;
        write(level, "manual");
        write(table, "s 0 500\n");
        write(table, low ? "s 1 1000\n" : "s 1 1100\n");
        write(table, "c\n");
        read(level);
        read(table);
        board.machine.clear_writes();
    }
}
BENCHMARK(apply_bare_files_and_read_back);

template <class Owner, class Device>
void apply_and_read_back(benchmark::State& state, Device Owner::*device) {
    Owner board;
    Megahertz clock = 1000_MHz;
    for (auto _ : state) {
        clock = clock == 1000_MHz ? 1100_MHz : 1000_MHz;
        (board.*device).apply({clock, auto_clock});
        benchmark::DoNotOptimize((board.*device).read_clock_state());
        board.machine.clear_writes();
    }
}
BENCHMARK_CAPTURE(apply_and_read_back, rocm_smi, &BoardOfLibrary::by_library);
BENCHMARK_CAPTURE(apply_and_read_back, amdgpu_sysfs, &Board::by_files);

}  // namespace
}  // namespace kdvfs
