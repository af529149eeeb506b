// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/tune/policy_header.hpp>

#include "generated_policies.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace kdvfs::tune {
namespace {

PlannedKernel planned(const std::string& name, std::uint32_t index, ClockPoint clock,
                      double time = 1.582e-3) {
    return {{name, variant(index)},
            24,
            clock,
            {Seconds{time}, Joules{1}},
            {Seconds{time}, Joules{0.5}}};
}

Plan sample_plan(Megahertz core) {
    Plan plan;
    plan.gpu = "Radeon (simulated)";
    plan.objective = "waste";
    plan.aggregate = Aggregate::global;
    plan.baseline = {Seconds{2}, Joules{4}};
    plan.expected = {Seconds{2}, Joules{3.5}};
    plan.kernels = {planned("zeta", 0, {}), planned("gemm", 1, {core, auto_clock}),
                    planned("gemm", 0, {auto_clock, {5001}}),
                    planned("f<int,2>", 0, {core, {9501}})};
    return plan;
}

HeaderOptions options() {
    return {"sample::clocks", "Policies", "sweep.csv", kdvfs::detail::content_hash("abc")};
}

std::string committed() {
    std::ostringstream text;
    text << std::ifstream{KDVFS_SOURCE_DIR "/tests/tune/generated_policies.hpp"}.rdbuf();
    return text.str();
}

TEST(PolicyHeader, IsTheCommittedOneByteForByte) {
    EXPECT_EQ(to_policy_header({{"gfx942", sample_plan({1300})}, {"gfx90a", sample_plan({1100})}},
                               options()),
              committed());
}

TEST(PolicyHeader, DoesNotDependOnTheOrderOfItsInput) {
    Plan shuffled = sample_plan({1100});
    std::swap(shuffled.kernels[0], shuffled.kernels[3]);
    EXPECT_EQ(to_policy_header(shuffled, options()),
              to_policy_header(sample_plan({1100}), options()));
    EXPECT_EQ(to_policy_header({{"gfx90a", sample_plan({1100})}, {"gfx942", sample_plan({1300})}},
                               options()),
              committed());
}

using sample::clocks::kernels::Zeta;
using Template = sample::clocks::kernels::FInt2;

template <class K>
ClockRequest request(std::string_view architecture, std::uint32_t index = 0) {
    return sample::clocks::Policies::policy_of<K>::request(
        {.kernel = K::name, .variant = variant(index), .architecture = architecture});
}

TEST(PolicyHeader, CompiledInItAsksForWhatThePlanSays) {
    using sample::clocks::kernels::Gemm;
    EXPECT_EQ(request<Gemm>("gfx90a", 1).point, (ClockPoint{{1100}, auto_clock}));
    EXPECT_EQ(request<Gemm>("gfx942", 1).point, (ClockPoint{{1300}, auto_clock}));
    EXPECT_EQ(request<Gemm>("gfx942", 0).point, (ClockPoint{auto_clock, {5001}}));
    EXPECT_EQ(request<Gemm>("gfx942", 7).point, ClockPoint{});
    EXPECT_EQ(request<Template>("gfx90a").point, (ClockPoint{{1100}, {9501}}));
    EXPECT_EQ(request<Template>("sm_90").point, ClockPoint{});
    EXPECT_EQ(request<Zeta>("gfx90a").lasts, Duration{1'582'000});
    EXPECT_TRUE(request<Zeta>("gfx90a").asks);
}

TEST(PolicyHeader, NamesThatCouldBecomeCodeAreRejected) {
    const auto rejected = [](auto change) {
        Plan plan = sample_plan({1100});
        HeaderOptions chosen = options();
        std::string architecture;
        change(plan, chosen, architecture);
        EXPECT_THROW(to_policy_header({{architecture, plan}}, chosen), Error);
    };
    rejected([](Plan& p, auto&, auto&) { p.kernels[0].key.name = "a\"; system(0); \""; });
    rejected([](Plan& p, auto&, auto&) { p.kernels[0].key.name = ""; });
    rejected([](Plan& p, auto&, auto&) { p.gpu = "x\n#include </etc/passwd>"; });
    rejected([](Plan& p, auto&, auto&) { p.objective = "x\\"; });
    rejected([](Plan& p, auto&, auto&) { p.kernels.push_back(p.kernels[0]); });
    rejected([](Plan& p, auto&, auto&) { p.kernels.clear(); });
    rejected([](auto&, HeaderOptions& o, auto&) { o.namespace_name = "a { int x; }"; });
    rejected([](auto&, HeaderOptions& o, auto&) { o.namespace_name = "a::"; });
    rejected([](auto&, HeaderOptions& o, auto&) { o.namespace_name = ""; });
    rejected([](auto&, HeaderOptions& o, auto&) { o.namespace_name = "a::class"; });
    for (const char* reserved : {"std", "std::clocks", "std2", "posix"})
        rejected([&](auto&, HeaderOptions& o, auto&) { o.namespace_name = reserved; });
    for (const char* hides : {"a::kdvfs", "a::std", "a::kdvfs::b"})
        rejected([&](auto&, HeaderOptions& o, auto&) { o.namespace_name = hides; });
    for (const char* taken : {"kdvfs", "std"})
        rejected([&](auto&, HeaderOptions& o, auto&) { o.registry_name = taken; });
    rejected([](auto&, HeaderOptions& o, auto&) { o.registry_name = "1st"; });
    rejected([](auto&, HeaderOptions& o, auto&) { o.registry_name = "kernels"; });
    rejected([](auto&, HeaderOptions& o, auto&) { o.registry_name = "a__b"; });
    rejected([](auto&, HeaderOptions& o, auto&) { o.input = "a\nb"; });
    rejected([](auto&, HeaderOptions& o, auto&) { o.input = "a\\"; });
    rejected([](auto&, HeaderOptions& o, auto&) { o.input = "a?\?/"; });
    rejected([](auto&, auto&, std::string& a) { a = "gfx\"90a"; });
}

TEST(PolicyHeader, NamesOfCompilersBecomeLiteralsAndWords) {
    Plan plan = sample_plan({1100});
    plan.kernels = {planned("void f<int>(int [8])", 0, {}), planned("void f[int](int <8>)", 0, {}),
                    planned("what?\?/ next", 0, {})};
    const std::string text = to_policy_header(plan, options());
    EXPECT_NE(text.find("kdvfs::Bind<\"void f<int>(int [8])\", "), std::string::npos) << text;
    EXPECT_NE(text.find("struct VoidFIntInt8 : kdvfs::Kernel<\"void f<int>(int [8])\"> {};"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("struct VoidFIntInt8_2 : "), std::string::npos) << text;
    EXPECT_NE(text.find("\"what?\\?/ next\""), std::string::npos) << text;
    EXPECT_EQ(text.find("?\?/"), std::string::npos) << "a trigraph";
}

TEST(PolicyHeader, SeveralPlansNeedSeveralArchitectures) {
    const Plan plan = sample_plan({1100});
    EXPECT_THROW(to_policy_header(std::vector<PlanFor>{}, options()), Error);
    EXPECT_THROW(to_policy_header({{"", plan}, {"gfx90a", plan}}, options()), Error);
    EXPECT_THROW(to_policy_header({{"gfx90a", plan}, {"gfx90a", plan}}, options()), Error);
}

TEST(ContentHash, IsFnv1a64) {
    EXPECT_EQ(kdvfs::detail::content_hash(""), "fnv1a64:cbf29ce484222325");
    EXPECT_EQ(kdvfs::detail::content_hash("a"), "fnv1a64:af63dc4c8601ec8c");
    EXPECT_EQ(kdvfs::detail::content_hash("foobar"), "fnv1a64:85944171f73967e8");
}

}  // namespace
}  // namespace kdvfs::tune
