// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/tune/rank_link.hpp>
#include <kdvfs/tune/saving.hpp>
#include <kdvfs/tune/sweep.hpp>
#include <kdvfs/tune/sweep_options.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// What a session does with the program it stands in.
struct SessionMode {
    enum class Kind {
        off,      ///< nothing: scopes do nothing
        measure,  ///< scopes are metered, clocks stay as they were found
        sweep,    ///< the program measures its own kernels, into `file`
        follow,   ///< the program obeys the plan in `file`
        compare,  ///< the same in about half of its iterations, for what they cost beside others
        tune,     ///< the program tunes itself: it sweeps, plans, follows and compares, in one run
    };
    Kind kind = Kind::measure;
    std::filesystem::path file{};
    std::optional<std::size_t> rank{};  ///< of several GPUs, from `of_rank`
    /// To the other ranks of the job, in the mode `tune`: they explore together. Null: each GPU
    /// learns by itself.
    std::shared_ptr<RankLink> link{};

    /// The same for one of several GPUs, in a process or in several: each has files of its own,
    /// `profile.csv` is `profile.rank2.csv` for rank 2. A plan of that name is followed where there
    /// is one, else the plan that all ranks share.
    [[nodiscard]] SessionMode of_rank(std::size_t number) const;
};

/// Reads "off", "measure", "repeat", "auto", "sweep:FILE", "follow:PLAN" or "compare:PLAN".
/// "repeat" is a kind of "measure": kernels are repeated by the GPU (`GpuOptions::repeat`); "auto"
/// is `SessionMode::Kind::tune`.
/// @throws Error (invalid_input) for anything else
KDVFS_INLINE SessionMode parse_session_mode(std::string_view text);

/// What the environment variable `KDVFS_MODE` says; where it is not set, to follow the plan that
/// `KDVFS_PLAN` names; where neither is, `otherwise`.
/// @throws Error as `parse_session_mode`
KDVFS_INLINE SessionMode session_mode_from_environment(SessionMode otherwise = {});

/// The engine behind a `Session` that does not depend on its registry: the sweep, the plan that is
/// followed, the status file. Thread-safe, but for `next_iteration` and `report_iteration`.
class SessionControl {
public:
    virtual ~SessionControl() = default;
    /// Null in other modes than `sweep` and `tune`.
    [[nodiscard]] virtual SweepControl* sweep() const = 0;
    /// The plan of the file; null in other modes than `follow` and `compare`.
    [[nodiscard]] virtual std::shared_ptr<const PlanTable> plan() const = 0;
    /// Writes the file that `KDVFS_STATUS` names once a second, and a line of the ledger that
    /// `KDVFS_LEDGER` names once a minute, in the mode `tune`.
    virtual void report_iteration() = 0;
    /// Writes the line of the ledger for the last time.
    virtual void report_end() = 0;
    /// An iteration begins, in the modes `sweep`, `compare` and `tune`.
    virtual void next_iteration() = 0;
    /// What a program that tunes itself has saved so far; nothing in other modes than `tune`.
    [[nodiscard]] virtual std::optional<Saving> saving() const = 0;
    /// Where scopes go; null: to the GPU.
    [[nodiscard]] virtual extend::ScopeSink* scopes() = 0;
};

/// What `merge_profile_stores` has done.
struct MergedStores {
    std::size_t programs = 0;    ///< that were written
    std::size_t profiles = 0;    ///< that went into them
    std::size_t unreadable = 0;  ///< profiles that were left out
};

/// Merges stores of profiles (`KDVFS_STORE`) of users, jobs or nodes into one, for example a site's
/// (`KDVFS_SITE_STORE`). A program's profile in `into` is replaced, atomically: what it has takes
/// part where `into` is one of `from`, too. No run may write `into` meanwhile.
/// @param from folders
/// @param into folder; made where there is none
/// @param hash_names writes hashes for the names of kernels; a run finds its own by them. Where a
///        source has hashes, they are written in any case
/// @throws Error (io), std::filesystem::filesystem_error where a folder cannot be read or made
KDVFS_INLINE MergedStores merge_profile_stores(const std::vector<std::filesystem::path>& from,
                                               const std::filesystem::path& into, bool hash_names);

/// Begins a session.
/// @param obeys_plan whether the registry binds a kernel to `FromPlan`
/// @throws Error for a file that cannot be used, and as `Sweeping`
KDVFS_INLINE std::shared_ptr<SessionControl> begin_session(
    const Gpu& gpu, extend::GpuService& service, const SessionMode& mode, const SweepOptions& sweep,
    bool (*obeys_plan)(std::string_view kernel));

