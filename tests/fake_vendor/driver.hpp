// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <string>

/// What a vendor ships: a runtime and a management library in plain C style, with integers for
/// everything. A board is a folder; its file `core_cap` holds the limit in MHz, 0 for none, and
/// outlives the process, as a driver's setting does.
namespace acme_driver {

enum Status { success, refused, no_board };

inline const char* words_of(Status status) {
    switch (status) {
        case success: return "ACME_SUCCESS";
        case refused: return "ACME_NOT_PERMITTED";
        case no_board: return "ACME_NO_SUCH_BOARD";
    }
    return "ACME_UNKNOWN";
}

/// A number of the board that no other has.
inline std::uint64_t serial_of(const std::string& board) {
    struct stat status {};
    return ::stat(board.c_str(), &status) == 0 ? status.st_ino : 0;
}

/// Refused where an administrator has made a file `locked`.
inline Status set_core_cap(const std::string& board, unsigned mhz) {
    if (std::ifstream{board + "/locked"}) return refused;
    std::ofstream file{board + "/core_cap"};
    file << mhz << std::endl;
    return file ? success : no_board;
}

inline Status get_core_cap(const std::string& board, unsigned* mhz) {
    std::ifstream file{board + "/core_cap"};
    return file >> *mhz ? success : no_board;
}

/// A counter of millijoules that steps once a millisecond: the board always draws 100 W.
inline Status get_energy(std::uint64_t* millijoules, std::int64_t* sampled_at_ns) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const auto steps = std::chrono::duration_cast<std::chrono::milliseconds>(now);
    *millijoules = static_cast<std::uint64_t>(100 * steps.count());
    *sampled_at_ns = std::chrono::nanoseconds{steps}.count();
    return success;
}

/// A stream that does everything at once, one operation after the other.
struct Stream {
    std::mutex in_order{};
};

/// Stores a word when the stream gets there, and tells when that was.
inline Status stream_write(Stream* stream, std::uint32_t* word, std::uint32_t value,
                           std::int64_t* written_at_ns) {
    const std::lock_guard lock{stream->in_order};
    std::atomic_ref{*word}.store(value, std::memory_order_release);
    *written_at_ns =
        std::chrono::nanoseconds{std::chrono::steady_clock::now().time_since_epoch()}.count();
    return success;
}

}  // namespace acme_driver
