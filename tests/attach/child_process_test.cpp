// SPDX-License-Identifier: MIT
// `kdvfs run` stands for the program that it runs: signals, stops, ends, clients of its metrics.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A program in a session and process group of its own, its output readable here.
class Started {
public:
    explicit Started(std::vector<std::string> words, int read_from = STDOUT_FILENO) {
        int ends[2];
        if (::pipe(ends) != 0) std::abort();
        process = ::fork();
        if (process == 0) {
            ::setsid();
            ::dup2(ends[1], read_from);
            ::close(ends[0]);
            ::close(ends[1]);
            std::vector<char*> pointers;
            for (auto& word : words) pointers.push_back(word.data());
            pointers.push_back(nullptr);
            ::execvp(pointers.front(), pointers.data());
            ::_exit(127);
        }
        ::close(ends[1]);
        output_ = ::fdopen(ends[0], "r");
    }
    ~Started() {
        ::kill(-process, SIGKILL);
        std::fclose(output_);
    }
    Started(const Started&) = delete;
    Started& operator=(const Started&) = delete;

    std::string line() {
        char text[512] = "";
        return std::fgets(text, sizeof text, output_) != nullptr ? text : "";
    }
    std::string rest() {
        std::string all;
        for (std::string next = line(); !next.empty(); next = line()) all += next;
        return all;
    }
    int wait() const {
        int status = 0;
        ::waitpid(process, &status, 0);
        return status;
    }

    pid_t process = 0;

private:
    std::FILE* output_ = nullptr;
};

std::vector<std::string> run_of(std::vector<std::string> program,
                                std::vector<std::string> options = {"--report", "/dev/null"}) {
    std::vector<std::string> words{KDVFS_COMMAND, "run"};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back("--");
    words.insert(words.end(), program.begin(), program.end());
    return words;
}

/// @returns the status of a run that ends within seconds; else it is killed
int ended_soon(const Started& run) {
    for (int i = 0; i < 500; ++i) {
        int status = 0;
        if (::waitpid(run.process, &status, WNOHANG) == run.process) return status;
        std::this_thread::sleep_for(10ms);
    }
    ADD_FAILURE() << "it hangs";
    ::kill(run.process, SIGKILL);
    return run.wait();
}

TEST(ChildProcess, GetsEachSignalOnceWhetherItIsSentToTheGroupOrToTheCommand) {
    const bool soak = std::getenv("KDVFS_SIGNALS_SOAK") != nullptr;
    const int sent = soak ? 1000 : 60;
    constexpr std::array kinds{SIGHUP,  SIGINT,  SIGQUIT, SIGUSR1, SIGUSR2,   SIGALRM,
                               SIGTERM, SIGXCPU, SIGURG,  SIGPROF, SIGVTALRM, SIGWINCH};
    const double seconds = 2.0 + 0.04 * sent;
    Started run{run_of({SIGNAL_COUNTER, std::to_string(seconds)})};
    ASSERT_EQ(run.line(), "ready\n");
    std::mt19937 random{std::random_device{}()};
    std::map<int, int> expected;
    std::size_t kind = 0;
    for (int i = 0; i < sent; ++i) {
        // Never one kind twice in a row: the kernel makes one of two that wait for a busy machine.
        kind = (kind + 1 + random() % (kinds.size() - 1)) % kinds.size();
        const int number = kinds[kind];
        ++expected[number];
        ::kill(random() % 2 == 0 ? run.process : -run.process, number);
        std::this_thread::sleep_for(std::chrono::milliseconds{25 + random() % 10});
    }
    std::map<int, int> got;
    std::istringstream counts{run.rest()};
    for (int number = 0, count = 0; counts >> number >> count;) got[number] = count;
    EXPECT_EQ(got, expected);
    EXPECT_EQ(run.wait(), 0);
}

/// The process that counts the group's signals beside the program.
pid_t witness_of(pid_t command) {
    const std::string task = std::to_string(command);
    std::ifstream children{"/proc/" + task + "/task/" + task + "/children"};
    for (pid_t child = 0; children >> child;) {
        std::string name;
        std::getline(std::ifstream{"/proc/" + std::to_string(child) + "/comm"}, name);
        if (name.starts_with("kdvfs")) return child;
    }
    return -1;
}

