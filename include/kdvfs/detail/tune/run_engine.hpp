// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/tune/block_meter.hpp>
#include <kdvfs/detail/tune/profile_store.hpp>
#include <kdvfs/detail/tune/run_planner.hpp>
#include <kdvfs/detail/tune/run_schedule.hpp>
#include <kdvfs/detail/tune/sweep_engine.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/tune/saving.hpp>
#include <kdvfs/tune/sweep.hpp>
#include <kdvfs/tune/sweep_options.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// How a program tunes itself, beyond the options of its sweep.
struct SelfTuning {
    RunOptions run{};
    std::filesystem::path store{};  ///< of profiles (`ProfileStore`); empty: none is kept
};

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
    tuning.run.measure_only = service.measure_only();
    tuning.run.seed = sweep.seed;
    // Half of the bound's share: the plan needs the other.
    sweep.max_slowdown = tuning.run.max_slowdown / 2;
    sweep.block.settle = std::min<Duration>(sweep.block.settle, std::chrono::milliseconds{200});
    sweep.block.counter_rows = std::min<std::size_t>(sweep.block.counter_rows, 50);
    sweep.longest_warm_up = std::min<Duration>(sweep.longest_warm_up, std::chrono::seconds{20});
    sweep.file.clear();
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
        service_->keep_record(true);
    }
    ~RunEngine() override {
        if (kdvfs::detail::fork_generation() != generation_) {
            static_cast<void>(planning_.release());  // its thread is the parent's
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
        if (!sweep_) measure_blocks(now);
        const RunPhase before = schedule_.phase();
        RunStep step = schedule_.next(seen);
        if (before == RunPhase::explore && schedule_.phase() != RunPhase::explore) end_sweep();
        if (schedule_.phase() == RunPhase::explore) {
            explore();
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
                } else if (followed_ != nullptr && as_ == RunStep::As::planned) {
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
        std::uint64_t first = 0;  ///< iteration in which it was launched first; 0: never
        std::uint64_t last = 0;   ///< and last
        const kdvfs::detail::ScopeKind* planned = nullptr;
        std::size_t plan = 0;  ///< that `planned` belongs to
    };
    struct Learned {
        Profile profile;
        LaunchSequence sequence;
        LaunchTrace trace;
    };
    static constexpr std::uint64_t metered_every = 16;

    // Scopes; `scopes_` is held.

    void note_launch(Known& known) {
        ++launches_;
        if (known.first == 0) known.first = iteration_;
        // New in this iteration, or since the plan that is followed was made.
        if (known.first == iteration_ || (followed_ != nullptr && known.first > planned_in_))
            ++unfamiliar_;
        known.last = iteration_;
    }
    const kdvfs::detail::ScopeKind& planned_kind(Known& known) {
        if (known.plan != plans_) {
            known.planned = &service_->kind_of(known.key.name, known.key.variant, known.policy,
                                               known.metered, followed_);
            known.plan = plans_;
        }
        return *known.planned;
    }
    [[nodiscard]] std::shared_ptr<SweepEngine> current_sweep() const noexcept {
        const std::lock_guard lock{scopes_};
        return sweep_;
    }

    // Iterations; `run_` is held.

    SeenIteration end_iteration(TimePoint now) {
        SeenIteration seen;
        if (iteration_ > 1) seen.time = Seconds{now - began_};
        began_ = now;
        const std::lock_guard lock{scopes_};
        seen.launches = std::exchange(launches_, 0);
        seen.unfamiliar = std::exchange(unfamiliar_, 0);
        seen.explored = sweep_ && !sweep_->is_at_baseline();
        if (as_ == RunStep::As::found) found_iteration_ = seen.time;
        return seen;
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
            block_ = {step.block, 0, began_, began_};
        }
        ++block_.iterations;
        bool ends_plan = false;
        {
            const std::lock_guard lock{scopes_};
            ends_plan = as_ == RunStep::As::planned && step.as != RunStep::As::planned;
            as_ = step.as;
            in_block_ = step.block != 0;
            ++iteration_;
        }
        if (ends_plan) service_->end_holding(true);
        if (schedule_.phase() == RunPhase::follow || schedule_.phase() == RunPhase::doubt) {
            slowdown_pct_ = schedule_.saving().time ? schedule_.saving().time->mean : 0;
        } else if (followed_ != nullptr) {
            end_following();
        }
        if (step.as != RunStep::As::explored)
            static_cast<void>(
                service_->begin_iteration(step.block == 0 && iteration_ % metered_every == 0));
    }

    // Exploring.

    void explore() {
        try {
            if (!sweep_) begin_sweep();
            sweep_->next_iteration();
            progress_ = sweep_->progress();
            schedule_.exploring(progress_.lost, progress_.used);
            if (!progress_.done) return;
            learned_ = {sweep_->measured(), sweep_->sequence(), sweep_->recorded_iterations()};
        } catch (const std::exception& error) {
            const auto* const known = dynamic_cast<const Error*>(&error);
            schedule_.cannot_plan(known != nullptr ? known->text().vendor_words : error.what());
            return end_sweep();
        }
        schedule_.explored();
        end_sweep();
    }
    void begin_sweep() {
        SweepOptions options = sweep_options_;
        constexpr double of_what_is_left = 0.4;  // the plan needs some while nothing is known of it
        options.start_loss = std::chrono::duration_cast<Duration>(
            std::max(schedule_.left(), Seconds{0}) * of_what_is_left);
        options.seed += sweeps_;
        std::shared_ptr<SweepEngine> sweep;
        if (sweeps_++ == 0 && !tuning_.store.empty()) {
            try {
                options.file = ProfileStore{tuning_.store}.file_of(program());
                sweep = std::make_shared<SweepEngine>(*service_, options);
            } catch (const std::exception&) {  // another run has it, or it is damaged
                options.file.clear();
            }
        }
        if (!sweep) sweep = std::make_shared<SweepEngine>(*service_, options);
        const std::lock_guard lock{scopes_};
        sweep_ = std::move(sweep);
    }
    void end_sweep() {
        std::shared_ptr<SweepEngine> ended;
        {
            const std::lock_guard lock{scopes_};
            ended = std::exchange(sweep_, nullptr);
        }
        ended.reset();
        blocks_.forget();
        service_->keep_record(true);
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

    // Planning and following.

    void plan() {
        if (!planning_) {
            if (schedule_.one_clock())  // a plan before it took longer than it promised
                longer_by_ *= std::max(1.0, (1 + slowdown_pct_ / 100) / (1 + promised_pct_ / 100));
            planning_ = std::make_unique<RunPlanning>(
                RunPlanRequest{learned_.profile, learned_.sequence, learned_.trace,
                               uniform_switch_costs(Seconds{sweep_options_.block.switch_latency}),
                               schedule_.plan_bound(), schedule_.one_clock(), longer_by_});
        }
        if (!planning_->is_ready()) return;
        const RunPlan plan = planning_->take();
        planning_.reset();
        if (!plan.none.empty()) return schedule_.cannot_plan(plan.none);
        try {
            follow(plan.sequence);
        } catch (const Error& error) {
            return schedule_.cannot_plan(error.text().vendor_words);
        }
        promised_pct_ = plan.slowdown_pct;
        schedule_.planned(plan.saving_pct);
    }
    void follow(const PlannedSequence& sequence) {
        kdvfs::detail::FollowedPlan* const plan = &service_->follow(sequence);
        end_following();
        const std::lock_guard lock{scopes_};
        followed_ = plan;
        planned_in_ = iteration_;
        ++plans_;
    }
    void end_following() {
        kdvfs::detail::FollowedPlan* ended = nullptr;
        {
            const std::lock_guard lock{scopes_};
            ended = std::exchange(followed_, nullptr);
        }
        if (ended != nullptr) service_->unfollow(*ended);
    }

    kdvfs::detail::GpuService* service_;
    SweepOptions sweep_options_;
    SelfTuning tuning_;
    std::uint32_t generation_ = kdvfs::detail::fork_generation();

    mutable std::mutex run_;  ///< taken before `scopes_`; no scope waits for it
    RunSchedule schedule_;
    SweepProgress progress_;
    Learned learned_{Profile{gpu_name(service_->info())}, {}, {}};
    std::unique_ptr<RunPlanning> planning_;
    BlockMeter blocks_;
    CountedBlock block_;  ///< under way; number 0: none
    TimePoint began_{};   ///< the iteration under way
    Seconds found_iteration_{0};
    std::uint64_t sweeps_ = 0;
    double promised_pct_ = 0;  ///< slowdown of the plan
    double slowdown_pct_ = 0;  ///< of the plan, as measured last
    double longer_by_ = 1;

    mutable std::mutex scopes_;
    std::vector<std::optional<Known>> kinds_;  ///< by number
    std::shared_ptr<SweepEngine> sweep_;       ///< while exploring
    kdvfs::detail::FollowedPlan* followed_ = nullptr;
    std::size_t plans_ = 0;
    std::uint64_t planned_in_ = 0;  ///< iteration, `followed_`
    RunStep::As as_ = RunStep::As::found;
    bool in_block_ = false;
    std::uint64_t iteration_ = 1;
    std::uint32_t launches_ = 0;
    std::uint32_t unfamiliar_ = 0;
};

}  // namespace kdvfs::inline v0_3::tune::detail
