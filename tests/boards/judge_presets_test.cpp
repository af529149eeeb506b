// SPDX-License-Identifier: MIT
#include <bench/boards/single_points.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using namespace board_fit;
namespace simulated = kdvfs::simulated;

PublishedRow gemm_of(const std::string& gpu, double mhz, double watts) {
    PublishedRow row;
    row.board = "MI355X";
    row.workload = "GEMM BF16, saturating loop";
    row.note = "GPU " + gpu + "; 20 samples";
    row.core_mhz = mhz;
    row.watts = watts;
    return row;
}

TEST(JudgePresets, TheJudgedBoardIsNotFitted) {
    std::vector<PublishedRow> rows;
    for (const double mhz : {1000., 1200., 1400., 1600., 1800.}) {
        rows.push_back(gemm_of("1", mhz, 250 + 0.5 * mhz));
        rows.push_back(gemm_of("2", mhz, 240 + 0.52 * mhz));
    }
    const std::vector<double> before = Mi355xGemm{rows}.fit("GPU 2");
    for (PublishedRow& row : rows)
        if (row.has("GPU 2")) row.watts *= 1.3;
    EXPECT_EQ(Mi355xGemm{rows}.fit("GPU 2"), before);
    EXPECT_NE(Mi355xGemm{rows}.fit("GPU 1"), before);
}

TEST(JudgePresets, TheHeldClocksOfTheJudgedBoardAreNotFitted) {
    std::vector<PublishedRow> rows;
    for (const std::string gpu : {"1", "2", "3"}) {
        rows.push_back(gemm_of(gpu, 1250, 900));
        rows.back().note = "GPU " + gpu + "; limit asked 1600 MHz, clock held as given";
        rows.back().power_cap_w = 1400;
    }
    rows[1].core_mhz = 1590;
    EXPECT_NEAR(Mi355xGemm{rows}.droop("GPU 2"), (1 - 1250. / 1600) * 1400 / 900, 1e-9);
    EXPECT_LT(Mi355xGemm{rows}.droop("GPU 1"), 0.9 * Mi355xGemm{rows}.droop("GPU 2"));
}

TEST(JudgePresets, OnlyTheDefaultOfTheJudgedGemmIsRead) {
    std::vector<PublishedRow> rows;
    for (const std::string gemm : {"a", "b"})
        for (const double time : {1.0, 1.1, 1.4}) {
            PublishedRow row;
            row.board = "MI325X";
            row.workload = "GEMM rocblas 64K cube, fp32_" + gemm;
            row.note = time > 1.2 ? "core limit 1400 MHz" : "";
            row.core_mhz = 2000 / time;
            row.power_cap_w = time > 1 ? 750 : 1000;
            row.time_rel = time;
            row.watts = 900 / time;
            row.energy_rel = 1;
            row.teraflops = 150 / time;
            rows.push_back(row);
        }
    const std::vector<double> before = Mi325xGemm{rows}.fit(rows[0].workload);
    rows[1].time_rel *= 1.5;
    rows[2].watts *= 0.8;
    EXPECT_EQ(Mi325xGemm{rows}.fit(rows[0].workload), before);
    EXPECT_NE(Mi325xGemm{rows}.fit(rows[3].workload), before);
}

TEST(JudgePresets, ReadsTheRateInANote) {
    EXPECT_EQ(teraflops_in("default; 939.2 TFLOP/s; memory clock held"), 939.2);
    EXPECT_EQ(teraflops_in("133.09 TFLOPS; 47 C"), 133.09);
    EXPECT_EQ(teraflops_in("no rate"), 0);
}

class Published : public testing::Test {
protected:
    void SetUp() override {
        if (!std::filesystem::exists(KDVFS_SHARED_DATA))
            GTEST_SKIP() << "needs the published points at " KDVFS_SHARED_DATA;
        amd = read_published(KDVFS_SHARED_DATA "/amd_published.csv");
        nvidia = read_published(KDVFS_SHARED_DATA "/nvidia_published.csv");
    }
    static constexpr const char* idle = KDVFS_SHARED_DATA "/energaizer/idle_and_voltage.csv";
    std::vector<PublishedRow> amd, nvidia;
};

