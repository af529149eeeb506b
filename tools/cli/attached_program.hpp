// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <regex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cli {

/// @throws Error (invalid_input) for what is no regular expression: the program would run without
/// it
inline void refuse_no_expression(const char* option, const std::string& text) {
    try {
        const std::regex tried{text};
    } catch (const std::regex_error& error) {
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {std::string{"take the option "} + option, text, error.what(),
                            "give a regular expression (ECMAScript)"}};
    }
}

/// How `libkdvfs_attach.so` is put into a program that knows nothing of kdvfs, and what it looks
/// at there.
struct AttachOptions {
    std::string match;
    std::string level = "kernel";
    std::string iteration;
    bool preload = false;
    bool old_kokkos = false;

    void add_to(CLI::App& sub) {
        sub.add_option(
               "--level", level,
               "What energy is reported of: kernels, or kernels and the ranges that the program "
               "names (NVTX, roctx, Kokkos)")
            ->check(CLI::IsMember({"kernel", "range"}))
            ->capture_default_str();
        sub.add_option("--match", match,
                       "A regular expression: other kernels are reported together, other ranges "
                       "are none");
        sub.add_option("--iteration", iteration,
                       "The range that is an iteration; else found by itself");
        sub.add_flag("--preload", preload,
                     "Load the library before the program's own, as HIP programs and those with a "
                     "profiler of their own need it, even where no AMD or NVIDIA GPU is seen");
        sub.add_flag("--old-kokkos", old_kokkos,
                     "The program has Kokkos before 3.7, which reads KOKKOS_PROFILE_LIBRARY; "
                     "later ones complain about that");
    }

    /// The variables that attach it, which leave its reports in `folder`. Says on standard error
    /// where another tool is in the way.
    /// @throws Error (invalid_input) where there is no libkdvfs_attach.so, or `match` is no regular
    ///         expression
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> variables(
        const std::filesystem::path& folder) const {
        refuse_no_expression("--match", match);
        const std::string library = find_library().string();
        std::vector<std::pair<std::string, std::string>> changes{
            {"NVTX_INJECTION64_PATH", library},
            {"KDVFS_NVTX_NEXT", another("NVTX_INJECTION64_PATH", "KDVFS_NVTX_NEXT", library)},
            {"KOKKOS_TOOLS_LIBS", library},
            {"KDVFS_KOKKOS_NEXT", another("KOKKOS_TOOLS_LIBS", "KDVFS_KOKKOS_NEXT", library)},
            {"KDVFS_ATTACH_LEVEL", level},
            {"KDVFS_ATTACH_MATCH", match},
            {"KDVFS_ATTACH_ITERATION", iteration},
            {"KDVFS_ATTACH_FOLDER", folder.string()}};
        if (old_kokkos) {
            changes.emplace_back("KOKKOS_PROFILE_LIBRARY", library);
            if (const std::string next =
                    another("KOKKOS_PROFILE_LIBRARY", "KDVFS_KOKKOS_NEXT", library);
                !next.empty()) {
                changes.emplace_back("KDVFS_KOKKOS_NEXT", next);
            }
        }
        if (kdvfs::io::environment("CUDA_INJECTION64_PATH").empty()) {
            changes.emplace_back("CUDA_INJECTION64_PATH", library);
        } else {
            std::cerr << "kdvfs: another tool is injected (CUDA_INJECTION64_PATH): launches are "
                         "not seen\n";
        }
        std::error_code ignored;
        // HIP's launches and CUPTI's functions are looked up in it first.
        if (preload || std::filesystem::exists("/dev/kfd", ignored) ||
            std::filesystem::exists("/dev/nvidiactl", ignored)) {
            changes.emplace_back("LD_PRELOAD", added_to("LD_PRELOAD", library, ':'));
        }
        return changes;
    }

private:
    /// What was in a list-valued variable stays in it.
    static std::string added_to(const char* name, const std::string& value, char separator) {
        const std::string before{kdvfs::io::environment(name)};
        return before.empty() ? value : before + separator + value;
    }

    /// The tool that a variable names already, which this library passes on to: of several the
    /// first, as NVTX and Kokkos load one. Within another `kdvfs run` that of the outer one.
    static std::string another(const char* name, const char* next, const std::string& library) {
        std::string before{kdvfs::io::environment(name)};
        before.resize(std::min(before.find(';'), before.size()));
        return before == library ? std::string{kdvfs::io::environment(next)} : before;
    }

    /// The library beside this program: in its folder, in ../lib, or as `KDVFS_ATTACH` says.
    static std::filesystem::path find_library() {
        std::error_code ignored;
        if (const auto path = kdvfs::io::environment("KDVFS_ATTACH"); !path.empty()) {
            if (std::filesystem::exists(path, ignored)) return std::filesystem::absolute(path);
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"attach to a program", "KDVFS_ATTACH=" + std::string{path},
                                "there is no such file", "give libkdvfs_attach.so, or unset it"}};
        }
        const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
        for (const char* place :
             {"libkdvfs_attach.so", "../lib/libkdvfs_attach.so", "../lib/kdvfs/libkdvfs_attach.so",
              "../attach/libkdvfs_attach.so"}) {
            if (std::filesystem::exists(folder / place, ignored)) {
                return std::filesystem::canonical(folder / place, ignored);
            }
        }
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"attach to a program", "libkdvfs_attach.so",
                            "it is not beside " + folder.string() + "/kdvfs",
                            "say where it is: KDVFS_ATTACH=.../libkdvfs_attach.so"}};
    }
};

}  // namespace cli
