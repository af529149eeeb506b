// SPDX-License-Identifier: MIT
//
// host one|refused MODULE MODULE: two modules of one process, each RTLD_LOCAL, open the same GPU,
// the double of NVML's. `one`: they have one GPU object, one set of votes and limits, which stay
// when the first module is closed. `refused`: the second is refused in words, and measures.
#include "module.hpp"

#include <tests/nvml_double/nvml_double.hpp>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
    if (holds) return;
    ++failures;
    std::fprintf(stderr, "failed: %s\n", what);
}

void expect_words(const Module& module, std::string_view part) {
    const std::string_view words = module.words();
    if (words.starts_with("cannot ") && words.find(part) != words.npos) return;
    ++failures;
    std::fprintf(stderr, "failed: \"%.*s\" in \"%s\"\n", static_cast<int>(part.size()), part.data(),
                 module.words());
}

void* load(const char* path) {
    void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::exit(2);
}

template <class Function>
Function* function_of(void* library, const char* name) {
    return reinterpret_cast<Function*>(::dlsym(library, name));
}

nvml_double::Board* board = nullptr;

bool core_comes_to(unsigned megahertz) {
    for (int tries = 0; tries < 1000; ++tries) {
        if ((board->core_lock ? board->core_lock->second : 0) == megahertz) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
    return false;
}

/// In a forked child there is no state of the parent's: its GPU is another process's.
void expect_nothing_in_a_child(Module& module) {
    const pid_t child = ::fork();
    if (child == 0) {
        const void* const parents = module.gpu();
        ::_exit(module.open({}) && module.gpu() == parents ? 1 : 0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    expect(status == 0, "a forked child does not get its parent's GPU");
}

void expect_one_gpu(Module& first, Module& second, void* first_library) {
    expect(second.open({}), second.words());
    if (failures > 0) return;
    expect(first.gpu() == second.gpu(), "both have the same GPU object");
    expect_nothing_in_a_child(second);
    first.request(1000);
    expect(core_comes_to(1000), "the first module's request");
    second.request(1500);
    expect(core_comes_to(1500), "the higher of two modules' requests");
    // Stricter limits bind what everybody asks for; contradicting options are refused.
    expect(second.open({.never_above = 1000}), second.words());
    expect(core_comes_to(1000), "a later opener's ceiling");
    expect(!second.open({.never_below = 1500}), "a floor above the ceiling is refused");
    expect_words(second, "contradict");
    expect(second.open({.latency_ms = 7}) == false, "another switching latency is refused");
    expect_words(second, "switch_latency");
    first.close();
    ::dlclose(first_library);  // its code runs the GPU: it stays
    second.request(210);
    expect(core_comes_to(210), "the second module drives the GPU that the first one opened");
    second.close();
    expect(core_comes_to(0), "the clocks are back when the last module has let go");
}

void expect_refusal(Module& second) {
    expect(!second.open({}), "the second module is refused");
    expect_words(second, "another module of this process drives them by kdvfs");
    expect_words(second, "shares nothing with this one's kdvfs");
    expect_words(second, "compile both modules with one version");
    expect(second.open({.measures = true}), second.words());
    expect(failures > 0 || second.measures_only(), "it measures");
    second.close();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    board = function_of<nvml_double::Board*()>(load("libnvidia-ml.so.1"), "nvml_double_board")();
    void* const first_library = load(argv[2]);
    // Static, for LeakSanitizer: they live as long as the process.
    static Module* const first = function_of<Module*()>(first_library, "make_module")();
    static Module* const second = function_of<Module*()>(load(argv[3]), "make_module")();
    expect(first->open({}), first->words());
    if (failures > 0) return 1;
    if (std::string_view{argv[1]} == "one") {
        expect_one_gpu(*first, *second, first_library);
    } else {
        expect_refusal(*second);
        first->close();
    }
    return failures == 0 ? 0 : 1;
}
