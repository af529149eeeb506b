// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/device/nvidia/nvml_library.hpp>
#include <kdvfs/detail/device/nvidia/nvml_readings.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::device {

/// The command that a watchdog puts an NVIDIA board back with. The watchdog has an environment of
/// its own, in which neither the command nor its library may be found: both are looked for when the
/// board is opened.
class NvmlRestorer {
public:
    /// @param name           nvidia-smi, or a path
    /// @param library_folder where NVML was found
    NvmlRestorer(const std::string& name, std::string library_folder)
        : library_folder_{std::move(library_folder)} {
        const std::string folders = std::string{io::environment("PATH")} + ':' + io::usual_folders +
                                    ':' + library_folder_ + ':' + library_folder_ + "/../bin";
        path_ = io::find_program(name, folders);
        if (!path_.empty()) return;
        missing_ = name +
                   " is not found in PATH: where this process is killed, nothing puts the board "
                   "back before kdvfs-restore runs";
        path_ = name;
    }

    /// What will not be done, for `DeviceInfo::restoring`; empty where the command was found.
    [[nodiscard]] const std::string& missing() const { return missing_; }

    /// @param functions  of a watchdog, which call `nvidia_smi`
    /// @param arguments  the words of these functions, $1 and on
    [[nodiscard]] RestoreScript script(std::string kind, const char* functions,
                                       std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), {path_, library_folder_});
        return {std::move(kind), std::string{shell_functions} + functions, std::move(arguments)};
    }

private:
    // Words: the command, the folder of the driver's library, then the device's own.
    static constexpr const char* shell_functions = R"sh(
restorer=$1 libraries=$2
shift 2

nvidia_smi() { LD_LIBRARY_PATH=$libraries "$restorer" "$@"; }
)sh";

    std::string library_folder_;
    std::string path_;
    std::string missing_;
};

/// The workload power profiles of an NVIDIA board. A profile is asked for alone, in place of all
/// that were asked for before, by one call (nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1, set
/// and overwrite, which NVML's reference of R590 has); what the restore record says was found is
/// what goes back. The board itself arbitrates: the profile that is enforced may be another one.
/// Needs root, or the capability that the administrator gives out for it.
///
/// In a clock state the profiles that are asked for are bits where a core clock would stand: those
/// below `most_prepared_points`.
///
/// A watchdog cannot read what is asked for: it has no NVML, and the form of nvidia-smi's answer
/// (power-profiles -gr) is not documented. At a kill it therefore puts back what was found, also
/// where somebody else has asked for other profiles since. A process that settles the record
/// (`settle`: the next owner, kdvfs-restore) reads NVML, and leaves them.
class NvmlPreparedPoints : public NvmlReadings {
public:
    /// Reads only.
    /// @param restorer what a watchdog puts profiles back with: nvidia-smi
    /// @throws Error as `NvmlReadings`
    NvmlPreparedPoints(const std::string& address, const std::string& library_path,
                       const std::string& restorer)
        : NvmlReadings{address, library_path},
          restorer_{restorer, library().folder()},
          update_{library().find_update_power_profiles()} {
        info_.address += "-point";
        info_.mechanism = "NVML workload power profiles";
    }

    [[nodiscard]] std::vector<PreparedPoint> prepared_points() const {
        return info_.prepared_points;
    }
    /// None: these are no clocks.
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return none_; }

    [[nodiscard]] static ClockState state_of(PreparedPoint point) {
        return operating_point_state(1U << point.number % 32);
    }
    /// @throws Error with NVML's words, (not_supported) where somebody asks for a profile above 15
    [[nodiscard]] ClockState read_clock_state() const { return operating_point_state(requested()); }

    void apply(ClockPoint wanted) {
        const PreparedPoint point{wanted.core.count};
        const auto& known = info_.prepared_points;
        if (std::find(known.begin(), known.end(), point) == known.end()) {
            throw Error{Errc::invalid_input,
                        {"switch to " + to_string(point), to_string(info_),
                         "the board has no such profile", "ask for one of info().prepared_points"}};
        }
        ask_for(1U << point.number);
    }
    void restore(const ClockState& state) { ask_for(state.cap.core.count); }

    [[nodiscard]] RestoreScript restore_script() const {
        std::uint32_t all = 0;
        for (const PreparedPoint point : info_.prepared_points) all |= 1U << point.number;
        const std::string address = info_.address.substr(0, info_.address.rfind('-'));
        return restorer_.script("nvml-point", restore_functions, {address, list(all)});
    }

