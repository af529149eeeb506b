// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/gpu.hpp>
#include <kdvfs/options.hpp>

#include <string>

namespace kdvfs::c_interface {

enum class Use { drive, measure };

/// Opens a board by vendor ("amd", "nvidia") and PCI address.
/// @throws Error (invalid_input) for another vendor, and as the openers of the vendors
Gpu open_board(const std::string& vendor, const std::string& address, Use use,
               const GpuOptions& options);

/// Opens a GPU by its vendor and the number that the vendor's runtime gives it, with streams.
/// @throws Error (not_supported) where this library cannot reach the vendor's streams
Gpu open_number(const std::string& vendor, int number, Use use, const GpuOptions& options);

}  // namespace kdvfs::c_interface
