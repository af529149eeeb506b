// SPDX-License-Identifier: MIT
#pragma once

#include "switch_bench.hpp"

#include <kdvfs/rocm.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <utility>

/// An AMD GPU: its clocks under lock, restore record and watchdog, its streams through HIP.
class AmdBench final : public SwitchBench {
public:
    /// Enqueues one iteration of so many steps.
    using Launch = std::function<void(hipStream_t stream, unsigned steps)>;

    AmdBench(int hip_device, Launch launch, IterationSettings settings)
        : card_{card_of(hip_device)},
          runtime_{hip_device},
          stream_{hip_device},
          launch_{std::move(launch)},
          iterations_{runtime_,
                      proven(card_.clocks),
                      {.stream = stream_.get(),
                       .launch = [this] { launch_(stream_.get(), steps_); },
                       .pass = [](kdvfs::Duration time) { std::this_thread::sleep_for(time); }},
                      settings} {}

    /// Makes an iteration last about this long at the clock that holds now.
    void calibrate(kdvfs::Duration target) {
        for (int round = 0; round < 3; ++round) {
            const kdvfs::Seconds time = iterations_.time_iteration();
            const double factor = kdvfs::Seconds{target} / time;
            steps_ = static_cast<unsigned>(std::clamp(std::round(steps_ * factor), 1.0, 1e8));
        }
    }

    [[nodiscard]] const kdvfs::DeviceInfo& info() const override { return card_.clocks.info(); }
    [[nodiscard]] const kdvfs::SupportedClocks& supported_clocks() const override {
        return card_.clocks.supported_clocks();
    }
    [[nodiscard]] kdvfs::measure::SwitchExperiment experiment() override {
        return {.steady = [this](auto clock) { return iterations_.steady(clock); },
                .change = [this](auto from, auto to) { return iterations_.change(from, to); },
                .progress = {}};
    }
    void restore() override { iterations_.restore(); }

private:
    using Owned = kdvfs::restore::OwnedClocks<kdvfs::device::amd::Clocks>;

    static Owned& proven(Owned& clocks) {
        static_cast<void>(kdvfs::extend::prove_clock_control(clocks));
        return clocks;
    }

    class OwnStream {
    public:
        explicit OwnStream(int hip_device) {
            const kdvfs::device::OnDevice<kdvfs::device::HipApi> current{hip_device};
            kdvfs::device::check<kdvfs::device::HipApi>(
                hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking), "make a stream",
                "HIP device");
        }
        OwnStream(const OwnStream&) = delete;
        OwnStream& operator=(const OwnStream&) = delete;
        ~OwnStream() { static_cast<void>(hipStreamDestroy(stream_)); }
        [[nodiscard]] hipStream_t get() const { return stream_; }

    private:
        hipStream_t stream_ = nullptr;
    };

    static kdvfs::device::amd::Card card_of(int hip_device) {
        const std::string at = kdvfs::device::pci_address<kdvfs::device::HipApi>(hip_device);
        const auto address = kdvfs::device::amd::parse_pci_address(at);
        if (!address) {
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"read the PCI address", "HIP device " + std::to_string(hip_device),
                                "HIP says '" + at + "'", ""}};
        }
        return kdvfs::device::amd::find_card(*address);
    }

    kdvfs::extend::OwnedDevice<kdvfs::device::amd::Clocks, Owned> card_;
    kdvfs::device::Hip runtime_;
    OwnStream stream_;
    Launch launch_;
    unsigned steps_ = 10'000;
    MarkedIterations<kdvfs::device::Hip, Owned> iterations_;
};
