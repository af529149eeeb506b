// SPDX-License-Identifier: MIT
// libkdvfs: sweeps and sessions.
#include <kdvfs/tune/session.hpp>