private:
    // Words: the PCI address, the numbers of all profiles. nvidia-smi is not asked what holds (see
    // the class): what the record says is held is cleared, all where a write was under way.
    static constexpr const char* restore_functions = R"sh(
address=$1 all=$2 freed=

list() { # sets numbers to those of the bits of $1: "1,6"
    numbers= bit=0
    while [ $bit -lt 16 ]; do
        [ $(($1 >> bit & 1)) = 0 ] || numbers=${numbers:+$numbers,}$bit
        bit=$((bit + 1))
    done
}

see() { :; }

holds() { :; }

is_back() { [ "$freed" = "$order" ]; }

put_back() {
    clear=$all
    [ "$held" != state ] || { list "$held_core"; clear=$numbers; }
    list "$found_core"
    [ -z "$clear" ] || nvidia_smi power-profiles -i "$address" -cr "$clear" || return 1
    [ -z "$numbers" ] || nvidia_smi power-profiles -i "$address" -sr "$numbers" || return 1
    freed=$order
}
)sh";

    /// "1,6".
    static std::string list(std::uint32_t bits) {
        std::string text;
        for (std::uint32_t i = 0; i < most_prepared_points; ++i) {
            if ((bits >> i & 1U) != 0) text += (text.empty() ? "" : ",") + std::to_string(i);
        }
        return text;
    }

    [[nodiscard]] std::uint32_t requested() const {
        nvml::PowerProfiles profiles;
        check(read().power_profiles == nullptr ? nvml::Status::function_not_found
                                               : read().power_profiles(handle(), &profiles),
              "read the workload power profiles");
        const auto numbers = numbers_in(profiles.requested);
        if (!numbers.empty() && numbers.back().number >= most_prepared_points) {
            throw Error{Errc::not_supported,
                        {"read the workload power profiles", to_string(info_),
                         "somebody asks for profile " + std::to_string(numbers.back().number),
                         "clear it first: those above 15 could not be put back"}};
        }
        return profiles.requested[0];
    }

    void ask_for(std::uint32_t bits) {
        nvml::PowerProfilesUpdate update;
        update.profiles[0] = bits;
        if (bits == 0) {  // an empty set to overwrite with is nowhere said to be one
            update.operation = nvml::PowerProfilesUpdate::clear;
            update.profiles[0] = requested();
        }
        check(update_ == nullptr ? nvml::Status::function_not_found : update_(handle(), &update),
              "ask for workload power profiles " + (bits == 0 ? "none" : list(bits)));
    }

    NvmlRestorer restorer_;
    nvml::UpdatePowerProfiles update_;
    SupportedClocks none_{};
};

static_assert(PreparedPointControl<NvmlPreparedPoints> && Restorable<NvmlPreparedPoints>);

/// Whether a device may be asked to change its clocks.
enum class ClockAccess {
    measure_only,  ///< nothing is ever changed; the setting functions are not even looked up
    set,
};

/// How an NVIDIA device is opened.
struct NvmlOptions {
    ClockAccess access = ClockAccess::measure_only;
    std::string library = "libnvidia-ml.so.1";
    std::string restorer = "nvidia-smi";  ///< what a watchdog frees clocks with
    /// How long after a write the running clock may still be above the cap: longer than any
    /// published switching latency of an NVIDIA GPU (they reach 500 ms).
    Duration settle = std::chrono::seconds{1};
    /// What the administrator says to have locked the clocks to, since NVML does not tell while the
    /// board is idle: freed clocks go back to these locks. A ceiling of `auto_clock`: no lock.
    ClockPoint site_floor{};
    ClockPoint site_ceiling{};
};

