// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::tune {

/// What work costs: time and energy, of one launch or of a whole iteration as the place says.
struct Cost {
    Seconds time{0};
    Joules energy{0};

    Cost& operator+=(const Cost& other) {
        time += other.time;
        energy += other.energy;
        return *this;
    }
    friend Cost operator+(Cost a, const Cost& b) { return a += b; }
    friend Cost operator*(const Cost& a, double factor) {
        return {a.time * factor, a.energy * factor};
    }
    friend bool operator==(const Cost&, const Cost&) = default;
};

/// Percent of change against a baseline, negative = saved; 0 where the baseline is 0.
inline double percent_change(double value, double baseline) {
    return baseline == 0 ? 0 : 100 * (value / baseline - 1);
}
inline double time_percent(const Cost& cost, const Cost& baseline) {
    return percent_change(cost.time.count(), baseline.time.count());
}
inline double energy_percent(const Cost& cost, const Cost& baseline) {
    return percent_change(cost.energy.count, baseline.energy.count);
}

/// What measured costs of one launch can be: no kernel starts and ends within a nanosecond, none
/// runs for four months, and no board draws a megawatt.
inline constexpr Seconds shortest_launch{1e-9};
inline constexpr Seconds longest_launch{1e7};
inline constexpr Watts most_board_power{1e6};

/// What is wrong with a measured cost, as a clause ("the time is negative"); nothing if it is
/// sound.
inline std::optional<std::string> find_fault(const Cost& cost) {
    const double time = cost.time.count();
    if (!std::isfinite(time)) return "the time is not finite";
    if (time <= 0) return "the time is not above zero";
    if (cost.time < shortest_launch) return "the time is below a nanosecond";
    if (cost.time > longest_launch) return "the time is above 1e7 s";
    if (!std::isfinite(cost.energy.count)) return "the energy is not finite";
    if (cost.energy.count < 0) return "the energy is negative";
    if (cost.energy / cost.time > most_board_power)
        return "energy over time is above a megawatt, which no GPU draws";
    return std::nullopt;
}

/// Whether a text may name a GPU in files that kdvfs writes: up to 128 letters, digits, spaces and
/// a few marks. No character of it means anything inside C++ comments, JSON, HTML or CSV.
constexpr bool is_gpu_name(std::string_view text) {
    constexpr auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view{" _.:,()/+@-"}.find(c) != std::string_view::npos;
    };
    return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), allowed);
}

/// One measurement: what one launch of a kernel cost at a clock point.
struct ProfileRow {
    KernelKey key;
    ClockPoint clock;
    Cost cost;                 ///< per launch
    std::string group{};       ///< what `per_group` plans share a clock by; empty = no group
    std::uint32_t count = 1;   ///< launches per iteration
    std::uint32_t sample = 0;  ///< tells repeated measurements of one point apart
    bool is_baseline = false;
};

/// What is wrong with a row by itself, as a clause ("time is negative"); nothing if it is sound.
inline std::optional<std::string> find_fault(const ProfileRow& row) {
    if (!is_kernel_name(row.key.name))
        return "a kernel name has 1 to 1024 printable ASCII characters except quotes and "
               "backslashes";
    if (!row.group.empty() && !is_kernel_name(row.group))
        return "a group name has 1 to 1024 printable ASCII characters except quotes and "
               "backslashes";
    if (auto fault = find_fault(row.cost)) return fault;
    if (row.count == 0) return "the count of launches is zero";
    return std::nullopt;
}

/// The measurements of one kernel at one clock point.
struct ProfilePoint {
    struct Sample {
        std::uint32_t index = 0;
        Cost cost;
    };
    ClockPoint clock;
    std::vector<Sample> samples;

    [[nodiscard]] Cost mean() const {
        Cost sum;
        for (const Sample& sample : samples) sum += sample.cost;
        return samples.empty() ? sum : sum * (1.0 / static_cast<double>(samples.size()));
    }
};

/// The measurements of one kernel and variant.
struct KernelProfile {
    KernelKey key;
    std::string group;
    std::uint32_t count = 1;
    std::vector<ProfilePoint> points;  ///< in order of first measurement

