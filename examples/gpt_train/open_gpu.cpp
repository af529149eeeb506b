// SPDX-License-Identifier: MIT
#include "open_gpu.hpp"

#if defined(__HIP_PLATFORM_AMD__)
#include <kdvfs/rocm.hpp>
#else
#include <kdvfs/nvidia.hpp>
#endif
#include <kdvfs/error.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/report.hpp>

#include <cstddef>
#include <fstream>
#include <iomanip>
#include <iostream>

namespace gpt {

#if defined(__HIP_PLATFORM_AMD__)
/// Drives the clocks where it may, and measures where it may not.
kdvfs::Gpu open_gpu(kdvfs::GpuOptions options) {
    options.on_refused = kdvfs::OnRefused::measure_only;
    return kdvfs::rocm::open(0, options);
}
#else
/// Measures only: NVIDIA GPUs are often shared. `kdvfs::nvidia::open` drives their clocks.
kdvfs::Gpu open_gpu(kdvfs::GpuOptions options) { return kdvfs::nvidia::measure(0, options); }
#endif

namespace {

/// What is metered, as it was seen.
struct Recording : kdvfs::Gpu {
    explicit Recording(const kdvfs::Gpu& gpu) : kdvfs::Gpu{gpu} {}
    void keep() const { service().keep_record(true); }
    [[nodiscard]] kdvfs::measure::MeterRecord take() const { return service().take_record(); }
};

template <class Write>
void write(const std::filesystem::path& path, Write write) {
    std::ofstream out{path};
    write(out);
    out.close();
    if (!out) {
        throw kdvfs::Error{kdvfs::Errc::io,
                           {"write", path.string(), "", "name a folder that can be written to"}};
    }
}

}  // namespace

void keep_record(const kdvfs::Gpu& gpu) { Recording{gpu}.keep(); }

void print_report(const kdvfs::Gpu& gpu, const std::filesystem::path& folder) {
    const kdvfs::measure::MeterRecord record = Recording{gpu}.take();
    const kdvfs::measure::Report report = gpu.report();
    std::cout << report << std::flush;
    if (folder.empty()) return;
    write(folder / "report.json", [&](std::ostream& out) { write_json(out, report); });
    if (record.runs.empty()) return;
    write(folder / "runs.csv", [&](std::ostream& out) {
        out << "kernel,place,start_ns,length_ns,ends_scope\n";
        for (const auto& [run, window] : record.runs) {
            out << run.kernel.value << ',' << run.place << ','
                << run.start.time_since_epoch().count() << ',' << (run.end - run.start).count()
                << ',' << (run.ends_scope ? 1 : 0) << '\n';
        }
    });
    write(folder / "samples.csv", [&](std::ostream& out) {
        out << std::setprecision(12) << "time_ns,joules,segment\n";
        for (const auto& sample : record.samples) {
            out << sample.at.time_since_epoch().count() << ',' << sample.total.count << ','
                << sample.segment << '\n';
        }
    });
    write(folder / "power.csv", [&](std::ostream& out) {
        out << "time_ns,watts\n";
        for (const auto& sample : record.power) {
            out << sample.sampled_at.time_since_epoch().count() << ',' << sample.watts.count
                << '\n';
        }
    });
    write(folder / "marks.csv", [&](std::ostream& out) {
        out << "what,first,second,third\n";
        for (std::size_t i = 0; i < report.rows.size(); ++i) {
            const auto& row = report.rows[i];
            if (row.kept) continue;
            out << "kernel," << i << ',' << row.kernel.name << ',' << row.kernel.variant.index
                << '\n';
        }
        for (const auto& [parent, enclosing] : record.places) {
            out << "place," << parent << ',' << enclosing.value << ",\n";
        }
        for (const auto& [at, on] : record.metering) {
            out << "metering," << at.time_since_epoch().count() << ',' << (on ? 1 : 0) << ",\n";
        }
        for (const auto& [at, mark] : record.iterations) {
            out << "iteration," << at.time_since_epoch().count() << ',' << static_cast<int>(mark)
                << ",\n";
        }
        for (const auto& [kernel, applied, figure] : record.repeated) {
            out << "repeated," << kernel.value << ',' << figure.power.count << ','
                << figure.half_width.count << '\n';
        }
    });
}

}  // namespace gpt
