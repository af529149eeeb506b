// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/schedules.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::train {

/// Measured curves: time falls with the clock, energy rises with it, both with noise, so that
/// some points lie above the hull. Times are whole nanoseconds.
inline Curve random_curve(std::mt19937_64& random, Watts blocking) {
    std::uniform_real_distribution<double> uniform{0, 1};
    const bool is_constant = random() % 8 == 0;
    const auto count = is_constant ? 1 : static_cast<std::uint32_t>(2 + random() % 8);
    const double work = 0.005 + 0.1 * uniform(random);
    const double fixed = 0.5 * uniform(random);
    const double noise = random() % 2 == 0 ? 0 : 0.05;
    std::vector<CurvePoint> points;
    for (std::uint32_t k = 0; k < count; ++k) {
        const double clock = 1500.0 - 100.0 * k;
        const double slowing = fixed + (1 - fixed) * 1500 / clock;
        const double watts = 130 + 250 * std::pow(clock / 1500, 2.4);
        points.push_back(
            {{Megahertz{static_cast<std::uint32_t>(clock)}, auto_clock},
             Seconds{std::round(work * slowing * (1 + noise * uniform(random)) * 1e9) / 1e9},
             Joules{work * slowing * watts * (1 + noise * uniform(random))}});
    }
    return {"random", points, blocking, is_constant ? Shape::constant : Shape::measured};
}

/// Of a transfer: often none, else as long as short operations are.
inline Seconds random_transfer(std::mt19937_64& random) {
    return Seconds{random() % 2 == 0 ? 0.0 : static_cast<double>(random() % 20'000'000) / 1e9};
}

/// Two to a dozen operations a stage, with dependencies that follow one order of all operations.
inline Pipeline random_graph(std::mt19937_64& random, Watts blocking) {
    std::vector<Curve> curves;
    for (int c = 0; c < 4; ++c) curves.push_back(random_curve(random, blocking));
    std::vector<std::vector<Operation>> stages(1 + random() % 4);
    std::vector<std::uint32_t> rank;  // by operation, stage by stage: its place in the one order
    std::uint32_t next = 0;
    for (auto& stage : stages) {
        const std::uint64_t count = 2 + random() % 10;
        std::uint32_t at = static_cast<std::uint32_t>(random() % 8);
        for (std::uint32_t m = 0; m < count; ++m, ++next) {
            stage.push_back({0, Pass::forward, 0, m, static_cast<std::uint32_t>(random() % 4)});
            rank.push_back(at += 1 + static_cast<std::uint32_t>(random() % 4));
        }
    }
    std::vector<Dependency> waits;
    for (std::uint64_t k = random() % (2 * std::uint64_t{next}); k > 0; --k) {
        const auto a = static_cast<std::uint32_t>(random() % next);
        const auto b = static_cast<std::uint32_t>(random() % next);
        if (rank[a] < rank[b]) waits.push_back({a, b, random_transfer(random)});
    }
    return make_graph(stages, waits, curves, blocking);
}

/// A small pipeline of any schedule.
inline Pipeline random_pipeline(std::mt19937_64& random) {
    const Watts blocking{static_cast<double>(random() % 100)};
    const std::uint64_t kind = random() % 5;
    if (kind == 4) return random_graph(random, blocking);
    PipelineShape shape;
    shape.schedule = static_cast<Schedule>(kind);
    shape.stages = static_cast<std::uint32_t>(1 + random() % 4);
    shape.microbatches = static_cast<std::uint32_t>(1 + random() % 6);
    if (shape.schedule == Schedule::interleaved_1f1b) {
        shape.chunks = static_cast<std::uint32_t>(1 + random() % 3);
        shape.microbatches = shape.stages * static_cast<std::uint32_t>(1 + random() % 2);
    }
    shape.activations = random_transfer(random);
    shape.gradients = random_transfer(random);
    if (random() % 2 == 0) {
        shape.before = {{Pass::embedding, {0}, false}};
        shape.after = {{Pass::collective, {0, shape.stages - 1}, true},
                       {Pass::optimizer, {}, false}};
        for (std::uint32_t s = 0; s < shape.stages && random() % 2 == 0; ++s)
            shape.reduction.time.resize(shape.stages, random_transfer(random));
        shape.reduction.buckets = static_cast<std::uint32_t>(1 + random() % 4);
    }
    std::vector<Curve> curves;
    CurveIndex curve_of;
    for (std::uint32_t s = 0; s < shape.stages; ++s)
        for (std::uint32_t c = 0; c < shape.chunks; ++c)
            for (const Pass pass : all_passes) {
                curve_of[{s, pass, c}] = static_cast<std::uint32_t>(curves.size());
                curves.push_back(random_curve(random, blocking));
            }
    return make_pipeline(shape, curve_of, curves, blocking);
}

}  // namespace kdvfs::train
