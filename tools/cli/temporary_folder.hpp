// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace cli {

/// A folder that nobody else can write to; it goes with what is in it.
struct TemporaryFolder {
    std::filesystem::path path = make();

    TemporaryFolder() = default;
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
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
};

}  // namespace cli
