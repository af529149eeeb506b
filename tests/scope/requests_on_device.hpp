// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/control/clock_controller.hpp>
#include <kdvfs/detail/control/votes.hpp>
#include <kdvfs/detail/gpu/merged_options.hpp>
#include <kdvfs/device/contracts.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

namespace kdvfs {

/// Random requests of random streams, by every policy, carried out on a device by a controller; and
/// what the device must hold for them, told in plain numbers. A device that refuses a command ends
/// the test.
template <ClockControl Device>
class RequestsOnDevice {
public:
    /// Upper limits in MHz; `top` is the device's highest clock, or that it is free.
    struct Held {
        std::uint64_t core = 0;
        std::uint64_t memory = 0;

        friend bool operator==(Held, Held) = default;
    };
    static constexpr std::uint64_t top = std::numeric_limits<std::uint64_t>::max();

    RequestsOnDevice(Device& device, const ControllerOptions& options, unsigned seed)
        : device_{device},
          options_{options},
          found_{device.read_clock_state()},
          controller_{requests_, "device", found_,
                      kdvfs::detail::on_listed_clocks(options, device.supported_clocks())},
          random_{seed} {}

    /// One stream asks for something else, or for nothing, or is protected.
    void step() {
        const TrackId track{below(4)};
        switch (below(8)) {
            case 0:  // nothing: no scope, or KeepClock
            case 1:
                asked_.erase(track.value);
                protected_.erase(track.value);
                controller_.withdraw(track, now_);
                break;
            case 2:
                protected_[track.value] = {.core = any(device_.supported_clocks().core)};
                controller_.protect(track, protected_[track.value], now_);
                break;
            case 3: ask(track, {}); break;  // AutoClock
            case 4: ask(track, {auto_clock, any(device_.supported_clocks().memory)}); break;
            case 5:
                ask(track,
                    {any(device_.supported_clocks().core), any(device_.supported_clocks().memory)});
                break;
            default: ask(track, {any(device_.supported_clocks().core), auto_clock});
        }
        settle();
    }
    void end() {
        controller_.release();
        settle();
    }

    /// What is to be held now; nothing: as found.
    [[nodiscard]] std::optional<Held> wanted() const {
        if (asked_.empty()) return std::nullopt;
        Held most{};
        const auto raise = [&](ClockPoint point) {
            most.core = std::max(most.core, number(point.core));
            most.memory = std::max(most.memory, number(point.memory));
        };
        for (const auto& [track, point] : asked_) raise(point);
        for (const auto& [track, point] : protected_) raise(point);
        const auto& clocks = device_.supported_clocks();
        const Held limited{
            limit(most.core, clocks.core, options_.never_below.core, options_.never_above.core),
            limit(most.memory, clocks.memory, options_.never_below.memory,
                  options_.never_above.memory)};
        if (options_.may_leave_found_limits) return limited;
        if (pins_clocks(found_)) return std::nullopt;
        // A range reaches at least 1 MHz above its floor.
        const std::uint64_t least = found_.floor.core.count > 0 ? found_.floor.core.count + 1 : 0;
        const Held held{std::min(std::max(limited.core, least), number(found_.cap.core)),
                        std::min(limited.memory, number(found_.cap.memory))};
        const bool as_found = held == Held{number(found_.cap.core), number(found_.cap.memory)};
        return as_found ? std::nullopt : std::optional{held};
    }
    [[nodiscard]] const ClockState& found() const { return found_; }
    [[nodiscard]] bool armed() const { return controller_.armed(); }
    [[nodiscard]] std::optional<Error> take_error() { return controller_.take_error(); }

private:
    static std::uint64_t number(Megahertz clock) { return clock == auto_clock ? top : clock.count; }
    /// The listed clocks nearest to a floor and a ceiling, on their inner sides.
    static std::uint64_t limit(std::uint64_t clock, const ClockDomain& domain, Megahertz floor,
                               Megahertz ceiling) {
        const auto& listed = domain.listed;
        if (listed.empty()) return top;
        if (floor != auto_clock) {
            std::uint64_t least = listed.back().count;
            for (const Megahertz each : listed) {
                if (each >= floor) least = std::min<std::uint64_t>(least, each.count);
            }
            if (domain.continuous) least = std::clamp(floor, listed.front(), listed.back()).count;
            clock = std::max(clock, least);
        }
        if (ceiling != auto_clock && ceiling <= listed.back()) {
            std::uint64_t most = listed.front().count;
            for (const Megahertz each : listed) {
                if (each <= ceiling) most = std::max<std::uint64_t>(most, each.count);
            }
            if (domain.continuous) most = std::max(ceiling, listed.front()).count;
            clock = std::min(clock, most);
        }
        return clock;
    }

    std::uint32_t below(std::uint32_t end) {
        return std::uniform_int_distribution<std::uint32_t>{0, end - 1}(random_);
    }
    Megahertz any(const ClockDomain& domain) {
        if (domain.listed.empty()) return auto_clock;
        if (!domain.continuous) {
            return domain.listed[below(static_cast<std::uint32_t>(domain.listed.size()))];
        }
        const auto [low, high] = std::pair{domain.listed.front().count, domain.listed.back().count};
        return Megahertz{low + below(high - low + 1)};
    }

    void ask(TrackId track, ClockPoint point) {
        asked_[track.value] = point;
        controller_.request(track, point, now_);
    }

    void settle() {
        now_ += std::chrono::milliseconds{below(200)};
        for (int turn = 0; turn < 100; ++turn) {
            const auto command = controller_.next_command(now_);
            if (!command) return;
            controller_.completed(execute(device_, *command), now_);
        }
        throw std::logic_error{"the controller never comes to rest"};
    }

    Device& device_;
    ControllerOptions options_;
    ClockState found_;
    kdvfs::detail::RequestTable requests_;
    kdvfs::detail::ClockController controller_;
    std::mt19937 random_;
    std::map<std::uint32_t, ClockPoint> asked_;
    std::map<std::uint32_t, ClockPoint> protected_;
    TimePoint now_{};
};

/// The program's and the site's limits that random requests are tried with, on lists or off.
inline std::vector<ControllerOptions> random_limits() {
    std::vector<ControllerOptions> all(6);
    all[1].never_above = {Megahertz{1234}, auto_clock};
    all[2].never_below = {Megahertz{777}, Megahertz{950}};
    all[3] = {.never_below = {Megahertz{601}, auto_clock},
              .never_above = {Megahertz{1111}, Megahertz{1150}}};
    all[4] = {.never_above = {Megahertz{1234}, auto_clock}, .may_leave_found_limits = true};
    all[5] = {.never_below = {Megahertz{9000}, auto_clock},
              .never_above = {Megahertz{9999}, Megahertz{9999}}};
    return all;
}

/// How many random requests a test makes of each state that is found.
inline int random_requests() { return std::getenv("KDVFS_SOAK") != nullptr ? 20'000 : 100; }

}  // namespace kdvfs
