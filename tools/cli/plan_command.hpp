// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/plan_table_text.hpp>
#include <kdvfs/detail/tune/ranks.hpp>
#include <kdvfs/detail/tune/shrunk_costs.hpp>
#include <kdvfs/detail/tune/trace_planner.hpp>
#include <kdvfs/device/power_limiter.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/limited_plan.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/policy_header.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/segments.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/known_switch_costs.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/predicted_profile.hpp>
#include <tools/cli/text_options.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cli {

/// `kdvfs plan PROFILE.csv ...`
struct PlanCommand {
    std::string profile;
    std::optional<std::size_t> rank;
    std::string max_slowdown;
    std::string keep_under;
    std::string confidence = "90%";
    double node_watts = 0;
    std::string aggregate = "global";
    std::string objective = "waste";
    std::string estimates = "shrunk";
    std::string predict;
    std::string trace;
    std::string switch_latency;
    std::string idle_power;
    std::string slow_trace;
    std::string slow_clock;
    double power_limit = 0;  // W; 0 = the program is not at it
    std::string goal = "energy";
    double limiter_rate = kdvfs::device::PowerLimiter::measured_rate;
    std::string format;
    std::string output;
    std::string namespace_name = "kdvfs_policies";
    std::string architecture;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<PlanCommand>();
        CLI::App* sub = app.add_subcommand("plan", "Choose a clock for each kernel of a profile");
        sub->footer(
            "A sweep file is a CSV with a header line and the columns gpu, kernel, core_mhz, "
            "mem_mhz\n"
            "(MHz, or auto), time_s and energy_j (of one launch), in any order; optional: "
            "variant,\n"
            "group, count (launches per iteration), sample, is_baseline. Commas separate, points\n"
            "stand in numbers, quotes around texts that hold commas.");
        sub->add_option("profile", command->profile,
                        "Sweep file, - is standard input; or a folder with profile.csv and "
                        "profile.sequence.csv, as a sweep leaves them: plan segments")
            ->required();
        sub->add_option(
            "--rank", command->rank,
            "Of a folder with several ranks (profile.rank0.csv ...) that are not equal");
        sub->add_option("--max-slowdown", command->max_slowdown,
                        "Tolerated slowdown, such as 1%; without it: none, and a table of others");
        sub->add_option("--confidence", command->confidence,
                        "With what probability the slowdown stays within that, as far as repeated "
                        "samples show; 50% takes estimates as they are")
            ->capture_default_str();
        sub->add_option("--keep-under", command->keep_under,
                        "Longest time of a launch, such as 95ms: a latency target; not with "
                        "--trace");
        sub->add_option("--aggregate", command->aggregate, "What shares a clock; not with --trace")
            ->check(CLI::IsMember({"global", "local", "per_group", "single"}))
            ->capture_default_str();
        sub->add_option(
               "--objective", command->objective,
               "waste, edp, ed2p, energy or zeus:ETA (maximum power: the highest measured)")
            ->capture_default_str();
        sub->add_option("--node-watts", command->node_watts,
                        "What the rest of the node draws for each GPU, in W: its energy counts, "
                        "too, so that "
                        "plans are less slow; not with --power-limit")
            ->check(watts_range(0));
        sub->add_option("--estimates", command->estimates,
                        "shrunk: no winner's luck; mean: samples as they are")
            ->check(CLI::IsMember({"shrunk", "mean"}))
            ->capture_default_str();
        sub->add_option("--predict", command->predict,
                        "Without a sweep: core clocks in MHz that the plan may choose, such as "
                        "510:1410:90 or 510,600,690, of which the profile needs the baseline and "
                        "up to three. The plan is predicted until it is validated");
        sub->add_option("--trace", command->trace,
                        "Launches of an iteration in order (CSV: kernel[,variant]): plan segments");
        sub->add_option("--switch-latency", command->switch_latency,
                        "For segments: a time such as 6ms, or a CSV of latencies; else what was "
                        "measured on this machine, else 10ms");
        sub->add_option("--idle-power", command->idle_power,
                        "For segments: what the board draws without work (CSV: core_mhz,idle_w"
                        "[,mem_mhz]); gaps between launches (gap_s) then get clocks, too");
        CLI::Option* slow = sub->add_option(
            "--slow-trace", command->slow_trace,
            "With --idle-power: the launches again, recorded at --slow-clock. Where gaps are "
            "shorter there, the host sets the times and kernels may be slower");
        slow->needs(sub->add_option("--slow-clock", command->slow_clock,
                                    "Core clock of --slow-trace in MHz, one of the profile"));
        CLI::Option* limit =
            sub->add_option("--power-limit", command->power_limit,
                            "For segments: the board's power limit in W, where the program runs at "
                            "it. The limit is taken as one of the mean, and the profile as "
                            "measured in short bursts, free of the limit")
                ->check(watts_range());
        sub->add_option("--goal", command->goal,
                        "With --power-limit: least time at that limit, or least energy within "
                        "--max-slowdown")
            ->check(CLI::IsMember({"time", "energy"}))
            ->capture_default_str()
            ->needs(limit);
        sub->add_option("--limiter-rate", command->limiter_rate,
                        "With --power-limit: how fast the board follows its limit, per second; 11 "
                        "was found on H100 and H200")
            ->check(finite_range(1e-3, 1e6))
            ->capture_default_str()
            ->needs(limit);
        sub->add_option("--format", command->format,
                        "Output; else json or header where -o ends in .json or .hpp, else table")
            ->check(CLI::IsMember({"table", "json", "header"}));
        sub->add_option("--namespace", command->namespace_name,
                        "With --format header: of what is generated")
            ->capture_default_str();
        sub->add_option("--arch", command->architecture,
                        "With --format header: bind its policies to one architecture");
        sub->add_option("-o,--output", command->output, "File to write instead of printing");
        sub->callback([command, sub] {
            if (command->format.empty())
                command->format = command->output.ends_with(".json")  ? "json"
                                  : command->output.ends_with(".hpp") ? "header"
                                                                      : "table";
            command->check(*sub);
            command->run();
        });
    }

    void run() const {
        using namespace kdvfs::tune;
        std::optional<RankProfile> rank_profile = read();
        const LaunchSequence launches = std::move(rank_profile->sequence);
        const auto iterations = std::move(rank_profile->trace);
        const Profile& measured = rank_profile->profile;
        check_limit(measured);
        const bool in_order = !launches.launches.empty() || !iterations.iterations.empty();
        // Segments need clocks that all launches can run at, of whatever energy.
        const CostTable table = !predict.empty()
                                    ? predicted_from_few(measured, "--predict", predict)
                                : estimates == "mean" ? mean_costs(measured)
                                : in_order            ? shrunk_costs(with_likely_energies(measured))
                                                      : shrunk_costs(measured);
        const bool hashed = format == "header" || in_order;
        const HeaderOptions header{
            namespace_name, "Policies",
            source_name(profile) + (predict.empty() ? "" : ", predicted from few of its clocks"),
            hashed ? kdvfs::io::content_hash(to_csv(measured)) : std::string{}};
        rank_profile.reset();  // large profiles fill the memory that plans need
        Objective chosen = parse_objective(objective, table);
        if (!max_slowdown.empty())
            chosen = with_max_slowdown(
                chosen, parse_percent("--max-slowdown", max_slowdown, most_slowdown_pct));
        if (!keep_under.empty()) {
            const auto longest = parse_duration("--keep-under", keep_under);
            if (!longest) reject("--keep-under", keep_under, "give a time such as 95ms");
            chosen = kdvfs::tune::keep_under(chosen, *longest);
        }
        chosen = with_confidence(chosen, parse_percent("--confidence", confidence, 100));
        const Objective whole =
            node_watts > 0 ? with_node_power(chosen, kdvfs::Watts{node_watts}) : chosen;
        if (!table.caveat.empty()) std::fprintf(stderr, "kdvfs: %s\n", table.caveat.c_str());
        if (!in_order) {
            if (node_watts > 0) {
                const Aggregate by = *parse_aggregate(aggregate);
                say_what_moves(make_plan(table, whole, by), make_plan(table, chosen, by));
            }
            return write(output, planned(table, whole, header));
        }
        const SegmentPlan plan = segments_of(table, whole, launches, iterations);
        if (node_watts > 0) say_what_moves(plan, segments_of(table, chosen, launches, iterations));
        write(output, planned_by_segments(plan, header));
    }

