// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/launch_trace.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// What a stored profile is found by: the same work on the same kind of board.
struct StoredProgram {
    std::string gpu;                 ///< as `gpu_name` calls it
    std::string setting;             ///< how clocks are set
    std::vector<KernelKey> kernels;  ///< of an iteration, each once, ascending
    Seconds iteration{0};            ///< as found
};

/// The versions of the GPU drivers that are loaded; empty where the kernel does not say.
inline std::string loaded_drivers() {
    std::string versions;
    for (const char* module : {"amdgpu", "nvidia"}) {
        std::ifstream file{std::string{"/sys/module/"} + module + "/version"};
        std::string version{std::istreambuf_iterator<char>{file}, {}};
        if (!version.empty()) versions += std::string{module} + ' ' + version;
    }
    return versions;
}

/// The sweep files that a user's runs share: a folder for each program on a board, named after a
/// hash of what it is found by, so that it tells no kernel's name. Iterations that differ by more
/// than about a quarter are other programs. The oldest folders are removed, and so are those that
/// have grown too large. What the user has not is taken from the site's store, which is only read.
class ProfileStore {
public:
    static constexpr std::size_t most_programs = 64;

    static constexpr std::uintmax_t most_bytes = 16U << 20U;  ///< of a program's files, each

    /// @param folder made where it is not there; of this user alone
    /// @param site a store whose files are this user's or root's; empty: there is none
    explicit ProfileStore(std::filesystem::path folder, std::filesystem::path site = {})
        : folder_{std::move(folder)}, site_{std::move(site)} {}

    /// The sweep file of a program: made by whoever opens it. Removes the oldest programs.
    /// @throws std::filesystem::filesystem_error where the folder cannot be made
    [[nodiscard]] std::filesystem::path file_of(const StoredProgram& program) const {
        namespace fs = std::filesystem;
        const fs::path own = folder_ / name_of(program);
        if (!fs::exists(folder_)) {
            fs::create_directories(folder_);
            fs::permissions(folder_, fs::perms::owner_all);
        }
        fs::create_directories(own);
        std::error_code ignored;
        fs::last_write_time(own, fs::file_time_type::clock::now(), ignored);
        remove_oldest();
        const fs::path file = own / "profile.csv";
        for (const fs::path& each : files_of(file))
            if (fs::file_size(each, ignored) > most_bytes && !ignored) fs::remove(each, ignored);
        if (!site_.empty() && !fs::exists(file)) copy_from_site(program, file);
        return file;
    }

private:
    static std::string name_of(const StoredProgram& program) {
        std::string text = program.gpu + '\n' + program.setting + '\n' + loaded_drivers() + '\n';
        for (const KernelKey& key : program.kernels) text += to_string(key) + '\n';
        constexpr double steps = 3;  // for each doubling of the iteration's time
        const double size = std::log2(std::max(program.iteration.count(), 1e-9));
        text += std::to_string(std::lround(steps * size));
        const std::string hash = kdvfs::detail::content_hash(text);
        return hash.substr(hash.find(':') + 1);
    }

    static std::array<std::filesystem::path, 3> files_of(const std::filesystem::path& file) {
        return {file, sequence_path(file), trace_path(file)};
    }

    /// What the site knows of the program, as far as its files can be trusted.
    void copy_from_site(const StoredProgram& program, const std::filesystem::path& file) const {
        const auto from = files_of(site_ / name_of(program) / "profile.csv");
        const auto to = files_of(file);
        std::error_code ignored;
        try {
            for (std::size_t i = 0; i < from.size(); ++i)
                if (std::filesystem::file_size(from[i], ignored) <= most_bytes && !ignored)
                    kdvfs::detail::write_file_atomically(to[i], read_trusted_file(from[i]));
        } catch (const Error&) {  // others may write it, or the disk is full: done without
        }
    }

    void remove_oldest() const {
        namespace fs = std::filesystem;
        std::error_code ignored;
        std::vector<std::pair<fs::file_time_type, fs::path>> programs;
        for (const auto& entry : fs::directory_iterator{folder_, ignored})
            if (entry.is_directory(ignored))
                programs.emplace_back(entry.last_write_time(ignored), entry.path());
        if (programs.size() <= most_programs) return;
        std::sort(programs.begin(), programs.end());
        programs.resize(programs.size() - most_programs);
        for (const auto& [used, path] : programs) fs::remove_all(path, ignored);
    }

    std::filesystem::path folder_;
    std::filesystem::path site_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
