// SPDX-License-Identifier: MIT
#include <tools/cli/child_process.hpp>
#include <tools/cli/child_signal.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <utility>

namespace cli {
namespace {

/// All signals that a process may get from others and handle, but those of its own faults.
constexpr std::array forwarded{SIGHUP,  SIGINT,  SIGQUIT,   SIGUSR1, SIGUSR2, SIGALRM, SIGTERM,
                               SIGCONT, SIGTSTP, SIGTTIN,   SIGTTOU, SIGURG,  SIGXCPU, SIGXFSZ,
                               SIGPROF, SIGIO,   SIGVTALRM, SIGPWR,  SIGWINCH};

sigset_t set_of_forwarded() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int number : forwarded) ::sigaddset(&set, number);
    ::sigaddset(&set, SIGCHLD);
    return set;
}

/// Blocks what is forwarded, to the end of this process: its reports are written after the program
/// has ended, whatever the group got before.
/// @returns the mask that this process was started with
const sigset_t& block_forwarded() {
    static const sigset_t found = [] {
        const sigset_t held = set_of_forwarded();
        sigset_t before;
        ::sigprocmask(SIG_BLOCK, &held, &before);
        return before;
    }();
    return found;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
}

/// Whether a process is stopped, from /proc.
bool is_stopped(pid_t process) {
    std::ifstream file{"/proc/" + std::to_string(process) + "/stat"};
    std::string line;
    std::getline(file, line);
    const std::size_t end = line.rfind(')');
    return end != std::string::npos && line.size() > end + 2 && line[end + 2] == 'T';
}

/// Somebody else in this process has waited for the program: its end, but not its status is known.
int lost_status(pid_t process) {
    std::cerr << "kdvfs: the status of process " << process
              << " is lost: a library in this process has waited for it\n";
    return W_EXITCODE(127, 0);  // as shells do
}

}  // namespace

/// A process of this group that blocks all signals and counts them: what it got, the group got.
class ChildProcess::Witness {
public:
    Witness() {
        int pair[2];
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return;
        const pid_t parent = ::getpid();
        process_ = ::fork();
        if (process_ == 0) count_signals(pair[1], parent);
        ::close(pair[1]);
        socket_ = pair[0];
    }
    ~Witness() {
        if (socket_ >= 0) ::close(socket_);  // the witness ends
        if (process_ > 0) ::waitpid(process_, nullptr, 0);
    }
    Witness(const Witness&) = delete;
    Witness& operator=(const Witness&) = delete;

    /// How many times it got a signal since this was last asked; 0 if it cannot answer.
    [[nodiscard]] int count(int signal_number) {
        const Question question{++asked_, signal_number, 0};
        if (::send(socket_, &question, sizeof question, MSG_NOSIGNAL) < 0) return 0;
        pollfd wait{socket_, POLLIN, 0};
        constexpr int deadline_ms = 1000;  // it may have been stopped by SIGSTOP
        Question answer{};
        while (::poll(&wait, 1, deadline_ms) == 1 &&
               ::recv(socket_, &answer, sizeof answer, 0) == sizeof answer)
            if (answer.number == question.number) return answer.counted;  // else to one of before
        return 0;
    }

private:
    struct Question {
        int number;
        int signal;
        int counted;  ///< in the answer
    };

