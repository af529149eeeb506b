// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/amdgpu_sysfs.hpp>
#include <kdvfs/scope/device_lock.hpp>
#include <kdvfs/scope/journal.hpp>
#include <kdvfs/scope/private_folder.hpp>

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
        const auto folder = kdvfs::PrivateFolder::of_this_user();
        std::optional<kdvfs::Error> first;
        const auto cards = kdvfs::device::amdgpu::find_cards();
        if (cards.empty()) std::cout << "no AMD GPU found, nothing to restore\n";
        for (const auto& card : cards) {
            try {
                kdvfs::device::AmdgpuSysfs gpu{card};
                const kdvfs::DeviceLock lock{folder, gpu.info().address};
                const kdvfs::Journal journal{folder, gpu.info().address};
                std::cout << to_string(gpu.info()) << ": " << words(settle(journal, gpu)) << '\n';
            } catch (const kdvfs::Error& error) {
                if (!first) first = error;
            }
        }
        if (first) throw *first;
    }

private:
    static constexpr std::string_view words(kdvfs::RestoreDecision decision) {
        switch (decision) {
            case kdvfs::RestoreDecision::nothing: return "nothing to do";
            case kdvfs::RestoreDecision::write_back: return "restored";
            case kdvfs::RestoreDecision::leave_foreign:
                return "changed by someone else since: left";
        }
        return "";
    }
};

}  // namespace cli
