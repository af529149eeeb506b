// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/device_clock.hpp>
#include <kdvfs/device/event_timestamps.hpp>
#include <kdvfs/device/gpu_api.hpp>
#include <kdvfs/device/marker_launch.hpp>
#include <kdvfs/device/stream_runtime.hpp>
#include <kdvfs/device/timestamp_ring.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

namespace kdvfs::device {

/// How markers go into streams, the best first.
enum class MarkerWay {
    kernel,        ///< a one-thread kernel: request, time and core cycles; needs device code
    stream_write,  ///< a stream memory write; times by events
    memset,        ///< a memset node; times by events
    callback,      ///< a host function: tens of microseconds; times by events
};

/// "stream memory write".
constexpr std::string_view to_string(MarkerWay way) {
    switch (way) {
        case MarkerWay::kernel: return "marker kernel";
        case MarkerWay::stream_write: return "stream memory write";
        case MarkerWay::memset: return "memset";
        case MarkerWay::callback: return "host function";
    }
    return "";
}

/// A vendor's streams as a `StreamRuntime` (see there for what the calls do and who may make them),
/// written once over the vendor's API. What is proven at construction, way by way, until one holds:
/// that a request arrives in its cell, that of several the last one stays, that timestamps come
/// back in order, and that the clock behind them runs at the rate that the API claims.
template <class Api>
class GpuStreams {
public:
    /// @param way how markers go; the best way that works here unless given
    /// @throws Error if there is no such device, or the given way does not work here
    explicit GpuStreams(int device, std::optional<MarkerWay> way = std::nullopt)
        : device_{device}, object_{device_name<Api>(device)} {
        static_assert(GpuApi<Api>);
        const OnDevice<Api> current{device_};
        const RelaxedCapture<Api> relaxed;
        launch_ = marker_kernel_of_program<Api>();
        grow_cells();
        home_ = Api::home(device_);  // mapping memory has made the device's context
        choose(way);
    }

    GpuStreams(const GpuStreams&) = delete;
    GpuStreams& operator=(const GpuStreams&) = delete;

    [[nodiscard]] LaneKey lane_key(StreamRef stream) {
        auto* const handle = stream.as<StreamObject>();
        if (std::string words = Api::foreign(handle, device_, home_); !words.empty()) {
            throw Error{Errc::invalid_input,
                        {"enter a scope", object_, std::move(words),
                         "use the kdvfs::Gpu of the stream's own device"}};
        }
        return key_of(handle);
    }

    [[nodiscard]] LaneKey key_now(const LaneKey& before) {
        return key_of(before.stream.as<StreamObject>());
    }

    [[nodiscard]] LevelCell* make_cell() {
        const std::lock_guard lock{cells_mutex_};
        if (cells_taken_ == cells_per_block) grow_cells();
        return blocks_.back().cells.host + cells_taken_++;
    }

    void put_marker(StreamRef stream, const Marker& marker) {
        auto* const handle = stream.as<StreamObject>();
        if (way_ == MarkerWay::kernel) {
            check(put_kernel(handle, marker), "launch a marker");
            return;
        }
        check(put_request(handle, marker), "put a marker into a stream");
        if (!marker.stamped || marker.captured) return;
        if (has_times_) {
            static_cast<void>(event_times_.record(handle, marker.tag));
        } else {
            event_times_.lose_one();
        }
    }

    /// @throws Error (not_supported) where this device's streams cannot wait
    [[nodiscard]] std::uint32_t* make_answer_word() {
        const OnDevice<Api> current{device_};
        const RelaxedCapture<Api> relaxed;
        std::uint32_t* word = nullptr;  // never freed: a stream may wait for it as long as it likes
        if constexpr (Api::waits_in_signal_memory) {
            check(Api::make_signal_memory(&word), "make signal memory");
        } else {
            word = &make_cell()->word;
        }
        const ProbeStream probe{object_};
        put_wait(probe.get(), word, 0);  // has come to pass
        check(Api::synchronize(probe.get()), "let a stream wait for an answer");
        return word;
    }
    void put_wait(StreamRef stream, std::uint32_t* word, std::uint32_t number) {
        std::uint32_t* const address = Api::waits_in_signal_memory ? word : device_address(word);
        check(Api::wait(stream.as<StreamObject>(), address, number),
              "let a stream wait for an answer");
    }

