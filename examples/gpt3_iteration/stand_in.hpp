// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

/// Kernels that compute and move what the iteration's own kernels do, and nothing useful.
namespace gpt3 {

/// A kernel's work, dealt out to the threads of an AMD GPU.
struct StandIn {
    static constexpr unsigned threads_per_block = 256;
    static constexpr unsigned waves_per_block = threads_per_block / 64;
    static constexpr double bytes_per_step = 32.0 * threads_per_block;  ///< 16 read, 16 written
    static constexpr double flops_per_matrix_instruction = 2.0 * 32 * 32 * 8;

    unsigned blocks = 1;
    unsigned steps = 1;                     ///< of each thread
    std::uint32_t matrix_instructions = 0;  ///< of each wave, over all its steps
    std::uint32_t vector_instructions = 0;  ///< of each thread: fused multiply-adds

    [[nodiscard]] double bytes() const { return bytes_per_step * blocks * steps; }
    [[nodiscard]] double matrix_flops() const {
        return flops_per_matrix_instruction * waves_per_block * blocks * matrix_instructions;
    }
    [[nodiscard]] double vector_flops() const {
        return 2.0 * threads_per_block * blocks * vector_instructions;
    }
};

/// @param most_blocks as many as the GPU runs at once
inline StandIn deal_out(const kdvfs::simulated::KernelWork& work, unsigned most_blocks) {
    const auto rounded = [](double value) {
        return static_cast<std::uint32_t>(std::lround(value));
    };
    StandIn stand_in;
    const double block_steps = std::max(1.0, work.memory_bytes / StandIn::bytes_per_step);
    stand_in.blocks = std::min(most_blocks, rounded(std::ceil(block_steps)));
    stand_in.steps = std::max(1U, rounded(block_steps / stand_in.blocks));
    stand_in.matrix_instructions =
        rounded(work.matrix_flops / (StandIn::flops_per_matrix_instruction *
                                     StandIn::waves_per_block * stand_in.blocks));
    stand_in.vector_instructions =
        rounded(work.vector_flops / (2.0 * StandIn::threads_per_block * stand_in.blocks));
    return stand_in;
}

/// Runs stand-ins on the current HIP device, over two buffers of its own. Compiled by hipcc they
/// are kernels; compiled by a host compiler copies of the same bytes stand in for them.
class StandIns {
public:
    /// @param buffer_bytes of each buffer, a power of two: more than the GPU's caches hold
    /// @throws std::runtime_error with HIP's words
    explicit StandIns(std::size_t buffer_bytes = std::size_t{1} << 30U);
    ~StandIns();
    StandIns(const StandIns&) = delete;
    StandIns& operator=(const StandIns&) = delete;

    /// Enqueues one. @throws std::runtime_error with HIP's words
    void launch(kdvfs::StreamRef stream, const StandIn& work) const;

    /// How many blocks the GPU runs at once.
    [[nodiscard]] unsigned blocks_at_once() const { return blocks_at_once_; }
    /// Whether FLOPs are burned, too.
    static bool burns_flops();

private:
    std::size_t buffer_bytes_;
    void* from_ = nullptr;
    void* to_ = nullptr;
    unsigned blocks_at_once_ = 1;
};

}  // namespace gpt3
