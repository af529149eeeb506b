// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/gpu/meter_inputs.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/tune/block_meter.hpp>
#include <kdvfs/detail/tune/in_background.hpp>
#include <kdvfs/detail/tune/iteration_kinds.hpp>
#include <kdvfs/detail/tune/profile_store.hpp>
#include <kdvfs/detail/tune/run_planner.hpp>
#include <kdvfs/detail/tune/run_schedule.hpp>
#include <kdvfs/detail/tune/run_team.hpp>
#include <kdvfs/detail/tune/sweep_engine.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/rank_link.hpp>
#include <kdvfs/tune/saving.hpp>
#include <kdvfs/tune/sweep.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <kdvfs/tune/switch_costs.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// How a program tunes itself, beyond the options of its sweep.
struct SelfTuning {
    RunOptions run{};
    std::filesystem::path store{};     ///< of profiles (`ProfileStore`); empty: none is kept
    std::filesystem::path site{};      ///< a store that is only read; empty: none
    std::shared_ptr<RankLink> link{};  ///< to the other ranks of the job; null: there are none
};

/// The grid of a board's clocks, without the cap at the highest core clock where the memory clock
/// is the board's choice: it is as `auto`, which is the baseline.
inline std::vector<ClockPoint> points_below_auto(const SupportedClocks& clocks) {
    std::vector<ClockPoint> points = clock_grid(clocks);
    Megahertz highest{0};
    for (const ClockPoint& point : points)
        if (point.core != auto_clock) highest = std::max(highest, point.core);
    std::erase(points, ClockPoint{highest, auto_clock});
    return points;
}

/// The options of a run that tunes itself, from those of a sweep: both are led by the slowdown that
/// plans may cost. Blocks are shorter, as each is paid for while production runs.
/// @throws Error (invalid_input) for a bound that is not above 0 and finite
inline SelfTuning self_tuning_of(const kdvfs::detail::GpuService& service, SweepOptions& sweep) {
    SelfTuning tuning;
    tuning.run.max_slowdown = sweep.objective.max_slowdown;
    if (!(tuning.run.max_slowdown > 0 && tuning.run.max_slowdown < 10))
        throw Error{
            Errc::invalid_input,
            {"tune a run by itself", to_string(service.info()),
             "the bound of its slowdown is not above 0", "give KDVFS_MAX_SLOWDOWN=1 for 1 %"}};
    tuning.run.switches_known = find_switch_latencies(gpu_name(service.info())).has_value();
    tuning.run.measure_only = service.measure_only();
    tuning.run.learns = true;
    tuning.run.seed = sweep.seed;
    // Half of the bound's share: the plan needs the other.
    sweep.max_slowdown = tuning.run.max_slowdown / 2;
    sweep.block.settle = std::min<Duration>(sweep.block.settle, std::chrono::milliseconds{200});
    sweep.block.counter_rows = std::min<std::size_t>(sweep.block.counter_rows, 50);
    sweep.longest_warm_up = std::min<Duration>(sweep.longest_warm_up, std::chrono::seconds{20});
    sweep.horizon = Seconds{3600};
    sweep.warm_up_iterations = tuning.run.steady_iterations - tuning.run.observed_after;
    sweep.file.clear();
    if (sweep.points.empty()) sweep.points = points_below_auto(service.supported_clocks());
    return tuning;
}

/// A program that tunes itself while it runs: its scopes are swept, follow the plan or ask for
/// nothing, as `RunSchedule` says. Stands where the sweep of a swept program stands. Scopes are
/// entered by any thread; `next_iteration` is called by one, between iterations.
class RunEngine final : public SweepControl, public kdvfs::detail::ScopeSink {
public:
    /// `service` must outlive it.
    RunEngine(kdvfs::detail::GpuService& service, SweepOptions sweep, SelfTuning tuning)
        : service_{&service},
          sweep_options_{std::move(sweep)},
          tuning_{std::move(tuning)},
          schedule_{tuning_.run} {
        if (tuning_.link && tuning_.link->size() > 1) team_.emplace(tuning_.link);
        service_->keep_record(true);
    }
    ~RunEngine() override {
        if (kdvfs::detail::fork_generation() != generation_) {
            for (JobPlan& each : plans_begun_)  // its thread is the parent's
                static_cast<void>(each.planning.release());
            return;
        }
        end_following();
        sweep_.reset();
        service_->keep_record(false);
    }
    RunEngine(const RunEngine&) = delete;
    RunEngine& operator=(const RunEngine&) = delete;

