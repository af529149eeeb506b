// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/boards.hpp>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace gpt3 {

struct Arguments {
    std::string gpu = "rtx_3080_ti";
    std::filesystem::path out = KDVFS_DEMO_FOLDER;  ///< exists once parsed
};

/// @returns nothing, having said why, where the arguments make no sense
inline std::optional<Arguments> parse_arguments(int argc, char** argv) {
    constexpr auto usage =
        "usage: gpt3_iteration [--gpu "
        "rtx_3080_ti|mi210|mi250x|mi300x|mi325x|mi355x|h100|a100|a100_sxm]  "
        "[--out FOLDER]\n";
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string_view option = argv[i];
        const bool has_value = i + 1 < argc;
        if (option == "--gpu" && has_value) {
            arguments.gpu = argv[++i];
        } else if (option == "--out" && has_value) {
            arguments.out = argv[++i];
        } else {
            std::fputs(usage, stderr);
            return std::nullopt;
        }
    }
    if (!find_case(arguments.gpu)) {
        std::fprintf(stderr, "gpt3_iteration: there is no simulated GPU '%s'\n%s",
                     arguments.gpu.c_str(), usage);
        return std::nullopt;
    }
    std::error_code failure;
    std::filesystem::create_directories(arguments.out, failure);
    if (failure) {
        std::fprintf(stderr, "gpt3_iteration: cannot make the folder '%s': %s\n",
                     arguments.out.string().c_str(), failure.message().c_str());
        return std::nullopt;
    }
    return arguments;
}

}  // namespace gpt3
