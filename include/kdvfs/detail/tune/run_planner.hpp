// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/detail/tune/launch_trace.hpp>
#include <kdvfs/detail/tune/plan_table_text.hpp>
#include <kdvfs/detail/tune/run_schedule.hpp>
#include <kdvfs/detail/tune/shrunk_costs.hpp>
#include <kdvfs/detail/tune/trace_planner.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/segments.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// What a plan has done to the time and energy of iterations, in percent.
struct FollowedOutcome {
    PlannedSequence sequence;
    BlockChange change;
};

/// What a plan is made from while a run goes on.
struct RunPlanRequest {
    Profile profile;
    LaunchSequence sequence;
    LaunchTrace trace;
    std::optional<SwitchCosts> switches{};  ///< as measured; none: `latency`, or what explains
                                            ///< `before` better
    Seconds latency{0};
    std::vector<FollowedOutcome> before{};  ///< plans of the same program
    double max_slowdown = 0;                ///< of the plan, as a fraction
    bool one_clock = false;                 ///< several clocks have broken their bound
    double longer_by = 1;         ///< factor: what plans before took, against what was promised
    double least_saving_pct = 0;  ///< a plan that saves less is of no use
};

/// A plan, or why there is none.
struct RunPlan {
    Seconds latency{0};  ///< that it was made for, where no latencies were measured
    PlannedSequence sequence{};
    double saving_pct = 0;    ///< of the energy, that it promises
    double slowdown_pct = 0;  ///< of the time, that it promises
    std::string none{};       ///< why there is no plan; empty where there is one
    std::string json{};       ///< as plan files have it
    OneClock one_clock = OneClock::unknown;
    PlannedSequence at_one_clock{};  ///< by the best clock for all kernels within the bound
};

/// The launches of a plan, all of its kernels at one clock.
inline PlannedSequence at_one_clock(PlannedSequence sequence, ClockPoint clock) {
    for (PlannedSequence::Kernel& kernel : sequence.kernels)
        if (kernel.own.asks) kernel.own.point = clock;
    sequence.boundaries = {{0, clock}};
    return sequence;
}

/// A followed plan as its launches, and how it differs from what it has done at a latency.
class ReplayedPlan {
public:
    ReplayedPlan(const CostTable& table, const FollowedOutcome& outcome)
        : table_{&table}, change_{outcome.change} {
        const PlannedSequence& plan = outcome.sequence;
        std::map<KernelKey, std::size_t> index;
        for (std::size_t k = 0; k < table.kernels.size(); ++k) index[table.kernels[k].key] = k;
        std::size_t next = 0;
        ClockPoint clock = plan.boundaries.empty() ? table.baseline : plan.boundaries.back().clock;
        std::vector<AskedLaunch> found;
        for (std::size_t i = 0; i < plan.launches.size(); ++i) {
            const PlannedSequence::Kernel& kernel = plan.kernels[plan.launches[i]];
            const ClockPoint before = clock;
            while (next < plan.boundaries.size() && plan.boundaries[next].before <= i)
                clock = plan.boundaries[next++].clock;
            if (plan.boundaries.empty())
                clock = kernel.own.asks ? kernel.own.point : table.baseline;
            changes_ += clock != before ? 1 : 0;
            const auto known = index.find(kernel.key);
            if (known == index.end() || find(known->second, clock) == nullptr) {
                launches_.clear();
                return;
            }
            launches_.push_back({known->second, clock});
            found.push_back({known->second, table.baseline});
        }
        if (!launches_.empty()) baseline_ = replay(found, table.baseline, {});
    }

    /// Whether the table has all of it.
    [[nodiscard]] bool is_known() const { return !launches_.empty(); }
    /// Whether it changes clocks within an iteration: others say nothing of a latency.
    [[nodiscard]] bool switches() const { return is_known() && changes_ >= 2; }
    /// What it did, beside what it would have done, in percent.
    [[nodiscard]] BlockChange misfit(Seconds latency) const {
        const Cost cost = replay(launches_, launches_.back().clock, uniform_switch_costs(latency));
        BlockChange off = change_;
        off.time_pct -= time_percent(cost, baseline_);
        off.energy_pct -= energy_percent(cost, baseline_);
        return off;
    }

private:
    [[nodiscard]] const Cost* find(std::size_t kernel, ClockPoint at) const {
        for (const PointCost& point : table_->kernels[kernel].points)
            if (point.clock == at) return &point.cost;
        return nullptr;
    }
    [[nodiscard]] Cost replay(const std::vector<AskedLaunch>& launches, ClockPoint held,
                              const SwitchCosts& switches) const {
        return replay_launches(launches, held, switches, [this](std::size_t kernel, ClockPoint at) {
            return *find(kernel, at);
        });
    }

    const CostTable* table_;
    BlockChange change_;
    std::vector<AskedLaunch> launches_;
    std::size_t changes_ = 0;
    Cost baseline_;
};

