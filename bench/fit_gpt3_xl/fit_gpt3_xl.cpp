// SPDX-License-Identifier: MIT
// Fits the simulated RTX 3080 Ti and the 46 kernels of a GPT-3-XL iteration to the published
// table, prints how well, and writes the constants as headers.

#include <bench/fit_gpt3_xl/constants_writer.hpp>
#include <bench/fit_gpt3_xl/joint_fit.hpp>
#include <bench/fit_gpt3_xl/plan_check.hpp>
#include <examples/gpt3_iteration/fit_figures.hpp>
#include <examples/gpt3_xl/fitted_kernels.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/error.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace gpt3_fit;

/// A model with less in it.
struct Variant {
    const char* name;
    FitLimits limits;
};

const std::vector<Variant>& variants() {
    const double none = std::log(1e-9);
    static const std::vector<Variant> all{
        {"all terms", {}},
        {"no voltage of auto memory", {{}, {{16, none}, {17, std::log(2.9)}}}},
        {"no fixed time", {{{2, none}}, {}}},
        {"one overlap for all (6.5)", {{{3, 0.0}}, {}}},
        {"both of these", {{{2, none}, {3, 0.0}}, {}}},
        {"leakage as of the start", {{}, {{1, std::log(4.0)}, {2, 2.3}}}},
        {"no power cap", {{}, {{18, std::log(1e4)}}}},
    };
    return all;
}

std::vector<std::string> variant_names() {
    std::vector<std::string> names;
    for (const Variant& variant : variants()) names.emplace_back(variant.name);
    return names;
}

/// @param model the name of a variant
const FitLimits& limits_of(const std::string& model) {
    const auto named = [&](const Variant& variant) { return variant.name == model; };
    return std::find_if(variants().begin(), variants().end(), named)->limits;
}

/// The model of the committed constants.
constexpr const char* committed_model = "no fixed time";

struct Options {
    std::vector<unsigned> core_max{1900};  // 1890 to 1920 differ little
    int rounds = 10;
    int starts = 15;
    double pass_weight = 0;
    std::uint32_t seed = 1;
    int folds = 2;
    bool cross_validate = false;
    std::vector<std::string>
        models{};  ///< to fit; none: all where cross-validated, else `committed_model`
    bool committed = false;
    std::string kernels_file;
    std::string board_file;
};

JointFit fit(const Options& options, unsigned core_max, const FitLimits& limits = {}) {
    JointFit result{{core_max}, options.pass_weight, options.seed, limits};
    for (int round = 0; round < options.rounds; ++round) {
        result.restart_kernels(options.starts);
        const double cost = result.improve(60);
        std::fprintf(stderr, "core max %u MHz, round %d of %d: cost %.2f\n", core_max, round + 1,
                     options.rounds, cost);
    }
    return result;
}

/// The board clock is a whole number of MHz, so it is tried rather than differentiated.
JointFit best_fit(const Options& options) {
    std::optional<JointFit> best;
    for (const unsigned core_max : options.core_max) {
        JointFit candidate =
            fit(options, core_max,
                limits_of(options.models.empty() ? committed_model : options.models.front()));
        if (!best || candidate.cost() < best->cost()) best = std::move(candidate);
    }
    return *best;
}

std::vector<KernelModel> kernels_of(const JointFit& fitted) {
    std::vector<KernelModel> kernels;
    for (int k = 0; k < kernel_count; ++k) kernels.push_back(fitted.kernel(k));
    return kernels;
}

gpt3::FitErrors errors_of(const Board& board, const std::vector<KernelModel>& kernels) {
    return gpt3::fit_errors(board, std::span<const KernelModel, kernel_count>{kernels});
}

