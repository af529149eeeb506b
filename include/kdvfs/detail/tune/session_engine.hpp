// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/session.hpp>

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/ledger.hpp>
#include <kdvfs/detail/tune/plan_comparison.hpp>
#include <kdvfs/detail/tune/ranks.hpp>
#include <kdvfs/detail/tune/run_engine.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/detail/tune/sweep_engine.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/tune/plan_file.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

KDVFS_INLINE SessionMode SessionMode::of_rank(std::size_t number) const {
    SessionMode own = *this;
    own.rank = number;
    if (file.empty()) return own;
    own.file = rank_path(file, number);
    std::error_code unreadable;
    const bool has_plan = kind == Kind::follow || kind == Kind::compare;
    if (has_plan && !std::filesystem::exists(own.file, unreadable)) own.file = file;
    return own;
}

KDVFS_INLINE SessionMode parse_session_mode(std::string_view text) {
    using Kind = SessionMode::Kind;
    const std::size_t colon = text.find(':');
    const std::string_view word = text.substr(0, colon);
    const std::string_view file =
        colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
    if (word == "off" && colon == std::string_view::npos) return {Kind::off};
    if ((word == "measure" || word == "repeat") && colon == std::string_view::npos) {
        return {Kind::measure};
    }
    if (word == "auto" && colon == std::string_view::npos) return {Kind::tune};
    if (word == "sweep" && !file.empty()) return {Kind::sweep, file};
    if (word == "follow" && !file.empty()) return {Kind::follow, file};
    if (word == "compare" && !file.empty()) return {Kind::compare, file};
    throw Error{Errc::invalid_input,
                {"begin a session", "KDVFS_MODE=" + std::string{text}, "this is no mode",
                 "say off, measure, repeat, auto, sweep:FILE, follow:PLAN or compare:PLAN"}};
}

KDVFS_INLINE SessionMode session_mode_from_environment(SessionMode otherwise) {
    if (const auto mode = kdvfs::detail::environment("KDVFS_MODE"); !mode.empty())
        return parse_session_mode(mode);
    if (const auto plan = kdvfs::detail::environment("KDVFS_PLAN"); !plan.empty())
        return {SessionMode::Kind::follow, plan};
    return otherwise;
}

namespace detail {

/// Writes the status file once a second, and at the session's end. Where it cannot be written, the
/// first failure is said on stderr, and the program goes on.
class StatusWriter {
public:
    StatusWriter(const Gpu& gpu, kdvfs::detail::GpuService& service, SessionMode::Kind kind,
                 std::shared_ptr<SweepControl> sweep, const PlanComparison* comparison,
                 const RunEngine* run, std::filesystem::path file)
        : gpu_{gpu},
          service_{service},
          sweep_{std::move(sweep)},
          comparison_{comparison},
          run_{run},
          file_{std::move(file)},
          follows_{kind == SessionMode::Kind::follow || kind == SessionMode::Kind::compare} {
        status_.gpu = gpu_name(gpu.info());
        status_.sample_period = service.sample_period();
        status_.measure_only = gpu.measure_only();
        status_.grid_points = clock_grid(gpu.supported_clocks()).size();
        write_or_say();
    }
    StatusWriter(const StatusWriter&) = delete;
    StatusWriter& operator=(const StatusWriter&) = delete;
    ~StatusWriter() {
        if (kdvfs::detail::fork_generation() == generation_) write_or_say();
    }

    void next_iteration() {
        ++status_.iterations;
        const bool ended = sweep_ && !reported_end_ && sweep_->progress().done;
        if (!ended && std::chrono::steady_clock::now() < next_) return;
        reported_end_ = reported_end_ || ended;
        write_or_say();
    }

private:
    /// Where the disk is full, the next second may be better.
    void write_or_say() noexcept {
        try {
            write();
        } catch (const std::exception& error) {
            if (!std::exchange(failed_, true)) std::fprintf(stderr, "kdvfs: %s\n", error.what());
        }
        next_ = std::chrono::steady_clock::now() + std::chrono::seconds{1};
    }
    void write() {
        if (sweep_) status_.sweep = sweep_->progress();
        if (comparison_ != nullptr) status_.pairs = comparison_->pairs();
        if (run_ != nullptr) status_.saving = run_->saving();
        if (follows_) {
            if (const auto followed = service_.followed()) {
                status_.followed_pct = 100 * followed->share();
            }
        }
        kdvfs::detail::write_file_atomically(file_, to_json(status_));
    }

