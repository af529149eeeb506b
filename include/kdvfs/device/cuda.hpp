// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/cuda_event_timestamps.hpp>
#include <kdvfs/device/device_clock.hpp>
#include <kdvfs/device/marker_kernel.hpp>
#include <kdvfs/device/nvidia/cuda_api.hpp>
#include <kdvfs/device/timestamp_ring.hpp>
#include <kdvfs/error.hpp>

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

/// How markers go into CUDA's streams, the best first.
enum class CudaMarkers {
    kernel,        ///< a one-thread kernel: level, timestamp and core cycles; needs device code
    stream_write,  ///< the driver's stream memory write; timestamps by events
    memset,        ///< a memset node; timestamps by events
    callback,      ///< a host function: tens of microseconds; timestamps by events
};

/// CUDA's streams as a StreamRuntime. See there for what the calls do and who may make them.
class Cuda {
public:
    /// @param markers how markers go; the best way that works here unless given.
    /// @throws Error if there is no such device, or the given way does not work here.
    explicit Cuda(int device, std::optional<CudaMarkers> markers = std::nullopt)
        : device_{device},
          object_{"CUDA device " + std::to_string(device)},
          event_timestamps_{object_} {
        const OnDevice current{device_, object_};
        driver_streams_ = cuda::DriverStreams::find();
        if (driver_streams_.current_context != nullptr) {
            driver_streams_.current_context(&context_);
        }
        launch_ = marker_kernel_of_program();
        grow_cells();
        make_ring();
        choose(markers);
        if (markers_ == CudaMarkers::kernel) find_clock_offset();
    }

    Cuda(const Cuda&) = delete;
    Cuda& operator=(const Cuda&) = delete;

    [[nodiscard]] TrackKey track_key(StreamRef stream) {
        auto* const handle = stream.as<CUstream_st>();
        check_device(handle);
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long id = 0;
        check(cudaStreamGetCaptureInfo(handle, &status, &id), "ask whether a stream is captured");
        if (status == cudaStreamCaptureStatusInvalidated) {
            check(cudaErrorStreamCaptureInvalidated, "use a stream whose capture has failed");
        }
        return {stream, is_per_thread(handle) ? this_thread() : 0,
                status == cudaStreamCaptureStatusActive ? id : 0};
    }

    [[nodiscard]] RequestCell* make_cell() {
        const std::lock_guard lock{cells_mutex_};
        if (cells_taken_ == cells_per_block) grow_cells();
        return cells_.host + cells_taken_++;
    }

    void put_marker(StreamRef stream, const Marker& marker) {
        auto* const handle = stream.as<CUstream_st>();
        if (markers_ == CudaMarkers::kernel) {
            check(put_kernel(handle, marker), "launch a marker");
            return;
        }
        check(put_request(handle, marker), "put a marker into a stream");
        if (marker.timestamped && track_key(stream).capture == 0) {
            event_timestamps_.record(handle, marker.tag);
        }
    }

    std::size_t drain_timestamps(std::span<MarkerTimestamp> out) noexcept {
        if (markers_ != CudaMarkers::kernel) return event_timestamps_.drain(out);
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
        check(cudaStreamSynchronize(stream.as<CUstream_st>()), "wait for a stream");
        if (markers_ != CudaMarkers::kernel) event_timestamps_.harvest_now();
    }

    [[nodiscard]] TimePoint now() noexcept {
        return TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }

    [[nodiscard]] std::string_view marker_mechanism() const {
        switch (markers_) {
            case CudaMarkers::kernel: return "one-thread kernels";
            case CudaMarkers::stream_write: return "stream memory writes, times by events";
            case CudaMarkers::memset: return "memsets, times by events";
            case CudaMarkers::callback: return "host functions, times by events";
        }
        return "";
    }

