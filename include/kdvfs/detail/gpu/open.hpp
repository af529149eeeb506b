// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/gpu/core.hpp>
#include <kdvfs/detail/gpu/late_streams.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/gpu/thread_loop.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/process_objects.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/detail/restore/shared_clocks.hpp>
#include <kdvfs/detail/restore/site_limits.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/sensor_calibration.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace kdvfs::inline v0_3::detail {

/// A GPU object of this process, if there is one.
struct OpenGpu {
    std::weak_ptr<GpuService> gpu{};
    bool being_opened = false;  ///< by a thread
};

/// What objects of this layout have in common, for modules of one process that are compiled from
/// different sources: a function that is added to the interface moves those after it.
inline std::uint64_t service_layout() {
    const auto last = &GpuService::open_again;
    std::uint64_t place = 0;  // where the function is in the table of virtual functions
    static_assert(sizeof last >= sizeof place);
    std::memcpy(&place, &last, sizeof place);
    for (const std::uint64_t size :
         {sizeof(ScopeKind), sizeof(DeviceInfo), sizeof(measure::Report), sizeof(SupportedClocks),
          sizeof(measure::MeterRecord), sizeof(PlannedSequence), sizeof(ScopeToken),
          sizeof(std::mutex) + sizeof(std::condition_variable) + sizeof(OpenGpu)}) {
        place = place * 1000003 + size;
    }
    return place;
}

/// Shows, before anything is promised, that clocks of this device can be set: applies its highest
/// core clock (the smallest disturbance there is), reads it back, and restores what was found.
/// @param ceiling that nothing may be raised above
/// @returns the state that the device was found in
/// @throws Error naming what failed; the device is back in its found state, unless that failed too
template <ClockControl Device>
ClockState prove_clock_control(Device& device, ClockPoint ceiling = {}) {
    ClockState found = device.read_clock_state();
    const auto& core = device.supported_clocks().core.listed;
    if (core.empty()) {
        throw Error{Errc::not_supported,
                    {.action = "set the core clock",
                     .object = to_string(device.info()),
                     .vendor_words = "the device lists no core clocks",
                     .remedy = "open it with OnRefused::measure_only to measure without setting "
                               "clocks"}};
    }
    const auto refuse = [&](const std::string& action, const ClockState& seen) {
        throw Error{
            Errc::refused,
            {.action = action,
             .object = to_string(device.info()),
             .vendor_words = "it reads back " + to_string(seen.cap) + " in mode " + seen.mode,
             .remedy = "see which other tool governs this GPU's clocks, or open it with "
                       "OnRefused::measure_only"}};
    };
    const auto above = ceiling.core == auto_clock
                           ? core.end()
                           : std::upper_bound(core.begin(), core.end(), ceiling.core);
    const bool inside = device.supported_clocks().core.continuous && above != core.end();
    const ClockPoint probe{.core = above == core.begin() ? core.front()
                                   : inside              ? ceiling.core
                                                         : *std::prev(above)};
    try {
        device.apply(probe);
        const ClockState seen = device.read_clock_state();
        if (seen.cap != probe) refuse("set " + to_string(probe), seen);
    } catch (const std::exception&) {
        try {
            device.restore(found);
        } catch (const std::exception&) {  // the first error says more
        }
        throw;
    }
    device.restore(found);
    const ClockState restored = device.read_clock_state();
    if (restored != found) refuse("restore the clock settings", restored);
    return found;
}

/// Keeps a GPU object whose last handle is gone: a late scope, answer or wake finds it ended, never
/// freed. A list that a leak checker sees.
class RetiredGpus {
public:
    static void keep(GpuService* gpu) noexcept {
        static constinit std::atomic<Node*> first{nullptr};
        auto* const node = new (std::nothrow) Node{gpu, first.load()};
        while (node != nullptr && !first.compare_exchange_weak(node->next, node)) {
        }
    }

private:
    struct Node {
        GpuService* gpu;
        Node* next;
    };
};

