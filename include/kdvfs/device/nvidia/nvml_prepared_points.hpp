// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/nvidia/nvml_library.hpp>
#include <kdvfs/device/nvidia/nvml_readings.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::device {

/// The workload power profiles of an NVIDIA board. A profile is asked for alone, in place of all
/// that were asked for before, by one call (nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1, set
/// and overwrite, which NVML's reference of R590 has); what was asked for when this object was made
/// is what goes back. The board itself arbitrates: the profile that is enforced may be another one.
/// Needs root, or the capability that the administrator gives out for it.
///
/// In a clock state the profiles that are asked for are bits where a core clock would stand: those
/// below `most_prepared_points`.
class NvmlPreparedPoints : public NvmlReadings {
public:
    /// Reads only.
    /// @param restorer what a watchdog puts profiles back with: nvidia-smi
    /// @throws Error as `NvmlReadings`
    NvmlPreparedPoints(const std::string& address, const std::string& library_path,
                       std::string restorer)
        : NvmlReadings{address, library_path},
          restorer_{std::move(restorer)},
          update_{library().find_update_power_profiles()} {
        info_.address += "-point";
        info_.mechanism = "NVML workload power profiles";
        if (info_.prepared_points.empty()) return;
        found_ = requested();
    }

    [[nodiscard]] std::vector<PreparedPoint> prepared_points() const {
        return info_.prepared_points;
    }
    /// None: these are no clocks.
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return none_; }

    [[nodiscard]] static ClockState state_of(PreparedPoint point) {
        return state_of_bits(1U << point.number % 32);
    }
    /// @throws Error with NVML's words, (not_supported) where somebody asks for a profile above 15
    [[nodiscard]] ClockState read_clock_state() const { return state_of_bits(requested()); }

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
        return {"nvml-point", restore_functions, {restorer_, address, list(all), list(found_)}};
    }

private:
    // Words: nvidia-smi, the PCI address, the numbers of all profiles, those to put back. It is not
    // asked what holds: what the record says is held is cleared, all where a write was under way.
    static constexpr const char* restore_functions = R"sh(
restorer=$1 address=$2 all=$3 wanted=$4 freed=

see() { :; }

holds() { :; }

is_back() { [ "$freed" = "$order" ]; }

put_back() {
    clear=$all
    if [ "$held" = state ]; then
        clear= bit=0
        while [ $bit -lt 16 ]; do
            [ $((held_core >> bit & 1)) = 0 ] || clear=${clear:+$clear,}$bit
            bit=$((bit + 1))
        done
    fi
    [ -z "$clear" ] || "$restorer" power-profiles -i "$address" -cr "$clear" || return 1
    [ -z "$wanted" ] || "$restorer" power-profiles -i "$address" -sr "$wanted" || return 1
    freed=$order
}
)sh";

    static ClockState state_of_bits(std::uint32_t bits) {
        ClockState state;
        state.mode = "operating point";
        state.cap.core = {bits};
        return state;
    }

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

    std::string restorer_;
    nvml::UpdatePowerProfiles update_;
    SupportedClocks none_{};
    std::uint32_t found_ = 0;  ///< what was asked for, as bits
};

static_assert(PreparedPointControl<NvmlPreparedPoints> && Restorable<NvmlPreparedPoints>);

}  // namespace kdvfs::device