TEST(ChildProcess, GetsEachSignalOnceAfterOneThatNobodyCouldCount) {
    Started run{run_of({SIGNAL_COUNTER, "4"})};
    ASSERT_EQ(run.line(), "ready\n");
    const pid_t witness = witness_of(run.process);
    ASSERT_GT(witness, 0);
    ::kill(witness, SIGSTOP);
    ::kill(run.process, SIGUSR1);
    std::this_thread::sleep_for(1500ms);  // the command goes on without an answer
    ::kill(witness, SIGCONT);
    std::this_thread::sleep_for(100ms);
    for (const int number : {SIGUSR2, SIGHUP}) {
        ::kill(-run.process, number);
        std::this_thread::sleep_for(100ms);
    }
    std::map<int, int> got;
    std::istringstream counts{run.rest()};
    for (int number = 0, count = 0; counts >> number >> count;) got[number] = count;
    EXPECT_EQ(got, (std::map<int, int>{{SIGUSR1, 1}, {SIGUSR2, 1}, {SIGHUP, 1}}));
    EXPECT_EQ(run.wait(), 0);
}

TEST(ChildProcess, GetsItsWordsAsTheyAre) {
    // CLI11 would expand an argument in brackets.
    const std::vector<std::string> program{"printf", "<%s>", "[a,b]", "[]", "[c", "", "[d]\x1f"};
    constexpr const char* words = "<[a,b]><[]><[c><><[d]\x1f>";
    EXPECT_EQ(Started{run_of(program)}.rest(), words);
    std::vector<std::string> worth{KDVFS_COMMAND, "worth", "--counter", "program", "--"};
    worth.insert(worth.end(), program.begin(), program.end());
    EXPECT_EQ((Started{worth, STDERR_FILENO}.rest().substr(0, std::string{words}.size())), words);
    EXPECT_EQ((Started{{KDVFS_COMMAND, "run", "--report", "/dev/null", "echo", "a", "b"}}.rest()),
              "a b\n");
}

TEST(ChildProcess, IsWaitedForWhereTheParentIgnoresTheEndsOfChildren) {
    struct sigaction found {};
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGCHLD, &ignore, &found);  // is inherited
    Started run{run_of({"grep", "-sh", "SigIgn", "/proc/self/status", "/absent"})};
    std::vector<std::string> worth{KDVFS_COMMAND, "worth", "--counter", "program", "--", "true"};
    Started other{worth, STDERR_FILENO};
    ::sigaction(SIGCHLD, &found, nullptr);
    const std::string ignored = run.line();
    ASSERT_EQ(ignored.substr(0, 7), "SigIgn:") << ignored;
    EXPECT_NE(std::strtoull(ignored.c_str() + 7, nullptr, 16) >> (SIGCHLD - 1) & 1U, 0U)
        << "the program is started as this command was: " << ignored;
    EXPECT_EQ(WEXITSTATUS(ended_soon(run)), 2) << "by the absent file";
    EXPECT_NE(other.rest().find("did not report"), std::string::npos);
}

TEST(ChildProcess, EndsThisCommandAsItEnds) {
    EXPECT_EQ(WEXITSTATUS(Started{run_of({"sh", "-c", "exit 7"})}.wait()), 7);
    EXPECT_EQ(WEXITSTATUS(Started{run_of({"/no/such/program"})}.wait()), 127);
    const int killed = Started{run_of({"sh", "-c", "kill -TERM $$"})}.wait();
    EXPECT_TRUE(WIFSIGNALED(killed));
    EXPECT_EQ(WTERMSIG(killed), SIGTERM);
}

TEST(ChildProcess, StopsAndContinuesThisCommand) {
    const Started run{run_of({"sleep", "1"})};
    std::this_thread::sleep_for(300ms);
    ::kill(-run.process, SIGTSTP);
    int status = 0;
    ASSERT_EQ(::waitpid(run.process, &status, WUNTRACED), run.process);
    // An orphaned group ignores SIGTSTP, as the program alone would.
    if (WIFEXITED(status)) return;
    EXPECT_TRUE(WIFSTOPPED(status));
    ::kill(-run.process, SIGCONT);
    EXPECT_EQ(run.wait(), 0);
}

