// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// What a board can draw. Its power limit is one of the mean: a board that drew little lends, and a
/// short hungry kernel draws more than the limit (`device::PowerLimiter`).
struct PossiblePower {
    double lowest = 0;  ///< W, of the board while nothing ran for long
    double limit = 0;   ///< W, the highest power limit that held; 0: unknown

    /// A limiter is a control loop, and meters have a gain: so far beyond either bound a power may
    /// lie. Repeated kernels draw up to 4 % more than the limit (725 of 700 W, HARDWARE tables).
    static constexpr double tolerance = 0.1;
    /// A board at its lowest clocks draws less than one that rests at its highest: an H100 rests
    /// at 119 W with its clock at 1980 MHz (HARDWARE tables); half of it is an assumption.
    static constexpr double of_rest = 0.5;
    /// So far beyond the limit, as a part of it, the mean of a very short run may lie: what the law
    /// of `RoomOfRuns` makes of the 903 of 700 W that a GEMM drew in runs of 76 ms.
    static constexpr double most_room = 1;

    /// W that a board draws at most while it waits at its highest clock: up to 1.7 times what it
    /// does asleep (an H100: 72 and 120 W, HARDWARE tables); of one that never rested only the mean
    /// of its kernels is known.
    [[nodiscard]] double most_waiting(double mean) const {
        constexpr double waits = 1.75;
        constexpr double of_mean = 0.5;
        return lowest > 0 ? waits * lowest : of_mean * mean;
    }
    /// How far watts lie beyond what is possible; negative below it, 0 inside.
    /// @param room of the runs beyond the limit, as a part of it
    [[nodiscard]] double beyond(double watts, double room) const {
        const double low = of_rest * lowest;
        const double high = (1 + tolerance) * (1 + room) * limit;
        if (limit > 0 && watts > high) return watts - high;
        return watts < low ? watts - low : 0;
    }
};

/// How far the mean of a column's runs may lie beyond the limit. A power that is x times the limit
/// falls by dx/dt = -rate x (x - 1), so that the mean over a run of t from x0 on is
/// 1 + ln(x0 - (x0 - 1) exp(-rate t)) / (rate t). Of 700 W, a GEMM drew 903 W in runs of 76 ms, at
/// most 868 W in 99 to 154 ms and 784 W in 180 to 400 ms (bench/results): with the tolerance below
/// 986, 943 and 868 W.
class RoomOfRuns {
public:
    /// A column runs on, or begins to.
    void run(std::size_t column, double seconds) {
        constexpr double recovers = 5e-3;  // s of rest, in which the ceiling rises by a tenth
        if (column != column_ || rested_ > recovers) end_run();
        column_ = column;
        rested_ = 0;
        seconds_ += seconds;
    }
    void rest(double seconds) { rested_ += seconds; }

    /// As parts of the limit; of columns that ran.
    [[nodiscard]] std::vector<double> by_column() const {
        RoomOfRuns all = *this;
        all.end_run();
        std::vector<double> room;
        for (const Sums& sums : all.sums_) {
            room.push_back(sums.seconds > 0 ? sums.lent / sums.seconds : PossiblePower::most_room);
        }
        return room;
    }

private:
    static constexpr double rate = 30;  // per second, of H100 and H200 boards

    struct Sums {
        double seconds = 0;
        double lent = 0;  // times the limit: joules
    };
    void end_run() {
        if (seconds_ > 0) {
            if (sums_.size() <= column_) sums_.resize(column_ + 1);
            sums_[column_].seconds += seconds_;
            sums_[column_].lent +=
                std::log1p(PossiblePower::most_room * -std::expm1(-rate * seconds_)) / rate;
        }
        seconds_ = 0;
    }

    std::size_t column_ = 0;
    double seconds_ = 0;
    double rested_ = 0;
    std::vector<Sums> sums_;
};

/// The lowest power that a board was seen to draw while nothing ran for long: its mean over a fifth
/// of a second, which no meter's delay reaches into.
class RestingPower {
public:
    /// The next row. @param rests nothing ran in it @param follows it begins where the last ended
    void take(double joules, double seconds, bool rests, bool follows) {
        constexpr double settles = 0.2;  // s: clocks, voltage and the meter's memory
        constexpr double window = 0.2;   // s
        if (!rests) {
            rested_ = 0;
            return;
        }
        if (!follows) rested_ = 0;
        rested_ += seconds;
        if (rested_ - seconds < settles) {
            joules_ = seconds_ = 0;
            return;
        }
        joules_ += joules;
        seconds_ += seconds;
        if (seconds_ < window) return;
        const double watts = joules_ / seconds_;
        lowest_ = lowest_ > 0 ? std::min(lowest_, watts) : watts;
        joules_ = seconds_ = 0;
    }
    /// W; 0 where the board never rested.
    [[nodiscard]] double lowest() const { return lowest_; }

private:
    double rested_ = 0;  // s
    double joules_ = 0;
    double seconds_ = 0;
    double lowest_ = 0;
};

}  // namespace kdvfs::inline v0_3::measure
