// SPDX-License-Identifier: MIT
#include <examples/library_calls/mlp.hpp>
#include <tests/hip_double/gpu_on_double.hpp>
#include <tests/hip_double/hip_double.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace library_calls {
namespace {

float entry(int i) { return static_cast<float>(i % 7 + 1); }

/// The layer, computed here: up, down and the input are filled with 1 to 7, scaled.
std::vector<float> expected(int rows, int width) {
    const int hidden_width = 4 * width;
    std::vector<float> out;
    for (int row = 0; row < rows; ++row) {
        std::vector<float> hidden;
        for (int h = 0; h < hidden_width; ++h) {
            float sum = 0;
            for (int i = 0; i < width; ++i) {
                sum += 0.01F * entry(h + i * hidden_width) * entry(i + row * width);
            }
            hidden.push_back(sum);
        }
        for (int o = 0; o < width; ++o) {
            float sum = 0;
            for (int h = 0; h < hidden_width; ++h) {
                sum += 0.02F * entry(o + h * width) * hidden[static_cast<std::size_t>(h)];
            }
            out.push_back(sum);
        }
    }
    return out;
}

TEST(LibraryCalls, ComputeUnderTheirClocksWhatTheyComputeWithoutThem) {
    hip_double::reset({"0000:c1:00.0"});
    const auto board = std::make_shared<prompt::Board>();
    constexpr int rows = 3;
    constexpr int width = 8;
    const auto gpu = hip_double::open(board, {.meter_every = 1}).with<Policies>();
    const auto out = run(gpu, rows, width, 50);
    const auto wanted = expected(rows, width);
    ASSERT_EQ(out.size(), wanted.size());
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], wanted[i], 1e-3F * wanted[i]);
    std::this_thread::sleep_for(std::chrono::milliseconds{30});  // for the counter's next sample
    gpu.next_iteration();
    const auto report = gpu.report();
    EXPECT_EQ(report.scopes.scopes, 100u);
    for (const auto& row : report.rows) EXPECT_EQ(row.calls, 50u) << row.kernel.name;
    EXPECT_EQ(report.rows.size(), 2u);
    gpu.close();
    EXPECT_EQ(board->state(), kdvfs::ClockState{});
}

}  // namespace
}  // namespace library_calls
