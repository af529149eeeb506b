// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

namespace kdvfs::inline v0_3::train {

struct BatchSizeOptions {
    std::vector<std::uint32_t> sizes;  ///< those that may be tried
    std::uint32_t usual = 0;  ///< the user's own, tried first and taken to reach the target
    /// A run is stopped at this multiple of what the best size's runs cost; later where runs of the
    /// same size differ by more than a tenth. The third run in a row is never stopped.
    double stop_at = 2;
    Seconds lost_after{86400};  ///< a run that has not ended after this time never will
    std::uint64_t seed = 1;
};

/// What an epoch takes at a batch size under its best power limit: from `PowerLimit`'s profile.
struct EpochProfile {
    std::optional<Watts> limit;  ///< none: not searched for, the cost is a whole run's average
    double cost = 0;             ///< in the unit that runs are compared in: joules, or Zeus' cost
};

/// A run of the recurring job, as suggested.
struct SuggestedRun {
    std::uint64_t id = 0;
    std::uint32_t batch_size = 0;
    std::optional<EpochProfile> profile;  ///< none: find the power limit in the first epoch
    /// Stop the run when its cost reaches this; infinite before any run has reached the target, and
    /// after two runs in a row that did not.
    double most_cost = std::numeric_limits<double>::infinity();
};

enum class RunEnd {
    reached,  ///< the target
    stopped,  ///< at its `most_cost`
    failed,   ///< out of epochs or of memory, or diverged: that size is not to be tried again
    lost,     ///< killed for a reason of its own: nothing is learned
};

struct RunOutcome {
    RunEnd end = RunEnd::reached;
    double epochs = 0;  ///< finished; parts count
    double cost = 0;    ///< of the whole run
};

/// What is known of one batch size.
struct BatchSizeRecord {
    std::optional<EpochProfile> profile;
    std::vector<double> reached;  ///< epochs to the target, by run: the last ten count
    std::vector<double> stopped;  ///< epochs after which the target was not reached; the last ten,
                                  ///< as often as they are beside those that reached it
    std::size_t failures = 0;
};

/// All that `BatchSize` remembers: plain data, to be kept between runs.
struct BatchSizeState {
    struct Pending {
        std::uint32_t batch_size = 0;
        bool explores = false;
        double started = 0;  ///< seconds
    };

    std::map<std::uint32_t, BatchSizeRecord> sizes;
    std::map<std::uint64_t, Pending> pending;  ///< runs that have not ended, by id
    std::uint64_t next_id = 1;
    std::uint64_t draws = 0;  ///< from the random numbers
    /// What a run of the best size costs: the least, over sizes, of the median of the last runs'
    /// epochs times what an epoch costs. It may rise.
    double least_cost = std::numeric_limits<double>::infinity();
    std::uint32_t unreached = 0;  ///< runs in a row that were stopped or failed

    struct Doubtful {
        std::uint32_t batch_size = 0;
        double epochs = 0;
    };
    /// A run that was far too cheap to be believed: its size is tried again before it counts.
    std::optional<Doubtful> doubtful;
};

/// Learns the best batch size of a job that recurs. What a run costs is epochs(b) * cost per
/// epoch(b). The second factor is known exactly once a size's power limit has been profiled; the
/// first is learned by tempered Thompson sampling on a Gaussian process of log epochs over log2 b.
/// So a run may be stopped as early as after its first epoch, and sizes that fail, and those beyond
/// them, are left alone. The data may drift: only the last ten runs of a size count (the window of
/// You et al., Zeus, NSDI 2023, section 4.4), and the run after two that did not reach the target
/// is of the best size known and not stopped; where it costs more than the others were stopped at,
/// what was known of epochs counts as one run of each size. A size is tried where it is known to be
/// better than the usual one, or where the runs that may be dearer are few. A pure state machine
/// (`BatchSizeFile` keeps it between processes), not thread-safe.
///
///     const SuggestedRun run = sizes.suggest(now);
///     // train at run.batch_size; if !run.profile, after the first epoch:
///     most_cost = sizes.profiled(run.id, {limit, search.epoch_cost(steps)});
///     sizes.observe(run.id, {RunEnd::reached, epochs, cost});
class BatchSize {
public:
    /// @throws Error (invalid_input) for sizes, options or a state that make no sense
    explicit BatchSize(BatchSizeOptions options, BatchSizeState state = {});

    [[nodiscard]] const BatchSizeState& state() const { return state_; }

    /// The next run. While another run explores, it is one of the best size known.
    /// @param now seconds since any fixed origin, the same for all processes
    /// @throws Error (not_supported) when every size has failed
    SuggestedRun suggest(Seconds now);

    /// Tells what an epoch costs at a run's size.
    /// @return the cost at which to stop the run; 0: now, as another size is known to be better
    /// @throws Error (invalid_input) for a run that was not suggested or a cost that is not
    /// positive
    double profiled(std::uint64_t id, const EpochProfile& profile);

    /// Tells how a run ended. The outcome of a run given up as lost is welcome, too.
    /// @throws Error (invalid_input) for a run that was never suggested or has ended already, and
    ///         for numbers that make no sense
    void observe(std::uint64_t id, const RunOutcome& outcome);

    /// The size of least expected cost among those that have reached the target.
    [[nodiscard]] std::optional<std::uint32_t> best_known() const;

private:
    BatchSizeOptions options_;
    BatchSizeState state_;
};

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/batch_size.hpp>
#endif
