// SPDX-License-Identifier: MIT
#pragma once

namespace broken {

/// Reads nothing. @see @ref there_is_no_such_thing
/// @param wrong is not its name
inline int read(int right) { return right; }

}  // namespace broken