/// An NVIDIA GPU through NVML: caps are locked clocks from the lowest listed clock up to the cap.
///
/// NVML has no call that reads locked clocks back. `read_clock_state` therefore tells what this
/// object has written, unless a write failed (mode "unsure") or the running clock contradicts it
/// ("lock lost": by a reset, or undone by somebody); an external lock found at opening is told from
/// the limit reasons, which show it only under load.
///
/// Fulfils ClockControl. Clock calls: one thread at a time.
class Nvml : public NvmlReadings {
public:
    /// @param address PCI "0000:03:00.0".
    /// @throws Error if there is no driver, no such GPU, or clocks are to be set and cannot be.
    explicit Nvml(const std::string& address, NvmlOptions options = {})
        : NvmlReadings{address, options.library}, options_{std::move(options)} {
        if (options_.access == ClockAccess::measure_only) return;
        setters_ = library().find_setters();
        if (clocks_.core.listed.empty()) {
            check(nvml::Status::not_supported, "list the core clocks");
        }
        if (setters_.lock_memory == nullptr || setters_.unlock_memory == nullptr) {
            clocks_.memory.listed.clear();
        }
        info_.mechanism = "NVML locked clocks, driver " + driver_version();
        info_.restoring = restorer_.missing();
        // A lock that the administrator names can be put back.
        limited_at_opening_ = options_.site_ceiling.is_auto() && read_limit_reasons().set_clocks();
    }

    /// @throws Error (refused) if opened to measure only; (busy) if somebody else had set clocks
    /// when the device was opened; or with NVML's words. The core clock may be changed when the
    /// memory clock then fails.
    void apply(ClockPoint point) {
        check_settable();
        if (!supports(clocks_, point)) {
            throw Error{Errc::invalid_input,
                        {"cap the clocks at " + to_string(point), to_string(info_), "",
                         "choose clocks that the board lists"}};
        }
        // A core clock is listed for some memory clocks only: the memory clock is raised before
        // the core clock and lowered after it.
        const bool memory_rises = higher_cap(point.memory, memory_.cap) == point.memory;
        if (memory_rises) cap_memory(point.memory);
        cap_core(point.core);
        if (!memory_rises) cap_memory(point.memory);
    }

    /// See the class about what NVML can tell.
    /// @throws Error with NVML's words.
    [[nodiscard]] ClockState read_clock_state() {
        const bool settled = Timeline::time_point{now()} - written_at_ >= options_.settle;
        ClockState state;
        state.cap = {core_.cap, memory_.cap};
        if (settled && exceeds(nvml::clock_core, core_.cap)) state.cap.core = auto_clock;
        if (settled && exceeds(nvml::clock_memory, memory_.cap)) state.cap.memory = auto_clock;
        if (core_.unsure || memory_.unsure) {
            state.mode = "unsure";
        } else if (state.cap != ClockPoint{core_.cap, memory_.cap}) {
            state.mode = "lock lost";
        } else if (!state.cap.is_auto()) {
            state.mode = "locked";
        } else if (limited_at_opening_) {
            state.mode = "limited by somebody else";
        }
        return state;
    }

    /// Takes back what this object wrote, domain by domain; a failure in one does not keep the
    /// other from being restored.
    /// @throws Error the first failure.
    void restore(const ClockState& state) {
        check_settable();
        std::optional<Error> first;
        const auto attempt = [&](auto&& write) {
            try {
                write();
            } catch (const Error& error) {
                if (!first) first = error;
            }
        };
        if (core_.touched) attempt([&] { cap_core(state.cap.core); });
        if (memory_.touched) attempt([&] { cap_memory(state.cap.memory); });
        if (first) throw Error{*first};
    }

    /// Takes over what an earlier owner had written, or, of a write cut short, may have.
    void adopt(const std::optional<ClockState>& written) {
        const auto taken = [&](Megahertz cap) {
            return Written{
                .cap = cap, .touched = !written || cap != auto_clock, .unsure = !written};
        };
        const ClockPoint cap = written ? written->cap : ClockPoint{};
        core_ = taken(cap.core);
        memory_ = taken(cap.memory);
        if (clocks_.memory.listed.empty()) memory_ = {};
        limited_at_opening_ = false;  // by that owner
    }

