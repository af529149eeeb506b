// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/power_limit.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <iterator>
#include <limits>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// A temperature of a GPU, and how old the reading is.
struct GpuTemperature {
    double celsius = 0;
    Seconds age{0};
};

/// One iteration of one GPU of a node whose GPUs wait for each other once an iteration.
struct GpuIteration {
    Seconds compute{0};  ///< of its own work
    Seconds waited{0};   ///< in collectives, the transfer included
    Watts power{};       ///< mean while it computed
    std::optional<GpuTemperature> temperature{};
};

/// What moving watts between the GPUs of a node would give.
struct NodeForecast {
    std::size_t slowest = 0;     ///< the GPU that the others wait for
    double faster = 0;           ///< speed at the same watts, relative: 0.04 is 4 % more
    double saved = 0;            ///< watts at the same speed, relative
    std::vector<Watts> speed{};  ///< of each GPU, for `faster`
    std::vector<Watts> power{};  ///< of each GPU, for `saved`
};

/// What is to be had by moving watts between the GPUs of a node.
enum class NodeGoal {
    speed,  ///< the shortest iteration under the same sum of limits
    power,  ///< the least sum of limits at the iteration time found
};

struct NodePowerOptions {
    Watts cap{};  ///< of the sum of all limits; 0: the sum of the limits found
    NodeGoal goal = NodeGoal::speed;
    std::size_t window = 8;  ///< iterations whose median one decision uses
    std::size_t settle = 2;  ///< iterations discarded after limits have changed
    /// A GPU that computes 1 % longer than the others gets so many percent more watts. Stable where
    /// 1 % more watts shorten the compute time by less than 2 / gain percent.
    double gain = 1;
    double largest_change = 0.05;  ///< of a limit, in one decision
    double deadband = 0.003;       ///< relative differences of compute time that change nothing
    /// A GPU that draws less than this share of its limit is not held by the limit, and gets no
    /// more watts. An assumption: means over a computation stay below a limit that clips its peaks.
    double limited_above = 0.8;
    /// A GPU as hot as this gets no more watts. Neither does one whose temperature was known and is
    /// older than `stale_after`.
    double hottest_celsius = std::numeric_limits<double>::infinity();
    Seconds stale_after{10};
    unsigned tries = 3;             ///< of a limit that fails, before the GPU's limit is left alone
    std::size_t retry_after = 100;  ///< iterations for which it is
};

/// A GPU as it was found.
struct NodeGpu {
    PowerRange range{};
    Watts limit{};
};

/// One write to a board: the next may come when this one has been read back.
struct LimitWrite {
    std::size_t gpu = 0;
    Watts limit{};

    friend bool operator==(const LimitWrite&, const LimitWrite&) = default;
};

/// Moves watts between the GPUs of a node to those that the others wait for, by their limits. A
/// pure state machine: it touches no device (`NodePowerGuard` does) and knows no clock.
///
/// The sum of the limits that the boards may hold is never above the cap, but for what a board
/// rounds a limit up until that is read back: a limit that was written counts as held until another
/// one is read back, a limit is raised by no more than what others were read back to have given up,
/// and a GPU that does not answer keeps its watts. This assumes that a board whose limit comes late
/// takes the one written last. Where the limits found sum up to more than the cap, they are lowered
/// first.
///
/// Compute times are compared by the median of a window, among the GPUs that reported at least half
/// of it. Not thread-safe.
class NodePower {
public:
    /// @throws Error (invalid_input) for fewer than two GPUs, limits out of range, options of 0,
    ///         and a cap below the sum of the lowest limits
    explicit NodePower(std::span<const NodeGpu> gpus, const NodePowerOptions& options = {});

    /// Call after each iteration with what each GPU did; nothing for a GPU that has not reported in
    /// time. Values that are no numbers count as not reported.
    /// @throws Error (invalid_input) for another number of GPUs
    void add_iteration(std::span<const std::optional<GpuIteration>> iterations);

    /// The write to make now: set this limit, read it back, and say so by `written()`. Nothing
    /// until the next iteration. Lowers come before raises.
    [[nodiscard]] std::optional<LimitWrite> next_write();

    /// The answer to `next_write()`.
    /// @param read_back the limit that the board holds now; nothing where it does not answer
    void written(std::optional<Watts> read_back);

    /// Takes the limit that a board holds, read at any other time. Where somebody else has raised
    /// it, or a reset has, it is left alone from then on, and the others are lowered.
    void observe(std::size_t gpu, Watts held);

    [[nodiscard]] std::size_t size() const { return gpus_.size(); }
    [[nodiscard]] Watts cap() const { return options_.cap; }
    /// The limit that was read back last.
    [[nodiscard]] Watts limit(std::size_t gpu) const { return {gpus_.at(gpu).held}; }
    /// The highest sum of limits that the boards may hold.
    [[nodiscard]] Watts highest_sum() const;
    /// How often limits were moved.
    [[nodiscard]] std::size_t decisions() const { return decisions_; }
    /// How many writes did not take.
    [[nodiscard]] std::size_t refused() const { return refused_; }
    /// How many GPUs' limits are left alone now.
    [[nodiscard]] std::size_t left_alone() const;

private:
    static constexpr double same_limit = 1;    // W: firmware rounds to whole watts at worst
    static constexpr double least_change = 1;  // W

