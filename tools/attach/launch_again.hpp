// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <tools/attach/cuda_driver.hpp>
#include <tools/attach/cupti.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

/// Calls of CUDA's driver that the program made, made again.
namespace attach {

/// @throws kdvfs::Error (io) for what the driver refuses
inline void check_launch(int status) {
    if (status == 0) return;
    throw kdvfs::Error{kdvfs::Errc::io,
                       {.action = "launch a kernel again",
                        .object = "CUDA",
                        .vendor_words = "CUDA error " + std::to_string(status),
                        .remedy = ""}};
}

/// Launches a kernel with its own arguments. @throws kdvfs::Error (io)
inline void launch_again(const cupti::Launch& made) {
    const CudaDriver& driver = CudaDriver::of_process();
    // cuLaunchKernel_params and cuLaunchKernelEx_params of generated_cuda_meta.h.
    struct {
        const void* function;
        unsigned sizes[7];
        void* stream;
        void** arguments;
        void** extra;
    } plain{};
    struct {
        const cupti::LaunchConfig* config;
        const void* function;
        void** arguments;
        void** extra;
    } by_config{};
    if (made.config() == nullptr) {
        std::memcpy(&plain, made.parameters, sizeof plain);
        const unsigned* const n = plain.sizes;
        check_launch(driver.launch(plain.function, n[0], n[1], n[2], n[3], n[4], n[5], n[6],
                                   made.stream, plain.arguments, plain.extra));
    } else {
        std::memcpy(&by_config, made.parameters, sizeof by_config);
        cupti::LaunchConfig config = *by_config.config;
        config.stream = made.stream;
        check_launch(driver.launch_by_config(&config, by_config.function, by_config.arguments,
                                             by_config.extra));
    }
}

/// The last calls of this thread, as far as they are memsets that can be made again.
class LastSets {
public:
    static LastSets& of_thread() {
        thread_local LastSets sets;
        return sets;
    }

    void add(std::uint32_t id, const cupti::Launch& made) {
        Set& set = sets_[next_++ % sets_.size()];
        set = {};
        if (made.call->work != cupti::Work::set || made.call->stream_at != set.at_stream) return;
        set.id = id == made.call->per_thread_id ? made.call->id : id;
        set.stream = made.stream;
        std::memcpy(&set.parameters, made.parameters, sizeof set.parameters);
    }
    [[nodiscard]] bool any_on(const void* stream) const {
        return std::any_of(sets_.begin(), sets_.end(), [stream](const Set& set) {
            return set.id != 0 && set.stream == stream;
        });
    }
    void make_again_on(const void* stream) const {
        for (std::size_t i = 0; i < sets_.size(); ++i) {
            const Set& set = sets_[(next_ + i) % sets_.size()];
            if (set.id == 0 || set.stream != stream) continue;
            check_launch(set.again());
        }
    }

private:
    struct Set {
        static constexpr std::size_t at_stream = 24;
        std::uint32_t id = 0;
        void* stream = nullptr;
        /// Of cuMemsetD8Async and its like (generated_cuda_meta.h).
        struct {
            std::uint64_t to;
            std::uint32_t value;
            std::size_t count;
        } parameters{};

        [[nodiscard]] int again() const {
            const CudaDriver& driver = CudaDriver::of_process();
            const auto& [to, value, count] = parameters;
            constexpr std::uint32_t bytes = 216;
            constexpr std::uint32_t shorts = 218;
            constexpr std::uint32_t words = 220;
            switch (id) {
                case bytes:
                    return driver.set_bytes(to, static_cast<unsigned char>(value), count, stream);
                case shorts:
                    return driver.set_shorts(to, static_cast<unsigned short>(value), count, stream);
                case words: return driver.set_words(to, value, count, stream);
                default: return 0;
            }
        }
    };
    std::array<Set, 4> sets_{};
    std::size_t next_ = 0;
};

}  // namespace attach
