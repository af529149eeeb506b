// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3 {

/// The version of the coded sequences that plans carry; what is written for another is refused.
inline constexpr std::uint32_t planned_sequence_version = 1;

/// The launches of an iteration in order, and the clocks that a plan asks for on the way. The
/// iteration repeats: what was asked for last holds at its beginning.
struct PlannedSequence {
    struct Kernel {
        KernelKey key;
        Duration lasts{};    ///< the plan's figure of one launch, 0 where unknown
        ClockRequest own{};  ///< where the launch's place is not known; asks for none: auto
    };
    /// Before launch `before` the stream asks for `clock`: when the launch comes, or in the gap in
    /// front of it, so long `after` the launch before has ended.
    struct Boundary {
        std::size_t before = 0;
        ClockPoint clock{};
        std::optional<Duration> after{};

        friend bool operator==(const Boundary&, const Boundary&) = default;
    };

    std::string gpu{};                    ///< as `gpu_name` calls it; empty: any
    std::vector<Kernel> kernels;          ///< those that are never launched are passed over
    std::vector<std::uint32_t> launches;  ///< indices into `kernels`
    /// Ascending; those in a gap come before the launch's own, one at its begin and one later at
    /// most.
    std::vector<Boundary> boundaries;
    std::string profile_hash{};  ///< of the profile that the plan was made from
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
KDVFS_INLINE std::vector<std::uint32_t> decode_launches(std::span<const LaunchRun> runs,
                                                        std::span<const std::uint32_t> launches);

/// A planned sequence as the constants of a generated header.
struct SequenceConstants {
    struct Kernel {
        std::string_view name;
        std::uint32_t variant = 0;
        std::int64_t lasts_ns = 0;
        ClockRequest own{};  ///< as of `PlannedSequence::Kernel`
    };
    std::uint32_t version = 0;  ///< the `planned_sequence_version` that it was written for
    std::string_view gpu;
    std::string_view profile_hash;
    std::span<const Kernel> kernels;
    std::span<const LaunchRun> runs;
    std::span<const std::uint32_t> launches;
    std::span<const PlannedSequence::Boundary> boundaries;
};

/// The sequence behind a generated header's constants.
/// @throws Error (invalid_input) for constants of another version, or that do not go together
KDVFS_INLINE PlannedSequence to_sequence(const SequenceConstants& constants);

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

/// A plan that is followed, as `Gpu::with` takes it.
inline std::shared_ptr<const PlanTable> to_plan_table(PlannedSequence sequence) {
    auto table = std::make_shared<PlanTable>();
    table->follow(std::move(sequence));
    return table;
}

}  // namespace kdvfs::inline v0_3

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/plan.hpp>
#endif