/// Owns a GPU object by its handles. When the last is gone the clocks go back, an error that nobody
/// asked for is printed, and the object is retired.
template <class Core>
std::shared_ptr<Core> share(std::unique_ptr<Core> core) {
    return {core.release(), [](Core* last) {
                last->retire();
                if (const auto error = last->take_error()) {
                    std::fputs("kdvfs: an error that nobody asked for with check(): ", stderr);
                    std::fputs(error->what(), stderr);
                    std::fputc('\n', stderr);
                }
                RetiredGpus::keep(last);
            }};
}

/// The GPU objects of this process, by device. One list for all modules of one version, whoever
/// opens the GPUs.
struct OpenGpus {
    /// Held for no call of a device or of the loader, which may wait for other threads.
    std::mutex mutex{};
    std::condition_variable opened{};  ///< or not: the thread that opened one is done
    std::map<std::string, OpenGpu> gpus{};

    /// A forked child's copies of its parent's objects are not its own, and the parent's lock may
    /// be held by nobody there: each generation has a list. Never destroyed: a static Gpu may
    /// outlive any static of ours.
    [[gnu::visibility("hidden")]] static OpenGpus& of_this_process() {
        struct Found {
            std::uint32_t generation;
            OpenGpus* open;
        };
        static constinit std::atomic<const Found*> found{nullptr};
        const Found* last = found.load();
        if (last == nullptr || last->generation != fork_generation()) {
            auto fresh = std::make_unique<Found>(Found{
                fork_generation(),
                &shared_by_process<OpenGpus>("open GPUs", service_layout(), &OpenGpus::drive)});
            if (found.compare_exchange_strong(last, fresh.get())) last = fresh.release();
        }
        return *last->open;
    }

    /// Whether one of `gpus`, an `OpenGpus`, drives a device; no, while one is being opened.
    static int drive(void* gpus, const char* device) {
        auto& all = *static_cast<OpenGpus*>(gpus);
        const std::unique_lock lock{all.mutex, std::try_to_lock};
        if (!lock) return 0;
        const auto at = all.gpus.find(device);
        const auto gpu = at == all.gpus.end() ? nullptr : at->second.gpu.lock();
        return gpu && !gpu->ended() && !gpu->measure_only() ? 1 : 0;
    }
};

/// Lets one thread open a device, while others that want the same device wait.
class [[gnu::visibility("hidden")]] OpeningGpu {
public:
    explicit OpeningGpu(const std::string& device) {
        std::unique_lock lock{open_.mutex};
        entry_ = &open_.gpus[device];
        open_.opened.wait(lock, [this] { return !entry_->being_opened; });
        entry_->being_opened = true;
        before_ = entry_->gpu.lock();
    }
    OpeningGpu(const OpeningGpu&) = delete;
    OpeningGpu& operator=(const OpeningGpu&) = delete;
    ~OpeningGpu() {
        const std::lock_guard lock{open_.mutex};
        entry_->being_opened = false;
        open_.opened.notify_all();
    }

    /// The object that there was; null where there was none.
    [[nodiscard]] const std::shared_ptr<GpuService>& before() const { return before_; }
    void keep(const std::shared_ptr<GpuService>& gpu) {
        const std::lock_guard lock{open_.mutex};
        entry_->gpu = gpu;
    }

private:
    OpenGpus& open_ = OpenGpus::of_this_process();
    OpenGpu* entry_ = nullptr;
    std::shared_ptr<GpuService> before_;
};

