// SPDX-License-Identifier: MIT
#include <kdvfs/detail/gpu/meter_inputs.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_stream.hpp>
#include <kdvfs/detail/train/stage_plan.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/session.hpp>
#include <kdvfs/tune/switch_costs.hpp>
#include <tools/attach/device.hpp>
#include <tools/attach/launch_names.hpp>
#include <tools/attach/pipeline.hpp>
#include <tools/attach/process.hpp>
#include <tools/attach/short_ranges.hpp>

#include <charconv>
#include <iomanip>
#include <system_error>

namespace attach {
namespace {

/// A kernel that the plan does not name runs at the board's own choice.
using Policy = kdvfs::FromPlan<kdvfs::AutoClock>;
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<Policy>>;

constexpr double shortest_that_is_split = 20e-6;  // s
/// A launch that takes so much longer or shorter when it is made again is other work: the power
/// limit and a busy host make less of a difference.
constexpr double other_work = 1.6;

}  // namespace

Settings Settings::from_environment() {
    const auto text_of = [](const char* name) { return std::string{kdvfs::io::environment(name)}; };
    const auto refuse = [](const std::string& variable, const std::string& words,
                           const std::string& remedy) {
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"attach to a program", variable, words, remedy}};
    };
    using Kind = kdvfs::tune::SessionMode::Kind;
    const Kind kind = kdvfs::tune::session_mode_from_environment().kind;
    Settings settings;
    settings.off = kind == Kind::off;
    settings.sets_clocks =
        kind == Kind::sweep || kind == Kind::follow || kind == Kind::compare || kind == Kind::tune;
    settings.saves = kind == Kind::tune;
    settings.measure_only = text_of("KDVFS_ATTACH_MEASURE_ONLY") == "1";
    settings.repeats = text_of("KDVFS_MODE") == "repeat";
    settings.whole_graphs = text_of("KDVFS_ATTACH_GRAPHS") == "whole";
    if (const std::string level = text_of("KDVFS_ATTACH_LEVEL"); level == "range") {
        settings.level = Level::range;
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
    settings.pipeline = text_of("KDVFS_ATTACH_PIPELINE");
    if (!settings.pipeline.empty()) {
        settings.sets_clocks = true;
        settings.level = Level::range;
        settings.match = std::regex{operation_ranges, std::regex::optimize};
    }
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
    settings.meter_every = count_of("KDVFS_ATTACH_METER", 0);
    if (const auto seconds = count_of("KDVFS_ATTACH_PATIENCE")) {
        settings.patience = std::chrono::seconds{*seconds};
    }
    if (const auto seconds = count_of("KDVFS_ATTACH_REPEAT_AFTER", 0)) {
        settings.repeat_after = std::chrono::seconds{*seconds};
    }
    if (const auto megahertz = count_of("KDVFS_ATTACH_IDLE_CLOCK")) {
        if (settings.sets_clocks || settings.repeats) {
            refuse("KDVFS_ATTACH_IDLE_CLOCK", "a sweep, a plan and repeated kernels exclude it",
                   "unset it, or KDVFS_MODE");
        }
        settings.idle.clock =
            kdvfs::ClockPoint{{*megahertz}, {count_of("KDVFS_ATTACH_IDLE_MEMORY").value_or(0)}};
    }
    if (const auto milliseconds = count_of("KDVFS_ATTACH_IDLE_AFTER")) {
        settings.idle.after = std::chrono::milliseconds{*milliseconds};
    }
    settings.iteration = text_of("KDVFS_ATTACH_ITERATION");
    settings.launched = LaunchedRank::from_environment();
    for (const char* job : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"}) {
        if (settings.job.empty()) settings.job = text_of(job);
    }
    settings.folder = text_of("KDVFS_ATTACH_FOLDER");
    settings.record = text_of("KDVFS_ATTACH_RECORD");
    return settings;
}

/// Metered iterations are chosen by whoever attaches; sweeps choose their own.
class RunSession : public kdvfs::tune::Session<Policies> {
public:
    using Session::Session;

