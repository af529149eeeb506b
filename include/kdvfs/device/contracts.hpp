// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <atomic>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kdvfs::inline v0_3 {

/// Who a device is and how its clocks are set; read once, when it is opened.
struct DeviceInfo {
    std::string name{};          ///< "AMD Instinct MI210"
    std::string address{};       ///< PCI "0000:03:00.0", or "simulated"
    std::string architecture{};  ///< what `ByArch` matches: "gfx90a", "sm_90"
    std::string mechanism{};     ///< how clocks are set, and why so: "rocm_smi determinism"
    bool simulated = false;      ///< no real hardware, no real joule
    /// Where what must be put back is recorded, for whom the device is locked, and what the end of
    /// the process cannot do; empty where clocks are not set.
    std::string restoring{};
    /// What joules are taken from, where that is no energy counter, and what it misses.
    std::string energy{};
    /// The prepared operating point that holds (AMPP, NVML's workload power profiles); empty where
    /// the device has none.
    std::string operating_point{};
    /// Those that `Gpu::request` can ask for, ascending; empty where none can be.
    std::vector<PreparedPoint> prepared_points{};
};

/// Through what clocks are written, where a vendor has several ways (AMD); all end in the driver's
/// files.
enum class ClockPath {
    best,          ///< the first of these that works
    rocm_smi,      ///< the library librocm_smi64; needs root
    amd_smi,       ///< the library libamd_smi; needs root
    driver_files,  ///< no library, and root only where the files ask for it
};

/// "AMD Instinct MI210 (0000:03:00.0)", the way errors name a device.
inline std::string to_string(const DeviceInfo& info) {
    return info.name + " (" + info.address + ")";
}

/// What profiles and plans call a device: simulated is called simulated.
inline std::string gpu_name(const DeviceInfo& device) {
    return (device.simulated ? "simulated " : "") + device.name;
}

/// The clocks a domain can be capped at.
struct ClockDomain {
    std::vector<Megahertz> listed{};  ///< ascending; empty where the domain cannot be set
    bool continuous = false;          ///< any clock between the first and the last is accepted
};

/// What a device can be asked for. `auto_clock` is always accepted and never listed.
struct SupportedClocks {
    ClockDomain core{};
    ClockDomain memory{};
};

/// Whether a domain can be capped at a clock.
inline bool supports(const ClockDomain& domain, Megahertz clock) {
    if (clock == auto_clock) return true;
    if (domain.listed.empty()) return false;
    if (domain.continuous) return domain.listed.front() <= clock && clock <= domain.listed.back();
    return std::binary_search(domain.listed.begin(), domain.listed.end(), clock);
}

/// Whether a device can be capped at a clock point.
inline bool supports(const SupportedClocks& clocks, ClockPoint point) {
    return supports(clocks.core, point.core) && supports(clocks.memory, point.memory);
}

/// The clock settings a device holds, as data that can be compared, kept in a record and written
/// back. `mode` is the vendor's word for how clocks are governed (AMD's performance level).
struct ClockState {
    ClockPoint cap;    ///< upper limits; `auto_clock` where none is set
    ClockPoint floor;  ///< lower limits; `auto_clock` where none is set
    std::string mode = "auto";

    friend bool operator==(const ClockState&, const ClockState&) = default;
};

/// Whether somebody has pinned the clocks by a mode of the driver (AMD's levels low, high and
/// profile_*): there is no range to lower them in.
inline bool pins_clocks(const ClockState& state) {
    return state.mode == "low" || state.mode == "high" || state.mode.starts_with("profile_");
}

/// The contract of a device whose clocks can be set. All calls may block for milliseconds and are
/// made by one thread at a time (the actuator). A failed `apply` throws and may leave the device
/// changed: the caller reads back and restores.
/// - `apply(point)` caps the clocks, `auto_clock` freeing a domain, such that
///   `read_clock_state().cap == point` afterwards; throws `Error`;
/// - `read_clock_state()` asks the hardware, never a cache; throws `Error`;
/// - `restore(state)` writes back a state that `read_clock_state` returned; throws `Error`.
template <class Device>
concept ClockControl = requires(Device& device, ClockPoint point, const ClockState& state) {
    { device.info() } -> std::convertible_to<const DeviceInfo&>;
    { device.supported_clocks() } -> std::convertible_to<const SupportedClocks&>;
    { device.read_clock_state() } -> std::same_as<ClockState>;
    { device.apply(point) } -> std::same_as<void>;
    { device.restore(state) } -> std::same_as<void>;
};

