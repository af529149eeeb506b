// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/node_power.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/text_options.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <examples/gpt3_xl/node.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs node-power REPORT.json...`: what moving watts between the GPUs of a node would give, from
/// what their ranks measured; `kdvfs node-power --device sim:NAME`: moves them on a simulated node.
struct NodePowerCommand {
    std::vector<std::string> reports;
    std::string device;
    std::size_t gpus = 8;
    std::string slower = "6%";
    double cap = 0;  ///< W; 0: what the GPUs draw, or 85 % of their highest limits
    double highest = 0;
    std::string goal = "speed";
    std::uint64_t iterations = 300;
    std::string output;

    /// @throws Error (invalid_input) for options that make no sense and reports that do not say
    /// what
    ///         an iteration took, (io) where a file cannot be read or written
    void run() const;

private:
    [[nodiscard]] std::string forecast() const;
    [[nodiscard]] std::string simulate() const;
};

namespace {

namespace train = kdvfs::train;
using kdvfs::Seconds;
using kdvfs::Watts;
using kdvfs::io::format_text;

/// A GPU of a node, and one of its iterations.
struct MeasuredGpu {
    std::string name;
    train::GpuIteration iteration;
    std::string host{};
};

/// Whether a kernel of this name waits for other GPUs: those of NCCL and RCCL have both words.
bool is_collective(std::string name) {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name.find("nccl") != std::string::npos || name.find("rccl") != std::string::npos;
}

/// @param file that the report is from
MeasuredGpu measured_gpu(const nlohmann::json& report, const std::string& file) {
    const auto refuse = [&](const char* why, const char* remedy) {
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"find what an iteration takes", file, why, remedy}};
    };
    double runs = 0;
    double iteration = 0;
    for (const auto& level : report["levels"])
        if (level["level"] == "iteration") {
            runs = level["runs"].get<double>();
            iteration = level["time_s"].get<double>() / std::max(runs, 1.0);
        }
    if (runs < 1)
        refuse("it has no metered iteration",
               "run for longer, or name the range that is one "
               "(kdvfs run --iteration)");
    double time = 0;
    double energy = 0;
    double resolved = 0;
    for (const auto& row : report["rows"]) {
        if (is_collective(row["kernel"].get<std::string>())) continue;
        time += row["time_s"].get<double>();
        if (row["energy"]["status"] != "resolved") continue;
        energy += row["energy"]["joules"].get<double>();
        resolved += row.value("counted_time_s", row["time_s"].get<double>());
    }
    if (resolved < 0.5 * time || !(energy > 0))
        refuse("the energy of its kernels is not resolved", "run for longer");
    const Seconds compute{time / runs};
    return {report["device"]["address"].get<std::string>(),
            {compute, std::max(Seconds{iteration} - compute, Seconds{0}), {energy / resolved}, {}}};
}

std::vector<MeasuredGpu> read_gpus(const std::vector<std::string>& files) {
    std::vector<MeasuredGpu> gpus;
    for (const std::string& file : files) {
        for (const nlohmann::json& process : read_run_report(file)) {
            for (const nlohmann::json& device : process["devices"]) {
                gpus.push_back(measured_gpu(device["report"], file));
                const std::string rank = process["rank"].get<std::string>();
                if (!rank.empty()) gpus.back().name += ", rank " + rank;
                gpus.back().host = process.value("host", "");
            }
        }
    }
    return gpus;
}

