// SPDX-License-Identifier: MIT
#include <examples/attach/device.hpp>
#include <examples/attach/launch_names.hpp>
#include <examples/attach/process.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/tune/session.hpp>

#include <charconv>
#include <ostream>
#include <system_error>

namespace attach {
namespace {

/// A kernel that the plan does not name runs at the board's own choice.
using Policy = kdvfs::FromPlan<kdvfs::AutoClock>;
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<Policy>>;

}  // namespace

Settings Settings::from_environment() {
    const auto text_of = [](const char* name) {
        return std::string{kdvfs::detail::environment(name)};
    };
    const auto refuse = [](const std::string& variable, const std::string& words,
                           const std::string& remedy) {
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"attach to a program", variable, words, remedy}};
    };
    using Kind = kdvfs::tune::SessionMode::Kind;
    const Kind kind = kdvfs::tune::session_mode_from_environment().kind;
    Settings settings;
    settings.off = kind == Kind::off;
    settings.sets_clocks = kind == Kind::sweep || kind == Kind::follow;
    settings.repeats = text_of("KDVFS_MODE") == "repeat";
    if (const std::string level = text_of("KDVFS_ATTACH_LEVEL"); level == "range") {
        settings.level = Level::range;
        if (settings.repeats) {
            refuse("KDVFS_ATTACH_LEVEL=range", "kernels are repeated, not ranges",
                   "say kernel, or leave KDVFS_MODE=repeat");
        }
    } else if (!level.empty() && level != "kernel") {
        refuse("KDVFS_ATTACH_LEVEL=" + level, "this is no level", "say kernel or range");
    }
    const auto expression_of = [&](const std::string& name) -> std::optional<std::regex> {
        const std::string text = text_of(name.c_str());
        if (text.empty()) return std::nullopt;
        try {
            return std::regex{text, std::regex::optimize};
        } catch (const std::regex_error& error) {
            refuse(name + '=' + text, error.what(), "give a regular expression (ECMAScript)");
        }
        return std::nullopt;
    };
    settings.match = expression_of("KDVFS_ATTACH_MATCH");
    settings.runs_once = expression_of("KDVFS_ATTACH_RUNS_ONCE");
    const auto count_of = [&](const std::string& name,
                              unsigned least = 1) -> std::optional<unsigned> {
        const std::string text = text_of(name.c_str());
        if (text.empty()) return std::nullopt;
        unsigned number = 0;
        const char* const end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, number);
        if (read.ptr != end || read.ec != std::errc{} || number < least) {
            refuse(name + '=' + text, "this is no count",
                   "give " + std::to_string(least) + " or more");
        }
        return number;
    };
    settings.meter_every = count_of("KDVFS_ATTACH_METER");
    if (const auto seconds = count_of("KDVFS_ATTACH_PATIENCE")) {
        settings.patience = std::chrono::seconds{*seconds};
    }
    if (const auto seconds = count_of("KDVFS_ATTACH_REPEAT_AFTER", 0)) {
        settings.repeat_after = std::chrono::seconds{*seconds};
    }
    settings.iteration = text_of("KDVFS_ATTACH_ITERATION");
    using Names = std::pair<const char*, const char*>;
    for (const auto& [rank, size] :
         {Names{"RANK", "WORLD_SIZE"}, Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
          Names{"PMI_RANK", "PMI_SIZE"}, Names{"SLURM_PROCID", "SLURM_NTASKS"}}) {
        settings.rank = text_of(rank);
        const std::string ranks = text_of(size);
        settings.has_peers = !settings.rank.empty() && !ranks.empty() && ranks != "1";
        if (!settings.rank.empty()) break;
    }
    settings.folder = text_of("KDVFS_ATTACH_FOLDER");
    return settings;
}

/// Metered iterations are chosen by whoever attaches; sweeps choose their own.
class RunSession : public kdvfs::tune::Session<Policies> {
public:
    using Session::Session;

