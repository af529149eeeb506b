// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/train/plan_watch.hpp>
#include <kdvfs/detail/train/stage_scopes.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/train/communicator.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/schedules.hpp>
#include <kdvfs/train/session_options.hpp>
#include <kdvfs/tune/saving.hpp>
#include <kdvfs/tune/session.hpp>
#include <kdvfs/units.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace kdvfs::inline v0_3::train {

/// The engine behind a `Session`, which depends neither on its registry nor on the type of its
/// communicator. See there for the functions.
class SessionControl {
public:
    virtual ~SessionControl() = default;
    virtual void next_iteration() = 0;
    [[nodiscard]] virtual SessionPhase phase() const = 0;
    [[nodiscard]] virtual std::uint32_t stage() const = 0;
    [[nodiscard]] virtual std::uint64_t iteration() const = 0;
    [[nodiscard]] virtual const StagePlan& first_plan() const = 0;
    [[nodiscard]] virtual const StagePlan& plan() const = 0;
    [[nodiscard]] virtual const PlanVerdict& verdict() const = 0;
    [[nodiscard]] virtual bool answers_straggler() const = 0;
    [[nodiscard]] virtual const std::optional<Pipeline>& measured() const = 0;
    [[nodiscard]] virtual std::pair<std::uint64_t, std::uint64_t> blocks() const = 0;
    [[nodiscard]] virtual std::optional<tune::Saving> saving() const = 0;
    virtual void straggler(std::uint32_t rank, Seconds iteration) = 0;
    /// Rethrows what has ended the following of a plan.
    virtual void check() = 0;
    /// Where operations go; null where they do nothing.
    [[nodiscard]] virtual StageScopes* scopes() = 0;
};

/// Begins a session.
/// @throws Error as the constructors of `Session`
KDVFS_INLINE std::unique_ptr<SessionControl> begin_session(
    const Gpu& gpu, extend::GpuService& service, std::unique_ptr<AnyCommunicator> ranks,
    Pipeline pipeline, const SessionOptions& options, const tune::SessionMode& mode);

/// One rank of a pipeline-parallel training run: stands where the GPU with its policies would
/// stand, and gives each operation the clock that the plan of the whole pipeline has for it.
///
///     auto gpu = kdvfs::rocm::open(hip_device).with<Policies>();
///     kdvfs::mpi::Communicator ranks{MPI_COMM_WORLD};
///     const kdvfs::train::PipelineShape shape{kdvfs::train::Schedule::one_f_one_b, 8, 1, 32};
///     kdvfs::train::Session session{gpu, ranks, shape};
///     for (int step = 0; step < steps; ++step) {
///         session.next_iteration();
///         ...                                 // as the schedule has it
///         kdvfs::train::OpScope<kdvfs::train::Forward> scope{session, stream, chunk, microbatch};
///     }
///
/// The GPU is never waited for. Ranks are: once while rank 0 plans, and in each iteration for one
/// number that they gave away an iteration before. `next_iteration` is called by one thread, and
/// outside operations; scopes may be anywhere.
template <class Registry, Communicator Ranks>
class Session : public BoundGpu<Registry> {
public:
    /// A pipeline to be measured, or, with `follow`, one whose curves are in a file.
    /// @param ranks must outlive the session
    /// @throws Error (invalid_input), on all ranks, where they do not agree on what they run or by
    ///         which settings, for a world of another size, for a file that exists or is of another
    ///         pipeline; (not_supported) for a sweep on a GPU that is only measured; (timed_out)
    Session(const BoundGpu<Registry>& gpu, Ranks& ranks, const PipelineShape& shape,
            const SessionOptions& options = {})
        : Session{gpu, ranks, unmeasured_pipeline(shape), options,
                  tune::session_mode_from_environment()} {}

    /// A pipeline with its curves: it is followed, unless the mode says something else.
    Session(const BoundGpu<Registry>& gpu, Ranks& ranks, const Pipeline& pipeline,
            const SessionOptions& options = {})
        : Session{gpu, ranks, pipeline, options,
                  tune::session_mode_from_environment({tune::SessionMode::Kind::follow, {}})} {}

    /// An iteration begins: call it before each. After one that ran no operation, clocks are as
    /// found until the next operation; the first time is said on stderr.
    /// @throws Error (invalid_input) if only some operations of the last one have been run
    void next_iteration() { control_->next_iteration(); }

    [[nodiscard]] SessionPhase phase() const { return control_->phase(); }
    [[nodiscard]] std::uint32_t stage() const { return control_->stage(); }
    [[nodiscard]] std::uint64_t iteration() const { return control_->iteration(); }
    /// This stage's plan without stragglers; empty before there is one.
    [[nodiscard]] const StagePlan& first_plan() const { return control_->first_plan(); }
    /// The one that is followed: the first one, or the answer to a straggler.
    [[nodiscard]] const StagePlan& plan() const { return control_->plan(); }
    /// What is known by now of whether the plan that is followed keeps its time. Iterations are
    /// compared with the plan, and with some that run as found; a broken plan is left by all ranks
    /// at once, for good, and operations are at the clocks as found (`SessionPhase::measuring`).
    [[nodiscard]] const PlanVerdict& verdict() const { return control_->verdict(); }
    /// Whether an answer to a straggler is followed.
    [[nodiscard]] bool answers_straggler() const { return control_->answers_straggler(); }
    /// The pipeline with its curves; on rank 0, once it is followed.
    [[nodiscard]] const std::optional<Pipeline>& measured() const { return control_->measured(); }
    /// Blocks of the sweep that are over, and all.
    [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> blocks() const {
        return control_->blocks();
    }
    /// What the job has saved so far, with its interval, alike on all ranks; nothing in other modes
    /// than `auto`.
    [[nodiscard]] std::optional<tune::Saving> saving() const { return control_->saving(); }

    /// Another pipeline, that of `rank`, is going to take so long for its iterations; 0: no more.
    /// What any one rank says reaches all of them with the next iteration.
    void straggler(std::uint32_t rank, Seconds iteration) { control_->straggler(rank, iteration); }

    /// Rethrows what has ended the following of a plan, then what `Gpu::check` has.
    void check() const {
        control_->check();
        BoundGpu<Registry>::check();
    }

    // For operations.
    [[nodiscard]] StageScopes* scopes() { return control_->scopes(); }

private:
    Session(const BoundGpu<Registry>& gpu, Ranks& ranks, const Pipeline& pipeline,
            const SessionOptions& options, const tune::SessionMode& otherwise)
        : BoundGpu<Registry>{gpu},
          control_{begin_session(gpu, this->service(),
                                 std::make_unique<CommunicatorOf<Ranks>>(ranks), pipeline, options,
                                 options.mode.value_or(otherwise))} {}

    std::unique_ptr<SessionControl> control_;
};

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/session.hpp>
#endif
