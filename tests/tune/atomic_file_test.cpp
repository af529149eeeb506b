// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/files.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace kdvfs {
namespace {

namespace fs = std::filesystem;

class AtomicFile : public ::testing::Test {
protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() / ("kdvfs_atomic_" + std::to_string(::getpid()));
        fs::create_directory(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }
    static std::string read(const fs::path& path) {
        std::ostringstream text;
        text << std::ifstream{path}.rdbuf();
        return text.str();
    }
    [[nodiscard]] std::ptrdiff_t files() const {
        return std::distance(fs::directory_iterator{folder_}, fs::directory_iterator{});
    }
    fs::path folder_;
};

TEST_F(AtomicFile, ReplacesAsAWholeAndLeavesNothingElse) {
    const fs::path path = folder_ / "plan.json";
    kdvfs::detail::write_file_atomically(path, "old");
    kdvfs::detail::write_file_atomically(path, std::string(100'000, 'n'));
    EXPECT_EQ(read(path), std::string(100'000, 'n'));
    EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFile, FailureNamesThePathAndLeavesNothing) {
    const fs::path path = folder_ / "absent" / "plan.json";
    try {
        kdvfs::detail::write_file_atomically(path, "new");
        FAIL() << "wrote into a folder that is not there";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::io);
        EXPECT_NE(std::string{error.what()}.find("absent"), std::string::npos) << error.what();
    }
    EXPECT_EQ(files(), 0);
}

TEST_F(AtomicFile, KeepsTheTargetWhenTheRenameFails) {
    const fs::path path = folder_ / "taken";
    fs::create_directories(path / "inside");
    EXPECT_THROW(kdvfs::detail::write_file_atomically(path, "new"), Error);
    EXPECT_TRUE(fs::exists(path / "inside"));
    EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFile, ReplacesALinkInsteadOfFollowingIt) {
    const fs::path victim = folder_ / "victim";
    kdvfs::detail::write_file_atomically(victim, "precious");
    fs::create_symlink(victim, folder_ / "link");
    kdvfs::detail::write_file_atomically(folder_ / "link", "new");
    EXPECT_EQ(read(victim), "precious");
    EXPECT_EQ(read(folder_ / "link"), "new");
    EXPECT_FALSE(fs::is_symlink(folder_ / "link"));
}

}  // namespace
}  // namespace kdvfs
