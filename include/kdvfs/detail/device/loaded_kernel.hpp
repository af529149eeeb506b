// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace kdvfs::inline v0_3::device {

/// A kernel that is compiled and loaded when the program runs, once for each device that launches
/// it. Lives as long as the process. Thread-safe.
/// @tparam Api of which `exchange_capture_mode` is used: loading is forbidden in a strict capture
template <class Api>
class LoadedKernel {
public:
    using Status = typename Api::Status;

    constexpr LoadedKernel() = default;
    LoadedKernel(const LoadedKernel&) = delete;
    LoadedKernel& operator=(const LoadedKernel&) = delete;

    /// The vendor's function for `device`.
    /// @param load `Status load(void*& kernel)`, for a device that has none yet
    template <class Load>
    Status find(int device, void*& kernel, Load load) {
        const auto index = static_cast<std::size_t>(device);
        if (index >= kernels_.size()) return Api::no_device;
        std::atomic<void*>& known = kernels_.at(index);
        kernel = known.load(std::memory_order_acquire);
        if (kernel != nullptr) return Api::success;
        const std::lock_guard lock{mutex_};
        auto mode = Api::relaxed_capture;
        static_cast<void>(Api::exchange_capture_mode(&mode));
        const Status status = load(kernel);
        static_cast<void>(Api::exchange_capture_mode(&mode));
        if (status == Api::success) known.store(kernel, std::memory_order_release);
        return status;
    }

private:
    std::mutex mutex_;
    std::array<std::atomic<void*>, 64> kernels_{};
};

}  // namespace kdvfs::inline v0_3::device
