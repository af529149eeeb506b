// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/detail/device/amd/system_files.hpp>
#include <tests/fuzz/fuzz_target.hpp>

#include <cmath>
#include <span>

/// What the amdgpu driver writes: lists of clocks, the overdrive table, binary metrics.
void fuzzing::fuzz(const std::string& text) {
    using namespace kdvfs::device::amd;
    static_cast<void>(parse_clock_list(text));
    static_cast<void>(parse_overdrive_table(text));
    const auto metrics = parse_gpu_metrics(std::as_bytes(std::span{text}));
    if (!metrics) return;
    if (metrics->energy)
        require(std::isfinite(metrics->energy->count) && metrics->energy->count >= 0,
                "joules are finite");
    if (metrics->power)
        require(std::isfinite(metrics->power->count) && metrics->power->count >= 0,
                "watts are finite");
    if (metrics->core_clock)
        require(*metrics->core_clock <= kdvfs::Megahertz{100'000}, "a core clock is one");
}
