// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>

namespace attach {

/// From the clock of CUPTI's records to the host's. CUPTI's own clock counts nanoseconds; that of
/// a program's profiler counts what it likes (Kineto registers the processor's time-stamp counter),
/// so its rate is measured between two comparisons, too. Thread-safe.
class RecordClock {
public:
    /// The two clocks at one moment.
    struct Comparison {
        std::int64_t host = 0;     ///< ns
        std::uint64_t record = 0;  ///< in the records' unit
    };

    /// Compares the clocks: the closest of eight looks.
    /// @param timestamp `std::optional<std::uint64_t>()`: the records' clock; nothing where it
    ///                  cannot be read, which leaves everything as it is
    template <class TimestampNow>
    static std::optional<Comparison> compare(TimestampNow timestamp) {
        std::optional<Comparison> best;
        std::int64_t closest = std::numeric_limits<std::int64_t>::max();
        const auto host = [] {
            return std::chrono::steady_clock::now().time_since_epoch().count();
        };
        for (int i = 0; i < 8; ++i) {
            const std::int64_t before = host();
            const std::optional<std::uint64_t> record = timestamp();
            if (!record) return best;
            const std::int64_t after = host();
            if (after - before >= closest) continue;
            closest = after - before;
            best = Comparison{before + (after - before) / 2, *record};
        }
        return best;
    }

    /// The records' clock counts nanoseconds (CUPTI's own), or something else from here on.
    void restart(bool counts_nanoseconds) {
        const std::lock_guard lock{mutex_};
        counts_nanoseconds_ = counts_nanoseconds;
        first_.reset();
        last_.reset();
    }
    void add(const Comparison& comparison) {
        const std::lock_guard lock{mutex_};
        if (!first_) first_ = comparison;
        last_ = comparison;
    }
    /// When a record's time was on the host. The rate of a clock that does not count nanoseconds is
    /// that between the first comparison and the last.
    /// @returns nothing before there are two, and for times of another clock: those before the
    ///          first comparison, and those a second or more beyond the last
    [[nodiscard]] std::optional<kdvfs::TimePoint> on_host(std::uint64_t time) const {
        const std::lock_guard lock{mutex_};
        if (!last_) return std::nullopt;
        // The difference of two counts fits, whatever the counts are.
        const auto distance = static_cast<std::int64_t>(time - last_->record);
        if (counts_nanoseconds_) {
            return kdvfs::TimePoint{kdvfs::Duration{last_->host + distance}};
        }
        if (last_->record == first_->record) return std::nullopt;
        const auto host = static_cast<double>(last_->host - first_->host);
        const auto record = static_cast<double>(last_->record - first_->record);
        const double away = static_cast<double>(distance) * host / record;
        if (away < -host || away > 1e9) return std::nullopt;
        return kdvfs::TimePoint{kdvfs::Duration{last_->host + static_cast<std::int64_t>(away)}};
    }

private:
    mutable std::mutex mutex_;
    bool counts_nanoseconds_ = true;
    std::optional<Comparison> first_;
    std::optional<Comparison> last_;
};

}  // namespace attach
