// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3::detail {

/// A `StreamRuntime` whose type is not known where it is used. See there for the functions.
class AnyStreams {
public:
    AnyStreams() = default;
    AnyStreams(const AnyStreams&) = delete;
    AnyStreams& operator=(const AnyStreams&) = delete;
    virtual ~AnyStreams() = default;

    [[nodiscard]] virtual TrackKey track_key(StreamRef stream) = 0;
    [[nodiscard]] virtual TrackKey key_now(const TrackKey& key) = 0;
    [[nodiscard]] virtual RequestCell* make_cell() = 0;
    virtual void put_marker(StreamRef stream, const Marker& marker) = 0;
    virtual std::size_t drain_timestamps(std::span<MarkerTimestamp> out) noexcept = 0;
    virtual std::size_t collect_timestamps(std::span<MarkerTimestamp> out) noexcept = 0;
    [[nodiscard]] virtual std::uint64_t lost_timestamps() noexcept = 0;
    virtual void synchronize(StreamRef stream) = 0;
    [[nodiscard]] virtual std::string_view marker_mechanism() const = 0;
    /// As `TakesMarkerKernels`; nothing for a runtime that does not.
    virtual void look_for_marker_kernel() = 0;
};

/// A `StreamRuntime` as `AnyStreams`.
template <StreamRuntime Runtime>
class AnyStreamsOf final : public AnyStreams {
public:
    explicit AnyStreamsOf(std::shared_ptr<Runtime> runtime) : runtime_{std::move(runtime)} {}

    [[nodiscard]] TrackKey track_key(StreamRef stream) override {
        return runtime_->track_key(stream);
    }
    [[nodiscard]] TrackKey key_now(const TrackKey& key) override { return runtime_->key_now(key); }
    [[nodiscard]] RequestCell* make_cell() override { return runtime_->make_cell(); }
    void put_marker(StreamRef stream, const Marker& marker) override {
        runtime_->put_marker(stream, marker);
    }
    std::size_t drain_timestamps(std::span<MarkerTimestamp> out) noexcept override {
        return runtime_->drain_timestamps(out);
    }
    std::size_t collect_timestamps(std::span<MarkerTimestamp> out) noexcept override {
        if constexpr (CollectsTimestamps<Runtime>) return runtime_->collect_timestamps(out);
        return 0;
    }
    [[nodiscard]] std::uint64_t lost_timestamps() noexcept override {
        return runtime_->lost_timestamps();
    }
    void synchronize(StreamRef stream) override { runtime_->synchronize(stream); }
    [[nodiscard]] std::string_view marker_mechanism() const override {
        return runtime_->marker_mechanism();
    }
    void look_for_marker_kernel() override {
        if constexpr (TakesMarkerKernels<Runtime>) runtime_->look_for_marker_kernel();
    }

private:
    std::shared_ptr<Runtime> runtime_;
};

/// The runtime of a GPU that was opened by its PCI address: there is no HIP and no CUDA yet, so
/// there are no streams. `Gpu::request` works without. Where the process opens the same GPU by its
/// HIP or CUDA number later, `bring` gives it that runtime's streams. Thread-safe.
class LateStreams {
public:
    /// @param address of the GPU, for errors
    explicit LateStreams(std::string address) : address_{std::move(address)} {}
    LateStreams(const LateStreams&) = delete;
    LateStreams& operator=(const LateStreams&) = delete;

    /// Gives the GPU streams, unless it has some.
    /// @param open returns them
    /// @throws what `open` throws
    void bring(const std::function<std::shared_ptr<AnyStreams>()>& open) {
        const std::lock_guard lock{bringing_};
        if (brought_ != nullptr) return;
        brought_ = open();
        streams_.store(brought_.get(), std::memory_order_release);
    }
    void look_for_marker_kernel() const {
        if (AnyStreams* const streams = find()) streams->look_for_marker_kernel();
    }

    [[nodiscard]] TrackKey track_key(StreamRef stream) const { return get().track_key(stream); }
    [[nodiscard]] TrackKey key_now(const TrackKey& key) const { return get().key_now(key); }
    [[nodiscard]] RequestCell* make_cell() const { return get().make_cell(); }
    void put_marker(StreamRef stream, const Marker& marker) const {
        get().put_marker(stream, marker);
    }
    [[nodiscard]] std::size_t drain_timestamps(std::span<MarkerTimestamp> out) const noexcept {
        AnyStreams* const streams = find();
        return streams == nullptr ? 0 : streams->drain_timestamps(out);
    }
    [[nodiscard]] std::size_t collect_timestamps(std::span<MarkerTimestamp> out) const noexcept {
        AnyStreams* const streams = find();
        return streams == nullptr ? 0 : streams->collect_timestamps(out);
    }
    [[nodiscard]] std::uint64_t lost_timestamps() const noexcept {
        AnyStreams* const streams = find();
        return streams == nullptr ? 0 : streams->lost_timestamps();
    }
    void synchronize(StreamRef stream) const { get().synchronize(stream); }
    /// By the clock of all real runtimes: the time does not jump when streams are brought.
    [[nodiscard]] TimePoint now() const noexcept {
        return TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }
    [[nodiscard]] std::string_view marker_mechanism() const {
        const AnyStreams* const streams = find();
        return streams == nullptr ? "none, no streams" : streams->marker_mechanism();
    }

private:
    [[nodiscard]] AnyStreams* find() const noexcept {
        return streams_.load(std::memory_order_acquire);
    }
    [[nodiscard]] AnyStreams& get() const {
        if (AnyStreams* const streams = find()) return *streams;
        throw Error{Errc::not_supported,
                    {.action = "enter a scope on a stream",
                     .object = address_,
                     .vendor_words = "the GPU was opened by its PCI address, without streams",
                     .remedy = "open it by its HIP or CUDA number, too, or use Gpu::request"}};
    }

    std::string address_;
    std::mutex bringing_;
    std::shared_ptr<AnyStreams> brought_;
    std::atomic<AnyStreams*> streams_{nullptr};
};
static_assert(StreamRuntime<LateStreams> && TakesMarkerKernels<LateStreams>);

}  // namespace kdvfs::inline v0_3::detail