    std::size_t drain_stamps(std::span<MarkerStamp> out) noexcept {
        if (way_ != MarkerWay::kernel) return event_times_.drain(out);
        const std::unique_lock lock{reader_mutex_, std::try_to_lock};
        if (!lock) return 0;
        std::size_t count = 0;
        const Duration seen = now().time_since_epoch();
        while (count < out.size()) {
            const auto entry = reader_->take();
            if (!entry) break;
            out[count++] = timestamp_of(*entry, seen);
        }
        return count;
    }

    [[nodiscard]] std::uint64_t lost_stamps() noexcept {
        if (way_ != MarkerWay::kernel) return event_times_.lost();
        const std::lock_guard lock{reader_mutex_};
        return reader_->lost();
    }

    void synchronize(StreamRef stream) {
        check(Api::synchronize(stream.as<StreamObject>()), "wait for a stream");
    }

    [[nodiscard]] TimePoint now() noexcept {
        return TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }

    /// Which way markers go, and in brackets why not a better one.
    [[nodiscard]] std::string_view marker_mechanism() const { return mechanism_; }

    /// How well the device's wall clock is placed on the Timeline; 0 without a marker kernel.
    [[nodiscard]] Duration clock_uncertainty() const { return clock_uncertainty_; }

private:
    using StreamObject = typename Api::StreamObject;
    using Stream = typename Api::Stream;
    using Status = typename Api::Status;

    // As many lanes before host memory is mapped again; 2^16 timestamps are 4 MiB.
    static constexpr std::size_t cells_per_block = 4096;
    static constexpr std::size_t ring_entries = std::size_t{1} << 16U;

    struct Block {
        MappedArray<LevelCell> cells;
        const Block* older;
    };

    /// A stream of the probe's own.
    class ProbeStream {
    public:
        explicit ProbeStream(const std::string& object) {
            device::check<Api>(Api::make_stream(&stream_), "make a stream", object);
        }
        ~ProbeStream() { static_cast<void>(Api::destroy_stream(stream_)); }
        ProbeStream(const ProbeStream&) = delete;
        ProbeStream& operator=(const ProbeStream&) = delete;
        [[nodiscard]] Stream get() const { return stream_; }

    private:
        Stream stream_{};
    };

    void check(Status status, const char* action) const {
        if (status != Api::success) device::check<Api>(status, action, object_);
    }

    // Streams.

    static std::uint64_t this_thread() {
        static std::atomic<std::uint64_t> threads{0};
        thread_local const std::uint64_t number = ++threads;
        return number;
    }

    [[nodiscard]] LaneKey key_of(Stream stream) const {
        CaptureState capture;
        check(Api::capture_state(stream, capture), "ask whether a stream is captured");
        if (capture.invalidated) {
            check(Api::capture_invalidated, "use a stream whose capture has failed");
        }
        return {stream, Api::is_per_thread(stream) ? this_thread() : 0,
                capture.active ? capture.id : 0};
    }

    // Cells.

    /// The caller holds the lock, or is the constructor.
    void grow_cells() {
        const auto cells = map_for_ever<Api, LevelCell>(cells_per_block, object_);
        newest_ = &blocks_.emplace_back(cells, newest_.load());
        cells_taken_ = 0;
    }

    /// The device's address of a cell's word: blocks are few, and never go.
    [[nodiscard]] std::uint32_t* device_address(const std::uint32_t* word) const {
        const auto* const cell = reinterpret_cast<const LevelCell*>(word);
        for (const Block* block = newest_; block != nullptr; block = block->older) {
            const LevelCell* const first = block->cells.host;
            if (cell < first || cell >= first + cells_per_block) continue;
            return &block->cells.device[cell - first].word;
        }
        return nullptr;
    }

