// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/scope.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// What reports call the steps of each phase; the variant is that of `StepBuckets`.
struct Prefill : Kernel<"prefill"> {};
struct Decode : Kernel<"decode"> {};
struct Mixed : Kernel<"mixed"> {};

/// What the steps of one phase did, and what their tokens cost.
struct PhaseReport {
    Phase phase = Phase::decode;
    std::uint64_t steps = 0;
    std::uint64_t urgent_steps = 0;   ///< of them, at the board's own clock for want of time
    std::uint64_t prompt_tokens = 0;  ///< read
    std::uint64_t tokens = 0;         ///< given to running sequences
    /// Joules of the phase's metered steps over their tokens, read and given. Not resolved where
    /// the samples do not say.
    std::optional<double> joules_per_token{};
    double half_width = 0;      ///< of the 95 % interval of `joules_per_token`
    double resolved_share = 0;  ///< of the metered time: what the joules rest on
};

namespace detail {
struct PlannedSteps;
}

/// A GPU whose clocks follow the steps of an engine with continuous batching, by a plan.
///
///     kdvfs::serve::PlannedGpu gpu{kdvfs::rocm::open(0), plan};
///     while (engine.has_work()) {
///         kdvfs::serve::StepScope step{gpu, stream, engine.next_shape(), engine.slack()};
///         engine.step();  // launches, or one captured graph
///     }
///     gpu.rest(stream);
///
/// A handle, cheap to copy, thread-safe. What steps asked for ends with the last copy.
class PlannedGpu : public Gpu {
public:
    /// @throws Error (invalid_input) for clocks of the plan that the device does not list
    inline PlannedGpu(const Gpu& gpu, StepPlan plan);

    [[nodiscard]] inline const StepPlan& plan() const;

    /// The engine has nothing to do: the plan's clock of an idle board, from where the stream is.
    inline void rest(StreamRef stream) const;
    /// The same without a stream, from now on.
    inline void rest() const;

    /// By phase, those that occurred. `report` is this GPU's, whose joules are those of all metered
    /// steps since it was opened: tell plans apart by opening it anew.
    [[nodiscard]] inline std::vector<PhaseReport> phases(const measure::Report& report) const;

private:
    friend class StepScope;
    [[nodiscard]] inline StepDecision decide(StepShape shape, Seconds slack) const;
    [[nodiscard]] inline const StepDecision& checked(const StepDecision& decision) const;
    [[nodiscard]] inline extend::ScopeToken enter(StreamRef stream, StepShape shape,
                                                  const StepDecision& decision) const;
    inline void enter(StepShape shape, const StepDecision& decision) const;

    std::shared_ptr<detail::PlannedSteps> steps_;
};

namespace detail {

/// What steps of one variant have done. Relaxed numbers: they are only added up.
struct StepTally {
    std::atomic<const extend::ScopeKind*> kind{nullptr};
    std::atomic<std::uint64_t> steps{0};
    std::atomic<std::uint64_t> prompt_tokens{0};
    std::atomic<std::uint64_t> tokens{0};
};

/// What the copies of a `PlannedGpu` share.
struct PlannedSteps {
    explicit PlannedSteps(StepPlan followed)
        : plan{std::move(followed)},
          tallies{std::make_unique<StepTally[]>(2 * plan.buckets().size())} {}

    static std::string_view name_of(Phase phase) {
        switch (phase) {
            case Phase::prefill: return Prefill::name;
            case Phase::decode: return Decode::name;
            case Phase::mixed: return Mixed::name;
            case Phase::idle: break;
        }
        return "kdvfs.idle";
    }
    /// A step that is short of time gets the board's own clock, whatever the table's top is.
    static ClockPoint clock_of(const StepDecision& decision) {
        return {.core = decision.urgent ? auto_clock : decision.clock};
    }

    void count(extend::GpuService& service, StepShape shape, Variant variant) {
        StepTally& tally = tallies[variant.index];
        tally.steps.fetch_add(1, std::memory_order_relaxed);
        tally.prompt_tokens.fetch_add(shape.prompt_tokens, std::memory_order_relaxed);
        tally.tokens.fetch_add(shape.sequences, std::memory_order_relaxed);
        // Metering goes on and off between stretches of steps that hold many samples of a counter.
        if (counted.fetch_add(1, std::memory_order_relaxed) % steps_per_stretch == 0)
            service.next_iteration();
    }

    void rest() {
        const std::lock_guard lock{clocks_mutex};
        clocks.rest();
    }

    static constexpr std::uint64_t steps_per_stretch = 128;

    const StepPlan plan;
    std::mutex clocks_mutex;
    StepClocks clocks{plan};
    std::unique_ptr<StepTally[]> tallies;  ///< by variant
    std::atomic<const extend::ScopeKind*> idle{nullptr};
    std::atomic<std::uint64_t> counted{0};
    std::mutex request_mutex;
    std::optional<StandingRequest> request;  ///< of steps without a stream
};

}  // namespace detail