    [[nodiscard]] const kdvfs::detail::ScopeKind& kind(std::string_view name,
                                                       kdvfs::Variant variant) const {
        return kind_of<Policy>(name, variant);
    }
    /// The same for a kind that is kept, and no scope's: one for each name and variant, whatever
    /// clock is asked for now. A sweep counts what it hands out by `kind` as a scope entered.
    [[nodiscard]] const kdvfs::detail::ScopeKind& kept_kind(std::string_view name,
                                                            kdvfs::Variant variant) const {
        if (mode() != kdvfs::tune::SessionMode::Kind::sweep) return kind(name, variant);
        return service().kind_of(name, variant, {}, Policies::metered);
    }
    /// @param known an iteration of the program; else a stretch of time before these are known,
    ///        which neither sweeps nor plans can take for one
    void begin_iteration(bool metered, bool known) const {
        using Kind = kdvfs::tune::SessionMode::Kind;
        if (!known && mode() != Kind::measure) return;
        if (mode() == Kind::sweep) return next_iteration();
        static_cast<void>(service().begin_iteration(metered));
        if (known) tell_iteration();
    }
};

namespace {

kdvfs::tune::SessionMode mode_of(const Settings& settings) {
    auto mode = kdvfs::tune::session_mode_from_environment();
    const auto rank = kdvfs::detail::parse_number<std::size_t>(settings.rank);
    return settings.has_peers && rank ? mode.of_rank(*rank) : mode;
}

}  // namespace

Device::Device(const Opened& opened, const Settings& settings, unsigned every)
    : settings_{settings},
      tells_joules_{opened.tells_joules},
      session_{std::make_unique<RunSession>(opened.gpu, mode_of(settings))},
      sink_{&session_->scope_sink()},
      others_{&session_->kept_kind("other kernels", {})},
      outside_{&session_->kept_kind("outside ranges", {})},
      every_{settings.meter_every.value_or(every)} {
    swept_.emplace(others_->number, std::pair{"other kernels", kdvfs::Variant{}});
    swept_.emplace(outside_->number, std::pair{"outside ranges", kdvfs::Variant{}});
}

Device::~Device() = default;

const kdvfs::detail::ScopeKind& Device::launch_kind(const std::string& name,
                                                    kdvfs::Variant variant) {
    if (settings_.match && !std::regex_search(name, *settings_.match)) return *others_;
    const auto& kind = session_->kept_kind(name, variant);
    const std::lock_guard lock{splitting_};
    clusters_.try_emplace(kind.number, Clusters{name, variant, {}});
    swept_.try_emplace(kind.number, name, variant);
    return kind;
}

const kdvfs::detail::ScopeKind& Device::scope_kind(const kdvfs::detail::ScopeKind& kept) {
    if (session_->mode() != kdvfs::tune::SessionMode::Kind::sweep) return kept;
    const std::lock_guard lock{splitting_};
    const auto found = swept_.find(kept.number);
    return found == swept_.end() ? kept : session_->kind(found->second.first, found->second.second);
}

std::uint32_t Device::split(std::uint32_t kind, kdvfs::Duration time) {
    const auto* const cluster = cluster_of(kind, time);
    return cluster == nullptr ? kind : cluster->number;
}

/// @returns null for a kind that is not split
const kdvfs::detail::ScopeKind* Device::cluster_of(std::uint32_t kind, kdvfs::Duration time) {
    constexpr std::size_t most = 8;
    constexpr std::uint32_t apart = 64;  // more than a grid's variants
    if (time < std::chrono::microseconds{20}) return nullptr;
    const std::lock_guard lock{splitting_};
    const auto found = clusters_.find(kind);
    if (found == clusters_.end()) return nullptr;
    auto& [name, variant, known, tried] = found->second;
    for (const auto& [its, cluster] : known) {
        if (time * 5 <= its * 8 && its * 5 <= time * 8) return cluster;
    }
    if (known.size() == most) return nullptr;
    const auto index = static_cast<std::uint32_t>(known.size());
    return known.emplace_back(time, &session_->kind(name, {variant.index + apart * index})).second;
}

