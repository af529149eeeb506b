// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/device_counter.hpp>
#include <tools/cli/energy_watch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace cli {

/// Measures stretches of iterations of a program that is attached to, while it runs. How many it
/// has begun is in the reports that its processes write each second. One thread; `stop` from any.
class IterationWindows {
public:
    /// @param folder  where the reports are
    /// @param address PCI address of the board whose iterations count
    /// @param counter must outlive this
    IterationWindows(std::filesystem::path folder, std::string address,
                     const DeviceCounter& counter)
        : folder_{std::move(folder)}, address_{std::move(address)}, counter_{counter} {}

    /// Ends a wait: the program has ended.
    void stop() { stopped_ = true; }

    /// Waits for `iterations` after at least one more has begun.
    /// @returns what one iteration took; nothing where the program ended first
    /// @throws Error as `EnergyWatch::between`
    [[nodiscard]] std::optional<kdvfs::tune::Cost> measure(std::uint64_t iterations) {
        const auto ready = await(count() + 1);
        if (!ready) return std::nullopt;
        EnergyWatch watch{counter_};
        const auto first = await(ready->count + 1);
        const auto last = first ? await(first->count + iterations) : std::nullopt;
        if (!last) return std::nullopt;
        const auto passed = static_cast<double>(last->count - first->count);
        return kdvfs::tune::Cost{kdvfs::Seconds{last->at - first->at} / passed,
                                 watch.between(first->at, last->at) * (1 / passed)};
    }

private:
    struct Mark {
        std::uint64_t count = 0;
        kdvfs::TimePoint at;
    };

    /// Of the process that has begun most.
    [[nodiscard]] std::uint64_t count() const {
        std::uint64_t most = 0;
        for (const auto& process : read_attached_reports(folder_))
            for (const auto& device : process["devices"])
                if (device["report"]["device"].value("address", "") == address_)
                    most = std::max(most, device["iterations"].value("count", std::uint64_t{0}));
        return most;
    }

    [[nodiscard]] std::optional<Mark> await(std::uint64_t wanted) const {
        while (!stopped_) {
            const std::uint64_t seen = count();
            if (seen >= wanted)
                return Mark{seen,
                            kdvfs::TimePoint{std::chrono::steady_clock::now().time_since_epoch()}};
            std::this_thread::sleep_for(std::chrono::milliseconds{50});
        }
        return std::nullopt;
    }

    std::filesystem::path folder_;
    std::string address_;
    const DeviceCounter& counter_;
    std::atomic<bool> stopped_ = false;
};

}  // namespace cli