    // Markers.

    Status put_kernel(Stream stream, const Marker& marker) {
        MarkerArguments arguments;
        arguments.cell = device_address(&marker.cell->word);
        arguments.level = marker.word.raw();
        if (marker.stamped) {
            arguments.ring = ring_.device;
            arguments.next_ticket = next_ticket_;
            arguments.ring_mask = ring_entries - 1;
            arguments.timestamp.lane = marker.tag.lane;
            arguments.timestamp.scope_kind = marker.tag.scope_kind;
            arguments.timestamp.burst = marker.tag.burst;
            arguments.timestamp.leaving = marker.tag.leaving ? 1 : 0;
            arguments.timestamp.enqueued = marker.captured ? 0 : now().time_since_epoch().count();
        }
        return static_cast<Status>(launch_(stream, arguments));
    }

    /// Into a capture only what it records.
    Status put_request(Stream stream, const Marker& marker) {
        std::uint32_t* const address = device_address(&marker.cell->word);
        switch (way_) {
            case MarkerWay::kernel: return Api::not_supported;
            case MarkerWay::stream_write:
                if (!marker.captured || Api::records_writes) {
                    return Api::write(stream, address, marker.word.raw());
                }
                [[fallthrough]];
            case MarkerWay::memset: return Api::set(stream, address, marker.word.raw());
            case MarkerWay::callback: return put_callback(stream, marker);
        }
        return Api::not_supported;
    }

    struct Store {
        LevelCell* cell;
        LevelWord word;
    };
    static void store(void* data) {
        const auto* what = static_cast<const Store*>(data);
        what->cell->store(what->word);
    }
    static void store_once(void* data) {
        store(data);
        delete static_cast<Store*>(data);
    }

    /// A captured function runs at every replay, and its graph may outlive everything here: what it
    /// stores is never freed.
    static Status put_callback(Stream stream, const Marker& marker) {
        if (marker.captured && !Api::records_callbacks) return Api::cannot_capture;
        auto* const what = new Store{marker.cell, marker.word};
        const Status status = marker.captured ? Api::template call_back<store>(stream, what)
                                              : Api::template call_back<store_once>(stream, what);
        if (status != Api::success) delete what;
        return status;
    }

    // Proofs. Each returns why a way cannot be used; nothing where it can.

    /// Takes the first way that is proven.
    void choose(std::optional<MarkerWay> wanted) {
        std::string why_not;
        for (const MarkerWay way :
             {MarkerWay::kernel, MarkerWay::stream_write, MarkerWay::memset, MarkerWay::callback}) {
            if (wanted && way != *wanted) continue;
            way_ = way;
            const std::string flaw = way == MarkerWay::kernel ? prove_kernel() : prove_request();
            if (flaw.empty()) {
                describe(why_not);
                return;
            }
            Api::forget_last_error();  // the probe's own, not the user's
            why_not +=
                (why_not.empty() ? "no " : ", no ") + std::string{to_string(way)} + ": " + flaw;
        }
        throw Error{Errc::not_supported,
                    {"put markers into streams", object_, why_not,
                     std::string{"compile one file that includes kdvfs with "} + Api::compiler +
                         ", or update the driver"}};
    }

    void describe(const std::string& why_not) {
        switch (way_) {
            case MarkerWay::kernel:
                mechanism_ = "one-thread kernels, times by a wall clock of " +
                             megahertz(Api::wall_clock_megahertz(device_));
                if (!has_cycles_) {
                    mechanism_ += ", no core cycles: the compiler cannot tell where a kernel runs";
                }
                break;
            case MarkerWay::stream_write:
                mechanism_ = Api::records_writes ? "stream memory writes"
                                                 : "stream memory writes, memsets in captures";
                break;
            case MarkerWay::memset: mechanism_ = "memsets"; break;
            case MarkerWay::callback: mechanism_ = "host functions"; break;
        }
        if (way_ != MarkerWay::kernel) {
            const std::string flaw = event_times_.prove();
            has_times_ = flaw.empty();
            mechanism_ += has_times_ ? ", times by events" : ", no times: " + flaw;
        }
        if (!why_not.empty()) mechanism_ += " (" + why_not + ")";
    }

