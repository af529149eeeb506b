// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/event_timestamps.hpp>
#include <kdvfs/detail/device/gpu_api.hpp>
#include <kdvfs/detail/device/kernel_markers.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

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
#include <type_traits>

namespace kdvfs::inline v0_3::device {

/// @returns the number of the calling thread, for default streams that each thread has of its own;
///          never 0, and never given twice. Takes no lock: a forked child may ask, whatever its
///          parent's threads were at
inline std::uint64_t thread_number() {
    static constinit std::atomic<std::uint64_t> last{0};
    thread_local const std::uint64_t mine = ++last;
    return mine;
}

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
        : device_{device}, object_{device_name<Api>(device)}, kernel_{device} {
        static_assert(GpuApi<Api>);
        const OnDevice<Api> current{device_};
        const RelaxedCapture<Api> relaxed;
        grow_cells();
        home_ = Api::home(device_);  // mapping memory has made the device's context
        choose(way);
    }

    GpuStreams(const GpuStreams&) = delete;
    GpuStreams& operator=(const GpuStreams&) = delete;

    /// Takes the process's marker kernel where another module has brought one since; markers that
    /// are in streams and graphs already stay as they are. Keeps what it has where the kernel does
    /// not work here. @throws Error where memory or a stream cannot be had
    void look_for_marker_kernel() {
        const LaunchMarker offered = marker_kernel_of_program<Api>();
        if (offered == tried_ || way() == MarkerWay::kernel) return;
        const std::lock_guard lock{choosing_};
        if (tried_.exchange(offered) == offered || way_was_given_) return;
        const OnDevice<Api> current{device_};
        const RelaxedCapture<Api> relaxed;
        RequestCell* const cell = take_cell();
        if (!kernel_.prove(*cell, device_address(&cell->word)).empty()) {
            Api::forget_last_error();
            return;
        }
        kernel_mechanism_ = kernel_.description();
        way_.store(MarkerWay::kernel, std::memory_order_release);
    }

    [[nodiscard]] TrackKey track_key(StreamRef stream) {
        auto* const handle = stream.as<StreamObject>();
        expect_own(handle, "enter a scope", "use the kdvfs::Gpu of the stream's own device");
        return key_of(handle);
    }

    [[nodiscard]] TrackKey key_now(const TrackKey& before) {
        auto* const handle = before.stream.as<StreamObject>();
        if (Api::is_default(handle)) {
            expect_own(handle, "leave a scope", "leave it while the device of its GPU is current");
        }
        return key_of(handle);
    }

    [[nodiscard]] RequestCell* make_cell() {
        // Once per stream: a module that is loaded late may have brought a marker kernel.
        look_for_marker_kernel();
        return take_cell();
    }

