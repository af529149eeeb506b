// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <system_error>
#include <vector>

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

/// The options of the commands that have another program measure a GPU and keep what it finds.
struct MeasuringProgram {
    std::string vendor;
    std::string device = "0";
    std::string program;
    bool machine = false;
    std::string output;

    void add_gpu_options(CLI::App& sub) {
        sub.add_option("--vendor", vendor,
                       "amd or nvidia; else nvidia where its driver is loaded, amd elsewhere")
            ->check(CLI::IsMember({"amd", "nvidia"}));
        sub.add_option("--device", device, "Number that HIP or CUDA gives the GPU, or sim:NAME")
            ->capture_default_str();
    }
    /// @param name of the program
    /// @param file what is said of `--output`
    void add_program_options(CLI::App& sub, const std::string& name, const std::string& file) {
        sub.add_option("--program", program,
                       "The program " + name + "; else the one installed beside this one");
        CLI::Option* everyone =
            sub.add_flag("--machine", machine, "Keep it for all users of this machine");
        sub.add_option("-o,--output", output, file)->excludes(everyone);
    }
    /// The command line of a program, up to the options that it has alone.
    std::vector<std::string> line(const char* action,
                                  std::initializer_list<const char*> names) const {
        const std::string path = find_bench_program(program, action, names);
        if (device.starts_with("sim:")) return {path, "--board", device.substr(4)};
        return {path, "--vendor", vendor_here(vendor), "--device", device};
    }
};

}  // namespace cli