    void next_iteration() override {
        const std::lock_guard lock{run_};
        const TimePoint now = service_->now();
        const SeenIteration seen = end_iteration(now);
        if (team_) return next_of_team(seen, now);
        if (!sweep_) measure_blocks(now);
        const RunPhase before = schedule_.phase();
        RunStep step = schedule_.next(seen);
        if (before == RunPhase::explore && schedule_.phase() != RunPhase::explore) end_sweep();
        if (schedule_.phase() == RunPhase::explore) {
            static_cast<void>(explore());
            if (schedule_.phase() == RunPhase::explore) return begin({RunStep::As::explored});
            step = {};
        }
        if (schedule_.phase() == RunPhase::plan) plan();
        begin(step);
    }

    [[nodiscard]] Saving saving() const {
        const std::lock_guard lock{run_};
        return schedule_.saving();
    }

    [[nodiscard]] SweepProgress progress() const override {
        const std::lock_guard lock{run_};
        SweepProgress progress = progress_;
        const RunPhase phase = schedule_.phase();
        progress.done = phase != RunPhase::warm_up && phase != RunPhase::explore;
        return progress;
    }
    [[nodiscard]] LaunchSequence sequence() override {
        const std::lock_guard lock{run_};
        return learned_.sequence;
    }
    [[nodiscard]] Profile measured() const override {
        const std::lock_guard lock{run_};
        return learned_.profile;
    }

    /// One kind for a kernel and variant, whatever its scopes are to ask for: `enter` knows.
    const kdvfs::detail::ScopeKind& kind_of(std::string_view kernel, Variant variant,
                                            ClockRequest policy, bool metered) override {
        const kdvfs::detail::ScopeKind& kind = service_->kind_of(kernel, variant, {}, metered);
        const std::lock_guard lock{scopes_};
        if (kinds_.size() <= kind.number) kinds_.resize(kind.number + std::size_t{1});
        std::optional<Known>& known = kinds_[kind.number];
        if (!known) known.emplace(Known{{std::string{kernel}, variant}, policy, metered});
        return kind;
    }

    [[nodiscard]] kdvfs::detail::ScopeSink& scope_sink() override { return *this; }

    kdvfs::detail::ScopeToken enter(StreamRef stream,
                                    const kdvfs::detail::ScopeKind& kind) override {
        std::shared_ptr<SweepEngine> sweep;
        const kdvfs::detail::ScopeKind* its = &kind;
        {
            const std::lock_guard lock{scopes_};
            if (kind.number < kinds_.size() && kinds_[kind.number]) {
                Known& known = *kinds_[kind.number];
                note_launch(known);
                if (sweep_) {
                    sweep = sweep_;
                    its = &sweep->kind_of(known.key.name, known.key.variant, known.policy,
                                          known.metered);
                } else if (followed_ != nullptr && follows(as_)) {
                    its = &planned_kind(known);
                } else if (in_block_) {
                    return {};  // as found: not even markers
                }
            }
        }
        return sweep ? sweep->scope_sink().enter(stream, *its) : service_->enter(stream, *its);
    }
    void leave(const kdvfs::detail::ScopeToken& token) override {
        if (token.track == nullptr) return;
        const auto sweep = current_sweep();
        sweep ? sweep->scope_sink().leave(token) : service_->leave(token);
    }
    void leave_noexcept(const kdvfs::detail::ScopeToken& token) noexcept override {
        if (token.track == nullptr) return;
        const auto sweep = current_sweep();
        sweep ? sweep->scope_sink().leave_noexcept(token) : service_->leave_noexcept(token);
    }

private:
    /// A kernel as scopes meet it.
    struct Known {
        KernelKey key;
        ClockRequest policy;
        bool metered = true;
        std::uint64_t first = 0;     ///< iteration in which it was launched first; 0: never
        std::uint64_t last = 0;      ///< and last
        std::uint32_t launches = 0;  ///< in that iteration
        std::array<const kdvfs::detail::ScopeKind*, 2> planned{};  ///< by the plan, at one clock
        std::size_t plan = 0;                                      ///< that `planned` belongs to
    };
    struct Learned {
        Profile profile;
        LaunchSequence sequence;
        LaunchTrace trace;
    };
    using Planning = InBackground<RunPlan>;
    static constexpr unsigned metered_every = 16;

    // Scopes; `scopes_` is held.

