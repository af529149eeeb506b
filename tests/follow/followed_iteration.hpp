// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/followed_run.hpp>
#include <examples/gpt3_iteration/scoped_iteration.hpp>
#include <examples/gpt3_iteration/sweep.hpp>
#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/simulated.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// A board, its profile of the GPT-3-XL iteration, and plans for it, made once.
namespace follow_test {

using namespace kdvfs;

/// An added launch that no plan has.
struct Unplanned : Kernel<"unplanned"> {};

struct Job {
    gpt3::Case board;
    tune::CostTable table;

    explicit Job(const char* gpu) : board{*gpt3::find_case(gpu)}, table{costs(board)} {}

    [[nodiscard]] tune::SegmentPlan plan(Duration latency, const tune::Objective& objective) const {
        return gpt3::plan_segments(board.board, table, objective, latency);
    }
    [[nodiscard]] std::shared_ptr<PlanTable> followed(const tune::SegmentPlan& plan) const {
        auto result = std::make_shared<PlanTable>();
        result->follow(plan.sequence);
        return result;
    }

private:
    static tune::CostTable costs(const gpt3::Case& board) {
        return tune::mean_costs(
            gpt3::sweep(board.board, board.kernels, board.points, [](std::size_t) {}));
    }
};

/// Launches one entry in its scope; `gpt3::kernel_count` stands for a kernel of no plan, which
/// works as long as a gelu.
template <class BoundGpu, class LaunchKernel>
void launch_one(const BoundGpu& gpu, StreamRef stream, std::size_t entry, LaunchKernel launch) {
    using Launch = void (*)(const BoundGpu&, StreamRef, LaunchKernel&);
    static constexpr auto launches = []<std::size_t... Entry>(std::index_sequence<Entry...>) {
        return std::array<Launch, gpt3::kernel_count>{
            &gpt3::launch_entry<Entry, BoundGpu, LaunchKernel>...};
    }
    (std::make_index_sequence<gpt3::kernel_count>{});
    if (entry < gpt3::kernel_count) return launches[entry](gpu, stream, launch);
    FrequencyScope<Unplanned> scope{gpu, stream};
    launch(11);
}

}  // namespace follow_test
