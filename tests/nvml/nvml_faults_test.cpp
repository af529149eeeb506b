// SPDX-License-Identifier: MIT
#include "double_fixture.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

namespace kdvfs::device {
namespace {

using Writes = std::vector<std::string>;
using NvmlFaults = NvmlDouble;

constexpr int not_supported = 3;
constexpr int no_permission = 4;
constexpr int gpu_is_lost = 15;

TEST_F(NvmlFaults, WithoutPermissionTheErrorSaysWhatToDo) {
    Nvml gpu{address, options()};
    board().faults["nvmlDeviceSetGpuLockedClocks"] = {.code = no_permission};
    const Error error = error_of([&] { gpu.apply({.core = 1000_MHz}); });
    EXPECT_EQ(error.code(), Errc::refused);
    EXPECT_STREQ(error.what(),
                 "cannot set the core clock to 1000 MHz: Double of an NVIDIA GPU (0000:1b:00.0): "
                 "Insufficient Permissions (refused); run as root, have an administrator set the "
                 "clocks, or open the GPU to measure only");
    // Nothing was written: a watchdog would try for minutes to undo what it may not, either.
    EXPECT_EQ(gpu.read_clock_state(), ClockState{});
    board().faults["nvmlDeviceResetGpuLockedClocks"] = {.code = no_permission};
    EXPECT_NO_THROW(gpu.restore({}));
}

TEST_F(NvmlFaults, WhenMemoryFailsTheCoreIsKnownToBeChangedAndCanBeRestored) {
    Nvml gpu{address, options()};
    const ClockState before = gpu.read_clock_state();
    board().faults["nvmlDeviceSetMemoryLockedClocks"] = {.code = not_supported};
    EXPECT_EQ(error_of([&] { gpu.apply({.core = 420_MHz, .memory = 405_MHz}); }).code(),
              Errc::not_supported);
    EXPECT_EQ(gpu.read_clock_state().cap, (ClockPoint{.core = 420_MHz}));
    gpu.restore(before);
    EXPECT_FALSE(board().core_lock);
    EXPECT_EQ(gpu.read_clock_state(), before);
}

TEST_F(NvmlFaults, AWriteThatFailsAndActsAllTheSameIsUndone) {
    Nvml gpu{address, options()};
    const ClockState before = gpu.read_clock_state();
    board().faults["nvmlDeviceSetGpuLockedClocks"] = {.code = gpu_is_lost,
                                                      .acts_all_the_same = true};
    EXPECT_EQ(error_of([&] { gpu.apply({.core = 1000_MHz}); }).code(), Errc::vanished);
    EXPECT_TRUE(board().core_lock);
    EXPECT_EQ(gpu.read_clock_state().mode, "unsure");
    board().faults.clear();
    gpu.restore(before);
    EXPECT_EQ(gpu.read_clock_state(), before);
    EXPECT_FALSE(board().core_lock);
}

TEST_F(NvmlFaults, AFailedRestoreOfTheCoreDoesNotKeepMemoryFromBeingRestored) {
    Nvml gpu{address, options()};
    gpu.apply({.core = 420_MHz, .memory = 405_MHz});
    board().faults["nvmlDeviceResetGpuLockedClocks"] = {.code = gpu_is_lost};
    EXPECT_EQ(error_of([&] { gpu.restore({}); }).code(), Errc::vanished);
    EXPECT_FALSE(board().memory_lock);
    board().faults.clear();
    gpu.restore({});
    EXPECT_FALSE(board().core_lock);
}

/// Every setting call made to fail with every code, at its first or second call, with and without
/// effect: the error is typed, and a restore afterwards leaves no lock.
TEST_F(NvmlFaults, AfterAnyFaultInAnyWriteARestoreLeavesNoLock) {
    const std::vector<int> codes{1, 2, 3, 4, 7, 10, 15, 16, 17, 18, 19, 20, 999};
    const std::vector<ClockPoint> walk{
        {420_MHz, 405_MHz}, {1500_MHz, 2619_MHz}, {}, {1000_MHz, auto_clock}, {210_MHz, 405_MHz}};
    int cases = 0;
    int errors = 0;
    for (const char* function :
         {"nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks",
          "nvmlDeviceSetMemoryLockedClocks", "nvmlDeviceResetMemoryLockedClocks"}) {
        for (const int code : codes) {
            for (const bool acts : {false, true}) {
                if (acts && code == no_permission) continue;
                for (const int spared : {0, 1}) {
                    board() = {};
                    Nvml gpu{address, options()};
                    board().faults[function] = {code, acts, spared};
                    for (const ClockPoint point : walk) {
                        try {
                            gpu.apply(point);
                        } catch (const Error& error) {
                            ++errors;
                            EXPECT_EQ(error.code(),
                                      nvml::Library::code_of(static_cast<nvml::Status>(code)));
                        }
                    }
                    board().faults.clear();
                    gpu.restore({});
                    EXPECT_FALSE(board().core_lock) << function << ' ' << code;
                    EXPECT_FALSE(board().memory_lock) << function << ' ' << code;
                    ++cases;
                }
            }
        }
    }
    std::printf("tried %d faults in setting calls, %d errors thrown, no lock left behind\n", cases,
                errors);
    EXPECT_GE(errors, cases);
}

TEST_F(NvmlFaults, OpeningSaysWhatIsMissing) {
    const Error no_library = error_of([&] {
        Nvml{address, {.library = "libnvidia-ml-of-nobody.so.1"}};
    });
    EXPECT_EQ(no_library.code(), Errc::not_supported);
    EXPECT_NE(no_library.text().remedy.find("install NVIDIA's driver"), std::string::npos);

    const Error no_gpu = error_of([&] { Nvml{"0000:99:00.0", options()}; });
    EXPECT_EQ(no_gpu.text().vendor_words, "Not Found");
    EXPECT_EQ(board().starts, 0);
}

TEST_F(NvmlFaults, AnOldDriverIsNamedWithTheOneNeeded) {
    board().driver = "418.226.00";
    const Error error = error_of([&] { Nvml{address, options()}; });
    EXPECT_EQ(error.code(), Errc::not_supported);
    EXPECT_EQ(error.text().action, "use NVIDIA's driver 418.226.00");
    EXPECT_EQ(error.text().remedy, "update it to 450 or later");
    EXPECT_EQ(board().starts, 0) << "the library is stopped as often as it was started";
}

TEST_F(NvmlFaults, AStartThatFailsIsNotStopped) {
    board().faults["nvmlInit_v2"] = {.code = 9};
    EXPECT_EQ(error_of([&] { Nvml{address, options()}; }).code(), Errc::not_supported);
    EXPECT_EQ(board().starts, 0);
}

TEST_F(NvmlFaults, ABoardWithoutClockListsCanBeMeasuredButNotSet) {
    board().faults["nvmlDeviceGetSupportedMemoryClocks"] = {.code = not_supported};
    EXPECT_EQ(error_of([&] { Nvml{address, options()}; }).code(), Errc::not_supported);
    const Nvml gpu{address, options(ClockAccess::measure_only)};
    EXPECT_TRUE(gpu.supported_clocks().core.listed.empty());
}

TEST_F(NvmlFaults, AForkedChildLeavesTheLibraryToItsParent) {
    auto gpu = std::make_optional<Nvml>(address, options());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        gpu.reset();
        _exit(board().starts);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 1) << "the child stopped a library it had not started";
    gpu.reset();
    EXPECT_EQ(board().starts, 0);
}

}  // namespace
}  // namespace kdvfs::device
