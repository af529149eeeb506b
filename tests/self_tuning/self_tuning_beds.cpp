// SPDX-License-Identifier: MIT
//
// self_tuning_beds [ROW [SEEDS [HOURS [FIRST [FILE]]]]]: programs drawn from ranges tune themselves
// on simulated boards, in virtual time, beside twins at the clocks as found with the same noise.
// ROW is
//   saving   saving beside the oracle's plan at latencies of 1, 10 and 50 ms, when it paid back,
//            and whether the running interval held the truth, minute by minute
//   second   the second run of the same program, which begins with what the first has stored
//   harm     time lost beyond the budget with drift, throttling and programs that change
//   change   a program that becomes another: how long clocks stay low, what is saved an hour later
//   nothing  boards on which nothing is to be gained
//   varied   iterations of several kinds, with validation steps; work scatters by 10 and by 0.5 %
//   killed   SEEDS runs that are killed at random moments: what is left of ledger and store. Every
//            fourth may write few bytes to a file, as on a full disk; every tenth finds a ledger
//            and a profile of another version
// Seeds are FIRST (1) and on. Exits with 1 where the budget is broken. FILE gets what the first run
// said of itself, minute by minute, as CSV: docs/draw_run.py draws it.
#include <tests/self_tuning/self_tuning_bed.hpp>

#include <kdvfs/detail/tune/ledger.hpp>
#include <kdvfs/detail/tune/sweep_file.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

using namespace self_tuning_bed;
using namespace std::chrono_literals;
using Kind = tune::SessionMode::Kind;

namespace {

constexpr std::size_t any_number = 10'000'000;

void write_minutes(const char* file, const Course& run, const Course& twin) {
    std::FILE* const out = std::fopen(file, "w");
    if (out == nullptr) return;
    std::fprintf(out, "passed_s,saved_j,saved_low_j,saved_high_j,true_j,lost_s,budget_s,phase\n");
    for (std::size_t m = 0; m < run.minutes.size(); ++m) {
        const tune::Saving& saving = run.minutes[m];
        const std::size_t i = std::max<std::size_t>(run.minutes_at[m], 1) - 1;
        std::fprintf(out, "%.1f,%.1f,%.1f,%.1f,%.1f,%.3f,%.3f,%s\n", saving.passed.count(),
                     saving.saved.count, saving.saved_low.count, saving.saved_high.count,
                     twin.energy[i] - run.energy[i], saving.lost.count(), saving.budget.count(),
                     std::string{to_string(saving.phase)}.c_str());
    }
    std::fclose(out);
}

double quantile(std::vector<double> values, double q) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[std::min(values.size() - 1,
                           static_cast<std::size_t>(q * static_cast<double>(values.size())))];
}

simulated::Board board_of(std::uint64_t seed) {
    return seed % 2 == 0 ? simulated::mi210() : simulated::mi250x();
}

/// When the energy saved first was worth more than the time lost and stayed so, in truth: seconds.
double paid_back(const Course& run, const Course& twin) {
    double since = -1;
    for (std::size_t i = 0; i < std::min(run.passed.size(), twin.passed.size()); ++i) {
        const double watts = twin.energy[i] / twin.passed[i];
        const double gain =
            twin.energy[i] - run.energy[i] - watts * (run.passed[i] - twin.passed[i]);
        if (gain <= 0)
            since = -1;
        else if (since < 0)
            since = run.passed[i];
    }
    return since < 0 ? 1e9 : since;
}

