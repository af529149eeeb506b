// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// The core clocks that held over one interval, in order of time.
struct HeldParts {
    struct Part {
        Duration time{};
        Megahertz clock{};
    };
    std::array<Part, 2> parts{};
    std::size_t count = 0;  ///< 0 = cycles are not counted
    /// For how long no lower clock held than was asked for (`auto`), or no higher
    /// one (a cap).
    Duration as_asked{};

    [[nodiscard]] std::span<const Part> all() const { return std::span{parts}.first(count); }
};

/// Finds the clocks that held over intervals whose cycles are counted. A switch
/// arrives some time after the device was written, so that an interval near a
/// change may have begun at one clock and ended at another, and its mean clock
/// is none that ran. Which two these are is known: caps hold as they are, and
/// without one a kernel runs at the clock of its own that it had far from all
/// changes. The mean then says for how long each held. Constant memory per
/// kernel. Not thread-safe.
class HeldClocks {
public:
    /// @param highest the device's core clock; `auto_clock` where unknown
    explicit HeldClocks(Megahertz highest = auto_clock) : highest_{highest} {}

    /// From `at` on the device had been written so. In order of time.
    void applied(TimePoint at, ClockPoint cap) {
        if (!changes_.empty() && changes_.back().cap == cap.core) return;
        if (changes_.size() == 2 * most_changes) {
            changes_.erase(changes_.begin(), changes_.begin() + most_changes);
        }
        changes_.push_back({at, cap.core});
    }

    /// @param interval of a device whose changes up to its end have been given
    [[nodiscard]] HeldParts split(const KernelInterval& interval) {
        HeldParts held;
        const Duration time = interval.end - interval.start;
        if (interval.core_cycles == 0 || time <= Duration::zero()) return held;
        const double mean =
            static_cast<double>(interval.core_cycles) * 1e3 / static_cast<double>(time.count());
        const Caps caps = around(interval);
        Own& own = own_of(interval.kernel);
        if (caps.lowest == auto_clock && caps.steady) {
            own.clock = own.clock > 0 ? own.clock + (mean - own.clock) / 8 : mean;
        }
        const double low = level(caps.lowest, own);
        const double high = level(caps.highest, own);
        constexpr double alike = 0.01;
        const bool between =
            low > 0 && high > 0 && mean > low * (1 + alike) && mean < high * (1 - alike);
        if (!between) {
            held.parts[0] = {time, rounded(mean)};
            held.count = 1;
            const bool slowed = low > 0 && caps.lowest != caps.highest && mean <= low * (1 + alike);
            held.as_asked = meets(interval.asked, mean, slowed) ? time : Duration{};
            return held;
        }
        const double at_high = (mean - low) / (high - low);
        const Duration lowered{std::llround((1 - at_high) * static_cast<double>(time.count()))};
        held.parts = {{{lowered, rounded(low)}, {time - lowered, rounded(high)}}};
        held.count = 2;
        if (caps.lowers) std::swap(held.parts[0], held.parts[1]);
        if (meets(interval.asked, low, true)) held.as_asked += lowered;
        if (meets(interval.asked, high, false)) held.as_asked += time - lowered;
        return held;
    }

private:
    struct Change {
        TimePoint at;
        Megahertz cap;
    };
    /// The caps that may have held over an interval.
    struct Caps {
        Megahertz lowest = auto_clock;
        Megahertz highest = auto_clock;
        bool steady = true;   ///< there is one
        bool lowers = false;  ///< the last of them is below the one before
    };
    struct Own {
        double clock = 0;  ///< without a cap, in MHz; 0 = not seen
    };

    /// The longest usual switch that is published (a Quadro RTX 6000's,
    /// arXiv:2502.20075), and as much again for its tail.
    static constexpr Duration longest_switch = std::chrono::milliseconds{300};
    static constexpr std::ptrdiff_t most_changes = 256;
    static constexpr int looks_back = 32;

    static bool above(Megahertz a, Megahertz b) {
        return b != auto_clock && (a == auto_clock || a > b);
    }

    [[nodiscard]] Caps around(const KernelInterval& interval) const {
        Caps caps;
        bool any = false;
        Megahertz later = auto_clock;
        auto change = changes_.rbegin();
        while (change != changes_.rend() && change->at >= interval.end) ++change;
        for (int i = 0; i < looks_back && change != changes_.rend(); ++i, ++change) {
            if (!any) {
                caps.lowest = caps.highest = change->cap;
            } else {
                if (caps.steady) caps.lowers = above(change->cap, later);
                caps.steady = false;
                if (above(caps.lowest, change->cap)) caps.lowest = change->cap;
                if (above(change->cap, caps.highest)) caps.highest = change->cap;
            }
            any = true;
            later = change->cap;
            if (change->at < interval.start - longest_switch) break;
        }
        return caps;
    }

    Own& own_of(KernelId kernel) {
        if (own_.size() <= kernel.value) own_.resize(kernel.value + std::size_t{1});
        return own_[kernel.value];
    }

    /// The clock under a cap in MHz; 0 = unknown.
    [[nodiscard]] double level(Megahertz cap, const Own& own) const {
        const double uncapped = own.clock > 0 ? own.clock : static_cast<double>(highest_.count);
        if (cap == auto_clock) return uncapped;
        const auto capped = static_cast<double>(cap.count);
        return uncapped > 0 ? std::min(uncapped, capped) : capped;
    }

    static Megahertz rounded(double clock) {
        return {static_cast<std::uint32_t>(std::lround(clock))};
    }
    /// @param lowered it is that of a cap below others
    static bool meets(ClockPoint asked, double clock, bool lowered) {
        if (asked.core == auto_clock) return !lowered;
        return clock <= 1.02 * static_cast<double>(asked.core.count);
    }

    Megahertz highest_;
    std::vector<Change> changes_;
    std::vector<Own> own_;  // by kernel
};

}  // namespace kdvfs::inline v0_3::measure
