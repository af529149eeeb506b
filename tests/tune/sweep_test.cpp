// SPDX-License-Identifier: MIT
#include <kdvfs/tune/profile.hpp>

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

struct SweptKernel {
    KernelKey key;
    std::string group;
    std::uint32_t count;
};
const std::vector<SweptKernel> swept_kernels{{{"gemm", {}}, "fw", 24},
                                             {{"sort", variant(2)}, "bw", 1}};
const std::vector<ClockPoint> swept_points{{}, {{900}, auto_clock}, {{900}, {5001}}};

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
        const auto is_there = [&](const SweptKernel& kernel, ClockPoint clock, std::size_t sample) {
            for (const KernelProfile& known : file.profile().kernels())
                if (const ProfilePoint* point = known.find(clock); known.key == kernel.key && point)
                    return point->samples.size() > sample;
            return false;
        };
        int taken = 0;
        for (std::uint32_t sample = 0; sample < 2; ++sample) {
            for (std::size_t k = 0; k < swept_kernels.size(); ++k) {
                for (const ClockPoint clock : swept_points) {
                    if (is_there(swept_kernels[k], clock, sample)) continue;
                    if (taken++ == fail_after) throw std::runtime_error{"killed"};
                    file.append(
                        {swept_kernels[k].key,
                         clock,
                         {Seconds{1.0 + static_cast<double>(k)}, Joules{1.0 + clock.core.count}},
                         swept_kernels[k].group,
                         swept_kernels[k].count,
                         sample});
                }
            }
        }
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

}  // namespace
}  // namespace kdvfs::tune