/// What the running interval said against the truth, at each minute.
struct Coverage {
    double outside_pct = 0;    ///< most that the truth was outside, of the energy as found
    double half_hour_pct = 0;  ///< half width after the first hour, likewise; 0: none
    double half_end_pct = 0;   ///< at the end
};
Coverage coverage(const Course& run, const Course& twin) {
    Coverage found;
    for (std::size_t m = 0; m < run.minutes.size(); ++m) {
        const tune::Saving& saving = run.minutes[m];
        if (!saving.energy || run.minutes_at[m] == 0) continue;
        const std::size_t i = run.minutes_at[m] - 1;
        if (i >= twin.energy.size()) break;
        const double truth = twin.energy[i] - run.energy[i];
        const double off =
            std::max(saving.saved_low.count - truth, truth - saving.saved_high.count);
        found.outside_pct = std::max(found.outside_pct, 100 * off / twin.energy[i]);
        found.half_end_pct = 50 * (saving.saved_high - saving.saved_low).count / twin.energy[i];
        if (saving.passed.count() < 3660) found.half_hour_pct = found.half_end_pct;
    }
    return found;
}

struct Beds {
    std::uint64_t seeds = 2;
    double hours = 4;
    std::uint64_t first = 1;
    const char* file = nullptr;

    [[nodiscard]] Seconds longest() const { return Seconds{hours * 3600}; }
    template <class Function>
    void each(Function function) const {
        for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
            function(seed);
            std::fflush(stdout);
        }
    }
};

void print_run(const Bed& bed, std::uint64_t seed, Duration latency, const Course& run,
               const Judged& judged, const Bed::Oracle& oracle) {
    std::printf(
        "simulated %s, program %ju, %.0f ms: %zu iterations, saved %.2f %% of energy (oracle "
        "%.2f %% at %.2f %% slowdown), lost %.1f s, at most %.2f s beyond the budget; %s\n",
        bed.board().name.c_str(), static_cast<std::uintmax_t>(seed), 1e3 * Seconds{latency}.count(),
        run.passed.size(), 100 * judged.saved, 100 * oracle.saved, 100 * oracle.slower, judged.lost,
        judged.beyond, to_string(*run.saving).c_str());
}

/// @param store null: each program's first run is judged, else its second one, which begins with
/// what the first has stored there
bool saving_row(const Beds& beds, const OwnStore* store) {
    const char* const which = store != nullptr ? "second" : "first";
    bool failed = false;
    for (const Duration latency : {Duration{1ms}, Duration{10ms}, Duration{50ms}}) {
        std::vector<double> shares;
        std::vector<double> paid;
        std::vector<double> hour;
        std::vector<double> end;
        double beyond = 0;
        std::size_t held = 0;
        std::size_t said = 0;
        std::vector<double> outside;
        beds.each([&](std::uint64_t seed) {
            const Bed bed{board_of(seed), latency, seed};
            const Program program = draw_program(bed.board(), seed);
            const Bed::Oracle oracle = bed.oracle(program);
            if (store != nullptr) store->clear();
            Course run = bed.run(program, Kind::tune, any_number, beds.longest());
            if (store != nullptr) run = bed.run(program, Kind::tune, any_number, beds.longest());
            const Course twin = bed.run(program, Kind::off, run.passed.size(), Seconds{1e9});
            const Judged judged = judge(run, twin);
            print_run(bed, seed, latency, run, judged, oracle);
            if (beds.file != nullptr && seed == beds.first && latency == 10ms)
                write_minutes(beds.file, run, twin);
            beyond = std::max(beyond, judged.beyond);
            failed = failed || judged.beyond_allowed > 0;
            const Coverage covered = coverage(run, twin);
            if (covered.half_end_pct > 0) {
                ++said;
                held += covered.outside_pct <= 0 ? 1 : 0;
                outside.push_back(covered.outside_pct);
                hour.push_back(covered.half_hour_pct);
                end.push_back(covered.half_end_pct);
            }
            if (oracle.saved <= 0.01) return;
            shares.push_back(judged.saved / oracle.saved);
            paid.push_back(paid_back(run, twin));
        });
        std::printf(
            "simulated, %.0f ms, %s run: %.1f %% of the oracle's saving in the median over %.1f h "
            "(a tenth below %.1f %%), exploration included, of %zu programs; paid back after %.0f "
            "s in the median; at most %.2f s lost beyond the budget\n",
            1e3 * Seconds{latency}.count(), which, 100 * quantile(shares, 0.5), beds.hours,
            100 * quantile(shares, 0.1), shares.size(), quantile(paid, 0.5), beyond);
        std::printf(
            "simulated, %.0f ms, %s run: the running interval held the truth at every minute in "
            "%zu of %zu runs (worst %.3f points outside); half width %.2f points after 1 h, %.2f "
            "at the end, in the median; %.2f and %.2f in the widest tenth\n",
            1e3 * Seconds{latency}.count(), which, held, said, quantile(outside, 1),
            quantile(hour, 0.5), quantile(end, 0.5), quantile(hour, 0.9), quantile(end, 0.9));
    }
    return !failed;
}