/// The switching latency that explains best what plans have done to time and energy, by the model
/// of a switch. What measured costs are off they are off alike in all plans: that offset is
/// integrated out. Nothing where no plan changes clocks within an iteration.
/// @param assumed before anything was seen
inline std::optional<Seconds> likely_latency(const CostTable& table,
                                             const std::vector<FollowedOutcome>& outcomes,
                                             Seconds assumed) {
    std::vector<ReplayedPlan> plans;
    for (const FollowedOutcome& outcome : outcomes)
        if (ReplayedPlan plan{table, outcome}; plan.is_known()) plans.push_back(std::move(plan));
    if (std::none_of(plans.begin(), plans.end(), [](const auto& each) { return each.switches(); }))
        return std::nullopt;
    constexpr double offset_pct = 0.3;  // of predicted time and energy, a standard deviation
    constexpr double least_error_pct = 0.05;
    constexpr double octaves = 2;  // of what was assumed
    /// Sums of one quantity over the plans, weighed by their errors.
    struct Sums {
        double weight = 1 / (offset_pct * offset_pct);
        double off = 0;
        double squares = 0;
        void add(double off_pct, double error_pct) {
            const double its = 1 / (error_pct * error_pct + least_error_pct * least_error_pct);
            weight += its;
            off += its * off_pct;
            squares += its * off_pct * off_pct;
        }
        [[nodiscard]] double misfit() const { return squares - off * off / weight; }
    };
    std::optional<Seconds> likely;
    double least = std::numeric_limits<double>::infinity();
    constexpr Seconds longest{0.4};
    for (Seconds latency{0.0005}; latency < longest; latency *= 1.15) {
        Sums time;
        Sums energy;
        for (const ReplayedPlan& plan : plans) {
            const BlockChange off = plan.misfit(latency);
            time.add(off.time_pct, off.time_error_pct);
            energy.add(off.energy_pct, off.energy_error_pct);
        }
        const double away = std::log2(latency / assumed) / octaves;
        const double misfit = time.misfit() + energy.misfit() + away * away;
        if (misfit >= least) continue;
        least = misfit;
        likely = latency;
    }
    return likely;
}

/// By how much the times of launches scatter from one block at the baseline to the next, as a
/// fraction: the mean over kernels, by their time. 0 where nothing was measured often enough.
inline double block_scatter(const Profile& profile) {
    constexpr std::size_t fewest = 3;
    const auto baseline = profile.baseline();
    double sum = 0;
    double weights = 0;
    for (const KernelProfile& kernel : profile.kernels()) {
        const ProfilePoint* const point = baseline ? kernel.find(*baseline) : nullptr;
        if (point == nullptr || point->samples.size() < fewest) continue;
        const auto count = static_cast<double>(point->samples.size());
        double mean = 0;
        for (const ProfileSample& sample : point->samples)
            mean += std::log(sample.cost.time.count()) / count;
        double squares = 0;
        for (const ProfileSample& sample : point->samples) {
            const double off = std::log(sample.cost.time.count()) - mean;
            squares += off * off / (count - 1);
        }
        const double weight = point->mean().time.count() * kernel.count;
        sum += std::sqrt(squares) * weight;
        weights += weight;
    }
    return weights > 0 ? sum / weights : 0;
}

/// Why something has failed, in a few words.
inline std::string words_of(const std::exception& error) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    return known != nullptr ? known->text().vendor_words : error.what();
}

/// Makes a plan. Takes up to seconds for iterations of thousands of launches. Never throws.
inline RunPlan plan_run(const RunPlanRequest& request) {
    try {
        CostTable table = shrunk_costs(with_likely_energies(request.profile));
        Seconds latency = request.latency;
        if (!request.switches)
            latency = likely_latency(table, request.before, latency).value_or(latency);
        for (KernelCosts& kernel : table.kernels)
            for (std::size_t p = 0; p < kernel.points.size(); ++p)
                if (p != kernel.baseline) kernel.points[p].cost.time *= request.longer_by;
        SegmentOptions options;
        options.worthwhile_pct =
            request.one_clock ? std::numeric_limits<double>::infinity() : simplest_within_pct;
        SegmentPlan plan = plan_program(table, request.sequence, request.trace,
                                        request.switches.value_or(uniform_switch_costs(latency)),
                                        relaxed_waste(request.max_slowdown), options);
        // Of a clock that was tried once, twice that is not known.
        const double scatter = block_scatter(request.profile);
        if (-plan.energy_pct() < request.least_saving_pct && scatter > 2 * request.max_slowdown)
            return {.none = kdvfs::io::format_text(
                        "kernels' times scatter by %.1f %%: what clocks cost is not known to "
                        "within the bound",
                        100 * scatter)};
        RunPlan found{latency, {}, -plan.energy_pct(), plan.time_pct(), {}, to_json(plan)};
        found.one_clock = !plan.reason.empty()                  ? OneClock::is_plan
                          : plan.single_clock == table.baseline ? OneClock::is_found
                                                                : OneClock::other;
        found.at_one_clock = at_one_clock(plan.sequence, plan.single_clock);
        found.sequence = std::move(plan.sequence);
        return found;
    } catch (const std::exception& error) {
        return {.none = words_of(error)};
    }
}

}  // namespace kdvfs::inline v0_3::tune::detail
