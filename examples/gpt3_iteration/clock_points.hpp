// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>

#include <array>
#include <cstddef>

namespace gpt3 {

/// The 66 clock points of arXiv 2601.08539: memory {405, 810, 5001, 9251, 9501, auto} x core
/// {210, 420, ... 2100, auto}, memory by memory; the last one is the baseline (auto, auto).
constexpr std::array<kdvfs::ClockPoint, 66> paper_clock_points() {
    constexpr std::array<kdvfs::Megahertz, 6> memory_clocks{
        {{405}, {810}, {5001}, {9251}, {9501}, kdvfs::auto_clock}};
    std::array<kdvfs::ClockPoint, 66> points{};
    std::size_t next = 0;
    for (const kdvfs::Megahertz memory : memory_clocks) {
        for (unsigned core = 210; core <= 2100; core += 210) points[next++] = {{core}, memory};
        points[next++] = {kdvfs::auto_clock, memory};
    }
    return points;
}

}  // namespace gpt3
