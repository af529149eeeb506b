// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/tune/policy_header.hpp>

#include "generated_segments.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace kdvfs::tune {
namespace {

SegmentPlan sample_plan() {
    SegmentPlan plan;
    plan.gpu = "Radeon (simulated)";
    plan.objective = "waste";
    plan.baseline = {Seconds{2}, Joules{4}};
    plan.expected = {Seconds{2}, Joules{3.5}};
    plan.segments = {
        {0, 12, 0, Seconds{0}, {}, {Seconds{0.5}, Joules{1}}},
        {12, 40, 13, Seconds{0.006}, {{1100}, {9501}}, {Seconds{1.25}, Joules{1}}},
        {40, 41, 40, Seconds{0.006}, {auto_clock, {5001}}, {Seconds{0.25}, Joules{1}}}};
    return plan;
}

HeaderOptions options() {
    return {"sample::segments_of", "Policies", "sweep.csv", kdvfs::detail::content_hash("")};
}

TEST(SegmentHeader, IsTheCommittedOneByteForByte) {
    std::ostringstream committed;
    committed << std::ifstream{KDVFS_SOURCE_DIR "/tests/tune/generated_segments.hpp"}.rdbuf();
    EXPECT_EQ(to_segment_header(sample_plan(), options()), committed.str());
}

struct Gelu : Kernel<"gelu"> {};

TEST(SegmentHeader, CompiledInItAsksForWhatThePlanSays) {
    namespace generated = sample::segments_of;
    using Policy = generated::Policies::policy_of<generated::Segment>;
    const auto request = [](std::uint32_t s) {
        return Policy::request({.kernel = "segment", .variant = variant(s)});
    };
    ASSERT_EQ(generated::segments.size(), 3U);
    EXPECT_EQ(generated::segments[1].first, 12U);
    EXPECT_EQ(generated::segments[1].last, 40U);
    EXPECT_EQ(request(0).point, ClockPoint{});
    EXPECT_EQ(request(1).point, (ClockPoint{{1100}, {9501}}));
    EXPECT_EQ(request(1).lasts, Duration{std::chrono::milliseconds{1250}});
    EXPECT_EQ(request(2).point, (ClockPoint{auto_clock, {5001}}));
    EXPECT_FALSE(generated::Policies::policy_of<Gelu>::request({}).asks);
}

TEST(SegmentHeader, NamesOfSequencesBecomeLiterals) {
    SegmentPlan plan = sample_plan();
    plan.sequence.kernels = {{{"what?\?/ next", {}}, Duration{1}}};
    plan.sequence.launches = {0};
    const std::string text = to_segment_header(plan, options());
    EXPECT_NE(text.find("{\"what?\\?/ next\", 0, 1}"), std::string::npos) << text;
    EXPECT_EQ(text.find("?\?/"), std::string::npos) << "a trigraph";
}

TEST(SegmentHeader, NamesThatCouldBecomeCodeAreRejected) {
    const auto rejected = [](auto change) {
        SegmentPlan plan = sample_plan();
        HeaderOptions chosen = options();
        change(plan, chosen);
        EXPECT_THROW(to_segment_header(plan, chosen), Error);
    };
    rejected([](SegmentPlan& p, auto&) { p.gpu = "x\n#error"; });
    rejected([](SegmentPlan& p, auto&) { p.objective = "x\\"; });
    rejected([](SegmentPlan& p, auto&) { p.segments.clear(); });
    rejected([](auto&, HeaderOptions& o) { o.namespace_name = "a { int x; }"; });
    rejected([](auto&, HeaderOptions& o) { o.namespace_name = "a::kdvfs"; });
    for (const char* taken : {"Segment", "Launches", "plan", "sequence_runs", "kdvfs"})
        rejected([&](auto&, HeaderOptions& o) { o.registry_name = taken; });
    rejected([](auto&, HeaderOptions& o) { o.input = "a\nb"; });
}

}  // namespace
}  // namespace kdvfs::tune
