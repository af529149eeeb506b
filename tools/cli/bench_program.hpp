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

/// The GPU that such a program measures, and for whom what it finds is kept.
struct MeasuredBoard {
    std::string vendor;
    std::string device = "0";
    std::string program;  ///< a path, instead of the one installed beside this program
    bool machine = false;
    std::string output;

    void add_gpu(CLI::App& command) {
        command
            .add_option("--vendor", vendor,
                        "amd or nvidia; else nvidia where its driver is loaded, amd elsewhere")
            ->check(CLI::IsMember({"amd", "nvidia"}));
        command
            .add_option("--device", device, "Number that HIP or CUDA gives the GPU, or sim:NAME")
            ->capture_default_str();
    }
    /// @param name of the program
    /// @param file what --output does with it
    void add_program(CLI::App& command, const std::string& name, const std::string& file) {
        command.add_option("--program", program,
                           "The program " + name + "; else the one installed beside this one");
        CLI::Option* everyone =
            command.add_flag("--machine", machine, "Keep it for all users of this machine");
        command.add_option("-o,--output", output, file)->excludes(everyone);
    }
    [[nodiscard]] bool is_simulated() const { return device.starts_with("sim:"); }
    /// The program's options for the GPU.
    [[nodiscard]] std::vector<std::string> gpu_options() const {
        if (is_simulated()) return {"--board", device.substr(4)};
        std::error_code failed;
        const bool has_nvidia = std::filesystem::exists("/dev/nvidiactl", failed);
        return {"--vendor",
                !vendor.empty() ? vendor
                : has_nvidia    ? "nvidia"
                                : "amd",
                "--device", device};
    }
};

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
