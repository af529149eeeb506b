// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <pthread.h>
#include <signal.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

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
    ~TraceWriter() {
        try {
            end();
        } catch (...) {  // a stream whose exceptions are switched on; `close` would have told
        }
    }

    /// A kernel that ran, on its stream's row, with the clocks asked and held.
    void kernel(const KernelInterval& interval, const KernelKey& key);
    /// A scope as the host saw it.
    void scope(TrackId track, const KernelKey& key, TimePoint begin, TimePoint end);
    /// From `at` on this was asked of, or held by, the device.
    void clock_asked(TimePoint at, ClockPoint point) { clock(at, "asked", point); }
    void clock_applied(TimePoint at, ClockPoint point) { clock(at, "applied", point); }
    /// From `at` on this core clock held, by cycles.
    void clock_held(TimePoint at, Megahertz clock) {
        counter(at, "core clock held MHz", clock.count);
    }
    /// Mean power up to `at`.
    void power(TimePoint at, Watts watts) { counter(at, "power W", watts.count); }
    /// A clock switch: from the call to its effect.
    void clock_switch(TimePoint called, TimePoint effective, ClockPoint from, ClockPoint to);
    /// Something went wrong, in words.
    void fault(TimePoint at, std::string_view words);

    /// Ends the trace. @throws Error if anything could not be written.
    void close() {
        end();
        if (out_->fail()) {
            throw Error{Errc::io,
                        {"write the trace", "the output stream", "",
                         "check the disk's free space and the path"}};
        }
    }

    /// Events written so far, names of tracks not counted.
    [[nodiscard]] std::uint64_t events() const { return events_; }

private:
    static constexpr std::uint32_t device_process = 1;
    static constexpr std::uint32_t host_process = 2;
    static constexpr std::uint32_t switch_track = 0;  // tracks follow at 1

    void begin_event(std::string_view phase, std::uint32_t process, std::uint32_t track,
                     TimePoint at);
    void end_event();
    void name_track(std::string_view what, std::uint32_t process, std::uint32_t track,
                    std::string_view name);
    void name_stream(std::uint32_t process, TrackId track, std::string_view prefix);
    void clock(TimePoint at, std::string_view which, ClockPoint point);
    void counter(TimePoint at, std::string_view name, double value);
    void put_microseconds(Duration time);
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

inline TraceWriter::TraceWriter(std::ostream& out, const DeviceInfo& device, TimePoint origin,
                                ClockPoint highest)
    : out_{&out}, origin_{origin}, highest_{highest} {
    line_ = R"({"displayTimeUnit":"ns","otherData":{"device":)";
    line_ += kdvfs::detail::json_string(to_string(device));
    line_ += R"(,"mechanism":)" + kdvfs::detail::json_string(device.mechanism);
    line_ += device.simulated ? R"(,"simulated":true},"traceEvents":[)"
                              : R"(,"simulated":false},"traceEvents":[)";
    *out_ << line_;
    const std::string gpu = (device.simulated ? "simulated GPU " : "GPU ") + to_string(device);
    name_track("process_name", device_process, switch_track, gpu);
    name_track("process_name", host_process, switch_track, "host: scopes");
    name_track("thread_name", device_process, switch_track, "clock switches");
}

inline void TraceWriter::kernel(const KernelInterval& interval, const KernelKey& key) {
    name_stream(device_process, interval.track, "stream ");
    begin_event("X", device_process, interval.track.value + 1, interval.start);
    line_ += R"(,"dur":)";
    put_microseconds(interval.end - interval.start);
    line_ += R"(,"cat":"kernel","name":)" + kdvfs::detail::json_string(to_string(key));
    line_ += R"(,"args":{"asked":)" + kdvfs::detail::json_string(to_string(interval.asked));
    line_ += R"(,"held_mhz":)" + std::to_string(held_clock(interval).count) + '}';
    end_event();
}

inline void TraceWriter::scope(TrackId track, const KernelKey& key, TimePoint begin,
                               TimePoint end) {
    name_stream(host_process, track, "scopes of stream ");
    begin_event("X", host_process, track.value + 1, begin);
    line_ += R"(,"dur":)";
    put_microseconds(end - begin);
    line_ += R"(,"cat":"scope","name":)" + kdvfs::detail::json_string(to_string(key));
    end_event();
}

inline void TraceWriter::clock_switch(TimePoint called, TimePoint effective, ClockPoint from,
                                      ClockPoint to) {
    begin_event("X", device_process, switch_track, called);
    line_ += R"(,"dur":)";
    put_microseconds(effective - called);
    line_ += R"(,"cat":"switch","name":)" + kdvfs::detail::json_string(to_string(to));
    line_ += R"(,"args":{"from":)" + kdvfs::detail::json_string(to_string(from)) + '}';
    end_event();
}

inline void TraceWriter::fault(TimePoint at, std::string_view words) {
    begin_event("i", device_process, switch_track, at);
    line_ += R"(,"s":"g","cat":"fault","name":)" + kdvfs::detail::json_string(words);
    end_event();
}

inline void TraceWriter::clock(TimePoint at, std::string_view which, ClockPoint point) {
    const std::string domain{which};
    const auto shown = [](Megahertz clock, Megahertz highest) {
        return (clock == auto_clock ? highest : clock).count;
    };
    const auto cap = [&](const std::string& clock, auto mhz) {
        if (mhz != 0) counter(at, clock + " cap " + domain + " MHz", mhz);  // 0: auto, unlisted
    };
    cap("core", shown(point.core, highest_.core));
    cap("memory", shown(point.memory, highest_.memory));
}

