// SPDX-License-Identifier: MIT
//
// The watchdog on plain files that stand for a board's.
#include <kdvfs/detail/device/amd/capped_clocks.hpp>
#include <kdvfs/detail/restore/record.hpp>
#include <kdvfs/detail/restore/watchdog.hpp>

#include "temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace kdvfs::detail {
namespace {

using namespace kdvfs::literals;
using namespace std::chrono_literals;
namespace amdgpu = device::amd;
using Clock = std::chrono::steady_clock;

constexpr amdgpu::ClockBounds mi300{132_MHz, 2100_MHz, 1300_MHz};
constexpr amdgpu::ClockBounds mi210{500_MHz, 1700_MHz};

const std::string level_file = "power_dpm_force_performance_level";
const std::string table_file = "pp_od_clk_voltage";

/// A board's files, a record of it, and a watchdog on both.
class Watched {
public:
    explicit Watched(const amdgpu::ClockBounds& bounds, const ClockHistory& history,
                     const std::string& level = "manual", const std::string& table = {}) {
        files_.write(level_file, level + "\n");
        files_.write(table_file, table);
        record_.write(history);
        watchdog_.emplace(amdgpu::restore_script(files_.path(), bounds), lock_.get(),
                          record_.descriptor());
        await([this] { return record_.note().words == "watching"; });
    }

    [[nodiscard]] Watchdog& watchdog() { return *watchdog_; }
    [[nodiscard]] pid_t process() const { return record_.note().process; }
    [[nodiscard]] RestoreRecord& record() { return record_; }
    [[nodiscard]] const TemporaryFolder& files() const { return files_; }

    /// Ends it. @returns what it says about that
    std::string end() {
        watchdog_.reset();
        await([this] {
            const std::string words = record_.note().words;
            return words != "watching" && words != "restoring" && !words.starts_with("unfinished");
        });
        return record_.note().words;
    }
    /// As the end of this process would.
    void release() { watchdog_.reset(); }
    [[nodiscard]] std::string level() const { return files_.read(level_file); }

