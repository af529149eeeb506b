// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/train/curve.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// What an operation computes.
enum class Pass {
    forward,
    backward,          ///< of inputs and weights
    backward_input,    ///< of inputs only, what the stage before waits for
    backward_weight,   ///< of weights only
    forward_backward,  ///< the forward of one microbatch over the backward of another (DualPipe)
    embedding,
    collective,  ///< communication that the stage waits for
    optimizer,
};

inline constexpr std::array<Pass, 8> all_passes{
    Pass::forward,          Pass::backward,  Pass::backward_input, Pass::backward_weight,
    Pass::forward_backward, Pass::embedding, Pass::collective,     Pass::optimizer};

constexpr std::string_view to_string(Pass pass) {
    switch (pass) {
        case Pass::forward: return "forward";
        case Pass::backward: return "backward";
        case Pass::backward_input: return "backward_input";
        case Pass::backward_weight: return "backward_weight";
        case Pass::forward_backward: return "forward_backward";
        case Pass::embedding: return "embedding";
        case Pass::collective: return "collective";
        case Pass::optimizer: return "optimizer";
    }
    return "unknown";
}

/// One pass of one microbatch through one chunk of the model, and the curve it runs on.
struct Operation {
    std::uint32_t stage = 0;
    Pass pass = Pass::forward;
    std::uint32_t chunk = 0;
    std::uint32_t microbatch = 0;
    std::uint32_t curve = 0;            ///< index into `Pipeline::curves`
    std::uint32_t over_chunk = 0;       ///< of the backward, in a `Pass::forward_backward`
    std::uint32_t over_microbatch = 0;  ///< the same

    friend bool operator==(const Operation&, const Operation&) = default;
};

/// "backward of microbatch 3, chunk 0, on stage 1".
KDVFS_INLINE std::string to_string(const Operation& operation);

/// In which order a stage runs the operations of its microbatches.
enum class Schedule {
    gpipe,             ///< all forwards, then all backwards
    one_f_one_b,       ///< "1f1b": backward and forward in turn (PipeDream-Flush)
    interleaved_1f1b,  ///< 1F1B with several chunks of the model on each stage (Megatron-LM)
    zb_h1,             ///< 1F1B with backwards split in two (Qi et al., ICLR 2024)
    graph,             ///< any other: the program gives the order and the dependencies
};

constexpr std::string_view to_string(Schedule schedule) {
    switch (schedule) {
        case Schedule::gpipe: return "gpipe";
        case Schedule::one_f_one_b: return "1f1b";
        case Schedule::interleaved_1f1b: return "interleaved_1f1b";
        case Schedule::zb_h1: return "zb_h1";
        case Schedule::graph: return "graph";
    }
    return "unknown";
}

/// One operation may start when the other has ended, and `time` has passed since.
struct Dependency {
    std::uint32_t first = 0;  ///< index into `Pipeline::operations`
    std::uint32_t then = 0;
    Seconds time{};  ///< of a transfer, or of a collective that other operations run beside

    [[nodiscard]] std::int64_t nanoseconds() const { return std::llround(time.count() * 1e9); }
};

/// What a stage draws while it waits for another, by the core clock that it waits at.
struct WaitingPower {
    struct Point {
        Megahertz core;
        Watts power{};
    };
    std::vector<Point> points{};  ///< ascending by clock; empty: the same at all clocks
    Watts above{};                ///< at higher clocks than those

    /// At the next higher clock that is known.
    [[nodiscard]] Watts at(Megahertz core) const {
        for (const Point& point : points)
            if (core != auto_clock && core <= point.core) return point.power;
        return above;
    }
    /// The clock that a stage waits at with least power; nothing where none is lower than above.
    [[nodiscard]] std::optional<Point> lowest() const;
};

/// One training iteration of a pipeline. Made by `make_pipeline` or `make_graph`, which check it.
struct Pipeline {
    Schedule schedule = Schedule::graph;
    std::uint32_t stages = 0;
    std::uint32_t chunks = 1;
    std::uint32_t microbatches = 0;
    Watts blocking_power{};  ///< of one stage that waits for another, at the clock for that
    /// By clock, where it was measured: `blocking_power` is the least of these.
    WaitingPower waiting{};
    std::vector<Curve> curves;
    std::vector<Operation> operations;               ///< stage by stage, in the order they run in
    std::vector<std::uint32_t> stage_begin;          ///< first operation of each stage, and the end
    std::vector<Dependency> dependencies;            ///< those between neighbours of a stage, too
    std::vector<std::uint32_t> topological_order{};  ///< of the operations

    /// What all stages use while they wait for an iteration of this length: the difference between
    /// effective and total energy.
    [[nodiscard]] Joules blocking_energy(Seconds iteration) const {
        return blocking_power * iteration * static_cast<double>(stages);
    }
};

/// A pipeline of any shape: for each stage its operations in the order they run in, and who waits
/// for whom between stages. Operations are numbered stage by stage.
/// @throws Error (invalid_input) for cycles, empty stages, and numbers that are out of range
KDVFS_INLINE Pipeline make_graph(const std::vector<std::vector<Operation>>& stages,
                                 std::vector<Dependency> dependencies, std::vector<Curve> curves,
                                 Watts blocking_power);

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/pipeline.hpp>
#endif
