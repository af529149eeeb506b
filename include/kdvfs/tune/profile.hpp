// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
KDVFS_INLINE std::optional<std::string> find_fault(const Cost& cost);

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
    Megahertz held = auto_clock;  ///< mean core clock by cycles; 0: not counted
    /// The power limit may have held the board back: the cost depends on what ran beside it.
    bool at_limit = false;
};

/// What is wrong with a row by itself, as a clause ("time is negative"); nothing if it is sound.
/// @param known_names whether those of its kernel and group have been found sound before
KDVFS_INLINE std::optional<std::string> find_fault(const ProfileRow& row, bool known_names = false);

/// One of the measurements of a kernel at a clock point.
struct ProfileSample {
    std::uint32_t index = 0;
    std::uint32_t block = 0;  ///< id; 0 where it was measured by itself
    Cost cost;
    Joules energy_sd{};           ///< as of its row
    Megahertz held = auto_clock;  ///< likewise
    bool at_limit = false;        ///< likewise

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
    [[nodiscard]] bool is_resolved() const;

    /// Of the samples that are told, or of all where none is.
    [[nodiscard]] Cost mean() const;
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
    explicit Profile(std::string gpu);

    [[nodiscard]] const std::string& gpu() const { return gpu_; }
    [[nodiscard]] const std::vector<KernelProfile>& kernels() const { return kernels_; }

    /// @throws Error (invalid_input) naming the kernel, if the row is unsound or contradicts
    /// others.
    void add(const ProfileRow& row);

    /// Adds a row, or leaves the profile as it was and says why not.
    std::optional<std::string> try_add(const ProfileRow& row);

    /// What everything is compared with: the marked clock point, else (auto, auto), else the
    /// highest clocks measured. Nothing if there is no such point.
    [[nodiscard]] std::optional<ClockPoint> baseline() const;

    /// A block, and the clock point that held in it.
    struct MeasuredTogether {
        ProfileBlock block;
        ClockPoint clock;
    };
    /// By id.
    [[nodiscard]] const std::map<std::uint32_t, MeasuredTogether>& blocks() const;
    /// As its row says; 0 where it was measured by itself.
    [[nodiscard]] ProfileBlock block_of(const ProfileSample& sample) const;

    /// The first kernel that was not measured at the baseline; null if there is none.
    [[nodiscard]] const KernelProfile* find_without_baseline() const;

    /// The first kernel of which a sample was measured at the power limit; null if there is none.
    [[nodiscard]] const KernelProfile* find_at_limit() const;

private:
    /// Rows mostly come kernel by kernel, or point by point in the same order again.
    [[nodiscard]] std::size_t find_kernel(const KernelKey& key) const;
    /// One past the last point where there is none.
    [[nodiscard]] std::size_t find_point(const KernelProfile& kernel, ClockPoint clock) const;

    static std::optional<std::string> find_contradiction(const KernelProfile& kernel,
                                                         std::size_t point, const ProfileRow& row);

    [[nodiscard]] std::optional<std::string> find_other_block(const ProfileRow& row) const;

    void add_sample(KernelProfile& kernel, std::size_t point, const ProfileRow& row);

    std::string gpu_;
    std::vector<KernelProfile> kernels_;
    std::map<KernelKey, std::size_t> index_;
    std::map<std::uint32_t, MeasuredTogether> blocks_;
    std::size_t last_kernel_ = 0;
    std::size_t last_point_ = 0;
    std::optional<ClockPoint> marked_baseline_;
};

// Sweep files:
// `gpu,kernel,core_mhz,mem_mhz,time_s,energy_j[,energy_sd_j][,variant][,group][,power_w]`
// `[,is_baseline][,count][,sample][,block][,block_energy_j][,block_energy_sd_j][,held_mhz]`
// `[,at_limit]`, columns in any order, unknown ones ignored. Time and energy are per launch;
// `energy_sd_j` is the standard deviation of what the energy may be off, 0 or empty where it is not
// known; -1 or "auto" is the board's own clock; without a variant a kernel is written as
// `to_string(KernelKey)` does. Rows of one `block` were measured together (`ProfileBlock`); 0 or
// empty: by themselves.