/// Of several nodes under one cap: what each gives or takes, and what moving watts within the nodes
/// alone would give. Empty for one node.
/// @param found for all GPUs
std::string rack_text(const std::vector<MeasuredGpu>& gpus,
                      const std::vector<train::GpuIteration>& iterations,
                      const std::vector<kdvfs::PowerRange>& ranges,
                      const train::NodeForecast& found) {
    std::map<std::string, std::vector<std::size_t>> nodes;
    for (std::size_t i = 0; i < gpus.size(); ++i) nodes[gpus[i].host].push_back(i);
    if (nodes.size() < 2) return "";
    std::string text;
    Seconds longest{0};
    Seconds apart{0};  // of all nodes, each with its own watts
    for (const auto& [host, members] : nodes) {
        std::vector<train::GpuIteration> own;
        std::vector<kdvfs::PowerRange> own_ranges;
        double drawn = 0;  // W
        double speed = 0;
        double power = 0;
        Seconds slowest{0};
        for (const std::size_t i : members) {
            own.push_back(iterations[i]);
            own.back().waited = Seconds{0};
            own_ranges.push_back(ranges[i]);
            drawn += iterations[i].power.count;
            speed += found.speed[i].count;
            power += found.power[i].count;
            slowest = std::max(slowest, iterations[i].compute);
        }
        longest = std::max(longest, slowest);
        apart = std::max(apart, slowest / (1 + train::forecast_node(own, own_ranges).faster));
        text += format_text("node %s: %zu GPUs, %.1f W; %.1f W for speed, %.1f W for power\n",
                            host.c_str(), members.size(), drawn, speed, power);
    }
    Seconds waited = iterations.front().waited;
    for (const auto& each : iterations) waited = std::min(waited, each.waited);
    return text + format_text("watts moved within each node alone: %+.2f %% speed\n",
                              100 * std::max(0.0, (longest + waited) / (apart + waited) - 1));
}

}  // namespace

