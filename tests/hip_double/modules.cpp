// SPDX-License-Identifier: MIT
//
// Modules of HIP's double: code objects are the host's shared libraries, as the double of libhiprtc
// makes them. A function points to its name; what has code of its own runs it, with one argument.
#include "modules.hpp"

#include "hip_double.hpp"

#include <kdvfs/detail/device/marker_launch.hpp>

#include <dlfcn.h>
#include <elf.h>
#include <hip/hip_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace {

using Marker = void (*)(kdvfs::device::MarkerArguments);

struct Modules {
    std::mutex mutex;
    std::set<const void*> functions;  // that have code of their own
};

Modules& modules() {
    static auto& instance = *new Modules;
    return instance;
}

/// The section table is what ends a library's file.
std::size_t size_of(const void* code) {
    Elf64_Ehdr header;
    std::memcpy(&header, code, sizeof header);
    return header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
}

}  // namespace

std::optional<int> hip_double::launch_code(const void* function, void* stream, void** arguments) {
    {
        const std::lock_guard lock{modules().mutex};
        if (!modules().functions.contains(function)) return std::nullopt;
    }
    const auto marker = reinterpret_cast<Marker>(const_cast<void*>(function));
    const auto copy = *static_cast<const kdvfs::device::MarkerArguments*>(arguments[0]);
    return launch(stream, [=] { marker(copy); });
}

extern "C" {

hipError_t hipModuleLoadData(hipModule_t* module, const void* code) {
    const int file = ::memfd_create("code object", 0);
    const std::size_t bytes = size_of(code);
    if (file < 0 || ::write(file, code, bytes) != static_cast<ssize_t>(bytes)) {
        return hipErrorInvalidImage;
    }
    const std::string path = "/proc/self/fd/" + std::to_string(file);
    *module = static_cast<hipModule_t>(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
    ::close(file);
    return *module == nullptr ? hipErrorInvalidImage : hipSuccess;
}

hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
    void* const code = ::dlsym(module, name);
    if (code == nullptr) return hipErrorNotFound;
    const std::lock_guard lock{modules().mutex};
    modules().functions.insert(code);
    *function = static_cast<hipFunction_t>(code);
    return hipSuccess;
}

}  // extern "C"
