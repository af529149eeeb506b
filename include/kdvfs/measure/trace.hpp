// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/kernel.hpp>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>

namespace kdvfs::inline v0_3::io {
class JsonFields;
struct JsonText;
}  // namespace kdvfs::inline v0_3::io

namespace kdvfs::inline v0_3::measure {

/// Writes what a GPU did as Chrome trace events (the JSON object format of "Trace Event Format",
/// opened by Perfetto and chrome://tracing): a row per stream with its kernels, a row per stream
/// with its scopes, a row of clock switches, counters of clocks and power, faults as instants.
/// Every event is written when it is told, so memory is bounded; events may come in any order.
/// Not thread-safe.
class TraceWriter {
public:
    /// Begins the trace. `out` must outlive the writer. Times are printed relative to `origin`.
    /// @param highest clocks that the device lists: what no cap is drawn as
    TraceWriter(std::ostream& out, const DeviceInfo& device, TimePoint origin = TimePoint{},
                ClockPoint highest = {});
    TraceWriter(const TraceWriter&) = delete;
    TraceWriter& operator=(const TraceWriter&) = delete;
    /// Ends the trace if `close` did not; a failure is lost.
    ~TraceWriter();

    /// A kernel that ran, on its stream's row, with the clocks asked and held.
    void kernel(const KernelInterval& interval, const KernelKey& key);
    /// A scope as the host saw it.
    void scope(TrackId track, const KernelKey& key, TimePoint begin, TimePoint end);
    /// From `at` on this was asked of, or held by, the device.
    void clock_asked(TimePoint at, ClockPoint point) { clock(at, "asked", point); }
    void clock_applied(TimePoint at, ClockPoint point) { clock(at, "applied", point); }
    /// From `at` on this core clock held, by cycles.
    void clock_held(TimePoint at, Megahertz clock);
    /// Mean power up to `at`.
    void power(TimePoint at, Watts watts) { counter(at, "power W", watts.count); }
    /// A clock switch: from the call to its effect.
    void clock_switch(TimePoint called, TimePoint effective, ClockPoint from, ClockPoint to);
    /// Something went wrong, in words.
    void fault(TimePoint at, std::string_view words);

    /// Ends the trace. @throws Error if anything could not be written.
    void close();

    /// Events written so far, names of tracks not counted.
    [[nodiscard]] std::uint64_t events() const { return events_; }

private:
    static constexpr std::uint32_t device_process = 1;
    static constexpr std::uint32_t host_process = 2;
    static constexpr std::uint32_t switch_track = 0;  // tracks follow at 1

    /// Begins an event in `line_`; the caller adds its other fields.
    io::JsonFields event(std::string_view phase, std::uint32_t process, std::uint32_t track,
                         TimePoint at);
    void end_event();
    void name_track(std::string_view what, std::uint32_t process, std::uint32_t track,
                    std::string_view name);
    void name_stream(std::uint32_t process, TrackId track, std::string_view prefix);
    void clock(TimePoint at, std::string_view which, ClockPoint point);
    void counter(TimePoint at, std::string_view name, double value);
    static io::JsonText microseconds(Duration time);
    void end();

    std::ostream* out_;
    TimePoint origin_;
    ClockPoint highest_;
    std::string line_;
    std::uint64_t events_ = 0;
    std::array<std::uint32_t, 3> streams_named_{};  // by process
    bool first_ = true;
    bool ended_ = false;
};

/// A stream whose writes return at once: a thread of its own carries them to another stream, which
/// may be as slow as it likes. Memory is bounded: what does not fit is dropped whole and counted.
/// Write whole records with one `<<`. One thread writes at a time.
class BackgroundStream : private std::streambuf, public std::ostream {
public:
    /// @param target must outlive this
    explicit BackgroundStream(std::ostream& target);
    BackgroundStream(const BackgroundStream&) = delete;
    BackgroundStream& operator=(const BackgroundStream&) = delete;
    ~BackgroundStream() override { finish(); }

    /// Waits until everything is written; afterwards `fail()` says whether that went well.
    void finish() noexcept;

    /// Records that found the memory full.
    [[nodiscard]] std::uint64_t dropped() const;

private:
    static constexpr std::size_t most_bytes = std::size_t{64} << 20U;

    std::streamsize xsputn(const char* text, std::streamsize count) override;
    std::streambuf::int_type overflow(std::streambuf::int_type character) override;

    void write_all();

    std::ostream* out_;
    mutable std::mutex mutex_;
    std::condition_variable wakes_;
    std::string pending_;
    std::uint64_t dropped_ = 0;
    bool ending_ = false;
    bool failed_ = false;
    std::thread writer_;
};

/// A trace whose events are written by a thread of its own: a slow disk holds up neither clocks nor
/// launches. Not thread-safe.
class TraceFile {
public:
    /// @param out must outlive this
    /// @param highest clocks that the device lists: what no cap is drawn as
    TraceFile(std::ostream& out, const DeviceInfo& device, TimePoint origin,
              ClockPoint highest = {});

    [[nodiscard]] TraceWriter& writer() { return writer_; }

    /// Ends the trace and waits until it is written.
    /// @throws Error (io) where it could not be written, or not all of it
    void close();

private:
    BackgroundStream stream_;
    TraceWriter writer_;
};

}  // namespace kdvfs::inline v0_3::measure

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/measure/trace.hpp>
#endif
