// SPDX-License-Identifier: MIT
//
// pipeline_frontier FOLDER [small]
// How long frontiers of pipelines take on one core, how exact they are and what plans save. FOLDER
// holds gpt3_175b_a100.json (measured) and synthetic_4x8.json. More stages than the file has repeat
// its curves, each round a little slower; `small` leaves out what takes more than seconds.
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/train/plan.hpp>

#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kdvfs::train;
using nlohmann::json;

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

json read(const std::filesystem::path& file) {
    std::ifstream input{file};
    if (!input)
        throw kdvfs::Error{kdvfs::Errc::io,
                           {"read a pipeline case", file.string(), "", "give the data's folder"}};
    return json::parse(input);
}

/// The case with these stages of the file, repeated as needed.
Pipeline pipeline(json described, const std::vector<int>& stages, int microbatches) {
    json profiles = json::array();
    for (std::size_t s = 0; s < stages.size(); ++s) {
        const auto rounds = static_cast<double>(s * 7 % 5 * (s / 4));
        const double slower = stages.size() > 8 ? 1 + 0.003 * rounds : 1;
        for (json profile : described["profiles"]) {
            if (profile["stage"] != stages[s]) continue;
            profile["stage"] = s;
            for (json& point : profile["points"])
                for (const std::size_t k : {1U, 2U}) point[k] = point[k].get<double>() * slower;
            profiles.push_back(profile);
        }
    }
    described["profiles"] = profiles;
    described["stages"] = stages.size();
    described["microbatches"] = microbatches;
    return parse_pipeline_case(described.dump(), "bench").pipeline;
}

std::vector<int> first_stages(int count, int of) {
    std::vector<int> stages;
    for (int s = 0; s < count; ++s) stages.push_back(s % of);
    return stages;
}

void time_frontier(const char* name, const Pipeline& made, double max_gap, double allowed) {
    const double begin = cpu_seconds();
    const Frontier frontier{made, {max_gap}};
    const double took = cpu_seconds() - begin;
    std::printf(
        "%-28s %7zu corners (%zu folded)  %8.3f s (allowed %g)  proven gap %.2e  %.6f to %.6f s\n",
        name, frontier.corners().size(), frontier.folded_corners(), took, allowed, frontier.gap(),
        frontier.shortest().count(), frontier.frugal().count());
    std::fflush(stdout);
}

void print_savings(const json& measured, int microbatches, double perseus) {
    const Frontier frontier{pipeline(measured, first_stages(8, 8), microbatches)};
    const kdvfs::Seconds time = frontier.shortest();
    const kdvfs::Joules blocking = frontier.pipeline().blocking_energy(time);
    double top = blocking.count;
    for (const Operation& operation : frontier.pipeline().operations)
        top += to_joules(frontier.pipeline().curves[operation.curve].effective(0)).count;
    const double begin = cpu_seconds();
    const PipelinePlan one = make_plan(frontier, time, Clocks::one);
    const double took = cpu_seconds() - begin;
    const PipelinePlan two = make_plan(frontier, time, Clocks::two);
    const auto saved = [&](kdvfs::Joules energy) { return 100 * (1 - energy.count / top); };
    std::printf(
        "GPT-3 175B, %2d microbatches: bound %.2f %%, one clock %.2f %% (gap %.3f %%, %u switches "
        "of %zu, %.2f s), two clocks %.2f %% (gap %.5f %%); Perseus %.2f %%\n",
        microbatches, saved(one.bound), saved(one.total), 100 * one.gap(), one.switches,
        one.operations.size(), took, saved(two.total), 100 * two.gap(), perseus);
    std::fflush(stdout);
}

/// What a low clock in waits saves of the energy at the shortest time: stages wait at 61 W, which
/// is the idle power of another A100 at 1050 MHz or less (assumption), instead of what was
/// measured.
void print_waits(const json& measured, int microbatches) {
    json lowered = measured;
    lowered["waiting_power_w"] = {{1050, 61}};
    const Frontier plain{pipeline(measured, first_stages(8, 8), microbatches)};
    const Frontier frontier{pipeline(lowered, first_stages(8, 8), microbatches)};
    const double before = plain.total(plain.shortest()).count;
    const auto change = [&](kdvfs::Joules total) { return 100 * (total.count / before - 1); };
    std::printf("GPT-3 175B, %2d microbatches, waits at 61 W: bound %.3f %%", microbatches,
                change(frontier.total(frontier.shortest())));
    for (const double milliseconds : {0., 10.}) {
        PipelinePlan plan = make_plan(frontier, frontier.shortest(), Clocks::two);
        plan_waits(frontier.pipeline(), kdvfs::Seconds{1e-3 * milliseconds}, plan);
        std::printf(", latency %.0f ms %.3f %% (%zu waits)", milliseconds, change(plan.total),
                    plan.waits.size());
    }
    std::printf("\n");
}

void print_switches(const json& measured) {
    const Frontier frontier{pipeline(measured, {0, 7}, 8)};
    const PipelinePlan plan = make_plan(frontier, frontier.shortest(), Clocks::one);
    std::printf("GPT-3 175B, stages 0 and 7 as 2 x 8: %u switches of %zu operations, gap %.3f %%\n",
                plan.switches, plan.operations.size(), 100 * plan.gap());
}

}  // namespace

int main(int argc, char** argv) try {
    const std::filesystem::path folder = argc > 1 ? argv[1] : "../shared/data/perseus";
    const bool small = argc > 2 && std::string{argv[2]} == "small";
    const json synthetic = read(folder / "synthetic_4x8.json");
    const json measured = read(folder / "gpt3_175b_a100.json");
    const auto made = [&](int stages, int microbatches) {
        return pipeline(synthetic, first_stages(stages, 4), microbatches);
    };
    if (!small) {
        time_frontier("16x256, 1e-3", made(16, 256), 1e-3, 15);
        time_frontier("64x512, 1e-2", made(64, 512), 1e-2, 120);
    }
    time_frontier("4x8, exact", made(4, 8), 0, 0.075);
    time_frontier("8x32, exact", made(8, 32), 0, 3);
    time_frontier("8x128, 1e-4", made(8, 128), 1e-4, 4);
    time_frontier("8x128, exact", made(8, 128), 0, 4);
    for (const auto& [microbatches, allowed] : {std::pair{12, 0.04}, {96, 0.3}})
        time_frontier(("GPT-3 175B 8x" + std::to_string(microbatches) + ", exact").c_str(),
                      pipeline(measured, first_stages(8, 8), microbatches), 0, allowed);
    for (const auto& [microbatches, perseus] :
         {std::pair{12, 15.20}, {24, 14.19}, {48, 13.62}, {96, 13.32}})
        print_savings(measured, microbatches, perseus);
    for (const int microbatches : {12, 24, 48, 96}) print_waits(measured, microbatches);
    print_switches(measured);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "pipeline_frontier: %s\n", error.what());
    return 1;
}