    [[nodiscard]] const ProfilePoint* find(ClockPoint clock) const {
        const auto at = [clock](const ProfilePoint& point) { return point.clock == clock; };
        const auto found = std::find_if(points.begin(), points.end(), at);
        return found == points.end() ? nullptr : &*found;
    }
};

/// What the kernels of one program cost on one GPU, at the clock points where they were measured.
/// Rows are checked as they come; nothing is smoothed. Not thread-safe.
class Profile {
public:
    explicit Profile(std::string gpu) : gpu_{std::move(gpu)} {
        if (!is_gpu_name(gpu_)) {
            throw Error{Errc::invalid_input,
                        {"make a profile", "GPU \"" + gpu_ + '"', "the name is not allowed",
                         "use up to 128 letters, digits, spaces and _.:,()/+@-"}};
        }
    }

    [[nodiscard]] const std::string& gpu() const { return gpu_; }
    [[nodiscard]] const std::vector<KernelProfile>& kernels() const { return kernels_; }

    /// @throws Error (invalid_input) naming the kernel, if the row is unsound or contradicts
    /// others.
    void add(const ProfileRow& row) {
        if (auto fault = try_add(row)) {
            throw Error{Errc::invalid_input,
                        {"add a measurement to a profile",
                         to_string(row.key) + " at " + to_string(row.clock), *fault, ""}};
        }
    }

    /// Adds a row, or leaves the profile as it was and says why not.
    std::optional<std::string> try_add(const ProfileRow& row) {
        if (auto fault = find_fault(row)) return fault;
        if (row.is_baseline && marked_baseline_ && *marked_baseline_ != row.clock)
            return "another clock point is marked as baseline already: " +
                   to_string(*marked_baseline_);
        const auto known = index_.find(row.key);
        if (known != index_.end()) {
            const KernelProfile& kernel = kernels_[known->second];
            if (auto fault = find_contradiction(kernel, row)) return fault;
        }
        insert(row);
        if (row.is_baseline) marked_baseline_ = row.clock;
        return std::nullopt;
    }

    /// What everything is compared with: the marked clock point, else (auto, auto), else the
    /// highest clocks measured. Nothing if there is no such point.
    [[nodiscard]] std::optional<ClockPoint> baseline() const {
        if (marked_baseline_) return marked_baseline_;
        std::optional<ClockPoint> highest;
        for (const KernelProfile& kernel : kernels_) {
            for (const ProfilePoint& point : kernel.points)
                highest = highest ? higher_cap(*highest, point.clock) : point.clock;
        }
        return highest;
    }

    /// The first kernel that was not measured at the baseline; null if there is none.
    [[nodiscard]] const KernelProfile* find_without_baseline() const {
        const auto clock = baseline();
        for (const KernelProfile& kernel : kernels_)
            if (!clock || kernel.find(*clock) == nullptr) return &kernel;
        return nullptr;
    }

private:
    static std::optional<std::string> find_contradiction(const KernelProfile& kernel,
                                                         const ProfileRow& row) {
        if (kernel.group != row.group)
            return "the kernel is in group \"" + kernel.group + "\" elsewhere";
        if (kernel.count != row.count)
            return "the kernel has a count of " + std::to_string(kernel.count) + " elsewhere";
        const ProfilePoint* point = kernel.find(row.clock);
        if (point == nullptr) return std::nullopt;
        for (const auto& sample : point->samples) {
            if (sample.index == row.sample)
                return "sample " + std::to_string(row.sample) + " of " + to_string(row.key) +
                       " at " + to_string(row.clock) + " is there twice";
        }
        return std::nullopt;
    }

    void insert(const ProfileRow& row) {
        const auto [at, is_new] = index_.try_emplace(row.key, kernels_.size());
        if (is_new) kernels_.push_back({row.key, row.group, row.count, {}});
        std::vector<ProfilePoint>& points = kernels_[at->second].points;
        auto point = std::find_if(points.begin(), points.end(), [&](const ProfilePoint& candidate) {
            return candidate.clock == row.clock;
        });
        if (point == points.end()) point = points.insert(points.end(), {row.clock, {}});
        point->samples.push_back({row.sample, row.cost});
    }

    std::string gpu_;
    std::vector<KernelProfile> kernels_;
    std::map<KernelKey, std::size_t> index_;
    std::optional<ClockPoint> marked_baseline_;
};

}  // namespace kdvfs::tune
