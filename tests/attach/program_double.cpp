// SPDX-License-Identifier: MIT
//
// A training program on the double of CUDA's driver that knows nothing of kdvfs: layers forward and
// backward, an optimizer, ranges by NVTX, and, where it is told to, what attaching must survive.
//   program_double ITERATIONS [graph] [fork] [abort] [exit=CODE] [failing] [persistent]
//                  [cached] [scan] [fragile=ends|fails|hangs] [dlclose] [abort_at_exit]
//                  [child_works] [long] [unnamed] [reads] [tiles=set|cleared]
//                  [pauses] [unseen] [waits] [nvtx] [idle] [late=before] [late=behind]
//                  [late=beside] [late=slowly] [ends=thread|quick]
#include "cuda_double.hpp"

#include <dlfcn.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace {

using cuda_double::Kernel;

Kernel gemm{"_Z4gemmPKfS0_Pfi", 400, 500};
Kernel attention{"_ZN9attention5flashILi128EEEvPKfS2_Pf", 300, 300};
Kernel norm{"_Z4normPKfPfi", 100, 200, 0};
Kernel late{"late", 100, 200};
Kernel endless{"endless", 100, 200};
Kernel adam{"_Z4adamPfS_S_i", 500, 150, 0};
// One name and grid for any problem.
Kernel small_problem{"persistent", 100, 300};
Kernel large_problem{"persistent", 5000, 500};
// Two whose times are 1.3 apart, and take less where they are repeated.
Kernel cached_problem{"cached", 12000, 300};
Kernel larger_cached_problem{"cached", 15600, 500};

// Kernels that run once for each time that their state is cleared. The first says so by its name.
bool scan_cleared = false;
Kernel scan{"_Z16DeviceScanKernelPi", 100, 200, 1, &scan_cleared};
bool fragile_cleared = false;
Kernel fragile{"_Z7fragilePi", 100, 200, 1, &fragile_cleared};
// Takes tiles from a counter until there are none left; long, as finding none takes some ms where
// the host is busy.
bool has_tiles = false;
Kernel tiles{"_Z5tilesPi", 5000, 400, 1, &has_tiles, cuda_double::Unready::does_nothing};

// NVTX as its header does it: variables that the program calls through. Each holds a function at
// first that begins the initialisation, once, and then calls through its variable: whoever calls it
// after that, in the place of another tool, calls himself without end. What no tool has changed
// is null afterwards.
using Function = void (*)();
int begins_push(const char* name);
int begins_pop();
int begins_domain_push(void* domain, const void* event);
int begins_domain_pop(void* domain);
void* begins_domain_create(const char* name);
const Function initial[] = {
    reinterpret_cast<Function>(&begins_push), reinterpret_cast<Function>(&begins_pop),
    reinterpret_cast<Function>(&begins_domain_push), reinterpret_cast<Function>(&begins_domain_pop),
    reinterpret_cast<Function>(&begins_domain_create)};
Function push_a = initial[0];
Function pop_f = initial[1];
Function domain_push = initial[2];
Function domain_pop = initial[3];
Function domain_create = initial[4];
Function* core[16] = {};
Function* core_domains[16] = {};
int table_of(int module, Function*** table, unsigned* entries) {
    core[9] = &push_a;
    core[11] = &pop_f;
    core_domains[4] = &domain_push;
    core_domains[5] = &domain_pop;
    core_domains[12] = &domain_create;
    *table = module == 1 ? core : core_domains;
    *entries = 16;
    return module == 1 || module == 5 ? 1 : 0;
}
const void* export_table(std::uint32_t id) {
    static const struct {
        std::size_t size;
        int (*table)(int, Function***, unsigned*);
    } callbacks{16, &table_of};
    return id == 1 ? &callbacks : nullptr;
}
void initialise_once() {
    static bool begun = false;
    if (std::exchange(begun, true)) return;
    const char* const path = std::getenv("NVTX_INJECTION64_PATH");
    void* const library = path == nullptr ? nullptr : ::dlopen(path, RTLD_LAZY);
    if (library != nullptr) {
        if (void* const begin = ::dlsym(library, "InitializeInjectionNvtx2")) {
            reinterpret_cast<int (*)(const void* (*)(std::uint32_t))>(begin)(&export_table);
        }
    }
    std::size_t place = 0;
    for (Function* each : {&push_a, &pop_f, &domain_push, &domain_pop, &domain_create}) {
        if (*each == initial[place++]) *each = nullptr;
    }
}
template <class Result, class... Arguments>
Result call(Function function, Arguments... arguments) {
    if (function == nullptr) return Result{};
    return reinterpret_cast<Result (*)(Arguments...)>(function)(arguments...);
}
int begins_push(const char* name) {
    initialise_once();
    return call<int>(push_a, name);
}
int begins_pop() {
    initialise_once();
    return call<int>(pop_f);
}
int begins_domain_push(void* domain, const void* event) {
    initialise_once();
    return call<int>(domain_push, domain, event);
}
int begins_domain_pop(void* domain) {
    initialise_once();
    return call<int>(domain_pop, domain);
}
void* begins_domain_create(const char* name) {
    initialise_once();
    return call<void*>(domain_create, name);
}
bool names_ranges = true;
bool numbers_ranges = false;
struct Range {
    explicit Range(const char* name) {
        if (names_ranges) call<int>(push_a, name);
    }
    ~Range() {
        if (names_ranges) call<int>(pop_f);
    }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
};

