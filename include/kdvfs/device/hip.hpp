// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/amd/hip_api.hpp>
#include <kdvfs/error.hpp>
// The marker kernel needs HIP's header before it.
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/device_clock.hpp>
#include <kdvfs/device/hip_event_timestamps.hpp>
#include <kdvfs/device/marker_kernel.hpp>
#include <kdvfs/device/timestamp_ring.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::device {

/// How markers go into HIP's streams, the best first.
enum class HipMarkers {
    kernel,        ///< a one-thread kernel: level, timestamp and core cycles; needs device code
    stream_write,  ///< a stream memory write; in captures a memset, since ROCm records no write
    memset,        ///< a memset node; timestamps by events
    callback,      ///< a host callback, tens of microseconds; not in captures
};

/// HIP's streams as a StreamRuntime. See there for what the calls do and who may make them.
class Hip {
public:
    /// @param markers how markers go; the best way that works here unless given.
    /// @throws Error if there is no such device, or the given way does not work here.
    explicit Hip(int device, std::optional<HipMarkers> markers = std::nullopt)
        : device_{device},
          object_{"HIP device " + std::to_string(device)},
          event_timestamps_{object_} {
        const hip::OnDevice current{device_, object_};
        launch_ = marker_kernel_of_program();
        grow_cells();
        if (launch_ != nullptr) make_ring();
        choose(markers);
    }

    Hip(const Hip&) = delete;
    Hip& operator=(const Hip&) = delete;

    [[nodiscard]] TrackKey track_key(StreamRef stream) {
        auto* const handle = stream.as<ihipStream_t>();
        check_device(handle);
        return {stream, handle == hipStreamPerThread ? this_thread() : 0, capture_of(handle)};
    }

    [[nodiscard]] RequestCell* make_cell() {
        const std::lock_guard lock{cells_mutex_};
        if (cells_taken_ == cells_per_block) grow_cells();
        return cell_blocks_.back().host + cells_taken_++;
    }

    void put_marker(StreamRef stream, const Marker& marker) {
        auto* const handle = stream.as<ihipStream_t>();
        const bool captured = capture_of(handle) != 0;
        if (markers_ == HipMarkers::kernel) {
            check(put_kernel(handle, marker, captured), "launch a marker");
            return;
        }
        check(put_request(handle, marker, captured), "put a marker into a stream");
        if (marker.timestamped && !captured) event_timestamps_.record(handle, marker.tag);
    }

    /// @throws Error (not_supported) where this device's streams cannot wait
    [[nodiscard]] std::uint32_t* make_answer_word() {
        const hip::OnDevice current{device_, object_};
        int can_wait = 0;
        check(hipDeviceGetAttribute(&can_wait, hipDeviceAttributeCanUseStreamWaitValue, device_),
              "ask whether streams can wait");
        if (can_wait == 0) check(hipErrorNotSupported, "let a stream wait for an answer");
        void* memory = nullptr;  // never freed: a stream may wait for it as long as it likes
        check(hipExtMallocWithFlags(&memory, 8, hipMallocSignalMemory), "make signal memory");
        auto* const word = static_cast<std::uint32_t*>(memory);
        std::atomic_ref{*word}.store(0);
        return word;
    }
    void put_wait(StreamRef stream, std::uint32_t* word, std::uint32_t number) {
        check(hipStreamWaitValue32(stream.as<ihipStream_t>(), word, number, hipStreamWaitValueGte,
                                   0xffffffffU),
              "let a stream wait for an answer");
    }

