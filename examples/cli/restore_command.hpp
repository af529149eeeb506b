// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/restore/device_lock.hpp>
#include <kdvfs/detail/restore/journal.hpp>
#include <kdvfs/detail/restore/private_folder.hpp>
#include <kdvfs/device/amd/sysfs.hpp>
#include <kdvfs/error.hpp>

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>
#include <string_view>

namespace cli {

/// `kdvfs restore`
struct RestoreCommand {
    static void add_to(CLI::App& app) {
        app.add_subcommand("restore", "Put back what a killed program has left changed")
            ->callback([] { run(); });
    }

    static void run() {
        const auto folder = kdvfs::detail::PrivateFolder::of_this_user();
        std::optional<kdvfs::Error> first;
        const auto cards = kdvfs::device::amd::find_cards();
        if (cards.empty()) std::cout << "no AMD GPU found, nothing to restore\n";
        for (const auto& card : cards) {
            try {
                kdvfs::device::AmdgpuSysfs gpu{card};
                const kdvfs::detail::DeviceLock lock{folder, gpu.info().address};
                const kdvfs::detail::Journal journal{folder, gpu.info().address};
                std::cout << to_string(gpu.info()) << ": " << words(settle(journal, gpu)) << '\n';
            } catch (const kdvfs::Error& error) {
                if (!first) first = error;
            }
        }
        if (first) throw *first;
    }

private:
    static constexpr std::string_view words(kdvfs::detail::RestoreDecision decision) {
        switch (decision) {
            case kdvfs::detail::RestoreDecision::nothing: return "nothing to do";
            case kdvfs::detail::RestoreDecision::write_back: return "restored";
            case kdvfs::detail::RestoreDecision::leave_external:
                return "changed by someone else since: left";
        }
        return "";
    }
};

}  // namespace cli
