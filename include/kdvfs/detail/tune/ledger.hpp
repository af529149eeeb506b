// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/saving.hpp>
#include <kdvfs/units.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The account of what runs that tune themselves have saved, over jobs and restarts.
namespace kdvfs::inline v0_3::tune {

/// What one process saved on one board, up to now: a job that is killed and requeued has a segment
/// for each of its starts.
struct LedgerSegment {
    std::string id;     ///< tells segments apart: host, process, start
    std::string job{};  ///< of the scheduler; empty where there is none
    std::string user{};
    std::string board{};
    std::int64_t began = 0;  ///< seconds since 1970
    Seconds passed{0};
    Joules saved{};
    Joules saved_low{};
    Joules saved_high{};
    Seconds lost{0};
    std::optional<Joules> by_one_clock{};  ///< of `saved`, where it was measured
};

/// What several segments saved together. Errors of segments are independent of one another: their
/// intervals' squares add.
struct LedgerTotal {
    std::size_t segments = 0;
    Seconds passed{0};
    Seconds lost{0};
    Joules saved{};
    Joules compared{};  ///< of it, in segments where it is known what one clock would have saved
    Joules by_one_clock{};
    double below = 0;  ///< squared width of the interval below the mean
    double above = 0;  ///< and above it

    void add(const LedgerSegment& segment) {
        ++segments;
        passed += segment.passed;
        lost += segment.lost;
        saved += segment.saved;
        below += std::pow((segment.saved - segment.saved_low).count, 2);
        above += std::pow((segment.saved_high - segment.saved).count, 2);
        if (!segment.by_one_clock) return;
        compared += segment.saved;
        by_one_clock += *segment.by_one_clock;
    }
    [[nodiscard]] Joules low() const { return saved - Joules{std::sqrt(below)}; }
    [[nodiscard]] Joules high() const { return saved + Joules{std::sqrt(above)}; }
};

/// What a ledger file says.
struct Ledger {
    std::vector<LedgerSegment> segments;  ///< each as it was written last
    std::size_t unreadable = 0;           ///< lines that are cut short, or of another version