bool second_row(const Beds& beds) {
    const OwnStore store;
    return saving_row(beds, &store);
}

/// What happens to a program while it runs, drawn from ranges.
class Fate {
public:
    Fate(const simulated::Board& board, std::uint64_t seed, double hours) : random_{seed * 31} {
        for (std::uint64_t p = 0; p < 3; ++p)
            programs_.push_back(draw_program(board, seed * 1000 + p));
        drift_ = std::uniform_real_distribution<double>{-0.03, 0.03}(random_);
        period_ = std::uniform_real_distribution<double>{500, 8000}(random_);
        const auto iterations = static_cast<std::size_t>(4000 * hours);
        std::uniform_int_distribution<std::size_t> at{0, iterations};
        for (int i = 0; i < 2; ++i) {
            if (random_() % 2 == 0) changes_.push_back(at(random_));
            throttled_.push_back({at(random_), 0});
            throttled_.back().second = throttled_.back().first +
                                       std::uniform_int_distribution<std::size_t>{5, 1000}(random_);
        }
        throttle_ = std::uniform_real_distribution<double>{1.03, 1.5}(random_);
    }
    [[nodiscard]] Work operator()(std::size_t i) const {
        std::size_t program = 0;
        for (const std::size_t at : changes_) program += i >= at ? 1 : 0;
        Work work{&programs_[program]};
        work.longer = std::exp(drift_ * std::sin(6.283 * static_cast<double>(i) / period_));
        for (const auto& [from, to] : throttled_)
            if (from <= i && i < to) work.throttled = throttle_;
        return work;
    }

private:
    std::mt19937_64 random_;
    std::vector<Program> programs_;
    double drift_ = 0;
    double period_ = 0;  ///< iterations
    std::vector<std::size_t> changes_;
    std::vector<std::pair<std::size_t, std::size_t>> throttled_;
    double throttle_ = 1;
};

bool harm_row(const Beds& beds) {
    std::size_t over = 0;
    std::size_t much = 0;
    std::size_t held = 0;
    std::size_t said = 0;
    double worst = 0;
    double worst_allowed = 0;
    beds.each([&](std::uint64_t seed) {
        const Bed bed{board_of(seed), 10ms, seed};
        const Fate fate{bed.board(), seed, beds.hours};
        const Course run = bed.run(Script{fate}, Kind::tune, any_number, beds.longest());
        const Course twin = bed.run(Script{fate}, Kind::off, run.passed.size(), Seconds{1e9});
        const Judged judged = judge(run, twin);
        const Coverage covered = coverage(run, twin);
        said += covered.half_end_pct > 0 ? 1 : 0;
        held += covered.half_end_pct > 0 && covered.outside_pct <= 0 ? 1 : 0;
        over += judged.beyond > 0 ? 1 : 0;
        much += judged.beyond_allowed > 0 ? 1 : 0;
        worst = std::max(worst, judged.beyond);
        worst_allowed = std::max(worst_allowed, judged.beyond_allowed);
        std::printf(
            "simulated %s, fate %ju: saved %.2f %%, lost %.1f s, at most %.2f s beyond the "
            "budget, interval off by %.3f points; %s\n",
            bed.board().name.c_str(), static_cast<std::uintmax_t>(seed), 100 * judged.saved,
            judged.lost, judged.beyond, covered.outside_pct, to_string(*run.saving).c_str());
    });
    std::printf(
        "simulated, drift, throttling and changes: beyond the budget in %zu of %ju runs "
        "of %.1f h, worst %.2f s; %zu by more than 0.3 %% and 5 s; the running interval "
        "held in %zu of %zu\n",
        over, static_cast<std::uintmax_t>(beds.seeds), beds.hours, worst, much, held, said);
    return much == 0;
}

