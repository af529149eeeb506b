// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/switch_costs.hpp>

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <filesystem>
#include <sstream>
#include <string>

namespace kdvfs::tune {
namespace {

namespace fs = std::filesystem;

Plan sample() {
    Plan plan;
    plan.gpu = "simulated Radeon";
    plan.objective = "waste";
    plan.baseline = plan.expected = {Seconds{1}, Joules{1}};
    plan.kernels = {{{"gelu", variant(1)},
                     1,
                     {{900}, auto_clock},
                     {Seconds{1}, Joules{1}},
                     {Seconds{0.002}, Joules{1}}}};
    return plan;
}

const DeviceInfo radeon{"Radeon", "simulated", "gfx90a", "", true};
const SupportedClocks radeon_clocks{{{{800}, {900}}, false}, {}};

bool all(std::string_view) { return true; }

class PlanFile : public ::testing::Test {
protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() / ("kdvfs_plan_" + std::to_string(::getpid()));
        fs::create_directory(folder_);
        path_ = folder_ / "plan.json";
        kdvfs::detail::write_file_atomically(path_, to_json(sample()));
        ::chmod(path_.c_str(), 0600);
    }
    void TearDown() override {
        ::unsetenv("KDVFS_PLAN");
        fs::remove_all(folder_);
    }
    void expect_distrusted(const fs::path& path, const std::string& words) {
        try {
            read_trusted_file(path);
            FAIL() << "was read";
        } catch (const Error& error) {
            EXPECT_NE(std::string{error.what()}.find(words), std::string::npos) << error.what();
        }
    }
    fs::path folder_;
    fs::path path_;
};

TEST_F(PlanFile, IsObeyed) {
    ::setenv("KDVFS_PLAN", path_.c_str(), 1);
    const auto table = plan_from_environment(radeon, radeon_clocks, all);
    ASSERT_NE(table, nullptr);
    const auto request = table->find("gelu", variant(1));
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(request->point, (ClockPoint{{900}, auto_clock}));
    EXPECT_EQ(request->lasts, Duration{2'000'000});
    EXPECT_FALSE(table->find("gelu", variant(0)).has_value());
}

TEST_F(PlanFile, WithoutTheVariableThereIsNoPlan) {
    EXPECT_EQ(plan_from_environment(radeon, radeon_clocks, all), nullptr);
}

TEST_F(PlanFile, FilesThatOthersCouldHaveWrittenAreDistrusted) {
    fs::create_symlink(path_, folder_ / "link");
    expect_distrusted(folder_ / "link", "symbolic link");
    expect_distrusted(folder_, "no regular file");
    expect_distrusted(folder_ / "absent", "absent");
    ::chmod(path_.c_str(), 0620);
    expect_distrusted(path_, "others may write");
    ::chmod(path_.c_str(), 0602);
    expect_distrusted(path_, "others may write");
    ::chmod(path_.c_str(), 0600);
    EXPECT_NO_THROW(read_trusted_file(path_));
    if (::geteuid() == 0) {
        ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
        expect_distrusted(path_, "another user");
    }
}

TEST_F(PlanFile, PlansThatDoNotFitAreRejected) {
    Plan plan = sample();
    EXPECT_THROW(to_plan_table(plan, {"Other", "", "", "", true}, radeon_clocks, all), Error);
    EXPECT_THROW(to_plan_table(plan, radeon, radeon_clocks, [](std::string_view) { return false; }),
                 Error);
    plan.kernels[0].clock = {{850}, auto_clock};
    EXPECT_THROW(to_plan_table(plan, radeon, radeon_clocks, all), Error);
    plan.kernels[0].clock = {{900}, {5001}};
    EXPECT_THROW(to_plan_table(plan, radeon, radeon_clocks, all), Error);
}

TEST(Sequences, AreReadInOrder) {
    std::istringstream input{"variant,kernel\n0,gemm\n1,sort\n"};
    const auto launches = read_sequence(input, "file");
    ASSERT_EQ(launches.size(), 2U);
    EXPECT_EQ(launches[1], (KernelKey{"sort", variant(1)}));
}

TEST(Switches, PairsThatWereNotMeasuredGetTheLongest) {
    std::istringstream input{
        "from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s,transition_s\n"
        "auto,auto,1100,auto,0.006,0.001\n1100,auto,auto,auto,0.004,\n"};
    const SwitchCosts costs = read_switch_costs(input, "file");
    EXPECT_EQ(costs.delay({{1100}, auto_clock}, {}).latency.count(), 0.004);
    EXPECT_EQ(costs.delay({{900}, auto_clock}, {}).latency.count(), 0.006);
    EXPECT_EQ(costs.delay({}, {{1100}, auto_clock}).transition.count(), 0.001);
}

}  // namespace
}  // namespace kdvfs::tune