/// Reads a sweep file. Errors call the input `name`.
/// @throws Error (invalid_input) naming file and line, for anything that is not a sound profile
/// of one GPU with a baseline for every kernel.
KDVFS_INLINE Profile read_profile(std::istream& input, const std::string& name);

/// Reads a sweep file. @throws Error (io) if it cannot be opened, else as above.
KDVFS_INLINE Profile read_profile(const std::filesystem::path& path);

/// The header line of the sweep files that kdvfs writes.
inline constexpr std::string_view sweep_header =
    "gpu,kernel,variant,group,core_mhz,mem_mhz,time_s,energy_j,is_baseline,count,sample,"
    "energy_sd_j,block,block_energy_j,block_energy_sd_j,held_mhz,at_limit\n";

/// One measurement as a line of a sweep file, so that sweeps can append as they go.
KDVFS_INLINE std::string to_csv_line(const std::string& gpu, const ProfileRow& row);

/// A profile as a sweep file.
KDVFS_INLINE std::string to_csv(const Profile& profile);

/// A sweep file that grows as measurements are taken: each is on its way to the disk before the
/// next begins, so a killed sweep loses at most one, and goes on where it was. One process at a
/// time has the file; not thread-safe.
class SweepFile {
public:
    /// Opens a file or makes one. A last line that was cut short is dropped. Rows at `baseline`
    /// are marked as such; without it, the profile's own rule decides.
    /// @throws Error (io, busy), and (invalid_input) for what is no file or not this GPU's sweep,
    ///         which stays as it is
    SweepFile(std::filesystem::path path, const std::string& gpu,
              std::optional<ClockPoint> baseline = std::nullopt);

    /// What has been measured, by this process and before.
    [[nodiscard]] const Profile& profile() const { return profile_; }

    [[nodiscard]] std::optional<ClockPoint> baseline() const { return baseline_; }

    /// Adds a measurement. @throws Error (io), and as `Profile::add`
    void append(const ProfileRow& row) { append(std::vector{row}); }

    /// Adds what was measured together, in one piece.
    void append(std::vector<ProfileRow> rows);

private:
    void resume(const std::string& gpu);

    void take_over(const std::string& text, const std::string& gpu);

    [[noreturn]] void reject(const std::string& why) const;

    [[nodiscard]] std::string read_all() const;

    void write(const std::string& text) const;

    std::filesystem::path path_;
    kdvfs::detail::Descriptor file_;
    Profile profile_;
    std::optional<ClockPoint> baseline_;
};

/// The launches of an iteration, in order, with the gaps before them.
struct LaunchSequence {
    std::vector<KernelKey> launches;
    std::vector<Seconds> gaps;               ///< one for each, or none
    std::vector<std::uint32_t> depths = {};  ///< likewise: how many of the scopes are around it
    /// Of launches on several streams: where and when each ran, since the iteration began.
    struct Run {
        std::uint32_t stream = 0;
        Seconds start{0};
        Seconds end{0};
    };
    std::vector<Run> runs = {};  ///< one for each, or none
};

// Sequence files: the launches of an iteration in order (`kernel[,variant][,gap_s][,depth]`
// `[,stream,start_s,end_s]`, a line each; the gap is the time before the launch in which the stream
// ran none, the depth says how many of the sequence's scopes are around it).

/// @throws Error (invalid_input) naming file and line
KDVFS_INLINE LaunchSequence read_launches(std::istream& input, const std::string& name);
KDVFS_INLINE LaunchSequence read_launches(const std::filesystem::path& path);

/// @throws Error (io)
KDVFS_INLINE void write_launches(const std::filesystem::path& path, const LaunchSequence& sequence);

/// Where a sweep leaves the launches of an iteration: beside the profile that it writes.
inline std::filesystem::path sequence_path(std::filesystem::path profile) {
    return profile.replace_extension(".sequence.csv");
}

/// The launches of an iteration, in order. @throws Error (invalid_input) naming file and line
inline std::vector<KernelKey> read_sequence(std::istream& input, const std::string& name) {
    return read_launches(input, name).launches;
}
KDVFS_INLINE std::vector<KernelKey> read_sequence(const std::filesystem::path& path);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/profile.hpp>
#endif
