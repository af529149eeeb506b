// SPDX-License-Identifier: MIT
//
// Preloaded into a program that crashes: prints where, as addresses in libraries.
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

namespace {

void show(int number, siginfo_t*, void*) {
    void* frames[64];
    const int count = ::backtrace(frames, 64);
    ::backtrace_symbols_fd(frames, count, STDERR_FILENO);
    ::signal(number, SIG_DFL);
    ::raise(number);
}

[[gnu::constructor]] void begin() {
    static char stack[1 << 16];
    stack_t other{stack, 0, sizeof stack};
    ::sigaltstack(&other, nullptr);
    struct sigaction action {};
    action.sa_sigaction = &show;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    void* warm[1];
    ::backtrace(warm, 1);  // loads what it needs
    ::sigaction(SIGSEGV, &action, nullptr);
    ::sigaction(SIGABRT, &action, nullptr);
    ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace
