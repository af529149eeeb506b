// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/schedules.hpp>

#include <kdvfs/detail/train/pipeline.hpp>
#include <kdvfs/detail/train/schedule_dependencies.hpp>
#include <kdvfs/train/pipeline.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace kdvfs::inline v0_3::train {

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
            case Schedule::graph: order_ = shape_.order[stage_]; break;
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

/// A given order has operations that are in range, each once.
inline void check_order(const PipelineShape& shape) {
    const auto reject = [](const std::string& what, const std::string& why) {
        reject_pipeline(what, why, "give each stage's operations in the order they run in");
    };
    if (shape.order.size() != shape.stages)
        reject("the pipeline", "it has no order of operations for each stage");
    if (shape.placement == Placement::both_ends && shape.chunks != 2)
        reject("the pipeline", "microbatches from both ends go through other than 2 chunks");
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
        std::vector<std::tuple<Pass, std::uint32_t, std::uint32_t>> seen;
        for (const Operation& operation : shape.order[s])
            for (const Operation& part : parts_of(operation)) {
                if (part.stage != s || part.chunk >= shape.chunks ||
                    part.microbatch >= shape.microbatches)
                    reject("the " + to_string(part), "the pipeline has no such operation");
                if (part.pass > Pass::forward_backward)
                    reject("the " + to_string(part), "it runs once: it belongs before or after");
                seen.emplace_back(part.pass, part.chunk, part.microbatch);
            }
        std::sort(seen.begin(), seen.end());
        if (std::adjacent_find(seen.begin(), seen.end()) != seen.end())
            reject("stage " + std::to_string(s), "it runs an operation twice");
    }
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
    if (shape.schedule == Schedule::graph) return check_order(shape);
    if (shape.placement != Placement::loop)
        reject("the schedule " + std::string{to_string(shape.schedule)} + " has chunks in a loop",
               "give the order of operations");
    if (shape.schedule != Schedule::interleaved_1f1b && shape.chunks > 1)
        reject("the schedule " + std::string{to_string(shape.schedule)} + " has one chunk a stage",
               "use interleaved_1f1b, or 1 chunk");
    if (shape.schedule == Schedule::interleaved_1f1b && shape.microbatches % shape.stages != 0)
        reject(std::to_string(shape.microbatches) + " microbatches do not divide by " +
                   std::to_string(shape.stages) + " stages, as an interleaved schedule needs",
               "give a multiple of the stages, at least as many as there are stages");
}

/// Operations that stages run once have passes of their own, each at most once in a stage.
inline void check_once(const PipelineShape& shape) {
    std::vector<std::pair<std::uint32_t, Pass>> seen;
    for (const auto* list : {&shape.before, &shape.after})
        for (const StageOperation& once : *list) {
            const auto reject = [&](const std::string& why, const std::string& remedy) {
                reject_pipeline("the operation " + std::string{to_string(once.pass)}, why, remedy);
            };
            if (once.pass < Pass::embedding)
                reject("it is one of microbatches", "give embedding, collective or optimizer");
            for (const std::uint32_t s : once.stages)
                if (s >= shape.stages)
                    reject("it is on stage " + std::to_string(s) + ", which is none",
                           "count stages from 0");
            for (std::uint32_t s = 0; s < shape.stages; ++s)
                if (is_on(once, s)) seen.emplace_back(s, once.pass);
        }
    std::sort(seen.begin(), seen.end());
    if (const auto twice = std::adjacent_find(seen.begin(), seen.end()); twice != seen.end())
        reject_pipeline("stage " + std::to_string(twice->first),
                        "it runs the operation " + std::string{to_string(twice->second)} + " twice",
                        "make one operation of them, or give a graph");
    const std::vector<Seconds>& reduced = shape.reduction.time;
    if (reduced.empty()) return;
    if (reduced.size() != shape.stages || shape.reduction.buckets == 0)
        reject_pipeline("the reduction of gradients",
                        "it has no time for each stage, or no buckets", "give one time a stage");
    for (std::uint32_t s = 0; s < shape.stages; ++s)
        if (std::none_of(shape.after.begin(), shape.after.end(),
                         [&](const StageOperation& once) { return is_on(once, s); }))
            reject_pipeline("the reduction of gradients on stage " + std::to_string(s),
                            "nothing waits for it", "give the optimizer in `after`");
}

/// The operations of one stage, in the order they run in.
inline std::vector<Operation> stage_operations(const PipelineShape& shape, std::uint32_t stage) {
    std::vector<Operation> all;
    const auto add = [&](const std::vector<StageOperation>& list) {
        for (const StageOperation& once : list)
            if (is_on(once, stage)) all.push_back({stage, once.pass, 0, 0, 0});
    };
    add(shape.before);
    const std::vector<Operation> passes = StageOrder{shape, stage}();
    all.insert(all.end(), passes.begin(), passes.end());
    add(shape.after);
    return all;
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE Pipeline make_pipeline(const PipelineShape& shape, const CurveIndex& curve_of,
                                    std::vector<Curve> curves, Watts blocking_power) {
    detail::check_shape(shape);
    detail::check_once(shape);
    std::vector<std::vector<Operation>> stages;
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
        stages.push_back(detail::stage_operations(shape, s));
        for (Operation& operation : stages.back()) {
            const auto found = curve_of.find({s, operation.pass, operation.chunk});
            if (found == curve_of.end())
                detail::reject_pipeline("the " + to_string(operation), "it has no curve",
                                        "profile this operation, too");
            operation.curve = found->second;
        }
    }
    std::vector<Dependency> dependencies = detail::ScheduleDependencies{shape, stages, curves}();
    Pipeline pipeline =
        make_graph(stages, std::move(dependencies), std::move(curves), blocking_power);
    pipeline.schedule = shape.schedule;
    pipeline.chunks = shape.chunks;
    pipeline.microbatches = shape.microbatches;
    return pipeline;
}

KDVFS_INLINE Pipeline unmeasured_pipeline(PipelineShape shape) {
    detail::check_shape(shape);
    shape.reduction.buckets = std::min(shape.reduction.buckets, 1U);
    CurveIndex curve_of;
    for (std::uint32_t s = 0; s < shape.stages; ++s)
        for (std::uint32_t chunk = 0; chunk < shape.chunks; ++chunk)
            for (const Pass pass : all_passes) curve_of[{s, pass, chunk}] = 0;
    return make_pipeline(
        shape, curve_of,
        {{"an operation to be measured",
          {{{{1}, auto_clock}, Seconds{1}, {1}}, {{{2}, auto_clock}, Seconds{2}, {1}}},
          Watts{}}},
        Watts{});
}

#endif

}  // namespace kdvfs::inline v0_3::train