    template <class Key>
    [[nodiscard]] std::map<std::string, LedgerTotal> totals_by(Key key) const {
        std::map<std::string, LedgerTotal> totals;
        for (const LedgerSegment& segment : segments) totals[key(segment)].add(segment);
        return totals;
    }
    [[nodiscard]] LedgerTotal total() const {
        LedgerTotal total;
        for (const LedgerSegment& segment : segments) total.add(segment);
        return total;
    }
};

namespace detail {
inline constexpr int ledger_version = 1;

inline std::string ledger_line(const LedgerSegment& segment) {
    nlohmann::ordered_json line{{"kdvfs_ledger", ledger_version},
                                {"id", segment.id},
                                {"job", segment.job},
                                {"user", segment.user},
                                {"board", segment.board},
                                {"began", segment.began},
                                {"passed_s", segment.passed.count()},
                                {"saved_j", segment.saved.count},
                                {"saved_low_j", segment.saved_low.count},
                                {"saved_high_j", segment.saved_high.count},
                                {"lost_s", segment.lost.count()}};
    if (segment.by_one_clock) line["by_one_clock_j"] = segment.by_one_clock->count;
    return line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + '\n';
}

/// @returns nothing for what is no line of a ledger of this version
inline std::optional<LedgerSegment> parse_ledger_line(std::string_view text) {
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return std::nullopt;
    const auto number = [&](const char* key) {
        const auto found = json.find(key);
        return found != json.end() && found->is_number() ? found->get<double>() : std::nan("");
    };
    const auto text_of = [&](const char* key) {
        const auto found = json.find(key);
        return found != json.end() && found->is_string() ? found->get<std::string>()
                                                         : std::string{};
    };
    if (number("kdvfs_ledger") != ledger_version) return std::nullopt;
    const double began = number("began");
    LedgerSegment segment{text_of("id"),
                          text_of("job"),
                          text_of("user"),
                          text_of("board"),
                          std::abs(began) < 1e15 ? static_cast<std::int64_t>(began) : 0,
                          Seconds{number("passed_s")},
                          {number("saved_j")},
                          {number("saved_low_j")},
                          {number("saved_high_j")},
                          Seconds{number("lost_s")}};
    const bool ordered = segment.saved_low <= segment.saved && segment.saved <= segment.saved_high;
    // More than any machine has done: a few such lines would make totals infinite.
    constexpr double most = 1e15;
    const bool in_range = segment.passed >= Seconds{0} && segment.passed.count() <= most &&
                          std::abs(segment.lost.count()) <= most &&
                          segment.saved_low.count >= -most && segment.saved_high.count <= most;
    if (segment.id.empty() || !ordered || !in_range) return std::nullopt;
    if (const double joules = number("by_one_clock_j"); std::abs(joules) <= most)
        segment.by_one_clock = Joules{joules};
    return segment;
}

}  // namespace detail

/// Appends what a segment has saved by now to a ledger, in one write under a lock: processes of
/// several jobs and nodes may share the file. A line that a writer left cut short, killed or on a
/// full disk, is closed first. The file is made where it is not there.
/// @throws Error (io)
inline void append_to_ledger(const std::filesystem::path& file, const LedgerSegment& segment) {
    const kdvfs::detail::Descriptor opened{::open(
        file.c_str(), O_RDWR | O_APPEND | O_CREAT | O_NOCTTY | O_CLOEXEC | O_NONBLOCK, 0644)};
    const auto fail = [&](int error) {
        kdvfs::detail::throw_file_error("append to a ledger", file, error);
    };
    if (!opened.is_open()) fail(errno);
    struct stat status {};
    if (::fstat(opened.get(), &status) != 0) fail(errno);
    if (!S_ISREG(status.st_mode)) fail(EINVAL);
    while (::flock(opened.get(), LOCK_EX) != 0)
        if (errno != EINTR) fail(errno);
    if (::fstat(opened.get(), &status) != 0) fail(errno);
    char last = '\n';
    if (status.st_size > 0 && ::pread(opened.get(), &last, 1, status.st_size - 1) != 1) fail(EIO);
    const std::string line = (last == '\n' ? "" : "\n") + detail::ledger_line(segment);
    if (const int error = kdvfs::detail::write_all(opened.get(), line); error != 0) fail(error);
}

/// Reads a ledger. Of each segment its last line counts. Lines that cannot be read are counted and
/// passed over.
/// @param text of the file
inline Ledger parse_ledger(std::string_view text) {
    Ledger ledger;
    std::map<std::string, std::size_t> known;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (line.empty()) continue;
        auto segment = detail::parse_ledger_line(line);
        if (!segment) {
            ++ledger.unreadable;
            continue;
        }
        const auto [at, is_new] = known.try_emplace(segment->id, ledger.segments.size());
        if (is_new)
            ledger.segments.push_back(*std::move(segment));
        else
            ledger.segments[at->second] = *std::move(segment);
    }
    return ledger;
}

namespace detail {

/// Keeps a run's line in the ledger that the environment names up to date: once a minute, since a
/// killed job says nothing, and at the end. Where that fails it says so once and goes on without.
class RunLedger {
public:
    RunLedger(std::filesystem::path file, const std::string& board) : file_{std::move(file)} {
        using kdvfs::detail::environment;
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        std::array<char, 256> host{};
        static_cast<void>(::gethostname(host.data(), host.size() - 1));
        segment_.id = std::string{host.data()} + '.' + std::to_string(::getpid()) + '.' +
                      std::to_string(now.count()) + '.' + board;
        for (const char* job : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"})
            if (segment_.job.empty()) segment_.job = environment(job);
        const std::string_view user = environment("USER");
        segment_.user = user.empty() ? std::to_string(::getuid()) : std::string{user};
        segment_.board = board;
        segment_.began = std::chrono::duration_cast<std::chrono::seconds>(now).count();
    }

    [[nodiscard]] bool is_due() const {
        return !failed_ && std::chrono::steady_clock::now() >= next_;
    }
    void write(const Saving& saving) {
        if (failed_ || saving.passed <= Seconds{0}) return;
        next_ = std::chrono::steady_clock::now() + std::chrono::minutes{1};
        segment_.passed = saving.passed;
        segment_.saved = saving.saved;
        segment_.saved_low = std::min(saving.saved_low, saving.saved);
        segment_.saved_high = std::max(saving.saved_high, saving.saved);
        segment_.lost = saving.lost;
        segment_.by_one_clock = saving.by_one_clock;
        try {
            append_to_ledger(file_, segment_);
        } catch (const Error& error) {
            failed_ = true;
            std::fprintf(stderr, "kdvfs: %s\n", error.what());
        }
    }

private:
    std::filesystem::path file_;
    LedgerSegment segment_;
    std::chrono::steady_clock::time_point next_{};
    bool failed_ = false;
};

}  // namespace detail
}  // namespace kdvfs::inline v0_3::tune