private:
    void check(const CLI::App& options) const {
        if (!predict.empty()) refuse_without_effect(options, "--estimates", "with --predict");
        if (estimates == "mean")
            refuse_without_effect(options, "--confidence", "on samples as they are");
        if (objective != "waste" && max_slowdown.empty())
            refuse_without_effect(options, "--confidence", "without a bound (--max-slowdown)");
        if (format != "header") {
            refuse_without_effect(options, "--namespace", "without --format header");
            refuse_without_effect(options, "--arch", "without --format header");
        }
        if (!std::filesystem::is_directory(profile))
            refuse_without_effect(options, "--rank", "without a folder");
        if (trace.empty() && !std::filesystem::is_directory(profile)) {
            for (const char* option : {"--switch-latency", "--idle-power", "--power-limit"})
                refuse_without_effect(options, option, "without --trace or a folder's sequence");
        } else {
            refuse_without_effect(options, "--aggregate", "where segments are chosen");
            refuse_without_effect(options, "--keep-under", "where segments are chosen");
            refuse_without_effect(options, "--arch", "where segments are chosen");
        }
        if (idle_power.empty())
            refuse_without_effect(options, "--slow-trace", "without --idle-power");
        if (power_limit > 0) {
            for (const char* option :
                 {"--objective", "--confidence", "--idle-power", "--node-watts"})
                refuse_without_effect(options, option, "at a power limit");
            if (goal == "time")
                refuse_without_effect(options, "--max-slowdown", "where the time is made small");
        }
    }

    /// The profile, and the launches where there are any: of a folder's only rank, of equal ranks
    /// together, or of the rank that is asked for and those equal to it.
    [[nodiscard]] kdvfs::tune::RankProfile read() const {
        using namespace kdvfs::tune;
        const auto launches = [](const std::string& file) {
            Input input{file};
            return read_launches(input.stream(), input.name());
        };
        if (!std::filesystem::is_directory(profile)) {
            Input input{profile};
            Profile measured = read_profile(input.stream(), input.name());
            return {std::nullopt,
                    std::move(measured),
                    trace.empty() ? LaunchSequence{} : launches(trace),
                    {}};
        }
        const std::filesystem::path file = std::filesystem::path{profile} / "profile.csv";
        const auto ranks = read_rank_profiles(file);
        const auto groups = equal_ranks(ranks);
        const auto has_rank = [&](const auto& group) {
            return std::any_of(group.begin(), group.end(),
                               [&](std::size_t r) { return ranks[r].rank == rank; });
        };
        const auto group =
            rank ? std::find_if(groups.begin(), groups.end(), has_rank) : groups.begin();
        if (group == groups.end() || (!rank && groups.size() > 1))
            throw kdvfs::Error{
                kdvfs::Errc::invalid_input,
                {"plan for ranks", profile,
                 rank ? "there is no rank " + std::to_string(*rank) : "its ranks are not equal",
                 "give --rank for each plan"}};
        RankProfile chosen = ranks.size() == 1 ? ranks.front() : merge_ranks(ranks, *group);
        // A folder's sequence is what makes it more than its profile.
        if (!trace.empty()) {
            chosen.sequence = launches(trace);
            chosen.trace = {};
        } else if (chosen.sequence.launches.empty() && chosen.trace.iterations.empty())
            chosen.sequence = launches(sequence_path(file).string());
        return chosen;
    }

    [[nodiscard]] std::string planned(const kdvfs::tune::CostTable& table,
                                      const kdvfs::tune::Objective& chosen,
                                      const kdvfs::tune::HeaderOptions& header) const {
        using namespace kdvfs::tune;
        const Plans plans = make_plans(table, chosen);
        const Aggregate by = *parse_aggregate(aggregate);
        warn_of_latency(plans[by]);
        warn_of_limit(plans[by], chosen);
        if (format == "json") return to_json(plans, by);
        if (format == "header") return to_policy_header({{architecture, plans[by]}}, header);
        constexpr std::size_t most_estimates = 1'000'000;  // more take seconds a bound
        std::size_t estimates_made = 0;
        for (const KernelCosts& kernel : table.kernels) estimates_made += kernel.points.size();
        const bool with_bounds = max_slowdown.empty() && std::isfinite(chosen.max_slowdown) &&
                                 estimates_made <= most_estimates;
        return (with_bounds ? bounds_text(table, chosen, by) : "") + to_text_table(plans, by);
    }

    /// Rows at the power limit depend on what ran beside them, and do not add up to another mix.
    void check_limit(const kdvfs::tune::Profile& measured) const {
        const kdvfs::tune::KernelProfile* kernel = measured.find_at_limit();
        if (kernel == nullptr) return;
        const std::string name = to_string(kernel->key);
        if (power_limit > 0)
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"plan at the power limit", profile,
                                name + " was measured at the limit: what it costs free of it is "
                                       "not known",
                                "measure it in bursts of some milliseconds, with rests between"}};
        std::fprintf(stderr,
                     "kdvfs: %s was measured at the power limit: a plan that draws less there may "
                     "be faster than promised; --power-limit plans with that\n",
                     name.c_str());
    }

    /// Where kernels have clocks of their own, someone must switch between them.
    static void warn_of_latency(const kdvfs::tune::Plan& plan) {
        for (const kdvfs::tune::PlannedKernel& kernel : plan.kernels) {
            if (kernel.clock == plan.kernels.front().clock) continue;
            std::fprintf(stderr,
                         "kdvfs: what switching clocks between kernels costs is not in these "
                         "figures: give --trace with the launches of an iteration, or validate the "
                         "plan with the program\n");
            return;
        }
    }

    /// A target that nothing meets is named: such kernels run as fast as they can.
    static void warn_of_limit(const kdvfs::tune::Plan& plan,
                              const kdvfs::tune::Objective& objective) {
        std::size_t late = 0;
        const kdvfs::tune::PlannedKernel* longest = nullptr;
        for (const kdvfs::tune::PlannedKernel& kernel : plan.kernels) {
            if (keeps_bound(objective, kernel.expected.time)) continue;
            ++late;
            if (!longest || kernel.expected.time > longest->expected.time) longest = &kernel;
        }
        if (longest == nullptr) return;
        std::fprintf(stderr,
                     "kdvfs: %zu of %zu kernels are not kept under %.4g ms; %s takes %.4g ms\n",
                     late, plan.kernels.size(), objective.launch_limit.count() * 1e3,
                     to_string(longest->key).c_str(), longest->expected.time.count() * 1e3);
    }

    /// Where the best plan moves to when the node's energy counts.
    template <class PlanType>
    void say_what_moves(const PlanType& plan, const PlanType& for_gpu) const {
        const auto node_pct = [&](const PlanType& each) {
            const auto joules = [&](const kdvfs::tune::Cost& cost) {
                return cost.energy.count + node_watts * cost.time.count();
            };
            return kdvfs::tune::percent_change(joules(each.expected), joules(each.baseline));
        };
        const auto time_pct = [](const PlanType& each) {
            return kdvfs::tune::time_percent(each.expected, each.baseline);
        };
        std::fprintf(
            stderr,
            "kdvfs: with %.0f W of the node: time %+.2f %%, energy of the GPU %+.2f %%, of "
            "both %+.2f %%. The plan for the GPU alone: %+.2f %%, %+.2f %%, %+.2f %%\n",
            node_watts, time_pct(plan), plan.energy_pct(), node_pct(plan), time_pct(for_gpu),
            for_gpu.energy_pct(), node_pct(for_gpu));
    }

    [[nodiscard]] kdvfs::tune::SegmentPlan segments_of(
        const kdvfs::tune::CostTable& table, const kdvfs::tune::Objective& chosen,
        const kdvfs::tune::LaunchSequence& recorded,
        const kdvfs::tune::LaunchTrace& iterations) const {
        using namespace kdvfs::tune;
        const SwitchCosts costs = known_switch_costs(switch_latency, table.gpu);
        return power_limit > 0          ? planned_at_limit(table, recorded, costs, chosen)
               : !recorded.runs.empty() ? planned_for_streams(table, recorded, costs, chosen)
               : !idle_power.empty()    ? planned_with_gaps(table, recorded, costs, chosen)
               : trace.empty()
                   ? plan_program(table, recorded, iterations, costs, chosen)
                   : plan_segments(table, launch_indices(table, recorded.launches), costs, chosen);
    }
    [[nodiscard]] std::string planned_by_segments(kdvfs::tune::SegmentPlan plan,
                                                  const kdvfs::tune::HeaderOptions& header) const {
        using namespace kdvfs::tune;
        plan.sequence.profile_hash = header.input_hash;
        plan.predicted = !predict.empty();
        if (format == "json") return to_json(plan);
        if (format == "header") return to_segment_header(plan, header);
        return to_text_table(plan);
    }

    [[nodiscard]] kdvfs::tune::SegmentPlan planned_at_limit(
        const kdvfs::tune::CostTable& table, const kdvfs::tune::LaunchSequence& recorded,
        const kdvfs::tune::SwitchCosts& costs, const kdvfs::tune::Objective& chosen) const {
        using namespace kdvfs::tune;
        const ProgramLaunches program =
            match_launches(table, recorded.launches, recorded.gaps, recorded.depths);
        double top_mhz = 0;
        for (const KernelCosts& kernel : table.kernels)
            for (const PointCost& point : kernel.points)
                if (point.clock.core != kdvfs::auto_clock)
                    top_mhz = std::max<double>(top_mhz, point.clock.core.count);
        LimitedPlan plan =
            plan_at_limit(table, program.launches, costs, {{power_limit}, limiter_rate, 0, top_mhz},
                          {.goal = goal == "time" ? LimitGoal::least_time : LimitGoal::least_energy,
                           .max_slowdown = max_slowdown.empty() ? 0 : chosen.max_slowdown});
        if (plan.at_limit)
            std::fprintf(stderr,
                         "kdvfs: as found the program draws %.0f W, the limit; no plan saves more "
                         "than %.2f %% of the %s. Limit 1 %% lower: time %+.2f %%, energy %+.2f "
                         "%%; 1 %% higher: %+.2f %%, %+.2f %%\n",
                         plan.found_power.count, std::max(0.0, -plan.bound_pct), goal.c_str(),
                         plan.if_lower.time_pct, plan.if_lower.energy_pct, plan.if_higher.time_pct,
                         plan.if_higher.energy_pct);
        else
            std::fprintf(stderr,
                         "kdvfs: as found the program draws %.0f W, less than the limit of %.0f W: "
                         "plan without --power-limit\n",
                         plan.found_power.count, power_limit);
        return plan.segments;
    }

    [[nodiscard]] kdvfs::tune::SegmentPlan planned_for_streams(
        const kdvfs::tune::CostTable& table, const kdvfs::tune::LaunchSequence& recorded,
        const kdvfs::tune::SwitchCosts& costs, const kdvfs::tune::Objective& chosen) const {
        if (!slow_trace.empty())
            reject("--slow-trace", slow_trace, "launches with start_s are planned without it");
        std::function<kdvfs::Watts(kdvfs::ClockPoint)> idle;
        if (!idle_power.empty()) {
            Input input{idle_power};
            idle = kdvfs::tune::read_idle_power(input.stream(), input.name());
        }
        return plan_segments(table, stream_launches(table, recorded), costs, chosen, idle);
    }

    [[nodiscard]] kdvfs::tune::SegmentPlan planned_with_gaps(
        const kdvfs::tune::CostTable& table, const kdvfs::tune::LaunchSequence& recorded,
        const kdvfs::tune::SwitchCosts& costs, const kdvfs::tune::Objective& chosen) const {
        using namespace kdvfs::tune;
        if (recorded.gaps.empty())
            reject("--idle-power", idle_power, "the launches need a column gap_s");
        const ProgramLaunches program =
            match_launches(table, recorded.launches, recorded.gaps, recorded.depths);
        Input idle{idle_power};
        GapModel gaps;
        gaps.idle_power = read_idle_power(idle.stream(), idle.name());
        if (slow_trace.empty()) return plan_segments(table, program, costs, chosen, gaps);
        Input slow{slow_trace};
        const LaunchSequence slower = read_launches(slow.stream(), slow.name());
        const ProgramLaunches again =
            match_launches(table, slower.launches, slower.gaps, slower.depths);
        const auto clock = kdvfs::io::parse_clock(slow_clock);
        std::vector<kdvfs::Seconds> by;
        for (const std::size_t launch : program.launches) {
            const KernelCosts& kernel = table.kernels[launch];
            const auto at = std::find_if(kernel.points.begin(), kernel.points.end(),
                                         [&](const PointCost& point) {
                                             return clock && point.clock.core == *clock &&
                                                    point.clock.memory == table.baseline.memory;
                                         });
            if (at == kernel.points.end())
                reject("--slow-clock", slow_clock, "give a core clock of the profile");
            by.push_back(at->cost.time - kernel.points[kernel.baseline].cost.time);
        }
        if (again.launches != program.launches)
            reject("--slow-trace", slow_trace, "record the same iteration");
        gaps.host_bound = host_bound_gaps(program.gaps, again.gaps, by);
        return plan_segments(table, program, costs, chosen, gaps);
    }
};

}  // namespace cli
