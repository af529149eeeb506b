// SPDX-License-Identifier: MIT
#pragma once

#include "load.hpp"
#include "table.hpp"

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/gpu/open.hpp>

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern char** environ;

namespace amd_round {

/// Sets clocks, each time under a lock, a restore record and a watchdog, and puts them back.
class ClockChecks {
public:
    using Owned =
        kdvfs::detail::OwnedDevice<kdvfs::device::amd::Clocks,
                                   kdvfs::detail::OwnedClocks<kdvfs::device::amd::Clocks>>;
    using ClockPath = kdvfs::ClockPath;

    ClockChecks(Table& table, kdvfs::device::amd::Card card)
        : table_{table}, card_{std::move(card)}, reader_{card_} {}

    [[nodiscard]] kdvfs::ClockState state() const { return reader_.read_clock_state(); }
    [[nodiscard]] double highest() const {
        const auto& core = reader_.supported_clocks().core.listed;
        return core.empty() ? card_.core_max.count : core.back().count;
    }

    /// What is asked for is read back, and goes back, by each path.
    void check_writes() {
        for (const auto& [path, name] : {std::pair{ClockPath::rocm_smi, "ROCm SMI"},
                                         {ClockPath::amd_smi, "AMD SMI"},
                                         {ClockPath::driver_files, "the driver's files"}}) {
            const std::string assumption =
                std::string{"caps written by "} + name + " are read back and go back";
            try {
                write_by(path, assumption);
            } catch (const kdvfs::Error& error) {
                const bool absent =
                    path != ClockPath::driver_files && error.code() == kdvfs::Errc::not_supported;
                if (absent) {
                    table_.leave_out(assumption, error.text().vendor_words);
                } else {
                    table_.add(assumption, error.what(), false);
                }
            }
        }
    }

    /// Sets a cap of both domains at once, reads both back, and restores what was found.
    void check_domains() {
        const char* const assumption = "core and memory hold their caps beside one another";
        try {
            Owned owned{card_, ClockPath::driver_files};
            const auto& clocks = owned.device.supported_clocks();
            if (clocks.memory.listed.empty() || clocks.core.listed.empty()) {
                table_.leave_out(assumption, "this board's memory clock cannot be set");
                return;
            }
            const kdvfs::ClockPoint both{clocks.core.listed.front(), clocks.memory.listed.front()};
            const auto found = owned.clocks.read_clock_state();
            std::string words = owned.device.info().mechanism;
            bool holds = false;
            try {
                owned.clocks.apply(both);
                const auto seen = owned.clocks.read_clock_state().cap;
                holds = seen == both;
                if (!holds) words = to_string(both) + " reads back as " + to_string(seen);
            } catch (const kdvfs::Error& error) {
                words = error.what();
            }
            owned.clocks.restore(found);
            table_.add(assumption, words, holds);
        } catch (const kdvfs::Error& error) {
            table_.leave_out(assumption, error.text().vendor_words);
        }
    }

    /// Each prepared operating point (AMPP) that the board has is switched to and read back; then
    /// the one that was found.
    void check_points() {
        using Points = kdvfs::device::amd::PreparedPoints;
        const char* const assumption =
            "prepared operating points are switched by one write and go back";
        try {
            Points points{card_};
            const auto all = points.prepared_points();
            if (all.empty()) {
                table_.leave_out(assumption, "this board has none");
                return;
            }
            kdvfs::detail::OwnedClocks<Points> owned{points};
            const auto found = owned.read_clock_state();
            std::string words;
            bool holds = true;
            for (const kdvfs::PreparedPoint point : all) {
                owned.apply({.core = {point.number}});
                holds = holds && owned.read_clock_state() == Points::state_of(point);
                words += points.read_operating_point() + "; ";
            }
            owned.restore(found);
            const bool is_back = owned.read_clock_state() == found;
            table_.add(assumption, words + "then " + points.read_operating_point(),
                       holds && is_back);
        } catch (const kdvfs::Error& error) {
            table_.add(assumption, error.what(), false);
        }
    }

    /// The time from a write to kernels of the new length, for two pairs of clocks.
    /// @param megacycles of the kernels that show it: their time is how well it is known
    /// @param most milliseconds
    void check_latency(double megacycles, double most) {
        const std::string assumption =
            "the running clock follows a cap within " + number(most / 1e3, 1) + " s";
        try {
            Owned owned{card_, ClockPath::best};
            const auto of_highest = [&](double share) {
                return kdvfs::ClockPoint{
                    kdvfs::Megahertz{static_cast<std::uint32_t>(share * highest())},
                    kdvfs::auto_clock};
            };
            const auto found = owned.clocks.read_clock_state();
            std::string words;
            bool holds = true;
            const kdvfs::ClockPoint low = of_highest(0.4);
            const kdvfs::ClockPoint high = of_highest(0.8);
            for (const auto& [from, to] : {std::pair{low, high}, std::pair{high, low}}) {
                auto latency = switch_latency(owned, from, to, megacycles, most);
                if (!latency || *latency > most)  // the host may have been kept from looking
                    latency = switch_latency(owned, from, to, megacycles, most);
                words += (words.empty() ? "" : ", ") + std::to_string(from.core.count) + " to " +
                         std::to_string(to.core.count) + " MHz ";
                words += latency ? number(*latency, 1) + " ms" : "not at all";
                holds = holds && latency && *latency <= most;
                if (!holds) break;
            }
            owned.clocks.restore(found);
            table_.add(assumption, words, holds);
        } catch (const kdvfs::Error& error) {
            table_.leave_out(assumption, error.text().vendor_words);
        }
    }

