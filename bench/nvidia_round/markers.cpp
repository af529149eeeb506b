// SPDX-License-Identifier: MIT
// What markers cost on a real GPU: the stream, in streams and in graphs, and the host; every other
// way that a level could be written beside them, and scopes that put two or none.
//   markers OUTPUT_FOLDER
#include "marker_cost.hpp"
#include "probe_kernels.hpp"
#include "round.hpp"

#include <kdvfs/cuda_markers.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>
#include <kdvfs/detail/device/nvidia/nvml_readings.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using kdvfs::device::Cuda;
using kdvfs::device::MarkerWay;
using namespace measuring;

constexpr int kernels_per_batch = 64;
constexpr std::uint64_t kernel_nanoseconds = 15'000;

/// kernel, X, kernel, X, ... behind a kernel long enough for the host to run ahead.
void put_batch(cudaStream_t stream, const Between& between, Probe* probes, bool head_start) {
    if (head_start) probe<><<<1, 1, 0, stream>>>(nullptr, nullptr, 3'000'000);
    for (int i = 0; i < kernels_per_batch; ++i) {
        probe<><<<1, 1, 0, stream>>>(probes + i, nullptr, kernel_nanoseconds);
        if (between.put) between.put(stream);
    }
    check(cudaGetLastError(), "launch probes");
}

void take_gaps(const DeviceArray<Probe>& probes, std::vector<double>& microseconds) {
    const std::vector<Probe> seen = probes.read();
    for (int i = 0; i + 1 < kernels_per_batch; ++i) {
        const auto at = static_cast<std::size_t>(i);
        microseconds.push_back(
            (static_cast<double>(seen[at + 1].start) - static_cast<double>(seen[at].end)) * 1e-3);
    }
}

/// The gaps between kernels with each thing between them, batches of all kinds in turn.
std::vector<std::vector<double>> measure_gaps(const std::vector<Between>& kinds, int batches,
                                              bool graphs) {
    Stream stream;
    DeviceArray<Probe> probes{kernels_per_batch};
    std::vector<std::vector<double>> gaps(kinds.size());
    std::vector<std::unique_ptr<Graph>> made(kinds.size());
    for (std::size_t k = 0; graphs && k < kinds.size(); ++k) {
        if (!kinds[k].in_graphs) continue;
        made[k] = std::make_unique<Graph>(
            stream, [&] { put_batch(stream.get(), kinds[k], probes.data(), false); });
    }
    for (int batch = -1; batch < batches; ++batch) {
        for (std::size_t k = 0; k < kinds.size(); ++k) {
            if (graphs && !made[k]) continue;
            if (graphs) {
                made[k]->replay(stream);
            } else {
                put_batch(stream.get(), kinds[k], probes.data(), true);
            }
            stream.synchronize();
            std::vector<double> batch_gaps;
            take_gaps(probes, batch_gaps);
            if (batch < 0) continue;  // warm-up
            gaps[k].insert(gaps[k].end(), batch_gaps.begin(), batch_gaps.end());
        }
    }
    return gaps;
}

void report_gaps(const std::vector<Between>& kinds, const std::vector<std::vector<double>>& gaps,
                 const char* place, CsvFile& csv) {
    const double bare = Percentiles{gaps[0]}.median();
    std::printf(
        "\nstream time between two kernels in a %s (us), and what is added to the median\n"
        "%-28s %8s %8s %8s %8s %10s %10s\n",
        place, "between them", "median", "p90", "p99", "max", "added", "p99 added");
    for (std::size_t k = 0; k < kinds.size(); ++k) {
        if (gaps[k].empty()) continue;
        const Percentiles p{gaps[k]};
        std::printf("%-28s %8.2f %8.2f %8.2f %8.2f %10.2f %10.2f\n", kinds[k].name.c_str(),
                    p.median(), p.at(0.9), p.at(0.99), p.at(1), p.median() - bare,
                    p.at(0.99) - bare);
        csv.row(place, kinds[k].name, p.size(), p.median(), p.at(0.9), p.at(0.99), p.at(1),
                p.median() - bare, p.at(0.99) - bare);
    }
}

std::vector<Between> things_between(std::map<MarkerWay, std::unique_ptr<Cuda>>& runtimes,
                                    cudaEvent_t event) {
    std::vector<Between> kinds{{"nothing", true, {}}};
    for (auto& [way, cuda] : runtimes) {
        const auto marker = [&cuda, cell = cuda->make_cell()](bool timestamped) {
            return [&cuda, cell, timestamped](cudaStream_t stream) {
                cuda->put_marker(stream, {cell, kdvfs::RequestWord{3}, {}, timestamped});
            };
        };
        if (way == MarkerWay::kernel) {
            kinds.push_back({"marker kernel with timestamp", true, marker(true)});
            kinds.push_back({"marker kernel, no timestamp", true, marker(false)});
        } else {
            kinds.push_back(
                {std::string{to_string(way)}, way != MarkerWay::callback, marker(false)});
        }
    }
    kinds.push_back({"event record", false, [event](cudaStream_t stream) {
                         check(cudaEventRecord(event, stream), "record an event");
                     }});
    return kinds;
}

/// What any kernel of one thread costs that does nothing.
Between another_kernel() {
    return {"another kernel", true,
            [](cudaStream_t stream) { probe<><<<1, 1, 0, stream>>>(nullptr, nullptr, 0); }};
}

