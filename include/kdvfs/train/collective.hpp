// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
#include <cstdint>
#include <string>

namespace kdvfs::inline v0_3::train {

/// A pattern of communication between ranks.
enum class Collective {
    send,  ///< from one rank to another
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
};

/// What ranks communicate over.
struct Link {
    double bytes_per_second = 0;  ///< out of one rank, above 0
    Seconds latency{};            ///< of one step
};

/// How long a collective takes, with the ring algorithms: each of n ranks sends (n - 1) / n of the
/// bytes, in n - 1 steps, an all-reduce twice that (Thakur, Rabenseifner and Gropp, International
/// Journal of High Performance Computing Applications 19, 2005; the bus bandwidth of nccl-tests).
/// @param bytes of the whole buffer: what is reduced, gathered, or sent by one rank
/// @throws Error (invalid_input) for bytes, ranks or links that are none
inline Seconds collective_time(Collective kind, double bytes, std::uint32_t ranks,
                               const Link& link) {
    if (!(bytes >= 0 && std::isfinite(bytes) && link.bytes_per_second > 0 &&
          link.latency.count() >= 0 && (kind == Collective::send || ranks > 0)))
        throw Error{Errc::invalid_input,
                    {"reckon how long a collective takes",
                     std::to_string(bytes) + " bytes on " + std::to_string(ranks) + " ranks",
                     "bytes, ranks or the link's bandwidth are none",
                     "give bytes of 0 or more, 1 rank or more, and a bandwidth above 0"}};
    if (kind == Collective::send) return link.latency + Seconds{bytes / link.bytes_per_second};
    const double rounds = kind == Collective::all_reduce ? 2 : 1;
    const double others = static_cast<double>(ranks) - 1;
    return rounds * (others * link.latency +
                     Seconds{others / static_cast<double>(ranks) * bytes / link.bytes_per_second});
}

}  // namespace kdvfs::inline v0_3::train
