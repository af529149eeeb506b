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
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

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

/// Kernels that were measured together, within one mix: the counter tells the energy of the mix far
/// better than those of its kernels, whose errors are opposed.
struct ProfileBlock {
    std::uint32_t id = 0;  ///< from 1 on
    Joules energy{};       ///< of all launches of an iteration that the block has rows of
    Joules energy_sd{};    ///< standard deviation of what that may be off

    friend bool operator==(const ProfileBlock&, const ProfileBlock&) = default;
};

/// One measurement: what one launch of a kernel cost at a clock point.
struct ProfileRow {
    KernelKey key;
    ClockPoint clock;
    Cost cost;                 ///< per launch
    std::string group{};       ///< what `per_group` plans share a clock by; empty = no group
    std::uint32_t count = 1;   ///< launches per iteration
    std::uint32_t sample = 0;  ///< tells repeated measurements of one point apart
    bool is_baseline = false;
    Joules energy_sd{};    ///< standard deviation of what the energy may be off; 0 where not known
    ProfileBlock block{};  ///< that the row is of; 0 where it was measured by itself
};

/// What is wrong with a row by itself, as a clause ("time is negative"); nothing if it is sound.
/// @param known_names whether those of its kernel and group have been found sound before
inline std::optional<std::string> find_fault(const ProfileRow& row, bool known_names = false) {
    if (!known_names && !is_kernel_name(row.key.name))
        return "a kernel name has 1 to 1024 printable ASCII characters except quotes and "
               "backslashes";
    if (!known_names && !row.group.empty() && !is_kernel_name(row.group))
        return "a group name has 1 to 1024 printable ASCII characters except quotes and "
               "backslashes";
    if (auto fault = find_fault(row.cost)) return fault;
    if (row.count == 0) return "the count of launches is zero";
    if (!std::isfinite(row.energy_sd.count) || row.energy_sd.count < 0)
        return "the standard deviation of the energy is negative or not finite";
    const ProfileBlock& block = row.block;
    if (block.id == 0 && block != ProfileBlock{})
        return "there is the energy of a block without id";
    if (block.id > 0 && !(block.energy.count > 0 && std::isfinite(block.energy.count)))
        return "the energy of the block is not above zero, or not finite";
    if (!std::isfinite(block.energy_sd.count) || block.energy_sd.count < 0)
        return "the standard deviation of the block's energy is negative or not finite";
    return std::nullopt;
}

/// One of the measurements of a kernel at a clock point.
struct ProfileSample {
    std::uint32_t index = 0;
    std::uint32_t block = 0;  ///< id; 0 where it was measured by itself
    Cost cost;
    Joules energy_sd{};  ///< as of its row

    /// Whether the energy is known to better than its half: less than that, and the counter could
    /// not tell it from what ran beside it.
    [[nodiscard]] bool is_resolved() const {
        return energy_sd.count < 0.5 * cost.energy.count || energy_sd.count == 0;
    }
};

/// The samples of a point: one or more, the first of them without memory of its own, since large
/// profiles have no other.
class ProfileSamples {
public:
    explicit ProfileSamples(const ProfileSample& first) : first_{first} {}
    ProfileSamples(const ProfileSamples& other)
        : first_{other.first_},
          all_{other.all_ ? std::make_unique<std::vector<ProfileSample>>(*other.all_) : nullptr} {}
    ProfileSamples& operator=(const ProfileSamples& other) { return *this = ProfileSamples{other}; }
    ProfileSamples(ProfileSamples&&) noexcept = default;
    ProfileSamples& operator=(ProfileSamples&&) noexcept = default;
    ~ProfileSamples() = default;

    void push_back(const ProfileSample& sample) {
        if (!all_) all_ = std::make_unique<std::vector<ProfileSample>>(1, first_);
        all_->push_back(sample);
    }
    [[nodiscard]] std::size_t size() const { return all_ ? all_->size() : 1; }
    [[nodiscard]] const ProfileSample* begin() const { return all_ ? all_->data() : &first_; }
    [[nodiscard]] const ProfileSample* end() const { return begin() + size(); }
    [[nodiscard]] const ProfileSample& operator[](std::size_t i) const { return begin()[i]; }
    [[nodiscard]] const ProfileSample& back() const { return begin()[size() - 1]; }

private:
    ProfileSample first_;
    std::unique_ptr<std::vector<ProfileSample>> all_;  ///< once there are two
};

/// The measurements of one kernel at one clock point.
struct ProfilePoint {
    ClockPoint clock;
    ProfileSamples samples;

    /// Whether any sample's energy is told: no plan chooses a point where none is.
    [[nodiscard]] bool is_resolved() const {
        return std::any_of(samples.begin(), samples.end(),
                           [](const ProfileSample& sample) { return sample.is_resolved(); });
    }