/// A range as NVTX asks libraries to open theirs: in a domain of their own, by attributes.
struct LibraryRange {
    explicit LibraryRange(const char* name) {
        static void* const domain = call<void*>(domain_create, "BLAS of the double");
        if (domain == nullptr) return;
        const struct {
            std::uint16_t version = 3;
            std::uint16_t size = 48;
            std::uint32_t category = 0;
            std::int32_t color[2] = {};
            std::int32_t payload_type[2] = {};
            std::uint64_t payload = 0;
            std::int32_t message_type = 1;
            const void* message;
        } event{.message = name};
        its_ = domain;
        call<int>(domain_push, its_, static_cast<const void*>(&event));
    }
    ~LibraryRange() {
        if (its_ != nullptr) call<int>(domain_pop, its_);
    }
    LibraryRange(const LibraryRange&) = delete;
    LibraryRange& operator=(const LibraryRange&) = delete;

private:
    void* its_ = nullptr;
};

void* stream = nullptr;

void launch(Kernel& kernel, unsigned blocks) {
    const int status =
        cuLaunchKernel(&kernel, blocks, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr);
    if (status != 0) std::exit(3);
}

void launch_late() {
    for (int i = 0; i < 4; ++i) {
        cuLaunchKernel(&late, 8, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr);
    }
    cuStreamSynchronize(stream);
}

struct LaunchesAtItsEnd {
    bool asked = false;
    ~LaunchesAtItsEnd() {
        if (asked) launch_late();
    }
};
/// Made before the thread's first launch, it ends after what others keep for the thread.
thread_local LaunchesAtItsEnd of_thread;
/// Ends after all handlers that are registered in `main`.
LaunchesAtItsEnd of_program;

struct EndsSlowly {
    bool asked = false;
    ~EndsSlowly() {
        if (asked) std::this_thread::sleep_for(std::chrono::milliseconds{1200});
    }
} ends_slowly;

/// To be called behind the first launch, at which others register their handlers.
void launch_before_they_end() {
    std::thread{[] {
        of_thread.asked = true;
        launch(norm, 32);
    }}.join();
    std::atexit(&launch_late);
}

void launch_beside_the_end() {
    std::thread{[] {
        void* own = nullptr;
        cuStreamCreate(&own, 0);
        while (true) {
            cuLaunchKernel(&endless, 8, 1, 1, 128, 1, 1, 0, own, nullptr, nullptr);
            cuStreamSynchronize(own);
        }
    }}.detach();
}

void launch_cleared(Kernel& kernel) {
    *kernel.ready = true;
    launch(kernel, 16);
}

void backward_of_layer() {
    launch(gemm, 128);
    const cuda_double::Config config{{256, 1, 1}, {128, 1, 1}, 0, stream, nullptr, 0};
    cuLaunchKernelEx(&config, &attention, nullptr, nullptr);
    launch(norm, 32);
}

void step() {
    const Range whole{"step"};
    {
        const Range range{numbers_ranges ? "forward 0" : "forward"};
        for (int layer = 0; layer < 4; ++layer) {
            launch(norm, 32);
            launch(attention, 256);
            launch(gemm, 128);
        }
    }
    {
        const Range range{numbers_ranges ? "backward 0" : "backward"};
        std::thread{[] {                          // as PyTorch's autograd does
            const LibraryRange librarys{"blas"};  // and the libraries that it calls
            for (int layer = 0; layer < 4; ++layer) backward_of_layer();
        }}
            .join();
    }
    {
        const Range range{"optimizer"};
        launch(adam, 1024);
        launch(adam, 1024);
    }
}

bool asked_just(int argc, char** argv, const char* word) {
    for (int i = 2; i < argc; ++i) {
        if (std::strcmp(argv[i], word) == 0) return true;
    }
    return false;
}

/// Takes back every handle of the injected library that the loader counts.
void close_what_was_injected() {
    const char* const path = std::getenv("CUDA_INJECTION64_PATH");
    if (path == nullptr) return;
    for (int i = 0; i < 8; ++i) {
        void* const library = ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        if (library == nullptr) return;
        ::dlclose(library);
        ::dlclose(library);
    }
}

