// SPDX-License-Identifier: MIT
//
// A double of libamd_smi, built once per ABI (AMD_SMI_ABI): the functions that kdvfs calls, as its
// header of that ABI declares them, written over the driver's files in the words of its source
// (which is ROCm SMI's). In the environment AMD_SMI_DOUBLE may name a fault: "no_gpu",
// "init_fails", or "resets_other_domain": a limit of one clock takes that of the other away, as
// reported for the real one.
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/rocm_smi.hpp>
#include <kdvfs/detail/device/amd/system_files.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>

namespace {

enum Status : std::uint32_t {
    success = 0,
    invalid = 1,
    not_supported = 2,
    no_permission = 10,
    init_error = 18,
    not_found = 31,
    not_init = 32,
};

int starts = 0;

/// The folders behind the handles, which stay valid.
std::deque<std::string>& folders() {
    static std::deque<std::string> known;
    return known;
}

bool has_fault(std::string_view fault) {
    const char* const set = std::getenv("AMD_SMI_DOUBLE");
    return set != nullptr && set == fault;
}

Status write(void* handle, const char* file, const std::string& text) {
    if (starts == 0) return not_init;
    if (handle == nullptr) return invalid;
    if (::geteuid() != 0) return no_permission;
    const auto& folder = *static_cast<std::string*>(handle);
    switch (kdvfs::device::amd::write_file(folder + "/" + file, text)) {
        case 0: return success;
        case EACCES:
        case EPERM: return no_permission;
        default: return not_supported;
    }
}

Status write_level(void* handle, const std::string& level) {
    return write(handle, "power_dpm_force_performance_level", level);
}

/// Each text until one is refused.
template <class... Texts>
Status write_table(void* handle, const Texts&... texts) {
    Status status = success;
    static_cast<void>(
        ((status = write(handle, "pp_od_clk_voltage", texts), status == success) && ...));
    return status;
}

std::string edit(std::uint32_t domain, std::uint32_t end, std::uint64_t clock) {
    return (domain == 0 ? "s " : "m ") + std::to_string(end) + " " + std::to_string(clock) + "\n";
}

Status set_limit(void* handle, std::uint32_t domain, std::uint32_t end, std::uint64_t clock) {
    if (domain != 0 && domain != 4) return invalid;
    if (const Status status = write_level(handle, "manual"); status != success) return status;
    const Status status = write_table(handle, edit(domain, end, clock), std::string{"c\n"});
    const bool resets = domain == 4 && has_fault("resets_other_domain");
    return status == success && resets ? write_table(handle, std::string{"r\n"}) : status;
}

}  // namespace

extern "C" {

Status amdsmi_init(std::uint64_t) {
    if (has_fault("init_fails")) return init_error;
    ++starts;
    return success;
}

Status amdsmi_shut_down() {
    --starts;
    return success;
}

Status amdsmi_status_code_to_string(Status status, const char** words) {
    switch (status) {
        case no_permission: *words = "AMDSMI_STATUS_NO_PERM - Permission Denied"; break;
        case not_supported: *words = "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported"; break;
        case not_found: *words = "AMDSMI_STATUS_NOT_FOUND - Device Not found"; break;
        default: *words = "AMDSMI_STATUS_UNKNOWN_ERROR - An unknown error occurred"; break;
    }
    return success;
}

Status amdsmi_get_processor_handle_from_bdf(std::uint64_t bdf, void** handle) {
    if (starts == 0) return not_init;
    if (has_fault("no_gpu")) return not_found;
    for (const auto& card : kdvfs::device::amd::find_cards()) {
        const auto at = card.address;
        const std::uint64_t word = std::uint64_t{at.domain} << 16 | std::uint64_t{at.bus} << 8 |
                                   std::uint64_t{at.device} << 3 | at.function;
        if (word != bdf) continue;
        *handle = &folders().emplace_back(card.folder);
        return success;
    }
    return not_found;
}

Status amdsmi_set_gpu_perf_level(void* handle, std::uint32_t level) {
    const auto& words = kdvfs::device::rocm_smi::performance_levels;
    if (level >= words.size()) return invalid;
    return write_level(handle, std::string{words[level]});
}

Status amdsmi_set_gpu_perf_determinism_mode(void* handle, std::uint64_t clock) {
    const Status status = write_level(handle, "perf_determinism");
    return status == success ? write_table(handle, edit(0, 1, clock), std::string{"c\n"}) : status;
}

Status amdsmi_set_clk_freq(void* handle, std::uint32_t domain, std::uint64_t mask) {
    if (domain != 0) return invalid;
    if (const Status status = write_level(handle, "manual"); status != success) return status;
    std::string levels;
    for (unsigned level = 0; level < 64; ++level) {
        if ((mask >> level & 1) != 0) levels += std::to_string(level) + " ";
    }
    return write(handle, "pp_dpm_sclk", levels);
}

#if AMD_SMI_ABI < 27
Status amdsmi_set_gpu_clk_range(void* handle, std::uint64_t lowest, std::uint64_t highest,
                                std::uint32_t domain) {
    if (domain != 0 || lowest >= highest) return invalid;
    if (const Status status = write_level(handle, "manual"); status != success) return status;
    return write_table(handle, edit(0, 0, lowest), edit(0, 1, highest), std::string{"c\n"});
}
Status amdsmi_set_gpu_od_clk_info(void* handle, std::uint32_t end, std::uint64_t clock,
                                  std::uint32_t domain) {
    return set_limit(handle, domain, end, clock);
}
#endif

#if AMD_SMI_ABI > 24
Status amdsmi_set_gpu_clk_limit(void* handle, std::uint32_t domain, std::uint32_t end,
                                std::uint64_t clock) {
    return set_limit(handle, domain, end, clock);
}
#endif

}  // extern "C"