    void note_launch(Known& known) {
        ++launches_;
        if (known.first == 0) known.first = iteration_;
        // New in this iteration, or since the plan that is followed was made.
        if (known.first == iteration_ || (followed_ != nullptr && known.first > planned_in_))
            ++unfamiliar_;
        known.launches = known.last == iteration_ ? known.launches + 1 : 1;
        known.last = iteration_;
    }
    [[nodiscard]] static bool follows(RunStep::As as) {
        return as == RunStep::As::planned || as == RunStep::As::one_clock;
    }
    const kdvfs::detail::ScopeKind& planned_kind(Known& known) {
        if (std::exchange(known.plan, plans_) != plans_) known.planned = {};
        const bool one = as_ == RunStep::As::one_clock && one_clock_ != nullptr;
        const kdvfs::detail::ScopeKind*& kind = known.planned[one ? 1 : 0];
        if (kind == nullptr)
            kind = &service_->kind_of(known.key.name, known.key.variant, known.policy,
                                      known.metered, one ? one_clock_ : followed_);
        return *kind;
    }
    /// None in a forked child, where a thread of the parent may hold the lock for ever.
    [[nodiscard]] std::shared_ptr<SweepEngine> current_sweep() const noexcept {
        if (kdvfs::detail::fork_generation() != generation_) return nullptr;
        const std::lock_guard lock{scopes_};
        return sweep_;
    }

    // Iterations; `run_` is held.

    SeenIteration end_iteration(TimePoint now) {
        SeenIteration seen;
        if (iteration_ > 1) seen.time = Seconds{now - began_};
        began_ = now;
        const std::lock_guard lock{scopes_};
        if (std::exchange(changes_, schedule_.changes()) != schedule_.changes())
            kinds_of_iterations_.forget();
        if (as_ == RunStep::As::found) kinds_of_iterations_.add(launches_, seen.time);
        block_.iterations += kinds_of_iterations_.as_found(launches_).count();
        seen.launches = std::exchange(launches_, 0);
        seen.unfamiliar = std::exchange(unfamiliar_, 0);
        seen.explored = sweep_ && !sweep_->is_at_baseline();
        seen.as = as_;
        if (as_ == RunStep::As::found) found_iteration_ = seen.time;
        return seen;
    }

    // Ranks of a job.

    void next_of_team(SeenIteration seen, TimePoint now) {
        const std::uint64_t next = iteration_ + 1;
        if (!team_->works()) return end_alone(seen);
        try {
            team_->receive(next);
        } catch (const Error& error) {
            std::fprintf(stderr, "kdvfs: %s\n", error.what());
            return end_alone(seen);
        }
        if (sweep_)
            report_blocks();
        else
            measure_blocks(now);
        if (team_->leads()) {
            lead(seen, next);
            const RankOrder& order = team_->due(next);
            if (const auto plan = team_->take_plan(order.plan)) follow_announced(*plan);
            run_as_ordered(order);
        } else {
            obey(seen, team_->due(next));
        }
        if (schedule_.phase() == RunPhase::warm_up && schedule_.is_steady())
            team_->is_ready(
                {epoch_, program_hash(), clocks_hash(), ProfileStore::name_of(program())});
    }
    void report_blocks() {
        try {
            for (RankBlock& block : sweep_->take_blocks()) {
                note_own(block);
                team_->measured(std::move(block));
            }
        } catch (const Error& error) {
            sit_out(error);
        }
    }
    /// This rank cannot explore, for a reason that no other one has: as found, until the program
    /// changes.
    void sit_out(const Error& error) {
        std::fprintf(stderr, "kdvfs: %s\n", error.what());
        end_sweep();
        sits_out_ = epoch_;
        if (team_->leads()) schedule_.cannot_plan(error.what());
    }

    /// What the other ranks do is not known any more: as found from now on.
    void end_alone(const SeenIteration& seen) {
        if (sweep_) end_sweep();
        static_cast<void>(schedule_.next(seen));
        if (schedule_.phase() != RunPhase::rest)
            schedule_.cannot_plan("the ranks of the job do not reach each other");
        begin({});
    }