/// One step of an engine: what is enqueued on `stream` while it lives runs at the plan's clock for
/// its shape, from where the stream gets there. The clock stays until the next step asks for
/// another, so that steps alike cost no switch between them, and no marker but where they are
/// metered. Around the launch of a captured graph it works as around any other launch.
///
/// A shape that was never measured, and one whose first tokens are short of time (`StepClocks`),
/// runs at the board's own clock, unless the plan has one clock for everything. Deciding allocates
/// nothing; a variant's first step, its bookkeeping.
class [[nodiscard]] StepScope {
public:
    /// @param slack of the step's first tokens (FirstTokenSlack); infinite where none are due
    /// @throws Error for a stream of another device, for a stream that is being captured, or where
    ///         the runtime refuses the marker
    StepScope(const PlannedGpu& gpu, StreamRef stream, StepShape shape,
              Seconds slack = Seconds{std::numeric_limits<double>::infinity()})
        : decision_{gpu.decide(shape, slack)} {
        token_ = gpu.enter(stream, shape, decision_);
        if (token_.track != nullptr) sink_ = &gpu.scope_sink();
    }
    /// Without a stream, in the order of the host's own calls: for engines that hide their streams
    /// and processes beside them. Such steps are counted and not metered. Not at once with steps on
    /// streams: the higher request of the two would win.
    StepScope(const PlannedGpu& gpu, StepShape shape,
              Seconds slack = Seconds{std::numeric_limits<double>::infinity()})
        : decision_{gpu.decide(shape, slack)} {
        gpu.enter(shape, decision_);
    }
    /// A step whose clock was decided elsewhere, alike for all ranks of an instance (`RankClocks`).
    /// @throws Error (invalid_input) for a decision by a table of other buckets than the plan's
    StepScope(const PlannedGpu& gpu, StreamRef stream, StepShape shape,
              const StepDecision& decision)
        : decision_{gpu.checked(decision)} {
        token_ = gpu.enter(stream, shape, decision_);
        if (token_.track != nullptr) sink_ = &gpu.scope_sink();
    }
    ~StepScope() {
        if (sink_ != nullptr) kdvfs::detail::leave_at_end(sink_, token_);
    }

    /// A temporary GPU would be gone before the scope: keep it in a variable.
    StepScope(const PlannedGpu&& gpu, StreamRef stream, StepShape shape,
              Seconds slack = {}) = delete;
    StepScope(const PlannedGpu&& gpu, StreamRef stream, StepShape shape,
              const StepDecision& decision) = delete;
    StepScope(const PlannedGpu&& gpu, StepShape shape, Seconds slack = {}) = delete;
    StepScope(const StepScope&) = delete;
    StepScope& operator=(const StepScope&) = delete;
    StepScope(StepScope&&) = delete;
    StepScope& operator=(StepScope&&) = delete;

    /// What the plan said.
    [[nodiscard]] const StepDecision& decision() const { return decision_; }

    /// Leaves now; the throwing twin of the destructor. @throws Error as `FrequencyScope::close`
    void close() {
        if (auto* sink = std::exchange(sink_, nullptr)) sink->leave(token_);
    }

private:
    StepDecision decision_;
    extend::ScopeSink* sink_ = nullptr;  // null: nothing to leave
    extend::ScopeToken token_{};
};

inline PlannedGpu::PlannedGpu(const Gpu& gpu, StepPlan plan) : Gpu{gpu} {
    extend::GpuService& its = service();
    for (const Megahertz clock : plan.table().clocks())
        its.check_clocks("of the plan of steps", {.asks = true, .point = {.core = clock}});
    // The deleter keeps the GPU until the requests have ended.
    steps_ = {new detail::PlannedSteps{std::move(plan)}, [gpu](detail::PlannedSteps* last) {
                  last->request.reset();
                  service_of(gpu).end_holding(false);
                  delete last;
              }};
}

inline const StepPlan& PlannedGpu::plan() const { return steps_->plan; }

inline const StepDecision& PlannedGpu::checked(const StepDecision& decision) const {
    if (decision.variant.index < 2 * plan().buckets().size()) return decision;
    throw Error{Errc::invalid_input,
                {"begin a step", "variant " + std::to_string(decision.variant.index),
                 "the plan has " + std::to_string(plan().buckets().size()) + " buckets",
                 "give the GPU a plan with the buckets of the tables"}};
}

inline void PlannedGpu::rest(StreamRef stream) const {
    steps_->rest();
    static_cast<void>(enter(stream, {}, plan().decide({}, Seconds{0})));
}
inline StepDecision PlannedGpu::decide(StepShape shape, Seconds slack) const {
    const std::lock_guard lock{steps_->clocks_mutex};
    return steps_->clocks.decide(shape, slack);
}
inline void PlannedGpu::rest() const {
    steps_->rest();
    enter(StepShape{}, plan().decide({}, Seconds{0}));
}

