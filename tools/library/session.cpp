// SPDX-License-Identifier: MIT
// libkdvfs: sweeps and sessions, those of pipelines, too.
#include <kdvfs/train/session.hpp>
#include <kdvfs/tune/session.hpp>