    void obey(const SeenIteration& seen, const RankOrder& order) {
        if (seen.explored) {
            explored_lost_ += seen.time - found_iteration_;
            ++explored_iterations_;
        }
        const bool changed = order.epoch != epoch_;
        if (changed) objects_ = false;
        epoch_ = order.epoch;
        if (!changed && !objects_ && order.phase == RunPhase::explore)
            schedule_.exploring(explored_lost_, explored_used_);
        if (const auto plan = team_->take_plan(order.plan)) follow_announced(*plan);
        const RankOrder& obeyed = objects_ ? as_found_ : order;
        const bool planned = obeyed.step.as == RunStep::As::planned && followed_ == nullptr;
        const RankOrder& run = planned ? as_found_ : obeyed;
        const bool obeyed_it =
            schedule_.obey(seen, epoch_, objects_ ? RunPhase::warm_up : order.phase,
                           objects_ ? 0 : order.plan, run.step);
        if (changed || !obeyed_it) forget_explored();
        if (obeyed_it) return run_as_ordered(run);
        objects_ = true;
        team_->object(epoch_);
        run_as_ordered(as_found_);
    }
    /// The account of the schedule has what this rank lost by exploring the program before.
    void forget_explored() {
        explored_lost_ = Seconds{0};
        explored_used_ = {};
        explored_iterations_ = 0;
    }
    void follow_announced(const RankPlan& plan) {
        try {
            follow(parse_sequence(plan.json, "the job's plan"));
        } catch (const Error&) {  // of another kind of GPU: as found
        }
    }
    /// What exploring used on this rank, where it does not decide.
    void note_own(const RankBlock& block) {
        if (block.rows.empty()) return;
        const Joules each = block.power * block.iteration;
        if (block.stage % 2 == 1)
            baseline_energy_ = each;
        else
            explored_used_ += (each - baseline_energy_) * std::exchange(explored_iterations_, 0);
    }

    void run_as_ordered(const RankOrder& order) {
        const auto clock = order.clock_of(team_->rank());
        const bool explores =
            order.step.as == RunStep::As::explored && clock && sits_out_ != epoch_;
        const bool may_explore = schedule_.phase() == RunPhase::explore;
        if (sweep_ && !explores && !may_explore) end_sweep();
        try {
            if (explores && !sweep_) begin_sweep(1);
            if (sweep_) {
                sweep_->obey({.clock = explores ? *clock : sweep_options_.baseline,
                              .metered = explores && order.metered,
                              .stage = explores ? order.stage : 0,
                              .length = explores ? order.length : 0});
                return begin({RunStep::As::explored});
            }
        } catch (const Error& error) {
            sit_out(error);
        }
        begin(order.step.as == RunStep::As::explored ? RunStep{} : order.step);
    }

    // On rank 0.

    void lead(SeenIteration seen, std::uint64_t next) {
        if (team_->take_objection(epoch_)) schedule_.other_program();
        seen.others_ready = team_->all_ready(epoch_);
        take_blocks(next);
        const RunPhase before = schedule_.phase();
        RankOrder order;
        order.step = schedule_.next(seen);
        SweepStep explored;
        if (before == RunPhase::explore && schedule_.phase() != RunPhase::explore) end_sweep();
        if (schedule_.phase() == RunPhase::explore) {
            explored = explore();
            order.step = {schedule_.phase() == RunPhase::explore ? RunStep::As::explored
                                                                 : RunStep::As::found};
        }
        epoch_ = static_cast<std::uint32_t>(schedule_.changes());
        order.epoch = epoch_;
        order.phase = schedule_.phase();
        order.plan = static_cast<std::uint32_t>(schedule_.plans());
        if (schedule_.phase() == RunPhase::plan) plan();  // the next order has it
        team_->decide(std::move(order), explored, next, found_iteration_);
    }
    void take_blocks(std::uint64_t next) {
        for (auto& [rank, block] : team_->take_blocks(next)) {
            if (!sweep_ || !profiles_) continue;
            const bool decides = block.stage % 2 == 0 || rank == 0;
            const bool counts = decides ? sweep_->reported(block) : counted_.contains(block.stage);
            if (counts && rank == 0) counted_.insert(block.stage);
            if (!counts) continue;
            if (block.stage % 2 == 1) begin_with_stored(rank, block);
            profiles_->add(rank, std::move(block));
            job_.reset();
        }
    }
    void begin_job_sweep() {
        const std::size_t explorers = team_->choose_explorers();
        begin_sweep(explorers);
        profiles_.emplace(gpu_name(service_->info()), sweep_->design());
        find_stored();
        counted_.clear();
        job_.reset();
    }
    /// What this rank's store has of the job's programs, of each kind of ranks.
    void find_stored() {
        stored_kinds_.clear();
        begun_with_stored_.clear();
        stored_.clear();
        if (sweeps_ > 1 || tuning_.store.empty()) return;
        const ProfileStore store{tuning_.store, tuning_.site};
        for (const std::uint32_t rank : team_->explorers()) {
            const RankReady& runs = team_->program_of(rank);
            const auto [at, is_new] = stored_kinds_.try_emplace(runs.program);
            if (!is_new || !is_hash(runs.stored)) continue;
            try {
                at->second.file = store.file_of(runs.stored, program().kernels);
            } catch (const std::exception&) {  // the disk is full, or it is another user's
                continue;
            }
            if (const auto known = read_if_whole(at->second.file))
                at->second.blocks = blocks_of(*known, StoreMerge::most_samples);
            if (rank != 0) continue;
            stored_ = at->second.file;
            if (const auto before = read_experience(stored_)) take_over(*before);
        }
    }
    /// @param block at the baseline
    void begin_with_stored(std::uint32_t rank, const RankBlock& block) {
        const auto known = stored_kinds_.find(team_->program_of(rank).program);
        if (known == stored_kinds_.end() || !begun_with_stored_.insert(rank).second) return;
        profiles_->add_stored(rank, known->second.blocks, block);
    }
    void write_stored() {
        for (const std::uint32_t rank : team_->explorers()) {
            const auto kind = stored_kinds_.find(team_->program_of(rank).program);
            if (kind == stored_kinds_.end()) continue;
            const std::filesystem::path file = std::exchange(kind->second.file, {});
            if (file.empty()) continue;  // written
            try {
                kdvfs::detail::write_file_atomically(
                    file,
                    to_csv(merge_profiles({profiles_->of_rank(rank)}, StoreMerge::most_samples)));
                if (rank != 0) continue;
                if (!learned_.sequence.launches.empty())
                    write_launches(sequence_path(file), learned_.sequence);
                if (!learned_.trace.iterations.empty())
                    write_trace(trace_path(file), learned_.trace);
            } catch (const Error&) {  // the disk is full: done without
            }
        }
    }