TEST(ChildProcess, DiesWithThisCommand) {
    Started run{run_of({"sh", "-c", "echo $$; exec sleep 30"})};
    const pid_t program = std::atoi(run.line().c_str());
    ASSERT_GT(program, 0);
    ::kill(run.process, SIGKILL);
    run.wait();
    const auto gone = [&] {
        std::ifstream file{"/proc/" + std::to_string(program) + "/stat"};
        std::string text;
        std::getline(file, text);
        return text.empty() || text.find(") Z") != std::string::npos;
    };
    for (int i = 0; i < 200 && !gone(); ++i) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(gone());
}

/// A connection to the metrics of a run.
class Client {
public:
    explicit Client(int port) : socket_{::socket(AF_INET, SOCK_STREAM, 0)} {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        connected =
            ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    ~Client() { ::close(socket_); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    bool send(const std::string& text) const {
        return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(text.size());
    }
    std::string answer() const {
        std::string all;
        char bytes[4096];
        for (ssize_t got = 0; (got = ::recv(socket_, bytes, sizeof bytes, 0)) > 0;) {
            all.append(bytes, static_cast<std::size_t>(got));
        }
        return all;
    }

    bool connected = false;

private:
    int socket_;
};

/// A program that says when it ends.
const std::vector<std::string> says_its_end{"sh", "-c", "sleep 2; date +%s.%N >&2"};

/// From the end of the program, as it has said itself, to that of the run.
double seconds_to_the_end(Started& run) {
    EXPECT_EQ(run.wait(), 0);
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    return now.count() - std::strtod(run.rest().c_str(), nullptr);
}

/// The most memory that a process has had, KiB.
long most_memory(pid_t process) {
    std::ifstream file{"/proc/" + std::to_string(process) + "/status"};
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("VmHWM:")) return std::strtol(line.c_str() + 6, nullptr, 10);
    }
    return -1;
}

/// A run of `kdvfs run --metrics 0`, and clients that never end what they ask for.
struct BesideBadClients {
    BesideBadClients()
        : run{run_of(says_its_end, {"--metrics", "0", "--report", "/dev/null"}), STDERR_FILENO} {
        const std::string said = run.line();
        const std::size_t colon = said.rfind(':');
        if (colon == std::string::npos) return;
        port = std::atoi(said.c_str() + colon + 1);
        for (int i = 0; i < 200; ++i) {
            bad.push_back(std::make_unique<Client>(port));
            bad.back()->send(i % 3 == 0 ? "GET /metrics HTTP/1.1\r\n"
                             : i % 3 == 1
                                 ? std::string(3000, 'a')
                                 : "POST /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n");
        }
    }

    Started run;
    int port = 0;
    std::vector<std::unique_ptr<Client>> bad;
};

TEST(MetricsOfARun, AnswerBesideClientsThatAreSlowHalfOrEndless) {
    Started alone{run_of(says_its_end, {"--report", "/dev/null"}), STDERR_FILENO};
    const double end_alone = seconds_to_the_end(alone);
    BesideBadClients beside;
    ASSERT_NE(beside.port, 0);
    const auto begin = Clock::now();
    const Client scraper{beside.port};
    ASSERT_TRUE(scraper.connected);
    ASSERT_TRUE(scraper.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"));
    const std::string answer = scraper.answer();
    const std::size_t processes = answer.find("\nkdvfs_processes{");
    ASSERT_NE(processes, std::string::npos) << answer;
    EXPECT_EQ(answer.substr(answer.find("} ", processes), 4), "} 0\n") << answer;
    const std::chrono::duration<double> scraped = Clock::now() - begin;
    EXPECT_LT(scraped, 1s);
    const Client post{beside.port};
    post.send("POST /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n");
    EXPECT_NE(post.answer().find("405"), std::string::npos);
    const long memory = most_memory(beside.run.process);
    EXPECT_GT(memory, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(memory, 16 * 1024) << "KiB";
#endif
    double end = seconds_to_the_end(beside.run);
    // A host that is busy may do so once; a client that holds a run up does it always.
    for (int again = 0; again < 4 && end - end_alone >= 0.1; ++again) {
        BesideBadClients once_more;
        end = seconds_to_the_end(once_more.run);
    }
    EXPECT_LT(end - end_alone, 0.1) << "no client holds the run up";
    std::printf(
        "a scrape in %.1f ms, %ld KiB at most, ends %.1f ms after its program; alone %.1f ms\n",
        1e3 * scraped.count(), memory, 1e3 * end, 1e3 * end_alone);
}

}  // namespace