    [[nodiscard]] const kdvfs::extend::ScopeKind& kind(std::string_view name,
                                                       kdvfs::Variant variant) const {
        return kind_of<Policy>(name, variant);
    }
    /// The same for a kind that is kept, and no scope's: one for each name and variant, whatever
    /// clock is asked for now. A sweep counts what it hands out by `kind` as a scope entered.
    [[nodiscard]] const kdvfs::extend::ScopeKind& kept_kind(std::string_view name,
                                                            kdvfs::Variant variant) const {
        if (mode() != kdvfs::tune::SessionMode::Kind::sweep) return kind(name, variant);
        return service().kind_of(name, variant, {}, Policies::metered);
    }
    void leave_unmarked(const kdvfs::extend::ScopeToken& token) const noexcept {
        service().leave_unmarked(token);
    }
    void keep_record() const { service().keep_record(true); }
    [[nodiscard]] kdvfs::measure::MeterRecord take_record() const {
        return service().take_record();
    }
    /// @throws Error for files that are no plan of a pipeline, or one of other ranks
    [[nodiscard]] std::unique_ptr<PipelineRanges> pipeline_ranges(const Settings& settings) const {
        using namespace kdvfs::train;
        const auto read = [&](const char* name) {
            return kdvfs::tune::read_trusted_file(settings.pipeline / name);
        };
        Pipeline pipeline = parse_pipeline_case(read("case.json"), "case.json").pipeline;
        const std::size_t ranks = settings.launched.ranks;
        if (ranks % pipeline.stages != 0)
            throw kdvfs::Error{
                kdvfs::Errc::invalid_input,
                {"follow the plan of a pipeline", std::to_string(ranks) + " ranks",
                 "its " + std::to_string(pipeline.stages) + " stages do not divide them",
                 "start as many ranks for each stage, as torchrun does"}};
        const auto rank = kdvfs::io::parse_number<std::size_t>(settings.launched.rank).value_or(0);
        const auto stage =
            static_cast<std::uint32_t>(std::min(rank, ranks - 1) / (ranks / pipeline.stages));
        StagePlan plan = parse_stage_plan(read("plan.json"), pipeline, stage);
        return std::make_unique<PipelineRanges>(service(), std::move(pipeline), stage,
                                                std::move(plan));
    }
    void end_account() const { report_end(); }
    [[nodiscard]] const kdvfs::extend::ScopeKind& enclosing_kind(std::string_view name) const {
        return service().enclosing_kind(name);
    }
    /// @param known an iteration of the program; else a stretch of time before these are known,
    ///        which neither sweeps nor plans can take for one
    void begin_iteration(bool metered, bool known) const {
        using Kind = kdvfs::tune::SessionMode::Kind;
        if (!known && mode() != Kind::measure) return;
        if (mode() == Kind::sweep || mode() == Kind::compare || mode() == Kind::tune)
            return next_iteration();
        static_cast<void>(service().begin_iteration(metered));
        if (known) report_iteration();
    }
};

Device::Device(const Opened& opened, const Settings& settings, unsigned every)
    : settings_{settings},
      resolves_energy_{opened.resolves_energy},
      session_{std::make_unique<RunSession>(
          opened.gpu, settings.launched.of(kdvfs::tune::session_mode_from_environment()))},
      sink_{&session_->scope_sink()},
      others_{&session_->kept_kind("other kernels", {})},
      every_{settings.meter_every.value_or(every)} {
    swept_.emplace(others_->number, std::pair{"other kernels", kdvfs::Variant{}});
    if (!settings.record.empty()) session_->keep_record();
    if (!settings.pipeline.empty()) pipeline_ = session_->pipeline_ranges(settings);
    if (every_ == 0) meter_every(0);  // from the first launch on
}

Device::~Device() = default;

void Device::leave_unmarked(const kdvfs::extend::ScopeToken& token) const noexcept {
    session_->leave_unmarked(token);
    sink_->leave_noexcept(token);  // what the sink itself knows of it; the stream has left it
}

