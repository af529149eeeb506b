// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/amd/capped_clocks.hpp>
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/settable_clocks.hpp>
#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/tune/ranks.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <tools/cli/dry_run.hpp>
#include <tools/cli/nvidia_boards.hpp>
#include <tools/cli/output.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace cli {
namespace {

namespace amd = kdvfs::device::amd;

/// A write to a file of the driver.
struct FileWrite {
    std::string file;
    std::string text;
};

/// Notes what it is told to write.
class NotingWriter final : public amd::SysfsWriter {
public:
    NotingWriter(const amd::Card& card, std::vector<FileWrite>& writes)
        : SysfsWriter{card}, writes_{writes} {}

private:
    int put(const std::string& path, std::string_view text) override {
        std::string line{text};
        if (line.ends_with('\n')) line.pop_back();
        writes_.push_back({path, std::move(line)});
        return 0;
    }

    std::vector<FileWrite>& writes_;
};

std::vector<FileWrite> writes_of_cap(const amd::Card& card, kdvfs::ClockPoint cap) {
    std::vector<FileWrite> writes;
    amd::CappedClocks board{card, std::make_unique<NotingWriter>(card, writes)};
    try {
        board.apply(cap);
    } catch (const kdvfs::Error&) {  // behind the writes the board does not show the cap
        if (writes.empty()) throw;
    }
    return writes;
}

std::vector<FileWrite> writes_of_restore(const amd::Card& card) {
    std::vector<FileWrite> writes;
    amd::CappedClocks board{card, std::make_unique<NotingWriter>(card, writes)};
    board.restore(board.read_clock_state());
    return writes;
}

std::string shown(const FileWrite& write) { return write.file + ": " + write.text; }

/// The ends of a board's clocks where none are asked for.
std::vector<kdvfs::ClockPoint> or_ends(const std::vector<kdvfs::ClockPoint>& caps,
                                       const kdvfs::SupportedClocks& clocks) {
    if (!caps.empty() || clocks.core.listed.empty()) return caps;
    const auto [low, high] =
        std::minmax_element(clocks.core.listed.begin(), clocks.core.listed.end());
    return {{*low, kdvfs::auto_clock}, {*high, kdvfs::auto_clock}};
}

PlannedWrites amd_writes(const amd::Card& card, const std::vector<kdvfs::ClockPoint>& caps) {
    std::vector<FileWrite> none;
    const amd::CappedClocks board{card, std::make_unique<NotingWriter>(card, none)};
    const kdvfs::ClockState held = board.read_clock_state();
    PlannedWrites planned{to_string(card), to_string(held.cap) + ", mode " + held.mode};
    for (const kdvfs::ClockPoint cap : or_ends(caps, board.supported_clocks())) {
        if (!supports(board.supported_clocks(), cap)) {
            planned.writes.push_back(to_string(cap) + ": refused, it is no clock of this board");
            continue;
        }
        for (const FileWrite& write : writes_of_cap(card, cap)) {
            planned.writes.push_back(shown(write));
            if (planned.rights.empty()) planned.rights = rights_on(write.file);
        }
    }
    for (const FileWrite& write : writes_of_restore(card)) {
        planned.restore.push_back(shown(write));
        planned.by_hand.push_back("echo '" + write.text + "' > " + write.file);
    }
    return planned;
}

PlannedWrites nvidia_writes(const std::string& address,
                            const std::vector<kdvfs::ClockPoint>& caps) {
    kdvfs::device::Nvml board{
        address, {.access = kdvfs::device::ClockAccess::set, .library = nvml_library()}};
    const kdvfs::SupportedClocks& clocks = board.supported_clocks();
    PlannedWrites planned{to_string(board.info()), to_string(board.read_clock_state().cap)};
    bool sets_memory = false;
    const auto add = [&](const char* call, const kdvfs::ClockDomain& domain, kdvfs::Megahertz cap) {
        const auto lowest = *std::min_element(domain.listed.begin(), domain.listed.end());
        planned.writes.push_back(std::string{call} + "(" + std::to_string(lowest.count) + ", " +
                                 std::to_string(cap.count) + ")");
    };
    for (const kdvfs::ClockPoint cap : or_ends(caps, clocks)) {
        if (!supports(clocks, cap)) {
            planned.writes.push_back(to_string(cap) + ": refused, it is no clock of this board");
            continue;
        }
        if (cap.core != kdvfs::auto_clock)
            add("nvmlDeviceSetGpuLockedClocks", clocks.core, cap.core);
        if (cap.memory == kdvfs::auto_clock) continue;
        add("nvmlDeviceSetMemoryLockedClocks", clocks.memory, cap.memory);
        sets_memory = true;
    }
    planned.restore.push_back("nvmlDeviceResetGpuLockedClocks()");
    planned.by_hand.push_back("nvidia-smi -i " + address + " -rgc");
    if (sets_memory) {
        planned.restore.push_back("nvmlDeviceResetMemoryLockedClocks()");
        planned.by_hand.push_back("nvidia-smi -i " + address + " -rmc");
    }
    planned.rights = ::geteuid() == 0 ? "this user is root" : "needs root with CAP_SYS_ADMIN";
    return planned;
}

/// A board that cannot be set is shown with the reason.
template <class Look>
void add_board(std::vector<PlannedWrites>& boards, const std::string& name, Look look) {
    try {
        boards.push_back(look());
    } catch (const kdvfs::Error& error) {
        boards.push_back({name, "", {}, {}, {}, std::string{"nothing is set: "} + error.what()});
    }
}

void print_lines(const char* what, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) std::printf("  %-9s %s\n", what, line.c_str());
}

}  // namespace