    struct Gpu {
        PowerRange range{};
        double found = 0;
        double held = 0;     // read back last
        double highest = 0;  // that it may hold
        double target = 0;
        std::vector<double> times{};
        std::vector<double> powers{};
        bool may_rise = true;
        bool had_temperature = false;
        unsigned failures = 0;
        std::size_t left_alone_until = 0;
    };
    /// A GPU that takes part in a decision.
    struct Part {
        Gpu* gpu = nullptr;
        double time = 0;
        double power = 0;
    };

    static void check(bool holds, const std::string& what, const std::string& remedy);

    static bool is_usable(const GpuIteration& iteration);

    [[nodiscard]] bool is_left_alone(const Gpu& gpu) const;

    void look_at(Gpu& gpu, const std::optional<GpuIteration>& iteration) const;

    [[nodiscard]] bool may_rise(const Part& part) const;

    static double median(std::vector<double>& values);

    std::optional<LimitWrite> begin_write(std::size_t gpu, double limit);

    /// Scales the targets to what the cap leaves beside the GPUs that are left alone.
    void fit_targets();

    void set_targets(const std::vector<Part>& parts, const std::vector<double>& weights,
                     const std::vector<PowerRange>& bounds);

    void decide();

    NodePowerOptions options_;
    std::vector<Gpu> gpus_;
    std::optional<LimitWrite> pending_;
    std::optional<double> kept_time_;  // s, of `NodeGoal::power`
    std::size_t iteration_ = 0;
    std::size_t rounds_ = 0;    // iterations of this window
    std::size_t settling_ = 0;  // iterations that are discarded yet
    std::size_t decisions_ = 0;
    std::size_t refused_ = 0;
};

/// Predicts from one iteration of each GPU, without setting anything: compute time falls with watts
/// as watts^(-1 / exponent). Waiting shrinks to what the slowest GPU waits.
/// @param ranges of the limits
/// @param exponent of watts by clock: 2.2 as found for compute-bound kernels above the voltage's
///        knee, where all of the compute time follows the clock: an upper end (assumption)
/// @throws Error (invalid_input) where a GPU has no compute time or no power
KDVFS_INLINE NodeForecast forecast_node(std::span<const GpuIteration> gpus,
                                        std::span<const PowerRange> ranges, double exponent = 2.2);

/// Sets the limits that a `NodePower` asks for, and leaves those behind that it found, lowering
/// before it raises.
///
///     using Limit = train::OwnedPowerLimit<device::NvmlPowerLimit>;
///     train::NodePowerGuard<Limit> guard{limits};  // pointers, one for each GPU of the node
///     for (each step) guard.add_iteration(train());  // what each rank has measured
///
/// For boards that outlive the process the devices are `OwnedPowerLimit`s: each limit is then
/// restored after a kill, too, each by a watchdog of its own, so that the sum may be above the cap
/// for the moment between two of them. Not thread-safe.
template <PowerLimitControl Device>
class [[nodiscard]] NodePowerGuard {
public:
    /// @param devices must outlive the guard
    /// @throws Error as the devices and `NodePower`
    [[nodiscard]] explicit NodePowerGuard(std::span<Device* const> devices,
                                          const NodePowerOptions& options = {})
        : devices_{devices.begin(), devices.end()}, power_{found(devices), options} {
        for (Device* device : devices_) guards_.emplace_back(*device);
        write();
    }
    NodePowerGuard(const NodePowerGuard&) = delete;
    NodePowerGuard& operator=(const NodePowerGuard&) = delete;
    ~NodePowerGuard() {
        try {
            close();
        } catch (...) {  // the throwing twin is close()
        }
    }

    /// As `NodePower::add_iteration`; then sets limits. A limit that does not take is counted.
    void add_iteration(std::span<const std::optional<GpuIteration>> iterations) {
        const std::size_t decisions = power_.decisions();
        const std::size_t left_alone = power_.left_alone();
        power_.add_iteration(iterations);
        if (power_.decisions() == decisions && power_.left_alone() == left_alone) return;
        for (std::size_t i = 0; i < devices_.size(); ++i)
            if (const auto held = read(i)) power_.observe(i, *held);
        write();
    }

    [[nodiscard]] const NodePower& power() const { return power_; }

    /// Restores the limits that were found: the higher ones first.
    /// @throws Error as `PowerLimitGuard::close`, the first of them, when all were tried
    void close() {
        std::optional<Error> failure;
        for (const bool lowers : {true, false}) {
            std::size_t i = 0;
            for (auto& guard : guards_) {
                const bool is_above = power_.limit(i++).count > guard.found().count;
                if (is_above != lowers) continue;
                try {
                    guard.close();
                } catch (const Error& error) {
                    if (!failure) failure = error;
                }
            }
        }
        if (failure) throw Error{*failure};
    }

private:
    static std::vector<NodeGpu> found(std::span<Device* const> devices) {
        std::vector<NodeGpu> gpus;
        for (Device* device : devices)
            gpus.push_back({device->power_limit_range(), device->read_power_limit()});
        return gpus;
    }

    std::optional<Watts> read(std::size_t gpu) {
        try {
            return devices_[gpu]->read_power_limit();
        } catch (const Error&) {
            return std::nullopt;
        }
    }

    void write() {
        while (const auto next = power_.next_write()) {
            try {
                std::next(guards_.begin(), static_cast<std::ptrdiff_t>(next->gpu))
                    ->set(next->limit);
            } catch (const Error&) {  // what holds is read back
            }
            power_.written(read(next->gpu));
        }
    }

    std::vector<Device*> devices_;
    NodePower power_;
    std::list<PowerLimitGuard<Device>> guards_;
};

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/node_forecast.hpp>
#include <kdvfs/detail/train/node_power.hpp>
#endif
