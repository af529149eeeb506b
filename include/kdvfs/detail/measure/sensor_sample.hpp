// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/merged_columns.hpp>
#include <kdvfs/detail/measure/power_windows.hpp>
#include <kdvfs/detail/measure/sensor_model.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// A bounded sample of a run: readings, and what ran around them. Blocks of a second or more,
/// evenly spread over the run: once it is full, every other one is dropped. Not thread-safe.
class SensorSample {
public:
    using Entry = PowerRows::Entry;

    /// A time in which one kernel ran, or which is so short that it does not matter when in it what
    /// ran. Seconds since the sample's origin.
    struct Stretch {
        double from;
        double to;
        std::size_t first;  ///< of its entries
        std::size_t count;
        /// Of what it is a piece of: itself, unless the sample was `weighed`.
        double run_from;
        double run_to;
    };
    struct Row {
        double at;      ///< timestamp of the reading, s
        double length;  ///< of a counter's row: since the reading before, s; else 0
        double watts;   ///< of the reading, or the mean over `length`
        std::size_t block;
        std::size_t stretch;  ///< that holds `at`, in the block
        std::size_t index;    ///< in order of time
        std::size_t since;    ///< the block from which on all is known until `at`
        double first_at;      ///< timestamp of the first reading from there on, s
        double first_watts;
    };
    using Reading = std::pair<double, std::pair<double, double>>;  ///< at, length, watts
    /// Contiguous time of which it is known what ran.
    struct Block {
        std::vector<Stretch> stretches{};
        std::vector<Entry> entries{};  ///< share: seconds
        std::vector<Reading> readings{};
        std::int64_t slot = 0;

        /// The last stretch continues the one before it where both are of one column.
        void join_alike() {
            if (stretches.size() < 2) return;
            const Stretch& last = stretches.back();
            Stretch& before = stretches[stretches.size() - 2];
            if (last.count != 1 || before.count != 1 ||
                entries[last.first].column != entries[before.first].column) {
                return;
            }
            before.to = before.run_to = last.to;
            entries[before.first].share += entries[last.first].share;
            entries.pop_back();
            stretches.pop_back();
        }
        [[nodiscard]] double begin() const { return stretches.front().from; }
        [[nodiscard]] double end() const { return stretches.back().to; }
    };

    /// @param period of the readings; how finely it must be known when what ran follows from it
    void begin(Duration period) {
        period_ = std::max(Seconds{period}.count(), 1e-4);
        slot_ = std::max(1.0, 64 * period_);
        grain_ = std::clamp(period_ / 32, 2e-5, 1e-3);
        most_rows_ = is_fine() ? std::size_t{1} << 16U : enough_rows;
    }
    /// The readings' period is known better than when the sample was begun.
    void set_period(Duration period) { period_ = std::max(Seconds{period}.count(), 1e-4); }
    [[nodiscard]] bool on() const { return period_ > 0; }
    [[nodiscard]] double period() const { return period_; }
    /// So many rows show the sensor well enough: short ones say less each.
    [[nodiscard]] std::size_t rows_to_seek() const {
        return is_fine() ? 2 * enough_rows : enough_rows;
    }

    /// What follows ran in this time. Times that are not passed are unknown. In order.
    void pass(TimePoint from, TimePoint to) {
        if (origin_ == TimePoint::min()) origin_ = from;
        settle();
        const double begin = seconds(from);
        const double end = seconds(to);
        const auto slot = static_cast<std::int64_t>(begin / slot_);
        takes_ = slot % stride_ == 0;
        if (!takes_) return;
        Block* last = blocks_.empty() ? nullptr : &blocks_.back();
        const bool continues = last && last->slot == slot && last->end() > begin - 1e-9;
        if (!continues) {
            make_room();
            takes_ = slot % stride_ == 0;
            if (!takes_) return;
            last = &blocks_.emplace_back();
            last->slot = slot;
        }
        std::vector<Stretch>& all = last->stretches;
        if (continues) last->join_alike();
        if (continues && end - all.back().from <= grain_) {
            all.back().to = all.back().run_to = end;
            return;
        }
        all.push_back({begin, end, last->entries.size(), 0, begin, end});
        ++stretches_;
    }
    /// A column had so many seconds of the time that was passed last.
    void add(std::size_t column, double seconds) {
        if (!takes_ || seconds <= 0 || blocks_.empty()) return;
        Block& block = blocks_.back();
        Stretch& stretch = block.stretches.back();
        for (std::size_t i = stretch.first; i < block.entries.size(); ++i) {
            if (block.entries[i].column != column) continue;
            block.entries[i].share += seconds;
            return;
        }
        block.entries.push_back({column, seconds});
        ++stretch.count;
    }
    /// A reading. In order of time; it may come before or after the time around it is passed.
    /// @param length of a counter's row, that ends at `at`; 0 of a log's reading
    void read(TimePoint at, Seconds length, double watts) {
        ++seen_;
        pending_.push_back({at, {length.count(), watts}});
        if (pending_.size() > most_pending) pending_.pop_front();
        settle();
    }

