// SPDX-License-Identifier: MIT
// Records what a real GPU's power meter says while known kernels run:
//   power OUTPUT_FOLDER meter     cost and period of the readings; how samples answer to a step
//   power OUTPUT_FOLDER mix       8 kernels in runs of 50-500 ms, with 5 s runs of each as truth
//   power OUTPUT_FOLDER fingrav   short runs of three kernels with every execution timestamped
//   power OUTPUT_FOLDER clock     the core clock by cycles over time, beside NVML's clock
//   power OUTPUT_FOLDER all
// It reads and loads the GPU, and sets nothing.
#include "power_log.hpp"
#include "round.hpp"
#include "run_recorder.hpp"
#include "workloads.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace measuring;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// What every part needs.
struct Bench {
    std::filesystem::path folder;
    kdvfs::device::NvmlReadings board{kdvfs::device::pci_address<kdvfs::device::CudaApi>(0)};
    kdvfs::device::Cuda cuda{0, kdvfs::device::MarkerWay::kernel};
    Workloads workloads;
    std::string about = machine(0, board.driver_version()) +
                        (workloads.has_cublas() ? "" : "; no cuBLAS: GEMMs are plain fp32 kernels");
};

int launches_for(const Workload& workload, double milliseconds_wanted) {
    return std::max(1, static_cast<int>(milliseconds_wanted * 1e3 / workload.microseconds));
}

void run_for(const Workload& workload, cudaStream_t stream, double milliseconds_wanted) {
    const int launches = launches_for(workload, milliseconds_wanted);
    for (int i = 0; i < launches; ++i) workload.launch(stream);
}

// ---- the meter itself ----

template <class Read>
void time_reads(const char* name, int count, CsvFile& csv, Read read) {
    std::vector<double> microseconds;
    for (int i = 0; i < count; ++i) {
        const TimePoint start = now();
        read();
        microseconds.push_back(static_cast<double>((now() - start).count()) * 1e-3);
    }
    const Percentiles p{microseconds};
    std::printf("  %-24s %10.1f us median %10.1f us p99\n", name, p.median(), p.at(0.99));
    csv.row(name, count, p.median(), p.at(0.99), p.at(1));
}

void measure_meter(Bench& bench) {
    std::printf("\ncost of NVML's readings\n");
    CsvFile costs{bench.folder, "reading_costs.csv", bench.about,
                  "reading,count,median_us,p99_us,max_us"};
    auto& board = bench.board;
    time_reads("total energy", 200, costs, [&] { (void)board.read_energy(); });
    time_reads("instant power", 2000, costs, [&] { (void)board.read_power_instant(); });
    time_reads("average power", 2000, costs, [&] { (void)board.read_power_average(); });
    time_reads("buffered power samples", 200, costs,
               [&] { (void)board.read_power_samples(TimePoint{}); });
    time_reads("running clock", 500, costs, [&] { (void)board.read_running_clocks(); });

    // Idle and full load in turn, at periods that share no factor with the meter's.
    const Workload& load = bench.workloads.named("gemm_8192");
    Stream stream;
    RunRecorder recorder{bench.cuda, stream};
    std::this_thread::sleep_for(milliseconds{500});
    PowerLog log{board};
    const TimePoint origin = now();
    for (std::uint32_t i = 0; i < 12; ++i) {
        std::this_thread::sleep_for(milliseconds{307});
        recorder.begin(0, i);
        run_for(load, stream.get(), 293);
        recorder.end(0, i);
        recorder.finish();
    }
    std::this_thread::sleep_for(milliseconds{300});
    log.stop();
    CsvFile steps{bench.folder, "step_runs.csv", bench.about + "; gemm_8192 and idle in turn",
                  "start_ns,end_ns"};
    for (const Run& run : recorder.runs()) {
        steps.row((run.start - origin).count(), (run.end - origin).count());
    }
    write_power(log, origin, {bench.folder, "step_power.csv", bench.about, "time_ns,watts"});
    write_energy(log, origin, {bench.folder, "step_energy.csv", bench.about, "time_ns,joules"});
    std::vector<double> apart;
    for (std::size_t i = 1; i < log.power().size(); ++i) {
        apart.push_back(static_cast<double>(
                            (log.power()[i].sampled_at - log.power()[i - 1].sampled_at).count()) *
                        1e-6);
    }
    const Percentiles p{apart};
    std::printf("  power samples %.2f ms apart (median; p99 %.2f, max %.2f), %zu of them\n",
                p.median(), p.at(0.99), p.at(1), p.size());
}

// ---- a mix whose truth is known ----

