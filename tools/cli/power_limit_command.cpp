// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/train/owned_power_limit.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/power_limit.hpp>
#include <kdvfs/tune/profile.hpp>
#include <tools/cli/attached_program.hpp>
#include <tools/cli/board_choice.hpp>
#include <tools/cli/child_process.hpp>
#include <tools/cli/command_run.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/dry_run.hpp>
#include <tools/cli/iteration_windows.hpp>
#include <tools/cli/nvidia_boards.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/program_runs.hpp>
#include <tools/cli/program_words.hpp>
#include <tools/cli/temporary_folder.hpp>
#include <tools/cli/text_options.hpp>

#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <examples/gpt3_xl/boards.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace cli {

/// `kdvfs power-limit [--goal cost:0.5] -- COMMAND...`: the search over power limits of You, Chung
/// and Chowdhury (Zeus, NSDI 2023), with a run of the program at each limit, within one run by its
/// iterations (`--window 40`), or on a simulated board.
struct PowerLimitCommand {
    std::vector<std::string> command;
    std::string device;
    std::string gpu = "auto";
    std::string counter;
    std::string goal = "cost:0.5";
    double step = 25;
    std::string timeout;
    std::uint64_t window = 0;  ///< iterations; 0: whole runs
    AttachOptions attach;
    std::string format = "table";
    std::string output;
    bool dry_run = false;

    /// @throws Error (invalid_input) for options that make no sense, (not_supported) where there is
    ///         no such board or counter, (refused) without the right to set the limit, (busy) where
    ///         another process owns it
    void run() const;
};