/// Opening a device again gives the same object, as long as it has not been closed. Thread-safe; a
/// second opening of a device waits for the first, that of another device does not. Vendors'
/// libraries are loaded meanwhile: in a static initialiser of a library that is being loaded, which
/// they wait for, a device is not to be opened that another thread may be opening.
/// @param device what tells devices apart: a PCI address, or an address in memory for simulated
///               ones
/// @param make   makes the object where there is none
/// @param again  is called with the object where there is one
template <class Make, class Again>
[[gnu::visibility("hidden")]] std::shared_ptr<GpuService> find_or_open(const std::string& device,
                                                                       Make make, Again again) {
    OpeningGpu opening{device};
    if (const auto& gpu = opening.before(); gpu && !gpu->ended()) {
        again(*gpu);
        return gpu;
    }
    // Other modules run the object's code, too.
    keep_loaded(reinterpret_cast<const void*>(&OpenGpus::drive));
    std::shared_ptr<GpuService> gpu = make();
    opening.keep(gpu);
    return gpu;
}

/// A module of another version of kdvfs drives the device: its objects cannot be shared.
/// @throws Error (busy) naming both versions
[[gnu::visibility("hidden")]] inline void refuse_beside_other_version(const std::string& device) {
    const auto other = held_by_other_version(device, &OpenGpus::of_this_process());
    if (!other) return;
    throw Error{Errc::busy,
                {.action = "take over the clocks",
                 .object = device,
                 .vendor_words = "another module of this process drives them by " + *other +
                                 ", which shares nothing with this one's " +
                                 version_of_this_module() + " (" + abi_of_this_module() +
                                 ", layout " + std::to_string(service_layout() % 1000000) + ")",
                 .remedy = "compile both modules with one version of kdvfs and one set of "
                           "standard-library switches, or open the GPU here to measure only"}};
}

/// A device with a lock, a restore record and a watchdog: first the lock, then the first write. Or
/// with a vote, where another process has the lock.
/// @tparam Clocks `OwnedClocks` for whoever must drive alone
template <class Device, class Clocks = SharedClocks<Device>>
struct OwnedDevice {
    template <class... Arguments>
    explicit OwnedDevice(Arguments&&... arguments)
        : device{std::forward<Arguments>(arguments)...}, clocks{device} {
        if constexpr (ProbedControl<Device>) clocks.probe();
    }

    Device device;
    Clocks clocks;
};

/// The state that a device was found in, whose clocks are proven to be settable: where opening has
/// not tried them already. @throws Error as `prove_clock_control`
template <class Device>
ClockState proven_state(SharedClocks<Device>& clocks, ClockPoint ceiling) {
    // `OwnedDevice` has probed, where the device is like that; a voter writes nothing.
    if (ProbedControl<Device> || !clocks.drives()) return clocks.read_clock_state();
    return prove_clock_control(clocks, ceiling);
}

/// What switches the prepared operating points of a device; null for one that has no such hook.
/// They have a lock, a restore record and a watchdog of their own, from the first request on.
template <class Device>
std::unique_ptr<PreparedPointRequests> points_of(
    const std::shared_ptr<OwnedDevice<Device>>& owned) {
    if constexpr (SwitchesPreparedPoints<Device>) {
        return std::make_unique<PreparedPointRequests>([owned]() -> std::unique_ptr<PointSwitch> {
            auto points = owned->device.open_prepared_points();
            using Points = typename decltype(points)::element_type;
            return std::make_unique<DevicePointSwitch<Points, OwnedClocks<Points>>>(
                std::move(points));
        });
    } else {
        return nullptr;
    }
}

/// Takes what `kdvfs measure-sensor` has kept of a board, where its sensors are to be found and the
/// program gives none. @returns what is wrong with the file, which then counts as not there
inline std::optional<Error> take_kept_sensors(const DeviceInfo& board,
                                              measure::AccumulatorSettings& settings) {
    if (!settings.sensor_may_lag || settings.sensors) return std::nullopt;
    try {
        settings.sensors = measure::find_sensors(board);
    } catch (const Error& unreadable) {
        return unreadable;
    }
    return std::nullopt;
}

