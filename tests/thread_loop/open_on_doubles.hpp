// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/gpu.hpp>

#include <memory>
#include <utility>

/// GPUs put together by hand, for doubles of runtimes and boards.
namespace doubles {

/// A runtime that outlives the GPU.
template <class Runtime>
std::shared_ptr<Runtime> borrowed(Runtime& runtime) {
    return {std::shared_ptr<void>{}, &runtime};
}

/// A GPU whose scopes put their markers, and whose clocks nobody drives: it has no actuator.
template <class Runtime>
kdvfs::Gpu open_undriven(std::shared_ptr<Runtime> runtime, kdvfs::GpuOptions options = {}) {
    if (!options.switch_latency) options.switch_latency = kdvfs::Duration{0};
    kdvfs::detail::GpuParts<Runtime> parts{
        .info = {.name = "no clocks"},
        .clocks = {.core = {.listed = {{500}, {1700}}, .continuous = true}},
        .initial = kdvfs::ClockState{},
        .runtime = std::move(runtime)};
    return kdvfs::Gpu{kdvfs::detail::share(
        std::make_unique<kdvfs::detail::GpuCore<Runtime>>(std::move(parts), options))};
}

/// A GPU driven by two threads, whose board has clocks and a counter. Its clocks switch at once,
/// unless the options say otherwise.
template <class Runtime, class Board>
kdvfs::Gpu open_driven(std::shared_ptr<Runtime> runtime, const std::shared_ptr<Board>& board,
                       kdvfs::GpuOptions options = {}) {
    if (!options.switch_latency) options.switch_latency = kdvfs::Duration{0};
    using Core = kdvfs::detail::GpuCore<Runtime>;
    kdvfs::detail::GpuParts<Runtime> parts{.info = board->info(),
                                           .clocks = board->supported_clocks(),
                                           .initial = kdvfs::detail::prove_clock_control(*board),
                                           .runtime = std::move(runtime)};
    auto core = kdvfs::detail::share(std::make_unique<Core>(std::move(parts), options));
    core->drive_with(std::make_unique<kdvfs::detail::ThreadLoop<Core, Board, Board>>(
        *core, kdvfs::detail::DeviceSides<Board, Board>{board, board}));
    return kdvfs::Gpu{std::move(core)};
}

}  // namespace doubles