void print_counts(const JointFit& fitted) {
    int repeated = 0;  // extremes that are the very number of auto or of the best point
    for (const gpt3::PublishedKernel& kernel : gpt3::published_table) {
        const auto same = [](double extreme, double at_auto, double best_pct) {
            const auto close = [&](double value) { return std::abs(extreme / value - 1) < 1e-3; };
            return close(at_auto) || close(at_auto * (1 + best_pct / 100));
        };
        const double t = kernel.time_auto_ms;
        const double e = kernel.energy_auto_j;
        repeated += same(kernel.time_min_ms, t, kernel.best_time_pct);
        repeated += same(kernel.time_max_ms, t, kernel.best_time_pct);
        repeated += same(kernel.energy_min_j, e, kernel.best_energy_pct);
        repeated += same(kernel.energy_max_j, e, kernel.best_energy_pct);
    }
    std::printf(
        "fit.parameters %d, of which the data determine %.0f (priors the rest); measurements %d, "
        "of which %d extremes repeat another within 0.1 %%; and %d choices of a best point\n",
        fitted.parameters() + 1, fitted.determined_parameters() + 1, gpt3::fit_measurements,
        repeated, gpt3::fit_data_points - gpt3::fit_measurements);
}

void print_errors(const gpt3::FitErrors& e) {
    std::printf("rms error of time, %%:   auto %.2f, best point %.2f, least %.2f, most %.2f\n",
                e.time_auto_pct, e.time_best_pct, e.time_min_pct, e.time_max_pct);
    std::printf("rms error of energy, %%: auto %.2f, best point %.2f, least %.2f, most %.2f\n",
                e.energy_auto_pct, e.energy_best_pct, e.energy_min_pct, e.energy_max_pct);
    std::printf("fit.rms_time_pct %.2f, fit.rms_energy_pct %.2f\n", e.rms_time_pct(),
                e.rms_energy_pct());
}

std::array<Sweep, kernel_count> sweeps_of(const Board& board,
                                          const std::vector<KernelModel>& kernels) {
    std::array<Sweep, kernel_count> sweeps;
    for (std::size_t k = 0; k < sweeps.size(); ++k) sweeps[k] = sweep(board, kernels[k]);
    return sweeps;
}

void print_plans(const std::array<Sweep, kernel_count>& sweeps) {
    const PlanEffects plans = plan_effects(sweeps);
    const Sums sums{sweeps};
    const auto print = [](const char* name, const Effect& effect, const char* published) {
        std::printf("%-24s time %+6.2f %%, energy %+6.2f %%   (published %s)\n", name,
                    effect.time_pct, effect.energy_pct, published);
    };
    std::printf("baseline %.4f s, %.2f J   (published 5.356 s, 1815 J)\n", sums.auto_seconds(),
                sums.auto_joules());
    print("strict waste, local", plans.local, "-1.78 / -11.54");
    print("strict waste, global", plans.global, "0.00 / -15.64");
    print("EDP, global", plans.edp, "+10.28 / -27.52");
    print("published best points", plans.published_points, "0.00 / -15.64");
    print("passes, strict waste", plans.pass_waste, "-0.10 / -2.07");
    print("passes, EDP", plans.pass_edp, "+10.21 / -25.42");
}

/// The published numbers that the model does not meet.
void print_outliers(const std::array<Sweep, kernel_count>& sweeps, double price) {
    std::printf("off by more than 5 %%:\n");
    for (std::size_t k = 0; k < sweeps.size(); ++k) {
        const gpt3::PublishedKernel& published = gpt3::published_table[k];
        const Eigen::VectorXd errors = kernel_errors(sweeps[k], published, price);
        for (int i = 0; i < targets_per_kernel; ++i) {
            if (std::abs(errors[i]) < 5) continue;
            std::printf("  %-20s %-24s %+6.1f %%\n", std::string{published.name}.c_str(),
                        target_names[static_cast<std::size_t>(i)], errors[i]);
        }
    }
}

