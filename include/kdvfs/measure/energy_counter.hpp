// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace kdvfs::measure {

/// One point of a counter that can be trusted. Two samples may be subtracted only if their
/// `segment` is the same: a new segment begins where energy was lost (wrap, freeze, transition).
struct EnergySample {
    TimePoint at;
    Joules total;  ///< trusted joules since the first sample; never decreases
    std::uint32_t segment = 0;
};

/// What is believed of a counter before it is read.
struct CounterLimits {
    /// More than this is `implausible`. Twice the largest board of HARDWARE tables (750 W) and a
    /// half more, so that only nonsense is refused.
    Watts highest_power{2000};
    /// Time between two samples of the counter; 0 where unknown.
    Duration period{0};
    /// A counter that stands still for this long, and for 10 periods, is `frozen`.
    Duration patience = std::chrono::milliseconds{500};
    /// Where the counter starts again from zero; 0 where unknown.
    Joules wraps_at{0};
};

/// What became of one reading: `sample` is there only if `status` is `ok`.
struct CounterStep {
    ReadingStatus status = ReadingStatus::absent;
    std::optional<EnergySample> sample;
};

/// How often each status was met.
struct CounterFaults {
    std::uint64_t failed = 0;
    std::uint64_t absent = 0;
    std::uint64_t frozen = 0;
    std::uint64_t wrapped = 0;
    std::uint64_t backwards = 0;
    std::uint64_t implausible = 0;

    [[nodiscard]] std::uint64_t sum() const {
        return failed + absent + frozen + wrapped + backwards + implausible;
    }
};

/// "12 frozen, 1 backwards": reads, by what was wrong with them.
inline std::string to_string(const CounterFaults& faults) {
    std::string text;
    const auto add = [&](std::uint64_t count, const char* what) {
        if (count == 0) return;
        text += (text.empty() ? "" : ", ") + std::to_string(count) + ' ' + what;
    };
    add(faults.failed, "failed");
    add(faults.absent, "absent");
    add(faults.frozen, "frozen");
    add(faults.wrapped, "wrapped");
    add(faults.backwards, "backwards");
    add(faults.implausible, "implausible");
    return text + " of its reads";
}

/// Turns the raw readings of an energy counter into samples whose total only grows. A reading that
/// cannot be right becomes a status and never a number. One that merely lies beside the others (a
/// glitch) is skipped; one that the next reading confirms starts a new segment, because the energy
/// in between is unknown. Pure; not thread-safe.
class EnergyCounter {
public:
    explicit EnergyCounter(CounterLimits limits = {}) : limits_{limits} {}

    /// Judges one reading. `read_at` is when it was read, not before earlier calls' `read_at`.
    CounterStep take(const EnergyReading& reading, TimePoint read_at);

    /// The time between two samples of the counter has become known.
    void expect_period(Duration period) { limits_.period = period; }

    [[nodiscard]] const CounterFaults& faults() const { return faults_; }
    /// Whether the last reading that could be judged found the counter standing still.
    [[nodiscard]] bool frozen() const { return frozen_; }

private:
    ReadingStatus judge(const EnergyReading& from, const EnergyReading& to) const;
    CounterStep accept(const EnergyReading& reading, TimePoint read_at, bool same_segment);
    CounterStep stand_still(TimePoint read_at);
    CounterStep count(ReadingStatus status);

    CounterLimits limits_;
    CounterFaults faults_;
    std::optional<EnergyReading> trusted_;
    std::optional<EnergyReading> suspect_;
    TimePoint last_news_;
    Joules total_;
    std::uint32_t segment_ = 0;
    bool frozen_ = false;
};

inline CounterStep EnergyCounter::take(const EnergyReading& reading, TimePoint read_at) {
    if (reading.status == ReadingStatus::unchanged) {
        return trusted_ ? stand_still(read_at) : CounterStep{ReadingStatus::unchanged, {}};
    }
    if (reading.status != ReadingStatus::ok) return count(reading.status);
    if (!std::isfinite(reading.joules.count) || reading.joules.count < 0) {
        return count(ReadingStatus::implausible);
    }
    if (!trusted_) return accept(reading, read_at, true);

    const ReadingStatus status = judge(*trusted_, reading);
    if (status == ReadingStatus::unchanged) return stand_still(read_at);
    if (status == ReadingStatus::ok) return accept(reading, read_at, !frozen_);
    if (suspect_ && judge(*suspect_, reading) == ReadingStatus::ok) {
        return accept(reading, read_at, false);
    }
    suspect_ = reading;
    return count(status);
}

/// What the step from one reading to a later one says.
inline ReadingStatus EnergyCounter::judge(const EnergyReading& from,
                                          const EnergyReading& to) const {
    const Seconds time = to.sampled_at - from.sampled_at;
    const double joules = to.joules.count - from.joules.count;
    if (joules == 0 && time.count() >= 0) return ReadingStatus::unchanged;
    if (time.count() < 0) return ReadingStatus::backwards;
    if (joules < 0) {
        const double on_from_zero = joules + limits_.wraps_at.count;
        const bool wrapped =
            on_from_zero >= 0 && on_from_zero <= limits_.highest_power.count * time.count();
        return wrapped ? ReadingStatus::wrapped : ReadingStatus::backwards;
    }
    if (joules > limits_.highest_power.count * time.count()) return ReadingStatus::implausible;
    return ReadingStatus::ok;
}

inline CounterStep EnergyCounter::accept(const EnergyReading& reading, TimePoint read_at,
                                         bool same_segment) {
    if (!same_segment) {
        ++segment_;
    } else if (trusted_) {
        total_ += reading.joules - trusted_->joules;
    }
    trusted_ = reading;
    suspect_.reset();
    last_news_ = read_at;
    frozen_ = false;
    return {ReadingStatus::ok, EnergySample{reading.sampled_at, total_, segment_}};
}

inline CounterStep EnergyCounter::stand_still(TimePoint read_at) {
    const Duration patience = std::max(limits_.patience, 10 * limits_.period);
    if (read_at - last_news_ <= patience) return {ReadingStatus::unchanged, {}};
    frozen_ = true;
    return count(ReadingStatus::frozen);
}

inline CounterStep EnergyCounter::count(ReadingStatus status) {
    switch (status) {
        case ReadingStatus::failed: ++faults_.failed; break;
        case ReadingStatus::absent: ++faults_.absent; break;
        case ReadingStatus::frozen: ++faults_.frozen; break;
        case ReadingStatus::wrapped: ++faults_.wrapped; break;
        case ReadingStatus::backwards: ++faults_.backwards; break;
        case ReadingStatus::implausible: ++faults_.implausible; break;
        case ReadingStatus::ok:
        case ReadingStatus::unchanged: break;
    }
    return {status, {}};
}

}  // namespace kdvfs::measure