    std::size_t drain_timestamps(std::span<MarkerTimestamp> out) noexcept {
        if (markers_ != HipMarkers::kernel) return event_timestamps_.drain(out);
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

    [[nodiscard]] std::uint64_t lost_timestamps() noexcept {
        const std::lock_guard lock{reader_mutex_};
        return reader_ ? reader_->lost() : 0;
    }

    void synchronize(StreamRef stream) {
        check(hipStreamSynchronize(stream.as<ihipStream_t>()), "wait for a stream");
    }

    [[nodiscard]] TimePoint now() noexcept {
        return TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }

    [[nodiscard]] std::string_view marker_mechanism() const {
        switch (markers_) {
            case HipMarkers::kernel: return "one-thread kernels";
            case HipMarkers::stream_write:
                return "stream memory writes, memsets in captures, times by events";
            case HipMarkers::memset: return "memsets, times by events";
            case HipMarkers::callback: return "host callbacks, times by events";
        }
        return "";
    }

private:
    // As many tracks before host memory is mapped again; 2^16 timestamps are 4 MiB.
    static constexpr std::size_t cells_per_block = 4096;
    static constexpr std::size_t ring_entries = std::size_t{1} << 16U;
    // wall_clock64() runs at 100 MHz on CDNA; ROCm 5.2 has no attribute to ask.
    static constexpr double ns_per_wall_clock_tick = 10;

    void check(hipError_t status, const char* action) const { hip::check(status, action, object_); }

    static std::uint64_t this_thread() {
        static std::atomic<std::uint64_t> threads{0};
        thread_local const std::uint64_t number = ++threads;
        return number;
    }

    void check_device(hipStream_t stream) const {
        const int device = hipGetStreamDeviceId(stream);
        if (device == device_) return;
        throw Error{Errc::invalid_input,
                    {"enter a scope", object_,
                     device < 0 ? "there is no such stream"
                                : "the stream is of HIP device " + std::to_string(device),
                     "use that device's own kdvfs::Gpu"}};
    }

    /// @returns the capture's id, 0 for live work
    [[nodiscard]] std::uint64_t capture_of(hipStream_t stream) const {
        hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
        unsigned long long id = 0;
        check(hipStreamGetCaptureInfo(stream, &status, &id), "ask whether a stream is captured");
        if (status == hipStreamCaptureStatusInvalidated) {
            check(hipErrorStreamCaptureInvalidated, "use a stream whose capture has failed");
        }
        return status == hipStreamCaptureStatusActive ? id : 0;
    }

    /// The caller holds the lock, or is the constructor.
    void grow_cells() {
        const auto block = hip::map_for_ever<RequestCell>(cells_per_block, object_);
        cells_taken_ = 0;
        const std::lock_guard lock{addresses_mutex_};
        cell_blocks_.push_back(block);
    }

    /// The device's address of a cell: blocks are few.
    std::uint32_t* device_address(const RequestCell* cell) {
        const std::lock_guard lock{addresses_mutex_};
        for (const auto& block : cell_blocks_) {
            if (cell < block.host || cell >= block.host + cells_per_block) continue;
            return &block.device[cell - block.host].word;
        }
        return nullptr;
    }

    void make_ring() {
        ring_ = hip::map_for_ever<TimestampEntry>(ring_entries, object_);
        ticket_ = hip::map_for_ever<unsigned long long>(1, object_);
        reader_.emplace(ring_.host, ring_entries);
    }

    hipError_t put_kernel(hipStream_t stream, const Marker& marker, bool captured) {
        MarkerArguments arguments;
        arguments.cell = device_address(marker.cell);
        arguments.level = marker.word.raw();
        if (marker.timestamped) {
            arguments.ring = ring_.device;
            arguments.next_ticket = ticket_.device;
            arguments.ring_mask = ring_entries - 1;
            arguments.timestamp.track = marker.tag.track;
            arguments.timestamp.scope_kind = marker.tag.scope_kind;
            arguments.timestamp.window = marker.tag.window;
            arguments.timestamp.leaving = marker.tag.leaving ? 1 : 0;
            arguments.timestamp.enqueued = captured ? 0 : now().time_since_epoch().count();
        }
        return static_cast<hipError_t>(launch_(stream, arguments));
    }

    /// In a capture only what ROCm records: it runs writes and callbacks at once there, and says
    /// that all is well.
    hipError_t put_request(hipStream_t stream, const Marker& marker, bool captured) {
        const HipMarkers way =
            captured && markers_ != HipMarkers::callback ? HipMarkers::memset : markers_;
        std::uint32_t* const address = device_address(marker.cell);
        if (way == HipMarkers::stream_write) {
            return hipStreamWriteValue32(stream, address, marker.word.raw(), 0);
        }
        if (way == HipMarkers::memset) {
            return hipMemsetD32Async(address, static_cast<int>(marker.word.raw()), 1, stream);
        }
        if (captured) return hipErrorStreamCaptureUnsupported;
        auto* const store = new std::pair<RequestCell*, RequestWord>{marker.cell, marker.word};
        const hipError_t status = hipStreamAddCallback(stream, &store_request, store, 0);
        if (status != hipSuccess) delete store;
        return status;
    }

    static void store_request(hipStream_t, hipError_t, void* data) {
        const auto* store = static_cast<std::pair<RequestCell*, RequestWord>*>(data);
        store->first->store(store->second);
        delete store;
    }

    /// Takes the first way whose marker arrives.
    void choose(std::optional<HipMarkers> wanted) {
        for (const HipMarkers way : {HipMarkers::kernel, HipMarkers::stream_write,
                                     HipMarkers::memset, HipMarkers::callback}) {
            if (wanted && way != *wanted) continue;
            markers_ = way;
            if (arrives()) return;
        }
        throw Error{Errc::not_supported,
                    {"put markers into streams", object_, "no probed way works",
                     "compile one file that includes kdvfs with hipcc, or update ROCm"}};
    }

    bool arrives() {
        if (markers_ == HipMarkers::kernel && launch_ == nullptr) return false;
        RequestCell* const cell = make_cell();
        hipStream_t stream = nullptr;
        check(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "make a stream");
        bool there = true;
        // A timestamped kernel also shows where the device's clock lies; the first one is slow to
        // load.
        const unsigned times = markers_ == HipMarkers::kernel ? 32 : 1;
        for (unsigned i = 1; i <= times && there; ++i) {
            const Marker marker{cell, RequestWord{i}, {}, markers_ == HipMarkers::kernel};
            const hipError_t put = markers_ == HipMarkers::kernel
                                       ? put_kernel(stream, marker, false)
                                       : put_request(stream, marker, false);
            there = put == hipSuccess && hipStreamSynchronize(stream) == hipSuccess &&
                    cell->load() == marker.word;
            if (there && markers_ == HipMarkers::kernel) observe_clock(i > 1);
        }
        static_cast<void>(hipStreamDestroy(stream));
        if (!there) static_cast<void>(hipGetLastError());  // the probe's own, not the user's
        clock_.center();
        return there;
    }

    void observe_clock(bool counts) {
        const auto entry = reader_->take();
        if (!entry || !counts) return;
        clock_.observe(entry->ticks, Duration{entry->enqueued}, now().time_since_epoch());
    }

    MarkerTimestamp timestamp_of(const TimestampEntry& entry, Duration seen) {
        clock_.observe(entry.ticks, Duration{entry.enqueued}, seen);
        if (!home_unit_) home_unit_ = entry.unit;
        // Each unit counts its own cycles: only those of one unit can be subtracted.
        const bool countable = entry.unit == *home_unit_;
        return {{entry.track, entry.scope_kind, entry.leaving != 0, entry.window},
                clock_.to_timeline(entry.ticks),
                countable ? entry.cycles : 0};
    }

    int device_;
    std::string object_;
    HipMarkers markers_ = HipMarkers::callback;
    LaunchMarker launch_ = nullptr;

    std::mutex cells_mutex_;
    std::size_t cells_taken_ = 0;
    std::mutex addresses_mutex_;
    std::vector<hip::MappedArray<RequestCell>> cell_blocks_;

    hip::MappedArray<TimestampEntry> ring_;
    hip::MappedArray<unsigned long long> ticket_;
    std::mutex reader_mutex_;
    std::optional<TimestampReader> reader_;
    DeviceClock clock_{ns_per_wall_clock_tick};
    std::optional<std::uint32_t> home_unit_;
    HipEventTimestamps event_timestamps_;
};

static_assert(StreamRuntime<Hip> && WaitingRuntime<Hip>);

}  // namespace kdvfs::device
