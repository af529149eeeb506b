// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/tune/power_swing.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// When an operation runs, and what it draws.
struct RunOperation {
    Seconds start{0};
    Seconds duration{0};
    Watts power{};
    Megahertz core{};             ///< at its end
    std::optional<Watts> wait{};  ///< of the wait before it, where it gets a clock of its own
};

/// The power of each stage over an iteration, waits included: they draw what the clock of the
/// operation before them does, the first of an iteration that of its last.
/// @param operations as in the pipeline
inline std::vector<std::vector<tune::PowerStep>> stage_powers(
    const Pipeline& pipeline, const std::vector<RunOperation>& operations, Seconds iteration) {
    std::vector<std::vector<tune::PowerStep>> stages;
    for (std::uint32_t s = 0; s < pipeline.stages; ++s) {
        std::vector<tune::PowerStep>& steps = stages.emplace_back();
        const std::uint32_t begin = pipeline.stage_begin[s];
        const std::uint32_t end = pipeline.stage_begin[s + 1];
        Megahertz core = operations[end - 1].core;
        const auto waits = [&](Seconds length, const std::optional<Watts>& power) {
            if (length <= Seconds{0}) return;
            const bool by_clock = !pipeline.waiting.points.empty();
            steps.push_back({length, power      ? *power
                                     : by_clock ? pipeline.waiting.at(core)
                                                : pipeline.blocking_power});
        };
        Seconds free{0};
        for (std::uint32_t i = begin; i < end; ++i) {
            const RunOperation& operation = operations[i];
            waits(operation.start - free, operation.wait);
            steps.push_back({operation.duration, operation.power});
            free = operation.start + operation.duration;
            core = operation.core;
        }
        waits(iteration - free, operations[begin].wait);
    }
    return stages;
}

/// The operations of a plan, and the mean power of the waits that it gives a clock.
inline std::vector<RunOperation> run_operations(const Pipeline& pipeline,
                                                const PipelinePlan& plan) {
    std::vector<RunOperation> operations;
    for (const PlannedOperation& planned : plan.operations) {
        const Joules all = planned.effective + pipeline.blocking_power * planned.duration;
        operations.push_back({planned.start,
                              planned.duration,
                              all / planned.duration,
                              planned.clocks.second.core,
                              {}});
    }
    for (const PlannedWait& wait : plan.waits) {
        const std::uint32_t stage = pipeline.operations[wait.before].stage;
        const bool is_first = wait.before == pipeline.stage_begin[stage];
        const std::uint32_t last = pipeline.stage_begin[stage + 1] - 1;
        const Megahertz core = operations[is_first ? last : wait.before - 1].core;
        operations[wait.before].wait = pipeline.waiting.at(core) - wait.saved / wait.length;
    }
    return operations;
}

/// An iteration in which each operation runs at its fastest clock that draws no more than the cap,
/// or where it draws least, as early as it can.
/// @returns the operations, and how long the iteration takes
inline std::pair<std::vector<RunOperation>, Seconds> run_below(const Pipeline& pipeline,
                                                               Watts cap) {
    std::vector<RunOperation> operations(pipeline.operations.size());
    std::vector<std::vector<Dependency>> then(operations.size());
    for (const Dependency& d : pipeline.dependencies) then[d.first].push_back(d);
    Seconds end{0};
    for (const std::uint32_t i : pipeline.topological_order) {
        const Curve& curve = pipeline.curves[pipeline.operations[i].curve];
        const auto watts = [](const CurvePoint& point) { return point.energy / point.time; };
        const CurvePoint* found = &curve.points().front();
        for (const CurvePoint& point : curve.points()) {
            const bool fits = watts(point) <= cap;
            if (fits ? watts(*found) > cap || point.time < found->time
                     : watts(*found) > cap && watts(point) < watts(*found))
                found = &point;
        }
        operations[i].duration = found->time;
        operations[i].power = watts(*found);
        operations[i].core = found->clock.core;
        const Seconds ended = operations[i].start + found->time;
        for (const Dependency& d : then[i])
            operations[d.then].start = std::max(operations[d.then].start, ended + d.time);
        end = std::max(end, ended);
    }
    return {operations, end};
}

/// What a lower range of power of the whole pipeline would cost in time, by clocks alone: all
/// operations at their fastest clock below a cap of the power of each stage. From no cap downwards.
inline std::vector<tune::CappedIteration> lower_ranges(const Pipeline& pipeline, Seconds window) {
    Watts highest{};
    for (const Operation& operation : pipeline.operations)
        for (const CurvePoint& point : pipeline.curves[operation.curve].points())
            highest = std::max(highest, point.energy / point.time);
    std::vector<tune::CappedIteration> rows;
    for (int row = 0; row < tune::swing_caps; ++row) {
        const Watts cap = highest * (1 - tune::swing_cap_step * row);
        const auto [operations, time] = run_below(pipeline, cap);
        const auto stages = stage_powers(pipeline, operations, time);
        rows.push_back({cap, time, tune::power_swing(tune::sum_power(stages), window)});
    }
    return rows;
}

}  // namespace kdvfs::inline v0_3::train
