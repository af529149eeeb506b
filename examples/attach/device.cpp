// SPDX-License-Identifier: MIT
#include <examples/attach/device.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/tune/session.hpp>

#include <charconv>
#include <cstdlib>
#include <ostream>
#include <system_error>

namespace attach {
namespace {

/// A kernel that the plan does not name runs at the board's own choice.
using Policy = kdvfs::FromPlan<kdvfs::AutoClock>;
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<Policy>>;

}  // namespace

Settings Settings::from_environment() {
    const auto text_of = [](const char* name) -> std::string {
        const char* const text = std::getenv(name);
        return text == nullptr ? "" : text;
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
    if (const std::string level = text_of("KDVFS_ATTACH_LEVEL"); level == "range") {
        settings.level = Level::range;
    } else if (!level.empty() && level != "kernel") {
        refuse("KDVFS_ATTACH_LEVEL=" + level, "this is no level", "say kernel or range");
    }
    if (const std::string match = text_of("KDVFS_ATTACH_MATCH"); !match.empty()) {
        try {
            settings.match.emplace(match, std::regex::optimize);
        } catch (const std::regex_error& error) {
            refuse("KDVFS_ATTACH_MATCH=" + match, error.what(),
                   "give a regular expression (ECMAScript)");
        }
    }
    if (const std::string every = text_of("KDVFS_ATTACH_METER"); !every.empty()) {
        unsigned number = 0;
        const char* const end = every.data() + every.size();
        const auto read = std::from_chars(every.data(), end, number);
        if (read.ptr != end || read.ec != std::errc{} || number == 0) {
            refuse("KDVFS_ATTACH_METER=" + every, "this is no count", "give 1 or more");
        }
        settings.meter_every = number;
    }
    settings.iteration = text_of("KDVFS_ATTACH_ITERATION");
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
    void begin_iteration(bool metered) const {
        if (mode() == kdvfs::tune::SessionMode::Kind::sweep) {
            next_iteration();
        } else {
            static_cast<void>(service().begin_iteration(metered));
        }
    }
};

Device::Device(const kdvfs::Gpu& gpu, const Settings& settings, unsigned every)
    : settings_{settings},
      session_{std::make_unique<RunSession>(gpu)},
      sink_{&session_->scope_sink()},
      others_{&session_->kind("other kernels", {})},
      outside_{&session_->kind("outside ranges", {})},
      every_{settings.meter_every.value_or(every)} {}

Device::~Device() = default;

const kdvfs::detail::ScopeKind& Device::launch_kind(const std::string& name,
                                                    kdvfs::Variant variant) {
    if (settings_.match && !std::regex_search(name, *settings_.match)) return *others_;
    const auto& kind = session_->kind(name, variant);
    const std::lock_guard lock{splitting_};
    clusters_.try_emplace(kind.number, Clusters{name, variant, {}});
    return kind;
}

std::uint32_t Device::split(std::uint32_t kind, kdvfs::Duration time) {
    constexpr std::size_t most = 8;
    constexpr std::uint32_t apart = 64;  // more than a grid's variants
    if (time < std::chrono::microseconds{20}) return kind;
    const std::lock_guard lock{splitting_};
    const auto found = clusters_.find(kind);
    if (found == clusters_.end()) return kind;
    auto& [name, variant, known] = found->second;
    for (const auto& [its, number] : known) {
        if (time * 5 <= its * 8 && its * 5 <= time * 8) return number;
    }
    if (known.size() == most) return kind;
    const auto index = static_cast<std::uint32_t>(known.size());
    const std::uint32_t number =
        index == 0 ? kind : session_->kind(name, {variant.index + apart * index}).number;
    known.emplace_back(time, number);
    return number;
}

const kdvfs::detail::ScopeKind& Device::range_kind(std::string_view path) const {
    return session_->kind(path, {});
}

void Device::launched(const kdvfs::detail::ScopeKind& kind) {
    launches_.fetch_add(1, std::memory_order_relaxed);
    if (!settings_.iteration.empty()) return;
    bool begins = false;
    {
        const std::lock_guard lock{mutex_};
        begins = iterations_.launched(kind.number);
        if (iterations_.period() == 0 && ++since_look_ >= 64) {
            since_look_ = 0;
            const auto now = std::chrono::steady_clock::now();
            begins = now - looked_at_ > std::chrono::milliseconds{250};
            if (begins) looked_at_ = now;
        }
    }
    if (begins) begin_iteration();
}

void Device::begin_iteration() {
    const unsigned every = every_.load(std::memory_order_relaxed);
    const std::uint64_t number = begun_.fetch_add(1, std::memory_order_relaxed);
    session_->begin_iteration(every != 0 && number % every == every - 1);
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
        << R"(,"share":)" << json_number(iterations_.coverage()) << R"(},"report":)";
    kdvfs::measure::write_json(out, report);
    out << '}';
}

}  // namespace attach
