// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>

namespace kdvfs {

/// A clock request as a small number, stable for the life of a GPU. `RequestTable` knows the clock
/// point behind it.
struct RequestIndex {
    std::uint32_t value = 0;

    friend constexpr bool operator==(RequestIndex, RequestIndex) = default;
    friend constexpr auto operator<=>(RequestIndex, RequestIndex) = default;
};

/// No request: the lane has no vote.
inline constexpr RequestIndex no_request{0};

/// What a marker stores into a lane's cell: the lane's whole request *as a level*, and the ticket
/// of the scope it belongs to, so that the controller can tell a new scope from an old one seen
/// again. 32 bits, because that is what every vendor's stream can write. Tickets wrap after 2^20
/// scopes of a lane; only neighbours are ever compared.
class LevelWord {
public:
    static constexpr unsigned request_bits = 12;
    static constexpr std::uint32_t most_requests = (1U << request_bits) - 1;

    constexpr LevelWord() = default;
    constexpr explicit LevelWord(std::uint32_t raw) : raw_{raw} {}
    constexpr LevelWord(RequestIndex request, std::uint32_t ticket)
        : raw_{(ticket << request_bits) | (request.value & most_requests)} {}

    [[nodiscard]] constexpr RequestIndex request() const { return {raw_ & most_requests}; }
    [[nodiscard]] constexpr std::uint32_t ticket() const { return raw_ >> request_bits; }
    [[nodiscard]] constexpr std::uint32_t raw() const { return raw_; }

    friend constexpr bool operator==(LevelWord, LevelWord) = default;

private:
    std::uint32_t raw_ = 0;
};

/// The host-visible word that a lane's markers write and the listener polls. Mapped by kdvfs,
/// registered with the runtime, valid until the process ends. A cache line of its own.
struct alignas(64) LevelCell {
    std::uint32_t word = 0;

    [[nodiscard]] LevelWord load() noexcept {
        return LevelWord{std::atomic_ref{word}.load(std::memory_order_acquire)};
    }
    /// The host's own write, for what a stream cannot write any more.
    void store(LevelWord level) noexcept {
        std::atomic_ref{word}.store(level.raw(), std::memory_order_release);
    }
};

}  // namespace kdvfs