TEST_F(Published, IdleWattsByClock) {
    const Errors pcie = idle_by_clock(idle, "a100_pcie40", simulated::a100_pcie40());
    ASSERT_EQ(pcie.pct.size(), 81U);
    EXPECT_LE(pcie.rms(), 1.2);
    EXPECT_LE(idle_by_clock(idle, "a100_sxm80", simulated::a100_sxm80()).rms(), 1.2);
    EXPECT_LE(idle_by_clock(idle, "h100_sxm", simulated::h100()).rms(), 2);
}

TEST_F(Published, H100) {
    const Errors dgemm = h100_dgemm(nvidia);
    EXPECT_EQ(dgemm.pct.size(), 4U);
    EXPECT_LE(dgemm.mean(), 5);
    for (const char* workload : {"Llama-3-8B continued", "ViT-L/16 training"}) {
        const Errors training = h100_training(nvidia, workload);
        EXPECT_EQ(training.pct.size(), 4U);
        EXPECT_LE(training.mean(), 6) << workload;
    }
}

void expect_within_wanted(const PointErrors& errors) {
    EXPECT_LE(errors.watts.mean(), 6);
    EXPECT_LE(errors.time.mean(), 5);
    EXPECT_LE(errors.energy.mean(), 5);
}

TEST_F(Published, AmdGemms) {
    const PointErrors by_clock = Mi355xGemm{amd}.judge();
    EXPECT_EQ(by_clock.watts.pct.size(), 37U);
    expect_within_wanted(by_clock);
    EXPECT_LE(Mi355xGemm{amd}.judge_held_clocks().mean(), 5);
    const PointErrors by_limit = Mi325xGemm{amd}.judge();
    EXPECT_EQ(by_limit.watts.pct.size(), 24U);
    expect_within_wanted(by_limit);
}

/// What presets say of their errors is what the judgement prints.
TEST_F(Published, PresetsNameTheirErrors) {
    const auto expect = [](const simulated::Board& board, const char* what, const Errors& errors) {
        char text[80];
        std::snprintf(text, sizeof text, "%s %.1f %%", what, errors.mean());
        EXPECT_NE(board.accuracy.find(text), std::string::npos)
            << text << ", not: " << board.accuracy;
    };
    const auto expect_gemms = [&](const simulated::Board& board, const PointErrors& errors) {
        expect(board, "watts", errors.watts);
        expect(board, "time", errors.time);
        expect(board, "energy", errors.energy);
    };
    expect_gemms(simulated::mi355x(), Mi355xGemm{amd}.judge());
    expect_gemms(simulated::mi325x(), Mi325xGemm{amd}.judge());
    expect(simulated::mi355x(), "limit", Mi355xGemm{amd}.judge_held_clocks());
    expect(simulated::mi300x(), "busy CUs:", busy_cus(amd, simulated::mi300x(), "MI300X"));
    expect(simulated::h100(), "DGEMM energy", h100_dgemm(nvidia));
    expect(simulated::h100(), "power limit", h100_training(nvidia, "Llama-3-8B continued"));
}

TEST_F(Published, AmdBusyCus) {
    EXPECT_LE(busy_cus(amd, simulated::mi300x(), "MI300X").mean(), 10);
    EXPECT_LE(busy_cus(amd, simulated::mi325x(), "MI325X").mean(), 10);
}

TEST_F(Published, IdleOfAMi210IsAnAssumptionWithARange) {
    const Errors points = idle_points(amd, simulated::mi210(), "MI210");
    EXPECT_EQ(points.pct.size(), 4U);
    EXPECT_GE(mi210_idle.holds_pct(points), 90);
}

/// Presets are what the fits to all points give.
TEST_F(Published, PresetsAreAsFitted) {
    const std::vector<double> gemm = Mi355xGemm{amd}.fit("");
    const simulated::Board board = simulated::mi355x();
    EXPECT_NEAR(board.voltage.knots[0].core_mhz, gemm[0], 5);
    EXPECT_NEAR(board.voltage.knots[1].relative_volts, gemm[1], 0.005);
    EXPECT_NEAR(board.throughput.matrix_picojoules_per_flop, gemm[2], 0.005);
    EXPECT_NEAR(board.limit_droop, Mi355xGemm{amd}.droop(""), 0.01);
    const std::vector<double> gemms = Mi325xGemm{amd}.fit("");
    EXPECT_NEAR(simulated::mi325x().voltage.knots[1].relative_volts, gemms[0], 0.01);
}

}  // namespace