void print_passes(const Sums& sums, double pass_weight) {
    const Eigen::VectorXd errors = pass_errors(sums);
    constexpr int all = static_cast<int>(points.size());
    constexpr int left_out = 22;  // the points with memory at 405 and 810 MHz, which come first
    const char* const names[4] = {"forward time", "forward energy", "backward time",
                                  "backward energy"};
    std::printf("the published passes (weight %.2g), rms over memory 5001 MHz and more:\n",
                pass_weight);
    for (int part = 0; part < 4; ++part) {
        const auto used = errors.segment(part * all + left_out, all - left_out);
        std::printf("  %-16s %.1f %%\n", names[part], std::sqrt(used.array().square().mean()));
    }
}

void print_board(const JointFit& fitted) {
    const Eigen::VectorXd sigma = fitted.board_uncertainty();
    const Eigen::VectorXd x = fitted.fitted_board_numbers();
    std::printf("board unknowns (fitted number, its uncertainty, the prior's):\n");
    for (int j = 0; j < x.size(); ++j) {
        const Unknown& unknown = board_unknowns()[static_cast<std::size_t>(j)];
        std::printf("  %-32s %8.4f %8.4f %8.4f\n", unknown.name, x[j], sigma[j], unknown.spread);
    }
}

/// Fits with the best points of every n-th kernel held out, and what each fit says of those that it
/// did not see.
std::array<Sweep, kernel_count> predicted_sweeps(const Options& options, const FitLimits& limits) {
    std::array<Sweep, kernel_count> sweeps;
    for (int fold = 0; fold < options.folds; ++fold) {
        FitLimits held = limits;
        held.held_out = [&](int k) { return k % options.folds == fold; };
        const JointFit fitted = fit(options, options.core_max.front(), held);
        for (int k = fold; k < kernel_count; k += options.folds)
            sweeps[static_cast<std::size_t>(k)] = sweep(fitted.board(), fitted.kernel(k));
    }
    return sweeps;
}

struct Spread {
    double rms = 0;
    double median = 0;  ///< of absolute values
};

/// How far the best point's effect is off, in percent: 0 its time, 1 its energy.
Spread best_point_error(const std::array<Sweep, kernel_count>& sweeps, std::size_t part) {
    Spread spread;
    std::vector<double> sizes;
    for (std::size_t k = 0; k < sweeps.size(); ++k) {
        const Eigen::VectorXd errors = kernel_errors(sweeps[k], gpt3::published_table[k], 1);
        sizes.push_back(std::abs(errors[best_point_targets[part]]));
        spread.rms += sizes.back() * sizes.back() / static_cast<double>(sweeps.size());
    }
    spread.rms = std::sqrt(spread.rms);
    std::sort(sizes.begin(), sizes.end());
    spread.median = sizes[sizes.size() / 2];
    return spread;
}

/// What less of a model, fitted anew, says in sample and of best points that it did not see.
void print_cross_validation(const Options& options) {
    std::printf(
        "Effects of the best points: error of time and energy in %%, median and (rms); strict "
        "waste, local and global. With all best points seen, and with %d folds of kernels whose "
        "best points were held out.\n"
        "%-27s %10s  %-34s  %s\n",
        options.folds, "", "parameters", "seen", "held out");
    for (const Variant& variant : variants()) {
        if (!options.models.empty() && std::find(options.models.begin(), options.models.end(),
                                                 variant.name) == options.models.end())
            continue;
        const JointFit fitted = fit(options, options.core_max.front(), variant.limits);
        const auto seen = sweeps_of(fitted.board(), kernels_of(fitted));
        const auto predicted = predicted_sweeps(options, variant.limits);
        std::printf("%-27s %10d", variant.name, fitted.parameters() + 1);
        for (const auto& sweeps : {seen, predicted}) {
            const Spread time = best_point_error(sweeps, 0);
            const Spread energy = best_point_error(sweeps, 1);
            const PlanEffects plans = plan_effects(sweeps);
            std::printf("  %4.2f (%5.2f) %4.2f (%5.2f) %+6.2f %+6.2f", time.median, time.rms,
                        energy.median, energy.rms, plans.local.energy_pct, plans.global.energy_pct);
        }
        std::printf("\n");
        std::fflush(stdout);
    }
}