    /// Closes the comparison block that the iteration before was in, if it has ended.
    void measure_blocks(TimePoint now) {
        const measure::MeterRecord record = service_->take_record();
        for (const CountedCost& cost : blocks_.add(record.samples)) {
            if (cost.iteration)
                schedule_.measured(cost.number, {cost.iteration->time, cost.iteration->energy});
            else
                schedule_.dropped(cost.number);
        }
        blocks_.skip_to(block_.number != 0 ? block_.from : now);
    }

    void begin(const RunStep& step) {
        if (step.block != block_.number) {
            if (block_.number != 0 && block_.iterations > 0) {
                block_.to = began_;
                blocks_.ended(block_);
            }
            if (step.block != 0 && std::exchange(triple_, step.triple) != step.triple)
                kinds_of_iterations_.fix();
            block_ = {step.block, 0, began_, began_};
        }
        bool ends_plan = false;
        {
            const std::lock_guard lock{scopes_};
            ends_plan = follows(as_) && !follows(step.as);
            as_ = step.as;
            in_block_ = step.block != 0;
            ++iteration_;
        }
        if (ends_plan) service_->end_holding(true);
        const bool may_follow =
            schedule_.phase() == RunPhase::follow || schedule_.phase() == RunPhase::doubt;
        if (!may_follow && followed_ != nullptr) end_following();
        if (step.as != RunStep::As::explored)
            static_cast<void>(service_->begin_iteration(
                step.block == 0 && kdvfs::is_metered_iteration(iteration_, metered_every)));
    }

    // Exploring.

