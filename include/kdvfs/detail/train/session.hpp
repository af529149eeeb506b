// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/session.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/train/operation_intervals.hpp>
#include <kdvfs/detail/train/operation_sweep.hpp>
#include <kdvfs/detail/train/pipeline_run.hpp>
#include <kdvfs/detail/train/session_plans.hpp>
#include <kdvfs/detail/train/stage_plan.hpp>
#include <kdvfs/detail/train/straggler_plans.hpp>
#include <kdvfs/detail/train/stragglers.hpp>
#include <kdvfs/detail/tune/in_background.hpp>
#include <kdvfs/detail/tune/ledger.hpp>
#include <kdvfs/detail/tune/paired_blocks.hpp>
#include <kdvfs/detail/tune/profile_store.hpp>
#include <kdvfs/detail/tune/sweep_block.hpp>
#include <kdvfs/detail/tune/sweep_engine.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/tune/plan_file.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <locale>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace kdvfs::inline v0_3::train {

#if KDVFS_DEFINES_ENGINE

namespace detail {

/// "fnv1a64:..." of which operations a pipeline has, in which order.
inline std::string order_hash(const Pipeline& pipeline) {
    std::string text;
    for (const Operation& operation : pipeline.operations) text += to_string(operation) + '\n';
    return kdvfs::detail::content_hash(text);
}

/// The engine of a `train::Session`: the same for all registries and communicators.
class PipelineSession final : public SessionControl {
public:
    PipelineSession(Gpu gpu, kdvfs::detail::GpuService& service,
                    std::unique_ptr<AnyCommunicator> ranks, Pipeline pipeline,
                    const SessionOptions& options, const tune::SessionMode& mode)
        : gpu_{std::move(gpu)},
          service_{&service},
          ranks_{std::move(ranks)},
          options_{options},
          kind_{mode.kind},
          file_{mode.file},
          order_{with_stages(std::move(pipeline))},
          per_stage_{std::max(ranks_->size() / order_.stages, 1U)},
          stage_{std::min(options.stage.value_or(ranks_->rank() / per_stage_), order_.stages - 1)},
          copy_{copy_of(ranks_->rank())},
          given_(per_stage_, Seconds{0}),
          scopes_{*service_, order_, stage_},
          intervals_{scopes_.kernels()},
          spans_{scopes_.order()},
          watch_{per_stage_, order_.stages, options.stragglers},
          judge_{options.watch, options.plan.slowdown} {
        agree();
        if (kind_ == Kind::off) return;
        phase_ = SessionPhase::measuring;
        if (kind_ == Kind::follow) {
            make_plans([&] {
                if (file_.empty()) return order_;
                return same_order(
                    parse_pipeline_case(tune::read_trusted_file(file_), file_.string()).pipeline);
            });
            if (problem_) throw Error{*std::exchange(problem_, std::nullopt)};
        } else if (kind_ == Kind::sweep) {
            phase_ = SessionPhase::warming_up;
            scopes_.run_all_at(sweep_points().front());
        } else if (kind_ == Kind::tune) {
            begin_run();
            phase_ = SessionPhase::warming_up;
        }
        if (kind_ != Kind::measure) service_->keep_record(true);
    }

    ~PipelineSession() override {
        if (is_parents()) return;
        if (kind_ == Kind::sweep || kind_ == Kind::follow || kind_ == Kind::tune)
            service_->keep_record(false);
        if (ledger_) ledger_->write(run_->saving());
    }
    PipelineSession(const PipelineSession&) = delete;
    PipelineSession& operator=(const PipelineSession&) = delete;

