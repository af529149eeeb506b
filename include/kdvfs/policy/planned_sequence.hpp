// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/kernel.hpp>
#include <kdvfs/core/time.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kdvfs {

/// The version of the coded sequences that plans carry; what is written for another is refused.
inline constexpr std::uint32_t planned_sequence_version = 1;

/// The launches of an iteration in order, and the clocks that a plan asks for on the way. The
/// iteration repeats: what was asked for last holds at its beginning.
struct PlannedSequence {
    struct Kernel {
        KernelKey key;
        Duration lasts{};  ///< the plan's figure of one launch, 0 where unknown
    };
    /// Before launch `before` the stream asks for `clock`.
    struct Boundary {
        std::size_t before = 0;
        ClockPoint clock{};

        friend bool operator==(const Boundary&, const Boundary&) = default;
    };

    std::vector<Kernel> kernels;
    std::vector<std::uint32_t> launches;  ///< indices into `kernels`
    std::vector<Boundary> boundaries;     ///< ascending
    std::string profile_hash{};           ///< of the profile that the plan was made from
};

/// A stretch of launches that comes `times` times in a row: the layers of a network are coded as
/// one of them.
struct LaunchRun {
    std::uint32_t times = 1;
    std::uint32_t length = 1;

    friend bool operator==(const LaunchRun&, const LaunchRun&) = default;
};

/// A sequence of launches, run-length coded: `launches` holds each run's stretch once, in order.
struct CodedLaunches {
    std::vector<LaunchRun> runs;
    std::vector<std::uint32_t> launches;
};

}  // namespace kdvfs