    /// Frees what this object has written: others have done so, and whether before or after its
    /// last write cannot be read.
    /// @throws Error as `restore`
    void free_again() { restore({}); }

    /// The clocks that were set at opening may have been those of a process that has let go since.
    void look_again() {
        if (limited_at_opening_) limited_at_opening_ = read_limit_reasons().set_clocks();
    }

    [[nodiscard]] std::unique_ptr<NvmlPreparedPoints> open_prepared_points() const {
        return std::make_unique<NvmlPreparedPoints>(info_.address, options_.library,
                                                    options_.restorer);
    }

    /// What frees the clocks after this process has died. There is nothing else to go back to:
    /// clocks that somebody had set are never changed.
    [[nodiscard]] RestoreScript restore_script() const {
        const auto range = [](const ClockDomain& domain, Megahertz floor, Megahertz ceiling) {
            return ceiling == auto_clock ? std::string{}
                                         : std::to_string(lowest(domain, floor).count) + "," +
                                               std::to_string(ceiling.count);
        };
        return restorer_.script(
            "nvml", restore_functions,
            {info_.address,
             range(clocks_.core, options_.site_floor.core, options_.site_ceiling.core),
             range(clocks_.memory, options_.site_floor.memory, options_.site_ceiling.memory)});
    }

private:
    // Words: the PCI address, the administrator's locks of core and memory, each may be empty. It
    // cannot ask NVML what holds: what the record says is held is freed. A write under
    // way may have locked either domain.
    static constexpr const char* restore_functions = R"sh(
address=$1 site_core=$2 site_memory=$3 freed=

free() { # $1 the administrator's lock, $2 how it is set, $3 how there is none
    if [ -n "$1" ]; then
        nvidia_smi -i "$address" "$2" "$1"
    else
        nvidia_smi -i "$address" "$3"
    fi
}

see() { :; }

holds() { :; }

is_back() { [ "$freed" = "$order" ]; }

put_back() {
    core=$held_core memory=$held_memory
    [ "$held" != uncertain ] || core=1 memory=1
    [ "$core" = 0 ] || free "$site_core" -lgc -rgc || return 1
    [ "$memory" = 0 ] || free "$site_memory" -lmc -rmc || return 1
    freed=$order
}
)sh";

    void check_settable() const {
        if (options_.access == ClockAccess::measure_only) {
            throw Error{Errc::refused,
                        {"change clocks", to_string(info_), "",
                         "it was opened to measure only: open it with ClockAccess::set"}};
        }
        if (limited_at_opening_) {
            throw Error{Errc::busy,
                        {"change clocks", to_string(info_), "",
                         "somebody had set its clocks, and NVML does not say to what, so they "
                         "could not be restored: reset them first (nvidia-smi -rgc -rmc)"}};
        }
    }

    /// What this object has done to a domain.
    struct Written {
        Megahertz cap = auto_clock;
        bool touched = false;  ///< a write was tried: it may have been done even if it failed
        bool unsure = false;   ///< the last one failed
    };

    /// A domain that was never touched needs no freeing.
    template <class Lock, class Unlock>
    void write(Written& domain, const char* name, Megahertz cap, Lock lock, Unlock unlock) {
        if (cap == auto_clock && !domain.touched) return;
        const Written before = domain;
        domain.touched = true;
        domain.unsure = true;
        written_at_ = TimePoint{now()};
        const nvml::Status status = cap == auto_clock ? unlock() : lock();
        // Without the rights nothing is done (nvml.h), and nothing has to be undone.
        if (status == nvml::Status::no_permission) domain = before;
        check(status, std::string{"set the "} + name + " clock to " + to_string(cap));
        domain.cap = cap;
        domain.unsure = false;
    }

    void cap_core(Megahertz cap) {
        write(
            core_, "core", cap,
            [&] {
                return setters_.lock_core(
                    handle(), lowest(clocks_.core, options_.site_floor.core).count, cap.count);
            },
            [&] {
                if (options_.site_ceiling.core == auto_clock) return setters_.unlock_core(handle());
                return setters_.lock_core(handle(),
                                          lowest(clocks_.core, options_.site_floor.core).count,
                                          options_.site_ceiling.core.count);
            });
    }

    void cap_memory(Megahertz cap) {
        write(
            memory_, "memory", cap,
            [&] {
                return setters_.lock_memory(
                    handle(), lowest(clocks_.memory, options_.site_floor.memory).count, cap.count);
            },
            [&] {
                if (options_.site_ceiling.memory == auto_clock)
                    return setters_.unlock_memory(handle());
                return setters_.lock_memory(
                    handle(), lowest(clocks_.memory, options_.site_floor.memory).count,
                    options_.site_ceiling.memory.count);
            });
    }

    static Megahertz lowest(const ClockDomain& domain, Megahertz floor) {
        return floor != auto_clock || domain.listed.empty() ? floor : domain.listed.front();
    }

    bool exceeds(std::uint32_t domain, Megahertz cap) {
        return cap != auto_clock && read_clock(domain) > cap;
    }

    NvmlOptions options_;
    NvmlRestorer restorer_{options_.restorer, library().folder()};
    nvml::Setters setters_;
    Written core_, memory_;
    TimePoint written_at_;
    bool limited_at_opening_ = false;
};

