// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/amd/amd_smi.hpp>
#include <kdvfs/device/amd/capped_clocks.hpp>
#include <kdvfs/device/amd/card.hpp>
#include <kdvfs/device/amd/clock_writer.hpp>
#include <kdvfs/device/amd/gpu_metrics.hpp>
#include <kdvfs/device/amd/prepared_points.hpp>
#include <kdvfs/device/amd/rocm_smi.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>

namespace kdvfs::device {
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
        : CappedClocks{card, std::make_unique<amd::SysfsWriter>(card)}, MetricsFile{card} {
        const amd::PreparedPoints points{card};
        say(counts_by(), points.read_operating_point(), points.prepared_points());
    }

    /// @throws Error (not_supported) where there is no such GPU.
    explicit AmdgpuSysfs(amd::PciAddress address) : AmdgpuSysfs{amd::find_card(address)} {}

    [[nodiscard]] std::string read_operating_point() const {
        return amd::PreparedPoints{card()}.read_operating_point();
    }

    /// Tries the clocks (see `CappedClocks::probe`) and the counter.
    /// @throws Error with the driver's answer where no way to set clocks works
    amd::Capabilities probe() {
        amd::Capabilities found = CappedClocks::probe();
        found.energy = energy_capability();
        return found;
    }
};

static_assert(ClockControl<amd::Clocks> && Restorable<amd::Clocks> && ProbedControl<amd::Clocks>);
static_assert(ClockControl<AmdgpuSysfs> && EnergySource<AmdgpuSysfs>);
static_assert(OperatingPointSource<AmdgpuSysfs> && SwitchesPreparedPoints<amd::Clocks>);

}  // namespace kdvfs::device