    Gpu gpu_;  // which keeps the service
    kdvfs::detail::GpuService& service_;
    std::shared_ptr<SweepControl> sweep_;
    const PlanComparison* comparison_;
    const RunEngine* run_;
    std::filesystem::path file_;
    SessionStatus status_;
    bool follows_;
    bool reported_end_ = false;
    bool failed_ = false;  ///< which was said
    std::chrono::steady_clock::time_point next_;
    std::uint32_t generation_ = kdvfs::detail::fork_generation();
};

/// Says at a session's begin which clocks its scopes will ask for. Scopes for the highest clocks
/// put no markers while nothing lowers a clock; where one might still run when the first lower
/// clock is asked for, that has no effect for up to two seconds.
inline void announce_clocks(kdvfs::detail::GpuService& service,
                            const std::vector<ClockPoint>& points) {
    if (points.empty() || service.measure_only()) return;
    const TrackId highest = service.begin_request(ClockPoint{});  // so that no clock is changed
    const TrackId request = service.begin_request(points.front());
    for (const ClockPoint point : points) service.change_request(request, point);
    service.end_request(request);
    service.end_request(highest);
}

class SessionEngine final : public SessionControl {
public:
    SessionEngine(const Gpu& gpu, kdvfs::detail::GpuService& service, const SessionMode& mode,
                  SweepOptions sweep, bool (*obeys_plan)(std::string_view))
        : gpu_{gpu} {
        if (mode.kind == SessionMode::Kind::sweep) {
            sweep.file = mode.file;
            sweep_ = begin_sweep(service, sweep);
            announce_clocks(service, clock_grid(gpu.supported_clocks()));
        } else if (mode.kind == SessionMode::Kind::follow ||
                   mode.kind == SessionMode::Kind::compare) {
            plan_ = read_plan(gpu, mode.file, obeys_plan);
            std::vector<ClockPoint> points;
            for (const auto& [kernel, request] : plan_->requests()) {
                if (request.asks) points.push_back(request.point);
            }
            announce_clocks(service, points);
        }
        if (mode.kind == SessionMode::Kind::compare) comparison_.emplace(service, sweep);
        if (mode.kind == SessionMode::Kind::tune) {
            SelfTuning tuning = self_tuning_of(service, sweep);
            tuning.link = mode.link;
            tuning.store = kdvfs::detail::environment("KDVFS_STORE");
            tuning.site = kdvfs::detail::environment("KDVFS_SITE_STORE");
            run_ = std::make_shared<RunEngine>(service, sweep, std::move(tuning));
            sweep_ = run_;
            if (const auto file = kdvfs::detail::environment("KDVFS_LEDGER"); !file.empty())
                ledger_.emplace(file, gpu_name(gpu.info()) + ' ' + gpu.info().address);
        }
        if (mode.kind == SessionMode::Kind::off) scopes_ = &none_;
        if (sweep_) scopes_ = &sweep_->scope_sink();
        if (comparison_) scopes_ = &*comparison_;
        const auto file = kdvfs::detail::environment("KDVFS_STATUS");
        if (file.empty()) return;
        status_.emplace(gpu, service, mode.kind, sweep_, comparison_ ? &*comparison_ : nullptr,
                        run_.get(),
                        mode.rank ? rank_path(file, *mode.rank) : std::filesystem::path{file});
    }

    ~SessionEngine() override {
        if (kdvfs::detail::fork_generation() == generation_) report_end();
    }
    SessionEngine(const SessionEngine&) = delete;
    SessionEngine& operator=(const SessionEngine&) = delete;

    [[nodiscard]] SweepControl* sweep() const override { return sweep_.get(); }
    [[nodiscard]] std::shared_ptr<const PlanTable> plan() const override { return plan_; }
    void report_iteration() override {
        if (status_) status_->next_iteration();
        if (ledger_ && ledger_->is_due()) ledger_->write(run_->saving());
    }
    void report_end() override {
        if (ledger_) ledger_->write(run_->saving());
    }
    void next_iteration() override {
        if (sweep_) sweep_->next_iteration();
        if (comparison_) comparison_->next_iteration();
    }
    [[nodiscard]] std::optional<Saving> saving() const override {
        return run_ ? std::optional{run_->saving()} : std::nullopt;
    }
    [[nodiscard]] kdvfs::detail::ScopeSink* scopes() override { return scopes_; }

private:
    struct NoScopes final : kdvfs::detail::ScopeSink {
        kdvfs::detail::ScopeToken enter(StreamRef, const kdvfs::detail::ScopeKind&) override {
            return {};
        }
        void leave(const kdvfs::detail::ScopeToken&) override {}
        void leave_noexcept(const kdvfs::detail::ScopeToken&) noexcept override {}
    };

    static std::shared_ptr<const PlanTable> read_plan(const Gpu& gpu,
                                                      const std::filesystem::path& file,
                                                      bool (*obeys_plan)(std::string_view)) {
        const std::string text = read_trusted_file(file);
        const std::string name = file.string();
        if (has_sequence(text, name)) {
            return to_plan_table(parse_sequence(text, name), gpu.info(), gpu.supported_clocks());
        }
        return to_plan_table(parse_plan(text, name), gpu.info(), gpu.supported_clocks(),
                             obeys_plan);
    }

    Gpu gpu_;
    std::shared_ptr<SweepControl> sweep_;
    std::shared_ptr<RunEngine> run_;  ///< the same, where the program tunes itself
    std::shared_ptr<const PlanTable> plan_;
    std::optional<PlanComparison> comparison_;
    std::optional<StatusWriter> status_;
    std::optional<RunLedger> ledger_;
    std::uint32_t generation_ = kdvfs::detail::fork_generation();
    NoScopes none_;
    kdvfs::detail::ScopeSink* scopes_ = nullptr;
};

}  // namespace detail

KDVFS_INLINE MergedStores merge_profile_stores(const std::vector<std::filesystem::path>& from,
                                               const std::filesystem::path& into, bool hash_names) {
    detail::StoreMerge stores{hash_names};
    stores.merge(from, into);
    return {stores.programs(), stores.profiles(), stores.unreadable()};
}

KDVFS_INLINE std::shared_ptr<SessionControl> begin_session(
    const Gpu& gpu, kdvfs::detail::GpuService& service, const SessionMode& mode,
    const SweepOptions& sweep, bool (*obeys_plan)(std::string_view kernel)) {
    return std::make_shared<detail::SessionEngine>(gpu, service, mode, sweep, obeys_plan);
}

}  // namespace kdvfs::inline v0_3::tune
