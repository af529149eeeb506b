// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <system_error>

namespace cli {

/// The vendor whose GPU is measured: as the option says, else NVIDIA where its driver is loaded.
inline std::string vendor_here(const std::string& option) {
    std::error_code failed;
    if (!option.empty()) return option;
    return std::filesystem::exists("/dev/nvidiactl", failed) ? "nvidia" : "amd";
}

/// A program that measures a GPU, beside this one.
/// @param option a path that was given instead
/// @param action what it is needed for
/// @param names  as installed, then as built, from this program's folder
/// @throws Error (invalid_input) where it is not there
inline std::string find_bench_program(const std::string& option, const char* action,
                                      std::initializer_list<const char*> names) {
    if (!option.empty()) return option;
    std::error_code failed;
    const std::filesystem::path here =
        std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
    for (const char* name : names)
        if (std::filesystem::exists(here / name, failed)) return (here / name).string();
    throw kdvfs::Error{
        kdvfs::Errc::invalid_input,
        {action, here.string(), "the program " + std::string{*names.begin()} + " is not there",
         "build it (tools/switch_latency) and name it with --program"}};
}

}  // namespace cli
