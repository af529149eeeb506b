// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/power_rows.hpp>
#include <kdvfs/detail/measure/sensor_model.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// The rows of a power log under one sensor: what a reading says of the time since the one before,
/// without what a memory keeps of earlier time. Runs that the log can see into draw other power in
/// one part than in another (a kernel that begins with its loads, a range of unlike kernels), which
/// would pass for the power of their neighbors. So each part has a column of its own about the
/// mean, and the mean's interval contains what the log does not show of them.
class LogRows {
public:
    /// @param rests by column: nothing runs in it, so that it has no parts
    /// @param most  columns with those of parts
    LogRows(const SensorSample& sample, const Sensor& sensor, std::span<const char> rests,
            std::size_t most)
        : sample_{&sample},
          end_lag_{sensor.delay + sensor.rise},
          memory_{sensor.memory},
          window_{sensor.memory > 0 ? sample.period() : sensor.window},
          rests_{rests},
          most_{most},
          columns_{rests.size()},
          place_(rests.size(), nowhere),
          insides_(rests.size()) {
        const auto& blocks = sample.blocks();
        for (std::size_t begin = 0; begin < blocks.size();) {
            std::size_t end = begin + 1;
            while (end < blocks.size() && blocks[end].begin() < blocks[end - 1].end() + 1e-9) ++end;
            add_known(begin, end);
            begin = end;
        }
    }

    [[nodiscard]] const PowerRows& rows() const { return rows_; }
    /// With those of parts, which come last.
    [[nodiscard]] std::size_t columns() const { return columns_; }

private:
    using Entry = PowerRows::Entry;
    static constexpr std::size_t nowhere = ~std::size_t{0};

    /// The rows of blocks without a gap.
    void add_known(std::size_t block, std::size_t last) {
        constexpr double farthest = 3;  // periods: one or two readings may be missing
        const auto& blocks = sample_->blocks();
        const double begin = blocks[block].begin();
        const double end = blocks[last - 1].end();
        double used = -std::numeric_limits<double>::infinity();
        double before = used;
        double shown = 0;
        std::size_t stretch = 0;
        for (std::size_t b = block; b < last; ++b) {
            for (const auto& [at, reading] : blocks[b].readings) {
                const double watts = reading.second;
                const double to = at - end_lag_;
                double from = memory_ > 0 ? std::exchange(before, to) : to - window_;
                const double showed = std::exchange(shown, watts);
                // Means that overlap by a little are of a log whose times jitter.
                const double overlap = used - from;
                if (std::abs(overlap) < 0.25 * window_) from = used;
                if (from < begin || to > end || from >= to || overlap >= 0.25 * window_ ||
                    (memory_ > 0 && to - from > farthest * window_)) {
                    continue;
                }
                while (block < last && blocks[block].stretches[stretch].to <= from) {
                    if (++stretch < blocks[block].stretches.size()) continue;
                    ++block;
                    stretch = 0;
                }
                const double kept = memory_ > 0 ? std::exp((from - to) / memory_) : 0;
                add_row(block, stretch, last, from, to);
                if (!row_.empty()) {
                    rows_.push(row_, row_insides_, to - from,
                               (watts - kept * showed) / (1 - kept) * (to - from), used == from);
                    used = to;
                }
                for (const auto* list : {&row_, &row_insides_}) {
                    for (const Entry& entry : *list) place_[entry.column] = nowhere;
                }
                row_.clear();
                row_insides_.clear();
            }
        }
    }
    void add_row(std::size_t block, std::size_t stretch, std::size_t last, double from, double to) {
        for (; block < last; ++block, stretch = 0) {
            const SensorSample::Block& all = sample_->blocks()[block];
            for (; stretch < all.stretches.size(); ++stretch) {
                const SensorSample::Stretch& each = all.stretches[stretch];
                if (each.from >= to) return;
                const std::span entries = std::span{all.entries}.subspan(each.first, each.count);
                const double begin = std::max(each.from, from);
                const double end = std::min(each.to, to);
                const double weight = weigh(begin, end, from, to) / (each.to - each.from);
                for (const Entry& entry : entries) {
                    if (entry.share > 0) add(row_, entry.column, weight * entry.share);
                }
                if (entries.size() == 1) add_parts(each, entries[0].column, from, to);
            }
        }
    }
    /// How much of a row's mean a part of its time is.
    [[nodiscard]] double weigh(double begin, double end, double from, double to) const {
        if (end <= begin) return 0;
        if (memory_ <= 0) return (end - begin) / (to - from);
        return (std::exp((end - to) / memory_) - std::exp((begin - to) / memory_)) /
               (1 - std::exp((from - to) / memory_));
    }
    void add_parts(const SensorSample::Stretch& run, std::size_t column, double from, double to) {
        /// So long must a part of a run be that the log may show what it draws: differences of 40 %
        /// (`PowerPrior`) of 450 W, say, move a reading by 6 W then, as much as noise does.
        constexpr double shows = 1.0 / 32;  // of a reading's time
        constexpr double many = 16;         // ranges of a second need no columns by the hundred
        const double length = run.to - run.from;
        const double part = shows * window_;
        if (memory_ <= 0 || length <= part || rests_[column] != 0) return;
        const double parts = std::clamp(std::round(length / part), 2.0, many);
        std::vector<std::size_t>& columns = insides_[column];
        if (columns.empty()) {
            const auto needed = static_cast<std::size_t>(parts);
            if (columns_ + needed > most_) return;
            for (std::size_t i = 0; i < needed; ++i) columns.push_back(columns_++);
            place_.resize(columns_, nowhere);
        }
        // A run that is much longer or shorter than the first has other parts.
        const std::size_t count = columns.size();
        for (double i = 0; i < parts; ++i) {
            const double weight =
                weigh(std::max(run.from + i * length / parts, from),
                      std::min(run.from + (i + 1) * length / parts, to), from, to);
            if (weight <= 0) continue;
            const auto now =
                static_cast<std::size_t>((i + 0.5) * static_cast<double>(count) / parts);
            for (std::size_t k = 0; k < count; ++k) {
                const double more = (k == now ? 1.0 : 0.0) - 1.0 / static_cast<double>(count);
                add(row_insides_, columns[k], more * weight);
            }
        }
    }
    void add(std::vector<Entry>& to, std::size_t column, double share) {
        std::size_t& place = place_[column];
        if (place == nowhere) {
            place = to.size();
            to.push_back({column, 0});
        }
        to[place].share += share;
    }

    const SensorSample* sample_;
    double end_lag_;
    double memory_;
    double window_;
    std::span<const char> rests_;
    std::size_t most_;
    std::size_t columns_;
    std::vector<std::size_t> place_;  // of a column in the row
    std::vector<std::vector<std::size_t>> insides_;
    std::vector<Entry> row_;
    std::vector<Entry> row_insides_;
    PowerRows rows_;
};

}  // namespace kdvfs::inline v0_3::measure
