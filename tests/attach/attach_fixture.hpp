// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/detail/restore/record.hpp>
#include <kdvfs/error.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(ATTACH_LIBRARY)

/// `kdvfs run` on doubles of CUDA's driver, CUPTI and NVML, around programs that know of none.
namespace attached {

using nlohmann::json;
using Environment = std::map<std::string, std::string>;

inline std::string text_of(const std::filesystem::path& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

/// Waits for what other processes do. @returns whether it came, within a minute
template <class Condition>
bool comes(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) return condition();
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
    }
    return true;
}

/// What the system says of a process, or of a thread, from its state on: "S 1234 ..."; empty where
/// there is none.
inline std::string stat_of(const std::filesystem::path& folder) {
    const std::string stat = text_of(folder / "stat");
    const auto name_end = stat.rfind(") ");
    return name_end == std::string::npos ? "" : stat.substr(name_end + 2);
}
inline std::filesystem::path proc(pid_t process) {
    return std::filesystem::path{"/proc"} / std::to_string(process);
}
inline pid_t parent_of(pid_t process) {
    const std::string stat = stat_of(proc(process));
    return stat.empty() ? 0 : std::atoi(stat.c_str() + 1);
}
/// Stops a process. @returns whether all of its threads stand still
inline bool stop(pid_t process) {
    if (::kill(process, SIGSTOP) != 0) return false;
    return comes([&] {
        std::error_code failed;
        for (const auto& thread :
             std::filesystem::directory_iterator{proc(process) / "task", failed}) {
            if (!stat_of(thread.path()).starts_with('T')) return false;
        }
        return !failed;
    });
}

inline constexpr const char* double_address = "0000:1b:00.0";

/// A kernel of a plan, at a core clock in MHz.
inline json planned(const char* name, int variant, int clock) {
    json row{{"kernel", name}, {"variant", variant}, {"count", 8}, {"core_mhz", clock}};
    for (const char* key : {"time_pct", "energy_pct"}) row[key] = 0.0;
    for (const char* key : {"time_s", "baseline_time_s"}) row[key] = 0.0032;
    for (const char* key : {"energy_j", "baseline_energy_j"}) row[key] = 1.6;
    row["mem_mhz"] = -1;
    return row;
}
/// @param gpu its name, as a plan must have it
inline void write_plan(const std::string& path, const json& kernels,
                       const char* gpu = "Double of an NVIDIA GPU") {
    const json cost{{"time_s", 0.01}, {"energy_j", 5.0}, {"core_mhz", -1}, {"mem_mhz", -1}};
    const json plan{{"gpu", gpu},
                    {"objective", "waste"},
                    {"max_slowdown_pct", 2.0},
                    {"baseline", cost},
                    {"plan",
                     {{"aggregate", "global"},
                      {"time_s", 0.01},
                      {"energy_j", 5.0},
                      {"time_pct", 0.0},
                      {"energy_pct", 0.0},
                      {"gap_pct", 0.0}}},
                    {"kernels", kernels}};
    std::ofstream{path} << plan.dump();
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
}

/// How a command ended, what it printed, and the report that it wrote, where it did.
struct Outcome {
    int status = -1;
    std::string out;
    std::string err;
    json report;

    [[nodiscard]] int exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
    /// All rows of a kernel, whatever their variants, as one; null where there is none.
    [[nodiscard]] json row(std::string_view kernel) const {
        json sum;
        for (const json& row : rows(kernel)) {
            if (sum.is_null()) {
                sum = row;
                continue;
            }
            for (const char* key : {"calls", "metered_calls"}) {
                sum[key] = sum[key].get<int>() + row[key].get<int>();
            }
            sum["time_s"] = sum["time_s"].get<double>() + row["time_s"].get<double>();
        }
        return sum;
    }
    /// The row of a kernel that was launched most, of those that its variants have.
    [[nodiscard]] json most_called(std::string_view kernel) const {
        const std::vector<json> all = rows(kernel);
        if (all.empty()) return json::object();
        return *std::max_element(all.begin(), all.end(), [](const json& a, const json& b) {
            return a["calls"].get<int>() < b["calls"].get<int>();
        });
    }
    /// How often a range has run: those runs are counted whose end the energy counter has seen, so
    /// that the last ones may be missing.
    void expect_runs(std::string_view path, int runs) const {
        const json level = range(path);
        ASSERT_FALSE(level.is_null()) << path << report.dump(1) << notes();
        EXPECT_LE(level["runs"], runs) << path;
        EXPECT_GE(level["runs"], runs * 3 / 4) << path;
    }
    /// Seconds of its kernels in a run.
    [[nodiscard]] double seconds_a_run(std::string_view path) const {
        const json level = range(path);
        return level["time_s"].get<double>() / level["runs"].get<double>();
    }
    /// A range's joules; null where there is none.
    [[nodiscard]] json range(std::string_view path) const {
        if (report.is_null()) return nullptr;
        for (const json& level : report["levels"]) {
            if (level["kernel"] == path) return level;
        }
        return nullptr;
    }
    [[nodiscard]] std::vector<json> rows(std::string_view kernel) const {
        std::vector<json> found;
        if (report.is_null()) return found;
        for (const json& row : report["rows"]) {
            if (row["kernel"] == kernel) found.push_back(row);
        }
        return found;
    }
    [[nodiscard]] std::string notes() const {
        std::string all;
        if (report.is_null()) return all;
        for (const json& process : report["processes"]) {
            for (const json& note : process["notes"]) all += note.get<std::string>() + '\n';
            for (const json& device : process["devices"]) {
                for (const json& note : device["report"]["notes"]) all += note.get<std::string>();
            }
        }
        return all;
    }
};

