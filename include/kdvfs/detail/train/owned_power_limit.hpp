// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/train/power_limit.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
#include <cstdint>
#include <utility>

#include <sys/types.h>

namespace kdvfs::inline v0_3::train {
namespace detail {

/// A power limit in the terms of restore records, which hold a mode and four numbers: its whole
/// watts stand where a core clock would, the milliwatts beyond them where a memory clock would, and
/// the microwatts beyond those where the lowest core clock would. It has a record and a lock of its
/// own beside those of the board's clocks.
template <RestorablePowerLimit Device>
class LimitAsState {
public:
    explicit LimitAsState(Device& device) : device_{&device}, info_{device.info()} {
        info_.address += suffix;
    }
    static constexpr const char* suffix = "-power";

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return none_; }
    [[nodiscard]] ClockState read_clock_state() { return state_of(device_->read_power_limit()); }
    void apply(ClockPoint limit) { device_->set_power_limit({1.0 * limit.core.count}); }
    /// To the last microwatt.
    void restore(const ClockState& state) {
        device_->set_power_limit({1.0 * state.cap.core.count + 1e-3 * state.cap.memory.count +
                                  1e-6 * state.floor.core.count});
    }
    [[nodiscard]] RestoreScript restore_script() const { return device_->restore_script(); }

    static ClockState state_of(Watts limit) {
        const auto microwatts = std::llround(limit.count * 1e6);
        const auto digits = [&](std::int64_t unit) {
            return Megahertz{static_cast<std::uint32_t>(microwatts / unit % 1000)};
        };
        ClockState state;
        state.mode = "power limit";
        state.cap = {{static_cast<std::uint32_t>(microwatts / 1'000'000)}, digits(1000)};
        state.floor.core = digits(1);
        return state;
    }

private:
    Device* device_;
    DeviceInfo info_;
    SupportedClocks none_{};
};

}  // namespace detail

/// `PowerLimitControl` that outlives its process, in the way of a GPU's clocks: one owner at a
/// time, a restore record before the first write, and a watchdog that puts back the limit that was
/// found, exactly. Sets whole watts otherwise.
template <RestorablePowerLimit Device>
class OwnedPowerLimit {
public:
    /// @param device must outlive this
    /// @throws Error (busy) naming the process that owns the limit already, (refused) where an
    ///         earlier record is not to be trusted, (io), and as the device
    explicit OwnedPowerLimit(Device& device)
        : OwnedPowerLimit{
              device, restore::RestorePlace::of_this_process(device.info().address + State::suffix,
                                                             restore::settings_file_of(device))} {}
    OwnedPowerLimit(Device& device, kdvfs::detail::RestorePlace place)
        : device_{device}, limit_{device}, owned_{limit_, std::move(place)} {
        found_ = owned_.read_clock_state();
    }

    [[nodiscard]] Watts read_power_limit() {
        static_cast<void>(owned_.read_clock_state());
        return device_.read_power_limit();
    }
    void set_power_limit(Watts limit) {
        const ClockState wanted = State::state_of(limit);
        if (wanted == found_)
            owned_.restore(found_);
        else
            owned_.apply({wanted.cap.core, auto_clock});
        static_cast<void>(owned_.read_clock_state());  // the record says what holds
    }
    [[nodiscard]] PowerRange power_limit_range() { return device_.power_limit_range(); }
    /// The watchdog's process id, in its own PID namespace; 0 while there is none.
    [[nodiscard]] pid_t watchdog() const { return owned_.watchdog(); }

private:
    using State = detail::LimitAsState<Device>;

    Device& device_;
    State limit_;
    kdvfs::detail::OwnedClocks<State> owned_;
    ClockState found_{};
};

/// The power limit of one board, whatever the board is. Not thread-safe.
class BoardPowerLimit {
public:
    BoardPowerLimit() = default;
    BoardPowerLimit(const BoardPowerLimit&) = delete;
    BoardPowerLimit& operator=(const BoardPowerLimit&) = delete;
    virtual ~BoardPowerLimit() = default;

    [[nodiscard]] virtual PowerRange range() const = 0;
    /// The limit that will be left behind.
    [[nodiscard]] virtual Watts found() const = 0;
    /// @throws Error as `PowerLimitGuard::set`
    virtual void set(Watts limit) = 0;
    /// Puts the found limit back; the destructor does so without throwing.
    /// @throws Error as `PowerLimitGuard::close`
    virtual void close() = 0;
};

/// Of a device that ends with this process, as a simulated one.
template <PowerLimitControl Device>
class GuardedPowerLimit final : public BoardPowerLimit {
public:
    /// @param device must outlive this
    explicit GuardedPowerLimit(Device& device) : guard_{device} {}
    [[nodiscard]] PowerRange range() const override { return guard_.range(); }
    [[nodiscard]] Watts found() const override { return guard_.found(); }
    void set(Watts limit) override { guard_.set(limit); }
    void close() override { guard_.close(); }

private:
    PowerLimitGuard<Device> guard_;
};

/// With a restore record and a watchdog, of a board that outlives this process.
template <RestorablePowerLimit Device>
class OwnedBoardPowerLimit final : public BoardPowerLimit {
public:
    /// @param arguments of the device's constructor
    /// @throws Error as the device and `OwnedPowerLimit`
    template <class... Arguments>
    explicit OwnedBoardPowerLimit(const Arguments&... arguments) : device_{arguments...} {}
    [[nodiscard]] PowerRange range() const override { return guard_.range(); }
    [[nodiscard]] Watts found() const override { return guard_.found(); }
    void set(Watts limit) override { guard_.set(limit); }
    void close() override { guard_.close(); }

private:
    Device device_;
    OwnedPowerLimit<Device> owned_{device_};
    PowerLimitGuard<OwnedPowerLimit<Device>> guard_{owned_};
};

}  // namespace kdvfs::inline v0_3::train

namespace kdvfs::inline v0_3::train {
using detail::LimitAsState;
}  // namespace kdvfs::inline v0_3::train
