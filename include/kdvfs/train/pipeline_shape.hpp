// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/units.hpp>

#include <cstdint>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// An operation that a stage runs once in an iteration: chunk 0, microbatch 0.
struct StageOperation {
    Pass pass = Pass::optimizer;
    std::vector<std::uint32_t> stages{};  ///< which stages run it; empty: all
    /// Whether it is one operation of all these stages, such as the all-reduce of tied embeddings:
    /// it starts when each of them has got there.
    bool together = false;
};

/// The all-reduce (or reduce-scatter) of a stage's gradients over the copies of the pipeline,
/// beside its last backwards: a part of it begins as soon as its part of the gradients is there.
struct GradientReduction {
    std::vector<Seconds> time{};  ///< of all gradients of each stage; empty: there is none
    std::uint32_t buckets = 1;    ///< into how many parts those of a chunk are divided
};

/// Which stage has which chunk of the model.
enum class Placement {
    loop,       ///< part p of the model is chunk p / stages of stage p modulo stages
    v,          ///< odd chunks lie in the opposite order, so that the first stage has the last part
    both_ends,  ///< two copies, chunks 0 and 1, whose microbatches come from opposite ends
                ///< (DualPipe)
};

/// What the pipelines of the known schedules are made from.
struct PipelineShape {
    Schedule schedule = Schedule::one_f_one_b;
    std::uint32_t stages = 0;
    std::uint32_t chunks = 1;  ///< of the model, on each stage; more than 1 when interleaved only
    std::uint32_t microbatches = 0;
    Seconds activations{};  ///< how long a microbatch's take from a stage to the next one
    Seconds gradients{};    ///< how long a microbatch's take from a stage to the one before
    std::vector<StageOperation> before{};  ///< the microbatches, in this order
    std::vector<StageOperation> after{};   ///< the microbatches; the first waits for `reduction`
    GradientReduction reduction{};
    /// `Schedule::graph`: what each stage runs of the microbatches, in its order.
    std::vector<std::vector<Operation>> order{};
    Placement placement = Placement::loop;  ///< another one where `order` is given
};

}  // namespace kdvfs::inline v0_3::train
