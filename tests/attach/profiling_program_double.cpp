// SPDX-License-Identifier: MIT
//
// A program that profiles itself for a while, as torch.profiler (Kineto) does: it subscribes, has a
// clock of its own, buffers of its own, and takes what is in them when it is done. It says how many
// of its launches have records. Without a subscription, and where somebody else has taken its
// buffers, it has none, without a word.
//   profiling_program_double [first] [half] [late] [twice] [plain_clock]
// The bounds of what it prints are its own clock's: they hold however slowly the machine runs.
//     first  profiles before CUDA is initialised, too
//     half   takes records of kernels alone
//     late   asks for its buffers two seconds after it has stopped
#include "cuda_double.hpp"

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

namespace {

cuda_double::Kernel gemm{"_Z4gemmPKfS0_Pfi", 400, 500};
void* stream = nullptr;

using Callback = void (*)(void*, int, std::uint32_t, const void*);
using Wanted = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using Done = void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);

}  // namespace

#ifdef LINKED_CUPTI
extern "C" {
int cuptiSubscribe(void**, Callback, void*);
int cuptiEnableCallback(std::uint32_t, void*, int, std::uint32_t);
int cuptiActivityRegisterCallbacks(Wanted, Done);
int cuptiActivityRegisterTimestampCallback(std::uint64_t (*)());
int cuptiActivityEnable(int);
int cuptiActivityDisable(int);
int cuptiActivityFlushAll(unsigned);
int cuptiActivityGetNextRecord(std::uint8_t*, std::size_t, std::uint8_t**);
}
#define CUPTI(name) (&name)
#else
extern "C" {
using cuptiSubscribe = int(void**, Callback, void*);
using cuptiEnableCallback = int(std::uint32_t, void*, int, std::uint32_t);
using cuptiActivityRegisterCallbacks = int(Wanted, Done);
using cuptiActivityRegisterTimestampCallback = int(std::uint64_t (*)());
using cuptiActivityEnable = int(int);
using cuptiActivityDisable = int(int);
using cuptiActivityFlushAll = int(unsigned);
using cuptiActivityGetNextRecord = int(std::uint8_t*, std::size_t, std::uint8_t**);
}
namespace {
void* cupti() {
    static void* const library = ::dlopen(std::getenv("KDVFS_CUPTI"), RTLD_NOW | RTLD_LOCAL);
    return library;
}
}  // namespace
#define CUPTI(name) (reinterpret_cast<name*>(::dlsym(cupti(), #name)))
#endif

namespace {

/// Of profilers: buffers that CUPTI has, and the kernels in those that came back.
std::set<std::uint8_t*> given;
long kernels = 0;
double seconds = 0;  // that these have run
long strangers = 0;  // buffers that it never gave

/// 25 ticks a nanosecond since the machine was started: who takes them for nanoseconds has kernels
/// that run for longer than the program.
constexpr std::uint64_t ticks_per_ns = 25;
std::uint64_t ticks() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return (static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
            static_cast<std::uint64_t>(now.tv_nsec)) *
           ticks_per_ns;
}

void give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
    *size = std::size_t{64} << 10U;
    *buffer = static_cast<std::uint8_t*>(std::malloc(*size));
    *records = 0;
    given.insert(*buffer);
}

void take_buffer(void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t used) {
    if (given.erase(buffer) == 0) {
        ++strangers;
        return;
    }
    std::uint8_t* record = nullptr;
    while (CUPTI(cuptiActivityGetNextRecord)(buffer, used, &record) == 0) {
        std::uint32_t kind = 0;
        std::uint64_t times[2];
        std::memcpy(&kind, record, sizeof kind);
        std::memcpy(times, record + 16, sizeof times);
        if (kind != 10) continue;
        ++kernels;
        seconds += static_cast<double>(times[1] - times[0]) * 1e-9;
    }
    std::free(buffer);
}

bool is_subscribed = false;
void subscribe() {
    void* subscriber = nullptr;
    if (CUPTI(cuptiSubscribe)(
            &subscriber, [](void*, int, std::uint32_t, const void*) {}, nullptr) != 0) {
        return;
    }
    is_subscribed = true;
    CUPTI(cuptiEnableCallback)(1, subscriber, 3, 1);
}

bool asked(int argc, char** argv, const char* word) {
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], word) == 0) return true;
    }
    return false;
}

double launching = 0;  // s, of all calls

void launch(int steps) {
    const auto began = std::chrono::steady_clock::now();
    if (stream == nullptr) cuStreamCreate(&stream, 0);
    for (int step = 0; step < steps; ++step) {
        for (int k = 0; k < 10; ++k) {
            cuLaunchKernel(&gemm, 64, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr);
        }
        cuStreamSynchronize(stream);
    }
    launching += std::chrono::duration<double>{std::chrono::steady_clock::now() - began}.count();
}

const char* profile(int argc, char** argv, int steps) {
    static std::string text;
    if (!is_subscribed) subscribe();
    kernels = 0;
    seconds = 0;
    if (is_subscribed) {
        if (!asked(argc, argv, "plain_clock")) {
            CUPTI(cuptiActivityRegisterTimestampCallback)(&ticks);
        }
        CUPTI(cuptiActivityRegisterCallbacks)(&give_buffer, &take_buffer);
        for (const int kind : {1, 2, 10}) {
            if (kind == 10 || !asked(argc, argv, "half")) CUPTI(cuptiActivityEnable)(kind);
        }
    }
    cuInit(0);
    const double before = launching;
    launch(steps);
    if (is_subscribed) {
        for (const int kind : {1, 2, 10}) CUPTI(cuptiActivityDisable)(kind);
        if (asked(argc, argv, "late")) ::sleep(2);
        // What Kineto does: where it has no buffer out any more, there is nothing to take.
        if (!given.empty()) CUPTI(cuptiActivityFlushAll)(1);
    }
    const double rate = asked(argc, argv, "plain_clock") ? 1 : ticks_per_ns;
    text = std::to_string(kernels) + " of " + std::to_string(10 * steps) + " kernels, " +
           std::to_string(seconds / rate) + " s of " + std::to_string(launching - before) + ", " +
           std::to_string(strangers) + " strangers";
    return text.c_str();
}

}  // namespace

int main(int argc, char** argv) {
    if (asked(argc, argv, "first")) std::printf("first: %s\n", profile(argc, argv, 20));
    cuInit(0);
    launch(100);
    for (int i = 0; i < (asked(argc, argv, "twice") ? 2 : 1); ++i) {
        std::printf("within: %s\n", profile(argc, argv, 150));
        std::fflush(stdout);
        ::sleep(3);
        launch(150);
    }
    std::printf("launching took %f s\n", launching);
}