struct Stretch {
    std::size_t workload;
    double milliseconds;
    bool truth;
};

/// Runs of 50-500 ms for 60 s, and one of 5 s of each kernel at a random place among them.
std::vector<Stretch> schedule(std::size_t workloads) {
    std::mt19937 random{2026};
    std::vector<Stretch> stretches;
    for (double total = 0; total < 60'000;) {
        const double length = 50.0 + random() % 451;
        stretches.push_back({random() % workloads, length, false});
        total += length;
    }
    for (std::size_t w = 0; w < workloads; ++w) {
        const auto place = static_cast<std::ptrdiff_t>(random() % stretches.size());
        stretches.insert(stretches.begin() + place, Stretch{w, 5000, true});
    }
    return stretches;
}

void record_mix(Bench& bench) {
    const auto& workloads = bench.workloads.list();
    const std::vector<Stretch> stretches = schedule(workloads.size());
    std::printf("\nmixed run: %zu stretches\n", stretches.size());
    Stream stream;
    RunRecorder recorder{bench.cuda, stream};
    PowerLog log{bench.board};
    const TimePoint origin = now();
    for (std::size_t i = 0; i < stretches.size(); ++i) {
        const auto number = static_cast<std::uint32_t>(i);
        const auto kind = static_cast<std::uint32_t>(stretches[i].workload);
        recorder.begin(kind, number);
        run_for(workloads[stretches[i].workload], stream.get(), stretches[i].milliseconds);
        recorder.end(kind, number);
        recorder.finish();
        check(cudaGetLastError(), "launch the mix");
    }
    log.stop();
    CsvFile runs{bench.folder, "mix_runs.csv",
                 bench.about + "; truth = 1: a run of 5 s whose mean power is the kernel's own",
                 "kernel,start_ns,end_ns,launches,core_cycles,truth"};
    std::printf("  %-12s %10s %10s %12s %12s\n", "kernel", "us/launch", "truth W", "held MHz",
                "NVML's MHz");
    for (const Run& run : recorder.runs()) {
        const Stretch& stretch = stretches[run.number];
        const Workload& workload = workloads[run.kind];
        runs.row(workload.name, (run.start - origin).count(), (run.end - origin).count(),
                 launches_for(workload, stretch.milliseconds), run.core_cycles,
                 stretch.truth ? 1 : 0);
        if (!stretch.truth) continue;
        std::printf("  %-12s %10.1f %10.1f %12.0f %12.0f\n", workload.name.c_str(),
                    workload.microseconds, mean_watts(log, run.start, run.end, milliseconds{500}),
                    1e3 * static_cast<double>(run.core_cycles) /
                        static_cast<double>((run.end - run.start).count()),
                    mean_megahertz(log, run.start, run.end));
    }
    write_power(log, origin, {bench.folder, "mix_power.csv", bench.about, "time_ns,watts"});
    write_energy(log, origin, {bench.folder, "mix_energy.csv", bench.about, "time_ns,joules"});
    CsvFile clocks{bench.folder, "mix_clocks.csv", bench.about + "; as NVML reads them",
                   "time_ns,core_mhz,power_capped"};
    for (const ClockReading& reading : log.clocks()) {
        clocks.row((reading.at - origin).count(), reading.core.count,
                   reading.reasons.power_cap() ? 1 : 0);
    }
}

// ---- executions short against the meter ----

/// How a kernel is recorded: launches too short to be met by a sample count as one by the dozen.
struct Recording {
    const char* kernel;
    int launches;    ///< in an execution
    int executions;  ///< in a run
};

/// A set of runs: idle for a random time, then so many executions, each timestamped.
void record_executions(Bench& bench, const Workload& workload, const Recording& recording, int runs,
                       const std::string& set, CsvFile& csv, const Stream& stream,
                       TimePoint origin) {
    std::mt19937 random{std::hash<std::string>{}(set)};
    RunRecorder recorder{bench.cuda, stream};
    for (int run = 0; run < runs; ++run) {
        std::this_thread::sleep_for(std::chrono::microseconds{20'000 + random() % 20'000});
        for (int i = 0; i < recording.executions; ++i) {
            recorder.begin(static_cast<std::uint32_t>(run), static_cast<std::uint32_t>(i));
            for (int k = 0; k < recording.launches; ++k) workload.launch(stream.get());
        }
        recorder.end(static_cast<std::uint32_t>(run),
                     static_cast<std::uint32_t>(recording.executions));
        recorder.finish();
    }
    for (const Run& run : recorder.runs()) {
        csv.row(set, run.kind, run.number, (run.start - origin).count(),
                (run.end - origin).count());
    }
}