kdvfs::GpuOptions attached_options(const Settings& settings, const std::string& gpu) {
    // Sweeps and plans know what a switch costs: the gate has no say.
    std::optional<kdvfs::Duration> latency;
    if (settings.sets_clocks) latency = kdvfs::Duration{0};
    if (settings.idle.clock) {
        if (const auto measured = kdvfs::tune::find_switch_latencies(gpu)) {
            const auto delay =
                kdvfs::tune::read_switch_costs(*measured).delay(*settings.idle.clock, {});
            latency = std::chrono::duration_cast<kdvfs::Duration>(delay.latency);
        } else {
            Process::instance().note("no switching latency of " + gpu +
                                     " is known: a wake is taken to cost 150 ms. Measure it once "
                                     "(kdvfs measure-latency)");
        }
    }
    // What the solution costs grows with the square of the columns, and with their cube at the end:
    // a counter of 100 ms is fitted in 14 ways.
    return {
        .on_refused = settings.saves ? kdvfs::OnRefused::measure_only : kdvfs::OnRefused::fail,
        .switch_latency = latency,
        .idle_clock = settings.idle,
        .meter_every = 1,
        .repeat = {.after = settings.repeat_after},
        .may_repeat = true,  // the user has said so to the attach command
        .accumulator = {.capacity = std::size_t{1} << 18U, .most_columns = 96, .pool_below = 1e-3}};
}

void Device::stay_up() {
    if (!settings_.drives_clocks()) return;
    try {
        session_->protect(kdvfs::StreamRef{nullptr});
    } catch (const kdvfs::Error&) {  // another device is current on this thread
        const std::lock_guard lock{beginning_};
        if (!stays_up_) stays_up_.emplace(*session_, kdvfs::ClockPoint{});
    }
}

const kdvfs::extend::ScopeKind& Device::launch_kind(const std::string& name,
                                                    kdvfs::Variant variant) {
    // Where ranges are what is metered, they are what is asked for, too.
    if (settings_.level == Level::kernel && settings_.match &&
        !std::regex_search(name, *settings_.match)) {
        return *others_;
    }
    const auto& kind = session_->kept_kind(name, variant);
    const std::lock_guard lock{splitting_};
    clusters_.try_emplace(kind.number, Clusters{name, variant, {}});
    swept_.try_emplace(kind.number, name, variant);
    return kind;
}

std::uint32_t Device::kind_of_symbol(const char* symbol, kdvfs::Variant variant) {
    const std::lock_guard lock{by_symbol_lock_};
    const auto [known, is_new] =
        by_symbol_.try_emplace({symbol == nullptr ? "" : symbol, variant.index}, 0);
    if (is_new) known->second = launch_kind(launch_name(symbol), variant).number;
    return known->second;
}

const kdvfs::extend::ScopeKind& Device::graph_kind(const std::string& name) {
    return looks_into_graphs() ? session_->enclosing_kind(name) : launch_kind(name, {});
}

const kdvfs::extend::ScopeKind& Device::scope_kind(const kdvfs::extend::ScopeKind& kept) {
    if (session_->mode() != kdvfs::tune::SessionMode::Kind::sweep) return kept;
    const std::lock_guard lock{splitting_};
    const auto found = swept_.find(kept.number);
    return found == swept_.end() ? kept : session_->kind(found->second.first, found->second.second);
}

/// @returns null where none is within that factor
Device::Cluster* Device::Clusters::nearest(double seconds, double alike) {
    const auto best = std::min_element(
        known.begin(), known.end(),
        [&](const Cluster& a, const Cluster& b) { return a.apart(seconds) < b.apart(seconds); });
    return best == known.end() || best->apart(seconds) > alike ? nullptr : &*best;
}

Device::Cluster* Device::Clusters::at_place(std::uint32_t place) {
    const auto found = at.find(place);
    if (found == at.end()) return nullptr;
    const auto& counts = found->second;
    return &known[static_cast<std::size_t>(std::max_element(counts.begin(), counts.end()) -
                                           counts.begin())];
}

Device::Cluster* Device::Clusters::of_repeated(std::uint32_t place, double seconds) {
    Cluster* const its = at_place(place);
    if (its == nullptr) return nearest(seconds, other_work);
    return its->apart(seconds) > other_work ? nullptr : its;
}