inline extend::ScopeToken PlannedGpu::enter(StreamRef stream, StepShape shape,
                                            const StepDecision& decision) const {
    const Phase phase = phase_of(shape);
    const bool idle = phase == Phase::idle;
    // The last one: a plan decides alike most of the time, a sweep does not.
    auto& kept = idle ? steps_->idle : steps_->tallies[decision.variant.index].kind;
    const extend::ScopeKind* kind = kept.load(std::memory_order_acquire);
    const ClockRequest request{.asks = true, .point = detail::PlannedSteps::clock_of(decision)};
    if (kind == nullptr || kind->request != request) {
        kind = &service().kind_of(detail::PlannedSteps::name_of(phase),
                                  idle ? Variant{} : decision.variant, request, !idle);
        if (!is_parents()) kept.store(kind, std::memory_order_release);
    }
    if (!idle) steps_->count(service(), shape, decision.variant);
    return service().enter_holding(stream, *kind);
}

inline void PlannedGpu::enter(StepShape shape, const StepDecision& decision) const {
    if (phase_of(shape) != Phase::idle) steps_->count(service(), shape, decision.variant);
    const ClockPoint clock = detail::PlannedSteps::clock_of(decision);
    const std::lock_guard lock{steps_->request_mutex};
    if (steps_->request)
        steps_->request->change(clock);
    else
        steps_->request.emplace(*this, clock);
}

inline std::vector<PhaseReport> PlannedGpu::phases(const measure::Report& report) const {
    struct Sum {
        double joules = 0, error = 0, tokens = 0;  // of rows that are resolved
        double time = 0, resolved_time = 0;
    };
    std::array<PhaseReport, 3> phases;
    std::array<Sum, 3> sums;
    constexpr std::array order{Phase::prefill, Phase::decode, Phase::mixed};
    const auto index = [&](Phase phase) {
        return static_cast<std::size_t>(std::find(order.begin(), order.end(), phase) -
                                        order.begin());
    };
    const StepBuckets& buckets = plan().buckets();
    for (std::uint32_t variant = 0; variant < 2 * buckets.size(); ++variant) {
        const detail::StepTally& tally = steps_->tallies[variant];
        const std::uint64_t steps = tally.steps.load(std::memory_order_relaxed);
        if (steps == 0) continue;
        PhaseReport& phase = phases[index(phase_of(buckets.corner(variant / 2)))];
        phase.steps += steps;
        phase.urgent_steps += variant % 2 == 1 ? steps : 0;
        phase.prompt_tokens += tally.prompt_tokens.load(std::memory_order_relaxed);
        phase.tokens += tally.tokens.load(std::memory_order_relaxed);
    }
    for (const measure::ReportRow& row : report.rows) {
        const auto named = std::find_if(order.begin(), order.end(), [&](Phase phase) {
            return row.kernel.name == detail::PlannedSteps::name_of(phase);
        });
        if (named == order.end() || row.kernel.variant.index >= 2 * buckets.size()) continue;
        const detail::StepTally& tally = steps_->tallies[row.kernel.variant.index];
        const auto steps = static_cast<double>(tally.steps.load(std::memory_order_relaxed));
        Sum& sum = sums[index(*named)];
        sum.time += row.time.count();
        if (!row.energy.resolved || !(row.counted_time.count() > 0) || steps == 0) continue;
        // The joules are of the counted part of the metered time; so are the tokens. Of steps
        // beside others they are of all tokens: nothing says which of both the rest of the time is.
        const double counted = row.counted_time / row.time;
        const double each =
            static_cast<double>(tally.prompt_tokens.load(std::memory_order_relaxed) +
                                tally.tokens.load(std::memory_order_relaxed)) /
            steps;
        sum.resolved_time += row.time.count();
        sum.joules += row.energy.joules.count;
        sum.error += row.energy.half_width.count  // rows of one fit may err together
                     + row.energy.joules.count * std::max(0.0, 1 - counted);
        sum.tokens += each * static_cast<double>(row.metered_calls) * counted;
    }
    std::vector<PhaseReport> found;
    for (std::size_t p = 0; p < order.size(); ++p) {
        phases[p].phase = order[p];
        if (sums[p].tokens > 0) {
            phases[p].joules_per_token = sums[p].joules / sums[p].tokens;
            phases[p].half_width = sums[p].error / sums[p].tokens;
            phases[p].resolved_share = sums[p].resolved_time / sums[p].time;
        }
        if (phases[p].steps > 0) found.push_back(phases[p]);
    }
    return found;
}

/// "decode: 1200 steps, 38400 tokens, 0.512 J/token +- 0.004 (98 % of the metered time), 3 urgent".
inline std::string to_string(const PhaseReport& phase) {
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    const std::string name{to_string(phase.phase)};
    const std::string all =
        io::format_text("%s: %llu steps, %llu prompt tokens, %llu tokens, %llu urgent, ",
                        name.c_str(), number(phase.steps), number(phase.prompt_tokens),
                        number(phase.tokens), number(phase.urgent_steps));
    if (!phase.joules_per_token) return all + "joules unresolved";
    return all + io::format_text("%.4g J/token +- %.2g (from %.0f %% of the metered time)",
                                 *phase.joules_per_token, phase.half_width,
                                 100 * phase.resolved_share);
}

}  // namespace kdvfs::inline v0_3::serve
