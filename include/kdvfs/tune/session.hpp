// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/sweep.hpp>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::tune {

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
};

/// "off", "measure", "sweep:FILE" or "follow:PLAN".
/// @throws Error (invalid_input) for anything else
inline SessionMode parse_session_mode(std::string_view text) {
    using Kind = SessionMode::Kind;
    const std::size_t colon = text.find(':');
    const std::string_view word = text.substr(0, colon);
    const std::string_view file =
        colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
    if (word == "off" && colon == std::string_view::npos) return {Kind::off, {}};
    if (word == "measure" && colon == std::string_view::npos) return {Kind::measure, {}};
    if (word == "sweep" && !file.empty()) return {Kind::sweep, file};
    if (word == "follow" && !file.empty()) return {Kind::follow, file};
    throw Error{Errc::invalid_input,
                {"begin a session", "KDVFS_MODE=" + std::string{text}, "this is no mode",
                 "say off, measure, sweep:FILE or follow:PLAN"}};
}

/// What the environment variable `KDVFS_MODE` says; `otherwise` where it is not set.
/// @throws Error as `parse_session_mode`
inline SessionMode session_mode_from_environment(SessionMode otherwise = {}) {
    const char* text = std::getenv("KDVFS_MODE");
    return text == nullptr || *text == '\0' ? otherwise : parse_session_mode(text);
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
/// registry says `FromPlan`. A handle, cheap to copy; thread-safe, but for `next_iteration`.
template <class Registry>
class Session : public Gpu {
public:
    /// @throws Error for a file that cannot be used, and as `Sweeping` and `Gpu::with`
    explicit Session(const Gpu& gpu, const SessionMode& mode = session_mode_from_environment(),
                     SweepOptions sweep = {})
        : Gpu{gpu}, kind_{mode.kind} {
        if (kind_ == SessionMode::Kind::sweep) {
            sweep.file = mode.file;
            sweeping_.emplace(gpu, sweep);
        } else if (kind_ == SessionMode::Kind::follow) {
            bound_.emplace(gpu.template with<Registry>(read_plan(gpu, mode.file)));
        }
    }

    [[nodiscard]] SessionMode::Kind mode() const { return kind_; }

    /// Says that an iteration begins: the one line to add to a program.
    void next_iteration() const {
        if (sweeping_) return sweeping_->next_iteration();
        if (kind_ != SessionMode::Kind::off) service().next_iteration();
    }

    /// How far a sweep has come; nothing in other modes.
    [[nodiscard]] std::optional<SweepProgress> progress() const {
        return sweeping_ ? std::optional{sweeping_->progress()} : std::nullopt;
    }

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

private:
    struct NoScopes final : kdvfs::detail::ScopeSink {
        kdvfs::detail::ScopeToken enter(StreamRef, const kdvfs::detail::ScopeKind&) override {
            return {};
        }
        void leave(const kdvfs::detail::ScopeToken&) override {}
        void leave_noexcept(const kdvfs::detail::ScopeToken&) noexcept override {}
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
};

}  // namespace kdvfs::tune
