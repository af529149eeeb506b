// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/train/pipeline.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/pipeline_shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// The passes that an operation consists of: two where a forward runs over a backward.
inline std::vector<Operation> parts_of(const Operation& operation) {
    if (operation.pass != Pass::forward_backward) return {operation};
    Operation forward = operation;
    forward.pass = Pass::forward;
    Operation backward = operation;
    backward.pass = Pass::backward;
    backward.chunk = operation.over_chunk;
    backward.microbatch = operation.over_microbatch;
    return {forward, backward};
}

/// A part of the model, as microbatches go through it. Where they come from both ends there are two
/// ways through it.
struct ModelPart {
    std::uint32_t way = 0;
    std::uint32_t number = 0;
};
inline ModelPart part_at(std::uint32_t stage, std::uint32_t chunk, const PipelineShape& shape) {
    const std::uint32_t back = shape.stages - 1 - stage;
    switch (shape.placement) {
        case Placement::loop: return {0, chunk * shape.stages + stage};
        case Placement::v: return {0, chunk * shape.stages + (chunk % 2 == 0 ? stage : back)};
        case Placement::both_ends: return {chunk, chunk == 0 ? stage : back};
    }
    return {};
}
inline std::uint32_t parts_of_way(const PipelineShape& shape) {
    return shape.placement == Placement::both_ends ? shape.stages : shape.stages * shape.chunks;
}
/// The stage and the chunk of a part.
inline std::pair<std::uint32_t, std::uint32_t> place_of(std::uint32_t way, std::uint32_t part,
                                                        const PipelineShape& shape) {
    const std::uint32_t chunk = shape.placement == Placement::both_ends ? way : part / shape.stages;
    const std::uint32_t at = part % shape.stages;
    const bool is_back = shape.placement != Placement::loop && chunk % 2 == 1;
    return {is_back ? shape.stages - 1 - at : at, chunk};
}

/// Finds operations of a pipeline by what they are.
class OperationIndex {
public:
    explicit OperationIndex(const std::vector<std::vector<Operation>>& stages,
                            const PipelineShape& shape)
        : shape_{shape},
          index_(all_passes.size() * shape.stages * shape.chunks * shape.microbatches, none) {
        std::uint32_t next = 0;
        for (const auto& stage : stages)
            for (const Operation& operation : stage) {
                for (const Operation& part : parts_of(operation)) index_[slot(part)] = next;
                ++next;
            }
    }
    /// The operation's number, or `none`.
    [[nodiscard]] std::uint32_t operator()(const Operation& operation) const {
        return index_[slot(parts_of(operation).front())];
    }
    static constexpr std::uint32_t none = ~0U;

private:
    [[nodiscard]] std::size_t slot(const Operation& o) const {
        const auto pass = static_cast<std::size_t>(o.pass);
        return ((pass * shape_.stages + o.stage) * shape_.chunks + o.chunk) * shape_.microbatches +
               o.microbatch;
    }
    PipelineShape shape_;
    std::vector<std::uint32_t> index_;
};

/// What an operation waits for on other stages: forwards come from the part of the model before,
/// backwards from the part behind, the last part's backward from its own forward, and a weight's
/// part from the input's part.
inline std::vector<Operation> awaited(const Operation& operation, const PipelineShape& shape) {
    Operation before = operation;
    const auto part = part_at(operation.stage, operation.chunk, shape);
    const auto at_part = [&](std::uint32_t p) {
        std::tie(before.stage, before.chunk) = place_of(part.way, p, shape);
        return std::vector<Operation>{before};
    };
    const bool is_last = part.number + 1 == parts_of_way(shape);
    switch (operation.pass) {
        case Pass::forward:
            return part.number == 0 ? std::vector<Operation>{} : at_part(part.number - 1);
        case Pass::backward:
        case Pass::backward_input:
            if (is_last) before.pass = Pass::forward;
            return at_part(is_last ? part.number : part.number + 1);
        case Pass::backward_weight: before.pass = Pass::backward_input; return at_part(part.number);
        default: return {};
    }
}

inline bool is_on(const StageOperation& once, std::uint32_t stage) {
    return once.stages.empty() ||
           std::find(once.stages.begin(), once.stages.end(), stage) != once.stages.end();
}