    /// How well the device's wall clock is placed on the Timeline; 0 without a marker kernel.
    [[nodiscard]] Duration clock_uncertainty() const { return clock_uncertainty_; }

private:
    // 4096 scopes' tracks before host memory is mapped again; 2^16 timestamps are 4 MiB.
    static constexpr std::size_t cells_per_block = 4096;
    static constexpr std::size_t ring_entries = std::size_t{1} << 16U;

    /// Makes the device current, and the one before again.
    class OnDevice {
    public:
        OnDevice(int device, const std::string& object) {
            cuda::check(cudaGetDevice(&before_), "ask for the current device", object);
            cuda::check(cudaSetDevice(device), "use the device", object);
        }
        ~OnDevice() { (void)cudaSetDevice(before_); }
        OnDevice(const OnDevice&) = delete;
        OnDevice& operator=(const OnDevice&) = delete;

    private:
        int before_ = 0;
    };

    void check(cudaError_t status, const char* action) const {
        cuda::check(status, action, object_);
    }

    static bool is_per_thread(cudaStream_t stream) {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
        return stream == nullptr || stream == cudaStreamPerThread;
#else
        return stream == cudaStreamPerThread;
#endif
    }

    static std::uint64_t this_thread() {
        static std::atomic<std::uint64_t> threads{0};
        thread_local const std::uint64_t number = ++threads;
        return number;
    }

    /// By contexts, because cudaStreamGetDevice ends a capture: on driver 580 it returns 900 and
    /// invalidates, in every mode, for the captured stream and for the default one.
    void check_device(cudaStream_t stream) const {
        void* context = context_;
        if (context_ == nullptr || driver_streams_.context_of == nullptr ||
            driver_streams_.context_of(stream, &context) != 0 || context == context_) {
            return;
        }
        throw Error{Errc::invalid_input,
                    {"enter a scope", object_, "the stream belongs to another CUDA context",
                     "use the kdvfs::Gpu of the stream's own device"}};
    }

    /// The caller holds the lock or is the constructor.
    void grow_cells() {
        const auto block = cuda::map_for_ever<RequestCell>(cells_per_block, object_);
        cells_ = block;
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
        ring_ = cuda::map_for_ever<TimestampEntry>(ring_entries, object_);
        reader_.emplace(ring_.host, ring_entries);
        void* ticket = nullptr;  // never freed: a late marker may still count
        check(cudaMalloc(&ticket, sizeof(unsigned long long)), "allocate device memory");
        check(cudaMemset(ticket, 0, sizeof(unsigned long long)), "clear device memory");
        next_ticket_ = static_cast<unsigned long long*>(ticket);
    }

    cudaError_t put_kernel(cudaStream_t stream, const Marker& marker) {
        MarkerArguments arguments;
        arguments.cell = device_address(marker.cell);
        arguments.level = marker.word.raw();
        if (marker.timestamped) {
            arguments.ring = ring_.device;
            arguments.next_ticket = next_ticket_;
            arguments.ring_mask = ring_entries - 1;
            arguments.timestamp.track = marker.tag.track;
            arguments.timestamp.scope_kind = marker.tag.scope_kind;
            arguments.timestamp.window = marker.tag.window;
            arguments.timestamp.leaving = marker.tag.leaving ? 1 : 0;
            arguments.timestamp.enqueued =
                is_captured(stream) ? 0 : now().time_since_epoch().count();
        }
        return static_cast<cudaError_t>(launch_(stream, arguments));
    }