    /// A program that holds a clock is killed; the watchdog that it leaves puts the clock back.
    /// @param most seconds
    void check_kill(int device, int most) {
        const std::string assumption =
            "the clock of a program that is killed goes back within " + std::to_string(most) + " s";
        const kdvfs::ClockState found = state();
        const auto [child, words] = start_holder(device);
        if (words != "holding") {
            if (child > 0) end(child);
            table_.leave_out(assumption, "the program that holds a clock said: " + words);
            return;
        }
        const kdvfs::ClockState held = state();
        end(child);
        const kdvfs::TimePoint killed = now();
        while (state() != found && now() - killed < std::chrono::seconds{most}) {
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        }
        const double took = static_cast<double>((now() - killed).count()) / 1e6;
        table_.add(assumption,
                   "held " + to_string(held.cap) + "; " +
                       (state() == found ? "back after " + number(took, 0) + " ms"
                                         : "it still holds " + to_string(state().cap)),
                   held != found && state() == found);
    }

private:
    void write_by(ClockPath path, const std::string& assumption) {
        Owned owned{card_, path};
        const auto found = owned.clocks.read_clock_state();
        const auto& core = owned.device.supported_clocks().core;
        std::vector<kdvfs::Megahertz> clocks;
        for (const std::size_t tenth : {3U, 5U, 7U, 9U}) {
            const auto lowest = core.listed.front().count;
            const auto range = core.listed.back().count - lowest;
            clocks.push_back(core.continuous ? kdvfs::Megahertz{static_cast<std::uint32_t>(
                                                   lowest + range * tenth / 10)}
                                             : core.listed[core.listed.size() * tenth / 10]);
        }
        std::string words = owned.device.info().mechanism + ":";
        bool holds = true;
        for (const kdvfs::Megahertz clock : clocks) {
            owned.clocks.apply({clock, kdvfs::auto_clock});
            const auto seen = owned.clocks.read_clock_state().cap.core;
            words += " " + std::to_string(seen.count);
            holds = holds && seen == clock;
        }
        owned.clocks.restore(found);
        const auto back = owned.clocks.read_clock_state();
        table_.add(assumption, words + ", then " + to_string(back.cap), holds && back == found);
    }

    /// Milliseconds; nothing where the kernels keep their length.
    std::optional<double> switch_latency(Owned& owned, kdvfs::ClockPoint from, kdvfs::ClockPoint to,
                                         double megacycles, double most) {
        owned.clocks.apply(from);
        std::this_thread::sleep_for(std::chrono::milliseconds{120});
        const double before = shortest_kernel(megacycles);
        const double expected = before * from.core.count / to.core.count;
        const kdvfs::TimePoint written = now();
        owned.clocks.apply(to);
        int in_a_row = 0;
        kdvfs::TimePoint first{};
        const kdvfs::Duration patience{static_cast<kdvfs::Duration::rep>(most * 1.2e6)};
        while (now() - written < patience) {
            const kdvfs::TimePoint start = now();
            const double took = kernel(megacycles);
            const bool is_new = std::abs(took / expected - 1) < 0.3;  // the clocks differ by 2
            if (is_new && in_a_row == 0) first = start;
            in_a_row = is_new ? in_a_row + 1 : 0;
            if (in_a_row == 3) return static_cast<double>((first - written).count()) / 1e6;
        }
        return std::nullopt;
    }

    /// A host that is kept from looking makes a kernel seem longer, never shorter.
    double shortest_kernel(double megacycles) {
        double shortest = kernel(megacycles);
        for (int i = 0; i < 5; ++i) shortest = std::min(shortest, kernel(megacycles));
        return shortest;
    }

    /// Milliseconds.
    double kernel(double megacycles) {
        const kdvfs::TimePoint start = now();
        check(burn(stream_.get(), megacycles), "launch a kernel");
        stream_.synchronize();
        return static_cast<double>((now() - start).count()) / 1e6;
    }

    /// This program once more, as one that holds a clock until it is killed.
    static std::pair<pid_t, std::string> start_holder(int device) {
        int pipe[2];
        if (::pipe(pipe) != 0) return {-1, "no pipe"};
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
        posix_spawn_file_actions_addclose(&actions, pipe[0]);
        std::string program = "/proc/self/exe";
        std::string hold = "--hold";
        std::string number_of_device = std::to_string(device);
        char* words[] = {program.data(), hold.data(), number_of_device.data(), nullptr};
        pid_t child = -1;
        const int failed =
            ::posix_spawn(&child, program.c_str(), &actions, nullptr, words, environ);
        posix_spawn_file_actions_destroy(&actions);
        ::close(pipe[1]);
        std::string said;
        char letter = 0;
        while (failed == 0 && ::read(pipe[0], &letter, 1) == 1 && letter != '\n') said += letter;
        ::close(pipe[0]);
        return {failed == 0 ? child : -1, failed == 0 ? said : "it could not be started"};
    }

    static void end(pid_t child) {
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
    }

    Table& table_;
    kdvfs::device::amd::Card card_;
    kdvfs::device::AmdgpuSysfs reader_;
    Stream stream_;
};

}  // namespace amd_round