namespace {

namespace amd = kdvfs::device::amd;
namespace train = kdvfs::train;
using kdvfs::Watts;

/// A board whose power limit can be searched for.
struct LimitedBoard {
    std::string name;
    std::string address;  ///< empty for a simulated one
    std::unique_ptr<train::BoardPowerLimit> limit;
};

/// A simulated board, which has done nothing yet.
struct SimulatedLimit {
    Watts held;
    kdvfs::PowerRange range;
    [[nodiscard]] Watts read_power_limit() const { return held; }
    [[nodiscard]] kdvfs::PowerRange power_limit_range() const { return range; }
    void set_power_limit(Watts limit) { held = limit; }
};

/// What the search found.
struct FoundLimit {
    std::string board;
    Watts as_found{};
    kdvfs::PowerRange range{};
    kdvfs::tune::Cost cost_as_found;
    std::vector<train::LimitWindow> measured;
    train::LimitWindow best{};
    bool complete = false;  ///< else the program ended first
};

train::LimitChoice parse_goal(const std::string& text) {
    if (text == "energy") return train::LimitChoice::energy();
    if (text == "time") return train::LimitChoice::time();
    if (text.starts_with("slowdown:"))
        return train::LimitChoice::bounded_slowdown(
            parse_percent("--goal", text.substr(9), most_slowdown_pct));
    if (text.starts_with("cost:")) {
        const auto eta = kdvfs::io::parse_number<double>(std::string_view{text}.substr(5));
        if (eta && *eta >= 0 && *eta <= 1) return train::LimitChoice::cost(*eta);
    }
    reject("--goal", text, "give energy, time, slowdown:5% or cost:ETA with ETA from 0 to 1");
}

/// The AMD boards that have a power limit, then the NVIDIA ones, by PCI address.
std::vector<std::pair<std::string, bool>> limited_boards() {
    std::vector<std::pair<std::string, bool>> boards;
    for (const amd::Card& card : amd::find_cards())
        if (!card.secondary_die) boards.emplace_back(to_string(card.address), true);
    for (const std::string& address : nvidia_addresses()) boards.emplace_back(address, false);
    return boards;
}

/// @param which as `choose_board`
std::pair<std::string, bool> choose_limited_board(const std::string& which) {
    const auto boards = limited_boards();
    std::vector<std::string> addresses;
    for (const auto& board : boards) addresses.push_back(board.first);
    return boards[choose_board(addresses, which, "search for a power limit", "there is no GPU here",
                               "name one with --gpu, or try --device sim:mi300x")];
}

kdvfs::device::NvmlOptions nvml_options() {
    return {.access = kdvfs::device::ClockAccess::set, .library = nvml_library()};
}

template <class Device, class... Arguments>
LimitedBoard open_board(const Arguments&... arguments) {
    const kdvfs::DeviceInfo info = Device{arguments...}.info();
    return {to_string(info), info.address,
            std::make_unique<train::OwnedBoardPowerLimit<Device>>(arguments...)};
}

LimitedBoard open_board(const std::pair<std::string, bool>& board) {
    if (board.second)
        return open_board<amd::SysfsPowerLimit>(
            amd::find_card(*kdvfs::io::parse_pci_address(board.first)));
    return open_board<kdvfs::device::NvmlPowerLimit>(board.first, nvml_options());
}

/// Microwatts, as hwmon takes them.
std::string microwatts(Watts limit) { return std::to_string(std::llround(limit.count * 1e6)); }

std::string watts(Watts limit) { return kdvfs::io::format_text("%g W", limit.count); }

/// What would be written, for a search that may try each of its limits.
PlannedWrites planned_writes(const std::pair<std::string, bool>& board, Watts step,
                             const train::LimitChoice& choice) {
    PlannedWrites planned;
    const auto describe = [&](auto&& device, const auto& write_text, const auto& undo) {
        const Watts found = device.read_power_limit();
        const train::LimitSearch search{device.power_limit_range(), step, choice};
        planned.board = to_string(device.info());
        planned.holds = watts(found);
        for (const Watts limit : search.limits()) planned.writes.push_back(write_text(limit));
        planned.restore = {write_text(found)};
        planned.by_hand = {undo(found)};
    };
    if (board.second) {
        const amd::SysfsPowerLimit device{
            amd::find_card(*kdvfs::io::parse_pci_address(board.first))};
        const std::string file = device.restore_script().arguments.front();
        describe(
            device, [&](Watts limit) { return file + ": " + microwatts(limit); },
            [&](Watts found) { return "echo " + microwatts(found) + " > " + file; });
        planned.rights = rights_on(file);
    } else {
        const kdvfs::device::NvmlPowerLimit device{board.first, nvml_options()};
        describe(
            device,
            [](Watts limit) {
                return "nvmlDeviceSetPowerManagementLimit(" +
                       std::to_string(std::llround(limit.count * 1e3)) + ")";
            },
            [&](Watts found) {
                return "nvidia-smi -i " + board.first +
                       kdvfs::io::format_text(" -pl %.3f", found.count);
            });
        planned.rights = "needs root with CAP_SYS_ADMIN";
    }
    return planned;
}

/// Measures at the limit that was found, then at each that the search asks for, and leaves the last
/// of them set.
/// @param measure what the same work takes under the limit that is set; nothing ends the search
FoundLimit search(LimitedBoard& board, Watts step, const train::LimitChoice& choice,
                  const std::function<std::optional<kdvfs::tune::Cost>()>& measure) {
    FoundLimit found{board.name, board.limit->found(), board.limit->range(), {}, {}, {}};
    train::LimitSearch search{found.range, step, choice};
    const auto run = [&](Watts limit) {
        const auto cost = measure();
        if (cost)
            std::fprintf(stderr, "kdvfs: %s: %.4g s, %.4g J\n", watts(limit).c_str(),
                         cost->time.count(), cost->energy.count);
        return cost;
    };
    const auto as_found = run(found.as_found);
    if (!as_found) return found;
    found.cost_as_found = *as_found;
    while (const auto limit = search.next()) {
        board.limit->set(*limit);
        const auto cost = run(*limit);
        if (!cost) break;
        search.add({*limit, cost->energy, cost->time});
    }
    found.complete = !search.next();
    found.measured = search.windows();
    if (found.measured.empty()) return found;
    for (const train::LimitWindow& window : found.measured)
        if (window.limit == *search.best()) found.best = window;
    return found;
}

/// @param status of a program, as waitpid has it
int exit_code_of(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// After an error: the program, which may run for long, goes on at the limit that was found.
void end_search(LimitedBoard& board, const std::exception& error) {
    std::fprintf(stderr, "kdvfs: the search has ended, the program goes on: %s\n", error.what());
    try {
        board.limit->close();
    } catch (const std::exception& left) {
        std::fprintf(stderr, "kdvfs: %s\n", left.what());
    }
}

/// The search within one run, whose rest is at the best limit.
/// @returns what was found, and how the program ended, as waitpid has it
std::pair<FoundLimit, int> search_within(const PowerLimitCommand& options, LimitedBoard& board,
                                         const std::string& counter,
                                         const train::LimitChoice& choice) {
    const TemporaryFolder folder;
    const DeviceCounter energy = open_counter(counter);
    IterationWindows windows{folder.path, board.address, energy};
    FoundLimit found;
    std::exception_ptr failure;
    const ChildProcess program{options.command,
                               environment_with(options.attach.variables(folder.path))};
    std::thread searcher{[&] {
        try {
            found = search(board, {options.step}, choice,
                           [&] { return windows.measure(options.window); });
            if (found.complete) board.limit->set(found.best.limit);
        } catch (const std::exception& error) {
            failure = std::current_exception();
            end_search(board, error);
        }
    }};
    const int status = program.wait();
    windows.stop();
    searcher.join();
    board.limit->close();
    if (failure && status != 0) throw CLI::RuntimeError{exit_code_of(status)};
    if (failure) std::rethrow_exception(failure);
    if (found.measured.empty())
        throw kdvfs::Error{kdvfs::Errc::timed_out,
                           {"search for a power limit", options.command.front(),
                            "it ended before its iterations were measured at one",
                            "make it run longer, give a smaller --window, or name the range that "
                            "is an iteration (--iteration)"}};
    if (!found.complete)
        std::fprintf(stderr, "kdvfs: the program ended before the search: let it run longer\n");
    return {found, status};
}

double change_pct(double now, double before) { return 100 * (now / before - 1); }

std::string to_text(const FoundLimit& found) {
    const auto row = [&](const train::LimitWindow& window) {
        return kdvfs::io::format_text(
            "%10s %+9.2f %% %+9.2f %%%s\n", watts(window.limit).c_str(),
            change_pct(window.time.count(), found.cost_as_found.time.count()),
            change_pct(window.energy.count, found.cost_as_found.energy.count),
            window.limit == found.best.limit ? "  best" : "");
    };
    std::string text = found.board + ": power limit " + watts(found.as_found) +
                       " as found, which is restored; " + watts(found.range.low) + " to " +
                       watts(found.range.high) + "\n     limit        time      energy\n";
    for (const train::LimitWindow& window : found.measured) text += row(window);
    return text;
}

std::string to_json(const FoundLimit& found, const std::string& goal) {
    using nlohmann::ordered_json;
    ordered_json limits{{"gpu", found.board},
                        {"goal", goal},
                        {"best_w", found.best.limit.count},
                        {"complete", found.complete},
                        {"found_w", found.as_found.count},
                        {"range_w", {found.range.low.count, found.range.high.count}},
                        {"as_found",
                         {{"time_s", found.cost_as_found.time.count()},
                          {"energy_j", found.cost_as_found.energy.count}}},
                        {"measured", ordered_json::array()}};
    for (const train::LimitWindow& window : found.measured)
        limits["measured"].push_back({{"limit_w", window.limit.count},
                                      {"time_s", window.time.count()},
                                      {"energy_j", window.energy.count}});
    return limits.dump(1) + '\n';
}

/// One iteration of GPT-3-XL on a simulated board, at any limit.
FoundLimit search_simulated(const std::string& preset, Watts step,
                            const train::LimitChoice& choice) {
    auto found = gpt3::find_case(preset);
    if (!found)
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"open a simulated GPU", preset, "there is no such preset",
                            "take " + gpt3::list_of_cases()}};
    std::cerr << found->board.name << ": " << found->board.accuracy << '\n';
    const Watts highest = found->board.power_cap;
    SimulatedLimit device{highest, {highest * 0.4, highest}};  // as simulated::Device's
    LimitedBoard board{"simulated " + found->board.name, "",
                       std::make_unique<train::GuardedPowerLimit<SimulatedLimit>>(device)};
    return search(board, step, choice, [&] {
        kdvfs::simulated::Board limited = found->board;
        limited.power_cap = device.held;
        kdvfs::tune::Cost sum{};
        for (std::size_t entry = 0; entry < gpt3::kernel_count; ++entry) {
            const auto point = kdvfs::simulated::operate(limited, found->kernels[entry], {});
            const double repeats = gpt3::published_table[entry].repeats;
            sum.time += point.time * repeats;
            sum.energy += point.power * point.time * repeats;
        }
        return std::optional{sum};
    });
}

}  // namespace

