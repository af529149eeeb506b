// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// A pattern of communication between ranks.
enum class Collective {
    send,  ///< from one rank to another
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
};

/// What ranks communicate over.
struct Link {
    double bytes_per_second = 0;  ///< out of one rank, above 0
    Seconds latency{};            ///< of one step
};

/// How long a collective takes, with the ring algorithms: each of n ranks sends (n - 1) / n of the
/// bytes, in n - 1 steps, an all-reduce twice that (Thakur, Rabenseifner and Gropp, International
/// Journal of High Performance Computing Applications 19, 2005; the bus bandwidth of nccl-tests).
/// @param bytes of the whole buffer: what is reduced, gathered, or sent by one rank
/// @throws Error (invalid_input) for bytes, ranks or links that are none
inline Seconds collective_time(Collective kind, double bytes, std::uint32_t ranks,
                               const Link& link) {
    if (!(bytes >= 0 && std::isfinite(bytes) && link.bytes_per_second > 0 &&
          link.latency.count() >= 0 && (kind == Collective::send || ranks > 0)))
        throw Error{Errc::invalid_input,
                    {"reckon how long a collective takes",
                     std::to_string(bytes) + " bytes on " + std::to_string(ranks) + " ranks",
                     "bytes, ranks or the link's bandwidth are none",
                     "give bytes of 0 or more, 1 rank or more, and a bandwidth above 0"}};
    if (kind == Collective::send) return link.latency + Seconds{bytes / link.bytes_per_second};
    const double rounds = kind == Collective::all_reduce ? 2 : 1;
    const double others = static_cast<double>(ranks) - 1;
    return rounds * (others * link.latency +
                     Seconds{others / static_cast<double>(ranks) * bytes / link.bytes_per_second});
}

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
