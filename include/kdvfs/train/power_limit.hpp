// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/train/limit_search.hpp>
#include <kdvfs/detail/tune/block_schedule.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// Energy and time of one rank: as counters since any origin, or between two of their readings.
struct RankWindow {
    Joules energy;
    Seconds time;
};

/// The window of all ranks: their energies summed, the time of the slowest. A reading of one rank
/// that is no number makes the whole window none, whoever adds up.
inline RankWindow combine(std::span<const RankWindow> ranks) {
    RankWindow all{{0}, Seconds{0}};
    for (const RankWindow& rank : ranks) {
        all.energy += rank.energy;
        if (!(rank.time <= all.time)) all.time = rank.time;
        if (std::isnan(rank.time.count())) all.energy = {rank.time.count()};
    }
    return all;
}

struct PowerLimitOptions {
    Watts step{25};                   ///< between two limits
    std::size_t warmup_steps = 10;    ///< under a new limit before it is measured
    std::size_t measured_steps = 40;  ///< in a window
    LimitChoice choice = LimitChoice::cost();
    std::size_t ranks = 1;  ///< GPUs whose energies a window sums
};

/// Finds the best power limit while training goes on: says at each step which limit to set, and
/// measures some steps under it. A pure state machine: it touches no device (`PowerLimitGuard`
/// does) and knows no clock but the readings it is given.
///
///     train::PowerLimitGuard guard{device};
///     train::PowerLimit search{guard.range()};
///     for (each step) {
///         if (auto limit = search.begin_step({energy_counter(), now()})) guard.set(*limit);
///         train();
///     }
///     if (auto limit = search.end_epoch()) guard.set(*limit);
///
/// All ranks of one training run call it in step; not thread-safe.
class PowerLimit {
public:
    /// @throws Error (invalid_input) as `LimitSearch`, and for windows of no steps
    explicit PowerLimit(PowerRange range, const PowerLimitOptions& options = {})
        : search_{range, options.step, options.choice, options.ranks}, options_{options} {
        if (options.measured_steps > 0) return;
        throw Error{Errc::invalid_input,
                    {"search for a power limit", "windows of 0 steps", "nothing can be measured",
                     "measure some steps in a window"}};
    }

    /// Call before each training step, with this rank's counters, read when the steps before have
    /// ended. At the end of a window `combine_ranks` is called once, on every rank, with what this
    /// rank used, and returns what all did: an all-reduce, or nothing for a single process.
    /// @return the limit to set before the step, if it changes
    /// @throws Error (io) where readings make no sense three windows in a row
    template <std::invocable<RankWindow> Combine>
    std::optional<Watts> begin_step(const RankWindow& counters, Combine&& combine_ranks) {
        ++epoch_steps_;
        if (is_done_) return std::nullopt;
        if (windows_.is_idle()) return start_next(counters);
        windows_.pass(1);
        if (windows_.is_idle()) return close_window(counters, combine_ranks(difference(counters)));
        if (windows_.begins_measuring()) opened_ = counters;
        return std::nullopt;
    }
    std::optional<Watts> begin_step(const RankWindow& counters) {
        return begin_step(counters, [](const RankWindow& own) { return own; });
    }

    /// Call at the end of each epoch: a window that it cuts is discarded, since what comes between
    /// epochs is other work.
    /// @return the limit to set meanwhile, if it changes: the best one known, else the highest
    /// @throws Error (invalid_input) after two epochs in a row that are too short for any window
    std::optional<Watts> end_epoch() {
        const std::size_t steps = std::exchange(epoch_steps_, 0);
        if (is_done_) return std::nullopt;
        if (!windows_.is_idle() && windows_.is_measured()) ++discarded_;
        windows_.cut();
        const std::size_t needed = options_.warmup_steps + options_.measured_steps + 1;
        short_epochs_ = steps < needed ? short_epochs_ + 1 : 0;
        if (short_epochs_ == 2) fail_short(steps, needed);
        return change_to(search_.best().value_or(search_.limits().back()));
    }

    /// Whether the best limit has been found and is the one to keep.
    [[nodiscard]] bool is_done() const { return is_done_; }
    /// The best limit of those measured so far.
    [[nodiscard]] std::optional<Watts> best() const { return search_.best(); }
    /// What was measured, from the lowest limit; windows are of `measured_steps` steps.
    [[nodiscard]] std::vector<LimitWindow> profile() const { return search_.windows(); }
    /// How many windows were cut by an epoch's end or had readings that make no sense.
    [[nodiscard]] std::size_t discarded() const { return discarded_; }

    /// What an epoch costs at the best limit in the sense of the choice, exactly as measured.
    /// @pre a limit has been measured
    [[nodiscard]] double epoch_cost(std::size_t steps_per_epoch) const {
        for (const LimitWindow& window : search_.windows())
            if (window.limit == *search_.best())
                return search_.value(window) * static_cast<double>(steps_per_epoch) /
                       static_cast<double>(options_.measured_steps);
        return 0;
    }

private:
    std::optional<Watts> change_to(Watts limit) {
        if (current_ == limit) return std::nullopt;
        current_ = limit;
        return limit;
    }

    std::optional<Watts> start_next(const RankWindow& counters) {
        const auto limit = search_.next();
        if (!limit) {
            is_done_ = true;
            return change_to(*search_.best());
        }
        measured_limit_ = *limit;
        windows_.add_alone(*limit, options_.warmup_steps, options_.measured_steps);
        opened_ = counters;
        return change_to(*limit);
    }

