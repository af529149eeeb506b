// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/detail/tune/ranks.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>
#include <tools/cli/input.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cli {

/// What is tuned and how: names and values of options, by what depends on them.
struct TuningJob {
    nlohmann::ordered_json program;  ///< all that was measured
    nlohmann::ordered_json runs;     ///< what whole runs took
    nlohmann::ordered_json sweep;    ///< when the sweep is over; measurements stay valid

    [[nodiscard]] std::string text() const {
        nlohmann::ordered_json all = program;
        all.update(runs);
        all.update(sweep);
        return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
    }
};

/// The folder that a tuning keeps all it knows in: each step leaves a file that is there as a whole
/// or not at all, so that a tuning that was killed goes on where it was. One process at a time.
class TuningFolder {
public:
    /// Makes the folder, or goes on in it. What was found stays as far as it does not depend on
    /// what is different now.
    /// @throws Error (busy) where another tuning works in it, (invalid_input) where it has
    ///         measurements of another job, (io)
    TuningFolder(std::filesystem::path folder, const TuningJob& job) : folder_{std::move(folder)} {
        std::error_code failed;
        std::filesystem::create_directories(folder_, failed);
        const std::filesystem::path lock = file(".lock");
        lock_ = kdvfs::io::Descriptor{
            ::open(lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644)};
        if (!lock_.is_open()) kdvfs::io::throw_file_error("open a folder", folder_, errno);
        if (!locked_soon(lock_.get(), std::chrono::seconds{5}))
            throw kdvfs::Error{kdvfs::Errc::busy,
                               {"tune into a folder", folder_.string(),
                                "another kdvfs tune works in it", "wait for it, or give -o"}};
        if (has("job.json")) drop_what_differs(job);
        write("job.json", job.text());
    }

    [[nodiscard]] const std::filesystem::path& path() const { return folder_; }
    [[nodiscard]] std::filesystem::path file(const std::string& name) const {
        return folder_ / name;
    }
    [[nodiscard]] bool has(const std::string& name) const {
        return std::filesystem::exists(file(name));
    }
    [[nodiscard]] std::string read(const std::string& name) const {
        return read_input(file(name).string()).text;
    }
    void write(const std::string& name, const std::string& text) const {
        kdvfs::io::write_file_atomically(file(name), text);
    }

    /// The files of that name, as far as they are there: one, or one a rank.
    [[nodiscard]] std::vector<std::filesystem::path> ranked(const std::string& name) const {
        std::vector<std::filesystem::path> paths;
        if (has(name)) paths.push_back(file(name));
        for (const std::size_t rank : kdvfs::tune::ranks_beside(file(name)))
            paths.push_back(kdvfs::tune::rank_path(file(name), rank));
        return paths;
    }
    /// What the sessions of a program have told into a file: one, or one a rank; none where there
    /// was no session. @throws Error (invalid_input, io)
    [[nodiscard]] std::vector<kdvfs::tune::SessionStatus> statuses(const std::string& name) const {
        std::vector<kdvfs::tune::SessionStatus> found;
        for (const std::filesystem::path& path : ranked(name))
            found.push_back(
                kdvfs::tune::parse_session_status(read_input(path.string()).text, path.string()));
        return found;
    }

    /// Waits until no program writes to a file any more.
    /// @throws Error (busy) after ten seconds
    static void wait_for(const std::filesystem::path& path) {
        const kdvfs::io::Descriptor opened{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
        if (opened.is_open() && !locked_soon(opened.get(), std::chrono::seconds{10}))
            throw kdvfs::Error{kdvfs::Errc::busy,
                               {"go on with a sweep", path.string(),
                                "a program is still writing to it", "end that program"}};
    }

    /// Where what the program prints goes: its errors come through.
    [[nodiscard]] kdvfs::io::Descriptor open_log() const {
        const std::filesystem::path path = file("program.log");
        kdvfs::io::Descriptor log{
            ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)};
        if (!log.is_open()) kdvfs::io::throw_file_error("open a file", path, errno);
        return log;
    }

    /// A value of `KDVFS_MODE`.
    static std::string mode(const char* kind, const std::filesystem::path& file) {
        return kind + (':' + std::filesystem::absolute(file).string());
    }
    /// Prepares a run of the program: what an earlier run left in the file for its sessions is
    /// removed, or it would pass for what this one says.
    /// @param status the file for its sessions; empty: they report nothing
    /// @returns what the program finds in its environment
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> prepare_run(
        const std::string& mode, const std::string& status) const {
        if (!status.empty()) remove(status);
        return {{"KDVFS_MODE", mode},
                {"KDVFS_STATUS",
                 status.empty() ? "" : std::filesystem::absolute(file(status)).string()},
                {"KDVFS_PLAN", ""}};
    }

private:
    void remove(const std::string& name) const {
        for (const std::filesystem::path& path : ranked(name)) std::filesystem::remove(path);
    }