    /// @returns what the ranks of a job run
    SweepStep explore() {
        SweepStep step;
        try {
            if (!sweep_ && team_) begin_job_sweep();
            if (!sweep_) begin_sweep();
            if (team_) {
                if (!job_) job_ = profiles_->job();
                step = sweep_->decide(*job_);
                progress_ = sweep_->progress(*job_);
            } else {
                sweep_->next_iteration();
                progress_ = sweep_->progress();
            }
            schedule_.exploring(progress_.lost, progress_.used);
            if (!progress_.done) return step;
            learned_ = {team_ ? profiles_->of_rank(0) : sweep_->measured(), sweep_->sequence(),
                        sweep_->recorded_iterations()};
            if (team_) write_stored();
            schedule_.explored();
        } catch (const std::exception& error) {
            schedule_.cannot_plan(words_of(error));
        }
        end_sweep();
        return {};
    }
    void begin_sweep(std::size_t at_once = 1) {
        plans_begun_.clear();  // of a program that was another
        outcomes_.clear();
        SweepOptions options = sweep_options_;
        constexpr double of_what_is_left = 0.4;  // the plan needs some while nothing is known of it
        options.start_loss = std::chrono::duration_cast<Duration>(
            std::max(schedule_.left(), Seconds{0}) * of_what_is_left);
        options.seed += sweeps_;
        std::shared_ptr<SweepEngine> sweep;
        std::optional<Profile> known;
        if (sweeps_++ == 0 && !tuning_.store.empty() && !team_) {
            try {
                stored_ = ProfileStore{tuning_.store, tuning_.site}.file_of(program());
                if (const auto before = read_experience(stored_)) take_over(*before);
                options.file = stored_;
                sweep = std::make_shared<SweepEngine>(*service_, options);
            } catch (const std::exception&) {  // another run has it, or it is damaged
                options.file.clear();
                known = read_if_whole(std::exchange(stored_, {}));
            }
        } else if (!team_) {
            stored_.clear();
        }
        if (!sweep)
            sweep = std::make_shared<SweepEngine>(*service_, options, at_once, std::move(known));
        const std::lock_guard lock{scopes_};
        sweep_ = std::move(sweep);
    }
    void end_sweep() {
        std::shared_ptr<SweepEngine> ended;
        {
            const std::lock_guard lock{scopes_};
            ended = std::exchange(sweep_, nullptr);
        }
        if (ended) ended->end_record();  // a scope's thread may have it for a moment longer
        ended.reset();
        blocks_.forget();
        service_->keep_record(true);
    }
    /// What plans of earlier runs have shown.
    void take_over(const PlanExperience& before) {
        assumed_latency_ = before.latency;
        longer_by_ = before.longer_by;
        schedule_.begin_with_stretch(before.stretch);
    }
    [[nodiscard]] std::optional<Profile> read_if_whole(const std::filesystem::path& file) const {
        try {
            Profile profile = read_profile(file);
            if (profile.gpu() == gpu_name(service_->info())) return profile;
        } catch (const Error&) {  // there is none, or it is being written
        }
        return std::nullopt;
    }
    /// The program, as its last iteration shows it.
    [[nodiscard]] StoredProgram program() const {
        StoredProgram program{
            gpu_name(service_->info()), service_->info().mechanism, {}, found_iteration_};
        const std::lock_guard lock{scopes_};
        for (const std::optional<Known>& known : kinds_)
            if (known && known->last + 1 >= iteration_) program.kernels.push_back(known->key);
        std::sort(program.kernels.begin(), program.kernels.end());
        return program;
    }

    /// Ranks of which it is the same run the same program on the same kind of board.
    [[nodiscard]] std::string program_hash() const {
        std::string text = gpu_name(service_->info()) + '\n' + service_->info().mechanism + '\n';
        const std::lock_guard lock{scopes_};
        std::map<KernelKey, std::uint32_t> launches;
        for (const std::optional<Known>& known : kinds_)
            if (known && known->last == iteration_ - 1) launches[known->key] = known->launches;
        for (const auto& [key, count] : launches)
            text += to_string(key) + ' ' + std::to_string(count) + '\n';
        return kdvfs::detail::content_hash(text);
    }

    /// Ranks of which it is the same can explore the same clocks.
    [[nodiscard]] std::string clocks_hash() const {
        std::string text = tuning_.run.measure_only ? "none" : "";
        for (const ClockPoint clock : sweep_options_.points) text += clock_words(clock);
        return kdvfs::detail::content_hash(text);
    }

    // Planning and following.

    /// As `kdvfs measure-latency` has kept them for this board.
    [[nodiscard]] std::optional<SwitchCosts> measured_switches() const {
        const auto kept = find_switch_latencies(gpu_name(service_->info()));
        return kept ? std::optional{read_switch_costs(*kept)} : std::nullopt;
    }
    [[nodiscard]] RunPlanRequest request(Profile profile, double bound) const {
        RunPlanRequest request{std::move(profile), learned_.sequence, learned_.trace};
        request.switches = measured_switches();
        request.latency = assumed_latency_;
        request.before = outcomes_;
        request.max_slowdown = bound;
        request.one_clock = schedule_.one_clock();
        request.longer_by = longer_by_;
        request.least_saving_pct = tuning_.run.least_saving_pct;
        return request;
    }

