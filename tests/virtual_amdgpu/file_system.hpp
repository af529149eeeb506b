// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

namespace virtual_amdgpu {

/// Four virtual GPUs mounted over /sys, in a mount namespace that this process enters for good,
/// with /run and /dev/shm of its own. What it starts sees the same GPUs. Call before any thread
/// starts.
class FileSystem {
public:
    /// @param boards as virtual_amdgpu_fuse takes them; empty: its own four
    explicit FileSystem(std::string boards = {}) : boards_{std::move(boards)} {
        if (::geteuid() != 0) {
            missing_ = "needs root, for a mount namespace";
        } else if (::access("/dev/fuse", R_OK | W_OK) != 0) {
            missing_ = "needs /dev/fuse";
        } else if (::unshare(CLONE_NEWNS) != 0 || !keep_mounts_private()) {
            missing_ = "needs the right to make mount namespaces";
        } else if (::mount("none", "/run", "tmpfs", 0, "mode=755") != 0 ||
                   ::mount("none", "/dev/shm", "tmpfs", 0, "mode=755") != 0) {
            missing_ = "needs the right to mount tmpfs";
        } else {
            start();
        }
    }

    ~FileSystem() {
        if (process_ <= 0) return;
        ::umount2("/sys", MNT_DETACH);
        ::kill(process_, SIGTERM);
        ::waitpid(process_, nullptr, 0);
    }
    FileSystem(const FileSystem&) = delete;
    FileSystem& operator=(const FileSystem&) = delete;

    /// Why it is not there; empty where it is.
    [[nodiscard]] const std::string& missing() const { return missing_; }

    /// What a board holds, as "level min max memory power", by a way of the test's own.
    static std::string settings(unsigned gpu = 0) {
        std::ifstream file{"/sys/control/gpu" + std::to_string(gpu)};
        std::string line;
        std::getline(file, line);
        return line;
    }

    /// The core clock that a board allows, MHz.
    static double core_clock(unsigned gpu = 0) {
        std::istringstream settings{FileSystem::settings(gpu)};
        std::string level;
        double min = 0;
        double max = 0;
        settings >> level >> min >> max;
        return max;
    }

    /// What a kernel would run at, MHz, and the joules that the board has really drawn.
    static std::pair<double, double> running(unsigned gpu = 0) {
        std::ifstream file{"/sys/control/running" + std::to_string(gpu)};
        std::pair<double, double> clock_and_joules;
        file >> clock_and_joules.first >> clock_and_joules.second;
        return clock_and_joules;
    }

    /// "reset", "busy", "idle", "freeze" (the energy counter), "thaw", or "ail" and the name of an
    /// ailment (see `Ailments`).
    static void tell(const std::string& word, unsigned gpu = 0) {
        std::ofstream{"/sys/control/gpu" + std::to_string(gpu)} << word << std::flush;
    }

private:
    /// In a chroot the root is no mount point that could be made private; nothing gets out where
    /// no mount is shared.
    static bool keep_mounts_private() {
        if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) return true;
        std::ifstream mounts{"/proc/self/mountinfo"};
        if (!mounts) return false;
        for (std::string line; std::getline(mounts, line);) {
            if (line.find(" shared:") != std::string::npos) return false;
        }
        return true;
    }

    void start() {
        process_ = ::fork();
        if (process_ == 0) {
            if (!boards_.empty()) ::setenv("KDVFS_VIRTUAL_BOARDS", boards_.c_str(), 1);
            ::execl(KDVFS_FUSE_PROGRAM, KDVFS_FUSE_PROGRAM, "/sys", nullptr);
            ::_exit(127);
        }
        for (int i = 0; i < 500; ++i) {
            if (::access("/sys/control/gpu0", F_OK) == 0) return;
            std::this_thread::sleep_for(std::chrono::milliseconds{10});
        }
        missing_ = "the file system did not start";
    }

    std::string boards_;
    std::string missing_;
    pid_t process_ = -1;
};

/// What a test and the processes that it starts both see.
template <class T>
T* shared_with_children() {
    void* const memory =
        ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : new (memory) T;
}

/// Tests on these boards: each finds them as they start; skipped, saying why, where there are none.
class FileSystemTest : public testing::Test {
protected:
    static constexpr unsigned boards = 4;

    static void SetUpTestSuite() { system_ = std::make_unique<FileSystem>(); }
    static void TearDownTestSuite() { system_.reset(); }

    void SetUp() override {
        if (!system_->missing().empty()) GTEST_SKIP() << system_->missing();
        for (unsigned i = 0; i < boards; ++i) FileSystem::tell("reset", i);
    }

    static bool present() { return system_->missing().empty(); }

private:
    static inline std::unique_ptr<FileSystem> system_;
};

}  // namespace virtual_amdgpu