    [[nodiscard]] RankWindow difference(const RankWindow& counters) const {
        return {counters.energy - opened_.energy, counters.time - opened_.time};
    }

    std::optional<Watts> close_window(const RankWindow& counters, const RankWindow& all) {
        const auto is_positive = [](double value) { return std::isfinite(value) && value > 0; };
        if (!is_positive(all.energy.count) || !is_positive(all.time.count())) {
            ++discarded_;
            if (++senseless_ == 3) fail_senseless(all);
            windows_.add_alone(measured_limit_, 0, options_.measured_steps);
            opened_ = counters;
            return std::nullopt;
        }
        senseless_ = 0;
        search_.add({measured_limit_, all.energy, all.time});
        return start_next(counters);
    }

    [[noreturn]] void fail_senseless(const RankWindow& all) const {
        throw Error{Errc::io,
                    {"measure a power limit", std::to_string(measured_limit_.count) + " W",
                     std::to_string(all.energy.count) + " J in " +
                         std::to_string(all.time.count()) + " s, the third such window",
                     "check the energy counter and the clock of every rank"}};
    }

    [[noreturn]] static void fail_short(std::size_t steps, std::size_t needed) {
        throw Error{Errc::invalid_input,
                    {"measure a power limit", "an epoch of " + std::to_string(steps) + " steps",
                     "a window takes " + std::to_string(needed),
                     "use fewer warm-up and measured steps, or end the epoch less often"}};
    }

    LimitSearch search_;
    PowerLimitOptions options_;
    tune::detail::BlockSchedule<Watts, std::size_t> windows_{search_.limits().back()};
    bool is_done_ = false;
    std::optional<Watts> current_;  ///< the limit asked for last
    Watts measured_limit_{};
    std::size_t epoch_steps_ = 0;  ///< of this epoch
    std::size_t short_epochs_ = 0;
    std::size_t senseless_ = 0;
    std::size_t discarded_ = 0;
    RankWindow opened_{};
};

/// Sets power limits and leaves the one behind that it found, unless somebody else has changed it
/// meanwhile: then theirs stays. In a forked child it does nothing. Not thread-safe. On a real
/// board the device is an `OwnedPowerLimit`, which also puts the limit back when the process dies.
template <PowerLimitControl Device>
class [[nodiscard]] PowerLimitGuard {
public:
    /// @param device must outlive the guard
    /// @throws Error as the device
    [[nodiscard]] explicit PowerLimitGuard(Device& device)
        : device_{device}, found_{device.read_power_limit()}, own_{found_} {}
    PowerLimitGuard(const PowerLimitGuard&) = delete;
    PowerLimitGuard& operator=(const PowerLimitGuard&) = delete;
    ~PowerLimitGuard() {
        try {
            close();
        } catch (...) {  // the throwing twin is close()
        }
    }

    [[nodiscard]] PowerRange range() const { return device_.power_limit_range(); }
    /// The limit that will be left behind.
    [[nodiscard]] Watts found() const { return found_; }

    /// Sets a limit and reads it back.
    /// @throws Error (refused) where the board holds another limit afterwards, and as the device
    void set(Watts limit) {
        if (!is_owner() || (own_.size() == 1 && is_same(limit, own_.front()))) return;
        changed_ = true;  // armed first: a throw half-way restores, too
        own_.push_back(limit);
        device_.set_power_limit(limit);
        const Watts held = device_.read_power_limit();
        own_ = {held};
        if (is_same(held, limit)) return;
        throw Error{Errc::refused,
                    {"set the power limit to " + text(limit), "the board", "it holds " + text(held),
                     "run with the rights to set power limits, or choose a limit in its range"}};
    }

    /// Puts the found limit back. The throwing twin of the destructor; once it is back, a second
    /// call does nothing.
    /// @throws Error (external_change) where somebody else's limit was found and left, (refused)
    ///         where the board does not take the old one, and as the device
    void close() {
        if (!is_owner() || !changed_) return;
        const Watts held = device_.read_power_limit();
        const bool is_own = std::any_of(own_.begin(), own_.end(),
                                        [&](Watts limit) { return is_same(held, limit); });
        changed_ = is_own && !is_same(held, found_);
        if (is_same(held, found_)) return;
        if (!is_own) {
            throw Error{Errc::external_change,
                        {"restore the power limit of " + text(found_), "the board",
                         "it holds " + text(held) + ", set by somebody else", ""}};
        }
        device_.set_power_limit(found_);
        const Watts restored = device_.read_power_limit();
        own_ = {restored};
        changed_ = !is_same(restored, found_);
        if (!changed_) return;
        throw Error{Errc::refused,
                    {"restore the power limit of " + text(found_), "the board",
                     "it holds " + text(restored), "set it by hand"}};
    }

private:
    /// Firmware rounds to whole watts at worst.
    static bool is_same(Watts a, Watts b) { return std::abs(a.count - b.count) <= 1; }
    static std::string text(Watts power) { return std::to_string(power.count) + " W"; }
    [[nodiscard]] bool is_owner() const { return ::getpid() == owner_; }

    Device& device_;
    Watts found_;
    /// The limit that was read back last, and those written since by sets that threw: the board
    /// holds one of them.
    std::vector<Watts> own_;
    bool changed_ = false;
    pid_t owner_ = ::getpid();
};

}  // namespace kdvfs::inline v0_3::train
