// SPDX-License-Identifier: MIT
#include <examples/cli/attached_reports.hpp>
#include <examples/cli/command_run.hpp>
#include <examples/cli/report/energy_chart.hpp>
#include <examples/cli/report/page.hpp>
#include <examples/cli/run_command.hpp>
#include <examples/cli/running.hpp>
#include <examples/cli/temporary_folder.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>

#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace cli {
namespace {

/// The library beside this program: in its folder, in ../lib, or as `KDVFS_ATTACH` says.
std::filesystem::path attach_library() {
    if (const char* const path = std::getenv("KDVFS_ATTACH"); path != nullptr && *path != '\0') {
        return std::filesystem::absolute(path);
    }
    std::error_code ignored;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    for (const char* place : {"libkdvfs_attach.so", "../lib/libkdvfs_attach.so",
                              "../lib/kdvfs/libkdvfs_attach.so", "../attach/libkdvfs_attach.so"}) {
        if (std::filesystem::exists(folder / place, ignored)) {
            return std::filesystem::canonical(folder / place, ignored);
        }
    }
    throw kdvfs::Error{kdvfs::Errc::invalid_input,
                       {"attach to a program", "libkdvfs_attach.so",
                        "it is not beside " + folder.string() + "/kdvfs",
                        "say where it is: KDVFS_ATTACH=.../libkdvfs_attach.so"}};
}

std::string variable(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

/// What was in a list-valued variable stays in it.
std::string added_to(const char* name, const std::string& value, char separator) {
    const std::string before = variable(name);
    return before.empty() ? value : before + separator + value;
}

/// The program, while this process waits for it. Signals that are sent to this process alone go on
/// to it; those of the terminal reach both anyway.
class Child {
public:
    explicit Child(const std::vector<std::string>& command,
                   const std::vector<std::string>& environment) {
        const auto pointers = [](const std::vector<std::string>& texts) {
            std::vector<char*> result;
            for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
            result.push_back(nullptr);
            return result;
        };
        sigset_t held;
        sigset_t before;
        ::sigemptyset(&held);
        for (const int number : passed_on) ::sigaddset(&held, number);
        ::sigprocmask(SIG_BLOCK, &held, &before);
        posix_spawnattr_t attributes;
        ::posix_spawnattr_init(&attributes);
        ::posix_spawnattr_setsigmask(&attributes, &before);
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        pid_t child = 0;
        const int failed = ::posix_spawnp(&child, command.front().c_str(), nullptr, &attributes,
                                          pointers(command).data(), pointers(environment).data());
        ::posix_spawnattr_destroy(&attributes);
        if (failed == 0) {
            number() = child;
            for (const int signal_number : passed_on) {
                struct sigaction now {};
                ::sigaction(signal_number, nullptr, &now);
                if (now.sa_handler == SIG_IGN) continue;  // the program ignores it, too
                now.sa_sigaction = &pass_on;
                now.sa_flags = SA_SIGINFO | SA_RESTART;
                ::sigaction(signal_number, &now, nullptr);
            }
        }
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        if (failed == 0) return;
        std::cerr << "kdvfs: cannot run a program: " << command.front() << ": "
                  << std::strerror(failed) << "; check its path and that it may be executed\n";
        throw CLI::RuntimeError(failed == ENOENT ? 127 : 126);  // as shells say it
    }

    /// @returns the status that `waitpid` gives
    [[nodiscard]] int wait() const {
        int status = 0;
        while (::waitpid(number(), &status, 0) < 0 && errno == EINTR) {
        }
        return status;
    }

private:
    static constexpr std::array<int, 6> passed_on{SIGINT,  SIGTERM, SIGHUP,
                                                  SIGQUIT, SIGUSR1, SIGUSR2};
    static std::atomic<pid_t>& number() {
        static std::atomic<pid_t> child{0};
        return child;
    }
    static void pass_on(int signal_number, siginfo_t* info, void*) {
        if (info->si_code == SI_KERNEL) return;
        const int error = errno;
        ::kill(number(), signal_number);
        errno = error;
    }
};

/// Ends this process as a signal ended the program, without a second core file.
[[noreturn]] void end_by(int signal_number) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::signal(signal_number, SIG_DFL);
    sigset_t all;
    ::sigemptyset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::raise(signal_number);
    std::_Exit(128 + signal_number);
}

std::string html_of(const nlohmann::json& merged, const std::string& text) {
    report::Page page;
    page.title = "kdvfs run";
    page.remarks.push_back(text.substr(0, text.find('\n')));
    page.charts.push_back(report::energy_chart(report::measured_energy(merged)));
    return to_html(page);
}

}  // namespace

void RunCommand::run() const {
    const std::string library = attach_library().string();
    const TemporaryFolder folder;
    const KnownRun known{folder.path};
    std::string mode = variable("KDVFS_MODE");
    if (!plan.empty()) mode = "follow:" + std::filesystem::absolute(plan).string();
    if (!sweep.empty()) mode = "sweep:" + std::filesystem::absolute(sweep).string();
    std::vector<std::pair<std::string, std::string>> changes{
        {"NVTX_INJECTION64_PATH", library},
        {"KOKKOS_TOOLS_LIBS", added_to("KOKKOS_TOOLS_LIBS", library, ';')},
        {"KDVFS_MODE", mode},
        {"KDVFS_ATTACH_LEVEL", level},
        {"KDVFS_ATTACH_MATCH", match},
        {"KDVFS_ATTACH_ITERATION", iteration},
        {"KDVFS_ATTACH_METER", meter_every == 0 ? "" : std::to_string(meter_every)},
        {"KDVFS_ATTACH_FOLDER", folder.path.string()}};
    if (variable("CUDA_INJECTION64_PATH").empty()) {
        changes.emplace_back("CUDA_INJECTION64_PATH", library);
    } else {
        std::cerr << "kdvfs: another tool is injected (CUDA_INJECTION64_PATH): launches are not "
                     "seen\n";
    }
    std::error_code ignored;
    if (preload || std::filesystem::exists("/dev/kfd", ignored)) {
        changes.emplace_back("LD_PRELOAD", added_to("LD_PRELOAD", library, ':'));
    }
    const int status = Child{command, environment_with(changes)}.wait();

    const nlohmann::json merged = merge_attached_reports(read_attached_reports(folder.path));
    const std::string text = merged["processes"].empty()
                                 ? "kdvfs: no GPU work was seen\n"
                                 : attached_text(merged, reports.empty() ? 20 : 1000);
    if (reports.empty()) std::cerr << text;
    for (const std::string& file : reports) {
        const std::string ending = std::filesystem::path{file}.extension().string();
        try {
            kdvfs::detail::write_file_atomically(file, ending == ".json"   ? merged.dump(1) + '\n'
                                                       : ending == ".html" ? html_of(merged, text)
                                                                           : text);
        } catch (const kdvfs::Error& error) {  // the program's exit code is what counts
            std::cerr << "kdvfs: " << error.what() << '\n';
        }
    }
    if (WIFSIGNALED(status)) end_by(WTERMSIG(status));
    throw CLI::RuntimeError(WEXITSTATUS(status));
}

}  // namespace cli
