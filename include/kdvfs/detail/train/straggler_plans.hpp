// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/train/network.hpp>
#include <kdvfs/detail/train/pipeline.hpp>
#include <kdvfs/detail/train/stage_plan.hpp>
#include <kdvfs/detail/train/stragglers.hpp>
#include <kdvfs/detail/tune/in_background.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// Plans leave so much time to stages that are not slow, as operations vary; chosen by
/// `stragglers_soak`, where each varies by 0.5 %.
constexpr double straggler_reserve = 0.0018;

/// The pipeline as it is on GPUs that are slower than its curves: times and energies of each stage
/// are multiplied by its slowness.
inline Pipeline slowed_pipeline(Pipeline pipeline, std::span<const double> slowness) {
    std::map<std::pair<std::uint32_t, double>, std::uint32_t> made;
    std::vector<Curve> curves;
    for (Operation& operation : pipeline.operations) {
        const double factor = slowness[operation.stage];
        const auto [at, is_new] =
            made.try_emplace({operation.curve, factor}, static_cast<std::uint32_t>(curves.size()));
        if (is_new) {
            const Curve& curve = pipeline.curves[operation.curve];
            std::vector<CurvePoint> points{curve.points().begin(), curve.points().end()};
            for (CurvePoint& point : points) {
                point.time = point.time * factor;
                point.energy = point.energy * factor;
            }
            curves.emplace_back(curve.name(), std::move(points), pipeline.blocking_power,
                                curve.is_constant() ? Shape::constant : Shape::measured);
        }
        operation.curve = at->second;
    }
    pipeline.curves = std::move(curves);
    return pipeline;
}

/// The longest path of an iteration with the fastest clocks, each operation as slow as its stage.
inline Seconds shortest_iteration(const Pipeline& pipeline, std::span<const double> slowness) {
    std::vector<std::int64_t> time;
    Network{pipeline}.earliest(
        [&](std::uint32_t i) {
            const Operation& operation = pipeline.operations[i];
            const auto fastest =
                static_cast<double>(pipeline.curves[operation.curve].hull().time.front());
            return static_cast<std::int64_t>(std::floor(fastest * slowness[operation.stage]));
        },
        time);
    return to_seconds(time.back());
}

/// Energy of an iteration with the fastest clocks, waits included.
inline Joules top_total(const Pipeline& pipeline) {
    const std::vector<double> as_measured(pipeline.stages, 1.0);
    Joules total = pipeline.blocking_energy(shortest_iteration(pipeline, as_measured));
    for (const Operation& operation : pipeline.operations) {
        const CurvePoint& fastest = pipeline.curves[operation.curve].points().front();
        total += fastest.energy - pipeline.blocking_power * fastest.time;
    }
    return total;
}

/// What the copies of a pipeline do about slow stages: {"plans": [...], "of_copy": [...]}. All
/// copies plan for the time that the slowest one needs at least. Its other stages slow down, too.
/// A copy whose time was given is taken to be slow for reasons of its own: it keeps the first plan.
/// @param first length of the plan without stragglers
/// @throws Error (not_supported) for plans with clocks by kernel
inline std::string make_answer_text(const Frontier& frontier, const StragglerState& state,
                                    Seconds first, const PlanOptions& options) {
    if (!options.kernels.empty())
        throw Error{Errc::not_supported,
                    {"answer a straggler", "a plan with clocks by kernel",
                     "there is no such answer", "plan one clock for each operation"}};
    const Pipeline& pipeline = frontier.pipeline();
    const std::size_t copies = state.given.size();
    const auto slowness_of = [&](std::size_t copy) {
        return std::span{state.slowness}.subspan(copy * pipeline.stages, pipeline.stages);
    };
    Seconds wait = first;
    for (std::size_t c = 0; c < copies; ++c)
        wait =
            std::max({wait, shortest_iteration(pipeline, slowness_of(c)), Seconds{state.given[c]}});
    nlohmann::json plans = nlohmann::json::array();
    nlohmann::json of_copy = nlohmann::json::array();
    std::map<std::pair<std::vector<double>, Seconds>, std::size_t> made;
    for (std::size_t c = 0; c < copies; ++c) {
        std::vector<double> slowness{slowness_of(c).begin(), slowness_of(c).end()};
        const bool is_slow =
            std::any_of(slowness.begin(), slowness.end(), [](double s) { return s > 1; });
        const Seconds length = state.given[c] > 0 && !is_slow ? first : wait;
        const auto [at, is_new] = made.try_emplace({slowness, length}, plans.size());
        of_copy.push_back(at->second);
        if (!is_new) continue;
        std::optional<Frontier> own;
        if (is_slow) {
            for (double& s : slowness) s = std::max(s, 1 + straggler_reserve);
            own.emplace(slowed_pipeline(pipeline, slowness));
        }
        const Frontier& its = own ? *own : frontier;
        // The reserve is in the slowed curves already.
        const Seconds time =
            is_slow ? length : std::max(first, length * (1 / (1 + straggler_reserve)));
        const PipelinePlan plan =
            make_plan(its, std::clamp(time, its.shortest(), its.frugal()), options.clocks,
                      options.switching.value_or(tune::SwitchDelay{}));
        plans.push_back(plan_json(plan, slowness));
    }
    return nlohmann::json{{"plans", std::move(plans)}, {"of_copy", std::move(of_copy)}}.dump();
}

/// One stage's part of an answer.
/// @throws Error (invalid_input) for a text that is none, or of another pipeline
inline StagePlan parse_answer(std::string_view text, const Pipeline& pipeline, std::size_t copy,
                              std::uint32_t stage) {
    try {
        const auto json = nlohmann::json::parse(text.begin(), text.end());
        return stage_plan(json.at("plans").at(json.at("of_copy").at(copy).get<std::size_t>()),
                          pipeline, stage);
    } catch (const nlohmann::json::exception& error) {
        reject_pipeline("the answer to a straggler that rank 0 sent", error.what(),
                        "let all ranks run the same version of kdvfs");
    }
}

/// Makes answers on a thread of its own, one at a time, while iterations go on: rank 0 has one.
class AnswerPlanner {
public:
    AnswerPlanner(Frontier frontier, Seconds first, PlanOptions options)
        : frontier_{std::move(frontier)}, first_{first}, options_{options} {}

    /// What answer is wanted now, by its number. Asked again until it is ready.
    void want(std::uint64_t number, const StragglerState& state) {
        if (planning_) {
            if (!planning_->is_ready()) return;
            ready_ = {running_, planning_->take()};
            planning_.reset();
        }
        if (ready_.first == number) return;
        running_ = number;
        planning_ = std::make_unique<tune::detail::InBackground<std::string>>(
            [frontier = frontier_, state, first = first_, options = options_] {
                try {
                    return make_answer_text(frontier, state, first, options);
                } catch (const std::exception&) {
                    return std::string{};  // nobody can follow it
                }
            });
    }
    /// The number of the answer that is ready; 0: none.
    [[nodiscard]] std::uint64_t ready() const { return ready_.first; }
    [[nodiscard]] const std::string& text() const { return ready_.second; }

private:
    Frontier frontier_;
    Seconds first_;
    PlanOptions options_;
    std::unique_ptr<tune::detail::InBackground<std::string>> planning_;
    std::uint64_t running_ = 0;
    std::pair<std::uint64_t, std::string> ready_{0, {}};
};

}  // namespace kdvfs::inline v0_3::train::detail
