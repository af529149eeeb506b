// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/device_clock.hpp>
#include <kdvfs/detail/device/gpu_api.hpp>
#include <kdvfs/detail/device/marker_launch.hpp>
#include <kdvfs/device/contracts.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

namespace kdvfs::inline v0_3::device {

/// What is wrong where `seen` stands in a cell into which `put` was put last; empty where nothing.
inline std::string flaw_of_order(RequestWord seen, RequestWord put) {
    if (seen == put) return {};
    return seen == RequestWord{} ? "nothing arrives in host memory" : "it runs out of order";
}

/// Whether what a unit counts is a core clock: it moves, and not as the device's wall clock does.
class CycleProof {
public:
    void see(const TimestampEntry& entry) {
        const auto [at, is_new] = first_.try_emplace(entry.unit, entry);
        if (is_new || entry.ticks == at->second.ticks) return;
        ticks_ += static_cast<double>(entry.ticks - at->second.ticks);
        cycles_ += static_cast<double>(entry.cycles - at->second.cycles);
    }

    /// Empty where nothing is wrong, or where no unit was met twice.
    /// @param wall_megahertz of the wall clock; one so fast that core clocks run at its rate, too,
    ///                       tells nothing
    [[nodiscard]] std::string flaw(double wall_megahertz) const {
        constexpr double slower_than_any_core = 120;
        if (ticks_ <= 0) return {};
        if (cycles_ <= 0) return "what units count stands still";
        const bool alike = std::abs(cycles_ / ticks_ - 1) < 0.002;
        return alike && wall_megahertz < slower_than_any_core ? "what units count is the wall clock"
                                                              : "";
    }

private:
    std::map<std::uint32_t, TimestampEntry> first_;
    double ticks_ = 0;
    double cycles_ = 0;
};

/// Markers by the program's marker kernel: request, time and core cycles in one launch, in captures
/// as well. Unusable before `prove` has found no flaw. Thread-safe from then on.
template <GpuApi Api>
class KernelMarkers {
public:
    using Stream = typename Api::Stream;
    using Status = typename Api::Status;

    explicit KernelMarkers(int device) : device_{device}, object_{device_name<Api>(device)} {}
    KernelMarkers(const KernelMarkers&) = delete;
    KernelMarkers& operator=(const KernelMarkers&) = delete;

    /// Puts markers of its own and looks at what they leave behind. The device is current.
    /// @param address the device's own of the cell's word
    /// @returns why the kernel cannot be used; nothing where it can
    /// @throws Error where memory or a stream cannot be had
    [[nodiscard]] std::string prove(RequestCell& cell, std::uint32_t* address) {
        launch_ = marker_kernel_of_program<Api>();
        if (launch_ == nullptr) return "this program has no device code";
        cell_ = &cell;
        address_ = address;
        make_ring();
        const OwnStream<Api> stream{object_};
        Sighting first;
        if (auto flaw = see_markers(stream.get(), 1, first); !flaw.empty()) return flaw;
        has_cycles_ = first.entry.unit != unknown_unit;
        Sighting last;
        if (auto flaw = see_markers(stream.get(), 4, last); !flaw.empty()) return flaw;
        if (auto flaw = prove_rate(stream.get()); !flaw.empty()) return flaw;
        if (has_cycles_) cycle_flaw_ = cycles_.flaw(Api::wall_clock_megahertz(device_));
        has_cycles_ = has_cycles_ && cycle_flaw_.empty();
        clock_.center();
        clock_uncertainty_ = clock_.uncertainty();
        return {};
    }

    Status put(Stream stream, std::uint32_t* address, const Marker& marker) {
        MarkerArguments arguments;
        arguments.cell = address;
        arguments.level = marker.word.raw();
        if (marker.timestamped) {
            arguments.ring = ring_.device;
            arguments.next_ticket = next_ticket_;
            arguments.ring_mask = ring_entries - 1;
            arguments.timestamp.track = marker.tag.track;
            arguments.timestamp.scope_kind = marker.tag.scope_kind;
            arguments.timestamp.window = marker.tag.window;
            arguments.timestamp.leaving = marker.tag.leaving ? 1 : 0;
            arguments.timestamp.enqueued = marker.captured ? 0 : now().time_since_epoch().count();
        }
        return static_cast<Status>(launch_(stream, arguments));
    }

    /// Moves out the timestamps that have arrived; never blocks. Those of one call are placed by
    /// what all of them show, so that the times between them are the device's own.
    std::size_t drain(std::span<MarkerTimestamp> out) noexcept {
        const std::unique_lock lock{mutex_, std::try_to_lock};
        if (!lock) return 0;
        std::size_t count = 0;
        const Duration seen = now().time_since_epoch();
        while (count < out.size()) {
            const auto entry = reader_->take();
            if (!entry) break;
            clock_.observe(entry->ticks, Duration{entry->enqueued}, seen);
            out[count++] = in_device_time(*entry);
        }
        for (MarkerTimestamp& each : out.first(count)) each.time += clock_.offset();
        return count;
    }

