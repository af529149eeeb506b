// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <tests/fake_vendor/clocks.hpp>
#include <tests/fake_vendor/readings.hpp>
#include <tests/fake_vendor/streams.hpp>

#include <memory>
#include <string>

namespace acme {

/// Opens an Acme board as a `Gpu`: the part that stands beside rocm.hpp and nvidia.hpp.
/// @param board its folder
/// @throws Error if its clocks cannot be set, unless `options.on_refused` says to go on
inline kdvfs::Gpu open(const std::string& board, const kdvfs::GpuOptions& options = {}) {
    using Owned = kdvfs::detail::OwnedDevice<Clocks>;
    return kdvfs::Gpu{kdvfs::detail::open_device(
        "acme " + Readings::address_of(board), [] { return std::make_shared<Streams>(); },
        [&] { return std::make_shared<Owned>(board); },
        [&] { return std::make_shared<Readings>(board); }, options)};
}

}  // namespace acme
