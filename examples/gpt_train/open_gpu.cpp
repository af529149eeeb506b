// SPDX-License-Identifier: MIT
#include "open_gpu.hpp"

#if defined(__HIP_PLATFORM_AMD__)
#include <kdvfs/rocm.hpp>
#else
#include <kdvfs/nvidia.hpp>
#endif
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/report.hpp>

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

}  // namespace

void keep_record(const kdvfs::Gpu& gpu) { Recording{gpu}.keep(); }

void print_report(const kdvfs::Gpu& gpu, const std::filesystem::path& folder) {
    const kdvfs::measure::MeterRecord record = Recording{gpu}.take();
    const kdvfs::measure::Report report = gpu.report();
    std::cout << report << std::flush;
    if (folder.empty()) return;
    kdvfs::measure::record_files::write_file(folder / "report.json",
                                             [&](std::ostream& out) { write_json(out, report); });
    if (record.runs.empty()) return;
    kdvfs::measure::write_record(folder, record);
}

}  // namespace gpt
