// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::device {

/// A process as a driver lists it.
struct ListedProcess {
    long id = 0;
    bool works = false;  ///< has had work on the board since the last look
};

/// Tells this program's processes from others in what a driver lists. Not thread-safe.
class ProcessList {
public:
    /// @param proc where processes are described; another folder in tests
    explicit ProcessList(std::string proc = "/proc") : proc_{std::move(proc)} {}

    /// Those at work that are not this program's, nor its children's.
    /// Numbers may be those of another PID namespace, where this process is not among them: then
    /// one of those that were ever at work is this program.
    [[nodiscard]] OtherProcesses others(std::span<const ListedProcess> listed) {
        const auto is_this = [](const ListedProcess& each) { return each.id == ::getpid(); };
        OtherProcesses found;
        found.complete = std::any_of(listed.begin(), listed.end(), is_this);
        if (found.complete) {
            found.working = named(listed);
            return found;
        }
        std::erase_if(unnamed_, [&](long id) {  // has ended
            return std::none_of(listed.begin(), listed.end(),
                                [&](const ListedProcess& each) { return each.id == id; });
        });
        for (const ListedProcess& each : listed) {
            const auto known = std::find(unnamed_.begin(), unnamed_.end(), each.id);
            if (each.works && known == unnamed_.end() && unnamed_.size() < most_unnamed) {
                unnamed_.push_back(each.id);
            }
        }
        if (unnamed_.size() < 2) return found;
        std::string text = "all but one of processes";
        for (const long id : unnamed_) text += ' ' + std::to_string(id);
        found.working.push_back(text + " (of another PID namespace)");
        return found;
    }
    /// The same of a list that has the numbers of this PID namespace.
    [[nodiscard]] std::vector<std::string> named(std::span<const ListedProcess> listed) const {
        std::vector<std::string> names;
        for (const ListedProcess& each : listed) {
            if (!each.works || is_own(each.id)) continue;
            std::string name = first_line(each.id, "comm");
            // Works for its clients, of which this program may be one.
            if (name.starts_with("nvidia-cuda-mps")) continue;
            names.push_back((name.empty() ? "process" : std::move(name)) + " (" +
                            std::to_string(each.id) + ")");
        }
        return names;
    }

private:
    static constexpr std::size_t most_unnamed = 8;
    static constexpr int most_ancestors = 64;

    [[nodiscard]] std::string first_line(long id, const char* file) const {
        std::ifstream in{proc_ + '/' + std::to_string(id) + '/' + file};
        std::string line;
        std::getline(in, line);
        return line;
    }
    /// 0 where there is none, or nobody says.
    [[nodiscard]] long parent_of(long id) const {
        const std::string stat = first_line(id, "stat");  // "12 (a name) S 7 ..."
        const std::size_t name_ends = stat.rfind(") ");
        long parent = 0;
        if (name_ends == std::string::npos || stat.size() < name_ends + 5) return 0;
        std::from_chars(stat.data() + name_ends + 4, stat.data() + stat.size(), parent);
        return parent;
    }
    /// This process, or one that it has started.
    [[nodiscard]] bool is_own(long id) const {
        for (int i = 0; i < most_ancestors && id > 1; ++i) {
            if (id == ::getpid()) return true;
            id = parent_of(id);
        }
        return false;
    }

    std::string proc_;
    std::vector<long> unnamed_;  // listed, at work at some time, of another namespace
};

}  // namespace kdvfs::inline v0_3::device