static_assert(Restorable<Nvml> && SwitchesPreparedPoints<Nvml>);

/// The power limit of an NVIDIA board through NVML; setting it needs root. It is put back, should
/// this process die, by `nvidia-smi`.
class NvmlPowerLimit : public NvmlReadings {
public:
    /// @throws Error as `Nvml`, and with NVML's words where the limit cannot be read
    explicit NvmlPowerLimit(const std::string& address, const NvmlOptions& options = {})
        : NvmlReadings{address, options.library},
          restorer_{options.restorer, library().folder()},
          calls_{library().find_power_limit_calls()} {
        info_.mechanism = "NVML power limit";
        info_.restoring = restorer_.missing();
    }

    /// The limit that is set, which the board may be below for other reasons.
    [[nodiscard]] Watts read_power_limit() const {
        unsigned milliwatts = 0;
        check(calls_.get(handle(), &milliwatts), "read the power limit");
        return {milliwatts * 1e-3};
    }
    /// @throws Error with NVML's words
    void set_power_limit(Watts limit) {
        check(calls_.set(handle(), static_cast<unsigned>(std::lround(limit.count * 1e3))),
              "set a power limit of " + std::to_string(limit.count) + " W");
    }
    [[nodiscard]] PowerRange power_limit_range() const {
        unsigned low = 0;
        unsigned high = 0;
        check(calls_.range(handle(), &low, &high), "read the range of the power limit");
        return {{low * 1e-3}, {high * 1e-3}};
    }

    [[nodiscard]] RestoreScript restore_script() const {
        return restorer_.script("nvml-power", restore_functions, {info_.address});
    }

private:
    // Words: the PCI address. nvidia-smi takes fractions of a watt, and prints hundredths; a board
    // may round what it is given to whole watts. Compared are milliwatts.
    static constexpr const char* restore_functions = R"sh(
address=$1 freed=

see() {
    seen=$(nvidia_smi -i "$address" --query-gpu=power.limit --format=csv,noheader,nounits) ||
        return 1
    case $seen in '' | *[!0-9.]* | *.*.* | .*) return 1 ;; esac
    set -- "${seen%%.*}" "${seen#"${seen%%.*}"}000"
    fraction=${2#.}
    seen=$1${fraction%"${fraction#???}"}
}

near() { # $1 W and $2 mW are within $3 mW of what was seen
    apart=$((seen - $1 * 1000 - $2))
    [ "${apart#-}" -le "$3" ]
}

holds() { near "$held_core" "$held_memory" 1000; }

is_back() {
    near "$found_core" "$found_memory" 10 && return
    [ "$freed" = "$order" ] && near "$found_core" "$found_memory" 1000
}

put_back() {
    watts=$(printf '%d.%03d' "$found_core" "$found_memory")
    nvidia_smi -i "$address" -pl "$watts" || return 1
    freed=$order
}
)sh";

    NvmlRestorer restorer_;
    nvml::PowerLimitCalls calls_;
};
static_assert(RestorablePowerLimit<NvmlPowerLimit>);

}  // namespace kdvfs::inline v0_3::device
