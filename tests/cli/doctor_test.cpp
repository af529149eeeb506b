// SPDX-License-Identifier: MIT
// `kdvfs doctor` on made-up machines: trees of files as drivers, runtimes and containers leave
// them.
#include <kdvfs/error.hpp>
#include <tools/cli/board_choice.hpp>
#include <tools/cli/doctor.hpp>

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace cli::doctor {
namespace {

namespace fs = std::filesystem;

class MadeUpMachine : public testing::Test {
protected:
    void SetUp() override {
        std::string folder = (fs::temp_directory_path() / "kdvfs_doctor_XXXXXX").string();
        ASSERT_NE(::mkdtemp(folder.data()), nullptr);
        machine.root = folder;
        machine.user = 1000;
        machine.groups = {1000};
        machine.cpus = 64;
    }
    void TearDown() override { fs::remove_all(machine.root); }

    /// Files belong to whoever runs the test: the mode's last digit is what the made-up user has.
    void file(std::string_view path, std::string_view text, unsigned mode = 0644) {
        const fs::path full = machine.root / path;
        fs::create_directories(full.parent_path());
        std::ofstream{full} << text;
        ASSERT_EQ(::chmod(full.c_str(), mode), 0);
        machine.user = ::geteuid() + 12345;  // never the owner
        machine.groups = {::getegid() + 12345};
    }
    void records(unsigned mode = 0755) {
        fs::create_directories(machine.root / "run/kdvfs");
        ASSERT_EQ(::chmod((machine.root / "run/kdvfs").c_str(), mode), 0);
    }
    void lock(unsigned mode) { file("run/kdvfs/0000:c1:00.0.lock", "", mode); }
    void library(const std::string& name) { file("usr/lib/x86_64-linux-gnu/" + name, ""); }

    void amd_card(std::string_view id, unsigned mode_of_clocks) {
        const std::string device = "sys/class/drm/card0/device/";
        file(device + "vendor", "0x1002\n");
        file(device + "device", id);
        file(device + "uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:c1:00.0\n");
        file(device + "gpu_metrics", "metrics of some length");
        file(device + "power_dpm_force_performance_level", "auto\n", mode_of_clocks);
        file(device + "pp_od_clk_voltage", "", mode_of_clocks);
        file("dev/kfd", "", 0666);
    }
    void amd_runtime() {
        library("libamdhip64.so.6");
        library("librocprofiler-sdk.so.0");
    }
    void nvidia_board(std::string_view driver) {
        file("sys/bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n");
        file("sys/bus/pci/devices/0000:1b:00.0/class", "0x030200\n");
        if (driver.empty()) return;
        file("proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + std::string{driver} + "  Tue\n");
        file("proc/driver/nvidia/gpus/0000:1b:00.0/information",
             "Model: \t\t NVIDIA H100 80GB HBM3\n");
    }
    void nvidia_runtime() {
        library("libnvidia-ml.so.1");
        library("libcuda.so.1");
        library("libcupti.so.13");
    }

    /// The fix of the finding whose subject ends so; a word of its own where there is none.
    [[nodiscard]] std::string fix_of(std::string_view what) const {
        for (const Finding& finding : examine(machine).findings) {
            if (finding.what.ends_with(what)) return finding.fix;
        }
        return "no such finding";
    }
    [[nodiscard]] int status() const { return exit_status(examine(machine)); }

    Machine machine;
};

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

TEST_F(MadeUpMachine, WithoutAGpuIsToldWhichDriverToLoad) {
    EXPECT_TRUE(has(fix_of("GPU"), "modprobe amdgpu"));
    EXPECT_EQ(status(), 4);
}

TEST_F(MadeUpMachine, WithARuleForTheGroupSetsClocks) {
    amd_card("0x74a1", 0666);
    amd_runtime();
    records();
    lock(0644);
    const Diagnosis found = examine(machine);
    EXPECT_EQ(exit_status(found), 0);
    EXPECT_TRUE(found.has_streams);
    for (const Finding& finding : found.findings) EXPECT_EQ(finding.fix, "") << finding.what;
}

TEST_F(MadeUpMachine, WithoutRightsIsGivenTheUdevRule) {
    amd_card("0x740f", 0644);
    amd_runtime();
    EXPECT_TRUE(has(fix_of(", clocks"), "70-kdvfs.rules"));
    EXPECT_TRUE(has(fix_of("/run/kdvfs"), "install -d -m 0755"));
    EXPECT_EQ(status(), 3);
}

TEST_F(MadeUpMachine, WhoseFolderOthersMayWriteIsToldToCloseIt) {
    amd_card("0x74a1", 0666);
    for (const unsigned mode : {01777U, 0775U}) {
        records(mode);
        EXPECT_TRUE(has(fix_of("/run/kdvfs"), "chmod 0755 /run/kdvfs"));
        EXPECT_EQ(status(), 3) << "no clock is set then";
    }
}

TEST_F(MadeUpMachine, WithoutALockIsGivenTheUdevRule) {
    amd_card("0x74a1", 0666);
    EXPECT_TRUE(has(fix_of("/run/kdvfs"), "70-kdvfs.rules")) << "which makes the folder, too";
    records();
    EXPECT_TRUE(has(fix_of(", lock"), "70-kdvfs.rules"));
    EXPECT_EQ(status(), 0);
    machine.user = 0;
    EXPECT_EQ(fix_of(", lock"), "no such finding") << "root's programs make it";
}

TEST_F(MadeUpMachine, WithALockForOthersSetsNoClocks) {
    amd_card("0x74a1", 0666);
    records();
    lock(0640);
    EXPECT_TRUE(has(fix_of(", clocks"), "rm /run/kdvfs/0000:c1:00.0.lock"));
    EXPECT_EQ(status(), 3);
}

TEST_F(MadeUpMachine, WithoutTheGroupsIsToldToJoinThem) {
    amd_card("0x74a1", 0666);
    file("dev/kfd", "", 0660);
    EXPECT_TRUE(has(fix_of("/dev/kfd"), "usermod -aG render,video"));
}

TEST_F(MadeUpMachine, InAPartitionIsToldToUseSpx) {
    amd_card("0x74a1", 0666);
    file("sys/class/drm/card0/device/current_compute_partition", "CPX\n");
    EXPECT_TRUE(has(fix_of(", clocks"), "echo SPX > /sys/class/drm/card0/device"));
    EXPECT_EQ(status(), 3);
}

TEST_F(MadeUpMachine, AsAVirtualFunctionLeavesClocksToItsHost) {
    amd_card("0x74b5", 0666);
    fs::remove(machine.root / "sys/class/drm/card0/device/power_dpm_force_performance_level");
    EXPECT_TRUE(has(fix_of(", clocks"), "host"));
    EXPECT_EQ(status(), 3);
}

TEST_F(MadeUpMachine, OfAnUnknownFamilyIsMeasuredOnly) {
    amd_card("0x1234", 0666);
    EXPECT_EQ(status(), 3);
    EXPECT_TRUE(has(to_text(examine(machine)), "a board that kdvfs does not know"));
}

TEST_F(MadeUpMachine, WithoutHipIsToldWhatToInstall) {
    amd_card("0x74a1", 0666);
    EXPECT_TRUE(has(fix_of("HIP"), "apt-get install libamdhip64"));
    EXPECT_TRUE(has(fix_of("rocprofiler-sdk"), "ROCm 6.2"));
    EXPECT_FALSE(examine(machine).has_streams);
}

TEST_F(MadeUpMachine, WithNvidiaButNotRootMeasures) {
    nvidia_board("580.159.04");
    nvidia_runtime();
    EXPECT_TRUE(has(fix_of("NVIDIA clocks"), "CAP_SYS_ADMIN"));
    EXPECT_EQ(status(), 3);
    machine.user = 0;
    EXPECT_EQ(status(), 0);
}

TEST_F(MadeUpMachine, WithoutNvidiaSmiIsToldThatNothingRestores) {
    nvidia_board("580.159.04");
    nvidia_runtime();
    machine.user = 0;
    machine.environment = [](const char* name) {
        return std::string{std::string_view{name} == "PATH" ? "/usr/local/nvidia/bin:/opt" : ""};
    };
    EXPECT_TRUE(has(fix_of("nvidia-smi"), "PATH"));
    EXPECT_EQ(status(), 0);
    file("usr/local/nvidia/bin/nvidia-smi", "", 0755);
    machine.user = 0;
    EXPECT_EQ(fix_of("nvidia-smi"), "");
    EXPECT_TRUE(has(to_text(examine(machine)), "/usr/local/nvidia/bin/nvidia-smi"));
}

TEST_F(MadeUpMachine, WithAnOldDriverIsToldToUpdateIt) {
    nvidia_board("418.226.00");
    nvidia_runtime();
    EXPECT_TRUE(has(fix_of("NVIDIA's driver"), "update"));
}

TEST_F(MadeUpMachine, WithMigIsToldThatInstancesHaveNoClock) {
    nvidia_board("550.54.15");
    nvidia_runtime();
    file("proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "");
    machine.user = 0;
    EXPECT_TRUE(has(fix_of("NVIDIA clocks"), "nvidia-smi -mig 0"));
    EXPECT_EQ(status(), 3);
}

TEST_F(MadeUpMachine, WithABoardAndNoDriverIsToldToInstallIt) {
    nvidia_board("");
    EXPECT_TRUE(has(fix_of("NVIDIA GPU"), "install NVIDIA's driver"));
    EXPECT_EQ(status(), 4);
}

TEST_F(MadeUpMachine, AsAContainerWithoutItsDevicesIsGivenTheOptions) {
    file(".dockerenv", "");
    EXPECT_TRUE(has(fix_of("GPU"), "--device=/dev/kfd"));
    nvidia_board("580.95.05");
    EXPECT_TRUE(has(fix_of("NVML"), "NVIDIA_DRIVER_CAPABILITIES"));
}

TEST_F(MadeUpMachine, WithTwoVendorsAndSlurmFindsBoth) {
    amd_card("0x740c", 0666);
    nvidia_board("580.95.05");
    nvidia_runtime();
    file("etc/slurm/slurm.conf", "NodeName=n1\n");
    machine.environment = [](const char* name) {
        return std::string{std::string_view{name} == "SLURM_GPU_FREQ" ? "low" : ""};
    };
    EXPECT_TRUE(has(fix_of("Slurm"), "epilog.sh"));
    EXPECT_TRUE(has(fix_of("--gpu-freq"), "leave"));
    const std::string text = to_text(examine(machine));
    EXPECT_TRUE(has(text, "MI250X") && has(text, "H100")) << text;
}

TEST_F(MadeUpMachine, AsJsonSaysTheSame) {
    amd_card("0x74a5", 0644);
    const auto document = nlohmann::json::parse(to_json(examine(machine)));
    EXPECT_EQ(document["can"]["measure"], true);
    EXPECT_EQ(document["can"]["set_clocks"], false);
    EXPECT_EQ(document["findings"].size(), examine(machine).findings.size());
}

TEST(ThisMachine, CanBeExamined) {
    const Diagnosis found = examine(Machine::here());
    EXPECT_FALSE(to_text(found).empty());
}

TEST(BoardChoice, IsByTheWholeAddressOfOneBoard) {
    const std::vector<std::string> boards{"0000:1b:00.0", "0000:c1:00.0", "0001:c1:00.0"};
    const auto chosen = [](const std::vector<std::string>& from, const std::string& which) {
        return choose_board(from, which, "look", "there is none", "");
    };
    EXPECT_EQ(chosen(boards, "0001:c1:00.0"), 2U);
    EXPECT_EQ(chosen(boards, "00000000:C1:00.0"), 1U);
    EXPECT_EQ(chosen(boards, "1B:00.0"), 0U);
    EXPECT_EQ(chosen({"0001:1b:00.0"}, "auto"), 0U);
    for (const char* which : {"c1:00.0", "auto", "1", "b:00.0", ":1b:00.0", "", "0002:1b:00.0"}) {
        try {
            chosen(boards, which);
            ADD_FAILURE() << which;
        } catch (const kdvfs::Error& error) {
            EXPECT_TRUE(has(error.what(), "0000:1b:00.0, 0000:c1:00.0, 0001:c1:00.0")) << which;
        }
    }
    EXPECT_THROW(chosen({}, "auto"), kdvfs::Error);
}

}  // namespace
}  // namespace cli::doctor