/// A device that learns what it can do by trying, which writes to it. Without this hook a device
/// must know it when it is constructed, by reading alone.
/// - `probe()`: tries, once, after the device is locked and before its first `apply`; leaves it in
///   the state that it found; throws `Error` where no way to set clocks works. `info()` and
///   `supported_clocks()` may be other ones afterwards. What it returns is not looked at.
template <class Device>
concept ProbedControl = ClockControl<Device> && requires(Device& device) {
    device.probe();
};

/// A device that cannot read back all of what it holds, and remembers what it wrote instead.
/// - `adopt(written)`: an earlier process ended without restoring; this is what that process last
///   had the device hold, nothing where its last write was cut short. From here on
///   `read_clock_state()` and `restore()` take it for this object's own. Reads and writes nothing.
template <class Device>
concept AdoptingControl = ClockControl<Device> &&
    requires(Device& device, const std::optional<ClockState>& written) {
    { device.adopt(written) } -> std::same_as<void>;
};

/// Clocks that somebody else puts back, too, if this process cannot: a watchdog, a record.
/// - `will_go_back_to(initial)`: called before each `apply`; the state that the controller would go
///   back to now. It is another than before once somebody else has set the clocks meanwhile.
///   Throws `Error`.
template <class Device>
concept WatchedControl = ClockControl<Device> && requires(Device& device, const ClockState& state) {
    { device.will_go_back_to(state) } -> std::same_as<void>;
};

/// How a device is put back without kdvfs: shell functions that belong to a kind of device, and the
/// words that tell them about this one. What they must do is said in
/// detail/restore/watchdog.hpp.
struct RestoreScript {
    std::string kind;  ///< "amdgpu" or "nvml": which of them, for the restore record
    std::string functions;
    std::vector<std::string> arguments;
};

/// A device that can be put back without kdvfs.
template <class Device>
concept Restorable = ClockControl<Device> && requires(const Device& device) {
    { device.restore_script() } -> std::same_as<RestoreScript>;
};

/// The power limits that a board accepts.
struct PowerRange {
    Watts low;
    Watts high;
};

/// The contract of a device whose power limit can be set. All calls may block for milliseconds.
/// - `read_power_limit()` asks the hardware, never a cache; throws `Error`;
/// - `set_power_limit(watts)` throws `Error` where it is refused, if the driver says so: callers
///   read back, because ROCm SMI reports success all the same;
/// - `power_limit_range()` is what the board accepts.
template <class Device>
concept PowerLimitControl = requires(Device& device, Watts limit) {
    { device.read_power_limit() } -> std::same_as<Watts>;
    { device.set_power_limit(limit) } -> std::same_as<void>;
    { device.power_limit_range() } -> std::same_as<PowerRange>;
};

/// A power limit that can be put back without kdvfs, as `Restorable`: its script's functions see
/// watts as the core clock, milliwatts beyond as the memory's, microwatts as the lowest core clock.
template <class Device>
concept RestorablePowerLimit = PowerLimitControl<Device> && requires(const Device& device) {
    { device.info() } -> std::convertible_to<const DeviceInfo&>;
    { device.restore_script() } -> std::same_as<RestoreScript>;
};

/// What is known about one reading. Only `ok` carries a number that may be used.
/// A device reports `ok`, `absent` or `failed`; the others are found by comparing readings.
enum class ReadingStatus {
    ok,
    absent,       ///< the device has no such counter
    failed,       ///< the read itself failed
    unchanged,    ///< the sample is the one read before: not an error, no news
    frozen,       ///< unchanged for longer than the counter's period allows
    wrapped,      ///< the counter started again from zero
    backwards,    ///< less than before, and no wrap
    implausible,  ///< more than the board can draw
};

constexpr std::string_view to_string(ReadingStatus status) {
    switch (status) {
        case ReadingStatus::ok: return "ok";
        case ReadingStatus::absent: return "absent";
        case ReadingStatus::failed: return "failed";
        case ReadingStatus::unchanged: return "unchanged";
        case ReadingStatus::frozen: return "frozen";
        case ReadingStatus::wrapped: return "wrapped";
        case ReadingStatus::backwards: return "backwards";
        case ReadingStatus::implausible: return "implausible";
    }
    return "unknown";
}

/// One look at an energy counter.
struct EnergyReading {
    Joules joules{};         ///< since an origin of the device's choosing
    TimePoint sampled_at{};  ///< when the device took the sample, not when it was read
    ReadingStatus status = ReadingStatus::absent;
};

