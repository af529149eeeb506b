// SPDX-License-Identifier: MIT
// expected: a clock lies between 1 and 100000 MHz; the board's own choice is kdvfs::auto_clock
#include <kdvfs/units.hpp>

using namespace kdvfs::literals;

constexpr kdvfs::Megahertz slowest = 1_MHz;
#ifdef KDVFS_MISTAKE
constexpr kdvfs::Megahertz stopped = 0_MHz;
#endif