    [[noreturn]] static void count_signals(int inherited, pid_t parent) {
        sigset_t all;
        ::sigfillset(&all);
        ::sigprocmask(SIG_SETMASK, &all, nullptr);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        constexpr int socket = 3;
        if (::getppid() != parent || ::dup2(inherited, socket) != socket) ::_exit(0);
        // What it kept open would stay open for others: the peer of its socket, a pipe's end.
        ::syscall(SYS_close_range, 0, socket - 1, 0);
        ::syscall(SYS_close_range, socket + 1, ~0U, 0);
        const int signals = ::signalfd(-1, &all, SFD_NONBLOCK);
        std::array<int, NSIG> counts{};
        const auto take_pending = [&] {
            signalfd_siginfo taken;
            while (::read(signals, &taken, sizeof taken) == sizeof taken) {
                if (taken.ssi_signo < counts.size()) ++counts[taken.ssi_signo];
            }
        };
        for (;;) {
            std::array<pollfd, 2> waits{{{socket, POLLIN, 0}, {signals, POLLIN, 0}}};
            ::poll(waits.data(), waits.size(), -1);
            take_pending();
            if (waits[0].revents == 0) continue;
            Question question{};
            if (::recv(socket, &question, sizeof question, 0) != sizeof question) ::_exit(0);
            question.counted = std::exchange(counts[static_cast<std::size_t>(question.signal)], 0);
            if (::send(socket, &question, sizeof question, MSG_NOSIGNAL) < 0) ::_exit(0);
        }
    }

    pid_t process_ = -1;
    int socket_ = -1;
    int asked_ = 0;
};

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::vector<std::string>& environment) {
    const std::vector<char*> words = pointers_to(command);
    const std::vector<char*> variables = pointers_to(environment);
    const sigset_t& found = block_forwarded();
    witness_ = std::make_unique<Witness>();
    int failure[2];
    const bool piped = ::pipe2(failure, O_CLOEXEC) == 0;
    const pid_t parent = ::getpid();
    child_ = piped ? ::fork() : -1;
    if (child_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(127);
        ::sigprocmask(SIG_SETMASK, &found, nullptr);
        restore_child_signal();
        ::execvpe(words.front(), words.data(), variables.data());
        const int error = errno;
        while (::write(failure[1], &error, sizeof error) < 0 && errno == EINTR) {
        }
        ::_exit(127);
    }
    int error = child_ < 0 ? errno : 0;
    if (piped) {
        ::close(failure[1]);
        if (child_ > 0 && ::read(failure[0], &error, sizeof error) != sizeof error) error = 0;
        ::close(failure[0]);
    }
    if (error == 0) return;
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
    std::cerr << "kdvfs: cannot run a program: " << command.front() << ": " << std::strerror(error)
              << "; check its path and that it may be executed\n";
    throw CLI::RuntimeError(error == ENOENT ? 127 : 126);  // as shells do
}

ChildProcess::~ChildProcess() = default;

int ChildProcess::wait() const {
    const sigset_t held = set_of_forwarded();
    for (;;) {
        int status = 0;
        const pid_t changed = ::waitpid(child_, &status, WNOHANG | WUNTRACED | WCONTINUED);
        if (changed == child_ && (WIFEXITED(status) || WIFSIGNALED(status))) return status;
        if (changed == child_ && WIFSTOPPED(status) && is_stopped(child_)) {
            ::raise(SIGSTOP);  // who waits for this process sees the program stop
            continue;
        }
        if (changed == child_) continue;
        if (changed < 0 && errno == ECHILD) return lost_status(child_);
        const int number = ::sigwaitinfo(&held, nullptr);
        if (number > 0 && number != SIGCHLD) forward(number);
    }
}

void ChildProcess::forward(int signal_number) const {
    const auto take_pending = [signal_number] {
        // The kernel delivers to one member of a group after the other.
        constexpr timespec moment{0, 3'000'000};
        ::nanosleep(&moment, nullptr);
        sigset_t one;
        ::sigemptyset(&one);
        ::sigaddset(&one, signal_number);
        constexpr timespec now{};
        int taken = 0;
        while (::sigtimedwait(&one, nullptr, &now) == signal_number) ++taken;
        return taken;
    };
    const int own = 1 + take_pending();
    const int of_group = witness_->count(signal_number);
    for (int i = of_group; i < own; ++i) ::kill(child_, signal_number);
    // Signals to the group that arrived since were counted there and are pending here.
    if (of_group > own) take_pending();
}

}  // namespace cli