/// Opens a real device, all vendors alike: owns its clocks and proves that they can be set, or,
/// where `options` say so, falls back to measuring it; counts its energy; starts the threads.
/// @param key         what tells devices apart in this process
/// @param open_clocks returns a `shared_ptr<OwnedDevice<...>>`, or null to measure only
/// @throws Error what a function throws, unless `options.on_refused` says to go on
template <class OpenRuntime, class OpenClocks, class OpenReadings>
std::shared_ptr<GpuService> open_device(const std::string& key, OpenRuntime open_runtime,
                                        OpenClocks open_clocks, OpenReadings open_readings,
                                        GpuOptions options) {
    using Runtime = typename decltype(open_runtime())::element_type;
    const auto open_again = [&](GpuService& gpu) {
        if constexpr (std::is_same_v<Runtime, LateStreams>) {
            gpu.open_again(options, {});
        } else {
            gpu.open_again(options, [&]() -> std::shared_ptr<AnyStreams> {
                return std::make_shared<AnyStreamsOf<Runtime>>(open_runtime());
            });
        }
    };
    const auto open_first = [&] {
        using Owned = std::remove_reference_t<decltype(open_clocks()->clocks)>;
        using Readings = typename decltype(open_readings())::element_type;
        DeviceSides<Owned, Readings> device{.readings = open_readings()};
        GpuParts<Runtime> parts{.info = device.readings->info(),
                                .clocks = device.readings->supported_clocks()};
        try {
            refuse_beside_other_version(key);
            const SiteLimits site = read_site_limits(parts.info.address);  // a key may say more
            options.controller = within(options.controller, site);
            check_limits(options.controller, to_string(parts.info));
            if (const auto owned = open_clocks()) {
                if (!owned->clocks.drives() && !options.share_clocks)
                    throw Error{*owned->clocks.driver()};
                parts.initial = proven_state(owned->clocks, options.controller.never_above);
                parts.info = owned->clocks.info();
                if (!owned->clocks.drives()) {
                    parts.info.mechanism =
                        "votes (" + owned->clocks.driver()->text().vendor_words + ")";
                }
                if (!site.path.empty()) parts.info.mechanism += ", within " + site.words();
                parts.info.energy = device.readings->info().energy;
                parts.info.operating_point = device.readings->info().operating_point;
                parts.info.prepared_points = device.readings->info().prepared_points;
                parts.info.restoring = owned->clocks.describe();
                parts.clocks = owned->clocks.supported_clocks();
                device.clocks = {owned, &owned->clocks};
                parts.points = points_of(owned);
                if constexpr (OperatingPointSource<Readings>) {
                    if (parts.points && !parts.info.prepared_points.empty()) {
                        parts.points->take_over();
                        parts.info.operating_point = device.readings->read_operating_point();
                    }
                }
            }
        } catch (const Error& refused) {
            if (options.on_refused == OnRefused::fail) throw;
            parts.info.mechanism = std::string{"measure only: "} + refused.what();
        }
        parts.runtime = open_runtime();
        options.sampler.limits.period = device.readings->counter_period();
        options.accumulator.counter_period = device.readings->counter_period();
        options.accumulator.sensor_may_lag = !parts.info.simulated;
        const std::optional<Error> unreadable = take_kept_sensors(parts.info, options.accumulator);
        using Core = GpuCore<Runtime>;
        auto core = share(std::make_unique<Core>(std::move(parts), options));
        if (unreadable) core->keep(*unreadable);
        core->drive_with(
            std::make_unique<ThreadLoop<Core, Owned, Readings>>(*core, std::move(device)));
        return core;
    };
    return find_or_open(key, open_first, open_again);
}

}  // namespace kdvfs::inline v0_3::detail

/// What a vendor's opener uses.
namespace kdvfs::inline v0_3::extend {
using detail::open_device;
using detail::OwnedDevice;
using detail::prove_clock_control;
}  // namespace kdvfs::inline v0_3::extend
