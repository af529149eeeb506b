// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// What the pipelines of the known schedules are made from.
struct PipelineShape {
    Schedule schedule = Schedule::one_f_one_b;
    std::uint32_t stages = 0;
    std::uint32_t chunks = 1;  ///< of the model, on each stage; more than 1 when interleaved only
    std::uint32_t microbatches = 0;
};

/// Which curve an operation runs on: (stage, pass, chunk) -> index of the curve.
using CurveIndex = std::map<std::tuple<std::uint32_t, Pass, std::uint32_t>, std::uint32_t>;

namespace detail {

/// The order in which one stage runs its operations.
class StageOrder {
public:
    StageOrder(const PipelineShape& shape, std::uint32_t stage) : shape_{shape}, stage_{stage} {}

    [[nodiscard]] std::vector<Operation> operator()() {
        switch (shape_.schedule) {
            case Schedule::gpipe: gpipe(); break;
            case Schedule::one_f_one_b: alternate(Pass::backward); break;
            case Schedule::interleaved_1f1b: interleave(); break;
            case Schedule::zb_h1: zero_bubble(); break;
            case Schedule::graph:
                reject_pipeline("the pipeline", "a graph has no schedule of its own",
                                "use make_graph, which takes the order of operations");
        }
        return std::move(order_);
    }

private:
    void add(Pass pass, std::uint32_t microbatch, std::uint32_t chunk = 0) {
        order_.push_back({stage_, pass, chunk, microbatch, 0});
    }

    void gpipe() {
        for (std::uint32_t m = 0; m < shape_.microbatches; ++m) add(Pass::forward, m);
        for (std::uint32_t m = 0; m < shape_.microbatches; ++m) add(Pass::backward, m);
    }

    /// 1F1B: as many forwards ahead as there are stages behind this one, then in turn.
    void alternate(Pass backward) {
        const std::uint32_t ahead = std::min(shape_.stages - 1 - stage_, shape_.microbatches);
        for (std::uint32_t m = 0; m < ahead; ++m) add(Pass::forward, m);
        for (std::uint32_t m = 0; m < shape_.microbatches; ++m) {
            if (m + ahead < shape_.microbatches) add(Pass::forward, m + ahead);
            add(backward, m);
        }
    }

    /// ZB-H1: stage s puts the weight's part off by s microbatches, so that all stages hold as
    /// many activations as the first one does in 1F1B.
    void zero_bubble() {
        alternate(Pass::backward_input);
        std::vector<Operation> with_weights;
        for (const Operation& operation : order_) {
            with_weights.push_back(operation);
            if (operation.pass == Pass::backward_input && operation.microbatch >= stage_)
                with_weights.push_back(
                    {stage_, Pass::backward_weight, 0, operation.microbatch - stage_, 0});
        }
        order_ = std::move(with_weights);
        const std::uint32_t late = std::min(stage_, shape_.microbatches);
        for (std::uint32_t m = shape_.microbatches - late; m < shape_.microbatches; ++m)
            add(Pass::backward_weight, m);
    }

    /// Megatron-LM's order: groups of as many microbatches as stages go through all chunks.
    void interleave() {
        const std::uint32_t total = shape_.microbatches * shape_.chunks;
        std::uint32_t ahead =
            2 * (shape_.stages - 1 - stage_) + (shape_.chunks - 1) * shape_.stages;
        if (shape_.microbatches == shape_.stages) ahead = total;
        ahead = std::min(ahead, total);
        for (std::uint32_t k = 0; k < ahead; ++k) add_interleaved(Pass::forward, k);
        for (std::uint32_t k = 0; k < total; ++k) {
            if (k + ahead < total) add_interleaved(Pass::forward, k + ahead);
            add_interleaved(Pass::backward, k);
        }
    }

    void add_interleaved(Pass pass, std::uint32_t k) {
        const std::uint32_t group = shape_.stages * shape_.chunks;
        const std::uint32_t chunk = k % group / shape_.stages;
        add(pass, k / group * shape_.stages + k % shape_.stages,
            pass == Pass::forward ? chunk : shape_.chunks - 1 - chunk);
    }

