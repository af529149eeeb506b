// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/merged_columns.hpp>
#include <kdvfs/measure/settings.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// What a board can draw. Its power limit is one of the mean: a board that drew little lends, and a
/// short hungry kernel draws more than the limit (`device::PowerLimiter`).
struct PossiblePower {
    double lowest = 0;  ///< W, of the board while nothing ran for long, at the clock that it had
    double limit = 0;   ///< W, the highest power limit that held; 0: unknown
    RestRange kind{};   ///< of boards of its kind
    bool others_may_work = false;  ///< nobody shows who else works on it

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
    /// does asleep (an H100: 72 and 120 W, HARDWARE tables); of one that never rested, what its
    /// kind draws; where that is unknown, too, only the mean of its kernels is left.
    [[nodiscard]] double most_waiting(double mean) const {
        constexpr double waits = 1.75;
        constexpr double of_kind = 1.25;
        constexpr double of_mean = 0.5;
        if (lowest > 0) return waits * lowest;
        return kind.most.count > 0 ? of_kind * kind.most.count : of_mean * mean;
    }
    /// Whether the board draws more at rest than boards of its kind do, the meter's gain aside.
    [[nodiscard]] bool rests_too_high() const {
        const double most = kind.most.count;
        return others_may_work && most > 0 && lowest > (1 + tolerance) * most;
    }
    /// W that another process may draw all the time, and pass for what the board draws at rest.
    [[nodiscard]] double may_hide() const {
        if (!others_may_work || kind.least.count <= 0) return 0;
        return std::max(0.0, (lowest > 0 ? lowest : kind.most.count) - kind.least.count);
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

    /// Of runs so far; no others may follow.
    void merge(const MergedColumns& columns) {
        end_run();
        sums_ = columns.sum(sums_);
    }
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

        Sums& operator+=(const Sums& other) {
            seconds += other.seconds;
            lent += other.lent;
            return *this;
        }
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

/// What a board draws while a program is open on it and nothing runs, its clocks up, by its name.
/// Measured: H100 119 to 124 and H200 120 to 126 W (HARDWARE tables), A100 83 W at 1410 MHz and as
/// PCIe card 68 W (EnergAIzer, arXiv 2604.20105), MI250X 128 to 132 W (logs of LUMI), MI210 57 W
/// (public logs of hosts), MI300X 194 W, MI325X 227 W with one compute unit busy, MI355X 225 to 238
/// W (the presets of `device/simulated` have the sources). Where one figure is known, the least is
/// not.
[[nodiscard]] inline RestRange rest_of(std::string_view name) {
    struct Kind {
        std::string_view begins;
        RestRange rests;
    };
    constexpr std::array kinds{
        Kind{"NVIDIA H100 80GB HBM3", {{119}, {124}}}, Kind{"NVIDIA H200", {{120}, {126}}},
        Kind{"NVIDIA A100-SXM4-80GB", {{0}, {83}}},    Kind{"NVIDIA A100-PCIE-40GB", {{0}, {68}}},
        Kind{"AMD Instinct MI250X", {{128}, {132}}},   Kind{"AMD Instinct MI210", {{0}, {57}}},
        Kind{"AMD Instinct MI300X", {{0}, {194}}},     Kind{"AMD Instinct MI325X", {{0}, {227}}},
        Kind{"AMD Instinct MI355X", {{225}, {238}}}};
    for (const Kind& kind : kinds) {
        if (name.starts_with(kind.begins)) return kind.rests;
    }
    return {};
}

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
