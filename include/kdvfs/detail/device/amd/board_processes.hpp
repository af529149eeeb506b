// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/system_files.hpp>
#include <kdvfs/detail/device/process_list.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::device::amd {

/// The processes that use an amdgpu board: those with compute queues in KFD's list, and those whose
/// open files have the driver count engine time (Documentation/gpu/drm-usage-stats.rst). Of other
/// users' processes only the former are seen, and only whether they work at the moment of a look.
/// Not thread-safe.
class BoardProcesses {
public:
    /// @param kfd  the folder of KFD's processes, @param proc that of all: others in tests
    explicit BoardProcesses(const Card& card, std::string kfd = "/sys/class/kfd/kfd/proc",
                            std::string proc = "/proc")
        : address_{to_string(card.address)},
          gpu_{card.kfd_node.empty() ? "" : detail::first_line(card.kfd_node + "/gpu_id")},
          kfd_{std::move(kfd)},
          proc_{std::move(proc)},
          processes_{proc_} {}

    /// Bounded: one look goes through the files of a few processes, and on at the next.
    [[nodiscard]] OtherProcesses read() {
        OtherProcesses found = processes_.others(with_queues());
        for (std::string& name : processes_.named(with_files())) {
            if (std::find(found.working.begin(), found.working.end(), name) ==
                found.working.end()) {
                found.working.push_back(std::move(name));
            }
        }
        return found;
    }

private:
    static constexpr std::size_t most_processes = 16;  ///< of one look at files
    static constexpr std::size_t most_files = 128;     ///< of a process

    [[nodiscard]] static std::uint64_t number(std::string_view text) {
        std::uint64_t value = 0;
        const std::size_t begin = text.find_first_not_of(" \t");
        if (begin == std::string_view::npos) return 0;
        std::from_chars(text.data() + begin, text.data() + text.size(), value);
        return value;
    }
    [[nodiscard]] std::vector<ListedProcess> with_queues() const {
        std::vector<ListedProcess> listed;
        if (gpu_.empty()) return listed;
        for (const std::string& name : detail::names_in(kfd_)) {
            const std::string folder = kfd_ + '/' + name;
            const FileText memory = read_file(folder + "/vram_" + gpu_);
            if (memory.error != 0) continue;
            // Busy compute units; a driver that does not count them shows who has memory.
            const FileText units = read_file(folder + "/stats_" + gpu_ + "/cu_occupancy");
            const bool works = number(units.error == 0 ? units.text : memory.text) > 0;
            listed.push_back({static_cast<long>(number(name)), works});
        }
        return listed;
    }
    /// A process works where the time of its engines has grown since its last turn.
    [[nodiscard]] std::vector<ListedProcess> with_files() {
        if (turn_.empty()) {
            turn_ = detail::names_in(proc_);
            std::erase_if(turn_, [](const std::string& name) {
                return name.front() < '1' || name.front() > '9';
            });
            busy_before_ = std::exchange(busy_, {});
        }
        std::vector<ListedProcess> listed;
        for (std::size_t i = 0; i < most_processes && !turn_.empty(); ++i) {
            const std::string id = std::move(turn_.back());
            turn_.pop_back();
            const std::uint64_t busy = engine_time(proc_ + '/' + id + "/fdinfo/");
            if (busy == 0) continue;
            busy_[id] = busy;
            const auto before = busy_before_.find(id);
            const bool works = before != busy_before_.end() && busy > before->second;
            listed.push_back({static_cast<long>(number(id)), works});
        }
        return listed;
    }
    /// ns of all engines of this board; files of one client show the same.
    [[nodiscard]] std::uint64_t engine_time(const std::string& folder) const {
        std::vector<std::string> files = detail::names_in(folder);
        files.resize(std::min(files.size(), most_files));
        std::map<std::uint64_t, std::uint64_t> clients;
        for (const std::string& name : files) {
            const FileText file = read_file(folder + name);
            std::string_view text = file.text;
            if (text.find(address_) == std::string_view::npos) continue;
            std::uint64_t client = 0;
            std::uint64_t busy = 0;
            while (!text.empty()) {
                const std::string_view line = detail::take_line(text);
                const std::size_t colon = line.find(':');
                if (colon == std::string_view::npos) continue;
                if (line.starts_with("drm-client-id:")) client = number(line.substr(colon + 1));
                if (line.starts_with("drm-engine-")) busy += number(line.substr(colon + 1));
            }
            clients[client] = busy;
        }
        std::uint64_t sum = 0;
        for (const auto& [client, busy] : clients) sum += busy;
        return sum;
    }

    std::string address_;
    std::string gpu_;  ///< KFD's number of the board; empty where KFD does not know it
    std::string kfd_;
    std::string proc_;
    ProcessList processes_;
    std::vector<std::string> turn_;                       ///< processes still to be looked at
    std::map<std::string, std::uint64_t> busy_;           ///< ns, of this turn
    std::map<std::string, std::uint64_t> busy_before_{};  ///< of the last
};

}  // namespace kdvfs::inline v0_3::device::amd
