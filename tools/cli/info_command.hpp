// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/boards.hpp>
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <tools/cli/nvidia_boards.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

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

/// "core 1980 MHz, memory 2619 MHz, held back by its power cap".
inline std::string words_of(kdvfs::ClockPoint running, kdvfs::device::LimitReasons reasons) {
    std::string words = "core " + to_string(running.core) + ", memory " + to_string(running.memory);
    if (reasons.idle()) words += ", idle";
    if (reasons.set_clocks()) words += ", clocks set by somebody";
    if (reasons.power_cap()) words += ", held back by its power cap";
    if (reasons.thermal()) words += ", held back by heat";
    if (reasons.hardware()) words += ", slowed down by its hardware";
    return words;
}

/// Whether this process may do what the kernel asks CAP_SYS_ADMIN for.
inline bool is_system_administrator() {
    std::ifstream file{"/proc/self/status"};
    std::string line;
    while (std::getline(file, line)) {
        if (!line.starts_with("CapEff:")) continue;
        constexpr unsigned cap_sys_admin = 21;
        return (std::strtoull(line.c_str() + 7, nullptr, 16) >> cap_sys_admin & 1U) != 0;
    }
    return ::geteuid() == 0;
}

/// `kdvfs info`: looks, and neither sets nor makes anything.
struct InfoCommand {
    static void add_to(CLI::App& app) {
        app.add_subcommand("info", "Devices, what they can do, and who holds them")->callback([] {
            run();
        });
    }

    static void run() {
        print_amd();
        print_nvidia();
        for (const char* preset : gpt3::case_names) {
            const auto found = gpt3::find_case(preset);
            std::cout << "sim:" << preset << ": ";
            print({found->board.name, "simulated", found->board.architecture, "simulated clocks",
                   true},
                  found->board.clocks);
            std::cout << "  errors     " << found->board.accuracy << '\n';
        }
    }

private:
    static void print_amd() {
        const auto cards = kdvfs::device::amd::find_cards();
        for (const auto& card : cards) resolving_errors([&] { print_card(card); });
        if (cards.empty()) std::cout << "no AMD GPU found\n";
    }

    static void print_card(const kdvfs::device::amd::Card& card) {
        kdvfs::device::AmdgpuSysfs gpu{card};
        print(gpu.info(), gpu.supported_clocks());
        resolving_errors([&] {
            const kdvfs::ClockState now = gpu.read_clock_state();
            std::cout << "  now        " << to_string(now.cap) << ", mode " << now.mode << '\n';
        });
        std::cout << "  may set    " << rights_on(card, gpu.supported_clocks()) << '\n';
        print_holder(gpu.info().address);
    }

    /// What setting clocks needs, and whether this process has it.
    static std::string rights_on(const kdvfs::device::amd::Card& card,
                                 const kdvfs::SupportedClocks& clocks) {
        if (clocks.core.listed.empty()) return "nothing: kdvfs measures this GPU only";
        for (const char* name :
             {"power_dpm_force_performance_level", "pp_od_clk_voltage", "pp_dpm_sclk"}) {
            const std::string file = card.folder + "/" + name;
            if (::faccessat(AT_FDCWD, file.c_str(), W_OK, AT_EACCESS) == 0 || errno == ENOENT)
                continue;
            return std::string{"nothing: setting clocks needs root, or "} + name +
                   " for this user (" + std::generic_category().message(errno) + ")";
        }
        return "clocks: this user may write the driver's files";
    }

    static void print_nvidia() {
        std::vector<std::string> addresses;
        try {
            addresses = kdvfs::device::nvml_addresses(nvml_library());
            if (addresses.empty()) std::cout << "no NVIDIA GPU found\n";
        } catch (const kdvfs::Error& error) {
            std::cout << "no NVIDIA GPU found: " << error.text().vendor_words << '\n';
            addresses = nvidia_addresses_by_driver();
        }
        for (const std::string& address : addresses) {
            resolving_errors([&] { print_board(address); });
        }
    }

    static void print_board(const std::string& address) {
        kdvfs::device::NvmlReadings board{address, nvml_library()};
        kdvfs::DeviceInfo info = board.info();
        kdvfs::SupportedClocks clocks;
        try {
            // This looks up the functions that set clocks, and calls none.
            const kdvfs::device::Nvml settable{
                address, {.access = kdvfs::device::ClockAccess::set, .library = nvml_library()}};
            info.mechanism = settable.info().mechanism;
            clocks = settable.supported_clocks();
        } catch (const kdvfs::Error& error) {
            info.mechanism = std::string{"measure only: "} + error.what();
        }
        info.energy = readings_of(board);
        print(info, clocks);
        resolving_errors([&] {
            std::cout << "  now        "
                      << words_of(board.read_running_clocks(), board.read_limit_reasons()) << '\n';
        });
        std::cout << "  may set    " << rights_on_nvidia(clocks) << '\n';
        print_holder(address);
    }

    /// What joules can be taken from; any user may read it.
    static std::string readings_of(kdvfs::device::NvmlReadings& board) {
        using kdvfs::ReadingStatus;
        std::string words;
        const auto add = [&](bool there, const char* name) {
            if (there) words += (words.empty() ? "" : ", ") + std::string{name};
        };
        add(board.read_energy().status == ReadingStatus::ok, "counter");
        add(board.read_power().status == ReadingStatus::ok, "power meter");
        add(board.has_power_samples(), "log of power samples");
        return words.empty() ? "none can be read" : words;
    }

    /// NVIDIA's kernel driver asks for the capability, whoever the user is
    /// (kernel-open/common/inc/nv-linux.h: NV_IS_SUSER).
    static std::string rights_on_nvidia(const kdvfs::SupportedClocks& clocks) {
        if (clocks.core.listed.empty()) return "nothing: kdvfs measures this GPU only";
        if (!is_system_administrator()) {
            return std::string{"nothing: clocks and power limit need root with CAP_SYS_ADMIN; "} +
                   (::geteuid() == 0 ? "this root, as in most containers, lacks it"
                                     : "this user is not root");
        }
        return "clocks and power limit: this process has CAP_SYS_ADMIN";
    }

    static void print_holder(const std::string& address) {
        resolving_errors([&] {
            const auto place = kdvfs::restore::RestorePlace::find(address);
            std::cout << "  record in  "
                      << (place ? place->words() : "no folder yet: setting clocks makes one")
                      << '\n';
            const auto holder =
                place ? kdvfs::restore::DeviceLock::holder(*place, address) : std::nullopt;
            std::cout << "  held by    " << holder.value_or("nobody") << '\n';
        });
    }

    template <class Report>
    static void resolving_errors(Report report) {
        try {
            report();
        } catch (const kdvfs::Error& error) {
            std::cout << "  " << error.what() << '\n';
        }
    }
};

}  // namespace cli