    /// Of the samples that are told, or of all where none is.
    [[nodiscard]] Cost mean() const {
        const bool resolved = is_resolved();
        Cost sum;
        double count = 0;
        for (const ProfileSample& sample : samples) {
            if (resolved && !sample.is_resolved()) continue;
            sum += sample.cost;
            ++count;
        }
        return sum * (1.0 / count);
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
        const std::size_t kernel = find_kernel(row.key);
        const bool known = kernel < kernels_.size() && kernels_[kernel].group == row.group;
        if (auto fault = find_fault(row, known)) return fault;
        if (row.is_baseline && marked_baseline_ && *marked_baseline_ != row.clock)
            return "another clock point is marked as baseline already: " +
                   to_string(*marked_baseline_);
        if (auto fault = find_other_block(row)) return fault;
        if (kernel < kernels_.size()) {
            const std::size_t point = find_point(kernels_[kernel], row.clock);
            if (auto fault = find_contradiction(kernels_[kernel], point, row)) return fault;
            add_sample(kernels_[kernel], point, row);
        } else {
            index_.emplace(row.key, kernel);
            kernels_.push_back({row.key, row.group, row.count, {}});
            add_sample(kernels_.back(), 0, row);
        }
        last_kernel_ = kernel;
        if (row.block.id > 0)
            blocks_.try_emplace(row.block.id, MeasuredTogether{row.block, row.clock});
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

    /// A block, and the clock point that held in it.
    struct MeasuredTogether {
        ProfileBlock block;
        ClockPoint clock;
    };
    /// By id.
    [[nodiscard]] const std::map<std::uint32_t, MeasuredTogether>& blocks() const {
        return blocks_;
    }
    /// As its row says; 0 where it was measured by itself.
    [[nodiscard]] ProfileBlock block_of(const ProfileSample& sample) const {
        return sample.block == 0 ? ProfileBlock{} : blocks_.at(sample.block).block;
    }

    /// The first kernel that was not measured at the baseline; null if there is none.
    [[nodiscard]] const KernelProfile* find_without_baseline() const {
        const auto clock = baseline();
        for (const KernelProfile& kernel : kernels_)
            if (!clock || kernel.find(*clock) == nullptr) return &kernel;
        return nullptr;
    }

private:
    /// Rows mostly come kernel by kernel, or point by point in the same order again.
    [[nodiscard]] std::size_t find_kernel(const KernelKey& key) const {
        for (const std::size_t likely : {last_kernel_, last_kernel_ + 1})
            if (likely < kernels_.size() && kernels_[likely].key == key) return likely;
        const auto known = index_.find(key);
        return known == index_.end() ? kernels_.size() : known->second;
    }
    /// One past the last point where there is none.
    [[nodiscard]] std::size_t find_point(const KernelProfile& kernel, ClockPoint clock) const {
        const std::vector<ProfilePoint>& points = kernel.points;
        for (const std::size_t likely : {last_point_, last_point_ + 1})
            if (likely < points.size() && points[likely].clock == clock) return likely;
        const auto at = [clock](const ProfilePoint& point) { return point.clock == clock; };
        return static_cast<std::size_t>(std::find_if(points.begin(), points.end(), at) -
                                        points.begin());
    }

    static std::optional<std::string> find_contradiction(const KernelProfile& kernel,
                                                         std::size_t point, const ProfileRow& row) {
        if (kernel.group != row.group)
            return "the kernel is in group \"" + kernel.group + "\" elsewhere";
        if (kernel.count != row.count)
            return "the kernel has a count of " + std::to_string(kernel.count) + " elsewhere";
        if (point == kernel.points.size()) return std::nullopt;
        for (const ProfileSample& sample : kernel.points[point].samples) {
            if (sample.index == row.sample)
                return "sample " + std::to_string(row.sample) + " of " + to_string(row.key) +
                       " at " + to_string(row.clock) + " is there twice";
        }
        return std::nullopt;
    }

    [[nodiscard]] std::optional<std::string> find_other_block(const ProfileRow& row) const {
        const auto known = blocks_.find(row.block.id);
        if (known == blocks_.end()) return std::nullopt;
        if (known->second.clock != row.clock)
            return "block " + std::to_string(row.block.id) + " is at " +
                   to_string(known->second.clock) + " elsewhere";
        if (known->second.block != row.block)
            return "block " + std::to_string(row.block.id) + " has another energy elsewhere";
        return std::nullopt;
    }

    void add_sample(KernelProfile& kernel, std::size_t point, const ProfileRow& row) {
        const ProfileSample sample{row.sample, row.block.id, row.cost, row.energy_sd};
        if (point == kernel.points.size())
            kernel.points.push_back({row.clock, ProfileSamples{sample}});
        else
            kernel.points[point].samples.push_back(sample);
        last_point_ = point;
    }

    std::string gpu_;
    std::vector<KernelProfile> kernels_;
    std::map<KernelKey, std::size_t> index_;
    std::map<std::uint32_t, MeasuredTogether> blocks_;
    std::size_t last_kernel_ = 0;
    std::size_t last_point_ = 0;
    std::optional<ClockPoint> marked_baseline_;
};

/// The launches of an iteration, in order, with the gaps before them.
struct LaunchSequence {
    std::vector<KernelKey> launches;
    std::vector<Seconds> gaps;               ///< one for each, or none
    std::vector<std::uint32_t> depths = {};  ///< likewise: how many of the scopes are around it
};

}  // namespace kdvfs::inline v0_3::tune