struct Outer : kdvfs::Kernel<"outer"> {};
struct Inner : kdvfs::Kernel<"inner"> {};
using Scopes = kdvfs::PolicyRegistry<kdvfs::Bind<"outer", kdvfs::CapClock<kdvfs::Megahertz{1300}>>,
                                     kdvfs::Bind<"inner", kdvfs::CapClock<kdvfs::Megahertz{1100}>>,
                                     kdvfs::Unmetered>;

/// A GPU whose scopes put their markers, and whose clocks nobody drives: it has no actuator.
kdvfs::BoundGpu<Scopes> undriven_gpu(Cuda& cuda) {
    return doubles::open_undriven(doubles::borrowed(cuda)).with<Scopes>();
}

/// Scopes that switch put two markers; scopes with the request around them put none.
void add_scopes(const kdvfs::BoundGpu<Scopes>& gpu, std::vector<Between>& kinds) {
    using OuterScope = kdvfs::FrequencyScope<Outer>;
    const auto inside_outer = [&gpu](cudaStream_t stream) -> std::shared_ptr<void> {
        return std::make_shared<OuterScope>(gpu, stream);
    };
    kinds.push_back({"scope, other request", true,
                     [&gpu](cudaStream_t stream) {
                         const kdvfs::FrequencyScope<Inner> scope{gpu, stream};
                     },
                     inside_outer});
    kinds.push_back({"nested scope, same request", true,
                     [&gpu](cudaStream_t stream) {
                         const OuterScope scope{gpu, stream};
                     },
                     inside_outer});
}

void measure_host_time(Cuda& cuda, const std::string& about, const std::filesystem::path& folder) {
    Stream stream;
    kdvfs::RequestCell* const cell = cuda.make_cell();
    std::vector<double> microseconds;
    for (int round = 0; round < 50; ++round) {
        probe<><<<1, 1, 0, stream.get()>>>(nullptr, nullptr, 3'000'000);
        const TimePoint start = now();
        for (int i = 0; i < 256; ++i) {
            cuda.put_marker(stream.get(), {cell, kdvfs::RequestWord{1}, {}, true});
        }
        const Duration took = now() - start;
        if (round > 0) microseconds.push_back(static_cast<double>(took.count()) / 256e3);
        stream.synchronize();
        std::array<kdvfs::MarkerTimestamp, 256> timestamps;
        while (cuda.drain_timestamps(timestamps) > 0) {
        }
    }
    const Percentiles p{microseconds};
    std::printf("\nhost time per marker: %.2f us median of 49 rounds of 256, %.2f us worst round\n",
                p.median(), p.at(1));
    CsvFile csv{folder, "marker_host_time.csv", about, "median_us,p90_us,worst_us"};
    csv.row(p.median(), p.at(0.9), p.at(1));
}

int run(const std::filesystem::path& folder) {
    const std::string address = kdvfs::device::pci_address<kdvfs::device::CudaApi>(0);
    const kdvfs::device::NvmlReadings board{address};
    const std::string about = machine(0, board.driver_version());
    std::printf("%s\n", about.c_str());
    check(cudaSetDevice(0), "use the device");
    CsvFile costs{folder, "marker_cost.csv", about,
                  "place,neighbours,between,batches,median_us,p10_us,p90_us"};
    std::printf("\nbetween kernels of a graph while the process has made no other stream\n");
    report_added(MarkerCost{{{"nothing", true, {}}, another_kernel()}}.measure(40, true), costs,
                 " of a sole stream");

    std::map<MarkerWay, std::unique_ptr<Cuda>> runtimes;
    for (const MarkerWay way :
         {MarkerWay::kernel, MarkerWay::stream_write, MarkerWay::memset, MarkerWay::callback}) {
        try {
            runtimes[way] = std::make_unique<Cuda>(0, way);
        } catch (const kdvfs::Error& error) {
            runtimes.erase(way);
            std::printf("%s: %s\n", std::string{to_string(way)}.c_str(), error.what());
        }
    }
    std::printf(
        "device clock placed within %lld ns\n",
        static_cast<long long>(runtimes.at(MarkerWay::kernel)->clock_uncertainty().count()));
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "make an event");
    std::vector<Between> kinds = things_between(runtimes, event);
    CsvFile csv{folder, "marker_gaps.csv", about,
                "place,between,count,median_us,p90_us,p99_us,max_us,added_median_us,added_p99_us"};
    report_gaps(kinds, measure_gaps(kinds, 60, false), "stream", csv);
    report_gaps(kinds, measure_gaps(kinds, 100, true), "graph", csv);

    const auto gpu = undriven_gpu(*runtimes.at(MarkerWay::kernel));
    add_scopes(gpu, kinds);
    kinds.push_back(another_kernel());
    std::erase_if(kinds, [](const Between& between) {
        return between.name == to_string(MarkerWay::callback);  // it would take seconds
    });
    std::printf("\nwhat is added between kernels, by events around batches\n");
    MarkerCost cost{kinds};
    report_added(cost.measure(40, false), costs);
    report_added(cost.measure(40, true), costs);
    measure_host_time(*runtimes.at(MarkerWay::kernel), about, folder);
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        return run(count > 1 ? arguments[1] : ".");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "markers: %s\n", error.what());
        return 2;
    }
}