class Attach : public testing::Test {
protected:
    Attach() {
        std::string name = (std::filesystem::temp_directory_path() / "attach_XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~Attach() override {
        // Where a test gave up, what it had started would drive the board under the next one.
        for (const pid_t child : running_) {
            ::kill(-child, SIGKILL);
            ::waitpid(child, nullptr, 0);
        }
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    /// Starts `words` with the doubles in its reach.
    pid_t start(const std::vector<std::string>& words, const Environment& more = {}) {
        Environment environment{{"PATH", std::getenv("PATH")},
                                {"KDVFS_ATTACH", ATTACH_LIBRARY},
                                {"KDVFS_CUPTI", CUPTI},
                                {"KDVFS_NVML", NVML_DOUBLE},
                                {"KDVFS_RECORDS", (folder_ / "kdvfs").string()}};
        for (const char* name : {"ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"})
            if (const char* const value = std::getenv(name)) environment[name] = value;
        for (const auto& [name, value] : more) environment[name] = value;
        std::vector<std::string> variables;
        for (const auto& [name, value] : environment) variables.push_back(name + '=' + value);
        const auto pointers = [](const std::vector<std::string>& texts) {
            std::vector<char*> result;
            for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
            result.push_back(nullptr);
            return result;
        };
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_addopen(&actions, 1, path("out").c_str(),
                                           O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ::posix_spawn_file_actions_addopen(&actions, 2, path("err").c_str(),
                                           O_WRONLY | O_CREAT | O_TRUNC, 0600);
        posix_spawnattr_t attributes;
        ::posix_spawnattr_init(&attributes);
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // one of its own
        pid_t child = 0;
        EXPECT_EQ(::posix_spawnp(&child, words.front().c_str(), &actions, &attributes,
                                 pointers(words).data(), pointers(variables).data()),
                  0);
        ::posix_spawnattr_destroy(&attributes);
        ::posix_spawn_file_actions_destroy(&actions);
        if (child > 0) running_.insert(child);
        return child;
    }
    Outcome wait_for(pid_t child) {
        Outcome outcome;
        ::waitpid(child, &outcome.status, 0);
        running_.erase(child);
        ::kill(-child, SIGKILL);  // what it left behind
        outcome.out = text_of(path("out"));
        outcome.err = text_of(path("err"));
        const std::string report = text_of(path("report.json"));
        outcome.report = json::parse(report, nullptr, false);
        if (outcome.report.is_discarded()) outcome.report = nullptr;
        return outcome;
    }

    /// `kdvfs run --report report.json OPTIONS -- COMMAND`
    pid_t start_run(const std::vector<std::string>& options,
                    const std::vector<std::string>& command, const Environment& more = {}) {
        std::vector<std::string> words{KDVFS_COMMAND, "run", "--report", path("report.json")};
        words.insert(words.end(), options.begin(), options.end());
        words.emplace_back("--");
        words.insert(words.end(), command.begin(), command.end());
        return start(words, more);
    }
    Outcome run(const std::vector<std::string>& options, const std::vector<std::string>& command,
                const Environment& more = {}) {
        return wait_for(start_run(options, command, more));
    }

    [[nodiscard]] std::string path(const char* name) const { return (folder_ / name).string(); }
    [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

    /// The restore record of the double's board: root's is the machine's, another user's lies in
    /// this test's folder.
    struct Record {
        kdvfs::detail::RestoreEntry entry;
        kdvfs::detail::RestoreNote note;
    };
    [[nodiscard]] std::optional<Record> record() const {
        for (const std::filesystem::path& root :
             {std::filesystem::path{kdvfs::detail::RestorePlace::machine_root},
              folder_ / "kdvfs"}) {
            try {
                const auto place = kdvfs::detail::RestoreFolder::find(root / double_address);
                if (!place) continue;
                const auto entry = kdvfs::detail::find_record(*place, double_address);
                const auto file = place->open(kdvfs::detail::record_name);
                if (entry) return Record{*entry, kdvfs::detail::read_note(file.get())};
            } catch (const kdvfs::Error&) {  // it is being made, or of another boot
            }
        }
        return std::nullopt;
    }
    /// All that a failure is explained by.
    [[nodiscard]] std::string seen_so_far() const {
        std::string text = "\nwrites:\n" + text_of(path("writes")) + "calls:\n" +
                           text_of(path("calls")) + "errors:\n" + text_of(path("err")) + "record: ";
        const auto found = record();
        if (!found) return text + "none\n";
        const auto& its = found->entry.history;
        text += "of process " + std::to_string(found->entry.process) + ", " +
                (its.uncertain ? "uncertain"
                 : its.written ? "held " + to_string(its.written->cap)
                               : "nothing") +
                ", noted '" + found->note.words + "'\n";
        for (pid_t at = found->entry.process; at > 1; at = parent_of(at)) {
            std::string command = text_of(proc(at) / "cmdline");
            std::replace(command.begin(), command.end(), '\0', ' ');
            text += "  " + std::to_string(at) + ": " + command.substr(0, 200) + "| " +
                    stat_of(proc(at)).substr(0, 1) + '\n';
        }
        return text;
    }

private:
    std::filesystem::path folder_;
    std::set<pid_t> running_;
};

}  // namespace attached

#endif
