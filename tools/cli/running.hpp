// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/restore/place.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

/// How `kdvfs top` finds what `kdvfs run` has running: a file beside the user's restore records
/// says where the reports of a run's processes are.
namespace cli {

/// Whether a folder is this user's alone: under /tmp anybody may have made it first.
inline bool is_own_folder(const std::string& path) {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
           status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// Makes a run known as long as it lives: until then it holds a lock on its file, which is seen
/// in whatever PID namespace. A run that cannot be made known runs all the same.
class KnownRun {
public:
    explicit KnownRun(const std::filesystem::path& reports) {
        const std::string root = kdvfs::restore::RestorePlace::own_root();
        ::mkdir(root.c_str(), 0700);
        if (!is_own_folder(root)) return;
        const auto now = std::chrono::system_clock::now().time_since_epoch().count();
        file_ = root + "/run." + std::to_string(::getpid()) + '.' + std::to_string(now);
        descriptor_ = ::open(file_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (descriptor_ < 0) return;
        const std::string text = reports.string() + '\n';
        const bool known =
            ::flock(descriptor_, LOCK_EX) == 0 &&
            ::write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
        if (!known) ::unlink(file_.c_str());
    }
    ~KnownRun() {
        if (descriptor_ < 0) return;
        ::unlink(file_.c_str());
        ::close(descriptor_);
    }
    KnownRun(const KnownRun&) = delete;
    KnownRun& operator=(const KnownRun&) = delete;

private:
    std::string file_;
    int descriptor_ = -1;
};

/// The folders of this user's runs that are alive.
inline std::vector<std::filesystem::path> running_folders() {
    std::vector<std::filesystem::path> folders;
    const std::string root = kdvfs::restore::RestorePlace::own_root();
    if (!is_own_folder(root)) return folders;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator{root, ignored}) {
        if (!entry.path().filename().string().starts_with("run.")) continue;
        const int descriptor = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (descriptor < 0) continue;
        const bool ended = ::flock(descriptor, LOCK_SH | LOCK_NB) == 0;
        std::ifstream file{entry.path()};
        std::string folder;
        if (std::getline(file, folder)) {  // else it has just been made
            if (ended) {
                ::unlink(entry.path().c_str());
            } else {
                folders.emplace_back(folder);
            }
        }
        ::close(descriptor);
    }
    return folders;
}

}  // namespace cli
