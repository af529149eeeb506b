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
#define __host__
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
    explicit Block(std::size_t threads) : threads_{threads} {}

    /// Runs `body` once per thread, all up to one barrier, then all up to the next. A fiber runs
    /// thread after thread until one waits: without barriers one fiber serves them all.
    void run(const std::function<void()>& body) {
        body_ = &body;
        running_ = this;
        started_ = 0;
        std::size_t waiting = 0;
        while (started_ < threads_) {
            if (waiting == fibers_.size()) fibers_.push_back(std::make_unique<Fiber>());
            begin(*fibers_[waiting]);
            if (fibers_[waiting]->waits) ++waiting;
        }
        for (bool any = waiting > 0; any;) {
            any = false;
            for (std::size_t i = 0; i < waiting; ++i) {
                if (fibers_[i]->waits) resume(*fibers_[i]);
                any = any || fibers_[i]->waits;
            }
        }
    }

    [[gnu::noinline, gnu::no_sanitize("address")]] static void barrier() {
        Fiber& fiber = *running_->current_;
        fiber.waits = true;
        if (__builtin_setjmp(fiber.place) == 0) go_to(running_->place_);
        fiber.waits = false;
    }

private:
    // Of the compiler, as swapcontext() calls the kernel twice for each change.
    using Place = void* [5];

    struct Fiber {
        static constexpr std::size_t stack_bytes = 64 * 1024;
        ucontext_t context{};  ///< to begin on a stack of its own
        Place place{};
        std::unique_ptr<std::byte[]> stack =
            std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
        std::size_t thread = 0;
        bool waits = false;
    };

    // Sanitizers count calls that return and watch one stack: not those that change it.
    [[gnu::noinline, gnu::no_sanitize("address", "thread")]] static void go_to(Place& place) {
        __builtin_longjmp(place, 1);
    }

    [[gnu::noinline, gnu::no_sanitize("address")]] void begin(Fiber& fiber) {
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = Fiber::stack_bytes;
        makecontext(&fiber.context, &Block::serve, 0);
        current_ = &fiber;
        if (__builtin_setjmp(place_) == 0) setcontext(&fiber.context);
    }

    [[gnu::noinline, gnu::no_sanitize("address")]] void resume(Fiber& fiber) {
        current_ = &fiber;
        thread_index = {static_cast<unsigned>(fiber.thread), 0, 0};
        if (__builtin_setjmp(place_) == 0) go_to(fiber.place);
    }

    [[gnu::noinline, gnu::no_sanitize("address", "thread")]] static void serve() {
        Block& block = *running_;
        while (block.started_ < block.threads_) {
            Fiber& fiber = *block.current_;
            fiber.thread = block.started_++;
            thread_index = {static_cast<unsigned>(fiber.thread), 0, 0};
            (*block.body_)();
        }
        go_to(block.place_);
    }

    inline static Block* running_ = nullptr;
    std::size_t threads_;
    std::size_t started_ = 0;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    Place place_{};  ///< of run()
    const std::function<void()>* body_ = nullptr;
    Fiber* current_ = nullptr;
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