void add_node_power_command(CLI::App& app) {
    auto command = std::make_shared<NodePowerCommand>();
    CLI::App* sub = app.add_subcommand(
        "node-power", "Say what moving watts between the GPUs of a node or rack would give");
    sub->footer(
        "The GPUs of a job wait once an iteration for the slowest, which is often the hottest.\n"
        "From reports of their ranks this predicts what power limits that differ would give, and\n"
        "sets nothing; kernels of NCCL and RCCL count as waiting. Reports of several nodes count\n"
        "as those of a rack under one cap. Programs move watts by train::NodePowerGuard.");
    sub->add_option("reports", command->reports,
                    "Reports of all ranks that kdvfs run wrote as .json");
    sub->add_option("--device", command->device, "sim:NAME, instead of reports");
    sub->add_option("--gpus", command->gpus, "With --device: GPUs of the node")
        ->check(CLI::Range(2, 64))
        ->capture_default_str();
    sub->add_option("--slower", command->slower,
                    "With --device: how much lower the last GPU's clock is at the same watts")
        ->capture_default_str();
    sub->add_option("--cap", command->cap,
                    "With --device: watts of all limits together; default: 85% of the highest")
        ->check(watts_range());
    sub->add_option("--highest", command->highest,
                    "With reports: the highest limit of a GPU in watts; default: none")
        ->check(finite_range(1, 1e5));
    sub->add_option("--goal", command->goal,
                    "With --device: speed (at the same cap) or power (at the same speed)")
        ->check(CLI::IsMember({"speed", "power"}))
        ->capture_default_str();
    sub->add_option("--iterations", command->iterations, "With --device: iterations to simulate")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{10'000}))
        ->capture_default_str();
    sub->add_option("-o,--output", command->output, "File to write instead of printing");
    sub->callback([command, sub] {
        if (command->device.empty())
            for (const char* option : {"--gpus", "--slower", "--cap", "--goal", "--iterations"})
                refuse_without_effect(*sub, option, "without --device");
        else
            refuse_without_effect(*sub, "--highest", "with --device");
        command->run();
    });
}

void NodePowerCommand::run() const {
    if (reports.empty() == device.empty())
        reject("--device", device, "give reports of a node's ranks, or --device sim:NAME");
    write(output, device.empty() ? forecast() : simulate());
}

std::string NodePowerCommand::forecast() const {
    const std::vector<MeasuredGpu> measured = read_gpus(reports);
    std::vector<train::GpuIteration> each_once;
    std::vector<kdvfs::PowerRange> ranges;
    std::size_t width = 3;
    for (const MeasuredGpu& gpu : measured) {
        each_once.push_back(gpu.iteration);
        const Watts drawn = gpu.iteration.power;
        ranges.push_back(
            {drawn * 0.1, highest > 0 ? Watts{std::max(highest, drawn.count)} : drawn * 10.0});
        width = std::max(width, gpu.name.size());
    }
    if (measured.size() < 2)
        throw kdvfs::Error{
            kdvfs::Errc::invalid_input,
            {"predict what moving watts would give", std::to_string(measured.size()) + " GPUs",
             "none waits for another", "give the reports of all ranks of the node"}};
    const train::NodeForecast found = train::forecast_node(each_once, ranges);
    std::string text = format_text("%-*s %11s %11s %9s %11s %11s\n", static_cast<int>(width), "GPU",
                                   "compute", "waits", "power", "for speed", "for power");
    for (std::size_t i = 0; i < measured.size(); ++i) {
        const train::GpuIteration& each = each_once[i];
        text += format_text("%-*s %8.2f ms %8.2f ms %7.1f W %9.1f W %9.1f W%s\n",
                            static_cast<int>(width), measured[i].name.c_str(),
                            1e3 * each.compute.count(), 1e3 * each.waited.count(), each.power.count,
                            found.speed[i].count, found.power[i].count,
                            i == found.slowest ? "  the slowest" : "");
    }
    text += rack_text(measured, each_once, ranges, found);
    text += format_text(
        "watts moved: %+.2f %% speed at the same watts, or %+.2f %% watts at the same "
        "speed\n",
        100 * found.faster, -100 * found.saved);
    return text +
           "assumed: watts as clock^2.2, and all compute time follows the clock: an upper end\n"
           "nothing was set; temperatures are not in these reports\n";
}

std::string NodePowerCommand::simulate() const {
    const auto each = device.starts_with("sim:") ? gpt3::find_case(device.substr(4)) : std::nullopt;
    if (!each) reject("--device", device, "give sim: and " + gpt3::list_of_cases());
    const double share = parse_percent("--slower", slower, 50);
    std::cerr << each->board.name << ": " << each->board.accuracy << '\n';
    const gpt3::Node node{*each, gpus, share};
    const Watts top = each->board.power_cap;
    const kdvfs::PowerRange range{top * 0.4, top};  // as simulated::Device's
    train::NodePowerOptions options;
    options.cap = cap > 0 ? Watts{cap} : top * (0.85 * static_cast<double>(gpus));
    options.goal = goal == "speed" ? train::NodeGoal::speed : train::NodeGoal::power;
    const Watts found = std::min(options.cap * (1 / static_cast<double>(gpus)), top);
    if (found < range.low)
        reject("--cap", kdvfs::io::to_text(cap), "give more than the lowest limits together");
    train::NodePower power{std::vector<train::NodeGpu>(gpus, train::NodeGpu{range, found}),
                           options};
    std::vector<Watts> limits(gpus, found);
    const auto before = node.iterate(limits);
    double highest_sum = found.count * static_cast<double>(gpus);
    for (std::uint64_t i = 0; i < iterations; ++i) {
        const auto now = node.iterate(limits);
        power.add_iteration(
            std::vector<std::optional<train::GpuIteration>>{now.begin(), now.end()});
        while (const auto next = power.next_write()) {
            limits[next->gpu] = next->limit;
            power.written(next->limit);
            double sum = 0;
            for (const Watts limit : limits) sum += limit.count;
            highest_sum = std::max(highest_sum, sum);
        }
    }
    const auto after = node.iterate(limits);
    std::string text =
        format_text(
            "simulated: %zu x %s, GPT-3-XL on each; the last one's clock is %.3g %% lower at "
            "%g W\n",
            gpus, each->board.name.c_str(), 100 * share, top.count) +
        "GPU      compute       limit     compute       limit\n";
    double sum = 0;
    for (std::size_t i = 0; i < gpus; ++i) {
        sum += limits[i].count;
        text += format_text("%3zu  %8.2f ms  %8.1f W %8.2f ms  %8.1f W\n", i,
                            1e3 * before[i].compute.count(), found.count,
                            1e3 * after[i].compute.count(), limits[i].count);
    }
    const auto length = [](const auto& all) { return all[0].compute + all[0].waited; };
    return text +
           format_text("%+.2f %% speed, %+.2f %% watts of all limits; at most %.1f of %.1f W\n",
                       100 * (length(before) / length(after) - 1),
                       100 * (sum / (found.count * static_cast<double>(gpus)) - 1), highest_sum,
                       options.cap.count);
}

}  // namespace cli