    template <class Condition>
    static void await(Condition condition) {
        const auto start = Clock::now();
        while (!condition() && Clock::now() - start < 10s) std::this_thread::sleep_for(200us);
    }

private:
    TemporaryFolder files_;
    TemporaryFolder own_;
    RestoreFolder folder_ = *RestoreFolder::find(own_.path());
    RestoreRecord record_{folder_, {boot_id(), "amdgpu", "0000:c1:00.0", ::getpid(), 0, {}}};
    Descriptor lock_ =
        raised(Descriptor{::open(own_.at("lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)});
    std::optional<Watchdog> watchdog_;
};

const std::string mi300_table =
    "OD_SCLK:\n0: 132Mhz\n1: 1100Mhz\nOD_MCLK:\n0: 900Mhz\n1: 1200Mhz\n"
    "OD_RANGE:\nSCLK:     132Mhz       2100Mhz\n";
const std::string mi210_table =
    "GFXCLK:\nS: 19Mhz *\n0: 500Mhz \n1: 800Mhz *\n2: 1100Mhz \nMCLK:\n0: 400Mhz \n1: 1600Mhz *\n";

const ClockState on_mi300{{1100_MHz, 1200_MHz}, {132_MHz, auto_clock}, "manual"};

TEST(Watchdog, RestoresWhatTheRecordSaysIsHeld) {
    Watched first{mi300, {.initial = {}, .written = on_mi300}, "manual", mi300_table};
    EXPECT_EQ(first.end(), "restored");
    EXPECT_EQ(first.level(), "auto");
    const ClockState on_mi210{{1100_MHz, auto_clock}, {500_MHz, auto_clock}, "manual"};
    Watched second{mi210, {.initial = {}, .written = on_mi210}, "manual", mi210_table};
    EXPECT_EQ(second.end(), "restored");
    EXPECT_EQ(second.level(), "auto");
    const ClockState deterministic{{1100_MHz, auto_clock}, {}, "perf_determinism"};
    Watched third{
        mi210, {.initial = {}, .written = deterministic}, "perf_determinism", mi210_table};
    EXPECT_EQ(third.end(), "restored");
    EXPECT_EQ(third.level(), "auto");
}

TEST(Watchdog, LeavesWhatSomebodyElseHasSetSince) {
    ClockState held = on_mi300;
    held.cap.core = 900_MHz;
    Watched first{mi300, {.initial = {}, .written = held}, "manual", mi300_table};
    EXPECT_EQ(first.end(), "left as somebody else has set it");
    EXPECT_EQ(first.level(), "manual\n");
    Watched second{mi300, {.initial = {}, .written = held}, "high", mi300_table};
    EXPECT_EQ(second.end(), "left as somebody else has set it");
    EXPECT_EQ(second.level(), "high\n");
}

/// As kdvfs-restore does whose device refuses half-way under an owner that is frozen.
void leave_half_way(Watched& watched, std::uint64_t slot) {
    write_note(watched.record().descriptor(),
               {.process = 1, .words = "unfinished, the device refuses", .slot = slot});
}

TEST(Watchdog, GoesOnWithWhatSomebodyPutBackHalf) {
    ClockState held = on_mi300;
    held.cap.core = 900_MHz;  // and the board is at 1100 MHz
    Watched first{mi300, {.initial = {}, .written = held}, "manual", mi300_table};
    leave_half_way(first, 3);  // two slots are written at first, and the third by Watched
    EXPECT_EQ(first.end(), "restored");
    EXPECT_EQ(first.level(), "auto");
    Watched second{mi300, {.initial = {}, .written = held}, "manual", mi300_table};
    leave_half_way(second, 2);  // its owner has written since
    EXPECT_EQ(second.end(), "left as somebody else has set it");
    EXPECT_EQ(second.level(), "manual\n");
}

TEST(Watchdog, PutsAnUncertainDeviceBack) {
    Watched watched{mi300, {.initial = {}, .uncertain = true}, "manual", mi300_table};
    EXPECT_EQ(watched.end(), "restored");
    EXPECT_EQ(watched.level(), "auto");
}

TEST(Watchdog, DoesNotBelieveASlotThatItsWriterDidNotFinish) {
    Watched watched{mi300, {.initial = {}, .uncertain = true}, "manual", mi300_table};
    const RestoreEntry idle = watched.record().entry();
    constexpr std::size_t body = record_text::slot_size - record_text::tail_size;
    std::string half =
        record_text::of(RestoreEntry{.boot = idle.boot, .kind = idle.kind, .device = idle.device},
                        4)
            .substr(0, body);
    half += std::string(record_text::tail_size - 1, '-');
    ASSERT_EQ(
        ::pwrite(watched.record().descriptor(), half.data(), half.size(), record_text::slots_at),
        static_cast<ssize_t>(half.size()));
    EXPECT_EQ(watched.end(), "restored");
    EXPECT_EQ(watched.level(), "auto");
}

TEST(Watchdog, LeavesWhatIsAsItWasFound) {
    Watched watched{mi300, {.initial = {}, .uncertain = true}, "auto"};
    EXPECT_EQ(watched.end(), "found as it was");
    EXPECT_EQ(watched.level(), "auto\n");
}

/// Whether a process has ended, reaped or not.
bool is_gone(pid_t process) {
    std::ifstream file{"/proc/" + std::to_string(process) + "/stat"};
    std::string stat;
    if (!std::getline(file, stat)) return true;
    return stat.substr(stat.rfind(')') + 2, 1) == "Z";
}

TEST(Watchdog, DoesNothingWhereNothingIsOwed) {
    Watched watched{mi300, {.initial = {}}, "manual", mi300_table};
    const pid_t process = watched.process();
    watched.release();
    Watched::await([&] { return is_gone(process); });
    EXPECT_TRUE(is_gone(process));
    EXPECT_EQ(watched.level(), "manual\n");
}

TEST(Watchdog, TriesForAsLongAsTheDeviceRefuses) {
    Watched watched{mi300, {.initial = {}, .written = on_mi300}, "manual", mi300_table};
    const std::string level = watched.files().at(level_file);
    ::rename(level.c_str(), watched.files().at("away").c_str());  // as while a GPU is reset
    ::mkdir(level.c_str(), 0755);
    watched.release();
    std::this_thread::sleep_for(700ms);
    ::rmdir(level.c_str());
    ::rename(watched.files().at("away").c_str(), level.c_str());
    EXPECT_EQ(watched.end(), "restored");
    EXPECT_EQ(watched.level(), "auto");
}

TEST(Watchdog, TriesForAsLongAsNoFileCanBeOpened) {
    Watched watched{mi300, {.initial = {}, .written = on_mi300}, "manual", mi300_table};
    const rlimit none{6, 1024};
    ASSERT_EQ(::prlimit(watched.process(), RLIMIT_NOFILE, &none, nullptr), 0);
    const pid_t process = watched.process();
    watched.release();
    std::this_thread::sleep_for(50ms);
    EXPECT_FALSE(is_gone(process));
    const rlimit enough{1024, 1024};
    ::prlimit(process, RLIMIT_NOFILE, &enough, nullptr);
    EXPECT_EQ(watched.end(), "restored");
    EXPECT_EQ(watched.level(), "auto");
}

TEST(Watchdog, OutlivesTheSignalsOfTerminalAndScheduler) {
    Watched watched{mi300, {.initial = {}, .uncertain = true}, "manual", mi300_table};
    const pid_t watchdog = watched.process();
    for (int signal = 1; signal <= SIGRTMAX; ++signal) {
        const bool is_the_c_librarys = signal > SIGSYS && signal < SIGRTMIN;
        if (signal == SIGKILL || signal == SIGSTOP || is_the_c_librarys) continue;
        ::kill(watchdog, signal);
    }
    std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(watched.watchdog().lives());
    EXPECT_EQ(watched.end(), "restored");
}

TEST(Watchdog, ThatWasKilledIsNoticedWithoutAWait) {
    Watched watched{mi300, {.initial = {}}};
    EXPECT_TRUE(watched.watchdog().lives());
    ::kill(watched.process(), SIGSTOP);
    EXPECT_TRUE(watched.watchdog().lives());  // and this has not blocked
    ::kill(watched.process(), SIGKILL);
    Watched::await([&] { return !watched.watchdog().lives(); });
    EXPECT_FALSE(watched.watchdog().lives());
}

TEST(Watchdog, IsNobodysChild) {
    Watched watched{mi300, {.initial = {}}};
    while (::wait(nullptr) > 0) {
    }
    EXPECT_EQ(errno, ECHILD);
    EXPECT_TRUE(watched.watchdog().lives());
}

/// The descriptors of a process, as "0 1 2".
std::string open_files(pid_t process) {
    std::vector<int> open;
    const std::string folder = "/proc/" + std::to_string(process) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator{folder}) {
        open.push_back(std::stoi(entry.path().filename()));
    }
    std::sort(open.begin(), open.end());
    std::string text;
    for (const int fd : open) text += (text.empty() ? "" : " ") + std::to_string(fd);
    return text;
}

TEST(Watchdog, IsOfASessionOfItsOwnWithNothingElseOpen) {
    const int inherited = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC
    const Watched watched{mi300, {.initial = {}}};
    EXPECT_NE(::getsid(watched.process()), ::getsid(0));
    const auto open = [&] { return open_files(watched.process()); };
    Watched::await([&] { return open() == "0 1 2 3 4 5"; });
    EXPECT_EQ(open(), "0 1 2 3 4 5");
    ::close(inherited);
}

TEST(AddCloses, LeavesNothingOpenWithoutTheLibrarysHelp) {
    const int inherited = ::fcntl(::open("/dev/null", O_RDONLY), F_DUPFD, 50);
    for (const bool by_library : {true, false}) {
        std::array<int, 2> ends{};
        ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        add_closes(actions, 3, by_library);
        char program[] = "sh";
        char option[] = "-c";
        char script[] = "[ -e /proc/$$/fd/50 ] && echo open || echo closed";
        char* words[] = {program, option, script, nullptr};
        pid_t child = 0;
        ASSERT_EQ(::posix_spawn(&child, "/bin/sh", &actions, nullptr, words, nullptr), 0);
        ::posix_spawn_file_actions_destroy(&actions);
        ::close(ends[1]);
        std::array<char, 16> answer{};
        EXPECT_GT(::read(ends[0], answer.data(), answer.size() - 1), 0);
        EXPECT_STREQ(answer.data(), "closed\n");
        ::close(ends[0]);
        ::waitpid(child, nullptr, 0);
    }
    ::close(inherited);
}

TEST(Watchdog, CostsNextToNothingWhileNothingHappens) {
    const Watched watched{mi300, {.initial = {}, .written = on_mi300}, "manual", mi300_table};
    const std::string folder = "/proc/" + std::to_string(watched.process());
    const auto computed = [&] {  // seconds
        double nanoseconds = 0;
        std::ifstream{folder + "/schedstat"} >> nanoseconds;
        return nanoseconds / 1e9;
    };
    const auto waits = [&] {
        std::ifstream file{folder + "/status"};
        std::string word;
        double count = 0;
        while (file >> word && word != "voluntary_ctxt_switches:") {
        }
        file >> count;
        return count;
    };
    // What a shell costs that starts and ends at once, on this machine as it is now: the least of
    // several, as with a look, since on a busy machine caches are cold and a core may be another's.
    const auto of_a_shell = [] {
        const auto of_children = [] {
            rusage used{};
            ::getrusage(RUSAGE_CHILDREN, &used);
            const auto seconds = [](const timeval& time) {
                return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
            };
            return seconds(used.ru_utime) + seconds(used.ru_stime);
        };
        const double before = of_children();
        EXPECT_EQ(std::system(":"), 0);
        return of_children() - before;
    };
    std::this_thread::sleep_for(100ms);
    const double first_wait = waits();
    const auto start = std::chrono::steady_clock::now();
    double look = 1;  // seconds of a core
    double shell = 1;
    double looks_a_second = 0;
    for (int i = 0; i < 8 && (i < 2 || 2 * look >= shell || looks_a_second >= 1.6); ++i) {
        const double computed_before = computed();
        const double waits_before = waits();
        std::this_thread::sleep_for(1s);
        const double looks = waits() - waits_before;  // each ends in a wait
        if (looks > 0) look = std::min(look, (computed() - computed_before) / looks);
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
        looks_a_second = (waits() - first_wait) / passed.count();
        shell = std::min(shell, of_a_shell());
    }
    std::printf("watchdog at rest: %.2f looks a second of %.0f us, a shell %.0f us\n",
                looks_a_second, 1e6 * look, 1e6 * shell);
    EXPECT_GT(looks_a_second, 0);
    EXPECT_LT(looks_a_second, 1.6);  // one a second, and no process for it
    EXPECT_LT(2 * look, shell);
}

}  // namespace
}  // namespace kdvfs::detail
