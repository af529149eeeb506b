// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/device/amd/amd_smi.hpp>
#include <kdvfs/detail/device/amd/board_processes.hpp>
#include <kdvfs/detail/device/amd/capped_clocks.hpp>
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/detail/device/amd/rocm_smi.hpp>
#include <kdvfs/detail/device/amd/settable_clocks.hpp>
#include <kdvfs/detail/device/amd/system_files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::device::amd {

/// The prepared operating points of an AMD board (AMPP), in the files of its driver, app_modes:
/// `active_profile` tells the number of the one that holds and takes the number of another; a
/// folder `profile_N` with files in it is one that can be asked for. This is what AMD SMI 27.2
/// reads and writes (rocm_smi_ampp.cc, `rsmi_dev_ampp_profile_activate`); no library is needed.
/// Switching needs root, or a file that this user may write. What is in a point is never changed.
class PreparedPoints {
public:
    explicit PreparedPoints(const Card& card)
        : folder_{card.folder + "/app_modes/"}, object_{to_string(card)} {
        info_.name = card.name;
        info_.address = to_string(card.address) + "-point";
        info_.architecture = card.architecture;
        info_.mechanism = "amdgpu app_modes";
    }

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return none_; }

    /// The slots that are filled: one whose folder is empty has never been configured. None where
    /// the driver shows no points.
    [[nodiscard]] std::vector<PreparedPoint> prepared_points() const {
        constexpr std::string_view prefix = "profile_";
        std::vector<PreparedPoint> points;
        for (const std::string& name : detail::names_in(folder_)) {
            if (!name.starts_with(prefix)) continue;
            const auto point = number(std::string_view{name}.substr(prefix.size()));
            if (point && !detail::names_in(folder_ + name).empty()) points.push_back(*point);
        }
        std::sort(points.begin(), points.end(),
                  [](PreparedPoint a, PreparedPoint b) { return a.number < b.number; });
        return points;
    }

    /// The point that holds, and what is in it: "profile 2 (ppt0_limit 600)"; empty where it cannot
    /// be read.
    [[nodiscard]] std::string read_operating_point() const {
        const std::string held = detail::first_line(active());
        if (held.empty()) return {};
        const std::string profile = folder_ + "profile_" + held;
        std::string fields;
        for (const std::string& field : detail::names_in(profile)) {
            const std::string value = detail::first_line(profile + "/" + field);
            if (!value.empty()) fields += (fields.empty() ? "" : ", ") + field + " " + value;
        }
        return "profile " + held + (fields.empty() ? "" : " (" + fields + ")");
    }

    [[nodiscard]] static ClockState state_of(PreparedPoint point) {
        return operating_point_state(point.number);
    }

    /// @throws Error where the file cannot be read, or says no number
    [[nodiscard]] ClockState read_clock_state() const {
        const FileText file = read_file(active());
        if (file.error != 0) {
            throw file_error("read the operating point", object_, active(), file.error);
        }
        const auto held = number(detail::trimmed(file.text));
        if (!held) {
            throw Error{Errc::io,
                        {"read the operating point", object_,
                         active() + " says '" + file.text.substr(0, 60) + "'",
                         "the GPU may be in reset; see the kernel log"}};
        }
        return state_of(*held);
    }

    void apply(ClockPoint wanted) {
        const PreparedPoint point{wanted.core.count};
        const auto points = prepared_points();
        if (std::find(points.begin(), points.end(), point) == points.end()) {
            throw Error{Errc::invalid_input,
                        {"switch to " + to_string(point), object_, "the board has no such point",
                         "ask for one of info().prepared_points"}};
        }
        switch_to(point);
    }
    /// To any slot: the one that was found may never have been filled.
    void restore(const ClockState& state) { switch_to({state.cap.core.count}); }

    [[nodiscard]] RestoreScript restore_script() const {
        return {"amdgpu-point", restore_functions, {active()}};
    }
    /// Whoever may write to it may switch the point.
    [[nodiscard]] std::string settings_file() const { return active(); }

private:
    // Words: the file. A point is seen as its number.
    static constexpr const char* restore_functions = R"sh(
active=$1

see() {
    seen=
    read -r seen < "$active" || [ -n "$seen" ]
}

holds() { [ "$seen" = "$held_core" ]; }

is_back() { [ "$seen" = "$found_core" ]; }

put_back() { printf %s "$found_core" > "$active"; }
)sh";

    [[nodiscard]] std::string active() const { return folder_ + "active_profile"; }

    static std::optional<PreparedPoint> number(std::string_view text) {
        constexpr std::uint32_t most = 9999;  // no board has so many; restore records take it
        PreparedPoint point;
        const auto [end, error] =
            std::from_chars(text.data(), text.data() + text.size(), point.number);
        const bool whole = error == std::errc{} && end == text.data() + text.size();
        return whole && point.number <= most ? std::optional{point} : std::nullopt;
    }

    void switch_to(PreparedPoint point) const {
        if (const int error = write_file(active(), std::to_string(point.number))) {
            throw file_error("switch to " + to_string(point), object_, active(), error);
        }
    }

    std::string folder_;
    std::string object_;
    DeviceInfo info_{};
    SupportedClocks none_{};
};