void add_power_limit_command(CLI::App& app) {
    auto command = std::make_shared<PowerLimitCommand>();
    CLI::App* sub = app.add_subcommand(
        "power-limit", "Find the best power limit for a program, by running it at several");
    sub->footer(
        "Setting a power limit needs root, or the driver's file for this user. The limit that was\n"
        "found is restored at the end, and by a watchdog if kdvfs is killed. Make runs short, an\n"
        "epoch or less; several seconds are needed. With --window the search is within one run,\n"
        "whose rest is at the best limit; exit status 3: the run ended before the search.");
    add_program(*sub, "command", command->command, "After --: the program and its arguments");
    sub->add_option("--device", command->device, "sim:NAME, instead of a program");
    sub->add_option("--gpu", command->gpu, "PCI address; auto: the only one")
        ->capture_default_str();
    sub->add_option("--goal", command->goal,
                    "energy, time, slowdown:5%, or cost:ETA, Zeus' ETA * energy + (1 - ETA) * "
                    "highest limit * time")
        ->capture_default_str();
    sub->add_option("--step", command->step, "Watts between two limits")->capture_default_str();
    sub->add_option("--counter", command->counter,
                    "What counts the program's energy: a GPU's PCI address, hwmon:FILE "
                    "(microjoules), program: it reports its own; else that of --gpu");
    CLI::Option* timeout =
        sub->add_option("--timeout", command->timeout, "What a run may take, such as 30min");
    sub->add_option("--window", command->window,
                    "Search within one run, which is attached to: iterations to measure at each "
                    "limit, such as 100; several seconds of them")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}))
        ->excludes(timeout);
    command->attach.add_to(*sub);
    sub->add_option("--format", command->format, "Output")
        ->check(CLI::IsMember({"table", "json"}))
        ->capture_default_str();
    sub->add_option("-o,--output", command->output, "File to write instead of printing");
    sub->add_flag("--dry-run", command->dry_run, "Say what would be written, and write nothing");
    sub->callback([command, sub] {
        if (!command->device.empty())
            for (const char* option : {"--gpu", "--counter", "--timeout", "--window", "--dry-run"})
                refuse_without_effect(*sub, option, "with --device");
        command->run();
    });
}