/// The contract of a device that counts its energy. A read may take milliseconds.
/// `counter_period()` is the time between two samples, 0 where unknown.
template <class Device>
concept EnergySource = requires(Device& device) {
    { device.read_energy() } -> std::same_as<EnergyReading>;
    requires noexcept(device.read_energy());
    { device.counter_period() } -> std::same_as<Duration>;
};

/// One look at a board's power meter.
struct PowerReading {
    Watts watts;
    TimePoint sampled_at;  ///< when the device took the sample, where it says so
    ReadingStatus status = ReadingStatus::absent;
};

/// The contract of a device that shows the power it draws. A read may take milliseconds.
template <class Device>
concept PowerSource = requires(Device& device) {
    { device.read_power() } -> std::same_as<PowerReading>;
    requires noexcept(device.read_power());
};

/// A device that tells the power limit that holds, so that powers beyond it are not believed.
/// - `read_power_limit()`: the limit that is enforced now; 0 where unknown. May take milliseconds.
template <class Device>
concept ShowsPowerLimit = requires(const Device& device) {
    { device.read_power_limit() } -> std::same_as<Watts>;
    requires noexcept(device.read_power_limit());
};

/// Who works on a board beside this program, as far as the driver shows it.
struct OtherProcesses {
    /// Whether the driver shows this program, and so whoever works beside it. In a container it may
    /// show nobody.
    bool complete = false;
    std::vector<std::string> working{};  ///< "python (1234)": had work since the last look
};

/// A device whose driver lists the processes that use it: joules of others are no kernel's.
/// - `read_other_processes()`: those that had work since the last look, this program's own left
///   out. May take milliseconds; for one thread.
template <class Device>
concept ListsProcesses = requires(Device& device) {
    { device.read_other_processes() } -> std::same_as<OtherProcesses>;
};

/// The contract of a device whose driver keeps its power meter's last samples, each the mean over a
/// window, where those come faster than the energy counter moves.
/// - `read_power_samples(since)`: those taken after `since`, oldest first, which the driver still
///   has; empty where it keeps none. May take milliseconds, and throw `Error`.
template <class Device>
concept PowerLog = requires(Device& device, TimePoint since) {
    { device.read_power_samples(since) } -> std::same_as<std::vector<PowerReading>>;
};

/// A device with prepared operating points, which others may switch: they bound what clocks do.
/// - `read_operating_point()`: the one that holds, as `DeviceInfo::operating_point` has it; empty
///   where there are none, or it cannot be read. May take milliseconds.
template <class Device>
concept OperatingPointSource = requires(Device& device) {
    { device.read_operating_point() } -> std::same_as<std::string>;
};

/// The prepared operating points of a device, as a device of their own beside its clocks, so that
/// they are locked, recorded and put back as clocks are: in its clock states a point's number
/// stands where a core clock would. `Restorable`, too, where it outlives the process. All calls may
/// block for milliseconds; one thread at a time.
/// - `info().address` is the device's own with "-point" behind it;
/// - `prepared_points()`: those that can be asked for, ascending; empty where there are none;
/// - `apply({.core = {number}})` switches to a point by one write; throws `Error` (invalid_input)
///   for one that is not among them, else what the driver said;
/// - `state_of(point)`: what `read_clock_state()` says while that point is asked for, and no other.
template <class Points>
concept PreparedPointControl = ClockControl<Points> && OperatingPointSource<Points> &&
    requires(Points& points, PreparedPoint point) {
    { points.prepared_points() } -> std::same_as<std::vector<PreparedPoint>>;
    { points.state_of(point) } -> std::same_as<ClockState>;
};

/// A prepared operating point as a clock state, which keeps one word of it: its number, or whatever
/// else its driver switches by.
inline ClockState operating_point_state(unsigned word) {
    return {.cap = {.core = {word}}, .floor = {}, .mode = "operating point"};
}

/// A device whose prepared operating points can be switched.
/// - `open_prepared_points()`: what switches them, a `PreparedPointControl`, as a `unique_ptr`;
///   reads only; throws `Error` where it cannot tell.
template <class Device>
concept SwitchesPreparedPoints = ClockControl<Device> && requires(Device& device) {
    requires PreparedPointControl<typename decltype(device.open_prepared_points())::element_type>;
    requires Restorable<typename decltype(device.open_prepared_points())::element_type>;
};

/// A clock request as a small number, stable for the life of a GPU. `RequestTable` knows the clock
/// point behind it.
struct RequestIndex {
    std::uint32_t value = 0;

