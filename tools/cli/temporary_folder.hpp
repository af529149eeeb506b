// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace cli {

/// The temporary folders that are there, for a handler of signals, which must not allocate.
class FoldersOfSignals {
public:
    /// @returns a place, or nothing where there is none left or the path is too long
    static std::optional<std::size_t> add(const std::string& path) {
        [[maybe_unused]] static const bool handles = handle();
        for (std::size_t i = 0; i < places.size(); ++i) {
            if (places[i].used != 0 || path.size() >= places[i].path.size()) continue;
            std::copy_n(path.c_str(), path.size() + 1, places[i].path.begin());
            places[i].used = 1;
            return i;
        }
        return std::nullopt;
    }
    static void drop(std::size_t place) { places[place].used = 0; }

private:
    struct Place {
        volatile std::sig_atomic_t used;
        std::array<char, PATH_MAX> path;
    };
    static inline std::array<Place, 8> places{};
    static inline pid_t owner = 0;

    /// A signal that is ignored, as by nohup, stays so.
    static bool handle() {
        owner = ::getpid();
        for (const int number : {SIGHUP, SIGINT, SIGTERM}) {
            struct sigaction action {};
            if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL)
                continue;
            action.sa_handler = remove_and_end;
            ::sigaction(number, &action, nullptr);
        }
        return true;
    }
    static void remove_and_end(int number) {
        for (const Place& place : places) {
            if (place.used == 0 || ::getpid() != owner) continue;
            const pid_t remover = ::fork();
            if (remover == 0) {
                ::execl("/bin/rm", "rm", "-rf", "--", place.path.data(), nullptr);
                ::_exit(127);
            }
            if (remover > 0) ::waitpid(remover, nullptr, 0);
        }
        ::signal(number, SIG_DFL);
        ::raise(number);  // delivered when this returns
    }
};

/// A folder that nobody else can write to; it goes with what is in it, also where SIGHUP,
/// SIGINT or SIGTERM ends this process.
struct TemporaryFolder {
    std::filesystem::path path = make();

    TemporaryFolder() = default;
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
        if (place_) FoldersOfSignals::drop(*place_);
    }

private:
    static std::filesystem::path make() {
        std::error_code none;
        const auto around = std::filesystem::temp_directory_path(none);
        if (none)
            kdvfs::io::throw_file_error("find a folder for temporary files",
                                        "TMPDIR=" + std::string{kdvfs::io::environment("TMPDIR")},
                                        none.value());
        std::string name = (around / "kdvfs_XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr)
            kdvfs::io::throw_file_error("make a folder", name, errno);
        return name;
    }

    std::optional<std::size_t> place_ = FoldersOfSignals::add(path.string());
};

}  // namespace cli
