// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

/// A double of CUDA's driver: streams that run kernels in real time, without a GPU. It lies in
/// libcuda.so.1; the double of CUPTI (libcupti.so.13) asks it for callbacks and records.
namespace cuda_double {

/// What becomes of a launch whose kernel is not ready for it.
enum class Unready { ends_the_program, fails, hangs, does_nothing };

/// What a kernel's handle points to.
struct Kernel {
    const char* symbol;
    double microseconds;    ///< at the highest clock
    double watts;           ///< at the highest clock, beyond the board's own
    double core_share = 1;  ///< of the time: what waits for the core; the rest, for memory
    /// Of a kernel that needs something cleared before each launch, as look-back scans do: the
    /// launch takes it away.
    bool* ready = nullptr;
    Unready unready = Unready::ends_the_program;
    double again = 1;  ///< of the time, behind itself: it finds its data in the cache
};

/// CUlaunchConfig, as far as it is looked at.
struct Config {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void* stream;
    void* attributes;
    unsigned attribute_count;
};
static_assert(offsetof(Config, stream) == 32);

/// What the double of CUPTI wants to be told.
struct Listener {
    /// Before and after a call: {number, parameters, symbol, status}. Status is null before.
    void (*call)(std::uint32_t id, const void* parameters, const char* symbol, const int* status,
                 std::uint32_t correlation);
    /// Work has run: the kind of CUPTI's record, when, by the clock since 1970 in ns. A graph's
    /// launch has run as a whole after its nodes.
    /// @param symbol of a kernel, with the number of blocks of its grid
    /// @param in_graph it is a node
    void (*ran)(std::uint32_t kind, std::uint32_t correlation, std::uint64_t start,
                std::uint64_t end, const char* symbol, unsigned blocks, bool in_graph);
};

}  // namespace cuda_double

extern "C" {
void cuda_double_listen(const cuda_double::Listener* listener);

int cuInit(unsigned flags);
int cuStreamCreate(void** stream, unsigned flags);
int cuStreamSynchronize(void* stream);
int cuStreamBeginCapture_v2(void* stream, int mode);
int cuStreamEndCapture(void* stream, void** graph);
int cuStreamIsCapturing(void* stream, int* status);
int cuGraphGetNodes(void* graph, void** nodes, std::size_t* count);
int cuGraphNodeGetType(void* node, int* type);
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags);
int cuGraphLaunch(void* executable, void* stream);
int cuLaunchKernel(void* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_bytes, void* stream, void** parameters,
                   void** extra);
int cuLaunchKernelEx(const cuda_double::Config* config, void* kernel, void** parameters,
                     void** extra);
int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void* stream);
/// Waits for the default stream, as CUDA's does.
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes);
/// Sets a byte of the host at once, where `to` is one.
int cuMemsetD8Async(std::uint64_t to, unsigned char value, std::size_t count, void* stream);
/// A launch that no profiler is called back for, but that its records have.
int cuda_double_launch_unseen(void* kernel, void* stream);
/// How many stream writes went into captures: none may.
int cuda_double_writes_in_captures();
}