void record_fingrav(Bench& bench) {
    std::printf("\nfine-grain power: recording executions\n");
    constexpr int runs = 250;
    Stream stream;
    PowerLog log{bench.board};
    const TimePoint origin = now();
    {
        CsvFile csv{bench.folder, "fingrav_executions.csv",
                    bench.about + "; two independent sets of each kernel",
                    "set,run,execution,start_ns,end_ns"};
        for (const char* repeat : {"a", "b"}) {
            // About 100 ms of work: the power is steady at the end.
            for (const Recording& recording :
                 {Recording{"gemm_8192", 1, 64}, {"gemm_2048", 32, 112}, {"copy", 1, 128}}) {
                const std::string set = std::string{recording.kernel} + '_' + repeat;
                record_executions(bench, bench.workloads.named(recording.kernel), recording, runs,
                                  set, csv, stream, origin);
                std::printf("  %s: %d runs of %d executions of %d launches\n", set.c_str(), runs,
                            recording.executions, recording.launches);
            }
        }
    }
    log.stop();
    write_power(log, origin, {bench.folder, "fingrav_power.csv", bench.about, "time_ns,watts"});
}

// ---- the clock that held ----

void hold_clock(Bench& bench, const char* name, const Workload& workload, double busy_share,
                CsvFile& csv) {
    Stream stream;
    RunRecorder recorder{bench.cuda, stream};
    std::this_thread::sleep_for(seconds{1});
    PowerLog log{bench.board};
    const TimePoint begin = now();
    std::uint32_t number = 0;
    while (now() - begin < seconds{30}) {
        recorder.begin(0, number);
        run_for(workload, stream.get(), 20);
        recorder.end(0, number++);
        recorder.finish();
        if (busy_share < 1) {
            std::this_thread::sleep_for(
                std::chrono::microseconds{static_cast<int>(20'000 * (1 / busy_share - 1))});
        }
    }
    log.stop();
    double cycles = 0;
    double nanoseconds = 0;
    std::size_t counted = 0;
    for (const Run& run : recorder.runs()) {
        if (run.core_cycles == 0) continue;
        ++counted;
        cycles += static_cast<double>(run.core_cycles);
        nanoseconds += static_cast<double>((run.end - run.start).count());
    }
    std::vector<double> seen;
    int capped = 0;
    for (const ClockReading& reading : log.clocks()) {
        seen.push_back(reading.core.count);
        capped += reading.reasons.power_cap() ? 1 : 0;
    }
    const double held = nanoseconds == 0 ? 0 : cycles / nanoseconds * 1e3;
    const double mean =
        std::accumulate(seen.begin(), seen.end(), 0.0) / static_cast<double>(seen.size());
    const Percentiles p{seen};
    std::printf(
        "  %-24s held %7.1f MHz (%zu of %zu runs counted), NVML mean %7.1f (%.0f to %.0f), "
        "difference %+.2f %%, power-capped in %d of %zu readings\n",
        name, held, counted, recorder.runs().size(), mean, p.at(0.01), p.at(0.99),
        100 * (held - mean) / mean, capped, seen.size());
    csv.row(name, held, counted, recorder.runs().size(), mean, p.at(0.01), p.at(0.99),
            100 * (held - mean) / mean, capped, seen.size());
}

void measure_held_clock(Bench& bench) {
    std::printf("\nthe core clock that held, over 30 s\n");
    CsvFile csv{bench.folder, "held_clock.csv", bench.about,
                "load,held_mhz,runs_counted,runs,nvml_mean_mhz,nvml_p1_mhz,nvml_p99_mhz,"
                "difference_pct,power_capped_readings,readings"};
    hold_clock(bench, "power-capped (gemm_8192)", bench.workloads.named("gemm_8192"), 1, csv);
    hold_clock(bench, "light (gemv, half idle)", bench.workloads.named("gemv"), 0.5, csv);
}

int run(const std::filesystem::path& folder, const std::string& part) {
    Bench bench{.folder = folder};
    std::printf("%s\n", bench.about.c_str());
    for (const Workload& workload : bench.workloads.list()) {
        std::printf("  %-12s %10.1f us a launch\n", workload.name.c_str(), workload.microseconds);
    }
    const bool all = part == "all";
    if (all || part == "meter") measure_meter(bench);
    if (all || part == "mix") record_mix(bench);
    if (all || part == "fingrav") record_fingrav(bench);
    if (all || part == "clock") measure_held_clock(bench);
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        return run(count > 1 ? arguments[1] : ".", count > 2 ? arguments[2] : "all");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "power: %s\n", error.what());
        return 2;
    }
}