    void drop_what_differs(const TuningJob& job) const {
        const nlohmann::json before =
            kdvfs::tune::parse_json(read("job.json"), file("job.json").string());
        const auto differs = [&](const nlohmann::ordered_json& part) {
            for (const auto& [name, value] : part.items())
                if (before.value(name, nlohmann::json{}) != nlohmann::json(value)) return true;
            return false;
        };
        if (differs(job.program)) {
            if (!ranked("profile.csv").empty())
                throw kdvfs::Error{kdvfs::Errc::invalid_input,
                                   {"go on with a tuning", folder_.string(),
                                    "its measurements are of another program, or of other kernels",
                                    "give the command and the options of job.json there, or "
                                    "another folder with -o"}};
            remove("trial.json");
            remove("trial_status.json");
        }
        if (differs(job.runs)) {
            remove("trial.json");
            remove("runs.csv");
        }
        if (differs(job.sweep)) remove("sweep_status.json");  // another run says whether it is over
    }

    /// A tuning that was killed, and the program that it had started, need a moment to end.
    static bool locked_soon(int file, std::chrono::milliseconds patience) {
        constexpr std::chrono::milliseconds step{50};
        for (auto waited = step; ::flock(file, LOCK_EX | LOCK_NB) != 0; waited += step) {
            if (waited > patience) return false;
            std::this_thread::sleep_for(step);
        }
        return true;
    }

    std::filesystem::path folder_;
    kdvfs::io::Descriptor lock_;
};

/// What the runs of a validation took, in order, in a file that grows run by run. Runs by another
/// plan are dropped.
class RunLog {
public:
    /// @param plan tells the plan: a hash of it
    /// @throws Error (invalid_input) naming file and line, (io)
    RunLog(std::filesystem::path path, std::string plan)
        : path_{std::move(path)}, plan_{std::move(plan)} {
        std::string text = std::filesystem::exists(path_) ? read_input(path_.string()).text : "";
        text.resize(text.rfind('\n') + 1);  // drops a line that was cut short
        if (!text.empty()) parse(text);
        std::string kept{header};
        for (const auto& [planned, cost] : runs_) kept += line(planned, cost);
        if (kept != text) kdvfs::io::write_file_atomically(path_, kept);
    }

    /// The next run: as it was recorded, or else made now, and recorded.
    template <class Run>
    kdvfs::tune::Cost next(bool planned, Run run) {
        if (next_ < runs_.size() && runs_[next_].first == planned) return runs_[next_++].second;
        const kdvfs::tune::Cost cost = run();
        const kdvfs::io::Descriptor file{::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC)};
        if (!file.is_open()) kdvfs::io::throw_file_error("open a file", path_, errno);
        if (const int error = kdvfs::io::write_all(file.get(), line(planned, cost)); error != 0)
            kdvfs::io::throw_file_error("write a file", path_, error);
        runs_.resize(next_);
        runs_.emplace_back(planned, cost);
        ++next_;
        return cost;
    }

    [[nodiscard]] std::size_t recorded() const { return runs_.size(); }

private:
    static constexpr const char* header = "plan,planned,time_s,energy_j\n";

    [[nodiscard]] std::string line(bool planned, const kdvfs::tune::Cost& cost) const {
        return plan_ + (planned ? ",1," : ",0,") + kdvfs::io::to_text(cost.time.count()) + ',' +
               kdvfs::io::to_text(cost.energy.count) + '\n';
    }

    void parse(const std::string& text) {
        std::istringstream lines{text};
        kdvfs::io::CsvReader reader{lines, path_.string()};
        std::vector<std::string> fields;
        if (!reader.next(fields) || fields.size() != 4 || fields[0] != "plan")
            reader.fail("this is no log of runs");
        while (reader.next(fields)) {
            kdvfs::io::require_width(fields, 4, reader);
            const auto time = kdvfs::io::parse_number<double>(fields[2]);
            const auto energy = kdvfs::io::parse_number<double>(fields[3]);
            if (!time || !energy || (fields[1] != "0" && fields[1] != "1"))
                reader.fail("this is no run");
            const kdvfs::tune::Cost cost{kdvfs::Seconds{*time}, kdvfs::Joules{*energy}};
            if (const auto fault = kdvfs::tune::find_fault(cost)) reader.fail(*fault);
            if (fields[0] == plan_) runs_.emplace_back(fields[1] == "1", cost);
        }
    }

    std::filesystem::path path_;
    std::string plan_;
    std::vector<std::pair<bool, kdvfs::tune::Cost>> runs_;
    std::size_t next_ = 0;
};

}  // namespace cli