    static bool is_captured(cudaStream_t stream) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
               status != cudaStreamCaptureStatusNone;
    }

    cudaError_t put_request(cudaStream_t stream, const Marker& marker) {
        const auto address = reinterpret_cast<std::uint64_t>(device_address(marker.cell));
        if (markers_ == CudaMarkers::stream_write) {
            return static_cast<cudaError_t>(
                driver_streams_.write(stream, address, marker.word.raw(), 0));
        }
        if (markers_ == CudaMarkers::memset) {
            return static_cast<cudaError_t>(
                driver_streams_.set(address, marker.word.raw(), 1, stream));
        }
        // The callback owns what it stores: a captured one runs at every replay, and its graph may
        // outlive everything here, so it is never freed.
        auto* const store = new std::pair<RequestCell*, RequestWord>{marker.cell, marker.word};
        const bool once = !is_captured(stream);
        return cudaLaunchHostFunc(stream, once ? store_and_free : store_request, store);
    }

    static void CUDART_CB store_request(void* data) {
        const auto* store = static_cast<std::pair<RequestCell*, RequestWord>*>(data);
        store->first->store(store->second);
    }
    static void CUDART_CB store_and_free(void* data) {
        store_request(data);
        delete static_cast<std::pair<RequestCell*, RequestWord>*>(data);
    }

    /// Takes the first way whose marker arrives.
    void choose(std::optional<CudaMarkers> wanted) {
        for (const CudaMarkers way : {CudaMarkers::kernel, CudaMarkers::stream_write,
                                      CudaMarkers::memset, CudaMarkers::callback}) {
            if (wanted && way != *wanted) continue;
            markers_ = way;
            if (arrives()) return;
        }
        throw Error{Errc::not_supported,
                    {"put markers into streams", object_, "no probed way works",
                     "compile one file that includes kdvfs with nvcc, or update the driver"}};
    }

    bool arrives() {
        if (markers_ == CudaMarkers::kernel && launch_ == nullptr) return false;
        if (markers_ == CudaMarkers::stream_write && driver_streams_.write == nullptr) return false;
        if (markers_ == CudaMarkers::memset && driver_streams_.set == nullptr) return false;
        RequestCell* const cell = make_cell();
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
        const Marker marker{
            .cell = cell, .word = RequestWord{0x5a5a5a5aU}, .tag = {}, .timestamped = false};
        const cudaError_t put = markers_ == CudaMarkers::kernel ? put_kernel(stream, marker)
                                                                : put_request(stream, marker);
        const bool there = put == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess &&
                           cell->load() == marker.word;
        (void)cudaStreamDestroy(stream);
        return there;
    }

    /// Markers into an idle stream, watched for by this thread: the offset to within the shortest
    /// way there and back.
    void find_clock_offset() {
        RequestCell* const cell = make_cell();
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
        const Marker marker{.cell = cell, .word = {}, .tag = {}, .timestamped = true};
        cudaError_t status = cudaSuccess;
        for (int i = 0; i < 32 && status == cudaSuccess; ++i) {
            status = put_kernel(stream, marker);
            const TimePoint deadline = now() + std::chrono::milliseconds{100};
            std::optional<TimestampEntry> entry;
            while (!entry && status == cudaSuccess && now() < deadline) entry = reader_->take();
            if (!entry || i == 0) continue;  // the first launch also loads the kernel
            clock_.observe(entry->ticks, Duration{entry->enqueued}, now().time_since_epoch());
        }
        (void)cudaStreamDestroy(stream);
        check(status, "launch a marker");
        clock_.center();
        clock_uncertainty_ = clock_.uncertainty();
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
    CudaMarkers markers_ = CudaMarkers::callback;
    LaunchMarker launch_ = nullptr;
    cuda::DriverStreams driver_streams_;
    void* context_ = nullptr;  // the device's primary one

    std::mutex cells_mutex_;
    cuda::MappedArray<RequestCell> cells_;
    std::size_t cells_taken_ = 0;
    std::mutex addresses_mutex_;
    std::vector<cuda::MappedArray<RequestCell>> cell_blocks_;

    cuda::MappedArray<TimestampEntry> ring_;
    unsigned long long* next_ticket_ = nullptr;
    std::mutex reader_mutex_;
    std::optional<TimestampReader> reader_;
    DeviceClock clock_;
    std::optional<std::uint32_t> home_unit_;
    Duration clock_uncertainty_{};
    CudaEventTimestamps event_timestamps_;
};

static_assert(StreamRuntime<Cuda>);

}  // namespace kdvfs::device
