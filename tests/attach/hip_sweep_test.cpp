// SPDX-License-Identifier: MIT
//
// A HIP program swept and run by a plan, on HIP's double and a virtual board whose clock its
// kernels run at.
#include "attach_fixture.hpp"

#include <tests/virtual_amdgpu/file_system.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

namespace attached {
namespace {

using virtual_amdgpu::FileSystem;

class AttachedHip : public Attach {
protected:
    static void SetUpTestSuite() { system_ = std::make_unique<FileSystem>("mi210"); }
    static void TearDownTestSuite() { system_.reset(); }
    void SetUp() override {
        if (!system_->missing().empty()) GTEST_SKIP() << system_->missing();
    }

private:
    static inline std::unique_ptr<FileSystem> system_;
};

TEST_F(AttachedHip, IsSweptAtTheClocksOfItsBoardAndFollowsItsPlan) {
    const std::string found = FileSystem::settings();
    const Outcome swept = run({"--preload", "--iteration", "step", "--sweep", path("profile.csv")},
                              {HIP_PROGRAM, "100"},
                              {{"HIP_DOUBLE_BOARD", "1"},
                               {"KDVFS_SWEEP_ROWS", "2"},
                               {"KDVFS_SWEEP_BLOCK", "0.1"},
                               {"KDVFS_SWEEP_WARM_UP", "1"},
                               {"KDVFS_RUN_SLOWDOWN", "1000"},
                               {"KDVFS_STATUS", path("status.json")}});
    EXPECT_EQ(swept.exit_code(), 0) << swept.err << swept.notes();
    const json status = json::parse(text_of(path("status.json")), nullptr, false);
    ASSERT_TRUE(status.contains("sweep")) << status << swept.notes() << swept.err;
    EXPECT_GT(status["sweep"]["points_measured"], 1) << status << swept.notes();
    EXPECT_EQ(FileSystem::settings(), found);

    const std::string plan = path("plan.json");
    const Outcome planned =
        wait_for(start({KDVFS_COMMAND, "plan", path("profile.csv"), "--max-slowdown", "1000%",
                        "--objective", "energy", "--format", "json", "-o", plan}));
    ASSERT_EQ(planned.exit_code(), 0) << planned.err;
    std::filesystem::permissions(plan, std::filesystem::perms::owner_read);
    const Outcome followed = run({"--preload", "--iteration", "step", "--plan", plan},
                                 {HIP_PROGRAM, "30"}, {{"HIP_DOUBLE_BOARD", "1"}});
    EXPECT_EQ(followed.exit_code(), 0) << followed.err;
    int lowered = 0;
    for (const json& kernel : json::parse(text_of(plan), nullptr, false)["kernels"]) {
        const json asked = followed.most_called(kernel["kernel"].get<std::string>())["asked"];
        // The board's own choice is -1 in a plan and 0 in a report.
        const int clock = std::max(kernel["core_mhz"].get<int>(), 0);
        EXPECT_EQ(asked["core_mhz"], clock) << kernel << followed.notes() << followed.err;
        if (clock > 0) ++lowered;
    }
    EXPECT_GT(lowered, 0) << text_of(plan);
    EXPECT_EQ(FileSystem::settings(), found);
}

}  // namespace
}  // namespace attached
