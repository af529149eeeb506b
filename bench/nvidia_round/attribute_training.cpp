// SPDX-License-Identifier: MIT
// Attributes a recorded run of gpt_train again, by each source, with and without the figures of
// repeated kernels, and in halves. Needs no GPU: attribute_training FOLDER [FOLDER]; a second
// folder lends its figures of repeated kernels to the first.
#include "training_replay.hpp"

#include <cmath>
#include <cstdio>
#include <exception>
#include <string>

namespace {

void print(const char* title, const kdvfs::measure::Report& report) {
    const auto& fit = report.fit;
    const auto& totals = report.totals;
    std::printf(
        "==== %s: %s, %llu rows off by %.1f W, correlation %.2f%s; repeated x %.3f, spread "
        "%.1f %%; unexplained %.1f +- %.1f of %.1f J\n",
        title, fit.source.c_str(), static_cast<unsigned long long>(fit.rows), fit.scatter.count,
        fit.autocorrelation, fit.whitened ? ", whitened" : "", fit.repeated_scale,
        100 * fit.repeated_spread, totals.unexplained.count, totals.unexplained_half_width.count,
        totals.counter.count);
    double all = 0;
    double resolved = 0;
    for (const auto& row : report.rows) all += row.counted_time.count();
    for (const auto& row : report.rows) {
        const double share = row.counted_time.count() / all;
        if (row.energy.resolved) resolved += share;
        if (share < 0.02) continue;
        if (!row.energy.resolved) {
            std::printf("  %-22s %5.1f %%  not told\n", to_string(row.kernel).c_str(), 100 * share);
            continue;
        }
        const double watts = (row.energy.joules / row.counted_time).count;
        std::printf("  %-22s %5.1f %%  %6.1f W +- %4.1f %%", to_string(row.kernel).c_str(),
                    100 * share, watts, 100 * (row.energy.half_width / row.energy.joules));
        if (row.repeated) std::printf("  repeated %6.1f W", row.repeated->power.count);
        std::printf("\n");
    }
    std::printf("  told: %.1f %% of the kernels' time\n", 100 * resolved);
    for (const auto& level : report.levels) {
        const auto each = level.per_run();
        std::printf("  %-10s %8.3f +- %.3f J\n",
                    level.iteration ? "iteration" : level.scope.name.c_str(), each.joules.count,
                    each.half_width.count);
    }
    for (const std::string& note : report.notes) std::printf("  note: %s\n", note.c_str());
}

}  // namespace

int main(int count, char** arguments) {
    try {
        using namespace measuring;
        RecordedTraining training = read_training(count > 1 ? arguments[1] : ".");
        if (count > 2) training.record.repeated = read_training(arguments[2]).record.repeated;
        if (training.record.runs.empty()) throw std::runtime_error{"nothing was recorded there"};
        print("counter alone", replay(training, {.power = false, .repeated = false}));
        print("counter and repeated kernels", replay(training, {.power = false}));
        print("as chosen", replay(training, {.repeated = false}));
        print("as chosen, and repeated kernels", replay(training));
        print("first half", replay(training, {.to = 0.5}));
        print("second half", replay(training, {.from = 0.5}));
        const RecordedTraining sampled = metered_one_in(training, 16);
        print("metered 1 in 16", replay(sampled, {.repeated = false}));
        print("metered 1 in 16, and repeated kernels", replay(sampled));
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "attribute_training: %s\n", error.what());
        return 2;
    }
}