    friend constexpr bool operator==(RequestIndex, RequestIndex) = default;
    friend constexpr auto operator<=>(RequestIndex, RequestIndex) = default;
};

/// No request: the track has no vote.
inline constexpr RequestIndex no_request{0};

/// What a marker stores into a track's cell: the track's whole request, never a change of it, and
/// the ticket of the scope it belongs to, so that the controller can tell a new scope from an old
/// one seen again. 32 bits, because that is what every vendor's stream can write. Tickets wrap
/// after 2^20 scopes of a track; only neighbours are ever compared.
class RequestWord {
public:
    static constexpr unsigned request_bits = 12;
    static constexpr std::uint32_t most_requests = (1U << request_bits) - 1;

    constexpr RequestWord() = default;
    constexpr explicit RequestWord(std::uint32_t raw) : raw_{raw} {}
    constexpr RequestWord(RequestIndex request, std::uint32_t ticket)
        : raw_{(ticket << request_bits) | (request.value & most_requests)} {}

    [[nodiscard]] constexpr RequestIndex request() const { return {raw_ & most_requests}; }
    [[nodiscard]] constexpr std::uint32_t ticket() const { return raw_ >> request_bits; }
    [[nodiscard]] constexpr std::uint32_t raw() const { return raw_; }

    friend constexpr bool operator==(RequestWord, RequestWord) = default;

private:
    std::uint32_t raw_ = 0;
};

/// The host-visible word that a track's markers write and the listener polls. Mapped by kdvfs,
/// registered with the runtime, valid until the process ends. A cache line of its own.
struct alignas(64) RequestCell {
    std::uint32_t word = 0;

    [[nodiscard]] RequestWord load() noexcept {
        return RequestWord{std::atomic_ref{word}.load(std::memory_order_acquire)};
    }
    /// The host's own write, for what a stream cannot write any more.
    void store(RequestWord value) noexcept {
        std::atomic_ref{word}.store(value.raw(), std::memory_order_release);
    }
};

/// A vendor's stream handle, whatever its type: HIP, CUDA and the simulated GPU all use pointers.
/// The null pointer is the default stream, and means what it means to the vendor's runtime in the
/// file that says it: where that is compiled with one default stream per thread
/// (`HIP_API_PER_THREAD_DEFAULT_STREAM`, `CUDA_API_PER_THREAD_DEFAULT_STREAM`), the thread's own.
class StreamRef {
public:
    constexpr StreamRef() = default;
    // Implicit on purpose: users pass their hipStream_t or cudaStream_t.
    template <class Handle>
    requires(!std::is_pointer_v<Handle>)
        // A handle's address is not the handle.
        [[gnu::always_inline]] StreamRef(Handle* handle)  // NOLINT(google-explicit-constructor)
        : handle_{default_of_this_file(handle)} {}
    // NOLINTNEXTLINE(google-explicit-constructor)
    [[gnu::always_inline]] StreamRef(std::nullptr_t) : handle_{default_of_this_file(nullptr)} {}
    /// The default stream that each thread has of its own: of HIP and of CUDA alike.
    static StreamRef per_thread() {
        StreamRef stream;
        stream.handle_ = reinterpret_cast<void*>(std::uintptr_t{2});
        return stream;
    }

    template <class Handle>
    [[nodiscard]] Handle* as() const {
        return static_cast<Handle*>(handle_);
    }

    friend bool operator==(StreamRef, StreamRef) = default;
    friend auto operator<=>(StreamRef, StreamRef) = default;

private:
    // Inlined always: files that are compiled in different ways must not share it.
    [[gnu::always_inline]] static void* default_of_this_file(void* handle) {
#if defined(HIP_API_PER_THREAD_DEFAULT_STREAM) || defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
        if (handle == nullptr) return per_thread().handle_;
#endif
        return handle;
    }

    void* handle_ = nullptr;
};

/// Which track a call on a stream belongs to. `thread` tells the tracks of a per-thread default
/// stream apart and is 0 for every other stream; `capture` is the id of the capture that the
/// stream is recording, 0 for live work.
struct TrackKey {
    StreamRef stream{};
    std::uint64_t thread = 0;
    std::uint64_t capture = 0;

    friend bool operator==(const TrackKey&, const TrackKey&) = default;
    friend auto operator<=>(const TrackKey&, const TrackKey&) = default;
};

