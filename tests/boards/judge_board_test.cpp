// SPDX-License-Identifier: MIT
#include <bench/boards/judging.hpp>
#include <bench/boards/published_boards.hpp>

#include <gtest/gtest.h>

#include <filesystem>

namespace {

using namespace board_fit;

/// Rows after T = core / f + rest and a power that rises with the clock.
Workload made(const std::string& name, double core, double rest, double watts) {
    Workload w{name, {}};
    for (double mhz : {510., 690., 870., 1050., 1230., 1410.})
        w.rows.push_back({mhz, core / mhz + rest, watts * (0.4 + 0.6 * mhz / 1410), mhz});
    return w;
}

std::vector<Workload> three() {
    return {made("a_1", 10, 0.002, 180), made("b_1", 8, 0.006, 150), made("c_1", 3, 0.01, 120)};
}

TEST(JudgeBoard, TheJudgedWorkloadIsNotFitted) {
    std::vector<Workload> fitted = three();
    const std::vector<Workload> judged{fitted[1]};
    const Judgement before = judge(published_board(""), fitted, judged, {});
    for (Row& row : fitted[1].rows) row.time_s *= 3;
    const Judgement after = judge(published_board(""), fitted, judged, {});
    ASSERT_EQ(before.rows.size(), 5U);
    for (std::size_t i = 0; i < before.rows.size(); ++i) {
        EXPECT_EQ(before.rows[i].time_pct, after.rows[i].time_pct);
        EXPECT_EQ(before.rows[i].energy_pct, after.rows[i].energy_pct);
    }
}

TEST(JudgeBoard, OnlyKnownRowsOfTheJudgedWorkloadAreRead) {
    const std::vector<Workload> fitted = three();
    const std::vector<Workload> judged{made("d_1", 5, 0.008, 140)};
    std::vector<Workload> changed = judged;
    for (std::size_t i = 1; i + 1 < changed[0].rows.size(); ++i) changed[0].rows[i].time_s *= 2;
    const JudgeOptions low{true, false, 1};
    const Judgement before = judge(published_board(""), fitted, judged, low);
    const Judgement after = judge(published_board(""), fitted, changed, low);
    ASSERT_EQ(before.rows.size(), 4U);
    for (std::size_t i = 0; i < before.rows.size(); ++i)
        EXPECT_NEAR(100 + before.rows[i].time_pct, 2 * (100 + after.rows[i].time_pct), 1e-9);
}

/// Mean error of `judged` by fits to `fitted`.
double time_error(const std::vector<Workload>& fitted, const std::vector<Workload>& judged) {
    return judge(published_board(""), fitted, judged, {true, false, 1}).mean_time_pct();
}

TEST(JudgeBoard, AWorkloadWhoseTimeIsNoiseDoesNotMoveOthers) {
    std::vector<Workload> fitted = three();
    fitted.push_back(made("e_1", 9, 0.004, 170));
    fitted.push_back(made("f_1", 6, 0.007, 150));
    const std::vector<Workload> judged{made("d_1", 7, 0.005, 160)};
    const double before = time_error(fitted, judged);
    for (std::size_t i = 1; i + 1 < fitted[2].rows.size(); ++i) fitted[2].rows[i].time_s *= 1.15;
    EXPECT_LE(time_error(fitted, judged), before + 1);
}

TEST(JudgeBoard, AModelIsLeftOutAsAWhole) {
    const std::vector<Workload> all{made("a_1", 1, 1, 100), made("a_2", 1, 1, 100),
                                    made("b_1", 1, 1, 100)};
    EXPECT_EQ(apart_from(all, all[0], true).size(), 1U);
    EXPECT_EQ(apart_from(all, all[0], false).size(), 2U);
}

TEST(JudgeBoard, BrokenRowsAreLeftOutByRule) {
    Measurements data;
    data.workloads = three();
    data.workloads[0].rows.pop_back();        // rule 1
    data.workloads[1].rows[2].watts *= 0.5;   // rule 2
    data.workloads[2].rows[3].time_s *= 0.5;  // rule 3
    Workload modes = made("d_1", 5, 0.01, 120);
    for (std::size_t i : {1U, 2U, 3U}) modes.rows[i].time_s *= 0.3;
    data.workloads.push_back(modes);  // rule 4
    leave_out_broken(data);
    ASSERT_EQ(data.workloads.size(), 1U);
    EXPECT_EQ(data.workloads[0].name, "c_1");
    EXPECT_EQ(data.workloads[0].rows.size(), 5U);
    EXPECT_EQ(data.left_out.front().rule, "no row at the highest clock");
    EXPECT_EQ(data.left_out.back().rule, "more than a third of its rows in another mode");
}

Measurements shared_data(const char* file) {
    Measurements data = read_measurements(std::string{KDVFS_SHARED_DATA} + file);
    leave_out_broken(data);
    return data;
}

bool has_shared_data() { return std::filesystem::exists(KDVFS_SHARED_DATA); }

TEST(JudgeBoard, A100PassesOfModelsThatWereNotFitted) {
    if (!has_shared_data()) GTEST_SKIP() << "needs the measured data at " KDVFS_SHARED_DATA;
    const Measurements data = shared_data("/energaizer/a100_pcie40_prefill.csv");
    const BoardFacts board = published_board(data.board);
    const Judgement top = judge(board, data.workloads, data.workloads, {false, true, 1});
    EXPECT_LE(top.mean_time_pct(), 5);
    EXPECT_LE(top.mean_energy_pct(), 4);
    EXPECT_GE(top.good_picks, 0.8 * top.picks);
    const Judgement low = judge(board, data.workloads, data.workloads, {true, true, 1});
    EXPECT_LE(low.mean_time_pct(), 1.5);
    EXPECT_LE(low.mean_energy_pct(), 2.5);
    EXPECT_GE(low.good_picks, 0.8 * low.picks);
}

TEST(JudgeBoard, A800LayersThatWereNotFitted) {
    if (!has_shared_data()) GTEST_SKIP() << "needs the measured data at " KDVFS_SHARED_DATA;
    const Measurements data = shared_data("/a800_qwen3_layers.csv");
    const BoardFacts board = published_board(data.board);
    const Judgement top = judge(board, data.workloads, data.workloads, {false, false, 5});
    EXPECT_LE(top.mean_time_pct(), 12);
    EXPECT_LE(top.mean_energy_pct(), 9);
    const Judgement low = judge(board, data.workloads, data.workloads, {true, false, 5});
    EXPECT_LE(low.mean_time_pct(), 3.5);
    EXPECT_LE(low.mean_energy_pct(), 5);
}

}  // namespace