std::uint32_t Device::split(std::uint32_t kind, kdvfs::Duration time, std::uint32_t place) {
    constexpr std::uint32_t apart = 64;  // more than a grid's variants
    constexpr double alike = 1.25;
    constexpr double follows = 0.125;  // of the way to what is seen
    const double seconds = kdvfs::Seconds{time}.count();
    const std::lock_guard lock{splitting_};
    const auto found = clusters_.find(kind);
    if (found == clusters_.end()) return kind;
    found->second.seen = true;
    if (seconds < shortest_that_is_split) return kind;
    auto& known = found->second.known;
    const auto keep_place = [&](std::size_t index) {
        if (place == nowhere || repeating_state_ == Repeating::begun) return;
        ++found->second.at[place][index];
    };
    if (Cluster* const cluster = found->second.nearest(seconds, alike)) {
        cluster->seconds += follows * (seconds - cluster->seconds);
        keep_place(static_cast<std::size_t>(cluster - known.data()));
        return cluster->kind->number;
    }
    if (known.size() == Clusters::most) return kind;
    keep_place(known.size());
    const auto index = static_cast<std::uint32_t>(known.size());
    const auto& its =
        session_->kind(found->second.name, {found->second.variant.index + apart * index});
    // What takes another time once kernels are repeated may be what that has left of it.
    const bool late = repeating_state_ == Repeating::begun && !known.empty();
    known.push_back({seconds, &its, late});
    return its.number;
}

/// @returns empty where the kernel is not to be repeated, any more or at all
std::string Device::name_to_repeat(std::uint32_t kind, const Again& again) {
    constexpr unsigned most_tries = 64;
    const std::lock_guard lock{splitting_};
    const auto found = clusters_.find(kind);
    if (found == clusters_.end()) return {};
    auto& [name, variant, known, at, seen, tried] = found->second;
    // Until it is known how long it takes, other work would pass for it. At once, nothing is known.
    if (again.wait && !seen && settings_.repeat_after.count() > 0) return {};
    const bool by_times = again.wait && !known.empty();
    const bool all_resolved =
        by_times &&
        std::all_of(known.begin(), known.end(), [](const auto& each) { return each.repeated; });
    if (tried >= (by_times ? most_tries : 1) || all_resolved) return {};
    const Cluster* const its = found->second.at_place(again.place);
    if (its != nullptr && its->repeated) return {};
    if (runs_once(name)) return {};
    if (settings_.runs_once && std::regex_search(name, *settings_.runs_once)) return {};
    ++tried;
    return name;
}

/// Which of a kernel's clusters the launch is, by the time that it takes when it is made again:
/// once the power limit has its say, as it had in the program.
/// @param way how it is to be made again
/// @returns null where it takes another time than any of them
const kdvfs::extend::ScopeKind* Device::kind_to_repeat(const kdvfs::extend::ScopeKind& kind,
                                                       const Again& again,
                                                       const std::function<void()>*& way) {
    using Clock = std::chrono::steady_clock;
    // Seconds of a call in the shortest batch: a busy host delays the others.
    const auto makes_for = [&](Clock::duration time, int calls, int least_batches = 1) {
        auto least = Clock::duration::max();
        const auto began = Clock::now();
        auto before = began;
        for (int batches = 0; batches < least_batches || before - began < time; ++batches) {
            for (int i = 0; i < calls; ++i) (*way)();
            again.wait();
            const auto now = Clock::now();
            least = std::min(least, now - before);
            before = now;
        }
        return std::chrono::duration<double>{least}.count() / calls;
    };
    double seconds = 0;
    for (const auto* const each : {&again.launch, &again.cleared}) {
        if (!*each) continue;
        way = each;
        makes_for(Clock::duration::zero(), 1);
        const double first = makes_for(Clock::duration::zero(), 3);
        const int calls = static_cast<int>(std::clamp(2e-3 / first, 1.0, 400.0));
        makes_for(std::chrono::milliseconds{60}, calls);
        seconds = makes_for(std::chrono::milliseconds{20}, calls, 5);
        const std::lock_guard lock{splitting_};
        Clusters& clusters = clusters_.at(kind.number);
        if (clusters.known.empty()) {
            if (!clusters.seen || seconds < 2 * shortest_that_is_split) return &kind;
            continue;
        }
        Cluster* const cluster = clusters.of_repeated(again.place, seconds);
        if (cluster == nullptr) continue;
        return std::exchange(cluster->repeated, true) ? nullptr : cluster->kind;
    }
    std::unique_lock lock{splitting_};
    const Clusters& clusters = clusters_.at(kind.number);
    if (clusters.tried > 1) return nullptr;
    kdvfs::io::TextStream text;
    text << "kernel '" << clusters.name << "' is other work when it is repeated: it takes "
         << 1e6 * seconds << " us";
    for (const Cluster& each : clusters.known) text << ", not " << 1e6 * each.seconds;
    lock.unlock();
    Process::instance().note(text.str());
    return nullptr;
}

