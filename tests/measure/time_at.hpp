// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

namespace kdvfs::measure {

constexpr TimePoint at(Duration time) { return TimePoint{time}; }

}  // namespace kdvfs::measure
