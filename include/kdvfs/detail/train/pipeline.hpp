// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline.hpp>

#include <kdvfs/error.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kdvfs::inline v0_3::train {

namespace detail {

[[noreturn]] inline void reject_pipeline(const std::string& object, const std::string& why,
                                         const std::string& remedy) {
    throw Error{Errc::invalid_input, {"plan a pipeline", object, why, remedy}};
}

/// Sorts the operations so that each comes after what it depends on.
inline void sort_topologically(Pipeline& pipeline) {
    const std::size_t count = pipeline.operations.size();
    std::vector<std::uint32_t> missing(count, 0);
    std::vector<std::uint32_t> begin(count + 2, 0);
    for (const Dependency& d : pipeline.dependencies) {
        ++missing[d.then];
        ++begin[d.first + 2];
    }
    for (std::size_t i = 2; i < begin.size(); ++i) begin[i] += begin[i - 1];
    std::vector<std::uint32_t> next(pipeline.dependencies.size());
    for (const Dependency& d : pipeline.dependencies) next[begin[d.first + 1]++] = d.then;

    std::vector<std::uint32_t>& order = pipeline.topological_order;
    order.clear();
    order.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i)
        if (missing[i] == 0) order.push_back(i);
    for (std::size_t k = 0; k < order.size(); ++k)
        for (std::uint32_t e = begin[order[k]]; e < begin[order[k] + 1]; ++e)
            if (--missing[next[e]] == 0) order.push_back(next[e]);
    if (order.size() == count) return;
    for (std::size_t i = 0; i < count; ++i)
        if (missing[i] > 0)
            reject_pipeline("the " + to_string(pipeline.operations[i]),
                            "it waits for itself, through a cycle of dependencies",
                            "remove one of the dependencies");
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::string to_string(const Operation& operation) {
    return std::string{to_string(operation.pass)} + " of microbatch " +
           std::to_string(operation.microbatch) + ", chunk " + std::to_string(operation.chunk) +
           ", on stage " + std::to_string(operation.stage) +
           (operation.pass == Pass::forward_backward
                ? ", over the backward of microbatch " + std::to_string(operation.over_microbatch) +
                      ", chunk " + std::to_string(operation.over_chunk)
                : "");
}

KDVFS_INLINE std::optional<WaitingPower::Point> WaitingPower::lowest() const {
    std::optional<Point> found;
    for (const Point& point : points)
        if (point.power < (found ? found->power : above)) found = point;
    return found;
}

KDVFS_INLINE Pipeline make_graph(const std::vector<std::vector<Operation>>& stages,
                                 std::vector<Dependency> dependencies, std::vector<Curve> curves,
                                 Watts blocking_power) {
    Pipeline pipeline;
    pipeline.stages = static_cast<std::uint32_t>(stages.size());
    pipeline.blocking_power = blocking_power;
    pipeline.curves = std::move(curves);
    pipeline.stage_begin.push_back(0);
    if (stages.empty() || stages.size() > 2048)
        detail::reject_pipeline("the pipeline", "its stages are not from 1 to 2048",
                                "give the order of operations of each stage");
    for (std::uint32_t s = 0; s < stages.size(); ++s) {
        if (stages[s].empty())
            detail::reject_pipeline("stage " + std::to_string(s), "it has no operations",
                                    "leave the stage out");
        for (Operation operation : stages[s]) {
            operation.stage = s;
            if (operation.curve >= pipeline.curves.size())
                detail::reject_pipeline("the " + to_string(operation), "it has no curve",
                                        "profile this operation, too");
            pipeline.microbatches = std::max(pipeline.microbatches, operation.microbatch + 1);
            pipeline.chunks =
                std::max({pipeline.chunks, operation.chunk + 1, operation.over_chunk + 1});
            pipeline.operations.push_back(operation);
        }
        const auto end = static_cast<std::uint32_t>(pipeline.operations.size());
        for (std::uint32_t i = pipeline.stage_begin.back() + 1; i < end; ++i)
            dependencies.push_back({i - 1, i});
        pipeline.stage_begin.push_back(end);
    }
    for (const Dependency& d : dependencies)
        if (d.first >= pipeline.operations.size() || d.then >= pipeline.operations.size())
            detail::reject_pipeline("the pipeline", "a dependency names an operation that is none",
                                    "number operations from 0, stage by stage");
    for (const Dependency& d : dependencies)
        if (!(d.time.count() >= 0 && d.time.count() <= 1000))
            detail::reject_pipeline("the " + to_string(pipeline.operations[d.then]),
                                    "the time that it waits for a transfer is not a number from 0 "
                                    "to 1000 s",
                                    "give it in seconds");
    pipeline.dependencies = std::move(dependencies);
    detail::sort_topologically(pipeline);
    return pipeline;
}

#endif

}  // namespace kdvfs::inline v0_3::train
