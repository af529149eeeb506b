// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

/// What every target shares. Each file here gives one `fuzz(text)`: it parses the text, which
/// throws `kdvfs::Error` or gives data that survives being written and read again unchanged.
namespace fuzzing {

/// Ends the target where something does not hold: the fuzzer keeps the input.
inline void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
}

void fuzz(const std::string& text);

}  // namespace fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        fuzzing::fuzz(std::string{reinterpret_cast<const char*>(data), size});
    } catch (const kdvfs::Error& error) {
        fuzzing::require(error.code() == kdvfs::Errc::invalid_input, "bad text is invalid input");
        fuzzing::require(std::string_view{error.what()}.find("input:") != std::string_view::npos,
                         "the error names the input and the line");
    }
    return 0;
}
