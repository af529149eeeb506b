// SPDX-License-Identifier: MIT
#include <kdvfs/kdvfs.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>
#include <tests/thread_loop/prompt_runtime.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

namespace {

using namespace std::chrono_literals;
using namespace kdvfs::literals;

struct Gelu : kdvfs::Kernel<"gelu"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"gelu", kdvfs::CapClock<1100_MHz>>>;

/// Destroyed after the GPU: its board must be as it was found then.
struct Witness {
    ~Witness() {
        if (board->state() == kdvfs::ClockState{}) return;
        std::fputs("the plugin's clocks were not put back\n", stderr);
        ::_exit(3);
    }
    std::shared_ptr<prompt::Board> board = std::make_shared<prompt::Board>();
};

prompt::Runtime& runtime = *new prompt::Runtime;  // threads of a leaked GPU still read it
Witness witness;
std::unique_ptr<kdvfs::BoundGpu<Policies>> gpu;
std::unique_ptr<kdvfs::FrequencyScope<Gelu>> scope;

}  // namespace

/// Opens a GPU and enters a scope that is never left.
/// @param leaks the handle and the scope are never destroyed, and the board is not looked at
/// @returns 0 once the clock is set
extern "C" int plugin_enter(bool leaks) {
    const auto board = leaks ? std::make_shared<prompt::Board>() : witness.board;
    kdvfs::Gpu opened = doubles::open_driven(doubles::borrowed(runtime), board);
    auto handle = std::make_unique<kdvfs::BoundGpu<Policies>>(opened.with<Policies>());
    auto entered = std::make_unique<kdvfs::FrequencyScope<Gelu>>(*handle, nullptr);
    if (leaks) {
        static_cast<void>(handle.release());
        static_cast<void>(entered.release());
    } else {
        gpu = std::move(handle);
        scope = std::move(entered);
    }
    for (int i = 0; i < 2000; ++i) {
        if (board->state().cap.core == 1100_MHz) return 0;
        std::this_thread::sleep_for(1ms);
    }
    return 1;
}
