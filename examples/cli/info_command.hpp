// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/device/amd/clocks.hpp>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <string>

namespace cli {

inline std::string to_text(const kdvfs::ClockDomain& domain) {
    if (domain.listed.empty()) return "cannot be set";
    return std::to_string(domain.listed.front().count) + " to " +
           std::to_string(domain.listed.back().count) + " MHz, " +
           (domain.continuous ? "any" : std::to_string(domain.listed.size()) + " clocks");
}

inline void print(const kdvfs::DeviceInfo& info, const kdvfs::SupportedClocks& clocks) {
    std::cout << to_string(info) << ", " << info.architecture << "\n  mechanism  " << info.mechanism
              << "\n  core       " << to_text(clocks.core) << "\n  memory     "
              << to_text(clocks.memory) << '\n';
    if (!info.energy.empty()) std::cout << "  energy     " << info.energy << '\n';
    if (!info.operating_point.empty()) {
        std::cout << "  point      " << info.operating_point << '\n';
    }
    if (!info.prepared_points.empty()) {
        std::cout << "  of points ";
        for (const kdvfs::PreparedPoint point : info.prepared_points)
            std::cout << ' ' << point.number;
        std::cout << '\n';
    }
}

/// `kdvfs info`
struct InfoCommand {
    static void add_to(CLI::App& app) {
        app.add_subcommand("info", "Devices, what they can do, and who holds them")->callback([] {
            run();
        });
    }

    static void run() {
        const auto cards = kdvfs::device::amd::find_cards();
        for (const auto& card : cards) print_card(card);
        if (cards.empty()) std::cout << "no AMD GPU found\n";
        for (const char* preset : {"rtx_3080_ti", "mi210", "mi250x", "mi300x", "h100"}) {
            const auto found = gpt3::find_case(preset);
            std::cout << "sim:" << preset << ": ";
            print({found->board.name, "simulated", found->board.architecture, "simulated clocks",
                   true},
                  found->board.clocks);
        }
    }

private:
    static void print_card(const kdvfs::device::amd::Card& card) {
        try {
            kdvfs::device::AmdgpuSysfs gpu{card};
            print(gpu.info(), gpu.supported_clocks());
            const kdvfs::ClockState now = gpu.read_clock_state();
            std::cout << "  now        " << to_string(now.cap) << ", mode " << now.mode << '\n';
            const std::string& address = gpu.info().address;
            const auto place = kdvfs::detail::RestorePlace::of_this_process(address);
            std::cout << "  record in  " << place.words() << '\n';
            const kdvfs::detail::DeviceLock lock{place, address};
            std::cout << "  held by    nobody\n";
        } catch (const kdvfs::Error& error) {
            std::cout << "  " << error.what() << '\n';
        }
    }
};

}  // namespace cli
