// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/detail/device/nvidia/nvml_readings.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <tools/cli/board_choice.hpp>
#include <tools/cli/nvidia_boards.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cli {

/// An energy counter of this machine, read and never set.
struct DeviceCounter {
    std::string name;
    std::string address;  ///< of a GPU; empty for a file
    std::function<kdvfs::EnergyReading()> read;
};

/// A file that counts microjoules, as Linux' hwmon `energyN_input` and powercap `energy_uj` do.
class MicrojouleFile {
public:
    explicit MicrojouleFile(const std::string& path)
        : file_{::open(path.c_str(), O_RDONLY | O_CLOEXEC)} {
        if (!file_.is_open()) kdvfs::io::throw_file_error("open an energy counter", path, errno);
    }
    [[nodiscard]] kdvfs::EnergyReading read_energy() noexcept {
        const kdvfs::TimePoint now{std::chrono::steady_clock::now().time_since_epoch()};
        char text[64];
        const ssize_t count = ::pread(file_.get(), text, sizeof text, 0);
        if (count <= 0) return {{}, now, kdvfs::ReadingStatus::failed};
        std::string_view digits{text, static_cast<std::size_t>(count)};
        digits = digits.substr(0, digits.find('\n'));
        const auto microjoules = kdvfs::io::parse_number<std::uint64_t>(digits);
        if (!microjoules) return {{}, now, kdvfs::ReadingStatus::failed};
        return {{static_cast<double>(*microjoules) * 1e-6}, now, kdvfs::ReadingStatus::ok};
    }

private:
    kdvfs::io::Descriptor file_;
};

template <class Source>
DeviceCounter to_counter(std::string name, std::string address, std::shared_ptr<Source> source) {
    return {std::move(name), std::move(address),
            [source = std::move(source)] { return source->read_energy(); }};
}

inline DeviceCounter amd_counter(const kdvfs::device::amd::Card& card) {
    return to_counter(to_string(card), to_string(card.address),
                      std::make_shared<kdvfs::device::amd::MetricsFile>(card));
}

inline DeviceCounter nvidia_counter(const std::string& address) {
    auto board = std::make_shared<kdvfs::device::NvmlReadings>(address, nvml_library());
    std::string name = to_string(board->info());
    return to_counter(std::move(name), address, std::move(board));
}

/// Every GPU of this machine that counts its energy.
inline std::vector<DeviceCounter> find_counters() {
    std::vector<DeviceCounter> counters;
    for (const auto& card : kdvfs::device::amd::find_cards())
        if (!card.secondary_die) counters.push_back(amd_counter(card));
    for (const std::string& address : nvidia_addresses())
        counters.push_back(nvidia_counter(address));
    return counters;
}

/// The only counter of the machine, or the one at a PCI address, or a file: `auto`, `0000:c1:00.0`
/// or `hwmon:PATH`.
/// @throws Error (not_supported) naming what there is, (io) where the file cannot be opened
inline DeviceCounter open_counter(const std::string& which) {
    if (which.starts_with("hwmon:")) {
        const std::string path = which.substr(6);
        return to_counter(path, "", std::make_shared<MicrojouleFile>(path));
    }
    std::vector<DeviceCounter> counters = find_counters();
    std::vector<std::string> addresses;
    for (const DeviceCounter& counter : counters) addresses.push_back(counter.address);
    return std::move(counters[choose_board(
        addresses, which, "count the energy of a run",
        "there is no GPU with an energy counter here",
        "give --counter PCI-ADDRESS, --counter hwmon:PATH (a file of microjoules), or --counter "
        "program where the program calls kdvfs::tune::report_cost (Python: kdvfs.report_cost), as "
        "on a simulated GPU")]);
}

}  // namespace cli