    void put_marker(StreamRef stream, const Marker& marker) {
        auto* const handle = stream.as<StreamObject>();
        const MarkerWay way = this->way();
        if (way == MarkerWay::kernel) {
            check(kernel_.put(handle, device_address(&marker.cell->word), marker),
                  "launch a marker");
            return;
        }
        check(put_request(way, handle, marker), "put a marker into a stream");
        if (!marker.timestamped || marker.captured) return;
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
            word = &take_cell()->word;
        }
        const OwnStream<Api> probe{object_};
        put_wait(probe.get(), word, 0);  // has come to pass
        check(Api::synchronize(probe.get()), "let a stream wait for an answer");
        return word;
    }
    void put_wait(StreamRef stream, std::uint32_t* word, std::uint32_t number) {
        std::uint32_t* const address = Api::waits_in_signal_memory ? word : device_address(word);
        check(Api::wait(stream.as<StreamObject>(), address, number),
              "let a stream wait for an answer");
    }

    std::size_t drain_timestamps(std::span<MarkerTimestamp> out) noexcept {
        if (way() != MarkerWay::kernel) return event_times_.drain(out);
        const std::size_t earlier = uses_events_ ? event_times_.drain(out) : 0;
        return earlier + kernel_.drain(out.subspan(earlier));
    }

    /// Of events those that a thread that enters scopes has seen pass.
    std::size_t collect_timestamps(std::span<MarkerTimestamp> out) noexcept {
        if (way() != MarkerWay::kernel) return event_times_.collect(out);
        const std::size_t earlier = uses_events_ ? event_times_.collect(out) : 0;
        return earlier + kernel_.drain(out.subspan(earlier));
    }

    [[nodiscard]] std::uint64_t lost_timestamps() noexcept {
        const std::uint64_t earlier = uses_events_ ? event_times_.lost() : 0;
        return earlier + (way() == MarkerWay::kernel ? kernel_.lost() : 0);
    }

    void synchronize(StreamRef stream) {
        auto* const handle = stream.as<StreamObject>();
        constexpr const char* action = "wait for a stream";
        expect_own(handle, action, "use the kdvfs::Gpu of the stream's own device");
        check(Api::synchronize(handle), action);
    }

    [[nodiscard]] TimePoint now() noexcept {
        return TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }

    /// Which way markers go, and in brackets why not a better one.
    [[nodiscard]] std::string_view marker_mechanism() const {
        const bool came_late = way() == MarkerWay::kernel && uses_events_;
        return came_late ? kernel_mechanism_ : mechanism_;
    }

    /// How well the device's wall clock is placed on the Timeline; 0 without a marker kernel.
    [[nodiscard]] Duration clock_uncertainty() const { return kernel_.clock_uncertainty(); }