/// Whose timestamp a marker pushes. Computed on the host at enqueue, repeated by every replay of a
/// captured graph.
struct MarkerTag {
    std::uint32_t track = 0;
    std::uint32_t scope_kind = 0;
    bool leaving = false;
    std::uint32_t window = 0;  ///< which metered stretch of iterations it belongs to; may wrap
};

/// A one-thread operation in a stream: stores a request word, and pushes a timestamp where asked
/// to.
struct Marker {
    RequestCell* cell = nullptr;
    RequestWord word{};
    MarkerTag tag{};
    bool timestamped = false;
    bool captured = false;  ///< the stream is being captured, as its key has just told
};

/// What a timestamped marker left behind when the stream passed it.
struct MarkerTimestamp {
    MarkerTag tag{};
    TimePoint time{};
    /// A free-running count of core clock cycles, 0 where there is none.
    std::uint64_t core_cycles = 0;
    std::uint32_t unit = 0;  ///< whose count it is: only those of one unit can be subtracted
};

/// The contract of a runtime whose streams can carry markers. Called on the user's own threads,
/// by many at once; of kdvfs's threads one calls `now`, `lost_timestamps` and, where there is one,
/// `collect_timestamps`, which make no call of the vendor's runtime.
/// - `track_key(stream)`: throws `Error` for a stream of another device;
/// - `key_now(key)`: the key that its stream has now, by whether it is captured and who asks; the
///   device of a default stream alone is looked up again; throws `Error`;
/// - `make_cell()`: a cell valid until the process ends; throws `Error`;
/// - `put_marker(stream, marker)`: enqueues, never waits; throws `Error` where the request was not
///   put, while a timestamp alone that fails is lost and counted;
/// - `drain_timestamps(out)`: moves the oldest timestamps out, in stream order within a track, and
///   returns how many; never blocks;
/// - `lost_timestamps()`: how many were overwritten before they were drained, or could
///   not be taken;
/// - `synchronize(stream)`: waits until the stream is empty; throws `Error`;
/// - `marker_mechanism()`: which way markers go on this machine, for the report.
template <class Runtime>
concept StreamRuntime = requires(Runtime& runtime, StreamRef stream, const TrackKey& key,
                                 const Marker& marker, std::span<MarkerTimestamp> timestamps) {
    { runtime.track_key(stream) } -> std::same_as<TrackKey>;
    { runtime.key_now(key) } -> std::same_as<TrackKey>;
    { runtime.make_cell() } -> std::same_as<RequestCell*>;
    { runtime.put_marker(stream, marker) } -> std::same_as<void>;
    { runtime.drain_timestamps(timestamps) }
    noexcept->std::same_as<std::size_t>;
    { runtime.lost_timestamps() }
    noexcept->std::same_as<std::uint64_t>;
    { runtime.synchronize(stream) } -> std::same_as<void>;
    { runtime.now() }
    noexcept->std::same_as<TimePoint>;
    { runtime.marker_mechanism() } -> std::convertible_to<std::string_view>;
};

/// A runtime whose timestamps the library's own thread may take, too.
/// - `collect_timestamps(out)`: as `drain_timestamps`, and calls nothing of the vendor's runtime:
///   what only a call could tell of waits for `drain_timestamps`.
template <class Runtime>
concept CollectsTimestamps = requires(Runtime& runtime, std::span<MarkerTimestamp> timestamps) {
    { runtime.collect_timestamps(timestamps) }
    noexcept->std::same_as<std::size_t>;
};

/// A runtime that may be given a better way to put markers when other modules of the process are
/// loaded.
/// - `look_for_marker_kernel()`: takes the process's marker kernel where there is one now; markers
///   may be under way. Throws `Error`.
template <class Runtime>
concept TakesMarkerKernels = StreamRuntime<Runtime> && requires(Runtime& runtime) {
    { runtime.look_for_marker_kernel() } -> std::same_as<void>;
};

/// A runtime whose streams can also wait for the host: for measuring, since a wait may hold a queue
/// that other streams need.
/// - `make_answer_word()`: a word that streams can wait for, valid until the process ends; throws
///   `Error`;
/// - `put_wait(stream, word, number)`: lets the stream stand still until the word is at least that
///   number; throws `Error`.
template <class Runtime>
concept WaitingRuntime = StreamRuntime<Runtime> &&
    requires(Runtime& runtime, StreamRef stream, std::uint32_t* word, std::uint32_t number) {
    { runtime.make_answer_word() } -> std::same_as<std::uint32_t*>;
    { runtime.put_wait(stream, word, number) } -> std::same_as<void>;
};

}  // namespace kdvfs::inline v0_3
