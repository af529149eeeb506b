// SPDX-License-Identifier: MIT
//
// against_milp CASE.json MICROBATCHES SECONDS [cold]
// against_milp made-up COUNT SECONDS [cold]
// How far plans of one clock an operation are above the best that a mixed-integer program finds:
// CBC (Debian: coinor-cbc), which begins with the plan unless it is to begin `cold`.
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/train/schedules.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kdvfs::train;
namespace fs = std::filesystem;

Pipeline read(const fs::path& file, int microbatches) {
    std::ifstream input{file};
    nlohmann::json described = nlohmann::json::parse(input);
    described["microbatches"] = microbatches;
    return parse_pipeline_case(described.dump(), file.string()).pipeline;
}

/// A measured point that an operation may run at.
struct Choice {
    std::string name;
    double time;
    double joules;
    kdvfs::ClockPoint clock;
};

/// Those that no other point beats in time and effective energy, by operation.
std::vector<std::vector<Choice>> choices_of(const Pipeline& pipeline) {
    std::vector<std::vector<Choice>> all;
    for (std::size_t i = 0; i < pipeline.operations.size(); ++i) {
        const Curve& curve = pipeline.curves[pipeline.operations[i].curve];
        std::vector<Choice>& choices = all.emplace_back();
        for (std::size_t p = 0; p < curve.points().size(); ++p) {
            const double time = curve.points()[p].time.count();
            const double joules = to_joules(curve.effective(p)).count;
            bool beaten = false;
            for (std::size_t q = 0; q < curve.points().size(); ++q) {
                const double other = curve.points()[q].time.count();
                const double less = to_joules(curve.effective(q)).count;
                beaten = beaten || (other <= time && less <= joules &&
                                    (other < time || less < joules || q < p));
            }
            if (!beaten)
                choices.push_back({"x" + std::to_string(i) + "_" + std::to_string(p), time, joules,
                                   curve.points()[p].clock});
        }
    }
    return all;
}

void write_model(const Pipeline& pipeline, const std::vector<std::vector<Choice>>& choices,
                 double length, const fs::path& file) {
    std::ofstream out{file};
    out << std::setprecision(15) << "Minimize\n obj:";
    for (const auto& operation : choices)
        for (const Choice& each : operation) out << "\n + " << each.joules << ' ' << each.name;
    out << "\nSubject To\n";
    for (std::size_t i = 0; i < choices.size(); ++i) {
        out << " one" << i << ':';
        for (const Choice& each : choices[i]) out << " + " << each.name;
        out << " = 1\n end" << i << ": s" << i;
        for (const Choice& each : choices[i]) out << " + " << each.time << ' ' << each.name;
        out << " <= " << length << '\n';
    }
    for (std::size_t d = 0; d < pipeline.dependencies.size(); ++d) {
        const Dependency& dependency = pipeline.dependencies[d];
        out << " after" << d << ": s" << dependency.then << " - s" << dependency.first;
        for (const Choice& each : choices[dependency.first])
            out << " - " << each.time << ' ' << each.name;
        out << " >= " << dependency.time.count() << '\n';
    }
    out << "Binary\n";
    for (const auto& operation : choices)
        for (const Choice& each : operation) out << ' ' << each.name << '\n';
    out << "End\n";
}

void write_start(const PipelinePlan& plan, const std::vector<std::vector<Choice>>& choices,
                 const fs::path& file) {
    std::ofstream out{file};
    out << "Stopped on time - objective value " << plan.effective.count << '\n';
    int row = 0;
    for (std::size_t i = 0; i < choices.size(); ++i)
        for (const Choice& each : choices[i])
            if (each.clock == plan.operations[i].clocks.first)
                out << row++ << ' ' << each.name << " 1 0\n";
}

/// Seconds and joules of the choices that a solution has, reckoned anew.
struct Checked {
    double time = 0;
    double effective = 0;
};
Checked check(const Pipeline& pipeline, const std::vector<std::vector<Choice>>& choices,
              const fs::path& solution) {
    std::ifstream input{solution};
    std::string text{std::istreambuf_iterator<char>{input}, {}};
    std::istringstream lines{text};
    std::vector<const Choice*> chosen(choices.size(), nullptr);
    Checked found;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields{line};
        std::string index, name;
        double value = 0;
        if (!(fields >> index >> name >> value) || name.front() != 'x' || value < 0.5) continue;
        for (std::size_t i = 0; i < choices.size(); ++i)
            for (const Choice& each : choices[i])
                if (each.name == name) chosen[i] = &each;
    }
    std::vector<double> end(choices.size(), 0);
    std::vector<double> start(choices.size(), 0);
    for (const std::uint32_t i : pipeline.topological_order) {
        if (chosen[i] == nullptr) throw std::runtime_error{"the solver has found no plan"};
        for (const Dependency& each : pipeline.dependencies)
            if (each.then == i) start[i] = std::max(start[i], end[each.first] + each.time.count());
        end[i] = start[i] + chosen[i]->time;
        found.time = std::max(found.time, end[i]);
        found.effective += chosen[i]->joules;
    }
    return found;
}

