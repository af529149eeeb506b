// SPDX-License-Identifier: MIT
//
// A double of libhiprtc: compiles HIP source with the host's compiler, so that what a kernel says
// is what runs. One thread is all of a grid here; the device's clocks are the host's.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace {

constexpr const char* device_words = R"(
#include <time.h>
#define __global__
#define __device__ static inline
namespace {
unsigned long long atomicAdd(unsigned long long* sum, unsigned long long by) {
    return __atomic_fetch_add(sum, by, __ATOMIC_RELAXED);
}
long long nanoseconds() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}
long long wall_clock64() { return nanoseconds() / 10; }   // 100 MHz
long long clock64() { return nanoseconds() * 17 / 10; }  // 1700 MHz
unsigned hardware_register(int number) { return unsigned(number) & 0xffU; }
}
#define __GFX9__
#define __builtin_amdgcn_s_getreg hardware_register
)";

struct Program {
    std::string source;
    std::string code;
};

}  // namespace

extern "C" {

int hiprtcCreateProgram(void** program, const char* source, const char*, int, const char**,
                        const char**) {
    *program = new Program{source, {}};
    return 0;
}

int hiprtcCompileProgram(void* program, int, const char**) {
    if (std::getenv("HIPRTC_DOUBLE_FAILS") != nullptr) return 6;  // HIPRTC_ERROR_COMPILATION
    char folder[] = "/tmp/hiprtc_double_XXXXXX";
    if (::mkdtemp(folder) == nullptr) return 1;
    const std::string at = folder;
    std::ofstream{at + "/kernel.cpp"} << device_words << static_cast<Program*>(program)->source;
    const std::string line = KDVFS_HOST_COMPILER " -std=c++17 -O1 -Wno-psabi -shared -fPIC -o " +
                             at + "/kernel.so " + at + "/kernel.cpp";
    const int status = std::system(line.c_str());
    std::ifstream file{at + "/kernel.so", std::ios::binary};
    static_cast<Program*>(program)->code = {std::istreambuf_iterator<char>{file}, {}};
    std::remove((at + "/kernel.cpp").c_str());
    std::remove((at + "/kernel.so").c_str());
    std::remove(folder);
    return status == 0 ? 0 : 6;
}

int hiprtcGetCodeSize(void* program, std::size_t* bytes) {
    *bytes = static_cast<Program*>(program)->code.size();
    return 0;
}
int hiprtcGetCode(void* program, char* code) {
    const std::string& its = static_cast<Program*>(program)->code;
    its.copy(code, its.size());
    return 0;
}
int hiprtcDestroyProgram(void** program) {
    delete static_cast<Program*>(*program);
    *program = nullptr;
    return 0;
}

}  // extern "C"