    /// How many were overwritten before they were drained.
    [[nodiscard]] std::uint64_t lost() noexcept {
        const std::lock_guard lock{mutex_};
        return reader_->lost();
    }

    /// How well the device's wall clock is placed on the Timeline; 0 before it was proven.
    [[nodiscard]] Duration clock_uncertainty() const { return clock_uncertainty_; }

    [[nodiscard]] std::string description() const {
        std::string text = "one-thread kernels, times by a wall clock of " +
                           megahertz(Api::wall_clock_megahertz(device_));
        if (!has_cycles_) {
            text += ", no core cycles: " + (cycle_flaw_.empty()
                                                ? "the compiler does not know where a kernel runs"
                                                : cycle_flaw_);
        }
        return text;
    }

private:
    static constexpr std::size_t ring_entries = std::size_t{1} << 16U;  // 4 MiB

    static TimePoint now() {
        return TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }

    static std::string megahertz(double value) {
        std::string text = std::to_string(std::llround(value * 10));
        if (text.size() < 2) text.insert(0, 1, '0');
        text.insert(text.size() - 1, 1, '.');
        if (text.ends_with(".0")) text.resize(text.size() - 2);
        return text + " MHz";
    }

    /// A timestamp in the device's own time, and between which of the host's it was made.
    struct Sighting {
        TimestampEntry entry;
        Duration put{};
        Duration seen{};
    };

    void make_ring() {
        ring_ = map_for_ever<Api, TimestampEntry>(ring_entries, object_);
        // In the device's own memory: atomics on the host's cross PCIe, which may not route them.
        // Never freed: a late marker may still count.
        void* ticket = nullptr;
        check<Api>(Api::make_device_memory(&ticket, sizeof(unsigned long long)),
                   "allocate device memory", object_);
        next_ticket_ = static_cast<unsigned long long*>(ticket);
        reader_.emplace(ring_.host, ring_entries);
        clock_ = DeviceClock{1000 / Api::wall_clock_megahertz(device_)};
    }

    /// Puts markers one behind the other and watches for what they leave behind.
    std::string see_markers(Stream stream, std::uint32_t count, Sighting& last) {
        const Duration before = now().time_since_epoch();
        for (std::uint32_t i = 1; i <= count; ++i) {
            const Marker marker{cell_, RequestWord{++word_}, {.scope_kind = i}, true};
            const Status status = put(stream, address_, marker);
            if (status != Api::success) return Api::words_of(status);
        }
        const TimePoint deadline = now() + std::chrono::seconds{2};  // the first loads the kernel
        for (std::uint32_t i = 1; i <= count; ++i) {
            const auto entry = await_entry(stream, deadline);
            if (!entry) return flaw_of_silence(stream);
            if (entry->scope_kind != i) return "its timestamps come out of order";
            if (i > 1 && entry->ticks < last.entry.ticks) return "its wall clock runs backwards";
            last = {*entry, before, now().time_since_epoch()};
            cycles_.see(*entry);
        }
        while (cell_->load().raw() != word_ && now() < deadline) std::this_thread::yield();
        return flaw_of_order(cell_->load(), RequestWord{word_});
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

    std::string flaw_of_silence(Stream stream) {
        const bool stored = cell_->load().raw() == word_;
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
        constexpr int least = 16;
        constexpr int most = 128;  // where the host is kept from looking
        constexpr std::int64_t close_enough = 100'000;
        for (int i = 0; i < least || (i < most && bounds.width() > close_enough); ++i) {
            if (auto flaw = see_markers(stream, 1, last); !flaw.empty()) return flaw;
            bounds.narrow(clock_.nanoseconds(last.entry.ticks), last.put, last.seen);
            clock_.observe(last.entry.ticks, last.put, last.seen);
        }
        return {};
    }

    [[nodiscard]] MarkerTimestamp in_device_time(const TimestampEntry& entry) const {
        return {{entry.track, entry.scope_kind, entry.leaving != 0, entry.window},
                TimePoint{Duration{clock_.nanoseconds(entry.ticks)}},
                has_cycles_ ? entry.cycles : 0,
                entry.unit};
    }

    int device_;
    std::string object_;
    LaunchMarker launch_ = nullptr;

    MappedArray<TimestampEntry> ring_;
    unsigned long long* next_ticket_ = nullptr;
    std::mutex mutex_;
    std::optional<TimestampReader> reader_;
    DeviceClock clock_;
    Duration clock_uncertainty_{};
    bool has_cycles_ = false;
    std::string cycle_flaw_;

    // The proof's own.
    CycleProof cycles_;
    RequestCell* cell_ = nullptr;
    std::uint32_t* address_ = nullptr;
    std::uint32_t word_ = 0;
};

}  // namespace kdvfs::inline v0_3::device