/// One program, run plainly, measured, swept or by a plan, as the environment says: stands where
/// the GPU with its policies would stand.
///
///     kdvfs::tune::Session<Policies> session{kdvfs::rocm::open(hip_device)};
///     for (int step = 0; step < steps; ++step) {
///         session.next_iteration();
///         train(session, batch);  // kdvfs::FrequencyScope<Gelu> scope{session, stream}; ...
///     }
///
/// A plan of segments is followed by the scopes as they are; a plan of kernels is obeyed where the
/// registry says `FromPlan`. Of several GPUs, each has a session of its own, with
/// `session_mode_from_environment().of_rank(rank)`. `kdvfs tune` starts such programs: sessions
/// tell it how they fare, in the file that `KDVFS_STATUS` names. A handle, cheap to copy;
/// thread-safe, but for `next_iteration`.
template <class Registry>
class Session : public Gpu {
public:
    /// @throws Error for a file that cannot be used, and as `Sweeping` and `Gpu::with`
    explicit Session(const Gpu& gpu, const SessionMode& mode = session_mode_from_environment(),
                     const SweepOptions& sweep = sweep_options_from_environment())
        : Gpu{gpu},
          kind_{mode.kind},
          control_{begin_session(gpu, service(), mode, sweep, &Registry::obeys_plan_for)} {
        if (kind_ == SessionMode::Kind::follow || kind_ == SessionMode::Kind::compare) {
            bound_.emplace(gpu.template with<Registry>(control_->plan()));
        }
    }

    [[nodiscard]] SessionMode::Kind mode() const { return kind_; }

    /// Says that an iteration begins: the one line to add to a program.
    void next_iteration() const {
        if (!is_parents()) control_->report_iteration();
        if (kind_ == SessionMode::Kind::sweep || kind_ == SessionMode::Kind::compare ||
            kind_ == SessionMode::Kind::tune) {
            if (!is_parents()) control_->next_iteration();
            return;
        }
        if (kind_ != SessionMode::Kind::off) service().next_iteration();
    }

    /// What the program has saved so far, with its interval; nothing in other modes than `tune`.
    [[nodiscard]] std::optional<Saving> saving() const {
        return is_parents() ? std::nullopt : control_->saving();
    }
    /// How far a sweep has come; nothing in other modes, and in a forked child.
    [[nodiscard]] std::optional<SweepProgress> progress() const {
        const SweepControl* const sweep = is_parents() ? nullptr : control_->sweep();
        return sweep != nullptr ? std::optional{sweep->progress()} : std::nullopt;
    }
    /// Whether no sweep waits for more iterations. A program may go on until then; if it ends
    /// before, its next run goes on with the sweep.
    [[nodiscard]] bool done() const {
        const auto sweep = progress();
        return !sweep || sweep->done;
    }

    // For scopes, as `BoundGpu`.

    template <NamedKernel K>
    static constexpr bool has_scope_for = BoundGpu<Registry>::template has_scope_for<K>;

    template <NamedKernel K>
    [[nodiscard]] const extend::ScopeKind& kind_of(Variant variant) const {
        if (bound_) return bound_->template kind_of<K>(variant);
        return kind_of<typename Registry::template policy_of<K>>(K::name, variant);
    }

    /// The same for a kernel whose name is known at run time only; it follows `Policy`.
    /// @param kernel a name that satisfies `is_kernel_name`
    template <ClockPolicy Policy>
    [[nodiscard]] const extend::ScopeKind& kind_of(std::string_view kernel, Variant variant) const {
        static const extend::ScopeKind none;
        if (bound_) return bound_->template kind_of<Policy>(kernel, variant);
        if (kind_ == SessionMode::Kind::off) return none;
        if (control_->sweep() == nullptr || is_parents()) {
            return service().kind_of(kernel, variant, {}, Registry::metered);
        }
        const PolicyQuestion question{
            .kernel = kernel, .variant = variant, .architecture = info().architecture};
        return control_->sweep()->kind_of(kernel, variant, Policy::request(question),
                                          Registry::metered);
    }

    [[nodiscard]] extend::ScopeSink& scope_sink() const {
        extend::ScopeSink* const scopes = control_->scopes();
        return scopes != nullptr && !is_parents() ? *scopes : service();
    }

protected:
    /// Reports an iteration that was begun by `service().begin_iteration`.
    void report_iteration() const {
        if (!is_parents()) control_->report_iteration();
    }
    /// Writes what the run has saved into its ledger, where its end is not the session's.
    void report_end() const {
        if (!is_parents()) control_->report_end();
    }

private:
    SessionMode::Kind kind_;
    std::shared_ptr<SessionControl> control_;
    std::optional<BoundGpu<Registry>> bound_;
};

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/session_engine.hpp>
#endif