std::string rights_on(const std::string& file) {
    if (::faccessat(AT_FDCWD, file.c_str(), W_OK, AT_EACCESS) == 0)
        return "this user may write " + file;
    return "needs root, or " + file + " for this user (" + std::generic_category().message(errno) +
           ")";
}

std::vector<PlannedWrites> clock_writes(const std::vector<kdvfs::ClockPoint>& caps) {
    std::vector<PlannedWrites> boards;
    for (const amd::Card& card : amd::find_cards())
        add_board(boards, to_string(card), [&] { return amd_writes(card, caps); });
    for (const std::string& address : nvidia_addresses())
        add_board(boards, address, [&] { return nvidia_writes(address, caps); });
    return boards;
}

std::vector<kdvfs::ClockPoint> clocks_of_plan(const std::string& file) {
    using namespace kdvfs::tune;
    std::vector<std::filesystem::path> files;
    for (const std::size_t rank : ranks_beside(file)) files.push_back(rank_path(file, rank));
    if (files.empty()) files.emplace_back(file);
    std::set<kdvfs::ClockPoint> clocks;
    for (const std::filesystem::path& each : files) {
        const std::string text = read_trusted_file(each);
        if (has_sequence(text, each.string())) {
            const kdvfs::PlannedSequence sequence = parse_sequence(text, each.string());
            for (const auto& boundary : sequence.boundaries) clocks.insert(boundary.clock);
        } else {
            for (const PlannedKernel& kernel : parse_plan(text, each.string()).kernels)
                clocks.insert(kernel.clock);
        }
    }
    clocks.erase(kdvfs::ClockPoint{});
    return {clocks.begin(), clocks.end()};
}

void print_dry_run(const std::string& action, const std::vector<PlannedWrites>& boards) {
    std::printf("dry run: to %s would write as follows; nothing is written and nothing is run\n",
                action.c_str());
    for (const PlannedWrites& board : boards) {
        std::printf("%s\n", board.board.c_str());
        if (!board.holds.empty()) print_lines("holds", {board.holds});
        print_lines("writes", board.writes);
        print_lines("restores", board.restore);
        print_lines("by hand", board.by_hand);
        if (!board.rights.empty()) print_lines("rights", {board.rights});
    }
    if (boards.empty()) std::printf("no GPU of this machine can be set\n");
    std::printf(
        "The state found is restored at the end, by a watchdog if the process is killed, and by\n"
        "`kdvfs restore` after that. Opening a GPU also tries one cap just below the one found.\n");
    finish_standard_output();
}

}  // namespace cli