/// Stages, clocks (12 to 73) and curves drawn from ranges, 4 x 8 to 8 x 32.
Pipeline made_up(std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::uniform_real_distribution<double> uniform;
    PipelineShape shape;
    shape.stages = random() % 2 == 0 ? 4 : 8;
    shape.microbatches = static_cast<std::uint32_t>(8 + random() % 25);
    const auto clocks = static_cast<std::uint32_t>(12 + random() % 62);
    const double lowest = 0.4 + 0.3 * uniform(random);  // of the highest clock
    const double noise = random() % 2 == 0 ? 0 : 0.005;
    const kdvfs::Watts blocking{60 + 60 * uniform(random)};
    CurveIndex index;
    std::vector<Curve> curves;
    for (std::uint32_t s = 0; s < shape.stages; ++s)
        for (const Pass pass : {Pass::forward, Pass::backward}) {
            const double work = (pass == Pass::forward ? 0.05 : 0.1) * (1 + 0.25 * uniform(random));
            const double fixed = 0.1 + 0.4 * uniform(random);
            const double exponent = 1.5 + uniform(random);
            std::vector<CurvePoint> points;
            for (std::uint32_t k = 0; k < clocks; ++k) {
                const double share = 1 - (1 - lowest) * k / (clocks - 1.0);
                const double seconds =
                    work * (fixed + (1 - fixed) / share) * (1 + noise * uniform(random));
                const double time = std::round(seconds * 1e9) / 1e9;  // as plans count it
                const double watts = 110 + 280 * std::pow(share, exponent);
                points.push_back({{kdvfs::Megahertz{static_cast<std::uint32_t>(2000 * share)},
                                   kdvfs::auto_clock},
                                  kdvfs::Seconds{time},
                                  kdvfs::Joules{watts * time * (1 + 4 * noise * uniform(random))}});
            }
            index[{s, pass, 0}] = static_cast<std::uint32_t>(curves.size());
            curves.emplace_back("made up", points, blocking);
        }
    std::printf("%u stages, %u clocks, ", shape.stages, clocks);
    return make_pipeline(shape, index, std::move(curves), blocking);
}

/// Prints both plans. @returns how far ours is above theirs, as a share
double compare(const Pipeline& pipeline, const std::string& microbatches, int seconds, bool cold) {
    const std::clock_t begin = std::clock();
    const Frontier frontier{pipeline};
    const PipelinePlan plan = make_plan(frontier, frontier.shortest(), Clocks::one);
    const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    const auto choices = choices_of(pipeline);
    const fs::path folder = fs::temp_directory_path();
    const std::string stem = "kdvfs_milp_" + microbatches;
    const fs::path model = folder / (stem + ".lp"), start = folder / (stem + ".start"),
                   solution = folder / (stem + ".solution");
    write_model(pipeline, choices, plan.time.count(), model);
    write_start(plan, choices, start);
    const std::string command = "cbc " + model.string() + (cold ? "" : " mips " + start.string()) +
                                " sec " + std::to_string(seconds) +
                                " timeMode elapsed solve solution " + solution.string() + " > " +
                                (folder / (stem + ".log")).string();
    if (std::system(command.c_str()) != 0) throw std::runtime_error{"cbc failed: " + command};
    const Checked best = check(pipeline, choices, solution);
    const double theirs = pipeline.blocking_energy(plan.time).count + best.effective;
    const double above = plan.total.count / theirs - 1;
    std::printf(
        "%s microbatches: plan %.3f J in %.3f s (bound %.3f s, %s; %.2f s of CPU to make), gap to "
        "the exact frontier %.3f %%; CBC, %d s%s: %.3f J in %.3f s; the plan is %+.4f %% above "
        "it\n",
        microbatches.c_str(), plan.total.count, plan.makespan.count(), frontier.shortest().count(),
        plan.makespan <= frontier.shortest() ? "kept" : "EXCEEDED", took, 100 * plan.gap(), seconds,
        cold ? ", cold" : ", from the plan", theirs, best.time, 100 * above);
    std::fflush(stdout);
    return above;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc < 4)
        throw std::runtime_error{"give CASE.json MICROBATCHES SECONDS [cold], or made-up COUNT..."};
    const int seconds = std::atoi(argv[3]);
    const bool cold = argc > 4 && std::string{argv[4]} == "cold";
    if (std::string{argv[1]} != "made-up") {
        compare(read(argv[1], std::atoi(argv[2])), argv[2], seconds, cold);
        return 0;
    }
    double sum = 0;
    double worst = 0;
    const int count = std::atoi(argv[2]);
    for (int seed = 1; seed <= count; ++seed) {
        const Pipeline pipeline = made_up(static_cast<std::uint64_t>(seed));
        const double above =
            compare(pipeline, std::to_string(pipeline.microbatches), seconds, cold);
        sum += above;
        worst = std::max(worst, above);
    }
    std::printf("%d made-up cases: %+.4f %% above CBC's plans on average, worst %+.4f %%\n", count,
                100 * sum / count, 100 * worst);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "against_milp: %s\n", error.what());
    return 1;
}
