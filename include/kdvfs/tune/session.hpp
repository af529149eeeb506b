// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/ranks.hpp>
#include <kdvfs/tune/session_status.hpp>
#include <kdvfs/tune/sweep.hpp>
#include <kdvfs/tune/sweep_engine.hpp>
#include <kdvfs/tune/sweep_options.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace kdvfs::inline v0_3::tune {

/// What a session does with the program it stands in.
struct SessionMode {
    enum class Kind {
        off,      ///< nothing: scopes do nothing
        measure,  ///< scopes are metered, clocks stay as they were found
        sweep,    ///< the program measures its own kernels, into `file`
        follow,   ///< the program obeys the plan in `file`
    };
    Kind kind = Kind::measure;
    std::filesystem::path file{};
    std::optional<std::size_t> rank{};  ///< of several GPUs, from `of_rank`

    /// The same for one of several GPUs, in a process or in several: each has files of its own,
    /// `profile.csv` is `profile.rank2.csv` for rank 2. A plan of that name is followed where there
    /// is one, else the plan that all ranks share.
    [[nodiscard]] SessionMode of_rank(std::size_t number) const {
        SessionMode own = *this;
        own.rank = number;
        if (file.empty()) return own;
        own.file = rank_path(file, number);
        std::error_code unreadable;
        if (kind == Kind::follow && !std::filesystem::exists(own.file, unreadable)) own.file = file;
        return own;
    }
};

/// "off", "measure", "repeat", "sweep:FILE" or "follow:PLAN". To "repeat" is to measure; that
/// kernels are repeated is for the GPU, which was told when it was opened (`GpuOptions::repeat`).
/// @throws Error (invalid_input) for anything else
inline SessionMode parse_session_mode(std::string_view text) {
    using Kind = SessionMode::Kind;
    const std::size_t colon = text.find(':');
    const std::string_view word = text.substr(0, colon);
    const std::string_view file =
        colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
    if (word == "off" && colon == std::string_view::npos) return {Kind::off};
    if ((word == "measure" || word == "repeat") && colon == std::string_view::npos) {
        return {Kind::measure};
    }
    if (word == "sweep" && !file.empty()) return {Kind::sweep, file};
    if (word == "follow" && !file.empty()) return {Kind::follow, file};
    throw Error{Errc::invalid_input,
                {"begin a session", "KDVFS_MODE=" + std::string{text}, "this is no mode",
                 "say off, measure, repeat, sweep:FILE or follow:PLAN"}};
}

/// What the environment variable `KDVFS_MODE` says; where it is not set, to follow the plan that
/// `KDVFS_PLAN` names; where neither is, `otherwise`.
/// @throws Error as `parse_session_mode`
inline SessionMode session_mode_from_environment(SessionMode otherwise = {}) {
    if (const auto mode = kdvfs::detail::environment("KDVFS_MODE"); !mode.empty())
        return parse_session_mode(mode);
    if (const auto plan = kdvfs::detail::environment("KDVFS_PLAN"); !plan.empty())
        return {SessionMode::Kind::follow, plan};
    return otherwise;
}

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
                     SweepOptions sweep = sweep_options_from_environment())
        : Gpu{gpu}, kind_{mode.kind} {
        if (kind_ == SessionMode::Kind::sweep) {
            sweep.file = mode.file;
            sweeping_.emplace(gpu, sweep);
        } else if (kind_ == SessionMode::Kind::follow) {
            bound_.emplace(gpu.template with<Registry>(read_plan(gpu, mode.file)));
        }
        if (const auto file = kdvfs::detail::environment("KDVFS_STATUS"); !file.empty())
            status_writer_ = std::make_shared<StatusWriter>(
                *this, mode.rank ? rank_path(file, *mode.rank) : std::filesystem::path{file});
    }

    [[nodiscard]] SessionMode::Kind mode() const { return kind_; }

    /// Says that an iteration begins: the one line to add to a program.
    void next_iteration() const {
        if (status_writer_) status_writer_->next_iteration();
        if (sweeping_) return sweeping_->next_iteration();
        if (kind_ != SessionMode::Kind::off) service().next_iteration();
    }

    /// How far a sweep has come; nothing in other modes.
    [[nodiscard]] std::optional<SweepProgress> progress() const {
        return sweeping_ ? std::optional{sweeping_->progress()} : std::nullopt;
    }
    /// Whether no sweep waits for more iterations. A program may go on until then; if it ends
    /// before, its next run goes on with the sweep.
    [[nodiscard]] bool done() const { return !sweeping_ || sweeping_->done(); }

    // For scopes, as `BoundGpu`.

    template <NamedKernel K>
    static constexpr bool has_scope_for = BoundGpu<Registry>::template has_scope_for<K>;

    template <NamedKernel K>
    [[nodiscard]] const kdvfs::detail::ScopeKind& kind_of(Variant variant) const {
        if (bound_) return bound_->template kind_of<K>(variant);
        return kind_of<typename Registry::template policy_of<K>>(K::name, variant);
    }

    /// The same for a kernel whose name is known at run time only; it follows `Policy`.
    /// @param kernel a name that satisfies `is_kernel_name`
    template <ClockPolicy Policy>
    [[nodiscard]] const kdvfs::detail::ScopeKind& kind_of(std::string_view kernel,
                                                          Variant variant) const {
        static const kdvfs::detail::ScopeKind none;
        if (sweeping_) return sweeping_->template kind_of<Policy>(kernel, variant);
        if (bound_) return bound_->template kind_of<Policy>(kernel, variant);
        if (kind_ == SessionMode::Kind::off) return none;
        return service().kind_of(kernel, variant, {}, Registry::metered);
    }

    [[nodiscard]] kdvfs::detail::ScopeSink& scope_sink() const {
        static NoScopes none;
        if (sweeping_) return sweeping_->scope_sink();
        if (kind_ == SessionMode::Kind::off) return none;
        return service();
    }