    /// A plan for the ranks of which one speaks for all.
    struct JobPlan {
        std::vector<std::uint32_t> ranks;
        std::unique_ptr<Planning> planning;
    };
    /// A plan that was made, and the ranks that it is for.
    struct MadePlan {
        std::vector<std::uint32_t> ranks;
        RunPlan plan;
    };
    void plan() {
        if (schedule_.takes_back() && !kept_.empty()) {
            note_outcome();
            return follow_made(std::exchange(kept_, {}));
        }
        if (plans_begun_.empty()) begin_plans();
        for (const JobPlan& each : plans_begun_)
            if (!each.planning->is_ready()) return;
        std::vector<MadePlan> made;
        for (JobPlan& each : std::exchange(plans_begun_, {}))
            made.push_back({std::move(each.ranks), each.planning->take()});
        follow_made(std::move(made));
    }
    void follow_made(std::vector<MadePlan> made) {
        if (schedule_.keeps_last()) kept_ = std::move(made_);
        double saving = 0;
        double ranks = 0;
        Seconds latency{0};
        promised_pct_ = 0;
        std::string none;
        OneClock one_clock = OneClock::unknown;
        for (const auto& [its, plan] : made) {
            const auto its_ranks = static_cast<double>(its.size());
            ranks += its_ranks;
            if (!plan.none.empty()) {
                none = plan.none;
                continue;
            }
            saving += plan.saving_pct * its_ranks;
            promised_pct_ = std::max(promised_pct_, plan.slowdown_pct);
            latency = std::max(latency, plan.latency);
            if (team_) continue;
            try {
                follow(plan.sequence,
                       plan.one_clock == OneClock::other ? &plan.at_one_clock : nullptr);
            } catch (const Error& error) {
                return schedule_.cannot_plan(words_of(error));
            }
            one_clock = plan.one_clock;
        }
        made_ = std::move(made);
        if (saving == 0 && !none.empty()) return schedule_.cannot_plan(none);
        note_experience(latency);
        schedule_.planned(saving / ranks, promised_pct_, one_clock);
        if (team_ && schedule_.phase() == RunPhase::follow) announce_made();
    }
    /// Once they are accepted: plans that are not followed have the number of the next ones.
    void announce_made() {
        const auto number = static_cast<std::uint32_t>(schedule_.plans());
        for (const auto& [ranks, plan] : made_)
            if (plan.none.empty()) team_->announce({number, ranks, plan.json});
    }
    /// Ranks that share all kernels have one plan, as far as others wait for them alike: who is
    /// early may be slower by what the others are late.
    void begin_plans() {
        note_outcome();
        const auto& outcome = schedule_.outcome();
        if (schedule_.one_clock() && outcome)  // a plan before it took longer than it promised
            longer_by_ *= std::max(1.0, (1 + outcome->time_pct / 100) / (1 + promised_pct_ / 100));
        if (!team_) return begin_plan({0}, learned_.profile, schedule_.plan_bound());
        const auto slack = profiles_->slack();
        const auto step_of = [&](std::uint32_t rank) {  // whole percents that are surely there
            const auto known = slack.find(rank);
            return known == slack.end() ? 0.0 : std::floor(100 * 0.9 * known->second) / 100;
        };
        std::vector<std::uint32_t> speakers;
        for (const std::uint32_t rank : team_->explorers()) {
            const auto equal =
                std::find_if(speakers.begin(), speakers.end(), [&](std::uint32_t other) {
                    return step_of(rank) == step_of(other) && profiles_->are_equal(rank, other);
                });
            std::vector<std::uint32_t> like = team_->ranks_like(rank);
            if (equal != speakers.end()) {
                JobPlan& plan = plans_begun_[static_cast<std::size_t>(equal - speakers.begin())];
                plan.ranks.insert(plan.ranks.end(), like.begin(), like.end());
                continue;
            }
            speakers.push_back(rank);
            begin_plan(std::move(like), profiles_->of_rank(rank),
                       (1 + schedule_.plan_bound()) * (1 + std::max(step_of(rank), 0.0)) - 1);
        }
    }
    void begin_plan(std::vector<std::uint32_t> ranks, Profile profile, double bound) {
        plans_begun_.push_back(
            {std::move(ranks),
             std::make_unique<Planning>(
                 [request = request(std::move(profile), bound)] { return plan_run(request); })});
    }
    void note_outcome() {
        if (const auto& outcome = schedule_.outcome())
            outcomes_.push_back({followed_sequence_, *outcome});
    }
    /// @param latency that the plan which is followed was made for
    void note_experience(Seconds latency) const {
        if (!stored_.empty()) write_experience(stored_, {latency, longer_by_, schedule_.stretch()});
    }
    /// @param one_clock that it is to be compared with; null: none
    void follow(const PlannedSequence& sequence, const PlannedSequence* one_clock = nullptr) {
        kdvfs::detail::FollowedPlan* const plan = &service_->follow(sequence);
        kdvfs::detail::FollowedPlan* const at_one =
            one_clock != nullptr ? &service_->follow(*one_clock) : nullptr;
        end_following();
        followed_sequence_ = sequence;
        const std::lock_guard lock{scopes_};
        followed_ = plan;
        one_clock_ = at_one;
        planned_in_ = iteration_;
        ++plans_;
    }
    void end_following() {
        std::array<kdvfs::detail::FollowedPlan*, 2> ended{};
        {
            const std::lock_guard lock{scopes_};
            ended = {std::exchange(followed_, nullptr), std::exchange(one_clock_, nullptr)};
        }
        for (kdvfs::detail::FollowedPlan* const plan : ended)
            if (plan != nullptr) service_->unfollow(*plan);
    }

