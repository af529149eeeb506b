// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/tune/validation.hpp>
#include <tools/cli/program_plan.hpp>
#include <tools/cli/program_runs.hpp>
#include <tools/cli/tuning_folder.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

/// A plan against the clocks as found, in blocks of iterations of one run or in whole runs.
namespace cli {

/// What the program does by itself.
struct Trial {
    kdvfs::tune::Cost cost;
    kdvfs::Seconds wall{0};
    std::vector<kdvfs::tune::SessionStatus> sessions;  // one a GPU
};

/// What a plan promises for a whole run: what it changes in an iteration, as many times as there
/// are iterations. Start-up, and what else is no iteration, stays as it was measured without a
/// plan.
/// @param iteration promised or measured; its baseline is the iteration as found
inline kdvfs::tune::Plan for_the_run(const kdvfs::tune::Plan& iteration, const Trial& trial) {
    kdvfs::tune::Plan run = iteration;
    auto iterations = static_cast<double>(trial.sessions.front().iterations);
    // Iterations that overlap, or are not all alike, cannot fill more than the run.
    iterations = std::min({iterations, trial.cost.time / iteration.baseline.time,
                           trial.cost.energy / iteration.baseline.energy});
    run.baseline = trial.cost;
    run.expected = trial.cost;
    run.expected.time += (iteration.expected.time - iteration.baseline.time) * iterations;
    run.expected.energy += (iteration.expected.energy - iteration.baseline.energy) * iterations;
    return run;
}

/// What a comparison of a plan has found.
struct Comparison {
    kdvfs::tune::Validation found;  ///< of the run
    /// What an iteration took by the plan more than as found, on average; nothing where whole runs
    /// were compared.
    std::optional<kdvfs::tune::Plan> iteration{};
};

/// Compares a plan in blocks of iterations, run after run until the verdict is known. What was
/// found is kept in `comparisons.csv`, so that a tuning that was killed goes on.
class BlockComparison {
public:
    /// @param most runs
    BlockComparison(const TuningFolder& folder, const Promise& promise, const Trial& trial,
                    std::size_t most)
        : folder_{&folder}, promise_{&promise}, trial_{&trial}, most_{most} {
        read();
    }

    /// @returns nothing where a run is too short for pairs of blocks, or ranks have plans of their
    ///          own blocks
    std::optional<Comparison> operator()(const ProgramRuns& program) {
        if (trial_->sessions.size() != 1) return std::nullopt;
        for (std::size_t run = 0;; ++run) {
            if (pairs_.size() >= kdvfs::tune::Validation::fewest_pairs) {
                const Comparison compared = judge();
                if (compared.found.verdict() != kdvfs::tune::Verdict::undecided || run >= most_)
                    return compared;
            }
            if (run >= most_) return std::nullopt;
            std::fprintf(stderr, "kdvfs: run %zu: blocks of iterations by the plan and as found\n",
                         run + 1);
            const auto log = folder_->open_log();
            auto variables = folder_->prepare_run(
                TuningFolder::mode("compare", folder_->file("plan.json")), "compare_status.json");
            // Runs that repeat each other, in blocks of the same order, would be the same pairs.
            variables.emplace_back("KDVFS_SWEEP_SEED", std::to_string(pairs_.size() + 1));
            static_cast<void>(program(std::move(variables), log.get()));
            const auto statuses = folder_->statuses("compare_status.json");
            if (statuses.size() != 1 || statuses.front().pairs.empty()) return std::nullopt;
            pairs_.insert(pairs_.end(), statuses.front().pairs.begin(),
                          statuses.front().pairs.end());
            write(statuses.front().pairs);
            if (pairs_.size() < kdvfs::tune::Validation::fewest_pairs) return std::nullopt;
        }
    }

private:
    static constexpr const char* header =
        "plan,planned_time_s,planned_energy_j,found_time_s,found_energy_j\n";

    [[nodiscard]] Comparison judge() const {
        using namespace kdvfs::tune;
        Plan mean = promise_->plan;
        mean.baseline = mean.expected = {};
        const double share = 1 / static_cast<double>(pairs_.size());
        for (const ComparedPair& pair : pairs_) {
            mean.baseline += pair.found * share;
            mean.expected += pair.planned * share;
        }
        const Plan run = for_the_run(mean, *trial_);
        // Of the change in iterations, this much is in the run.
        const double times = share_of(run.time_pct(), mean.time_pct());
        const double energies = share_of(run.energy_pct(), mean.energy_pct());
        // Means of ratios are too high where iterations differ; means of their logs are not.
        const auto interval = [&](double of_run, auto ratio) {
            std::vector<double> logs;
            for (const ComparedPair& pair : pairs_) logs.push_back(100 * std::log(ratio(pair)));
            PercentInterval found = anytime_interval(logs);
            for (double* value : {&found.mean, &found.low, &found.high})
                *value = of_run * 100 * std::expm1(*value / 100);
            return found;
        };
        const PercentInterval time = interval(
            times, [](const ComparedPair& pair) { return pair.planned.time / pair.found.time; });
        const PercentInterval energy = interval(energies, [](const ComparedPair& pair) {
            return pair.planned.energy / pair.found.energy;
        });
        const Plan promised = for_the_run(promise_->plan, *trial_);
        return {{pairs_.size(), promised.time_pct(), promised.energy_pct(), time, energy,
                 100 * promise_->plan.max_slowdown},
                mean};
    }
    static double share_of(double run, double iteration) {
        return iteration == 0 ? 1 : std::clamp(run / iteration, 0.0, 1.0);
    }