    static std::string megahertz(double value) {
        std::string text = std::to_string(static_cast<std::int64_t>(value * 10 + 0.5));
        if (text.size() < 2) text.insert(0, 1, '0');
        text.insert(text.size() - 1, 1, '.');
        if (text.ends_with(".0")) text.resize(text.size() - 2);
        return text + " MHz";
    }

    /// Several requests in a row: the last one must stay.
    std::string prove_request() {
        LevelCell* const cell = make_cell();
        const ProbeStream stream{object_};
        constexpr std::uint32_t last = 4;
        for (std::uint32_t i = 1; i <= last; ++i) {
            const Status put = put_request(stream.get(), {cell, LevelWord{i}, {}, false});
            if (put != Api::success) return Api::words_of(put);
        }
        if (const Status done = Api::synchronize(stream.get()); done != Api::success) {
            return Api::words_of(done);
        }
        return told_by(cell->load(), LevelWord{last});
    }

    static std::string told_by(LevelWord seen, LevelWord put) {
        if (seen == put) return {};
        return seen == LevelWord{} ? "nothing arrives in host memory" : "it runs out of order";
    }

    /// A timestamp in the device's own time, and between which of the host's it was made.
    struct Sighting {
        TimestampEntry entry;
        Duration put{};
        Duration seen{};
    };

    std::string prove_kernel() {
        if (launch_ == nullptr) return "this program has no device code";
        make_ring();
        const ProbeStream stream{object_};
        Sighting first;
        if (auto flaw = see_markers(stream.get(), 1, first); !flaw.empty()) return flaw;
        has_cycles_ = first.entry.unit != unknown_unit;
        Sighting last;
        if (auto flaw = see_markers(stream.get(), 4, last); !flaw.empty()) return flaw;
        if (auto flaw = prove_rate(stream.get()); !flaw.empty()) return flaw;
        clock_.center();
        clock_uncertainty_ = clock_.uncertainty();
        return {};
    }

    void make_ring() {
        ring_ = map_for_ever<Api, TimestampEntry>(ring_entries, object_);
        // In the device's own memory: atomics on the host's cross PCIe, which may not route them.
        // Never freed: a late marker may still count.
        void* ticket = nullptr;
        check(Api::make_device_memory(&ticket, sizeof(unsigned long long)),
              "allocate device memory");
        next_ticket_ = static_cast<unsigned long long*>(ticket);
        reader_.emplace(ring_.host, ring_entries);
        clock_ = DeviceClock{1000 / Api::wall_clock_megahertz(device_)};
    }

    /// Puts markers one behind the other and watches for what they leave behind.
    std::string see_markers(Stream stream, std::uint32_t count, Sighting& last) {
        LevelCell* const cell = probe_cell();
        const Duration put = now().time_since_epoch();
        for (std::uint32_t i = 1; i <= count; ++i) {
            const Marker marker{cell, LevelWord{++probe_word_}, {.scope_kind = i}, true};
            const Status status = put_kernel(stream, marker);
            if (status != Api::success) return Api::words_of(status);
        }
        const TimePoint deadline = now() + std::chrono::seconds{2};  // the first loads the kernel
        for (std::uint32_t i = 1; i <= count; ++i) {
            const auto entry = await_entry(stream, deadline);
            if (!entry) return told_of_none(stream, *cell);
            if (entry->scope_kind != i) return "its timestamps come out of order";
            if (i > 1 && entry->ticks < last.entry.ticks) return "its wall clock runs backwards";
            last = {*entry, put, now().time_since_epoch()};
        }
        while (cell->load().raw() != probe_word_ && now() < deadline) std::this_thread::yield();
        return told_by(cell->load(), LevelWord{probe_word_});
    }

    LevelCell* probe_cell() {
        if (probe_cell_ == nullptr) probe_cell_ = make_cell();
        return probe_cell_;
    }

