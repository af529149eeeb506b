// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/nvidia/nvml.hpp>

#include <tests/nvml_double/nvml_double.hpp>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

namespace kdvfs::device {

/// A test's own double of libnvidia-ml, in its first state again for each test.
class NvmlDouble : public testing::Test {
protected:
    explicit NvmlDouble(std::string path = NVML_DOUBLE) : path_{std::move(path)} {
        library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
        using Hand = nvml_double::Board* (*)();
        board_ = reinterpret_cast<Hand>(dlsym(library_, "nvml_double_board"))();
        *board_ = {};
    }
    ~NvmlDouble() override { dlclose(library_); }

    [[nodiscard]] NvmlOptions options(ClockAccess access = ClockAccess::set) const {
        return {.access = access, .library = path_, .settle = Duration::zero()};
    }
    [[nodiscard]] nvml_double::Board& board() { return *board_; }

    static constexpr const char* address = "0000:1b:00.0";

private:
    std::string path_;
    void* library_ = nullptr;
    nvml_double::Board* board_ = nullptr;
};

/// Runs `work`, which must throw an Error, and hands it out.
template <class Work>
Error error_of(Work work) {
    try {
        work();
    } catch (const Error& error) {
        return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return Error{Errc::io, {}};
}

}  // namespace kdvfs::device