/// Fraction of the twin's energy saved in iterations from one on.
double saved_since(const Course& run, const Course& twin, std::size_t from) {
    const std::size_t last = std::min(run.energy.size(), twin.energy.size()) - 1;
    return 1 - (run.energy[last] - run.energy[from]) / (twin.energy[last] - twin.energy[from]);
}

bool change_row(const Beds& beds) {
    std::vector<double> shares;
    std::size_t longest_low = 0;
    std::size_t slow = 0;
    beds.each([&](std::uint64_t seed) {
        const Bed bed{board_of(seed), 10ms, seed};
        std::mt19937_64 random{seed};
        const std::size_t at = std::uniform_int_distribution<std::size_t>{600, 3000}(random);
        const Program first = draw_program(bed.board(), seed);
        const Change change{at, draw_program(bed.board(), seed + 500)};
        const Bed::Oracle oracle = bed.oracle(change.to);
        // An hour and five minutes of the other program; the last five are judged.
        Course before = bed.run(first, Kind::off, at, Seconds{1e9});
        const Seconds longest{before.passed.back() + 3900};
        const Course run = bed.run(first, Kind::tune, any_number, longest, change);
        const Course twin = bed.run(first, Kind::off, run.passed.size(), Seconds{1e9}, change);
        std::size_t low = 0;  // iterations until clocks are as found
        while (at + low < run.lowered.size() && low < 200 && run.lowered[at + low]) ++low;
        const bool was_low = run.lowered[at - 1];
        if (was_low) longest_low = std::max(longest_low, low);
        slow += was_low && low > 20 ? 1 : 0;
        const auto end =
            std::upper_bound(run.passed.begin(), run.passed.end(), run.passed.back() - 300);
        const double saved =
            saved_since(run, twin, static_cast<std::size_t>(end - run.passed.begin()));
        if (oracle.saved > 0.01) shares.push_back(saved / oracle.saved);
        std::printf(
            "simulated %s, programs %ju and %ju: changed at iteration %zu, clocks low for "
            "%zu more; saves %.2f %% an hour later (oracle %.2f %%); %s\n",
            bed.board().name.c_str(), static_cast<std::uintmax_t>(seed),
            static_cast<std::uintmax_t>(seed + 500), at, was_low ? low : 0, 100 * saved,
            100 * oracle.saved, to_string(*run.saving).c_str());
    });
    std::printf(
        "simulated, programs that change: clocks low for at most %zu iterations more (over "
        "20 in %zu of %ju runs); an hour later %.1f %% of the new oracle's saving in the "
        "median, a tenth below %.1f %%\n",
        longest_low, slow, static_cast<std::uintmax_t>(beds.seeds), 100 * quantile(shares, 0.5),
        100 * quantile(shares, 0.1));
    return slow == 0;
}