    void next_iteration() override {
        if (phase_ == SessionPhase::off || is_parents()) return;
        try {
            advance();
        } catch (const Error& error) {
            fall_back(error);
        }
        if (!scopes_.begin_iteration() && !std::exchange(said_, true))
            std::fputs(
                "kdvfs: an iteration of the pipeline ran no operation: clocks are as found until "
                "the next one; see whether the program still marks its operations\n",
                stderr);
    }
    [[nodiscard]] SessionPhase phase() const override { return phase_; }
    [[nodiscard]] std::uint32_t stage() const override { return stage_; }
    [[nodiscard]] std::uint64_t iteration() const override { return iteration_; }
    [[nodiscard]] const StagePlan& first_plan() const override { return *first_plan_; }
    [[nodiscard]] const StagePlan& plan() const override { return *followed_; }
    [[nodiscard]] const PlanVerdict& verdict() const override { return judge_.verdict(); }
    [[nodiscard]] bool answers_straggler() const override { return followed_ != first_plan_; }
    [[nodiscard]] const std::optional<Pipeline>& measured() const override { return measured_; }
    [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> blocks() const override {
        const std::optional<tune::ClockBlocks>& blocks = run_ ? run_->course() : schedule_;
        if (!blocks) return {0, 0};
        return {blocks->ended(), blocks->ended() + blocks->left()};
    }
    [[nodiscard]] std::optional<tune::Saving> saving() const override {
        return run_ ? std::optional{run_->saving()} : std::nullopt;
    }
    void straggler(std::uint32_t rank, Seconds iteration) override {
        given_[copy_of(rank)] = iteration;
    }
    void check() override {
        if (problem_) throw Error{*std::exchange(problem_, std::nullopt)};
    }
    [[nodiscard]] StageScopes* scopes() override {
        return phase_ == SessionPhase::off || is_parents() ? nullptr : &scopes_;
    }

private:
    using Kind = tune::SessionMode::Kind;

    /// Whether this is a forked child's copy: the GPU is its parent's.
    [[nodiscard]] bool is_parents() const {
        return kdvfs::detail::fork_generation() != generation_;
    }
    [[nodiscard]] std::uint32_t copy_of(std::uint32_t rank) const {
        return rank == ranks_->rank() && options_.copy ? *options_.copy : rank % per_stage_;
    }

    // What all ranks must know before they begin.

    static Pipeline with_stages(Pipeline pipeline) {
        if (pipeline.stages > 0 && pipeline.stage_begin.size() == pipeline.stages + std::size_t{1})
            return pipeline;
        reject_pipeline("a session of it", "it has no stages", "make it by make_pipeline");
    }

    /// @throws Error on all ranks, the same
    void agree() {
        std::string mine = "schedule " + std::string{to_string(order_.schedule)} + ", operations " +
                           order_hash(order_) + ", mode " + std::to_string(static_cast<int>(kind_));
        std::string trouble = own_trouble();
        if (trouble.empty() && kind_ == Kind::sweep)
            for (const ClockPoint point : sweep_points()) mine += ", " + to_string(point);
        try {
            if (trouble.empty()) mine += settings();
        } catch (const Error& error) {
            trouble = error.what();
        }
        const auto texts = ranks_->gather(trouble + '\n' + mine, options_.silence);
        std::string verdict;
        for (std::size_t r = 0; r < texts.size() && verdict.empty(); ++r) {
            const std::size_t line = texts[r].find('\n');
            if (line > 0)
                verdict = "rank " + std::to_string(r) + ": " + texts[r].substr(0, line);
            else if (texts[r] != texts.front())
                verdict = "rank " + std::to_string(r) + difference(texts[r], texts.front());
        }
        verdict = ranks_->broadcast(verdict, options_.silence);
        if (verdict.empty()) return;
        throw Error{Errc::invalid_input,
                    {"begin a session of a pipeline", std::to_string(ranks_->size()) + " ranks",
                     verdict, "start all ranks alike, one for each GPU of each stage"}};
    }

    /// What each rank decides by for itself, a line each: all must decide alike.
    [[nodiscard]] std::string settings() const {
        std::string text;
        const auto add = [&](const char* name, double value) {
            text += std::string{"\n"} + name + ' ' + kdvfs::detail::to_text(value);
        };
        const bool sweeps = kind_ == Kind::sweep || kind_ == Kind::tune;
        if (!sweeps && kind_ != Kind::follow) return text;
        add("slowdown", kind_ == Kind::tune ? run_slowdown() : options_.plan.slowdown);
        if (kind_ == Kind::tune) add("switching given", options_.plan.switching ? 1 : 0);
        add("watch.enabled", options_.watch.enabled ? 1 : 0);
        add("watch.tolerance", options_.watch.tolerance);
        add("watch.late", options_.watch.late);
        add("watch.early", options_.watch.early);
        add("stragglers.notice", options_.stragglers.notice);
        add("stragglers.margin", options_.stragglers.margin);
        if (!sweeps) return text;
        add("samples", options_.samples);
        add("block.settling", Seconds{options_.block.settling()}.count());
        add("block.measured", Seconds{options_.block.measured}.count());
        add("block.counter_rows", static_cast<double>(options_.block.counter_rows));
        return text;
    }
    /// @throws Error (invalid_input) for an environment that says no percentage
    [[nodiscard]] double run_slowdown() const {
        return options_.plan.slowdown > 0
                   ? options_.plan.slowdown
                   : tune::sweep_options_from_environment().objective.max_slowdown;
    }

    /// How what a rank has said differs from what rank 0 has: the first line that does.
    static std::string difference(const std::string& its, const std::string& of_0) {
        std::istringstream its_lines{its.substr(1)};
        std::istringstream lines_of_0{of_0.substr(1)};
        std::string line;
        std::string line_of_0;
        bool is_first = true;
        while (std::getline(its_lines, line) && std::getline(lines_of_0, line_of_0) &&
               line == line_of_0)
            is_first = false;
        return (is_first ? " runs another pipeline than rank 0 (" : " has other settings (") +
               line + "; " + (is_first ? "" : "rank 0: ") + line_of_0 + ")";
    }

    /// What this rank cannot do.
    [[nodiscard]] std::string own_trouble() const {
        if (ranks_->size() % order_.stages != 0)
            return std::to_string(order_.stages) + " stages do not divide the ranks";
        if (options_.stage && *options_.stage >= order_.stages)
            return "stage " + std::to_string(*options_.stage) + " is none";
        if (copy_ >= per_stage_) return "copy " + std::to_string(copy_) + " is none";
        if (kind_ == Kind::compare) return "plans of pipelines are not compared within a run";
        const bool tunes = kind_ == Kind::tune && !gpu_.measure_only();
        if (kind_ != Kind::sweep && !tunes) return {};
        if (gpu_.measure_only()) return "it cannot sweep clocks, its GPU is only measured";
        if (options_.samples == 0) return "there are no samples to take";
        if (!tunes && std::filesystem::exists(file_))
            return file_.string() + " exists already: follow it, or remove it";
        try {
            for (const ClockPoint point : sweep_points())
                service_->check_clocks("in a sweep", {.asks = true, .point = point});
        } catch (const Error& error) {
            return error.what();
        }
        return {};
    }

    [[nodiscard]] std::vector<ClockPoint> sweep_points() const {
        std::vector<ClockPoint> points;
        for (const Megahertz core : options_.sweep_clocks) points.push_back({core, auto_clock});
        if (points.empty())
            for (const ClockPoint point : tune::clock_grid(gpu_.supported_clocks(), 12))
                if (point.memory == auto_clock && point.core != auto_clock) points.push_back(point);
        std::sort(points.begin(), points.end(), [](ClockPoint a, ClockPoint b) { return b < a; });
        points.erase(std::unique(points.begin(), points.end()), points.end());
        return points;
    }

    /// @throws Error (invalid_input) for a case of another pipeline
    [[nodiscard]] Pipeline same_order(Pipeline read) const {
        if (order_hash(read) == order_hash(order_)) return read;
        reject_pipeline(file_.string(),
                        "it is of another pipeline: " + std::string{to_string(read.schedule)} +
                            " of " + std::to_string(read.stages) + " stages and " +
                            std::to_string(read.microbatches) + " microbatches, the program runs " +
                            std::string{to_string(order_.schedule)} + " of " +
                            std::to_string(order_.stages) + " and " +
                            std::to_string(order_.microbatches),
                        "sweep this program");
    }

    // From iteration to iteration.

    void advance() {
        if (run_ && phase_ != SessionPhase::alone) return tune();
        if (phase_ == SessionPhase::alone || phase_ == SessionPhase::measuring) {
            ++iteration_;
            // Operations are few and long: metering all of them costs next to nothing.
            if (phase_ == SessionPhase::measuring) service_->begin_iteration(true);
            return;
        }
        const measure::MeterRecord record = take_record();
        switch (phase_) {
            case SessionPhase::warming_up: warm_up(record); break;
            case SessionPhase::sweeping: sweep(record); break;
            case SessionPhase::following: exchange(); break;
            default: break;
        }
        ++iteration_;
        if (phase_ != SessionPhase::sweeping) begin_window();
    }

    measure::MeterRecord take_record() {
        measure::MeterRecord record = service_->take_record();
        record.runs = intervals_.take(record.runs);
        if (phase_ != SessionPhase::sweeping)
            for (const measure::MeteredRun& run : record.runs)
                if (spans_.add(run)) compare_iteration();
        return record;
    }

    /// Another iteration's start is known, and with it how long the one before took.
    void compare_iteration() {
        const auto length = spans_.iteration();
        if (!length) return;
        const auto before = ran_.find(*spans_.window_before());
        const auto last = ran_.find(spans_.last()->first);
        if (before == ran_.end() || last == ran_.end() || !before->second.step.pair) return;
        if (last->second.iteration == before->second.iteration + 1)
            judge_.measured(*before->second.step.pair, before->second.step.as_found, *length);
    }

    /// An iteration is a stretch of metered work of its own, known by its window.
    std::uint32_t begin_window() {
        PlanWatch::Step step;
        if (phase_ == SessionPhase::following) {
            step = judge_.next(!wanted_ || (answered_ && answers_straggler() && !is_given()));
            if (step.as_found && !std::exchange(is_as_found_, true))
                scopes_.run_all_at(std::nullopt);
            else if (!step.as_found && std::exchange(is_as_found_, false))
                scopes_.follow(*followed_);
        }
        const std::uint32_t window = service_->begin_window();
        if (phase_ == SessionPhase::following) ran_[window] = {iteration_, followed_, step};
        return window;
    }
    /// Whether the program has given the time of a copy, which no clocks change.
    [[nodiscard]] bool is_given() const {
        return wanted_ && std::any_of(wanted_->given.begin(), wanted_->given.end(),
                                      [](double time) { return time > 0; });
    }

    void warm_up(const measure::MeterRecord& record) {
        recorder_.take(record);
        if (iteration_ < 3) return;
        const std::optional<Seconds> own = spans_.iteration();
        const double figures[] = {own ? own->count() : 0, own ? 0.0 : 1.0,
                                  Seconds{recorder_.sample_period()}.count()};
        ranks_->begin_max(figures);
        const std::vector<double> all = ranks_->end_max(options_.silence);
        if (all[1] > 0) return;  // somebody's GPU is more than an iteration behind
        const auto iterations = [&](Duration time) {
            const double count = std::ceil(Seconds{time}.count() / all[0]);
            return static_cast<std::uint32_t>(std::clamp(count, 1.0, 1e6));
        };
        const Duration period = std::chrono::duration_cast<Duration>(Seconds{all[2]});
        begin_sweep(iterations(options_.block.settling()),
                    iterations(options_.block.measuring(period)));
        curves_.stage = stage_;
        phase_ = SessionPhase::sweeping;
        begin_step(tune::next_step(*schedule_));
    }

    /// Blocks in random order, alike on all ranks, beside stretches at the highest clock.
    void begin_sweep(std::uint32_t settling, std::uint32_t measured) {
        const std::vector<ClockPoint> points = sweep_points();
        schedule_.emplace(points.front());
        auto& wanted = schedule_->wanted();
        for (std::uint32_t sample = 0; sample < options_.samples; ++sample)
            wanted.insert(wanted.end(), std::next(points.begin()), points.end());
        schedule_->shuffle();
        while (!wanted.empty()) schedule_->add(schedule_->take(1)[0], settling, measured);
        schedule_->add_baseline(settling, measured);
    }

    void sweep(const measure::MeterRecord& record) {
        recorder_.take(record);
        take_curves();
        if (!schedule_->is_idle()) return begin_step(tune::next_step(*schedule_));
        end_block();
        // What the GPU has not run yet when the host is done, it has run some iterations later.
        if (drained_++ < draining) {
            scopes_.run_all_at(sweep_points().front());
            service_->begin_iteration(false);
            return;
        }
        add_curves(paired_.take_rest());
        make_plans([&](const std::vector<std::string>& texts) {
            std::vector<RankCurves> all;
            for (const std::string& text : texts) all.push_back(parse_rank_curves(text));
            Pipeline found = measured_pipeline(order_, all);
            kdvfs::detail::write_file_atomically(file_, to_case_text(found, file_.stem().string()));
            return found;
        });
    }

    void take_curves() {
        for (tune::MeasuredBlock& block : recorder_.take_measured()) {
            const bool at_baseline = block.block.stage % 2 == 1;
            add_curves(paired_.add(std::move(block), at_baseline));
        }
        static_cast<void>(recorder_.take_dropped());
    }
    void add_curves(const std::vector<tune::MeasuredBlock>& blocks) {
        for (const tune::MeasuredBlock& block : blocks) curves_.add(block, scopes_.kernels());
    }

    void begin_step(const tune::SweepStep& step) {
        scopes_.run_all_at(step.clock);
        if (!step.metered) end_block();
        const bool begins = step.metered && block_iterations_ == 0;
        const std::uint32_t window =
            begins ? service_->begin_window() : service_->begin_iteration(step.metered);
        if (begins) recorder_.begin({.window = window, .clock = step.clock, .stage = step.stage});
        if (step.metered) ++block_iterations_;
    }

    void end_block() {
        if (block_iterations_ > 0)
            recorder_.end(block_iterations_, block_iterations_ * scopes_.size());
        block_iterations_ = 0;
    }

    // Plans.

    /// Rank 0 makes the plans of the pipeline that `make` gives, and all take them up with the
    /// iteration that begins.
    template <class Make>
    void make_plans(const Make& make) {
        std::string text;
        if constexpr (std::invocable<Make>) {
            if (ranks_->rank() == 0) text = planned_text(make);
        } else {
            const auto texts = ranks_->gather(to_text(curves_), options_.silence);
            if (ranks_->rank() == 0) text = planned_text([&] { return make(texts); });
        }
        text = ranks_->broadcast(text, options_.planning);
        if (text.starts_with(failed_plan)) {
            return fall_back(
                {Errc::invalid_input,
                 {"plan the pipeline", "on rank 0", text.substr(failed_plan.size()), ""}});
        }
        first_plan_ = std::make_shared<const StagePlan>(parse_stage_plan(text, order_, stage_));
        phase_ = SessionPhase::following;
        follow(first_plan_);
    }

    /// All ranks learn what is wrong.
    template <class Make>
    std::string planned_text(const Make& make) {
        try {
            measured_ = make();
            // Curves that the program gives are taken as they are: they may be a model's.
            Planned planned = plan_of(plan_options(), *measured_, !file_.empty(), stage_);
            planner_ = std::move(planned.answers);
            return planned.text;
        } catch (const Error& error) {
            return failed_text(error.what());
        }
    }
    [[nodiscard]] PlanOptions plan_options() const {
        PlanOptions plan = options_.plan;
        if (!plan.switching) plan.switching = longest_known_switch(gpu_.info(), *measured_);
        return plan;
    }

    void follow(std::shared_ptr<const StagePlan> plan) {
        scopes_.follow(*plan);
        is_as_found_ = false;
        followed_ = std::move(plan);
    }

    /// Gives away how slow the last iteration was that is known, and takes what the others gave
    /// away an iteration ago: all act on the same figures in the same iteration.
    void exchange() {
        if (ranks_->size() == 1) return act_on(own_figures());
        if (exchanging_) act_on(ranks_->end_max(options_.silence));
        if (phase_ != SessionPhase::following) return;
        ranks_->begin_max(own_figures());
        exchanging_ = true;
    }

    [[nodiscard]] std::size_t stages_of_copies() const {
        return std::size_t{per_stage_} * order_.stages;
    }

    /// Slowness of all stages of all copies, times given by copy, by how much the longest stage
    /// exceeds its plan, what pairs of iterations say, the number of the answer that rank 0 has
    /// ready.
    [[nodiscard]] std::vector<double> own_figures() {
        std::vector<double> figures(stages_of_copies() + per_stage_, 0);
        const auto [slowness, excess] = last_iteration();
        figures[std::size_t{copy_} * order_.stages + stage_] = slowness;
        for (std::size_t c = 0; c < per_stage_; ++c)
            figures[stages_of_copies() + c] = given_[c].count();
        figures.push_back(excess);
        const auto pairs = judge_.own_figures(stage_ == 0);
        figures.insert(figures.end(), pairs.begin(), pairs.end());
        if (planner_ && wanted_) planner_->want(answer_number_, *wanted_);
        figures.push_back(planner_ ? static_cast<double>(planner_->ready()) : 0);
        return figures;
    }

    /// As soon as what is slow changes, all go back to the first plan, and rank 0 makes another.
    void act_on(std::span<const double> figures) {
        const auto [slowness, excess] = reports_.add(
            figures.first(stages_of_copies()), figures[figures.size() - 2 - PlanWatch::figures]);
        if (judge_.look(slowness, figures.last(1 + PlanWatch::figures).first(PlanWatch::figures))
                .kind == PlanVerdict::Kind::broken)
            return leave_plan();
        const StragglerState& state =
            watch_.look(slowness, figures.subspan(stages_of_copies(), per_stage_));
        const bool is_broken = watch_.is_broken(excess, answers_straggler());
        if (!(wanted_ ? state == *wanted_ : state.none())) {
            wanted_.reset();
            if (!state.none()) wanted_ = state;
            ++answer_number_;
            answered_ = false;
        }
        if ((!answered_ || is_broken) && answers_straggler()) follow(first_plan_);
        if (!wanted_ || answered_ || figures.back() != static_cast<double>(answer_number_)) return;
        answered_ = true;  // even by nothing: it is not asked for again
        const std::string text =
            ranks_->broadcast(planner_ ? planner_->text() : std::string{}, options_.silence);
        if (text.empty()) return;
        follow(std::make_shared<const StagePlan>(parse_answer(text, order_, copy_, stage_)));
    }

    /// Of the last iteration of which all is known: the median of measured over planned durations,
    /// and the stage's span over its planned one. 0: not known, or no other iteration than before.
    [[nodiscard]] std::pair<double, double> last_iteration() {
        if (!spans_.last() || spans_.last()->first == reported_) return {0, 0};
        const auto& [window, span] = *spans_.last();
        reported_ = window;
        const auto ran = ran_.find(window);
        if (ran == ran_.end()) return {0, 0};
        ran_.erase(ran_.begin(), ran);
        if (ran->second.step.as_found) return {0, 0};
        const StagePlan& plan = *ran->second.plan;
        std::vector<double> slowness;
        for (std::size_t k = 0; k < plan.durations.size(); ++k)
            slowness.push_back(span.durations[k] / plan.durations[k]);
        const auto middle = slowness.begin() + static_cast<std::ptrdiff_t>(slowness.size() / 2);
        std::nth_element(slowness.begin(), middle, slowness.end());
        return {*middle, Seconds{span.end - span.begin} / plan.span};
    }

    /// All ranks come here in the same iteration.
    void leave_plan() {
        if (run_) {  // operations of all stages are slower: it is another program, or another board
            run_->schedule().other_program();
            return forget_plan();
        }
        phase_ = SessionPhase::measuring;
        scopes_.release();
        service_->keep_record(false);
    }

    // A run that tunes itself.

    void begin_run() {
        const double only = gpu_.measure_only() ? 1 : 0;
        ranks_->begin_max({&only, 1});
        measures_only_ = ranks_->end_max(options_.silence)[0] > 0;
        tune::detail::RunOptions run;
        run.max_slowdown = run_slowdown();
        run.observed_after = run.steady_iterations;
        run.switches_known = options_.plan.switching.has_value();
        run.measure_only = measures_only_;
        run_.emplace(run, ranks_->rank(), ranks_->size());
        curves_.stage = stage_;
        if (ranks_->rank() != 0) return;
        if (const auto file = kdvfs::detail::environment("KDVFS_LEDGER"); !file.empty())
            ledger_.emplace(file, std::to_string(ranks_->size()) + " x " + gpu_name(gpu_.info()));
        const auto store = kdvfs::detail::environment("KDVFS_STORE");
        if (!store.empty()) cases_ = stored_cases(store);
    }
    /// Where a store has cases of this schedule on such GPUs; none where it cannot be used.
    [[nodiscard]] std::vector<std::filesystem::path> stored_cases(
        const std::filesystem::path& store) const {
        const tune::detail::StoredProgram program{gpu_name(gpu_.info()),
                                                  gpu_.info().mechanism + ", pipeline " +
                                                      order_hash(order_) + " on " +
                                                      std::to_string(ranks_->size()) + " ranks",
                                                  {},
                                                  Seconds{1}};
        try {
            return tune::detail::pipeline_paths(
                tune::detail::ProfileStore{store, kdvfs::detail::environment("KDVFS_SITE_STORE")}
                    .file_of(program));
        } catch (const std::exception&) {  // the disk is full, or it is another user's
            return {};
        }
    }

    void tune() {
        const measure::MeterRecord record = take_record();
        recorder_.take(record);
        run_->add(record.samples);
        take_curves();
        exchange_run();
        if (phase_ == SessionPhase::alone) return;
        run_iteration(run_->next(service_->now()));
        ++iteration_;
        if (ledger_ && ledger_->is_due()) ledger_->write(run_->saving());
    }

    /// Figures of the run, then those of the plan that is followed; on rank 0 the number of the
    /// plan that is ready, and the period of the energy counter.
    void exchange_run() {
        if (ranks_->size() > 1) {
            if (exchanging_) act_on_run(ranks_->end_max(options_.silence));
            exchanging_ = true;
            return ranks_->begin_max(run_figures());
        }
        act_on_run(run_figures());
    }
    [[nodiscard]] std::vector<double> run_figures() {
        std::vector<double> figures = run_->own_figures(service_->now());
        const std::vector<double> plan = own_figures();
        figures.insert(figures.end(), plan.begin(), plan.end());
        figures.push_back(Seconds{recorder_.sample_period()}.count());
        figures.push_back(planning_ && planning_->is_ready() ? planning_for_ : 0);
        return figures;
    }
    void act_on_run(const std::vector<double>& all) {
        const std::span<const double> figures{all};
        if (phase_ == SessionPhase::following && !measures_only_)
            act_on(figures.subspan(run_->figures(), figures.size() - run_->figures() - 2));
        run_->take(figures.first(run_->figures()), !wanted_);
        sample_period_ = std::chrono::duration_cast<Duration>(Seconds{all[all.size() - 2]});
        const tune::RunPhase phase = run_->phase();
        const bool keeps = phase == tune::RunPhase::follow || phase == tune::RunPhase::doubt;
        if (!keeps && !first_plan_->operations.empty()) forget_plan();
        const bool plans = phase == tune::RunPhase::plan;
        if (plans && !plan_wanted_) ++plan_number_;
        plan_wanted_ = plans;
        if (plans && all.back() == plan_number_) return take_plan();
        if (plans && ranks_->rank() == 0) begin_plan();
        if (phase == tune::RunPhase::explore && !run_->course()) begin_exploring();
        if (run_->has_explored()) end_exploring();
    }

    /// Rank 0 says what to explore: nothing, where runs before have.
    void begin_exploring() {
        curves_.points.clear();
        std::string points;
        for (const ClockPoint point : sweep_points())
            points += std::to_string(point.core.count) + ' ';
        if (!std::exchange(looked_, true)) {
            const auto found = ranks_->gather(to_text(found_curves()), options_.silence);
            if (take_stored(found)) points.clear();
        }
        points = ranks_->broadcast(points, options_.silence);
        if (points.empty()) return run_->end_exploring();
        std::vector<ClockPoint> explored;
        std::istringstream words{points};
        words.imbue(std::locale::classic());
        for (Megahertz core; words >> core.count;) explored.push_back({core, auto_clock});
        run_->begin_exploring(explored, options_.samples, options_.block, sample_period_);
    }
    /// What operations took in the last iteration that is known: as found, before exploring.
    [[nodiscard]] RankCurves found_curves() const {
        RankCurves found;
        found.stage = stage_;
        if (!spans_.last()) return found;
        const std::vector<KernelId> order = scopes_.order();
        const std::vector<Seconds>& durations = spans_.last()->second.durations;
        for (std::size_t k = 0; k < durations.size(); ++k)
            found.add_found(scopes_.kernels().at(order[k]), durations[k]);
        return found;
    }
    static std::vector<RankCurves> rank_curves(const std::vector<std::string>& texts) {
        std::vector<RankCurves> all;
        for (const std::string& text : texts) all.push_back(parse_rank_curves(text));
        return all;
    }
    /// @param found what all ranks say of their operations as found
    /// @returns whether the store has the case of this program: others have the same schedule
    bool take_stored(const std::vector<std::string>& found) {
        if (cases_.empty()) return false;
        try {
            const std::vector<RankCurves> all = rank_curves(found);
            double closest = std::numeric_limits<double>::infinity();
            for (const auto& file : cases_) take_stored(file, all, closest);
        } catch (const Error&) {  // what a rank says is damaged
            return false;
        }
        if (stored_.empty()) return false;
        std::error_code ignored;  // it is used: the others are older
        last_write_time(stored_, std::filesystem::file_time_type::clock::now(), ignored);
        return true;
    }
    /// @param closest of the cases so far (`distance_to_case`)
    void take_stored(const std::filesystem::path& file, const std::vector<RankCurves>& all,
                     double& closest) {
        try {
            Pipeline stored = same_order(
                parse_pipeline_case(tune::read_trusted_file(file), file.string()).pipeline);
            const std::vector<Megahertz> clocks = gpu_.supported_clocks().core.listed;
            if (clocks.empty()) return;
            const auto distance = distance_to_case(stored, all, clocks.back());
            if (!distance || *distance >= closest) return;
            closest = *distance;
            measured_ = std::move(stored);
            stored_ = file;
        } catch (const Error&) {  // there is none, or it is damaged
        }
    }
    /// Keeps what this run has measured: in the place of its own case, else where there is none,
    /// else in that of the case that was used longest ago.
    void keep_case() {
        if (cases_.empty()) return;
        const auto used = [](const std::filesystem::path& file) {
            std::error_code missing;  // the time is then the lowest
            return last_write_time(file, missing);
        };
        if (stored_.empty())
            stored_ =
                *std::min_element(cases_.begin(), cases_.end(),
                                  [&](const auto& a, const auto& b) { return used(a) < used(b); });
        kdvfs::detail::write_file_atomically(stored_,
                                             to_case_text(*measured_, stored_.stem().string()));
    }
    void end_exploring() {
        end_block();
        add_curves(paired_.take_rest());
        const auto texts = ranks_->gather(to_text(curves_), options_.silence);
        run_->end_exploring();
        if (ranks_->rank() != 0) return;
        measured_.reset();
        try {
            measured_ = measured_pipeline(order_, rank_curves(texts));
            keep_case();
        } catch (const Error& error) {
            unplanned_ = error.what();
        }
    }

    /// On rank 0.
    void begin_plan() {
        if (planning_ && (planning_for_ == plan_number_ || !planning_->is_ready())) return;
        planning_for_ = plan_number_;
        std::function<Planned()> make = [why = unplanned_] { return Planned{failed_text(why)}; };
        if (measured_) {
            PlanOptions plan = plan_options();
            plan.slowdown = run_->schedule().plan_bound();
            Seconds& latency = plan.switching->latency;
            // Slower than it may be: clocks come later than they were taken to.
            const auto& before = run_->schedule().outcome();
            if (before && before->time_pct > 100 * plan.slowdown) later_ *= 2;
            latency = later_ * (latency > Seconds{0} ? latency : unknown_latency);
            make = [plan, measured = *measured_, stage = stage_] {
                try {
                    return plan_of(plan, measured, true, stage);
                } catch (const std::exception& error) {
                    return Planned{failed_text(error.what())};
                }
            };
        }
        planning_ = std::make_unique<tune::detail::InBackground<Planned>>(std::move(make));
    }
    /// All ranks come here in the same iteration.
    void take_plan() {
        Planned planned;
        if (planning_) planned = std::exchange(planning_, nullptr)->take();
        const std::string text = ranks_->broadcast(planned.text, options_.silence);
        const std::string saved =
            ranks_->broadcast(kdvfs::detail::to_text(100 * planned.saved), options_.silence);
        if (text.starts_with(failed_plan))
            return run_->schedule().cannot_plan(text.substr(failed_plan.size()));
        planner_ = std::move(planned.answers);
        first_plan_ = std::make_shared<const StagePlan>(parse_stage_plan(text, order_, stage_));
        followed_ = first_plan_;
        run_->schedule().planned(kdvfs::detail::parse_number<double>(saved).value_or(0),
                                 100 * run_->schedule().plan_bound());
    }
    void forget_plan() {
        first_plan_ = followed_ = std::make_shared<const StagePlan>();
        judge_ = PlanWatch{options_.watch, options_.plan.slowdown};
        watch_ = StragglerWatch{per_stage_, order_.stages, options_.stragglers};
        reports_ = {};
        planner_.reset();
        wanted_.reset();
        answered_ = false;
    }

    /// The iteration that begins.
    void run_iteration(const PipelineRun::Step& step) {
        if (step.explored) {
            phase_ = SessionPhase::sweeping;
            is_as_found_ = false;
            return begin_step(*step.explored);
        }
        end_block();
        const bool follows = step.as == PipelineRun::As::planned && !measures_only_;
        if (!follows && !std::exchange(is_as_found_, true)) scopes_.run_all_at(std::nullopt);
        if (follows && std::exchange(is_as_found_, false)) scopes_.follow(*followed_);
        const std::uint32_t window = service_->begin_window();
        if (!first_plan_->operations.empty())
            ran_[window] = {iteration_, followed_, {.as_found = !follows}};
        phase_ = session_phase(run_->phase());
    }
    static SessionPhase session_phase(tune::RunPhase phase) {
        switch (phase) {
            case tune::RunPhase::warm_up: return SessionPhase::warming_up;
            case tune::RunPhase::explore: return SessionPhase::sweeping;
            case tune::RunPhase::follow: return SessionPhase::following;
            case tune::RunPhase::plan:
            case tune::RunPhase::doubt:
            case tune::RunPhase::rest: break;
        }
        return SessionPhase::measuring;
    }

    void fall_back(const Error& error) {
        problem_ = error;
        phase_ = SessionPhase::alone;
        scopes_.release();
        service_->keep_record(false);
    }

    static constexpr std::uint64_t draining = 4;
    static constexpr Seconds unknown_latency{0.005};  ///< of switches that nobody has measured

    const Gpu gpu_;
    kdvfs::detail::GpuService* const service_;
    const std::uint32_t generation_ = kdvfs::detail::fork_generation();
    const std::unique_ptr<AnyCommunicator> ranks_;
    SessionOptions options_;
    Kind kind_;
    std::filesystem::path file_;
    Pipeline order_;
    std::uint32_t per_stage_;
    std::uint32_t stage_;
    std::uint32_t copy_;
    std::vector<Seconds> given_;
    StageScopes scopes_;
    OperationIntervals intervals_;
    IterationSpans spans_;
    StragglerWatch watch_;
    PlanWatch judge_;
    StageReports reports_;
    std::optional<std::uint32_t> reported_;  ///< window of the iteration reported last

    SessionPhase phase_ = SessionPhase::off;
    mutable std::optional<Error> problem_;
    bool said_ = false;  ///< that an iteration ran no operation
    std::uint64_t iteration_ = 0;
    std::optional<Pipeline> measured_;
    std::shared_ptr<const StagePlan> first_plan_ = std::make_shared<const StagePlan>();
    std::shared_ptr<const StagePlan> followed_ = first_plan_;
    /// How an iteration was run.
    struct Ran {
        std::uint64_t iteration = 0;
        std::shared_ptr<const StagePlan> plan;
        PlanWatch::Step step;
    };
    std::map<std::uint32_t, Ran> ran_;  ///< by window
    bool is_as_found_ = false;          ///< the iteration that runs
    bool exchanging_ = false;
    std::optional<AnswerPlanner> planner_;  ///< on rank 0
    std::optional<StragglerState> wanted_;  ///< what an answer is wanted to
    std::uint64_t answer_number_ = 0;
    bool answered_ = false;

    // Of a run that tunes itself.
    bool measures_only_ = false;  ///< some rank's GPU
    std::optional<PipelineRun> run_;
    Duration sample_period_{0};  ///< of the slowest energy counter
    bool looked_ = false;        ///< into the store
    double plan_number_ = 0;     ///< of the plan that is wanted, or followed
    bool plan_wanted_ = false;
    std::vector<std::filesystem::path> cases_;  ///< on rank 0: of the schedule; empty: none is kept
    std::filesystem::path stored_;              ///< of them that of this run; empty: not yet known
    std::optional<tune::detail::RunLedger> ledger_;
    std::unique_ptr<tune::detail::InBackground<Planned>> planning_;
    double planning_for_ = 0;  ///< number of the plan
    double later_ = 1;         ///< factor: how late clocks come, against what is known
    std::string unplanned_;    ///< why what was measured is no pipeline

    std::optional<tune::ClockBlocks> schedule_;
    tune::BlockRecorder recorder_;
    tune::detail::PairedBlocks paired_;
    RankCurves curves_;
    std::uint32_t drained_ = 0;  ///< iterations behind the sweep
    std::uint32_t block_iterations_ = 0;
};

}  // namespace detail

KDVFS_INLINE std::unique_ptr<SessionControl> begin_session(
    const Gpu& gpu, extend::GpuService& service, std::unique_ptr<AnyCommunicator> ranks,
    Pipeline pipeline, const SessionOptions& options, const tune::SessionMode& mode) {
    return std::make_unique<detail::PipelineSession>(gpu, service, std::move(ranks),
                                                     std::move(pipeline), options, mode);
}

#endif

}  // namespace kdvfs::inline v0_3::train