    kdvfs::detail::GpuService* service_;
    SweepOptions sweep_options_;
    SelfTuning tuning_;
    std::uint32_t generation_ = kdvfs::detail::fork_generation();

    mutable std::mutex run_;  ///< taken before `scopes_`; no scope waits for it
    RunSchedule schedule_;
    SweepProgress progress_;
    Learned learned_{Profile{gpu_name(service_->info())}, {}, {}};
    std::vector<JobPlan> plans_begun_;
    std::vector<MadePlan> made_;  ///< those that are followed, or were last
    std::vector<MadePlan> kept_;  ///< those to go back to
    BlockMeter blocks_;
    CountedBlock block_;  ///< under way; number 0: none
    TimePoint began_{};   ///< the iteration under way
    Seconds found_iteration_{0};
    IterationKinds kinds_of_iterations_;
    std::uint32_t triple_ = 0;  ///< of comparison blocks, the last
    std::size_t changes_ = 0;   ///< of the program, up to the last iteration
    std::uint64_t sweeps_ = 0;
    std::filesystem::path stored_;  ///< profile of the program that is explored; empty: none
    double promised_pct_ = 0;       ///< slowdown of the plan
    double longer_by_ = 1;
    Seconds assumed_latency_{
        sweep_options_.block.switch_latency};  ///< of switches, before any plan
    PlannedSequence followed_sequence_;        ///< last
    std::vector<FollowedOutcome> outcomes_;    ///< of the program's plans

    std::optional<RunTeam> team_;  ///< of several ranks
    std::uint32_t epoch_ = 0;
    bool objects_ = false;                     ///< sees another program than rank 0 does
    std::optional<std::uint32_t> sits_out_{};  ///< the epoch in which it cannot explore
    RankOrder as_found_;
    Seconds explored_lost_{0};  ///< on ranks that do not decide
    Joules explored_used_{};
    Joules baseline_energy_{};
    std::uint32_t explored_iterations_ = 0;

    // On rank 0.
    std::optional<RankProfiles> profiles_;
    std::optional<Profile> job_;       ///< all of them as one; nothing: to be made
    std::set<std::uint64_t> counted_;  ///< stages at the baseline that belong into profiles
    /// What a store has of a kind of ranks, and where it is to be written.
    struct StoredKind {
        std::filesystem::path file;
        std::vector<RankBlock> blocks;
    };
    std::map<std::string, StoredKind> stored_kinds_;  ///< by `RankReady::program`
    std::set<std::uint32_t> begun_with_stored_;       ///< ranks

    mutable std::mutex scopes_;
    std::vector<std::optional<Known>> kinds_;  ///< by number
    std::shared_ptr<SweepEngine> sweep_;       ///< while exploring
    kdvfs::detail::FollowedPlan* followed_ = nullptr;
    kdvfs::detail::FollowedPlan* one_clock_ = nullptr;  ///< what it is compared with
    std::size_t plans_ = 0;
    std::uint64_t planned_in_ = 0;  ///< iteration, `followed_`
    RunStep::As as_ = RunStep::As::found;
    bool in_block_ = false;
    std::uint64_t iteration_ = 1;
    std::uint32_t launches_ = 0;
    std::uint32_t unfamiliar_ = 0;
};

}  // namespace kdvfs::inline v0_3::tune::detail