bool nothing_row(const Beds& beds) {
    std::vector<double> lost;
    std::size_t said = 0;
    std::size_t right = 0;
    double widest = 0;
    beds.each([&](std::uint64_t seed) {
        const Bed bed{without_gain(board_of(seed)), 10ms, seed};
        const Program program = draw_program(bed.board(), seed);
        const Bed::Oracle oracle = bed.oracle(program);
        const Course run = bed.run(program, Kind::tune, any_number, beds.longest());
        const Course twin = bed.run(program, Kind::off, run.passed.size(), Seconds{1e9});
        lost.push_back(judge(run, twin).lost);
        double at_most = -1;
        double when = 0;
        for (const tune::Saving& saving : run.minutes) {
            const std::size_t words = saving.note.find("at most ");
            if (words == std::string::npos) continue;
            at_most = std::atof(saving.note.c_str() + words + 8);
            when = saving.passed.count();
            break;
        }
        const bool in_time = at_most >= 0 && at_most <= 1 && when <= 3660;
        said += in_time ? 1 : 0;
        right += in_time && 100 * oracle.saved <= at_most ? 1 : 0;
        widest = std::max(widest, at_most);
        std::printf(
            "simulated %s without gain, program %ju: lost %.1f s, oracle %.2f %%; said "
            "\"at most %.2f %%\" after %.0f s; %s\n",
            bed.board().name.c_str(), static_cast<std::uintmax_t>(seed), lost.back(),
            100 * oracle.saved, at_most, when, to_string(*run.saving).c_str());
    });
    std::printf(
        "simulated, nothing to gain: at most %.1f s lost in %.1f h (median %.1f); said \"at "
        "most\" 1 %% or less within 1 h in %zu of %ju, true in %zu\n",
        quantile(lost, 1), beds.hours, quantile(lost, 0.5), said,
        static_cast<std::uintmax_t>(beds.seeds), right);
    return quantile(lost, 1) <= 20;
}

/// @param scatter of work, from one iteration to the next
bool varied_row(const Beds& beds, double scatter) {
    std::vector<double> shares;
    double beyond = 0;
    std::size_t planned = 0;
    beds.each([&](std::uint64_t seed) {
        const Bed bed{board_of(seed), 10ms, seed};
        const VariedProgram program = draw_varied_program(bed.board(), seed, scatter);
        const Script script = script_of(program);
        const Bed::Oracle oracle = bed.oracle(program.accumulate);
        const Course run = bed.run(script, Kind::tune, any_number, beds.longest());
        const Course twin = bed.run(script, Kind::off, run.passed.size(), Seconds{1e9});
        const Judged judged = judge(run, twin);
        beyond = std::max(beyond, judged.beyond);
        planned += run.saving->plans > 0 ? 1 : 0;
        if (oracle.saved > 0.01) shares.push_back(judged.saved / oracle.saved);
        print_run(bed, seed, 10ms, run, judged, oracle);
    });
    std::printf(
        "simulated, iterations of three kinds, work that scatters by %.1f %%: %zu of %ju programs "
        "followed a plan; %.1f %% "
        "of the oracle's saving in the median (of the commonest kind); at most %.2f s lost "
        "beyond the budget\n",
        100 * scatter, planned, static_cast<std::uintmax_t>(beds.seeds),
        100 * quantile(shares, 0.5), beyond);
    return beyond <= 5;
}

std::string text_of(const std::filesystem::path& file) {
    std::ifstream input{file, std::ios::binary};
    return {std::istreambuf_iterator<char>{input}, {}};
}

/// The profile in a store of one program; empty where there is none yet.
std::filesystem::path profile_in(const std::filesystem::path& store) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator{store, none})
        if (std::filesystem::exists(entry.path() / "profile.csv"))
            return entry.path() / "profile.csv";
    return {};
}

/// Rows of a profile whose last line may be cut short; none where it cannot be read.
std::size_t rows_in(const std::filesystem::path& profile) {
    std::string text = text_of(profile);
    text.resize(text.rfind('\n') + 1);
    try {
        std::istringstream lines{text};
        return tune::detail::rows_of(tune::read_profile(lines, profile.string())).size();
    } catch (const Error&) {
        return 0;
    }
}

