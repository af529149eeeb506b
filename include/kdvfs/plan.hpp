// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

    std::string gpu{};  ///< as `gpu_name` calls it; empty: any
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

/// The launches behind a code.
/// @throws Error (invalid_input) if runs and launches do not go together, or for more than
///         16 million launches
inline std::vector<std::uint32_t> decode_launches(std::span<const LaunchRun> runs,
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

/// A plan as data: what each kernel and variant is to ask for. Immutable while a GPU obeys it.
class PlanTable {
public:
    void set(const KernelKey& key, ClockRequest request) { requests_[key] = request; }

    /// @returns the plan's request for a kernel, or nothing where the plan does not name it
    [[nodiscard]] std::optional<ClockRequest> find(std::string_view kernel, Variant variant) const {
        const auto found = requests_.find(KernelKey{std::string{kernel}, variant});
        if (found == requests_.end()) return std::nullopt;
        return found->second;
    }

    [[nodiscard]] const std::map<KernelKey, ClockRequest>& requests() const { return requests_; }

    /// Gives the plan a sequence: then scopes follow its segments, whatever kernels ask for.
    void follow(PlannedSequence sequence) { sequence_ = std::move(sequence); }
    /// The sequence to follow; nothing where the plan has none.
    [[nodiscard]] const std::optional<PlannedSequence>& sequence() const { return sequence_; }

private:
    std::map<KernelKey, ClockRequest> requests_;
    std::optional<PlannedSequence> sequence_;
};

}  // namespace kdvfs
