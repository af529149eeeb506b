// SPDX-License-Identifier: MIT
//
// A HIP program swept and run by a plan, on HIP's double and a virtual board whose clock its
// kernels run at.
#include "attach_fixture.hpp"

#include <tests/virtual_amdgpu/file_system.hpp>

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

TEST_F(AttachedHip, IsSweptAtTheClocksOfItsBoard) {
    const std::string found = FileSystem::settings();
    const Outcome seen = run({"--preload", "--iteration", "step", "--sweep", path("profile.csv")},
                             {HIP_PROGRAM, "100"},
                             {{"HIP_DOUBLE_BOARD", "1"},
                              {"KDVFS_SWEEP_ROWS", "2"},
                              {"KDVFS_SWEEP_BLOCK", "0.1"},
                              {"KDVFS_SWEEP_WARM_UP", "1"},
                              {"KDVFS_RUN_SLOWDOWN", "1000"},
                              {"KDVFS_STATUS", path("status.json")}});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err << seen.notes();
    const json status = json::parse(text_of(path("status.json")), nullptr, false);
    ASSERT_TRUE(status.contains("sweep")) << status << seen.notes() << seen.err;
    EXPECT_GT(status["sweep"]["points_measured"], 1) << status << seen.notes();
    EXPECT_EQ(FileSystem::settings(), found);
}

}  // namespace
}  // namespace attached