static_assert(PreparedPointControl<PreparedPoints> && Restorable<PreparedPoints>);

}  // namespace kdvfs::inline v0_3::device::amd

namespace kdvfs::inline v0_3::device {
namespace amd {

/// Sets the clocks of an AMD GPU through ROCm SMI, else AMD SMI, else the driver's files, or
/// through the one that is asked for; `info` says which, and why not another.
class Clocks : public CappedClocks {
public:
    explicit Clocks(const Card& card, ClockPath path = ClockPath::best)
        : CappedClocks{card, std::make_unique<SysfsWriter>(card)}, path_{path} {}

    /// Chooses the path, by trying: the first by which clocks can be set (see
    /// `CappedClocks::probe`), and by which the two domains do not disturb one another if one of
    /// them is like that.
    /// @throws Error where none works
    Capabilities probe() {
        std::string refusals;
        for (const Candidate& candidate : candidates) {
            const bool is_last = candidate.path == ClockPath::driver_files;
            if (path_ != ClockPath::best && path_ != candidate.path) continue;
            try {
                write_by(candidate.open(card()));
                const Capabilities found = CappedClocks::probe();
                const bool disturbs =
                    found.memory == Capability::supported && found.both != Capability::supported;
                if (!disturbs || is_last || path_ != ClockPath::best) {
                    if (!refusals.empty()) add_to_mechanism(" (" + refusals + ")");
                    return found;
                }
                add(refusals, candidate, "a limit of the memory clock undoes the core's");
            } catch (const Error& error) {
                if (is_last || path_ != ClockPath::best) throw;
                add(refusals, candidate, error.text().vendor_words);
            }
        }
        throw Error{Errc::invalid_input,
                    {"set the clocks", to_string(info()), "there is no such ClockPath", ""}};
    }

    /// Switched by the driver's file, whichever path clocks take.
    [[nodiscard]] std::unique_ptr<PreparedPoints> open_prepared_points() const {
        return std::make_unique<PreparedPoints>(card());
    }

private:
    struct Candidate {
        ClockPath path;
        std::string_view name;
        std::unique_ptr<ClockWriter> (*open)(const Card&);
    };

    /// The libraries ask for root themselves, once they have started.
    template <class Writer>
    static std::unique_ptr<ClockWriter> open_library(const Card& card) {
        if (::geteuid() != 0) {
            throw Error{Errc::refused,
                        {"set the clocks through a library", to_string(card), "not root",
                         "run as root, or use ClockPath::driver_files"}};
        }
        return std::make_unique<Writer>(card);
    }
    static std::unique_ptr<ClockWriter> open_files(const Card& card) {
        return std::make_unique<SysfsWriter>(card);
    }

    static void add(std::string& refusals, const Candidate& candidate, const std::string& words) {
        refusals += (refusals.empty() ? "" : "; ") + std::string{candidate.name} + ": " + words;
    }

    static constexpr std::array<Candidate, 3> candidates{
        {{ClockPath::rocm_smi, "rocm_smi", &open_library<rocm_smi::Writer>},
         {ClockPath::amd_smi, "amd_smi", &open_library<amd_smi::Writer>},
         {ClockPath::driver_files, "amdgpu sysfs", &open_files}}};

    ClockPath path_;
};

}  // namespace amd

/// An AMD GPU straight on the files of its driver: no library, and no root where the files allow
/// it. Opening it reads only; `probe` tries the clocks.
class AmdgpuSysfs : public amd::CappedClocks, public amd::MetricsFile {
public:
    explicit AmdgpuSysfs(const amd::Card& card)
        : CappedClocks{card, std::make_unique<amd::SysfsWriter>(card)},
          MetricsFile{card},
          processes_{card} {
        const amd::PreparedPoints points{card};
        say(counts_by(), points.read_operating_point(), points.prepared_points());
    }

    /// @throws Error (not_supported) where there is no such GPU.
    explicit AmdgpuSysfs(io::PciAddress address) : AmdgpuSysfs{amd::find_card(address)} {}

    [[nodiscard]] std::string read_operating_point() const {
        return amd::PreparedPoints{card()}.read_operating_point();
    }

    /// For one thread.
    [[nodiscard]] OtherProcesses read_other_processes() { return processes_.read(); }

    /// Tries the clocks (see `CappedClocks::probe`) and the counter.
    /// @throws Error with the driver's answer where no way to set clocks works
    amd::Capabilities probe() {
        amd::Capabilities found = CappedClocks::probe();
        found.energy = energy_capability();
        return found;
    }

private:
    amd::BoardProcesses processes_;
};

static_assert(ClockControl<amd::Clocks> && Restorable<amd::Clocks> && ProbedControl<amd::Clocks>);
static_assert(ClockControl<AmdgpuSysfs> && EnergySource<AmdgpuSysfs>);
static_assert(ListsProcesses<AmdgpuSysfs>);
static_assert(OperatingPointSource<AmdgpuSysfs> && SwitchesPreparedPoints<amd::Clocks>);

}  // namespace kdvfs::inline v0_3::device