/// It is asked for the first time once the program has run as it is for long enough.
bool Device::repeating_begins() {
    if (repeating_state_ == Repeating::begun) return true;
    repeating_state_ = Repeating::waits_for_iteration;
    const std::lock_guard lock{mutex_};
    if (settings_.iteration.empty() && iterations_.period() == 0)
        repeating_state_ = Repeating::begun;
    return repeating_state_ == Repeating::begun;
}

void Device::repeat(kdvfs::StreamRef stream, const kdvfs::extend::ScopeKind& kind,
                    const Again& again) {
    const std::lock_guard one_at_a_time{repeating_};
    Process& process = Process::instance();
    std::string repeated;
    const std::function<void()>* way = &again.launch;
    const auto kind_of_work = [&]() -> const kdvfs::extend::ScopeKind* {
        if (!repeating_begins()) return nullptr;
        repeated = name_to_repeat(kind.number, again);
        if (repeated.empty()) return nullptr;
        process.repeating(repeated);
        return again.wait ? kind_to_repeat(kind, again, way) : &kind;
    };
    try {
        sink_->repeat(stream, kind_of_work, [&] { (*way)(); });
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

const kdvfs::extend::ScopeKind& Device::range_kind(std::string_view path) {
    if (settings_.sets_clocks) return session_->kind(path, {});
    const std::lock_guard lock{naming_};
    const std::string name = range_names_.of(path);
    auto known = ranges_.find(name);
    if (known == ranges_.end()) {
        known = ranges_.emplace(name, &session_->enclosing_kind(name)).first;
    }
    return *known->second;
}

const kdvfs::extend::ScopeKind& Device::outside() { return range_kind("outside ranges"); }

std::uint32_t Device::launched(const kdvfs::extend::ScopeKind& kind) {
    launches_.fetch_add(1, std::memory_order_relaxed);
    if (settings_.iteration.empty()) look_for_iteration(kind);
    std::uint32_t place = next_place_.load(std::memory_order_relaxed);
    while (place != nowhere &&
           !next_place_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed)) {
    }
    return place;
}

void Device::look_for_iteration(const kdvfs::extend::ScopeKind& kind) {
    bool begins = false;
    bool known = false;
    const auto now = std::chrono::steady_clock::now();
    {
        const std::lock_guard lock{mutex_};
        begins = known =
            iterations_.launched(kind.number, kdvfs::TimePoint{now.time_since_epoch()});
        if (iterations_.look_is_due()) look_beside(iterations_.begin_look());
        if (iterations_.period() == 0 && ++since_look_ >= 64) {
            since_look_ = 0;
            begins = now - looked_at_ > std::chrono::milliseconds{250};
            if (begins) looked_at_ = now;
        }
    }
    if (begins) begin_iteration(known);
}

void Device::look_beside(std::vector<std::uint32_t> seen) {
    run_beside([this, seen = std::move(seen)] {
        const auto found = Iterations::look(seen);
        if (!found) return;
        const std::lock_guard lock{mutex_};
        iterations_.take(*found);
    });
}

void Device::meter_every(unsigned every) {
    every_.store(every, std::memory_order_relaxed);
    const std::lock_guard lock{beginning_};
    share_.reset();
    if (every != 0) return;
    meters_ = false;
    session_->begin_iteration(false, false);
}

void Device::pause(bool paused) {
    const std::lock_guard lock{beginning_};
    if (paused_.exchange(paused) == paused || !paused) return;
    meters_ = false;
    session_->begin_iteration(false, false);
}

void Device::begin_iteration(bool known) {
    auto waits = Repeating::waits_for_iteration;
    if (known) repeating_state_.compare_exchange_strong(waits, Repeating::begun);
    next_place_.store(known ? 0 : nowhere, std::memory_order_relaxed);
    const std::uint64_t number = begun_.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard lock{beginning_};
    const bool now = meters(number, known);
    // A stretch before iterations are known must not pass for one where all is metered anyway.
    if (!known && meters_ && now) return;
    meters_ = now;
    session_->begin_iteration(meters_, known);
}

/// The caller holds the lock.
bool Device::meters(std::uint64_t iteration, bool known) {
    const unsigned every = paused_ ? 0 : every_.load(std::memory_order_relaxed);
    if (known && every != 0 && share_) {
        return share_->begin(kdvfs::TimePoint{std::chrono::steady_clock::now().time_since_epoch()});
    }
    return kdvfs::is_metered_iteration(iteration, every);
}

void Device::share_metering() {
    const std::lock_guard lock{beginning_};
    if (!settings_.meter_every && every_ == 1 && !settings_.sets_clocks && !settings_.repeats)
        share_.emplace();
}

kdvfs::measure::Report Device::report() const {
    kdvfs::measure::Report report = session_->report();
    if (settings_.level == Level::range && !sums_ranges()) unresolve_short_ranges(report);
    pool_numbered_ranges(report);
    leave_out_unknown(report);
    note_meter_share(report);
    return report;
}

void Device::note_meter_share(kdvfs::measure::Report& report) const {
    const std::lock_guard lock{beginning_};
    if (!share_ || !share_->cost() || share_->cost()->every == 1) return;
    const auto [share, half_width, every] = *share_->cost();
    kdvfs::io::TextStream text;
    text << std::fixed << std::setprecision(1) << "metering slowed the program by " << 100 * share
         << " % (+- " << 100 * half_width << "): iterations are metered in 1 stretch of " << every
         << ", so that it is " << 100 * MeterShare::budget << " %; --meter 1 meters all";
    report.notes.push_back(text.str());
}

/// Work that nobody knows of would count as idle: where it is over 1 % of the busy time no joules
/// are told but the board's. Of launches whose time is not known, either, their number stands for
/// it.
void Device::leave_out_unknown(kdvfs::measure::Report& report) const {
    constexpr double most = 0.01;
    const auto share = [](auto part, auto rest) {
        const auto whole = static_cast<double>(part) + static_cast<double>(rest);
        return whole > 0 ? static_cast<double>(part) / whole : 0.0;
    };
    const double unknown = std::max(share(unknown_time_.load(), known_time_.load()),
                                    share(unseen_launches_.load(), launches_.load()));
    if (unknown <= most) return;
    for (auto& row : report.rows) {
        row.energy = {};
        row.repeated.reset();
    }
    for (auto& level : report.levels) level.energy = {};
    report.groups.clear();
    report.totals.kernels = report.totals.idle = report.totals.together = {};
    report.fit.covariance.clear();
    kdvfs::io::TextStream text;
    text << std::fixed << std::setprecision(1) << 100 * unknown
         << " % of the busy time is of launches that were not seen: no joules of kernels";
    report.notes.push_back(text.str());
}
void Device::write_record(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder);
    const kdvfs::measure::MeterRecord record = session_->take_record();
    kdvfs::measure::write_record(folder, record);
    if (record.dropped == 0) return;
    throw kdvfs::Error{kdvfs::Errc::io,
                       {.action = "keep a whole record",
                        .object = folder.string(),
                        .vendor_words = std::to_string(record.dropped) + " items did not fit",
                        .remedy = "record a shorter run"}};
}
void Device::close() const {
    session_->end_account();
    session_->close();
}

void Device::write_fields(kdvfs::io::JsonFields& fields, bool at_end) {
    kdvfs::measure::Report report = this->report();
    if (!at_end) report.fit.covariance.clear();
    const std::lock_guard lock{mutex_};
    const bool named = !settings_.iteration.empty();
    std::optional<std::string> by;
    if (named || iterations_.period() > 0) by = named ? "range" : "period";
    fields("launches", launches_.load())("iterations", [&](kdvfs::io::JsonFields& iterations) {
        iterations("by", by);
        iterations("count", named ? begun_.load() : iterations_.count());
        iterations("launches", iterations_.period())("alike", iterations_.stability());
        iterations("share", iterations_.share_of_time());
    });
    kdvfs::io::TextStream text;
    kdvfs::measure::write_json(text, report);
    fields("report", kdvfs::io::JsonText{text.str()});
    if (const auto saving = session_->saving()) {
        fields("saving", kdvfs::io::JsonText{to_json(*saving).dump(
                             -1, ' ', true, nlohmann::json::error_handler_t::replace)});
    }
}

}  // namespace attach
