// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/files.hpp>

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

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

TEST_F(AtomicFile, FollowsALinkToTheFileThatIsReplaced) {
    const fs::path target = folder_ / "target";
    kdvfs::detail::write_file_atomically(target, "old");
    fs::create_symlink(target, folder_ / "link");
    kdvfs::detail::write_file_atomically(folder_ / "link", "new");
    EXPECT_EQ(read(target), "new");
    EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
    fs::create_symlink(folder_ / "absent", folder_ / "dangling");
    EXPECT_THROW(kdvfs::detail::write_file_atomically(folder_ / "dangling", "new"), Error);
    EXPECT_TRUE(fs::is_symlink(folder_ / "dangling"));
}

TEST_F(AtomicFile, NeverReplacesWhatIsNoRegularFile) {
    // A null device of its own where that is allowed, else the one that a mistake would not hurt.
    fs::path device = folder_ / "null";
    if (::mknod(device.c_str(), S_IFCHR | 0666, ::makedev(1, 3)) != 0) device = "/dev/null";
    kdvfs::detail::write_file_atomically(device, "lost");
    EXPECT_TRUE(fs::is_character_file(device));
    fs::create_symlink(device, folder_ / "to_null");
    kdvfs::detail::write_file_atomically(folder_ / "to_null", "lost");
    EXPECT_TRUE(fs::is_symlink(folder_ / "to_null"));
    EXPECT_TRUE(fs::is_character_file(device));

    const fs::path fifo = folder_ / "fifo";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    std::string received;
    std::thread reader{[&] { received = read(fifo); }};
    kdvfs::detail::write_file_atomically(fifo, "through");
    reader.join();
    EXPECT_EQ(received, "through");
    EXPECT_TRUE(fs::is_fifo(fifo));
}

TEST_F(AtomicFile, AFullDeviceIsAnError) {
    EXPECT_THROW(kdvfs::detail::write_file_atomically("/dev/full", "text"), Error);
    EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(AtomicFile, KeepsTheModeOfTheFile) {
    const fs::path path = folder_ / "private";
    kdvfs::detail::write_file_atomically(path, "old");
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    kdvfs::detail::write_file_atomically(path, "new");
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

}  // namespace
}  // namespace kdvfs
