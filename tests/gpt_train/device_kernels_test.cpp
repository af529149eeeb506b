// SPDX-License-Identifier: MIT
// The device kernels, run thread by thread on the host, against the double-precision reference.
#include <gpt_train/gradient_check.hpp>

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace gpt {
namespace {

#if defined(__SANITIZE_THREAD__)
#define GPT_SKIP_WITHOUT_FIBERS() \
    GTEST_SKIP() << "ThreadSanitizer does not know the host grid's fibers"
#else
#define GPT_SKIP_WITHOUT_FIBERS() (void)0
#endif

// No size is a multiple of a tile, a slice or a block; every GEMM dimension exceeds a tile once.
constexpr ModelShape odd{.batch = 5, .sequence = 13, .width = 36, .heads = 3, .layers = 2};

TEST(DeviceKernels, AStepAgreesWithTheReference) {
    GPT_SKIP_WITHOUT_FIBERS();
    const GradientCheck check = check_gradient(odd, gpu::Stream{});
    EXPECT_LT(check.loss_difference, 1e-6);
    EXPECT_LT(check.gradient_difference, 1e-5);
    EXPECT_LT(check.parameter_difference, 1e-5);
}

/// Counts what is launched under which name.
struct CountingScopes {
    std::map<std::string, int> runs;

    template <class Kernel, class Work>
    void run(gpu::Stream, kdvfs::Variant variant, Work&& work) {
        ++runs[kdvfs::to_string(kdvfs::KernelKey{std::string{Kernel::name}, variant})];
        work();
    }
};

TEST(DeviceKernels, EveryLaunchIsUnderAScope) {
    GPT_SKIP_WITHOUT_FIBERS();
    constexpr ModelShape shape{.batch = 1, .sequence = 3, .width = 4, .heads = 1, .layers = 2};
    CountingScopes scopes;
    TrainingStep step{shape, initial_parameters(shape, 1), scopes, gpu::Stream{}};
    std::mt19937 random{1};
    step.load(random_batch(shape, training_text, random));
    const unsigned long before = host_grid::launches;
    step.forward();
    step.backward();
    step.update(AdamW{});
    EXPECT_EQ(scopes.runs["norm"], 2 * shape.layers + 1);
    EXPECT_EQ(scopes.runs["attention"], shape.layers);
    EXPECT_EQ(scopes.runs["gemm#14"], 1) << "the head's weight gradient";
    EXPECT_EQ(scopes.runs["adamw"], 1);
    int scoped_runs = 0;
    for (const auto& [name, count] : scopes.runs) scoped_runs += count;
    // Three kinds of scope hold two launches each.
    const int pairs = scopes.runs["norm_backward"] + scopes.runs["attention_backward"] +
                      scopes.runs["embed_backward"];
    EXPECT_EQ(host_grid::launches - before, static_cast<unsigned long>(scoped_runs + pairs));
}

}  // namespace
}  // namespace gpt
