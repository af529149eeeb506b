// SPDX-License-Identifier: MIT
//
// amd_round OUTPUT_FOLDER [--device N] [--set-clocks] [--only PART]... [--quick]: proves or refutes
// what kdvfs assumes of an AMD GPU, prints a table of it and writes it to
// OUTPUT_FOLDER/assumptions.csv. Ends with 0 where all that was tried holds, with 1 where something
// does not, with 2 where it could not begin. Clocks are read, and set only with --set-clocks; they
// are put back whatever happens. Parts: markers, meter, and with --set-clocks writes, latency,
// scope, kill.
#include "clock_checks.hpp"
#include "load.hpp"
#include "marker_checks.hpp"
#include "meter_checks.hpp"
#include "scope_check.hpp"
#include "table.hpp"

#include <kdvfs/rocm.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <set>
#include <string>
#include <string_view>

namespace {

using namespace amd_round;
namespace device = kdvfs::device;

struct Arguments {
    std::string output;
    int device = 0;
    bool set_clocks = false;
    bool quick = false;  ///< less time, longer kernels, more patience: for a double
    bool hold = false;
    std::set<std::string> only{};  ///< parts; none: all

    [[nodiscard]] bool has(const char* part) const { return only.empty() || only.contains(part); }
};

bool parse(int count, char** words, Arguments& arguments) {
    for (int i = 1; i < count; ++i) {
        const std::string_view word = words[i];
        const bool takes_number = word == "--device" || word == "--hold";
        if ((takes_number || word == "--only") && i + 1 == count) return false;
        if (word == "--only") {
            arguments.only.insert(words[++i]);
            continue;
        }
        if (takes_number) arguments.device = std::atoi(words[++i]);
        if (word == "--hold") arguments.hold = true;
        if (word == "--set-clocks") arguments.set_clocks = true;
        if (word == "--quick") arguments.quick = true;
        if (!word.starts_with("--")) arguments.output = word;
    }
    constexpr std::array<std::string_view, 6> parts{"markers", "meter", "writes",
                                                    "latency", "scope", "kill"};
    for (const std::string& part : arguments.only) {
        if (std::find(parts.begin(), parts.end(), part) == parts.end()) return false;
    }
    return arguments.hold || !arguments.output.empty();
}

device::amd::Card card_of(int number) {
    const std::string at = device::pci_address<device::HipApi>(number);
    const auto address = kdvfs::io::parse_pci_address(at);
    if (!address) {
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"read the PCI address", "HIP device " + std::to_string(number),
                            "HIP says '" + at + "'", ""}};
    }
    return device::amd::find_card(*address);
}

/// Holds three fifths of the highest clock until it is killed.
int hold(int number) {
    ClockChecks::Owned owned{card_of(number), kdvfs::ClockPath::best};
    const auto highest = owned.device.supported_clocks().core.listed.back().count;
    const auto& core = owned.device.supported_clocks().core;
    const kdvfs::Megahertz clock =
        core.continuous ? kdvfs::Megahertz{highest * 3 / 5} : core.listed[core.listed.size() / 2];
    owned.clocks.apply({clock, kdvfs::auto_clock});
    static_cast<void>(owned.clocks.read_clock_state());
    std::puts("holding");
    std::fflush(stdout);
    while (true) ::pause();
}

void check_markers(Table& table, const Arguments& arguments, const device::amd::Card& card) {
    MarkerChecks markers{table, arguments.device, arguments.quick ? 150.0 : 40.0};
    if (!markers.prove()) return;
    markers.check_order_around_kernels();
    markers.check_order_in_graphs();
    markers.check_cost();
    device::amd::Card die = card;  // whose clock is not that of its package's first
    die.energy_folder = die.folder;
    device::amd::MetricsFile metrics{die};
    markers.check_held(metrics);
}

int run(const Arguments& arguments) {
    const device::amd::Card card = card_of(arguments.device);
    std::printf("%s, %s, %s\n", to_string(card).c_str(), card.architecture.c_str(),
                arguments.set_clocks ? "setting clocks" : "reading only");
    Table table;
    ClockChecks clocks{table, card};
    const kdvfs::ClockState found = clocks.state();
    table.add("the driver's clock files are understood",
              "mode " + found.mode + ", " + to_string(found.cap) + ", " +
                  number(clocks.highest(), 0) + " MHz at most",
              clocks.highest() > 0);
    const double megahertz = clocks.highest();
    const bool quick = arguments.quick;
    if (arguments.has("markers")) check_markers(table, arguments, card);
    if (arguments.has("meter")) {
        MeterChecks meter{table, card};
        if (meter.check_revision())
            meter.check_counter(megahertz, std::chrono::milliseconds{quick ? 400 : 5000});
    }
    if (arguments.set_clocks) {
        if (arguments.has("writes")) {
            clocks.check_writes();
            clocks.check_domains();
            clocks.check_points();
        }
        if (arguments.has("latency")) clocks.check_latency(quick ? 60 : 2, quick ? 1000 : 500);
        if (arguments.has("scope")) ScopeCheck{table, card, quick ? 0.5 : 1}.run(arguments.device);
        if (arguments.has("kill")) clocks.check_kill(arguments.device, quick ? 3 : 5);
    } else {
        table.leave_out("what is asked for is written, read back and followed",
                        "without --set-clocks");
    }
    table.add("everything is as it was found", to_string(clocks.state().cap),
              clocks.state() == found);
    table.print();
    const std::string csv = arguments.output + "/assumptions.csv";
    if (!table.write_csv(csv)) {
        std::fprintf(stderr, "write the table: %s: is the folder there?\n", csv.c_str());
        return 2;
    }
    return table.all_hold() ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
    Arguments arguments;
    if (!parse(count, words, arguments)) {
        std::fprintf(stderr,
                     "usage: amd_round OUTPUT_FOLDER [--device N] [--set-clocks] [--only PART]...\n"
                     "parts: markers meter writes latency scope kill\n");
        return 2;
    }
    try {
        return arguments.hold ? hold(arguments.device) : run(arguments);
    } catch (const std::exception& error) {
        std::printf("%s\n", error.what());
        return 2;
    }
}
