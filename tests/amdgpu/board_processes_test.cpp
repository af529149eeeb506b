// SPDX-License-Identifier: MIT
// Who works on an amdgpu board, on folders as KFD and procfs have them.
#include <kdvfs/detail/device/amd/board_processes.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace kdvfs::device::amd {
namespace {

namespace fs = std::filesystem;

class AmdBoardProcesses : public testing::Test {
protected:
    AmdBoardProcesses() {
        std::string path = (fs::temp_directory_path() / "kdvfs_processes_XXXXXX").string();
        if (::mkdtemp(path.data()) == nullptr) std::abort();
        root_ = path;
        card_.address = *io::parse_pci_address("0000:c1:00.0");
        card_.kfd_node = (root_ / "node").string();
        put("node/gpu_id", "51234\n");
        runs(own, "python", 1);
        has_queues(own, 100);
    }
    ~AmdBoardProcesses() override { fs::remove_all(root_); }

    void put(const std::string& path, const std::string& text) const {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream{root_ / path} << text;
    }
    void runs(long id, const std::string& name, long parent) const {
        const std::string folder = "proc/" + std::to_string(id);
        put(folder + "/comm", name + "\n");
        put(folder + "/stat",
            std::to_string(id) + " (" + name + ") S " + std::to_string(parent) + " 1 1 0");
    }
    void has_queues(long id, int units, const char* board = "51234") const {
        const std::string folder = "kfd/" + std::to_string(id);
        put(folder + "/vram_" + board, "4096\n");
        put(folder + "/stats_" + board + "/cu_occupancy", std::to_string(units) + "\n");
    }
    void has_file(long id, const char* name, int client, long ns,
                  const char* address = "0000:c1:00.0") const {
        put("proc/" + std::to_string(id) + "/fdinfo/" + name,
            "pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t" + std::string{address} +
                "\ndrm-client-id:\t" + std::to_string(client) + "\ndrm-engine-compute:\t" +
                std::to_string(ns) + " ns\ndrm-engine-gfx:\t0 ns\n");
    }
    [[nodiscard]] BoardProcesses list() const {
        return BoardProcesses{card_, (root_ / "kfd").string(), (root_ / "proc").string()};
    }

    const long own = ::getpid();
    fs::path root_;
    Card card_;
};

using Names = std::vector<std::string>;

TEST_F(AmdBoardProcesses, ThoseWithBusyQueuesAreNamed) {
    BoardProcesses processes = list();
    EXPECT_TRUE(processes.read().complete);
    EXPECT_TRUE(processes.read().working.empty());
    runs(4'200'001, "idle ) one", 1);
    has_queues(4'200'001, 0);
    runs(4'200'002, "elsewhere", 1);
    has_queues(4'200'002, 90, "777");
    runs(4'200'003, "a child", 4'200'004);
    runs(4'200'004, "worker", own);
    has_queues(4'200'003, 20);
    EXPECT_TRUE(processes.read().working.empty());
    has_queues(4'200'001, 7);
    EXPECT_EQ(processes.read().working, Names{"idle ) one (4200001)"});
}

TEST_F(AmdBoardProcesses, ThoseWhoseEngineTimeGrowsAreNamed) {
    runs(4'200'005, "compositor", 1);
    has_file(4'200'005, "3", 9, 1'000);
    has_file(4'200'005, "4", 9, 1'000);  // the same client
    runs(4'200'006, "elsewhere", 1);
    has_file(4'200'006, "3", 10, 500, "0000:43:00.0");
    BoardProcesses processes = list();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(processes.read().working.empty()) << "it only was";
    has_file(4'200'005, "3", 9, 2'000);
    has_file(4'200'005, "4", 9, 2'000);
    has_file(4'200'006, "3", 10, 900, "0000:43:00.0");
    EXPECT_EQ(processes.read().working, Names{"compositor (4200005)"});
    EXPECT_TRUE(processes.read().working.empty()) << "it rests again";
}

TEST_F(AmdBoardProcesses, AListWithoutThisProcessIsNotComplete) {
    fs::remove_all(root_ / "kfd");
    EXPECT_FALSE(list().read().complete);
    card_.kfd_node.clear();
    EXPECT_FALSE(list().read().complete);
}

}  // namespace
}  // namespace kdvfs::device::amd
