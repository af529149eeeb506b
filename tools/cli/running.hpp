// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/restore/place.hpp>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
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

/// Makes a run known as long as it lives. A run that cannot be made known runs all the same.
class KnownRun {
public:
    explicit KnownRun(const std::filesystem::path& reports) {
        const std::string root = kdvfs::restore::RestorePlace::own_root();
        ::mkdir(root.c_str(), 0700);
        if (!is_own_folder(root)) return;
        file_ = root + "/run." + std::to_string(::getpid());
        try {
            kdvfs::io::write_file_atomically(file_, reports.string() + '\n');
        } catch (const kdvfs::Error&) {
            file_.clear();
        }
    }
    ~KnownRun() {
        if (!file_.empty()) ::unlink(file_.c_str());
    }
    KnownRun(const KnownRun&) = delete;
    KnownRun& operator=(const KnownRun&) = delete;

private:
    std::string file_;
};

/// The folders of this user's runs that are alive.
inline std::vector<std::filesystem::path> running_folders() {
    std::vector<std::filesystem::path> folders;
    const std::string root = kdvfs::restore::RestorePlace::own_root();
    if (!is_own_folder(root)) return folders;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator{root, ignored}) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with("run.")) continue;
        pid_t owner = 0;
        const char* const end = name.data() + name.size();
        if (std::from_chars(name.data() + 4, end, owner).ptr != end || owner <= 0) continue;
        if (::kill(owner, 0) != 0) {
            if (errno == ESRCH) ::unlink(entry.path().c_str());  // it was killed
            continue;
        }
        std::ifstream file{entry.path()};
        std::string folder;
        if (std::getline(file, folder)) folders.emplace_back(folder);
    }
    return folders;
}

}  // namespace cli