    /// Until the deadline, or a little longer than the stream has anything to do.
    std::optional<TimestampEntry> await_entry(Stream stream, TimePoint deadline) {
        constexpr std::chrono::milliseconds usual{10};
        std::optional<TimestampEntry> entry;
        TimePoint ask_at = now() + usual;
        while (!(entry = reader_->take()) && now() < deadline) {
            std::this_thread::yield();
            if (now() < ask_at) continue;
            ask_at = now() + usual;
            if (Api::query_stream(stream) != Api::not_ready) {
                deadline = std::min(deadline, now() + 5 * usual);
            }
        }
        return entry;
    }

    std::string told_of_none(Stream stream, LevelCell& cell) {
        const bool stored = cell.load().raw() == probe_word_;
        if (stored) return "its timestamps do not arrive";
        const Status status = Api::query_stream(stream);
        return status == Api::success || status == Api::not_ready ? "nothing arrives in host memory"
                                                                  : Api::words_of(status);
    }

    /// Two looks at the clock, as far from one another as the host's own delays need: between them
    /// its time must go by as the host's does.
    std::string prove_rate(Stream stream) {
        Sighting early;
        Sighting late;
        OffsetBounds before;
        OffsetBounds after;
        if (auto flaw = place_clock(stream, before, early); !flaw.empty()) return flaw;
        for (Duration apart = std::chrono::milliseconds{4};; apart *= 2) {
            std::this_thread::sleep_for(apart);
            after = {};
            if (auto flaw = place_clock(stream, after, late); !flaw.empty()) return flaw;
            const Duration between = late.put - early.seen;
            if (before.width() + after.width() < between.count() / 20) {
                const Duration slack = std::chrono::microseconds{2} + between / 1000;
                if (agree(before, after, slack)) return {};
                break;
            }
            if (apart > std::chrono::milliseconds{500}) {
                return "the host was kept from looking at its wall clock";
            }
        }
        const auto ticks = static_cast<double>(late.entry.ticks - early.entry.ticks);
        const auto microseconds = static_cast<double>((late.seen - early.seen).count()) / 1000;
        return "its wall clock runs at " + megahertz(ticks / microseconds) + ", not at " +
               megahertz(Api::wall_clock_megahertz(device_)) + " as " + Api::name + " has it";
    }

    std::string place_clock(Stream stream, OffsetBounds& bounds, Sighting& last) {
        for (int i = 0; i < 16; ++i) {
            if (auto flaw = see_markers(stream, 1, last); !flaw.empty()) return flaw;
            bounds.narrow(clock_.nanoseconds(last.entry.ticks), last.put, last.seen);
            clock_.observe(last.entry.ticks, last.put, last.seen);
        }
        return {};
    }

    MarkerStamp timestamp_of(const TimestampEntry& entry, Duration seen) {
        clock_.observe(entry.ticks, Duration{entry.enqueued}, seen);
        return {{entry.lane, entry.scope_kind, entry.leaving != 0, entry.burst},
                clock_.to_timeline(entry.ticks),
                has_cycles_ ? entry.cycles : 0,
                entry.unit};
    }

    int device_;
    std::string object_;
    typename Api::Home home_{};
    LaunchMarker launch_ = nullptr;
    MarkerWay way_ = MarkerWay::callback;
    std::string mechanism_;

    std::mutex cells_mutex_;
    std::deque<Block> blocks_;
    std::size_t cells_taken_ = 0;
    std::atomic<const Block*> newest_{nullptr};

    MappedArray<TimestampEntry> ring_;
    unsigned long long* next_ticket_ = nullptr;
    std::mutex reader_mutex_;
    std::optional<TimestampReader> reader_;
    DeviceClock clock_;
    Duration clock_uncertainty_{};
    bool has_cycles_ = false;
    LevelCell* probe_cell_ = nullptr;
    std::uint32_t probe_word_ = 0;

    EventTimestamps<Api> event_times_;
    bool has_times_ = true;
};

}  // namespace kdvfs::device
