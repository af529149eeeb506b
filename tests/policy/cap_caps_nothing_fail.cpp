// SPDX-License-Identifier: MIT
// expected: CapClock caps neither clock: say AutoClock for the board's own choice
#include <kdvfs/policy.hpp>

using namespace kdvfs::literals;

using CapsMemory = kdvfs::CapClock<kdvfs::auto_clock, 5001_MHz>;
static_assert(CapsMemory::request({}).asks);
#ifdef KDVFS_MISTAKE
static_assert(kdvfs::CapClock<kdvfs::auto_clock>::request({}).asks);
#endif
