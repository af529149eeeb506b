// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// What one stage does in a plan.
struct StagePlan {
    Seconds time{};  ///< the iteration's length
    Joules total{};  ///< of all stages, as the plan promises
    Seconds span{};  ///< of this stage, from its first operation's start to its last one's end
    std::vector<PlannedClocks> operations{};  ///< of this stage, as they run
};

/// Plans of one pipeline for iterations of rising length, from the one that is wanted to the most
/// frugal one, made ahead: when another pipeline straggles, a plan is looked up, not made.
class PlanLadder {
public:
    PlanLadder() = default;
    explicit PlanLadder(std::vector<StagePlan> rungs) : rungs_{std::move(rungs)} {}

    [[nodiscard]] const std::vector<StagePlan>& rungs() const { return rungs_; }
    [[nodiscard]] bool empty() const { return rungs_.empty(); }
    /// The slowest plan that lasts no longer than `factor` times the first.
    [[nodiscard]] std::size_t rung_for(double factor) const {
        const auto longer = std::upper_bound(
            rungs_.begin(), rungs_.end(), rungs_.front().time * factor + Seconds{5e-10},
            [](Seconds time, const StagePlan& rung) { return time < rung.time; });
        return longer == rungs_.begin() ? 0 : static_cast<std::size_t>(longer - rungs_.begin()) - 1;
    }

private:
    std::vector<StagePlan> rungs_;
};

struct LadderOptions {
    /// How much longer an iteration may take than the shortest possible: 0.05 is 5 %.
    double slowdown = 0;
    Clocks clocks = Clocks::one;
    std::size_t rungs = 24;  ///< at most; a straggler is answered to within one of them
    /// How late clocks come on these GPUs: see `make_plan`. Where it is not given, a session takes
    /// the longest switch that `kdvfs measure-latency` has kept for rank 0's GPU, if it has one.
    std::optional<tune::SwitchDelay> switching{};
};

namespace detail {

inline nlohmann::json rung_json(const PipelinePlan& plan) {
    nlohmann::json operations = nlohmann::json::array();
    for (const PlannedOperation& planned : plan.operations) {
        const PlannedClocks& clocks = planned.clocks;
        operations.push_back({clocks.first.core.count, clocks.first.memory.count, clocks.share,
                              clocks.second.core.count, clocks.second.memory.count,
                              planned.start.count(), planned.duration.count()});
    }
    return {{"time_s", plan.time.count()},
            {"total_j", plan.total.count},
            {"operations", std::move(operations)}};
}

inline StagePlan stage_plan(const nlohmann::json& rung, const Pipeline& pipeline,
                            std::uint32_t stage) {
    StagePlan plan{
        Seconds{rung.at("time_s").get<double>()}, Joules{rung.at("total_j").get<double>()}, {}, {}};
    const nlohmann::json& operations = rung.at("operations");
    if (operations.size() != pipeline.operations.size())
        reject_pipeline("a plan of " + std::to_string(operations.size()) + " operations",
                        "this pipeline has " + std::to_string(pipeline.operations.size()),
                        "plan this pipeline");
    double begin = 1e300;
    double end = 0;
    for (std::uint32_t i = pipeline.stage_begin[stage]; i < pipeline.stage_begin[stage + 1]; ++i) {
        const nlohmann::json& row = operations[i];
        const auto clock = [&](std::size_t at) {
            return Megahertz{row.at(at).get<std::uint32_t>()};
        };
        plan.operations.push_back({pipeline.operations[i],
                                   {clock(0), clock(1)},
                                   row.at(2).get<double>(),
                                   {clock(3), clock(4)}});
        begin = std::min(begin, row.at(5).get<double>());
        end = std::max(end, row.at(5).get<double>() + row.at(6).get<double>());
    }
    plan.span = Seconds{end - begin};
    return plan;
}

}  // namespace detail

/// Makes the plans of a ladder, for all stages, as text: what rank 0 broadcasts.
/// @throws Error (invalid_input) for a negative slowdown or no rungs
inline std::string make_ladder_text(const Frontier& frontier, const LadderOptions& options) {
    if (!(options.slowdown >= 0) || options.rungs == 0)
        detail::reject_pipeline("a slowdown of " + std::to_string(options.slowdown) + " and " +
                                    std::to_string(options.rungs) + " plans",
                                "neither may be less than nothing",
                                "give 0.05 for 5 %, and one plan at least");
    const Seconds first = std::min(frontier.shortest() * (1 + options.slowdown), frontier.frugal());
    const double range = frontier.frugal() / first;
    nlohmann::json rungs = nlohmann::json::array();
    Seconds last{0};
    for (std::size_t k = 0; k < options.rungs; ++k) {
        // Most stragglers are only a little slower: there the plans are close to one another.
        const double part =
            k == 0 ? 0
                   : std::pow(static_cast<double>(k) / static_cast<double>(options.rungs - 1), 1.5);
        const PipelinePlan plan = make_plan(frontier, first * std::pow(range, part), options.clocks,
                                            options.switching.value_or(tune::SwitchDelay{}));
        // Clocks that come late can make a plan longer than the next one.
        if (plan.time > last) rungs.push_back(detail::rung_json(plan));
        last = std::max(last, plan.time);
        if (range - 1 < 1e-9) break;
    }
    return rungs.dump();
}

/// One stage's part of a ladder.
/// @throws Error (invalid_input) for a text that is none, or of another pipeline
inline PlanLadder parse_ladder(std::string_view text, const Pipeline& pipeline,
                               std::uint32_t stage) {
    std::vector<StagePlan> rungs;
    try {
        for (const nlohmann::json& rung : nlohmann::json::parse(text.begin(), text.end()))
            rungs.push_back(detail::stage_plan(rung, pipeline, stage));
    } catch (const nlohmann::json::exception& error) {
        detail::reject_pipeline("the plans that rank 0 sent", error.what(),
                                "let all ranks run the same version of kdvfs");
    }
    return PlanLadder{std::move(rungs)};
}

}  // namespace kdvfs::inline v0_3::train