bool killed_row(const Beds& beds) {
    namespace fs = std::filesystem;
    const OwnStore own;
    const fs::path store = own.path();
    const TemporaryFolder folder;
    const fs::path ledger = folder.at("ledger");
    ::setenv("KDVFS_LEDGER", ledger.c_str(), 1);
    const Bed bed{board_of(1), 10ms, 1};
    const Program program = draw_program(bed.board(), 1);
    std::mt19937_64 random{beds.first};
    std::size_t unlike = 0;   // ends other than by the kill
    std::size_t damaged = 0;  // profiles that had rows before and cannot be read any more
    std::size_t strange = 0;  // lines of another version
    std::size_t lost = 0;     // segments that were in the ledger before
    beds.each([&](std::uint64_t kill) {
        const fs::path profile = profile_in(store);
        const std::string before = profile.empty() ? "" : text_of(profile);
        const bool is_other = kill % 10 == 9 && !profile.empty();
        if (is_other) {
            ++strange;
            std::ofstream{ledger, std::ios::app} << "{\"kdvfs_ledger\":2,\"id\":\"x\"}\n";
            std::ofstream{profile} << "layout_9,gpu\n1,2\n";
        }
        const std::size_t rows = rows_in(profile);
        const std::size_t segments = tune::parse_ledger(text_of(ledger)).segments.size();
        const rlim_t most = kill % 4 == 3 ? random() % 20000 : RLIM_INFINITY;
        const pid_t child = ::fork();
        if (child == 0) {
            const int nowhere = ::open("/dev/null", O_WRONLY);
            ::dup2(nowhere, STDERR_FILENO);
            std::signal(SIGXFSZ, SIG_IGN);
            const rlimit limit{most, most};
            ::setrlimit(RLIMIT_FSIZE, &limit);
            for (;;) static_cast<void>(bed.run(program, Kind::tune, any_number, Seconds{600}));
        }
        ::usleep(static_cast<useconds_t>(1000 + random() % 250'000));
        ::kill(child, SIGKILL);
        int status = 0;
        ::waitpid(child, &status, 0);
        unlike += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : 1;
        if (is_other)
            std::ofstream{profile} << before;
        else if (!profile.empty())
            damaged += rows > 0 && rows_in(profile) < rows ? 1 : 0;
        const std::size_t left = tune::parse_ledger(text_of(ledger)).segments.size();
        lost += left < segments ? 1 : 0;
    });
    const tune::Ledger read = tune::parse_ledger(text_of(ledger));
    const Course last = bed.run(program, Kind::tune, any_number, Seconds{1200});
    std::printf(
        "simulated, %ju runs killed at random moments, one of 4 on a full disk, %zu beside files "
        "of "
        "another version: %zu ended otherwise; the ledger has %zu segments, lost %zu, and %zu "
        "lines "
        "cut short; the profile lost rows %zu times and has %zu; the next run: %s\n",
        static_cast<std::uintmax_t>(beds.seeds), strange, unlike, read.segments.size(), lost,
        read.unreadable - strange, damaged, rows_in(profile_in(store)),
        to_string(*last.saving).c_str());
    ::unsetenv("KDVFS_LEDGER");
    return unlike + lost + damaged == 0 && last.saving->phase == tune::RunPhase::follow;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view row = argc > 1 ? argv[1] : "saving";
    Beds beds;
    if (argc > 2) beds.seeds = std::strtoull(argv[2], nullptr, 10);
    if (argc > 3) beds.hours = std::atof(argv[3]);
    if (argc > 4) beds.first = std::strtoull(argv[4], nullptr, 10);
    if (argc > 5) beds.file = argv[5];
    bool kept = false;
    if (row == "saving")
        kept = saving_row(beds, nullptr);
    else if (row == "second")
        kept = second_row(beds);
    else if (row == "harm")
        kept = harm_row(beds);
    else if (row == "change")
        kept = change_row(beds);
    else if (row == "nothing")
        kept = nothing_row(beds);
    else if (row == "varied")
        kept = std::ranges::all_of(std::array{0.1, 0.005},
                                   [&](double scatter) { return varied_row(beds, scatter); });
    else if (row == "killed")
        kept = killed_row(beds);
    else
        std::fprintf(stderr, "self_tuning_beds: no row %s\n", argv[1]);
    return kept ? 0 : 1;
}
