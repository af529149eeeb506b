// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/plan.hpp>

#include <kdvfs/error.hpp>

namespace kdvfs::inline v0_3 {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::vector<std::uint32_t> decode_launches(std::span<const LaunchRun> runs,
                                                        std::span<const std::uint32_t> launches) {
    constexpr std::size_t most = std::size_t{1} << 24U;
    const auto fail = [](const char* why) {
        throw Error{Errc::invalid_input,
                    {"decode a sequence of launches", "a plan", why, "make the plan again"}};
    };
    std::vector<std::uint32_t> decoded;
    for (const LaunchRun& run : runs) {
        if (run.length == 0 || run.times == 0) fail("a run is empty");
        if (run.length > launches.size()) fail("a run is longer than what is left of it");
        if (run.times > (most - decoded.size()) / run.length)
            fail("it has more than 16 million launches");
        for (std::uint32_t i = 0; i < run.times; ++i)
            decoded.insert(decoded.end(), launches.begin(), launches.begin() + run.length);
        launches = launches.subspan(run.length);
    }
    if (!launches.empty()) fail("there are launches that belong to no run");
    return decoded;
}

KDVFS_INLINE PlannedSequence to_sequence(const SequenceConstants& constants) {
    if (constants.version != planned_sequence_version) {
        throw Error{Errc::invalid_input,
                    {"follow a plan", "a generated header",
                     "it was written for version " + std::to_string(constants.version) +
                         " of planned sequences, this is version " +
                         std::to_string(planned_sequence_version),
                     "generate the header again"}};
    }
    PlannedSequence sequence;
    sequence.gpu = constants.gpu;
    sequence.profile_hash = constants.profile_hash;
    for (const SequenceConstants::Kernel& kernel : constants.kernels)
        sequence.kernels.push_back(
            {{std::string{kernel.name}, {kernel.variant}}, Duration{kernel.lasts_ns}, kernel.own});
    sequence.launches = decode_launches(constants.runs, constants.launches);
    sequence.boundaries.assign(constants.boundaries.begin(), constants.boundaries.end());
    return sequence;
}

#endif

}  // namespace kdvfs::inline v0_3
