// SPDX-License-Identifier: MIT
#include <kdvfs/detail/train/batch_size_file.hpp>
#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/batch_size.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/text_options.hpp>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cli {

/// `kdvfs batch-size FILE [--sizes 32,64,128 --usual 64 | --run ID ...]`: the batch size of the
/// next run of a recurring job, learned from the outcomes of its runs (`train::BatchSizeFile`).
struct BatchSizeCommand {
    std::string file;
    std::optional<std::string> job;
    std::vector<std::uint32_t> sizes;
    std::uint32_t usual = 0;
    double stop_at = 2;
    std::uint64_t seed = 1;
    std::optional<std::uint64_t> run_id;
    std::string end;
    double epochs = 0;
    double cost = 0;
    std::optional<double> epoch_cost;
    std::optional<double> limit;

    /// @throws Error as `train::BatchSizeFile`, and (invalid_input) for options that do not go
    ///         together
    void run();
};

namespace {

namespace train = kdvfs::train;
using nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, train::RunEnd>, 4> ends{
    {{"reached", train::RunEnd::reached},
     {"stopped", train::RunEnd::stopped},
     {"failed", train::RunEnd::failed},
     {"lost", train::RunEnd::lost}}};

/// JSON has no infinity: no cost at which to stop is null.
ordered_json number_or_null(double value) {
    return std::isfinite(value) ? ordered_json(value) : ordered_json{};
}

ordered_json limit_of(const std::optional<train::EpochProfile>& profile) {
    return profile && profile->limit ? ordered_json(profile->limit->count) : ordered_json{};
}

ordered_json to_json(const train::SuggestedRun& run) {
    return {{"run", run.id},
            {"batch_size", run.batch_size},
            {"power_limit_w", limit_of(run.profile)},
            {"epoch_cost", run.profile ? ordered_json(run.profile->cost) : ordered_json{}},
            {"most_cost", number_or_null(run.most_cost)}};
}

ordered_json to_json(const train::BatchSize& known) {
    ordered_json json{{"best", nullptr},
                      {"least_cost", number_or_null(known.state().least_cost)},
                      {"sizes", ordered_json::array()},
                      {"running", ordered_json::array()}};
    if (const auto best = known.best_known()) json["best"] = *best;
    for (const auto& [size, record] : known.state().sizes) {
        json["sizes"].push_back(
            {{"batch_size", size},
             {"power_limit_w", limit_of(record.profile)},
             {"epoch_cost", record.profile ? ordered_json(record.profile->cost) : ordered_json{}},
             {"epochs_to_target", record.reached},
             {"stopped_after_epochs", record.stopped},
             {"failures", record.failures}});
    }
    for (const auto& [id, run] : known.state().pending)
        json["running"].push_back({{"run", id}, {"batch_size", run.batch_size}});
    return json;
}

}  // namespace

void add_batch_size_command(CLI::App& app) {
    auto command = std::make_shared<BatchSizeCommand>();
    CLI::App* sub = app.add_subcommand(
        "batch-size",
        "Choose the batch size of a recurring job, and learn from each run's outcome");
    sub->footer(
        "Prints JSON. With --sizes: the next run, its batch size and the cost at which to stop it\n"
        "(most_cost; null: never). With --run and --epoch-cost: what an epoch of it costs; prints\n"
        "most_cost anew, 0 where it is to be stopped now. With --run and --end: how it ended. "
        "With\n"
        "the file alone: what is known. Costs are in one unit of your choice, such as joules.");
    sub->add_option("file", command->file, "What is remembered between runs; made where it is not")
        ->required();
    sub->add_option("--job", command->job, "Job and kind of GPU that the file is about");
    CLI::Option* sizes =
        sub->add_option("--sizes", command->sizes, "Batch sizes that may be tried")->delimiter(',');
    sub->add_option("--usual", command->usual, "The one in use, which reaches the target")
        ->needs(sizes);
    sub->add_option("--stop-at", command->stop_at,
                    "Stop a run at this multiple of what the best size costs")
        ->needs(sizes)
        ->capture_default_str();
    sub->add_option("--seed", command->seed, "Of the choice between sizes")
        ->check(seeds())
        ->needs(sizes)
        ->capture_default_str();
    CLI::Option* run =
        sub->add_option("--run", command->run_id, "The run, by its number")->excludes(sizes);
    CLI::Option* epoch_cost =
        sub->add_option("--epoch-cost", command->epoch_cost, "What an epoch of it costs")
            ->needs(run);
    sub->add_option("--limit", command->limit, "The power limit that this is the cost at, W")
        ->needs(epoch_cost);
    CLI::Option* end = sub->add_option("--end", command->end, "How it ended")
                           ->check(CLI::IsMember({"reached", "stopped", "failed", "lost"}))
                           ->needs(run)
                           ->excludes(epoch_cost);
    sub->add_option("--epochs", command->epochs, "That it finished")->needs(end);
    sub->add_option("--cost", command->cost, "Of the whole run")->needs(end);
    sub->callback([command] { command->run(); });
}

void BatchSizeCommand::run() {
    const bool suggests = !sizes.empty();
    std::error_code none;
    const bool is_new = !std::filesystem::exists(file, none);
    if (!suggests && is_new)
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"read batch sizes", file, "there is no such file",
                            "ask for a first run: --sizes 32,64,128 --usual 64"}};
    if (suggests && usual == 0) reject("--usual", "", "give the batch size in use");
    if (run_id && end.empty() && !epoch_cost)
        reject("--run", std::to_string(*run_id), "say --epoch-cost COST, or --end and its figures");
    if (!is_new && (!job || !suggests)) {
        const nlohmann::json json = kdvfs::tune::parse_json(read_input(file).text, file);
        // Of another type it is refused below.
        if (!job && json.is_object() && json.contains("job") && json["job"].is_string())
            job = json["job"].get<std::string>();
        if (!suggests && json.is_object() && json.contains("sizes"))
            for (const auto& [size, record] : json["sizes"].items())
                sizes.push_back(kdvfs::io::parse_number<std::uint32_t>(size).value_or(0));
        if (!suggests && !sizes.empty()) usual = sizes.front();
    }
    train::BatchSizeOptions options;
    options.sizes = sizes;
    options.usual = usual;
    options.stop_at = stop_at;
    options.seed = seed;
    train::BatchSizeFile memory{file, job.value_or(""), options};
    ordered_json answer;
    if (suggests) {
        answer = to_json(memory.suggest());
    } else if (epoch_cost) {
        train::EpochProfile profile{std::nullopt, *epoch_cost};
        if (limit) profile.limit = kdvfs::Watts{*limit};
        answer = {{"run", *run_id},
                  {"most_cost", number_or_null(memory.profiled(*run_id, profile))}};
    } else {
        if (run_id) {
            for (const auto& [name, value] : ends)
                if (end == name) memory.observe(*run_id, {value, epochs, cost});
        }
        answer = to_json(memory.read());
    }
    write("-", answer.dump(1) + '\n');
}

}  // namespace cli
