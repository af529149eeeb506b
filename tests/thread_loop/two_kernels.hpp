// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/kernel.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <ostream>
#include <streambuf>
#include <thread>

/// What tests on real threads share: two kernels with clocks, a wait, a disk that hangs.
namespace doubles {

struct Gelu : kdvfs::Kernel<"gelu"> {};
struct Gemm : kdvfs::Kernel<"gemm"> {};
using Policies =
    kdvfs::PolicyRegistry<kdvfs::Bind<"gelu", kdvfs::CapClock<kdvfs::Megahertz{1100}>>,
                          kdvfs::Bind<"gemm", kdvfs::CapClock<kdvfs::Megahertz{1500}>>>;

/// Whether it comes about within 10 s.
inline bool soon(const std::function<bool()>& happens) {
    for (int i = 0; i < 10'000; ++i) {
        if (happens()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return false;
}

/// A stream that takes nothing while it is stuck.
class StuckStream : private std::streambuf, public std::ostream {
public:
    StuckStream() : std::ostream{static_cast<std::streambuf*>(this)} {}
    std::atomic<bool> stuck{true};

private:
    std::streamsize xsputn(const char*, std::streamsize count) override {
        while (stuck) std::this_thread::sleep_for(std::chrono::milliseconds{1});
        return count;
    }
    std::streambuf::int_type overflow(std::streambuf::int_type character) override {
        return character;
    }
};

}  // namespace doubles
