// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/source_choice.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>
#include <tools/attach/cupti.hpp>
#include <tools/attach/iterations.hpp>
#include <tools/attach/launch_names.hpp>
#include <tools/attach/pipeline.hpp>
#include <tools/attach/range_names.hpp>
#include <tools/attach/short_ranges.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace attach {
namespace {

TEST(LaunchNames, LeaveOutReturnTypeAndParameters) {
    EXPECT_EQ(launch_name("_Z4plusi"), "plus");
    EXPECT_EQ(launch_name("_ZN9attention5flashILi128EEEvPKfS2_Pf"), "attention::flash<128>");
    EXPECT_EQ(launch_name("_ZN12_GLOBAL__N_13fooEiPKc"), "{anonymous}::foo");
    EXPECT_EQ(launch_name("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"),
              "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT");
    EXPECT_EQ(launch_name(nullptr), "unnamed kernel");
}

TEST(LaunchNames, KeepDifferentKernelsApartWhereTheyCut) {
    const std::vector<const char*> symbols{
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_"
        "11FillFunctorIfEESt5arrayIPcLm1EEEEviT"
        "0_T1_",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_"
        "11FillFunctorIdEESt5arrayIPcLm1EEEEviT"
        "0_T1_"};
    std::set<std::string> names;
    for (const char* symbol : symbols) {
        const std::string name = launch_name(symbol);
        EXPECT_TRUE(kdvfs::is_kernel_name(name)) << name;
        EXPECT_EQ(name.find("at::native::vectorized_elementwise_kernel<4, FillFunctor<..>"), 0U);
        EXPECT_EQ(name, launch_name(symbol));  // the same in every run
        names.insert(name);
    }
    EXPECT_EQ(names.size(), symbols.size());
}

TEST(LaunchNames, AreKernelNamesWhateverTheText) {
    const std::string long_text(5000, 'x');
    for (const std::string& text :
         {long_text, std::string{"a\"b\\c\n\xff"}, std::string{"<<<>>("}}) {
        EXPECT_TRUE(kdvfs::is_kernel_name(launch_name(text.c_str()))) << text;
        EXPECT_TRUE(kdvfs::is_kernel_name(range_name(text))) << text;
    }
    EXPECT_NE(range_name("a\"b"), range_name("a\\b"));
}

TEST(LaunchNames, TellWhichKernelsMustNotRunTwice) {
    for (const char* name :
         {"cub::DeviceRadixSortOnesweepKernel<..>", "cub::DeviceScanKernel<..>",
          "cub::DeviceSelectSweepKernel<..>", "rocprim::detail::lookback_scan_state_kernel",
          "rocprim::detail::partition_kernel", "at::native::radixSortKVInPlace",
          "at_cuda_detail::cub::DeviceReduceByKeyKernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
          "thrust::detail::look_back", "kernelHistogram1D", "stream_K_gemm"}) {
        EXPECT_TRUE(runs_once(name)) << name;
    }
    for (const char* name :
         {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NTT", "cunn_SoftMaxBackward<4, float>",
          "at::native::vectorized_elementwise_kernel<4, FillFunctor<..>", "attention::flash<128>",
          "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x",
          "layer_norm_grad_input_kernel_vectorized<float, float, float>", "gemm", "norm"}) {
        EXPECT_FALSE(runs_once(name)) << name;
    }
}

/// A program that launches a kernel every millisecond.
struct Program {
    Iterations iterations{};
    kdvfs::TimePoint now{std::chrono::seconds{5}};