    const PipelineShape& shape_;
    std::uint32_t stage_;
    std::vector<Operation> order_;
};

/// Finds operations of a pipeline by what they are.
class OperationIndex {
public:
    explicit OperationIndex(const std::vector<std::vector<Operation>>& stages,
                            const PipelineShape& shape)
        : shape_{shape},
          index_(std::size_t{4} * shape.stages * shape.chunks * shape.microbatches, none) {
        std::uint32_t next = 0;
        for (const auto& stage : stages)
            for (const Operation& operation : stage) index_[slot(operation)] = next++;
    }
    /// The operation's number, or `none`.
    [[nodiscard]] std::uint32_t operator()(const Operation& operation) const {
        return index_[slot(operation)];
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

/// What an operation waits for on other stages: chunk c of stage s is part c * stages + s of the
/// model; forwards come from the part before, backwards from the part behind, the last part's
/// backward from its own forward, and a weight's part from the input's part.
inline std::vector<Operation> awaited(const Operation& operation, const PipelineShape& shape) {
    const std::uint32_t part = operation.chunk * shape.stages + operation.stage;
    const std::uint32_t last = shape.stages * shape.chunks - 1;
    Operation before = operation;
    const auto at_part = [&](std::uint32_t p) {
        before.stage = p % shape.stages;
        before.chunk = p / shape.stages;
        return std::vector<Operation>{before};
    };
    switch (operation.pass) {
        case Pass::forward: return part == 0 ? std::vector<Operation>{} : at_part(part - 1);
        case Pass::backward:
        case Pass::backward_input:
            if (part == last) before.pass = Pass::forward;
            return at_part(part == last ? part : part + 1);
        case Pass::backward_weight: before.pass = Pass::backward_input; return at_part(part);
    }
    return {};
}

inline void check_shape(const PipelineShape& shape) {
    const auto reject = [](const std::string& why, const std::string& remedy) {
        reject_pipeline("the pipeline", why, remedy);
    };
    if (shape.stages == 0 || shape.stages > 2048)
        reject("its stages are not from 1 to 2048", "give the number of pipeline stages");
    if (shape.chunks == 0 || shape.chunks > 256)
        reject("its chunks are not from 1 to 256", "give the number of chunks of each stage");
    if (shape.microbatches == 0 || shape.microbatches > 65536)
        reject("its microbatches are not from 1 to 65536", "give the number of microbatches");
    if (std::uint64_t{shape.stages} * shape.chunks * shape.microbatches > 4'000'000)
        reject("it has more than 4 million forwards", "plan fewer microbatches");
    if (shape.schedule != Schedule::interleaved_1f1b && shape.chunks > 1)
        reject("the schedule " + std::string{to_string(shape.schedule)} + " has one chunk a stage",
               "use interleaved_1f1b, or 1 chunk");
    if (shape.schedule == Schedule::interleaved_1f1b && shape.microbatches % shape.stages != 0)
        reject(std::to_string(shape.microbatches) + " microbatches do not divide by " +
                   std::to_string(shape.stages) + " stages, as an interleaved schedule needs",
               "give a multiple of the stages, at least as many as there are stages");
}

}  // namespace detail

/// A pipeline of a known schedule. Fewer microbatches than stages are fine unless interleaved.
/// @throws Error (invalid_input) for numbers out of range, chunks or microbatches that do not
/// divide, and operations without a curve
inline Pipeline make_pipeline(const PipelineShape& shape, const CurveIndex& curve_of,
                              std::vector<Curve> curves, Watts blocking_power) {
    detail::check_shape(shape);
    std::vector<std::vector<Operation>> stages;
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
        stages.push_back(detail::StageOrder{shape, s}());
        for (Operation& operation : stages.back()) {
            const auto found = curve_of.find({s, operation.pass, operation.chunk});
            if (found == curve_of.end())
                detail::reject_pipeline("the " + to_string(operation), "it has no curve",
                                        "profile this operation, too");
            operation.curve = found->second;
        }
    }
    const detail::OperationIndex index{stages, shape};
    std::vector<Dependency> dependencies;
    for (const auto& stage : stages)
        for (const Operation& operation : stage)
            for (const Operation& before : detail::awaited(operation, shape))
                dependencies.push_back({index(before), index(operation)});
    Pipeline pipeline =
        make_graph(stages, std::move(dependencies), std::move(curves), blocking_power);
    pipeline.schedule = shape.schedule;
    pipeline.chunks = shape.chunks;
    pipeline.microbatches = shape.microbatches;
    return pipeline;
}

/// A pipeline of which nothing has been measured: the order of its operations, and curves that
/// stand for those to come.
/// @throws Error (invalid_input) as `make_pipeline`
inline Pipeline unmeasured_pipeline(const PipelineShape& shape) {
    detail::check_shape(shape);
    CurveIndex curve_of;
    for (std::uint32_t s = 0; s < shape.stages; ++s)
        for (std::uint32_t chunk = 0; chunk < shape.chunks; ++chunk)
            for (const Pass pass :
                 {Pass::forward, Pass::backward, Pass::backward_input, Pass::backward_weight})
                curve_of[{s, pass, chunk}] = 0;
    return make_pipeline(
        shape, curve_of,
        {{"an operation to be measured",
          {{{{1}, auto_clock}, Seconds{1}, {1}}, {{{2}, auto_clock}, Seconds{2}, {1}}},
          Watts{}}},
        Watts{});
}

}  // namespace kdvfs::inline v0_3::train
