// SPDX-License-Identifier: MIT
//
// `kdvfs run` on doubles of CUDA's driver, CUPTI and NVML, around a program that knows of none.
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/detail/restore/record.hpp>
#include <kdvfs/error.hpp>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(HAS_HTTPLIB)
#include <httplib.h>
#endif

#if defined(ATTACH_LIBRARY)

namespace {

using nlohmann::json;
using Environment = std::map<std::string, std::string>;

std::string text_of(const std::filesystem::path& path) {
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
std::string stat_of(const std::filesystem::path& folder) {
    const std::string stat = text_of(folder / "stat");
    const auto name_end = stat.rfind(") ");
    return name_end == std::string::npos ? "" : stat.substr(name_end + 2);
}
std::filesystem::path proc(pid_t process) {
    return std::filesystem::path{"/proc"} / std::to_string(process);
}
pid_t parent_of(pid_t process) {
    const std::string stat = stat_of(proc(process));
    return stat.empty() ? 0 : std::atoi(stat.c_str() + 1);
}
/// Stops a process. @returns whether all of its threads stand still
bool stop(pid_t process) {
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

constexpr const char* double_address = "0000:1b:00.0";

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
                                {"XDG_RUNTIME_DIR", folder_.string()}};
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

TEST_F(Attach, NamesEachLaunchAndFindsTheIterations) {
    const Outcome seen = run({}, {PROGRAM, "60"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.out, "output\n");
    EXPECT_EQ(seen.err, "");
    for (const auto& [kernel, calls] : std::map<std::string, int>{
             {"gemm", 480}, {"attention::flash<128>", 480}, {"norm", 480}, {"adam", 120}}) {
        const json row = seen.row(kernel);
        ASSERT_FALSE(row.is_null()) << kernel << seen.report.dump(1);
        EXPECT_EQ(row["calls"], calls) << kernel;
        EXPECT_EQ(row["metered_calls"], calls) << kernel;  // no record was lost
    }
    EXPECT_GE(seen.row("gemm")["time_s"].get<double>(), 480 * 400e-6);
    EXPECT_EQ(seen.row("memcpy HtoD")["calls"], 1);
    const json& iterations = seen.report["processes"][0]["devices"][0]["iterations"];
    EXPECT_EQ(iterations["by"], "period");
    EXPECT_EQ(iterations["launches"], 26);
    EXPECT_GE(iterations["count"], 35);
    EXPECT_EQ(iterations["alike"], 1);
    const json& totals = seen.report["totals"];
    ASSERT_EQ(totals["kernels"]["status"], "resolved");
    const json& idle = totals["idle"]["joules"];  // null where it cannot be told from kernels
    const double parts = totals["kernels"]["joules"].get<double>() +
                         (idle.is_null() ? 0 : idle.get<double>()) +
                         totals["unexplained_j"].get<double>();
    EXPECT_NEAR(parts, totals["counter_j"].get<double>(), 1e-6 * parts);
}

TEST_F(Attach, TellsWorkOfOneNameAndGridApartByItsTime) {
    const Outcome seen = run({}, {PROGRAM, "20", "persistent"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.row("persistent")["calls"], 40);
    double shortest = 1;
    double longest = 0;
    for (const json& row : seen.rows("persistent")) {
        const double mean = row["time_s"].get<double>() / row["metered_calls"].get<double>();
        shortest = std::min(shortest, mean);
        longest = std::max(longest, mean);
        EXPECT_EQ(row["variant"].get<int>() % 64, 8);  // 132 blocks
    }
    EXPECT_GT(longest, 1.6 * shortest) << seen.report.dump(1);
}

/// Autograd launches the backward from a thread of its own, where libraries open ranges of theirs.
TEST_F(Attach, MakesRangesScopesOnWhateverThreadLaunches) {
    const Outcome seen = run({"--level", "range", "--iteration", "step"}, {PROGRAM, "40"});
    EXPECT_EQ(seen.exit_code(), 0);
    for (const char* range : {"step/forward", "step/backward", "step/optimizer"}) {
        ASSERT_FALSE(seen.row(range).is_null()) << range << seen.report.dump(1);
        EXPECT_EQ(seen.row(range)["calls"], 40) << range;
        EXPECT_EQ(seen.row(range)["metered_calls"], 40) << range;
    }
    // Four layers of 800 us forward, as much backward, from another thread.
    EXPECT_GE(seen.row("step/backward")["time_s"].get<double>(), 40 * 3.2e-3);
    EXPECT_TRUE(seen.row("blas").is_null()) << seen.report.dump(1);
    EXPECT_EQ(seen.row("outside ranges")["calls"], 1);  // the copy
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["iterations"]["count"], 40);
}

TEST_F(Attach, TakesTheRangesOfLibrariesWhereTheProgramHasNone) {
    const Outcome seen = run({"--level", "range"}, {PROGRAM, "20", "unnamed"});
    EXPECT_EQ(seen.exit_code(), 0);
    ASSERT_FALSE(seen.row("blas").is_null()) << seen.report.dump(1);
    EXPECT_EQ(seen.row("blas")["calls"], 20);
    EXPECT_GE(seen.row("blas")["time_s"].get<double>(), 20 * 3.2e-3);
    EXPECT_EQ(seen.row("outside ranges")["calls"], 20 * 14 + 1);  // forward, optimizer, the copy
}

TEST_F(Attach, TakesTheRangesThatAreAskedFor) {
    const Outcome seen =
        run({"--level", "range", "--iteration", "step", "--match", "ward$"}, {PROGRAM, "20"});
    EXPECT_EQ(seen.exit_code(), 0);
    for (const char* range : {"forward", "backward"}) {
        ASSERT_FALSE(seen.row(range).is_null()) << range << seen.report.dump(1);
        EXPECT_EQ(seen.row(range)["calls"], 20) << range;
        EXPECT_GE(seen.row(range)["time_s"].get<double>(), 20 * 3.2e-3) << range;
    }
    EXPECT_EQ(seen.row("outside ranges")["calls"], 41);  // the copy and the optimizer's launches
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["iterations"]["count"], 20);
    const Outcome librarys = run({"--level", "range", "--match", "^(step|blas)$"}, {PROGRAM, "20"});
    EXPECT_EQ(librarys.row("blas")["calls"], 20) << librarys.report.dump(1);
}

TEST_F(Attach, SeesGraphsAsUnitsAndPutsNothingIntoCaptures) {
    const Outcome seen = run({}, {PROGRAM, "30", "graph"});
    EXPECT_EQ(seen.exit_code(), 0);  // 6 where something was written into the capture
    ASSERT_FALSE(seen.row("graph of 26 nodes").is_null()) << seen.report.dump(1);
    EXPECT_EQ(seen.row("graph of 26 nodes")["calls"], 30);
    EXPECT_TRUE(seen.row("gemm").is_null());
}

TEST_F(Attach, ReportsKernelsThatAreNotAskedForTogether) {
    const Outcome seen = run({"--match", "^gemm"}, {PROGRAM, "10"});
    EXPECT_EQ(seen.row("gemm")["calls"], 80);
    EXPECT_EQ(seen.row("other kernels")["calls"], 181);
    EXPECT_TRUE(seen.row("norm").is_null());
}

json planned(const char* name, int variant, int clock) {
    json row{{"kernel", name}, {"variant", variant}, {"count", 8}, {"core_mhz", clock}};
    for (const char* key : {"time_pct", "energy_pct"}) row[key] = 0.0;
    for (const char* key : {"time_s", "baseline_time_s"}) row[key] = 0.0032;
    for (const char* key : {"energy_j", "baseline_energy_j"}) row[key] = 1.6;
    row["mem_mhz"] = -1;
    return row;
}
void write_plan(const std::string& path, const json& kernels) {
    const json cost{{"time_s", 0.01}, {"energy_j", 5.0}, {"core_mhz", -1}, {"mem_mhz", -1}};
    const json plan{{"gpu", "Double of an NVIDIA GPU"},
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

TEST_F(Attach, ObeysAPlanAndPutsTheClocksBack) {
    write_plan(path("plan.json"),
               json::array({planned("gemm", 8, 1000), planned("norm", 6, 1500)}));
    const Outcome seen =
        run({"--plan", path("plan.json")}, {PROGRAM, "30"}, {{"NVML_DOUBLE_LOG", path("writes")}});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    const std::string writes = text_of(path("writes"));
    EXPECT_NE(writes.find("core(210, 1000)\n"), std::string::npos) << writes << seen.notes();
    EXPECT_NE(writes.find("core(210, 1500)\n"), std::string::npos) << writes;
    EXPECT_TRUE(writes.ends_with("core free\n")) << writes;
    EXPECT_EQ(seen.row("gemm")["asked"]["core_mhz"], 1000) << seen.report.dump(1);
}

TEST_F(Attach, ObeysAPlanOfRanges) {
    write_plan(path("plan.json"),
               json::array({planned("step/forward", 0, 1000), planned("step/optimizer", 0, 1500)}));
    const Outcome seen =
        run({"--plan", path("plan.json"), "--level", "range", "--iteration", "step"},
            {PROGRAM, "30"}, {{"NVML_DOUBLE_LOG", path("writes")}});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    const std::string writes = text_of(path("writes"));
    EXPECT_NE(writes.find("core(210, 1000)\n"), std::string::npos) << writes << seen.notes();
    EXPECT_NE(writes.find("core(210, 1500)\n"), std::string::npos) << writes;
    EXPECT_TRUE(writes.ends_with("core free\n")) << writes;
    EXPECT_EQ(seen.row("step/forward")["asked"]["core_mhz"], 1000) << seen.report.dump(1);
    EXPECT_EQ(seen.row("step/optimizer")["asked"]["core_mhz"], 1500);
}

/// What makes a sweep of the double short: little is waited for, and a run may be slowed much.
Environment short_sweep() {
    return {{"CUDA_DOUBLE_FEW_CLOCKS", "1"},
            {"KDVFS_SWEEP_ROWS", "2"},
            {"KDVFS_SWEEP_BLOCK", "0.1"},
            {"KDVFS_SWEEP_WARM_UP", "1"},
            {"KDVFS_RUN_SLOWDOWN", "1000"}};
}

TEST_F(Attach, SweepsAProgramWhosePlanIsThenFollowed) {
    Environment environment = short_sweep();
    environment["KDVFS_STATUS"] = path("status.json");
    // The double launches its backward pass from a new thread in each iteration. What a run has
    // not measured when it ends, the next one does.
    json status = json::object();
    for (int runs = 0; runs < 4 && !status.value(json::json_pointer{"/sweep/done"}, false);
         ++runs) {
        const Outcome swept = run({"--sweep", path("profile.csv")}, {PROGRAM, "600"}, environment);
        ASSERT_EQ(swept.exit_code(), 0) << swept.err;
        status = json::parse(text_of(path("status.json")), nullptr, false);
        ASSERT_TRUE(status.contains("sweep")) << status << swept.notes();
        ASSERT_GT(status["sweep"]["points_measured"], 1) << status << swept.notes();
    }
    EXPECT_TRUE(status["sweep"]["done"]) << status;
    EXPECT_EQ(status["sweep"]["points"], 6) << status;
    EXPECT_EQ(status["sweep"]["points_given_up"], 0) << status;

    const std::string plan = path("plan.json");
    const Outcome planned =
        wait_for(start({KDVFS_COMMAND, "plan", path("profile.csv"), "--max-slowdown", "60%",
                        "--format", "json", "-o", plan}));
    ASSERT_EQ(planned.exit_code(), 0) << planned.err;
    std::filesystem::permissions(plan, std::filesystem::perms::owner_read);
    const Outcome followed =
        run({"--plan", plan}, {PROGRAM, "30"},
            {{"CUDA_DOUBLE_FEW_CLOCKS", "1"}, {"NVML_DOUBLE_LOG", path("writes")}});
    EXPECT_EQ(followed.exit_code(), 0) << followed.err;
    const std::string writes = text_of(path("writes"));
    EXPECT_NE(writes.find("core(1000, "), std::string::npos) << text_of(plan) << followed.notes();
    EXPECT_TRUE(writes.ends_with("free\n")) << writes;
    for (const json& kernel : json::parse(text_of(plan))["kernels"]) {
        const json asked = followed.most_called(kernel["kernel"].get<std::string>())["asked"];
        EXPECT_EQ(asked["core_mhz"], kernel["core_mhz"]) << kernel << followed.report.dump(1);
    }
}

TEST_F(Attach, PutsTheClocksBackOfAProgramThatIsKilled) {
    write_plan(path("plan.json"),
               json::array({planned("gemm", 8, 1000), planned("attention::flash<128>", 9, 1000),
                            planned("norm", 6, 1000), planned("adam", 11, 1000)}));
    const std::string smi = path("nvidia-smi");
    std::ofstream{smi} << "#!/bin/sh\necho \"$@\" >>" << path("calls") << '\n';
    std::filesystem::permissions(smi, std::filesystem::perms::owner_all);
    const pid_t child = start_run({"--plan", path("plan.json")},
                                  {"sh", "-c", std::string{PROGRAM} + " 100000; exit 9"},
                                  {{"NVML_DOUBLE_LOG", path("writes")}, {"KDVFS_NVIDIA_SMI", smi}});
    // Between its launches the clock is free, and while it is written nobody knows what it is: the
    // program stands still while its record is read, and dies where that says that 1000 MHz hold.
    pid_t program = 0;
    int looks = 0;
    const bool held = comes([&] {
        const auto before = record();
        if (!before || parent_of(parent_of(before->entry.process)) != child) return false;
        ++looks;
        if (!stop(before->entry.process)) return false;
        const auto now = record();
        if (now && !now->entry.history.uncertain && now->entry.history.written &&
            now->entry.history.written->cap.core.count == 1000) {
            program = now->entry.process;
            return true;
        }
        ::kill(before->entry.process, SIGCONT);
        return false;
    });
    ASSERT_TRUE(held) << looks << " looks" << seen_so_far();
    EXPECT_EQ(text_of(path("calls")), "") << seen_so_far();
    ASSERT_EQ(::kill(program, SIGKILL), 0);
    const Outcome seen = wait_for(child);
    EXPECT_EQ(seen.exit_code(), 9) << seen_so_far() << seen.notes();
    EXPECT_TRUE(comes([&] {
        const auto left = record();
        return left && left->note.words == "restored";
    })) << looks
        << " looks" << seen_so_far() << seen.notes();
    EXPECT_EQ(text_of(path("calls")), "-i 0000:1b:00.0 -rgc\n") << seen_so_far() << seen.notes();
    // The board died with the program here: what its record says is of none that comes.
    for (const std::filesystem::path& root :
         {std::filesystem::path{kdvfs::detail::RestorePlace::machine_root}, folder() / "kdvfs"}) {
        std::error_code ignored;
        std::filesystem::remove(root / double_address / kdvfs::detail::record_name, ignored);
    }
}

TEST_F(Attach, IsShownByTopWhileItRuns) {
    const pid_t child = start_run({}, {PROGRAM, "100000"});
    Outcome shown;
    for (int tries = 0; tries < 60 && shown.out.find("gemm") == std::string::npos; ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds{250});
        int status = 0;
        ::waitpid(start({"sh", "-c", KDVFS_COMMAND " top --once >" + path("top")}), &status, 0);
        shown.out = text_of(path("top"));
    }
    EXPECT_NE(shown.out.find("gemm"), std::string::npos) << shown.out;
    EXPECT_NE(shown.out.find("Double of an NVIDIA GPU: "), std::string::npos) << shown.out;
    ::kill(child, SIGTERM);
    static_cast<void>(wait_for(child));
}

TEST_F(Attach, ServesMetricsOnTheLoopback) {
#if defined(HAS_HTTPLIB)
    const pid_t child = start_run({"--metrics", "0"}, {PROGRAM, "100000"});
    const auto port = [&] {
        const std::string said = text_of(path("err"));
        const std::string before = "kdvfs: metrics at http://127.0.0.1:";
        const std::size_t at = said.find(before);
        return at == std::string::npos ? 0 : std::atoi(said.c_str() + at + before.size());
    };
    for (int tries = 0; tries < 400 && port() == 0; ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds{25});
    }
    ASSERT_GT(port(), 0) << text_of(path("err"));
    httplib::Client client{"127.0.0.1", port()};
    std::string text;
    for (int tries = 0; tries < 80 && text.find("\"gemm\"") == std::string::npos; ++tries) {
        const auto answer = client.Get("/metrics");
        ASSERT_TRUE(answer);
        EXPECT_EQ(answer->status, 200);
        EXPECT_EQ(answer->get_header_value("Content-Type").find("text/plain; version=0.0.4"), 0U);
        text = answer->body;
        std::this_thread::sleep_for(std::chrono::milliseconds{250});
    }
    EXPECT_NE(text.find("kdvfs_kernel_launches_total{hw_id=\"0000:1b:00.0\",kernel=\"gemm\","),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("\nhw_energy_joules_total{hw_id=\"0000:1b:00.0\",hw_type=\"gpu\""),
              std::string::npos)
        << text;
    EXPECT_EQ(client.Get("/else")->status, 404);
    ::kill(child, SIGTERM);
    const Outcome seen = wait_for(child);
    EXPECT_EQ(WTERMSIG(seen.status), SIGTERM);
    const Outcome refused = run({"--metrics", "port"}, {PROGRAM, "1"});
    EXPECT_EQ(refused.out, "");  // said before the program is started
    EXPECT_NE(refused.err.find("this is no port"), std::string::npos) << refused.err;
#else
    GTEST_SKIP() << "no cpp-httplib here (Debian: libcpp-httplib-dev)";
#endif
}

// What it must survive. The program's exit code, output and signals are its own.

TEST_F(Attach, KeepsExitCodeAndOutput) {
    const Outcome seen = run({}, {PROGRAM, "3", "exit=7"});
    EXPECT_EQ(seen.exit_code(), 7);
    EXPECT_EQ(seen.out, "output\n");
    EXPECT_EQ(seen.err, "");
}

TEST_F(Attach, KeepsTheSignalThatEndsTheProgram) {
    const Outcome seen = run({}, {PROGRAM, "200", "abort"});
    EXPECT_TRUE(WIFSIGNALED(seen.status));
    EXPECT_EQ(WTERMSIG(seen.status), SIGABRT);
    // What was known up to its last second is reported, and said to be that.
    ASSERT_FALSE(seen.report.is_null());
    EXPECT_EQ(seen.report["processes"][0]["ended"], false);
    EXPECT_GT(seen.row("gemm")["calls"], 100);
}

TEST_F(Attach, PassesSignalsOn) {
    const pid_t child = start_run({}, {PROGRAM, "100000"});
    while (text_of(path("out")) != "output\n") {
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    ::kill(child, SIGTERM);
    const Outcome seen = wait_for(child);
    EXPECT_TRUE(WIFSIGNALED(seen.status));
    EXPECT_EQ(WTERMSIG(seen.status), SIGTERM);
}

TEST_F(Attach, IsNothingInAForkedChild) {
    const Outcome seen = run({}, {PROGRAM, "5", "fork"});
    EXPECT_EQ(seen.exit_code(), 0);
    ASSERT_EQ(seen.report["processes"].size(), 1U);
    EXPECT_EQ(seen.row("adam")["calls"], 12);
}

TEST_F(Attach, IsNothingInAForkedChildThatLaunches) {
    const Outcome seen =
        run({"--level", "range", "--iteration", "step"}, {PROGRAM, "5", "fork", "child_works"});
    EXPECT_EQ(seen.exit_code(), 0);
    ASSERT_EQ(seen.report["processes"].size(), 1U);
    EXPECT_EQ(seen.row("step/optimizer")["calls"], 6);
    EXPECT_TRUE(seen.row("child").is_null());
}

TEST_F(Attach, StaysWhereEverybodyClosesIt) {
    const Outcome seen = run({}, {PROGRAM, "20", "dlclose"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 160);
}

TEST_F(Attach, KeepsTheSignalOfACrashAtExit) {
    for (const auto& [when, ended] : std::map<std::string, bool>{{"abort_at_exit=last", true},
                                                                 {"abort_at_exit=first", false}}) {
        const Outcome seen = run({}, {PROGRAM, "200", when});
        EXPECT_TRUE(WIFSIGNALED(seen.status)) << when;
        EXPECT_EQ(WTERMSIG(seen.status), SIGABRT) << when;
        EXPECT_EQ(seen.out, "output\n") << when;
        ASSERT_FALSE(seen.report.is_null()) << when;
        EXPECT_EQ(seen.report["processes"][0]["ended"], ended) << when;
        EXPECT_GT(seen.row("gemm")["calls"], 100) << when;
    }
}

TEST_F(Attach, SeesAStaticRuntimeOfCuda) {
    const Outcome seen = run({}, {STATIC_PROGRAM, "cuda", "50"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.out, "output\n");
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 50) << seen.report.dump(1);
}

TEST_F(Attach, SaysThatNothingWasSeenOfAStaticRuntimeOfHip) {
    const pid_t child =
        start({KDVFS_COMMAND, "run", "--preload", "--", STATIC_PROGRAM, "hip", "9"});
    const Outcome seen = wait_for(child);
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.out, "output\n");
    EXPECT_EQ(seen.err, "kdvfs: no GPU work was seen\n");
}

TEST_F(Attach, LeavesAnotherToolsInjectionWhereItIs) {
    const Outcome seen = run({}, {"sh", "-c", "echo $CUDA_INJECTION64_PATH"},
                             {{"CUDA_INJECTION64_PATH", "/theirs"}});
    EXPECT_EQ(seen.out, "/theirs\n");
    EXPECT_NE(seen.err.find("another tool is injected"), std::string::npos) << seen.err;
}

TEST_F(Attach, SurvivesLaunchesThatFail) {
    const Outcome seen = run({}, {PROGRAM, "5", "failing"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 40);
}

TEST_F(Attach, RunsPlainWhereAnotherProfilerHoldsCupti) {
    const Outcome seen = run({}, {PROGRAM, "3"}, {{"CUPTI_DOUBLE_HELD", "1"}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_NE(seen.notes().find("another profiler holds CUPTI"), std::string::npos);
    EXPECT_TRUE(seen.report["rows"].empty());
}

TEST_F(Attach, RunsPlainWhereThereIsNoCupti) {
    const Outcome seen = run({}, {PROGRAM, "3"}, {{"KDVFS_CUPTI", "/nowhere/libcupti.so"}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_NE(seen.notes().find("runs on without kdvfs: CUPTI: "), std::string::npos);
}

TEST_F(Attach, TellsTimesWhereThereAreNoJoules) {
    const Outcome seen = run({}, {PROGRAM, "5"}, {{"KDVFS_NVML", "/nowhere/libnvidia-ml.so"}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 40);
    EXPECT_EQ(seen.row("gemm")["energy"]["status"], "too_short_to_tell");
    EXPECT_NE(seen.notes().find("no joules"), std::string::npos) << seen.notes();
}

TEST_F(Attach, SaysHowManyRecordsNeverCame) {
    const Outcome seen = run({}, {PROGRAM, "60"}, {{"CUPTI_DOUBLE_LOSES_ONE_IN", "50"}});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_NE(seen.notes().find("could not be taken"), std::string::npos) << seen.notes();
    const json row = seen.row("gemm");
    EXPECT_LT(row["metered_calls"], 480);
    EXPECT_GT(row["metered_calls"], 300);
}

TEST_F(Attach, AttachesToChildrenAndAddsTheirReports) {
    const std::string one = std::string{PROGRAM} + " 5";
    const Outcome seen =
        run({}, {"sh", "-c", "RANK=0 " + one + " & RANK=1 " + one + " & wait; exit 3"});
    EXPECT_EQ(seen.exit_code(), 3);
    ASSERT_EQ(seen.report["processes"].size(), 2U) << seen.report.dump(1);
    EXPECT_EQ(seen.report["processes"][1]["rank"], "1");
    EXPECT_EQ(seen.row("gemm")["calls"], 80);
}

// Repeating kernels in place: at once, where users wait for a stretch of the program as it is.

const Environment at_once{{"KDVFS_ATTACH_REPEAT_AFTER", "0"}};

TEST_F(Attach, RepeatsKernelsUntilTheirJoulesAreTold) {
    const Outcome seen = run({"--repeat"}, {PROGRAM, "60", "scan"}, at_once);
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.err, "");  // no crash: the scan is known by its name
    for (const auto& [kernel, watts] : std::map<std::string, double>{
             {"gemm", 600}, {"attention::flash<128>", 400}, {"norm", 300}, {"adam", 250}}) {
        const json row = seen.most_called(kernel);
        ASSERT_TRUE(row.contains("repeated")) << kernel << seen.report.dump(1);
        const json& its = row["repeated"];
        EXPECT_GT(its["repeats"], 50) << kernel;
        // The board's own 100 W, and the kernel's while it runs: less where it comes to wait.
        EXPECT_GT(its["power_w"], 0.6 * watts) << kernel;
        EXPECT_LT(its["power_w"], 1.05 * watts) << kernel;
        EXPECT_LT(its["power_half_width_w"], 0.1 * watts) << kernel;
    }
    EXPECT_EQ(seen.row("gemm")["calls"], 480);  // the program's own
    EXPECT_EQ(seen.row("DeviceScanKernel")["calls"], 60);
    EXPECT_FALSE(seen.most_called("DeviceScanKernel").contains("repeated"));
    EXPECT_EQ(seen.notes().find("could not be taken"), std::string::npos) << seen.notes();
}

TEST_F(Attach, RunsAsItIsForTenSecondsBeforeItRepeats) {
    const Outcome seen = run({"--repeat"}, {PROGRAM, "20"});
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_FALSE(seen.most_called("gemm").contains("repeated")) << seen.report.dump(1);
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 160);
    EXPECT_NE(seen.notes().find("launched 10000.0 ms after the first"), std::string::npos)
        << seen.notes();
}

TEST_F(Attach, RepeatsWorkOfOneNameAndGridEachByItsTime) {
    const Outcome seen =
        run({"--repeat", "--match", "persistent"}, {PROGRAM, "40", "persistent"}, at_once);
    EXPECT_EQ(seen.exit_code(), 0);
    ASSERT_GE(seen.rows("persistent").size(), 2U) << seen.report.dump(1);
    std::map<double, double> watts;  // by the mean time of a repeated launch
    for (const json& row : seen.rows("persistent")) {
        if (!row.contains("repeated")) continue;
        const json& its = row["repeated"];
        watts[its["repeats_time_s"].get<double>() / its["repeats"].get<double>()] = its["power_w"];
    }
    ASSERT_GE(watts.size(), 2U) << seen.report.dump(1);
    EXPECT_LT(watts.begin()->first, 1e-3);   // 100 us at 300 W
    EXPECT_GT(watts.rbegin()->first, 4e-3);  // 5000 us at 500 W
    EXPECT_GT(watts.rbegin()->second, 1.2 * watts.begin()->second);
}

TEST_F(Attach, GoesOnWithoutAKernelThatDoesNotSurviveRepeating) {
    for (const char* way : {"fragile=ends", "fragile=fails", "fragile=hangs"}) {
        const Outcome seen = run({"--repeat", "--match", "gemm|fragile"}, {PROGRAM, "20", way},
                                 {{"KDVFS_ATTACH_PATIENCE", "6"}, *at_once.begin()});
        EXPECT_EQ(seen.exit_code(), 0) << way << seen.err;
        EXPECT_NE(seen.err.find("did not survive that kernel 'fragile' was repeated"),
                  std::string::npos)
            << way << seen.err;
        ASSERT_EQ(seen.report["processes"].size(), 1U) << way;
        EXPECT_TRUE(seen.most_called("gemm").contains("repeated")) << way;
        EXPECT_FALSE(seen.most_called("fragile").contains("repeated")) << way;
        EXPECT_EQ(seen.row("fragile")["calls"], 20) << way;
    }
}

TEST_F(Attach, LeavesOutWhatMustNotBeRepeated) {
    const Outcome seen = run({"--repeat", "--match", "gemm|fragile", "--runs-once", "^frag"},
                             {PROGRAM, "20", "fragile=ends"}, at_once);
    EXPECT_EQ(seen.exit_code(), 0);
    EXPECT_EQ(seen.err, "");
    EXPECT_FALSE(seen.most_called("fragile").contains("repeated"));
}

#if defined(HIP_PROGRAM)
TEST_F(Attach, StandsBeforeTheLaunchesOfHip) {
    const Outcome seen = run({"--preload", "--meter", "1"}, {HIP_PROGRAM, "50"});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_EQ(seen.out, "output\n");
    for (const auto& [kernel, calls] : std::map<std::string, int>{
             {"gemm", 200}, {"norm<float>", 200}, {"module_kernel", 100}, {"graph", 50}}) {
        ASSERT_FALSE(seen.row(kernel).is_null()) << kernel << seen.report.dump(1) << seen.notes();
        EXPECT_EQ(seen.row(kernel)["calls"], calls) << kernel;
    }
    EXPECT_EQ(seen.row("gemm")["metered_calls"], 200);
    EXPECT_GE(seen.row("gemm")["time_s"].get<double>(), 200 * 300e-6);
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["iterations"]["launches"], 11);
}

TEST_F(Attach, TakesTimesFromRecordsOfDispatchesWithoutMarkers) {
    const Environment records{{"KDVFS_DISPATCH_RECORDS", DISPATCH_RECORDS}};
    const Outcome seen = run({"--preload"}, {HIP_PROGRAM, "50"}, records);
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    for (const auto& [kernel, calls] :
         std::map<std::string, int>{{"gemm", 200}, {"norm<float>", 200}, {"module_kernel", 100}}) {
        EXPECT_EQ(seen.row(kernel)["calls"], calls) << kernel << seen.report.dump(1);
        EXPECT_EQ(seen.row(kernel)["metered_calls"], calls) << kernel;
    }
    EXPECT_GE(seen.row("gemm")["time_s"].get<double>(), 200 * 300e-6);
    EXPECT_NE(seen.notes().find("markers: none"), std::string::npos) << seen.notes();
    const Outcome ranges =
        run({"--preload", "--level", "range", "--iteration", "step"}, {HIP_PROGRAM, "10"}, records);
    EXPECT_EQ(ranges.row("step/layers")["metered_calls"], 10) << ranges.report.dump(1);
    EXPECT_GE(ranges.row("step/layers")["time_s"].get<double>(), 10 * 8 * 300e-6);
    const Outcome missing = run({"--preload", "--meter", "1"}, {HIP_PROGRAM, "5"},
                                {{"KDVFS_DISPATCH_RECORDS", "/nowhere/records.so"}});
    EXPECT_NE(missing.notes().find("no records of dispatches"), std::string::npos);
    EXPECT_EQ(missing.row("gemm")["metered_calls"], 20);  // by markers
}

TEST_F(Attach, RepeatsNothingWhereThereAreNoJoules) {
    const Outcome seen =
        run({"--preload", "--meter", "1", "--repeat"}, {HIP_PROGRAM, "10"}, at_once);
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_NE(seen.notes().find("no joules"), std::string::npos) << seen.notes();
    ASSERT_FALSE(seen.rows("gemm").empty());
    EXPECT_FALSE(seen.most_called("gemm").contains("repeated"));
}

TEST_F(Attach, TakesRangesOfRoctxAndKokkos) {
    const Outcome seen =
        run({"--preload", "--meter", "1", "--level", "range", "--iteration", "step"},
            {HIP_PROGRAM, "10"});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    ASSERT_FALSE(seen.row("step/layers").is_null()) << seen.report.dump(1) << seen.notes();
    EXPECT_EQ(seen.row("step/layers")["calls"], 10);
    EXPECT_EQ(seen.row("step/axpy")["calls"], 10);
}
#endif

TEST_F(Attach, TakesTheNamesOfTheRealKokkosAndAsksForNoFence) {
#if defined(KOKKOS_PROGRAM)
    const Outcome seen =
        run({"--old-kokkos", "--level", "range", "--iteration", "solver"}, {KOKKOS_PROGRAM, "20"});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    EXPECT_EQ(seen.out, "0 fences\n");
    EXPECT_EQ(seen.err, "");
    for (const char* range : {"solver", "solver/axpy", "solver/dot"}) {
        ASSERT_FALSE(seen.row(range).is_null()) << range << seen.report.dump(1) << seen.notes();
        EXPECT_EQ(seen.row(range)["calls"], 20) << range;
    }
    EXPECT_GE(seen.row("solver/axpy")["time_s"].get<double>(), 20 * 4 * 200e-6);
    EXPECT_EQ(seen.report["processes"][0]["devices"][0]["launches"], 20 * 6);
#else
    GTEST_SKIP() << "no Kokkos here (Debian: libtrilinos-kokkos-dev)";
#endif
}

TEST_F(Attach, SaysWhatCannotBeRun) {
    const Outcome missing = run({}, {"/nowhere/program"});
    EXPECT_EQ(missing.exit_code(), 127);
    EXPECT_NE(missing.err.find("/nowhere/program"), std::string::npos);
    const Outcome forbidden = run({}, {"/etc/passwd"});
    EXPECT_EQ(forbidden.exit_code(), 126);
}

TEST_F(Attach, LeavesProgramsWithoutAGpuAlone) {
    const Outcome seen = run({}, {"sh", "-c", "echo quiet; exit 4"});
    EXPECT_EQ(seen.exit_code(), 4);
    EXPECT_EQ(seen.out, "quiet\n");
    EXPECT_EQ(seen.err, "");
    EXPECT_TRUE(seen.report["processes"].empty());
}

}  // namespace

#endif
