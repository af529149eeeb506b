// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/gpu.hpp>