inline void TraceWriter::counter(TimePoint at, std::string_view name, double value) {
    begin_event("C", device_process, switch_track, at);
    line_ += R"(,"name":)" + kdvfs::detail::json_string(name) + R"(,"args":{"value":)" +
             kdvfs::detail::json_number(value) + '}';
    end_event();
}

inline void TraceWriter::begin_event(std::string_view phase, std::uint32_t process,
                                     std::uint32_t track, TimePoint at) {
    line_ = first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
    first_ = false;
    line_ += phase;
    line_ += R"(","pid":)" + std::to_string(process) + R"(,"tid":)" + std::to_string(track);
    line_ += R"(,"ts":)";
    put_microseconds(at - origin_);
}

inline void TraceWriter::end_event() {
    line_ += '}';
    *out_ << line_;
    ++events_;
}

inline void TraceWriter::name_track(std::string_view what, std::uint32_t process,
                                    std::uint32_t track, std::string_view name) {
    begin_event("M", process, track, origin_);
    line_ += R"(,"name":)" + kdvfs::detail::json_string(what) + R"(,"args":{"name":)" +
             kdvfs::detail::json_string(name) + '}';
    end_event();
    --events_;
}

/// Tracks are numbered in order of first use, so a count says which have a name.
inline void TraceWriter::name_stream(std::uint32_t process, TrackId track,
                                     std::string_view prefix) {
    for (std::uint32_t& next = streams_named_[process]; next <= track.value; ++next) {
        name_track("thread_name", process, next + 1, std::string{prefix} + std::to_string(next));
    }
}

/// Microseconds with all of the nanoseconds, which a double would lose after some days.
inline void TraceWriter::put_microseconds(Duration time) {
    auto nanoseconds = time.count();
    if (nanoseconds < 0) {
        line_ += '-';
        nanoseconds = -nanoseconds;
    }
    const std::string part = std::to_string(nanoseconds % 1000);
    line_ += std::to_string(nanoseconds / 1000) + '.' + std::string(3 - part.size(), '0') + part;
}

inline void TraceWriter::end() {
    if (ended_) return;
    ended_ = true;
    *out_ << "\n]}\n";
    out_->flush();
}

/// A stream whose writes return at once: a thread of its own carries them to another stream, which
/// may be as slow as it likes. Memory is bounded: what does not fit is dropped whole and counted.
/// Write whole records with one `<<`. One thread writes at a time.
class BackgroundStream : private std::streambuf, public std::ostream {
public:
    /// @param target must outlive this
    explicit BackgroundStream(std::ostream& target)
        : std::ostream{static_cast<std::streambuf*>(this)}, out_{&target} {
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            writer_ = std::thread{[this] { write_all(); }};
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    BackgroundStream(const BackgroundStream&) = delete;
    BackgroundStream& operator=(const BackgroundStream&) = delete;
    ~BackgroundStream() override { finish(); }

    /// Waits until everything is written; afterwards `fail()` says whether that went well.
    void finish() noexcept {
        if (!writer_.joinable()) return;
        {
            const std::lock_guard lock{mutex_};
            ending_ = true;
        }
        wakes_.notify_one();
        writer_.join();
        if (failed_) setstate(std::ios_base::badbit);
    }

    /// Records that found the memory full.
    [[nodiscard]] std::uint64_t dropped() const {
        const std::lock_guard lock{mutex_};
        return dropped_;
    }

private:
    static constexpr std::size_t most_bytes = std::size_t{64} << 20U;

    std::streamsize xsputn(const char* text, std::streamsize count) override {
        {
            const std::lock_guard lock{mutex_};
            if (pending_.size() + static_cast<std::size_t>(count) > most_bytes) {
                ++dropped_;
                return count;
            }
            pending_.append(text, static_cast<std::size_t>(count));
        }
        wakes_.notify_one();
        return count;
    }
    std::streambuf::int_type overflow(std::streambuf::int_type character) override {
        if (std::streambuf::traits_type::eq_int_type(character, std::streambuf::traits_type::eof()))
            return 0;
        const char one = std::streambuf::traits_type::to_char_type(character);
        xsputn(&one, 1);
        return character;
    }

    void write_all() {
        std::string part;
        std::unique_lock lock{mutex_};
        while (true) {
            wakes_.wait(lock, [this] { return ending_ || !pending_.empty(); });
            if (pending_.empty()) break;
            part.clear();
            std::swap(part, pending_);
            lock.unlock();
            try {
                *out_ << part;
            } catch (...) {  // a stream whose exceptions are switched on
            }
            lock.lock();
        }
        try {
            out_->flush();
        } catch (...) {
        }
        failed_ = out_->fail();
    }

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
              ClockPoint highest = {})
        : stream_{out}, writer_{stream_, device, origin, highest} {}

    [[nodiscard]] TraceWriter& writer() { return writer_; }

    /// Ends the trace and waits until it is written.
    /// @throws Error (io) where it could not be written, or not all of it
    void close() {
        writer_.close();
        stream_.finish();
        writer_.close();  // tells whether the stream failed
        if (stream_.dropped() == 0) return;
        throw Error{
            Errc::io,
            {"write the whole trace", "the output stream",
             std::to_string(stream_.dropped()) + " events found 64 MiB waiting to be written",
             "write the trace to a faster disk"}};
    }

private:
    BackgroundStream stream_;
    TraceWriter writer_;
};

}  // namespace kdvfs::inline v0_3::measure
