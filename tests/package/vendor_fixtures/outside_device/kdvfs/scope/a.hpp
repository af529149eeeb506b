// SPDX-License-Identifier: MIT
#pragma once

#include "nvml.h"