bool asked(int argc, char** argv, const char* word) {
    for (int i = 2; i < argc; ++i) {
        if (std::strncmp(argv[i], word, std::strlen(word)) == 0) return true;
    }
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    const int iterations = argc > 1 ? std::atoi(argv[1]) : 10;
    std::puts("output");
    std::fflush(stdout);
    // What is registered first runs last.
    if (asked(argc, argv, "abort_at_exit=last")) std::atexit([] { std::abort(); });
    cuInit(0);
    names_ranges = !asked(argc, argv, "unnamed");
    numbers_ranges = asked(argc, argv, "numbered");
    if (asked(argc, argv, "dlclose")) close_what_was_injected();
    if (asked(argc, argv, "idle")) {
        const Range range{"idle"};
        return 0;
    }
    cuStreamCreate(&stream, 0);
    of_thread.asked = asked(argc, argv, "late=before");
    if (asked(argc, argv, "late=behind")) {
        of_program.asked = true;
        std::atexit(&launch_late);
    }
    std::uint32_t input = 0;
    cuMemcpyHtoDAsync_v2(0, &input, sizeof input, stream);
    void* executable = nullptr;
    if (asked(argc, argv, "graph")) {
        void* graph = nullptr;
        cuStreamBeginCapture_v2(stream, 0);
        step();
        cuStreamEndCapture(stream, &graph);
        cuGraphInstantiateWithFlags(&executable, graph, 0);
    }
    if (asked(argc, argv, "long")) {
        for (Kernel* kernel : {&gemm, &attention, &norm, &adam}) kernel->microseconds *= 20;
    }
    for (Kernel* kernel : {&cached_problem, &larger_cached_problem}) kernel->again = 0.7;
    if (asked(argc, argv, "fragile=fails")) fragile.unready = cuda_double::Unready::fails;
    if (asked(argc, argv, "fragile=hangs")) fragile.unready = cuda_double::Unready::hangs;
    for (int i = 0; i < iterations; ++i) {
        if (executable != nullptr) {
            cuGraphLaunch(executable, stream);
        } else {
            step();
        }
        if (asked(argc, argv, "persistent")) {
            launch(small_problem, 132);
            launch(large_problem, 132);
        }
        if (asked(argc, argv, "cached")) {
            launch(cached_problem, 132);
            launch(larger_cached_problem, 132);
        }
        if (asked(argc, argv, "tiles=set")) {
            const auto counter = reinterpret_cast<std::uint64_t>(&has_tiles);
            cuMemsetD8Async(counter, 1, sizeof has_tiles, stream);
            launch(norm, 32);
            launch(tiles, 16);
        }
        if (asked(argc, argv, "tiles=cleared")) launch_cleared(tiles);
        if (asked(argc, argv, "scan")) launch_cleared(scan);
        if (asked(argc, argv, "fragile")) launch_cleared(fragile);
        if (asked(argc, argv, "reads")) cuMemcpyDtoH_v2(&input, 0, sizeof input);
        if (asked(argc, argv, "unseen")) cuda_double_launch_unseen(&norm, stream);
        if (cuStreamSynchronize(stream) != 0) return 8;
        if (asked(argc, argv, "pauses")) std::this_thread::sleep_for(std::chrono::milliseconds{60});
    }
    if (asked(argc, argv, "waits")) std::this_thread::sleep_for(std::chrono::seconds{90});
    if (asked(argc, argv, "nvtx")) std::puts(push_a == nullptr ? "no NVTX tool" : "an NVTX tool");
    if (asked(argc, argv, "failing")) {
        if (cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == 0) return 4;
    }
    if (asked(argc, argv, "fork")) {
        const pid_t child = ::fork();
        if (child == 0) {
            if (asked(argc, argv, "child_works")) {
                const Range range{"child"};
                launch(gemm, 8);  // goes nowhere: the stream's thread is the parent's
            }
            std::exit(0);  // runs what is registered for the end
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        if (status != 0) return 5;
        step();
        cuStreamSynchronize(stream);
    }
    if (asked(argc, argv, "abort_at_exit=first")) std::atexit([] { std::abort(); });
    if (cuda_double_writes_in_captures() != 0) return 6;
    if (asked_just(argc, argv, "abort")) std::abort();
    if (asked(argc, argv, "late=before")) launch_before_they_end();
    if (asked(argc, argv, "late=beside")) launch_beside_the_end();
    ends_slowly.asked = asked(argc, argv, "late=slowly");
    if (asked(argc, argv, "ends=thread")) std::thread{[] { std::exit(0); }}.join();
    if (asked(argc, argv, "ends=quick")) std::quick_exit(0);
    for (int i = 2; i < argc; ++i) {
        if (std::strncmp(argv[i], "exit=", 5) == 0) return std::atoi(argv[i] + 5);
    }
    return 0;
}
