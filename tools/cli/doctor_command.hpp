// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>

namespace cli {

/// `kdvfs doctor`: what is here, what kdvfs could do with it, and how to fix what is missing.
struct DoctorCommand {
    static void add_to(CLI::App& app);
};

}  // namespace cli
