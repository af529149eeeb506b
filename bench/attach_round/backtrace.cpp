// SPDX-License-Identifier: MIT
//
// Preloaded into a program that crashes: prints where, as addresses in libraries. Also in threads
// that block all signals, as those of kdvfs do.
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <initializer_list>

namespace {

void show(int number, siginfo_t* info, void*) {
    void* frames[64];
    const int count = ::backtrace(frames, 64);
    char name[16]{};
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    ::dprintf(STDERR_FILENO, "signal %d at %p in thread '%s'\n", number, info->si_addr, name);
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

extern "C" int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) noexcept {
    using Function = int (*)(int, const sigset_t*, sigset_t*);
    static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "pthread_sigmask"));
    if (set == nullptr || how == SIG_UNBLOCK) return real(how, set, before);
    sigset_t others = *set;
    for (const int fault : {SIGSEGV, SIGABRT, SIGBUS}) ::sigdelset(&others, fault);
    return real(how, &others, before);
}