    /// The same with stretches cut into pieces of `longest` seconds at most, whose columns' seconds
    /// `weigh(begins, seconds, entries)` changes: called in order, `begins` where the time before
    /// is unknown.
    template <class Weigh>
    [[nodiscard]] SensorSample weighed(double longest, Weigh weigh) const;

    /// Calls `label(entry)` for each entry, in order, and takes what it returns for its column.
    template <class Label>
    void relabel(Label label) {
        for (Block& block : blocks_) {
            for (Entry& entry : block.entries) entry.column = label(entry);
        }
    }
    /// The same with column 3 j + i for the i-th third of each run of column j.
    [[nodiscard]] SensorSample in_thirds() const;
    /// Of what ran so far; nothing may follow.
    void merge(const MergedColumns& columns) {
        std::vector<Entry> own;
        for (Block& block : blocks_) {
            std::vector<Entry> entries;
            for (Stretch& stretch : block.stretches) {
                const auto from = std::span{block.entries}.subspan(stretch.first, stretch.count);
                own.assign(from.begin(), from.end());
                columns.merge(own);
                stretch.first = entries.size();
                stretch.count = own.size();
                entries.insert(entries.end(), own.begin(), own.end());
            }
            block.entries = std::move(entries);
        }
    }

    /// Four of every 4 `every` blocks that follow each other: a sample of the sample.
    [[nodiscard]] SensorSample thinned(std::int64_t every) const {
        SensorSample result = *this;
        std::erase_if(result.blocks_,
                      [&](const Block& block) { return block.slot / stride_ / 4 % every != 0; });
        return result;
    }

    /// The readings around which enough is known, as rows.
    [[nodiscard]] std::vector<Row> rows() const;
    [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }
    /// How many readings were given, with those that were dropped.
    [[nodiscard]] std::uint64_t seen() const { return seen_; }
    /// How many readings it has, s of time it spans.
    [[nodiscard]] std::size_t readings() const { return rows_; }
    [[nodiscard]] double span() const {
        return blocks_.empty() ? 0 : blocks_.back().end() - blocks_.front().begin();
    }

private:
    [[nodiscard]] bool is_fine() const { return period_ < 0.015; }  // s

    static constexpr std::size_t enough_rows = 3072;  // of slow readings
    static constexpr std::size_t most_stretches = std::size_t{1} << 17U;
    static constexpr std::size_t most_pending = 4096;

    [[nodiscard]] double seconds(TimePoint at) const { return Seconds{at - origin_}.count(); }
    /// Puts readings into the blocks that their time lies in.
    void settle() {
        if (origin_ == TimePoint::min() || blocks_.empty()) return;
        const double passed = blocks_.back().end();
        while (!pending_.empty() && seconds(pending_.front().first) <= passed) {
            const auto [when, what] = pending_.front();
            pending_.pop_front();
            const double at = seconds(when);
            for (std::size_t i = blocks_.size(); i-- > 0 && blocks_[i].end() >= at;) {
                if (blocks_[i].begin() > at) continue;
                blocks_[i].readings.emplace_back(at, what);
                ++rows_;
                break;
            }
        }
    }
    void make_room() {
        settle();
        if (rows_ < most_rows_ && stretches_ < most_stretches) return;
        stride_ *= 2;
        std::erase_if(blocks_, [&](const Block& block) { return block.slot % stride_ != 0; });
        rows_ = stretches_ = 0;
        for (const Block& block : blocks_) {
            rows_ += block.readings.size();
            stretches_ += block.stretches.size();
        }
    }

