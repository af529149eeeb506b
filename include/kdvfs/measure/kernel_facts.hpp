// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// How long each of a few values held. Allocates only for a value it has not seen.
template <class Value>
class TimeShares {
public:
    void add(const Value& value, Duration time) {
        total_ += time;
        for (auto& [known, held] : shares_) {
            if (known == value) {
                held += time;
                return;
            }
        }
        shares_.emplace_back(value, time);
    }

    [[nodiscard]] Duration total() const { return total_; }

    /// The value that held longest; a default value where there is none.
    [[nodiscard]] Value longest() const {
        const auto it = std::max_element(shares_.begin(), shares_.end(),
                                         [](auto& a, auto& b) { return a.second < b.second; });
        return it == shares_.end() ? Value{} : it->first;
    }

    /// The value in the middle of the time; a default value where there is none.
    [[nodiscard]] Value median() const {
        auto sorted = shares_;
        std::sort(sorted.begin(), sorted.end());
        Duration passed{0};
        for (const auto& [value, time] : sorted) {
            passed += time;
            if (2 * passed >= total_) return value;
        }
        return {};
    }

    /// The share of the time, 0 to 1, in which `accept(value)` held.
    template <class Accept>
    [[nodiscard]] double share(Accept accept) const {
        Duration accepted{0};
        for (const auto& [value, time] : shares_) {
            if (accept(value)) accepted += time;
        }
        return total_ > Duration::zero() ? Seconds{accepted} / Seconds{total_} : 0;
    }

private:
    std::vector<std::pair<Value, Duration>> shares_;
    Duration total_{0};
};

/// What is known of a kernel without any energy.
struct KernelFacts {
    std::uint64_t calls = 0;
    std::uint64_t metered_calls = 0;
    Duration time{0};
    TimeShares<ClockPoint> asked;
    TimeShares<ClockPoint> applied;
    TimeShares<Megahertz> held;  ///< in steps of 5 MHz, so that noise needs no more memory

    void add(const KernelInterval& interval) {
        const Duration length = interval.end - interval.start;
        if (interval.ends_scope) {
            ++calls;
            ++metered_calls;
        }
        time += length;
        asked.add(interval.asked, length);
        const Megahertz clock = held_clock(interval);
        if (clock != auto_clock) held.add({(clock.count + 2) / 5 * 5}, length);
    }

    void fill(ReportRow& row) const {
        row.calls = calls;
        row.metered_calls = metered_calls;
        row.time = time;
        row.asked = asked.longest();
        row.applied = applied.longest();
        if (applied.total() > Duration::zero()) {
            row.asked_share = applied.share([&](ClockPoint point) { return point == row.asked; });
        }
        row.held = held.median();
        row.held_share = held.share([&](Megahertz clock) {
            const auto distance =
                std::abs(std::int64_t{clock.count} - std::int64_t{row.held.count});
            return distance * 50 <= row.held.count;
        });
    }
};

/// Facts by kernel number; grows with the numbers, never per call.
class FactsByKernel {
public:
    KernelFacts& of(KernelId kernel) {
        if (facts_.size() <= kernel.value) facts_.resize(kernel.value + std::size_t{1});
        return facts_[kernel.value];
    }
    [[nodiscard]] const KernelFacts& at(KernelId kernel) const {
        Expects(kernel.value < facts_.size());
        return facts_[kernel.value];
    }
    /// Kernels with at least one call.
    [[nodiscard]] std::vector<KernelId> seen() const {
        std::vector<KernelId> kernels;
        for (std::uint32_t i = 0; i < facts_.size(); ++i) {
            if (facts_[i].calls > 0) kernels.push_back({i});
        }
        return kernels;
    }

private:
    std::vector<KernelFacts> facts_;
};

}  // namespace kdvfs::measure