protected:
    /// Tells `KDVFS_STATUS` of an iteration that was begun by `service().begin_iteration`.
    void report_iteration() const {
        if (status_writer_) status_writer_->next_iteration();
    }

private:
    struct NoScopes final : kdvfs::detail::ScopeSink {
        kdvfs::detail::ScopeToken enter(StreamRef, const kdvfs::detail::ScopeKind&) override {
            return {};
        }
        void leave(const kdvfs::detail::ScopeToken&) override {}
        void leave_noexcept(const kdvfs::detail::ScopeToken&) noexcept override {}
    };

    /// Writes the status file once a second, and at the session's end.
    class StatusWriter {
    public:
        StatusWriter(const Session& session, std::filesystem::path file)
            : gpu_{session}, sweeping_{session.sweeping_}, file_{std::move(file)} {
            status_.gpu = gpu_name(session.info());
            status_.sample_period = session.service().sample_period();
            status_.measure_only = session.measure_only();
            status_.grid_points = clock_grid(session.supported_clocks()).size();
            follows_ = session.kind_ == SessionMode::Kind::follow;
            write();
        }
        StatusWriter(const StatusWriter&) = delete;
        StatusWriter& operator=(const StatusWriter&) = delete;
        ~StatusWriter() {
            if (kdvfs::detail::fork_generation() != generation_) return;
            try {
                write();
            } catch (const Error& error) {
                std::fprintf(stderr, "kdvfs: %s\n", error.what());
            }
        }

        void next_iteration() {
            if (kdvfs::detail::fork_generation() != generation_) return;
            ++status_.iterations;
            const bool ended = sweeping_ && !reported_end_ && sweeping_->done();
            if (!ended && std::chrono::steady_clock::now() < next_) return;
            reported_end_ = reported_end_ || ended;
            write();
        }

    private:
        void write() {
            if (sweeping_) status_.sweep = sweeping_->progress();
            if (follows_)
                if (const auto followed = gpu_.report().followed)
                    status_.followed_pct = 100 * followed->share();
            kdvfs::detail::write_file_atomically(file_, to_json(status_));
            next_ = std::chrono::steady_clock::now() + std::chrono::seconds{1};
        }

        Gpu gpu_;
        std::optional<Sweeping<Registry>> sweeping_;
        std::filesystem::path file_;
        SessionStatus status_;
        bool follows_ = false;
        bool reported_end_ = false;
        std::chrono::steady_clock::time_point next_;
        std::uint32_t generation_ = kdvfs::detail::fork_generation();
    };

    static std::shared_ptr<const PlanTable> read_plan(const Gpu& gpu,
                                                      const std::filesystem::path& file) {
        const std::string text = read_trusted_file(file);
        const std::string name = file.string();
        if (has_sequence(text, name))
            return to_plan_table(parse_sequence(text, name), gpu.info(), gpu.supported_clocks());
        return to_plan_table(parse_plan(text, name), gpu.info(), gpu.supported_clocks(),
                             &Registry::obeys_plan_for);
    }

    SessionMode::Kind kind_;
    std::optional<Sweeping<Registry>> sweeping_;
    std::optional<BoundGpu<Registry>> bound_;
    std::shared_ptr<StatusWriter> status_writer_;
};

}  // namespace kdvfs::inline v0_3::tune
