// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace kdvfs {

/// A folder of a test's own, gone with it.
class TemporaryFolder {
public:
    TemporaryFolder() {
        if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error{"mkdtemp"};
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    [[nodiscard]] std::string at(const std::string& name) const { return path_ + "/" + name; }
    [[nodiscard]] const std::string& path() const { return path_; }

    void write(const std::string& name, const std::string& text) const {
        std::ofstream{at(name)} << text;
    }
    [[nodiscard]] std::string read(const std::string& name) const {
        std::ifstream file{at(name)};
        return {std::istreambuf_iterator<char>{file}, {}};
    }

private:
    std::string path_ = "/tmp/kdvfs-test-XXXXXX";
};

}  // namespace kdvfs