    void read() {
        if (!folder_->has("comparisons.csv")) return;
        const std::string name = folder_->file("comparisons.csv").string();
        std::string text = folder_->read("comparisons.csv");
        text.resize(text.rfind('\n') + 1);  // drops a line that was cut short
        std::istringstream lines{text};
        kdvfs::io::CsvReader reader{lines, name};
        std::vector<std::string> fields;
        if (!reader.next(fields) || fields.size() != 5 || fields[0] != "plan")
            reader.fail("this is no log of comparisons");
        while (reader.next(fields)) {
            kdvfs::io::require_width(fields, 5, reader);
            std::vector<double> numbers;
            for (std::size_t i = 1; i < fields.size(); ++i) {
                const auto number = kdvfs::io::parse_number<double>(fields[i]);
                if (!number) reader.fail(kdvfs::io::number_fault(fields[i], "a cost"));
                numbers.push_back(*number);
            }
            const kdvfs::tune::ComparedPair pair{
                {kdvfs::Seconds{numbers[0]}, kdvfs::Joules{numbers[1]}},
                {kdvfs::Seconds{numbers[2]}, kdvfs::Joules{numbers[3]}}};
            for (const kdvfs::tune::Cost& cost : {pair.planned, pair.found})
                if (const auto fault = kdvfs::tune::find_fault(cost)) reader.fail(*fault);
            if (fields[0] == promise_->hash) pairs_.push_back(pair);
        }
    }

    void write(const std::vector<kdvfs::tune::ComparedPair>& pairs) const {
        std::string text =
            folder_->has("comparisons.csv") ? folder_->read("comparisons.csv") : header;
        const auto field = [](double number) { return ',' + kdvfs::io::to_text(number); };
        for (const auto& pair : pairs)
            text += promise_->hash + field(pair.planned.time.count()) +
                    field(pair.planned.energy.count) + field(pair.found.time.count()) +
                    field(pair.found.energy.count) + '\n';
        folder_->write("comparisons.csv", text);
    }

    const TuningFolder* folder_;
    const Promise* promise_;
    const Trial* trial_;
    std::size_t most_;
    std::vector<kdvfs::tune::ComparedPair> pairs_;
};

/// Compares a plan by whole runs, in pairs. What they took is kept in `runs.csv`.
inline Comparison compare_runs(const TuningFolder& folder, const ProgramRuns& program,
                               const Promise& promise, const Trial& trial, std::size_t pairs,
                               std::uint64_t seed) {
    RunLog runs{folder.file("runs.csv"), promise.hash};
    const std::string follow = TuningFolder::mode("follow", folder.file("plan.json"));
    const auto run_once = [&](bool planned) {
        return runs.next(planned, [&] {
            std::fprintf(stderr, "kdvfs: run %zu of %zu, %s\n", runs.recorded() + 1, 2 * pairs,
                         planned ? "by the plan" : "as it is");
            const auto log = folder.open_log();
            return program(planned ? folder.prepare_run(follow, "follow_status.json")
                                   : folder.prepare_run("off", ""),
                           log.get())
                .cost;
        });
    };
    return {kdvfs::tune::validate(for_the_run(promise.plan, trial), pairs, run_once, seed)};
}

/// Corrects what plans are made with by what a plan was found to do.
/// @param found an iteration as found and by the plan
inline PlanCorrection corrected(PlanCorrection correction, const Promise& promise,
                                const kdvfs::tune::Plan& found) {
    const auto change = [](const kdvfs::tune::Plan& plan) {
        return std::pair{plan.expected.time - plan.baseline.time,
                         plan.expected.energy - plan.baseline.energy};
    };
    const auto [promised_time, promised_energy] = change(promise.plan);
    const auto [found_time, found_energy] = change(found);
    const kdvfs::Seconds late = found_time - promised_time;
    const kdvfs::Joules missed = found_energy - promised_energy;
    const kdvfs::Seconds before = correction.per_switch;
    const kdvfs::Seconds more =
        late / static_cast<double>(std::max<std::size_t>(promise.segments, 1));
    if (promise.segments > 1 && before + more > kdvfs::Seconds{0}) {
        const kdvfs::Joules each =
            correction.power * before + missed * (1 / static_cast<double>(promise.segments));
        correction.per_switch = before + more;
        correction.power = {std::max(0.0, (each / correction.per_switch).count)};
        return correction;
    }
    correction.time *= 1 + late / promise.plan.expected.time;
    correction.energy *= 1 + missed / promise.plan.expected.energy;
    return correction;
}

}  // namespace cli
