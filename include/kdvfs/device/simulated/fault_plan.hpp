// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>

#include <cstdint>
#include <list>
#include <optional>
#include <string_view>

namespace kdvfs::simulated {

/// The calls of a simulated device that can be made to go wrong.
enum class Call { apply, read_clock_state, restore, read_energy, track_key, put_marker, make_cell };

/// How a call goes wrong.
enum class Fault {
    refused,        ///< no permission; nothing is changed
    half_done,      ///< a setter's: refused after a change, since AMD's are not atomic
    busy,           ///< comes back with "busy"; nothing is changed
    vanished,       ///< the device is gone, for this and every later call
    silent_refusal  ///< a setter's: reports success and changes nothing; others are refused
};

constexpr std::string_view to_string(Fault fault) {
    switch (fault) {
        case Fault::refused: return "refused";
        case Fault::half_done: return "refused half-way";
        case Fault::busy: return "busy";
        case Fault::vanished: return "device vanished";
        case Fault::silent_refusal: return "silently refused";
    }
    return "unknown";
}

constexpr Errc errc_of(Fault fault) {
    switch (fault) {
        case Fault::busy: return Errc::busy;
        case Fault::vanished: return Errc::vanished;
        case Fault::refused:
        case Fault::half_done:
        case Fault::silent_refusal: break;
    }
    return Errc::refused;
}

/// Faults that wait for their call. Deterministic: they strike by count, not by chance.
class FaultPlan {
public:
    static constexpr std::uint64_t always = ~std::uint64_t{0};

    /// Lets `times` calls fail after the next `after` calls of that kind have gone well.
    void inject(Call call, Fault fault, std::uint64_t after = 0, std::uint64_t times = 1) {
        waiting_.push_back({call, fault, after, times});
    }

    void clear() { waiting_.clear(); }

    /// The fault that strikes this call, if one does.
    std::optional<Fault> strike(Call call) {
        for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
            if (it->call != call) continue;
            if (it->after > 0) {
                --it->after;
                continue;
            }
            const Fault fault = it->fault;
            if (it->times != always && --it->times == 0) waiting_.erase(it);
            return fault;
        }
        return std::nullopt;
    }

private:
    struct Waiting {
        Call call;
        Fault fault;
        std::uint64_t after;
        std::uint64_t times;
    };

    std::list<Waiting> waiting_;
};

}  // namespace kdvfs::simulated
