// SPDX-License-Identifier: MIT
// Counts the signals that it gets for argv[1] seconds. Prints "ready", then at the end
// "NUMBER COUNT" for each signal that it got.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {
std::array<volatile sig_atomic_t, 65> counts{};
void count(int number) {
    counts[static_cast<std::size_t>(number)] = counts[static_cast<std::size_t>(number)] + 1;
}
}  // namespace

int main(int argc, char** argv) {
    for (int number = 1; number < 32; ++number) {
        if (number == SIGKILL || number == SIGSTOP || number == SIGCHLD) continue;
        struct sigaction action {};
        action.sa_handler = &count;
        action.sa_flags = SA_RESTART;
        ::sigaction(number, &action, nullptr);
    }
    std::puts("ready");
    std::fflush(stdout);
    const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
    for (double waited = 0; waited < seconds; waited += 0.005) ::usleep(5000);
    for (std::size_t number = 1; number < counts.size(); ++number) {
        if (counts[number] != 0) std::printf("%zu %d\n", number, static_cast<int>(counts[number]));
    }
}