/// What the plans of the fit lose where a term is taken out of it, all else as fitted.
void print_terms(const Board& board, const std::vector<KernelModel>& kernels) {
    std::printf("strict waste without a term, all else as fitted:\n");
    const auto print = [&](const char* name, const Board& less,
                           const std::vector<KernelModel>& of) {
        const PlanEffects plans = plan_effects(sweeps_of(less, of));
        std::printf("  %-27s local %+6.2f %%, global %+6.2f %%\n", name, plans.local.energy_pct,
                    plans.global.energy_pct);
    };
    print("all terms", board, kernels);
    Board less = board;
    less.auto_memory_voltage.rise = 0;
    print("no voltage of auto memory", less, kernels);
    less = board;
    less.core_overhead.leakage = {0};
    print("no leakage", less, kernels);
    less = board;
    less.core_overhead.clock_tree_watts_per_ghz = 0;
    print("no clock tree", less, kernels);
    less = board;
    less.power_cap = {1e4};
    print("no power cap", less, kernels);
    std::vector<KernelModel> changed = kernels;
    for (KernelModel& kernel : changed) kernel.fixed_time = kdvfs::Seconds{0};
    print("no fixed time", board, changed);
}

/// The committed constants: what the demo runs on.
int report_committed(const Options& options) {
    const Board board = kdvfs::simulated::rtx_3080_ti();
    const std::vector<KernelModel> kernels{gpt3::fitted_kernels.begin(),
                                           gpt3::fitted_kernels.end()};
    print_errors(errors_of(board, kernels));
    const auto sweeps = sweeps_of(board, kernels);
    print_plans(sweeps);
    print_passes(Sums{sweeps}, options.pass_weight);
    print_terms(board, kernels);
    return 0;
}

int run(const Options& options) {
    if (options.committed) return report_committed(options);
    if (options.cross_validate) {
        print_cross_validation(options);
        return 0;
    }
    const JointFit fitted = best_fit(options);
    const Board board = fitted.board();
    const std::vector<KernelModel> kernels = kernels_of(fitted);
    const int parameters = fitted.parameters() + 1;  // and the highest core clock
    const gpt3::FitErrors errors = errors_of(board, kernels);
    print_counts(fitted);
    print_errors(errors);
    const auto sweeps = sweeps_of(board, kernels);
    print_plans(sweeps);
    print_outliers(sweeps, price_of_time(fitted.fitted_board_numbers()));
    print_passes(Sums{sweeps}, options.pass_weight);
    print_terms(board, kernels);
    print_board(fitted);
    if (!options.kernels_file.empty()) {
        write_file(options.kernels_file, kernels_header(kernels, parameters, errors));
    }
    if (!options.board_file.empty()) write_file(options.board_file, board_header(board));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"Fits the simulated RTX 3080 Ti to the kernels published in arXiv 2601.08539"};
    app.add_option("--core-max", options.core_max, "highest core clocks to try, MHz");
    app.add_option("--rounds", options.rounds, "restarts of all kernels, each with a joint fit");
    app.add_option("--starts", options.starts, "random starts per kernel and round");
    app.add_option("--pass-weight", options.pass_weight,
                   "weight of the published passes; 0 keeps them for checking");
    app.add_option("--seed", options.seed, "of the random starts");
    app.add_flag("--cross-validate", options.cross_validate,
                 "instead: fit models with fewer terms, with all best points and with some held "
                 "out");
    app.add_option("--model", options.models,
                   "which to fit, or of those that --cross-validate fits, only these")
        ->check(CLI::IsMember(variant_names()));
    app.add_option("--folds", options.folds, "that --cross-validate holds out in turn")
        ->check(CLI::Range(2, 46));
    app.add_flag("--committed", options.committed,
                 "instead: errors, plans and terms of the committed constants");
    app.add_option("--write-kernels", options.kernels_file, "write fitted_kernels.hpp here");
    app.add_option("--write-board", options.board_file, "write rtx_3080_ti_fit.hpp here");
    CLI11_PARSE(app, argc, argv);
    try {
        return run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
