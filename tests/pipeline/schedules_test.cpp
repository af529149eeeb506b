// SPDX-License-Identifier: MIT
#include <kdvfs/train/schedules.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kdvfs::train {
namespace {

Pipeline make(const PipelineShape& shape) {
    CurveIndex curve_of;
    for (std::uint32_t s = 0; s < shape.stages; ++s)
        for (std::uint32_t c = 0; c < shape.chunks; ++c)
            for (const Pass pass :
                 {Pass::forward, Pass::backward, Pass::backward_input, Pass::backward_weight})
                curve_of[{s, pass, c}] = 0;
    const Curve curve{"any",
                      {{{Megahertz{1400}, auto_clock}, Seconds{0.1}, Joules{30}},
                       {{Megahertz{1000}, auto_clock}, Seconds{0.14}, Joules{28}}},
                      Watts{50}};
    return make_pipeline(shape, curve_of, {curve}, Watts{50});
}

/// "F0 F1 B0 ..." of one stage; W for weights, I for inputs; a chunk other than 0 as "F0.1".
std::string order(const Pipeline& pipeline, std::uint32_t stage) {
    std::string text;
    for (auto i = pipeline.stage_begin[stage]; i < pipeline.stage_begin[stage + 1]; ++i) {
        const Operation& operation = pipeline.operations[i];
        if (!text.empty()) text += ' ';
        text += "FBIW"[static_cast<int>(operation.pass)] + std::to_string(operation.microbatch);
        if (operation.chunk > 0) text += '.' + std::to_string(operation.chunk);
    }
    return text;
}

TEST(Schedules, RunInTheirOrder) {
    const Pipeline alternating = make({Schedule::one_f_one_b, 3, 1, 4});
    EXPECT_EQ(order(alternating, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
    EXPECT_EQ(order(alternating, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
    EXPECT_EQ(order(make({Schedule::gpipe, 2, 1, 2}), 1), "F0 F1 B0 B1");
    const Pipeline zero_bubble = make({Schedule::zb_h1, 3, 1, 4});
    EXPECT_EQ(order(zero_bubble, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
    EXPECT_EQ(order(zero_bubble, 2), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
    const Pipeline interleaved = make({Schedule::interleaved_1f1b, 2, 2, 4});
    EXPECT_EQ(order(interleaved, 1),
              "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3");
}

TEST(Schedules, WaitForTheStagesBeforeAndBehind) {
    const Pipeline pipeline = make({Schedule::one_f_one_b, 2, 1, 1});
    ASSERT_EQ(order(pipeline, 0), "F0 B0");
    ASSERT_EQ(order(pipeline, 1), "F0 B0");
    std::vector<std::vector<int>> waits(4, std::vector<int>(4, 0));
    for (const Dependency& d : pipeline.dependencies) ++waits[d.first][d.then];
    EXPECT_GE(waits[0][2], 1);  // the forward of stage 1 for that of stage 0
    EXPECT_GE(waits[2][3], 1);  // the last stage's backward for its forward
    EXPECT_GE(waits[3][1], 1);  // the backward of stage 0 for that of stage 1
    EXPECT_EQ(waits[1][2], 0);
}

TEST(Schedules, FewerMicrobatchesThanStagesAreFineUnlessInterleaved) {
    EXPECT_EQ(order(make({Schedule::one_f_one_b, 4, 1, 2}), 0), "F0 F1 B0 B1");
    EXPECT_EQ(make({Schedule::gpipe, 4, 1, 1}).operations.size(), 8U);
    EXPECT_EQ(make({Schedule::zb_h1, 4, 1, 2}).operations.size(), 24U);
    EXPECT_THROW(make({Schedule::interleaved_1f1b, 4, 2, 2}), Error);
}

std::string refusal(const PipelineShape& shape) {
    try {
        (void)make(shape);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_input);
        EXPECT_FALSE(error.text().remedy.empty());
        return error.what();
    }
    return "none";
}

TEST(Schedules, RejectWhatDoesNotDivide) {
    EXPECT_NE(refusal({Schedule::interleaved_1f1b, 4, 2, 6}).find("do not divide"),
              std::string::npos);
    EXPECT_NE(refusal({Schedule::one_f_one_b, 4, 2, 8}).find("one chunk"), std::string::npos);
    EXPECT_NE(refusal({Schedule::gpipe, 0, 1, 8}).find("stages"), std::string::npos);
    EXPECT_NE(refusal({Schedule::gpipe, 2, 1, 0}).find("microbatches"), std::string::npos);
}

TEST(Schedules, RejectCyclesNamingAnOperation) {
    const Pipeline made = make({Schedule::gpipe, 1, 1, 2});
    const std::vector<std::vector<Operation>> stage{made.operations};
    try {
        (void)make_graph(stage, {{3, 0}}, made.curves, Watts{50});
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_NE(std::string{error.what()}.find("cycle"), std::string::npos);
        EXPECT_NE(error.text().object.find("microbatch"), std::string::npos);
    }
    EXPECT_THROW((void)make_graph(stage, {{0, 9}}, made.curves, Watts{50}), Error);
    EXPECT_THROW((void)make_graph({{}}, {}, made.curves, Watts{50}), Error);
}

}  // namespace
}  // namespace kdvfs::train