private:
    using StreamObject = typename Api::StreamObject;
    using Stream = typename Api::Stream;
    using Status = typename Api::Status;

    static constexpr std::size_t cells_per_block = 4096;  // tracks before memory is mapped again

    struct Block {
        MappedArray<RequestCell> cells;
        const Block* older;
    };

    void check(Status status, const char* action) const {
        if (status != Api::success) device::check<Api>(status, action, object_);
    }

    [[nodiscard]] MarkerWay way() const { return way_.load(std::memory_order_acquire); }

    // Streams.

    void expect_own(Stream stream, const char* action, const char* remedy) const {
        std::string words = Api::external(stream, device_, home_);
        if (words.empty()) return;
        throw Error{Errc::invalid_input, {action, object_, std::move(words), remedy}};
    }

    [[nodiscard]] TrackKey key_of(Stream stream) const {
        CaptureState capture;
        check(Api::capture_state(stream, capture), "ask whether a stream is captured");
        if (capture.invalidated) {
            check(Api::capture_invalidated, "use a stream whose capture has failed");
        }
        return {stream, Api::is_per_thread(stream) ? thread_number() : 0,
                capture.active ? capture.id : 0};
    }

    // Cells.

    [[nodiscard]] RequestCell* take_cell() {
        const std::lock_guard lock{cells_mutex_};
        if (cells_taken_ == cells_per_block) grow_cells();
        return blocks_.back().cells.host + cells_taken_++;
    }

    /// The caller holds the lock, or is the constructor.
    void grow_cells() {
        const auto cells = map_for_ever<Api, RequestCell>(cells_per_block, object_);
        blocks_.push_back({cells, newest_.load()});
        newest_ = &blocks_.back();
        cells_taken_ = 0;
    }

    /// The device's address of a cell's word: blocks are few, and never go.
    [[nodiscard]] std::uint32_t* device_address(const std::uint32_t* word) const {
        const auto* const cell = reinterpret_cast<const RequestCell*>(word);
        for (const Block* block = newest_; block != nullptr; block = block->older) {
            const RequestCell* const first = block->cells.host;
            if (cell < first || cell >= first + cells_per_block) continue;
            return &block->cells.device[cell - first].word;
        }
        return nullptr;
    }

    // Markers.

    /// Into a capture only what it records.
    Status put_request(MarkerWay way, Stream stream, const Marker& marker) {
        std::uint32_t* const address = device_address(&marker.cell->word);
        switch (way) {
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
        RequestCell* cell;
        RequestWord word;
        Store* next = nullptr;
    };
    static void store(void* data) {
        const auto* what = static_cast<const Store*>(data);
        what->cell->store(what->word);
    }
    static void store_once(void* data) {
        store(data);
        delete static_cast<Store*>(data);
    }

    /// What captured functions store. A function runs at every replay, and its graph may outlive
    /// everything here: none is freed.
    static void keep_for_ever(Store* store) {
        static constinit std::atomic<Store*> kept{nullptr};
        store->next = kept.load(std::memory_order_relaxed);
        while (!kept.compare_exchange_weak(store->next, store)) {
        }
    }

    static Status put_callback(Stream stream, const Marker& marker) {
        if (marker.captured && !Api::records_callbacks) return Api::cannot_capture;
        auto* const what = new Store{marker.cell, marker.word};
        // A captured one is called at each launch of its graph, and keeps what it stores.
        const Status status = marker.captured ? Api::template call_back<store>(stream, what)
                                              : Api::template call_back<store_once>(stream, what);
        if (status != Api::success) {
            delete what;
        } else if (marker.captured) {
            keep_for_ever(what);
        }
        return status;
    }

    // Proofs. Each returns why a way cannot be used; nothing where it can.

    /// Takes the first way that is proven.
    void choose(std::optional<MarkerWay> wanted) {
        way_was_given_ = wanted.has_value();
        tried_ = marker_kernel_of_program<Api>().load();
        std::string why_not;
        for (const MarkerWay way :
             {MarkerWay::kernel, MarkerWay::stream_write, MarkerWay::memset, MarkerWay::callback}) {
            if (wanted && way != *wanted) continue;
            way_ = way;
            const std::string flaw = prove_requests();
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
        switch (way()) {
            case MarkerWay::kernel: mechanism_ = kernel_.description(); break;
            case MarkerWay::stream_write:
                mechanism_ = Api::records_writes ? "stream memory writes"
                                                 : "stream memory writes, memsets in captures";
                break;
            case MarkerWay::memset: mechanism_ = "memsets"; break;
            case MarkerWay::callback: mechanism_ = "host functions"; break;
        }
        if (way() != MarkerWay::kernel) {
            uses_events_ = true;
            const std::string flaw = event_times_.prove();
            has_times_ = flaw.empty();
            mechanism_ += has_times_ ? ", times by events" : ", no times: " + flaw;
        }
        if (!why_not.empty()) mechanism_ += " (" + why_not + ")";
    }

    /// Several requests in a row: the last one must stay.
    std::string prove_requests() {
        RequestCell* const cell = take_cell();
        if (way() == MarkerWay::kernel) return kernel_.prove(*cell, device_address(&cell->word));
        const OwnStream<Api> stream{object_};
        constexpr std::uint32_t last = 4;
        for (std::uint32_t i = 1; i <= last; ++i) {
            const Status put = put_request(way(), stream.get(), {cell, RequestWord{i}, {}, false});
            if (put != Api::success) return Api::words_of(put);
        }
        if (const Status done = Api::synchronize(stream.get()); done != Api::success) {
            return Api::words_of(done);
        }
        return flaw_of_order(cell->load(), RequestWord{last});
    }

    int device_;
    std::string object_;
    typename Api::Home home_{};
    std::atomic<MarkerWay> way_{MarkerWay::callback};
    bool way_was_given_ = false;
    std::atomic<LaunchMarker> tried_{nullptr};  ///< the marker kernel that was proven last
    bool uses_events_ = false;  ///< the way found at construction has its times by events
    std::string mechanism_;
    std::string kernel_mechanism_;  ///< of a marker kernel that came late
    std::mutex choosing_;

    std::mutex cells_mutex_;
    std::deque<Block> blocks_;
    std::size_t cells_taken_ = 0;
    std::atomic<const Block*> newest_{nullptr};

    KernelMarkers<Api> kernel_;
    EventTimestamps<Api> event_times_;
    bool has_times_ = true;
};

}  // namespace kdvfs::inline v0_3::device