    double period_ = 0;
    double slot_ = 1;
    double grain_ = 1e-3;
    std::size_t most_rows_ = 0;
    TimePoint origin_ = TimePoint::min();
    bool takes_ = false;
    std::int64_t stride_ = 1;
    std::uint64_t seen_ = 0;
    std::size_t rows_ = 0;
    std::size_t stretches_ = 0;
    std::vector<Block> blocks_;
    std::deque<std::pair<TimePoint, std::pair<double, double>>> pending_;
};

template <class Weigh>
SensorSample SensorSample::weighed(double longest, Weigh weigh) const {
    SensorSample result = *this;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
        const Block& from = blocks_[b];
        Block& to = result.blocks_[b];
        to.stretches.clear();
        to.entries.clear();
        bool begins = b == 0 || from.begin() > blocks_[b - 1].end() + 1e-9;
        for (const Stretch& whole : from.stretches) {
            const double length = whole.to - whole.from;
            const double pieces = std::max(1.0, std::ceil(length / longest));
            for (double i = 0; i < pieces; ++i) {
                const std::size_t first = to.entries.size();
                for (std::size_t k = whole.first; k < whole.first + whole.count; ++k) {
                    const Entry& entry = from.entries[k];
                    to.entries.push_back({entry.column, entry.share / pieces});
                }
                weigh(std::exchange(begins, false), length / pieces,
                      std::span{to.entries}.subspan(first));
                to.stretches.push_back({whole.from + i * length / pieces,
                                        whole.from + (i + 1) * length / pieces, first, whole.count,
                                        whole.from, whole.to});
            }
        }
    }
    return result;
}

inline SensorSample SensorSample::in_thirds() const {
    SensorSample result = *this;
    for (Block& block : result.blocks_) {
        const Block whole = std::exchange(block, {.readings = block.readings, .slot = block.slot});
        for (const Stretch& run : whole.stretches) {
            const double third = (run.to - run.from) / 3;
            for (std::size_t i = 0; i < 3; ++i) {
                const std::size_t first = block.entries.size();
                for (std::size_t k = run.first; k < run.first + run.count; ++k) {
                    const Entry& entry = whole.entries[k];
                    block.entries.push_back({3 * entry.column + i, entry.share / 3});
                }
                const double from = run.from + static_cast<double>(i) * third;
                const double to = i == 2 ? run.to : from + third;
                block.stretches.push_back({from, to, first, run.count, run.run_from, run.run_to});
            }
        }
    }
    return result;
}

inline std::vector<SensorSample::Row> SensorSample::rows() const {
    constexpr double early = 1.5e-3;   // s: so far before its moment a reading may be stamped
    constexpr double history = 0.025;  // s
    std::vector<Row> found;
    std::size_t since = 0;
    // Blocks that begin shortly before the next one may have no reading.
    const Reading* first = nullptr;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
        const Block& block = blocks_[b];
        if (b > 0 && block.begin() > blocks_[b - 1].end() + 1e-9) {
            since = b;
            first = nullptr;
        }
        const bool last = b + 1 == blocks_.size() || blocks_[b + 1].begin() > block.end() + 1e-9;
        std::size_t stretch = 0;
        for (const Reading& reading : block.readings) {
            if (first == nullptr) first = &reading;
            const double at = reading.first;
            const auto& [length, watts] = reading.second;
            const double before = std::max(3 * (length > 0 ? 0 : period_), length + history);
            const double known = at - blocks_[since].begin();
            if (known < before || (last && at + early > block.end())) continue;
            while (block.stretches[stretch].to < at) ++stretch;
            found.push_back({at, length, watts, b, stretch, found.size(), since, first->first,
                             first->second.second});
        }
    }
    return found;
}

}  // namespace kdvfs::inline v0_3::measure