/// What waits for what in a pipeline of a known schedule, beside the order within stages.
class ScheduleDependencies {
public:
    ScheduleDependencies(const PipelineShape& shape,
                         const std::vector<std::vector<Operation>>& stages,
                         const std::vector<Curve>& curves)
        : shape_{shape}, stages_{stages}, index_{stages, shape} {
        for (const auto& stage : stages)
            for (const Operation& operation : stage)
                for (const Operation& part : parts_of(operation))
                    for (const Operation& before : awaited(part, shape)) add(before, part);
        for (const auto* list : {&shape.before, &shape.after})
            for (const StageOperation& once : *list)
                if (once.together) meet(once);
        if (!shape.reduction.time.empty())
            for (std::uint32_t s = 0; s < shape.stages; ++s) reduce(s, curves);
    }
    [[nodiscard]] std::vector<Dependency> operator()() && { return std::move(all_); }

private:
    void add(const Operation& from, const Operation& to) {
        std::uint32_t first = index_(from);
        if (first == OperationIndex::none && from.pass != Pass::forward) {
            // Some stages split their backwards, others may not.
            Operation other = from;
            other.pass = from.pass == Pass::backward ? Pass::backward_input : Pass::backward;
            first = index_(other);
        }
        if (first == OperationIndex::none)
            reject_pipeline("the " + to_string(to),
                            "it waits for the " + to_string(from) + ", which no stage runs",
                            "give the order of all operations");
        const Seconds between = to.pass == Pass::forward ? shape_.activations : shape_.gradients;
        all_.push_back({first, index_(to), from.stage == to.stage ? Seconds{} : between});
    }

    /// An operation of several stages: each waits for what the others run before it.
    void meet(const StageOperation& once) {
        for (std::uint32_t s = 0; s < shape_.stages; ++s)
            for (std::uint32_t other = 0; other < shape_.stages; ++other) {
                if (s == other || !is_on(once, s) || !is_on(once, other)) continue;
                const std::uint32_t there = index_({other, once.pass, 0, 0, 0});
                if (there != index_(stages_[other].front()))
                    all_.push_back({there - 1, index_({s, once.pass, 0, 0, 0}), {}});
            }
    }

    /// Parts of a stage's reduction follow one another on their links: all is over when the last of
    /// them is, so that each chunk's last backward delays the end by what is left from it on. In
    /// the last of them buckets begin before it ends: those left then are reckoned with its
    /// shortest time, which is the latest end that there can be.
    void reduce(std::uint32_t stage, const std::vector<Curve>& curves) {
        const std::vector<Operation>& order = stages_[stage];
        std::vector<const Operation*> last(shape_.chunks);
        for (const Operation& operation : order)
            for (const Operation& part : parts_of(operation))
                if (part.pass == Pass::backward || part.pass == Pass::backward_weight)
                    last[part.chunk] = &operation;
        std::sort(last.begin(), last.end());
        if (last.front() == nullptr)
            reject_pipeline("the reduction of gradients on stage " + std::to_string(stage),
                            "a chunk of it has no backwards", "leave the reduction out");
        const auto waits =
            std::count_if(shape_.after.begin(), shape_.after.end(),
                          [&](const StageOperation& once) { return is_on(once, stage); });
        const Operation& waiting = order[order.size() - static_cast<std::size_t>(waits)];
        const Seconds chunk = shape_.reduction.time[stage] / shape_.chunks;
        const double whole = 1.0 / shape_.reduction.buckets;
        for (std::size_t k = 0; k < last.size(); ++k) {
            const Seconds fastest = curves[last[k]->curve].points().front().time;
            const Seconds left = std::max(chunk * whole, chunk - fastest * (1 - whole));
            all_.push_back({index_(*last[k]), index_(waiting),
                            left + chunk * static_cast<double>(last.size() - 1 - k)});
        }
    }

    const PipelineShape& shape_;
    const std::vector<std::vector<Operation>>& stages_;
    OperationIndex index_;
    std::vector<Dependency> all_;
};

}  // namespace kdvfs::inline v0_3::train::detail
