// SPDX-License-Identifier: MIT
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

/// Runs the kernels of this example on the host, so that they are tested where there is no GPU:
/// blocks one after the other, the threads of a block as fibers that change at __syncthreads().
/// It finds wrong indices and wrong arithmetic; it cannot find a missing barrier between threads
/// of different order, and its times mean nothing.

#define __global__ inline
#define __device__
#define __shared__ static  // one block runs at a time

struct dim3 {
    unsigned x = 1;
    unsigned y = 1;
    unsigned z = 1;
};

namespace gpt::host_grid {

inline dim3 thread_index, block_index, block_size, grid_size;
inline unsigned long launches = 0;

/// The threads of one block.
class Block {
public:
    explicit Block(std::size_t threads) : fibers_(threads) {
        for (Fiber& fiber : fibers_) {
            fiber.stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
        }
    }

    /// Runs `body` once per thread, all up to one barrier, then all up to the next.
    void run(const std::function<void()>& body) {
        body_ = &body;
        running_ = this;
        for (Fiber& fiber : fibers_) {
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.get();
            fiber.context.uc_stack.ss_size = stack_bytes;
            fiber.context.uc_link = &scheduler_;
            fiber.done = false;
            makecontext(&fiber.context, &Block::enter, 0);
        }
        for (std::size_t alive = fibers_.size(); alive > 0;) {
            for (std::size_t i = 0; i < fibers_.size(); ++i) {
                if (fibers_[i].done) continue;
                thread_index = {static_cast<unsigned>(i), 0, 0};
                current_ = i;
                swapcontext(&scheduler_, &fibers_[i].context);
                if (fibers_[i].done) --alive;
            }
        }
    }

    static void barrier() {
        Fiber& fiber = running_->fibers_[running_->current_];
        swapcontext(&fiber.context, &running_->scheduler_);
    }

private:
    struct Fiber {
        ucontext_t context;
        std::unique_ptr<std::byte[]> stack;
        bool done = false;
    };
    static constexpr std::size_t stack_bytes = 64 * 1024;

    static void enter() {
        Block& block = *running_;
        (*block.body_)();
        block.fibers_[block.current_].done = true;
    }

    inline static Block* running_ = nullptr;
    std::vector<Fiber> fibers_;
    ucontext_t scheduler_{};
    const std::function<void()>* body_ = nullptr;
    std::size_t current_ = 0;
};

template <class... Parameters, class... Arguments>
void run(void (*kernel)(Parameters...), dim3 grid, dim3 threads, Arguments... arguments) {
    ++launches;
    grid_size = grid;
    block_size = threads;
    Block block{threads.x};
    const std::function<void()> body = [&] { kernel(arguments...); };
    for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) {
            block_index = {x, y, 0};
            block.run(body);
        }
    }
}

}  // namespace gpt::host_grid

// The names that device code uses; references, since a header must not define macros for them.
inline const dim3& threadIdx = gpt::host_grid::thread_index;
inline const dim3& blockIdx = gpt::host_grid::block_index;
inline const dim3& blockDim = gpt::host_grid::block_size;
inline const dim3& gridDim = gpt::host_grid::grid_size;

inline void __syncthreads() { gpt::host_grid::Block::barrier(); }