    bool launches(std::uint32_t kernel) {
        now += std::chrono::milliseconds{1};
        const bool begins = iterations.launched(kernel, now);
        if (iterations.look_is_due()) {
            if (const auto found = Iterations::look(iterations.begin_look())) {
                iterations.take(*found);
            }
        }
        return begins;
    }
};

/// Kernels in no order.
void launch_at_random(Program& program, int count) {
    std::uint32_t random = 1;
    for (int i = 0; i < count; ++i) {
        random = random * 1664525U + 1013904223U;
        program.launches(random >> 24U);
    }
}

/// Layers forward, layers backward, an optimizer of two launches: no kernel runs once.
void step(Program& program, std::size_t layers, std::size_t& begun) {
    const auto put = [&](std::uint32_t kernel) { begun += program.launches(kernel) ? 1U : 0U; };
    for (std::size_t i = 0; i < layers; ++i) {
        for (const std::uint32_t kernel : {1U, 2U, 3U}) put(kernel);
    }
    for (std::size_t i = 0; i < layers; ++i) {
        for (const std::uint32_t kernel : {3U, 2U, 4U, 1U}) put(kernel);
    }
    put(9);
    put(9);
}

TEST(IterationsOfLaunches, AreFoundByThePeriodOfNames) {
    Program program;
    std::size_t begun = 0;
    for (std::uint32_t i = 0; i < 100; ++i) program.launches(50 + i % 7);  // a warm-up of its own
    for (int i = 0; i < 100; ++i) step(program, 4, begun);
    const Iterations& found = program.iterations;
    EXPECT_EQ(found.period(), 30U);
    EXPECT_EQ(found.stability(), 1);
    EXPECT_GT(found.coverage(), 0.97);
    EXPECT_GT(found.share_of_time(), 0.95);
    EXPECT_LE(found.share_of_time(), 1);
    EXPECT_EQ(begun, found.count());
    EXPECT_GT(begun, 75U);
    // As long again in an iteration that is not like the others.
    program.now += program.now - kdvfs::TimePoint{std::chrono::seconds{5}};
    program.launches(77);
    step(program, 4, begun);
    EXPECT_LT(found.share_of_time(), 0.55);
    EXPECT_GT(found.coverage(), 0.97);
}

TEST(IterationsOfLaunches, AreNotThoseOfAnInnerLoop) {
    Program program;
    std::size_t begun = 0;
    for (int i = 0; i < 60; ++i) step(program, 300, begun);  // 900 launches forward alone
    EXPECT_EQ(program.iterations.period(), 2102U);
    EXPECT_EQ(program.iterations.stability(), 1);
}

/// JAX: hundreds of kernels are tried, then each step is one graph, of 30 ms.
TEST(IterationsOfLaunches, AreFoundBehindALongBeginningOfOtherLaunches) {
    Program program;
    launch_at_random(program, 11'000);
    for (int i = 0; i < 400; ++i) {
        program.now += std::chrono::milliseconds{30};
        program.launches(1000);
        program.launches(1001);
    }
    EXPECT_EQ(program.iterations.period(), 2U);
    EXPECT_EQ(program.iterations.stability(), 1);
    EXPECT_GT(program.iterations.count(), 150U);
}

TEST(IterationsOfLaunches, AreNotFoundWhereThereAreNone) {
    Program program;
    launch_at_random(program, 100'000);
    EXPECT_EQ(program.iterations.period(), 0U);
}

TEST(CuptiLayouts, AreReadAsTheHeadersHaveThem) {
    std::vector<std::byte> record(216);
    const auto put = [&](std::size_t at, auto value) {
        std::memcpy(record.data() + at, &value, sizeof value);
    };
    put(0, std::uint32_t{10});
    put(16, std::uint64_t{100});
    put(24, std::uint64_t{200});
    put(92, std::uint32_t{7});
    const auto kernel = cupti::read_activity(record.data());
    ASSERT_TRUE(kernel);
    EXPECT_EQ(kernel->correlation, 7U);
    EXPECT_EQ(kernel->end - kernel->start, 100U);
    put(0, std::uint32_t{5});
    EXPECT_FALSE(cupti::read_activity(record.data()));
    EXPECT_EQ(cupti::read_launch(12, record.data()).call, nullptr);
}

TEST(CuptiLayouts, TellWhichLaunchesMayBeMadeAgain) {
    std::array<std::byte, 72> attributes[1]{};
    int kernel = 0;
    struct {
        const cupti::LaunchConfig* config;
        const void* function;
        void** arguments;
        void** extra;
    } parameters{};
    cupti::LaunchConfig config{
        {8, 1, 1}, {64, 1, 1}, 0, cupti::per_thread_stream(), attributes[0].data(), 1};
    parameters.config = &config;
    parameters.function = &kernel;
    const auto made_with = [&](std::uint32_t attribute) {
        std::memcpy(attributes[0].data(), &attribute, sizeof attribute);
        return cupti::read_launch(652, &parameters);
    };
    EXPECT_TRUE(made_with(4).again());  // the size of clusters
    EXPECT_EQ(made_with(4).blocks, 8U);
    EXPECT_EQ(made_with(4).stream, cupti::per_thread_stream());
    EXPECT_FALSE(made_with(2).again());   // cooperative
    EXPECT_FALSE(made_with(7).again());   // an event in its midst
    EXPECT_FALSE(made_with(12).again());  // an event at its end
    std::array<std::byte, 64> plain{};
    const void* const function = &kernel;
    std::memcpy(plain.data(), &function, sizeof function);
    EXPECT_TRUE(cupti::read_launch(307, plain.data()).again());
    EXPECT_FALSE(cupti::read_launch(477, plain.data()).again());  // cuLaunchCooperativeKernel
    EXPECT_FALSE(cupti::read_launch(514, plain.data()).again());  // a graph
}

TEST(ShortRanges, AreToldByTheCounterAndNotByALog) {
    using kdvfs::measure::EnergyFrom;
    kdvfs::measure::Report report;
    for (const auto& [name, seconds] : {std::pair{"mlp", 1.1e-3}, {"backward", 34e-3}}) {
        auto& row = report.rows.emplace_back();
        row.kernel.name = name;
        row.metered_calls = 100;
        row.time = kdvfs::Seconds{100 * seconds};
        row.energy = {{70}, {2}, true};
    }
    unresolve_short_ranges(report);  // of the counter, as it begins
    EXPECT_TRUE(report.rows[0].energy.resolved);
    EXPECT_TRUE(report.notes.empty());
    for (const EnergyFrom source : {EnergyFrom::power, EnergyFrom::both}) {
        report.rows[0].energy.resolved = true;
        report.notes.clear();
        report.fit.source = to_string(source);
        unresolve_short_ranges(report);
        EXPECT_FALSE(report.rows[0].energy.resolved);
        EXPECT_TRUE(report.rows[1].energy.resolved);
        ASSERT_EQ(report.notes.size(), 1U);
        EXPECT_NE(report.notes[0].find(" mlp"), std::string::npos) << report.notes[0];
        EXPECT_EQ(report.notes[0].find("backward"), std::string::npos) << report.notes[0];
    }
}

TEST(RangeNames, KeepLayersApartAndPoolSteps) {
    RangeNames names;
    for (int layer = 0; layer < 32; ++layer) {
        const std::string name = "layer " + std::to_string(layer);
        EXPECT_EQ(names.of(name), name);
    }
    for (int step = 0; step < 100000; ++step) {
        const std::string name = "step " + std::to_string(step) + "/forward";
        EXPECT_EQ(names.of(name), step < 32 ? name : "step */forward");
    }
    EXPECT_EQ(names.of("layer 31"), "layer 31");
    EXPECT_EQ(names.of("layer 32"), "layer *");
    EXPECT_EQ(names.of("step 7/forward"), "step 7/forward");
    for (int i = 0; i < 300; ++i) {
        std::string name = "range ";
        for (int rest = i; rest >= 0; rest = rest / 26 - 1) {
            name += static_cast<char>('a' + rest % 26);
        }
        EXPECT_EQ(names.of(name), i < 192 ? name : "other ranges");
    }
    EXPECT_EQ(names.of("step 12345/forward"), "step */forward");
    EXPECT_EQ(names.of("batch 1"), "batch *");  // no room for it to be apart
}

TEST(NumberedRanges, HaveTheFirstOnesInTheirSum) {
    kdvfs::measure::Report report;
    const auto add = [&](const char* name, std::uint64_t runs, double joules, bool resolved) {
        auto& level = report.levels.emplace_back();
        level.scope.name = name;
        level.runs = runs;
        level.time = kdvfs::Seconds{0.5 * static_cast<double>(runs)};
        level.energy = {{joules}, {1}, resolved};
    };
    add("step 0", 1, 10, true);
    add("step *", 98, 980, true);
    add("step 1", 1, 10, true);
    add("layer 0", 100, 40, true);
    add("epoch *", 3, 30, true);
    add("epoch 1", 2, 0, false);
    pool_numbered_ranges(report);
    ASSERT_EQ(report.levels.size(), 3U);
    EXPECT_EQ(report.levels[0].scope.name, "step *");
    EXPECT_EQ(report.levels[0].runs, 100U);
    EXPECT_EQ(report.levels[0].time.count(), 50);
    EXPECT_EQ(report.levels[0].energy.joules.count, 1000);
    EXPECT_EQ(report.levels[0].energy.half_width.count, 3);
    EXPECT_TRUE(report.levels[0].energy.resolved);
    EXPECT_EQ(report.levels[1].scope.name, "layer 0");
    EXPECT_FALSE(report.levels[2].energy.resolved);
}

TEST(OperationNames, AreAPassAndPerhapsItsNumbers) {
    using kdvfs::train::Pass;
    const auto plain = operation_of("forward");
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->pass, Pass::forward);
    EXPECT_FALSE(plain->microbatch || plain->chunk);
    const auto numbered = operation_of("backward_weight m3 c1");
    ASSERT_TRUE(numbered);
    EXPECT_EQ(numbered->pass, Pass::backward_weight);
    EXPECT_EQ(numbered->microbatch, 3U);
    EXPECT_EQ(numbered->chunk, 1U);
    EXPECT_TRUE(
        numbered->names({.stage = 2, .pass = Pass::backward_weight, .chunk = 1, .microbatch = 3}));
    EXPECT_FALSE(numbered->names({.pass = Pass::backward_weight, .chunk = 0, .microbatch = 3}));
    const std::regex ranges{operation_ranges};
    for (const char* name : {"forward", "backward 3", "backward_input[3]"}) {
        EXPECT_TRUE(operation_of(name)) << name;
        EXPECT_TRUE(std::regex_search(name, ranges)) << name;
    }
    for (const char* name : {"", "step", "forwards", "forward_step", "my forward", "Forward"}) {
        EXPECT_FALSE(operation_of(name)) << name;
        EXPECT_FALSE(std::regex_search(name, ranges)) << name;
    }
}

}  // namespace
}  // namespace attach
