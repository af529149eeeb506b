// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
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
/// than about a quarter are other programs. The oldest folders are removed.
class ProfileStore {
public:
    static constexpr std::size_t most_programs = 64;

    /// @param folder made where it is not there; of this user alone
    explicit ProfileStore(std::filesystem::path folder) : folder_{std::move(folder)} {}

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
        return own / "profile.csv";
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
};

}  // namespace kdvfs::inline v0_3::tune::detail
