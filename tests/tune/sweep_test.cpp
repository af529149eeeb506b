// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/replay.hpp>
#include <kdvfs/detail/tune/kernel_bench.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

namespace fs = std::filesystem;

const std::vector<SweepKernel> kernels{{{"gemm", {}}, "fw", 24}, {{"sort", variant(2)}, "bw", 1}};
const std::vector<ClockPoint> points{{}, {{900}, auto_clock}, {{900}, {5001}}};

class Sweep : public ::testing::Test {
protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() / ("kdvfs_sweep_" + std::to_string(::getpid()));
        fs::create_directory(folder_);
        path_ = folder_ / "sweep.csv";
    }
    void TearDown() override { fs::remove_all(folder_); }
    [[nodiscard]] std::string text() const {
        std::ostringstream read;
        read << std::ifstream{path_}.rdbuf();
        return read.str();
    }
    /// @returns how many measurements were taken
    int sweep(int fail_after = 1000) {
        SweepFile file{path_, "g"};
        int taken = 0;
        sweep_grid(
            file, kernels, points, 2,
            [&](std::size_t k, ClockPoint clock) {
                if (taken == fail_after) throw std::runtime_error{"killed"};
                ++taken;
                return Cost{Seconds{1.0 + static_cast<double>(k)}, Joules{1.0 + clock.core.count}};
            },
            [](std::size_t, std::size_t) {});
        return taken;
    }
    fs::path folder_;
    fs::path path_;
};

TEST_F(Sweep, CoversTheGridAndReadsBack) {
    EXPECT_EQ(sweep(), 12);
    const Profile profile = read_profile(path_);
    ASSERT_EQ(profile.kernels().size(), 2U);
    EXPECT_EQ(profile.kernels()[1].key, (KernelKey{"sort", variant(2)}));
    EXPECT_EQ(profile.kernels()[0].points[2].samples.size(), 2U);
    EXPECT_EQ(profile.kernels()[0].count, 24U);
}

TEST_F(Sweep, GoesOnWhereItWasKilled) {
    EXPECT_EQ(sweep(), 12);
    const std::string whole = text();
    fs::remove(path_);
    EXPECT_THROW(sweep(7), std::runtime_error);
    EXPECT_EQ(sweep(), 5);
    EXPECT_EQ(text(), whole);
    EXPECT_EQ(sweep(), 0);
}

TEST_F(Sweep, LosesAtMostOneMeasurementWhereverItIsCut) {
    sweep();
    const std::string whole = text();
    for (std::size_t cut = sweep_header.size(); cut < whole.size(); cut += 3) {
        std::ofstream{path_, std::ios::trunc} << whole.substr(0, cut);
        const auto lines =
            std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut), '\n');
        EXPECT_EQ(sweep(), 12 - (lines - 1)) << cut;
        EXPECT_EQ(text(), whole) << cut;
    }
}

TEST_F(Sweep, OneWriterOneGpuOneFormat) {
    sweep();
    {
        SweepFile first{path_, "g"};
        EXPECT_THROW((SweepFile{path_, "g"}), Error);
    }
    EXPECT_THROW((SweepFile{path_, "h"}), Error);
    std::ofstream{path_, std::ios::trunc} << "gpu,kernel,core_mhz,mem_mhz,time_s,energy_j\n";
    EXPECT_THROW((SweepFile{path_, "g"}), Error);
}

TEST_F(Sweep, LeavesAloneWhatIsNoSweep) {
    for (const char* notes : {"two lines\nof notes", "one line without a break", "gpu,kernel,x"}) {
        std::ofstream{path_, std::ios::trunc} << notes;
        EXPECT_THROW((SweepFile{path_, "g"}), Error);
        EXPECT_EQ(text(), notes);
    }
    fs::remove(path_);
    sweep();
    std::ofstream{path_, std::ios::app} << "g,gemm,0,f";
    const std::string cut = text();
    EXPECT_THROW((SweepFile{path_, "h"}), Error) << "another GPU's";
    EXPECT_EQ(text(), cut);
    EXPECT_THROW((SweepFile{"/dev/zero", "g"}), Error) << "it never ends";
    EXPECT_THROW((SweepFile{"/dev/null", "g"}), Error);
}

TEST(Replay, DrawsFromWhatWasMeasuredAndNothingElse) {
    replay::Device device{"GTX"};
    device.add({"gemm", {}}, {{900}, {810}}, {Seconds{1}, Joules{10}});
    device.add({"gemm", {}}, {{900}, {810}}, {Seconds{3}, Joules{30}});
    device.add({"sort", {}}, {{700}, {810}}, {Seconds{5}, Joules{50}});
    EXPECT_THROW(device.apply({{800}, {810}}), Error);
    device.apply({{900}, {810}});
    int ones = 0;
    for (int i = 0; i < 1000; ++i) {
        const replay::Launch launch = device.run({"gemm", {}});
        EXPECT_EQ(launch.energy.count, 10 * launch.time.count());
        ones += launch.time.count() == 1 ? 1 : 0;
    }
    EXPECT_GT(ones, 400);
    EXPECT_LT(ones, 600);
    EXPECT_THROW(device.run({"sort", {}}), Error);
    EXPECT_THROW(device.run({"copy", {}}), Error);
    EXPECT_EQ(device.supported_clocks().core.listed.size(), 2U);
}

}  // namespace
}  // namespace kdvfs::tune