void Device::repeat(kdvfs::StreamRef stream, const kdvfs::detail::ScopeKind& kind,
                    const std::function<void()>& work, const std::function<void()>& wait) {
    const std::lock_guard one_at_a_time{repeating_};
    Process& process = Process::instance();
    std::string repeated;
    const auto kind_of_work = [&]() -> const kdvfs::detail::ScopeKind* {
        constexpr unsigned most_tries = 256;  // then all its clusters have been met
        std::string name;
        {
            const std::lock_guard lock{splitting_};
            const auto found = clusters_.find(kind.number);
            if (found == clusters_.end()) return nullptr;
            if (found->second.tried == (wait ? most_tries : 1)) return nullptr;
            ++found->second.tried;
            name = found->second.name;
        }
        if (runs_once(name)) return nullptr;
        if (settings_.runs_once && std::regex_search(name, *settings_.runs_once)) return nullptr;
        process.repeating(name);
        repeated = std::move(name);
        if (!wait) return &kind;
        constexpr int calls = 3;
        work();
        wait();
        const auto began = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) work();
        wait();
        const kdvfs::Duration time = (std::chrono::steady_clock::now() - began) / calls;
        const auto* const cluster = cluster_of(kind.number, time);
        return cluster == nullptr ? &kind : cluster;
    };
    try {
        sink_->repeat(stream, kind_of_work, work);
    } catch (const kdvfs::Error& error) {
        if (repeated.empty()) throw;
        process.repeating_failed();
        throw kdvfs::Error{
            error.code(),
            {"repeat kernel '" + repeated + "'", error.text().object, error.text().vendor_words,
             "leave it out: kdvfs run --repeat --runs-once '" + repeated + "'"}};
    }
    if (!repeated.empty()) process.repeating({});
}

const kdvfs::detail::ScopeKind& Device::range_kind(std::string_view path) const {
    return session_->kind(path, {});
}

void Device::launched(const kdvfs::detail::ScopeKind& kind) {
    launches_.fetch_add(1, std::memory_order_relaxed);
    if (!settings_.iteration.empty()) return;
    bool begins = false;
    bool known = false;
    const auto now = std::chrono::steady_clock::now();
    {
        const std::lock_guard lock{mutex_};
        begins = known =
            iterations_.launched(kind.number, kdvfs::TimePoint{now.time_since_epoch()});
        if (iterations_.period() == 0 && ++since_look_ >= 64) {
            since_look_ = 0;
            begins = now - looked_at_ > std::chrono::milliseconds{250};
            if (begins) looked_at_ = now;
        }
    }
    if (begins) begin_iteration(known);
}

void Device::meter_every(unsigned every) {
    every_.store(every, std::memory_order_relaxed);
    const std::lock_guard lock{beginning_};
    if (every == 0) session_->begin_iteration(false, false);
}

void Device::begin_iteration(bool known) {
    const unsigned every = every_.load(std::memory_order_relaxed);
    const std::uint64_t number = begun_.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard lock{beginning_};
    session_->begin_iteration(every != 0 && number % every == every - 1, known);
}

kdvfs::measure::Report Device::report() const { return session_->report(); }
void Device::close() const { session_->close(); }

void Device::write_json(std::ostream& out) {
    using kdvfs::detail::json_number;
    const kdvfs::measure::Report report = session_->report();
    const std::lock_guard lock{mutex_};
    const bool named = !settings_.iteration.empty();
    const bool found = iterations_.period() > 0;
    out << R"({"launches":)" << launches_.load() << R"(,"iterations":{"by":)"
        << (named   ? R"("range")"
            : found ? R"("period")"
                    : "null")
        << R"(,"count":)" << (named ? begun_.load() : iterations_.count()) << R"(,"launches":)"
        << iterations_.period() << R"(,"alike":)" << json_number(iterations_.stability())
        << R"(,"share":)" << json_number(iterations_.share_of_time()) << R"(},"report":)";
    kdvfs::measure::write_json(out, report);
    out << '}';
}

}  // namespace attach