void PowerLimitCommand::run() const {
    const train::LimitChoice choice = parse_goal(goal);
    if (command.empty() == device.empty() && !dry_run)
        reject("command", device, "give a program after --, or --device sim:NAME");
    if (!dry_run) refuse_unwritable(output);
    FoundLimit found;
    int status = 0;
    if (!device.empty()) {
        if (!device.starts_with("sim:")) reject("--device", device, "give sim:NAME");
        found = search_simulated(device.substr(4), {step}, choice);
    } else {
        const auto chosen = choose_limited_board(gpu);
        if (dry_run)
            return print_dry_run("search for a power limit",
                                 {planned_writes(chosen, {step}, choice)});
        const std::string counted = counter.empty() ? chosen.first : counter;
        LimitedBoard board = open_board(chosen);
        if (window > 0) {
            std::tie(found, status) = search_within(*this, board, counted, choice);
        } else {
            ProgramRuns program{command, counted};
            if (!timeout.empty()) program.limit(parse_long_time("--timeout", timeout));
            found = search(board, {step}, choice, [&] { return std::optional{program({}).cost}; });
            board.limit->close();
        }
    }
    write_or_print(output, format == "json" ? to_json(found, goal) : to_text(found));
    constexpr int undecided = 3;
    if (status != 0) throw CLI::RuntimeError{exit_code_of(status)};
    if (!found.complete) throw CLI::RuntimeError{undecided};
}

}  // namespace cli
