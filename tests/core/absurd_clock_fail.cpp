// SPDX-License-Identifier: MIT
// expected: a clock lies between 1 and 100000 MHz
#include <kdvfs/units.hpp>

using namespace kdvfs::literals;

constexpr kdvfs::Megahertz fastest = 100000_MHz;
#ifdef KDVFS_MISTAKE
constexpr kdvfs::Megahertz in_hertz_by_accident = 1100000000_MHz;
#endif
