// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/trace.hpp>

#include <kdvfs/detail/io/json_writer.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <utility>

namespace kdvfs::inline v0_3::measure {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE TraceWriter::~TraceWriter() {
    try {
        end();
    } catch (...) {  // a stream whose exceptions are switched on; `close` would have told
    }
}

KDVFS_INLINE void TraceWriter::clock_held(TimePoint at, Megahertz clock) {
    counter(at, "core clock held MHz", clock.count);
}

KDVFS_INLINE void TraceWriter::close() {
    end();
    if (out_->fail()) {
        throw Error{Errc::io,
                    {"write the trace", "the output stream", "",
                     "check the disk's free space and the path"}};
    }
}

KDVFS_INLINE TraceWriter::TraceWriter(std::ostream& out, const DeviceInfo& device, TimePoint origin,
                                      ClockPoint highest)
    : out_{&out}, origin_{origin}, highest_{highest} {
    line_ = '{';
    io::JsonFields fields{line_};
    fields("displayTimeUnit", "ns")("otherData", [&](io::JsonFields& other) {
        other("device", to_string(device))("mechanism", device.mechanism);
        other("simulated", device.simulated);
    })("traceEvents", io::JsonText{"["});
    *out_ << line_;
    const std::string gpu = (device.simulated ? "simulated GPU " : "GPU ") + to_string(device);
    name_track("process_name", device_process, switch_track, gpu);
    name_track("process_name", host_process, switch_track, "host: scopes");
    name_track("thread_name", device_process, switch_track, "clock switches");
}

KDVFS_INLINE void TraceWriter::kernel(const KernelInterval& interval, const KernelKey& key) {
    name_stream(device_process, interval.track, "stream ");
    event("X", device_process, interval.track.value + 1, interval.start)(
        "dur", microseconds(interval.end - interval.start))("cat", "kernel")(
        "name", to_string(key))("args", [&](io::JsonFields& arguments) {
        arguments("asked", to_string(interval.asked))("held_mhz", held_clock(interval));
    });
    end_event();
}

KDVFS_INLINE void TraceWriter::scope(TrackId track, const KernelKey& key, TimePoint begin,
                                     TimePoint end) {
    name_stream(host_process, track, "scopes of stream ");
    event("X", host_process, track.value + 1, begin)("dur", microseconds(end - begin))(
        "cat", "scope")("name", to_string(key));
    end_event();
}

KDVFS_INLINE void TraceWriter::clock_switch(TimePoint called, TimePoint effective, ClockPoint from,
                                            ClockPoint to) {
    event("X", device_process, switch_track, called)("dur", microseconds(effective - called))(
        "cat", "switch")("name", to_string(to))(
        "args", [&](io::JsonFields& arguments) { arguments("from", to_string(from)); });
    end_event();
}

KDVFS_INLINE void TraceWriter::fault(TimePoint at, std::string_view words) {
    event("i", device_process, switch_track, at)("s", "g")("cat", "fault")("name", words);
    end_event();
}

KDVFS_INLINE void TraceWriter::clock(TimePoint at, std::string_view which, ClockPoint point) {
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

KDVFS_INLINE void TraceWriter::counter(TimePoint at, std::string_view name, double value) {
    event("C", device_process, switch_track, at)("name", name)(
        "args", [&](io::JsonFields& arguments) { arguments("value", value); });
    end_event();
}

KDVFS_INLINE io::JsonFields TraceWriter::event(std::string_view phase, std::uint32_t process,
                                               std::uint32_t track, TimePoint at) {
    line_ = first_ ? "\n{" : ",\n{";
    first_ = false;
    io::JsonFields fields{line_};
    return fields("ph", phase)("pid", process)("tid", track)("ts", microseconds(at - origin_));
}

KDVFS_INLINE void TraceWriter::end_event() {
    line_ += '}';
    *out_ << line_;
    ++events_;
}

KDVFS_INLINE void TraceWriter::name_track(std::string_view what, std::uint32_t process,
                                          std::uint32_t track, std::string_view name) {
    event("M", process, track, origin_)("name", what)(
        "args", [&](io::JsonFields& arguments) { arguments("name", name); });
    end_event();
    --events_;
}

KDVFS_INLINE void TraceWriter::name_stream(std::uint32_t process, TrackId track,
                                           std::string_view prefix) {
    for (std::uint32_t& next = streams_named_[process]; next <= track.value; ++next) {
        name_track("thread_name", process, next + 1, std::string{prefix} + std::to_string(next));
    }
}

KDVFS_INLINE io::JsonText TraceWriter::microseconds(Duration time) {
    const auto nanoseconds = std::abs(time.count());
    const std::string part = std::to_string(nanoseconds % 1000);
    return {(time.count() < 0 ? "-" : "") + std::to_string(nanoseconds / 1000) + '.' +
            std::string(3 - part.size(), '0') + part};
}

KDVFS_INLINE void TraceWriter::end() {
    if (ended_) return;
    ended_ = true;
    *out_ << "\n]}\n";
    out_->flush();
}

KDVFS_INLINE BackgroundStream::BackgroundStream(std::ostream& target)
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

KDVFS_INLINE void BackgroundStream::finish() noexcept {
    if (!writer_.joinable()) return;
    {
        const std::lock_guard lock{mutex_};
        ending_ = true;
    }
    wakes_.notify_one();
    writer_.join();
    if (failed_) setstate(std::ios_base::badbit);
}

KDVFS_INLINE std::uint64_t BackgroundStream::dropped() const {
    const std::lock_guard lock{mutex_};
    return dropped_;
}

KDVFS_INLINE std::streamsize BackgroundStream::xsputn(const char* text, std::streamsize count) {
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

KDVFS_INLINE std::streambuf::int_type BackgroundStream::overflow(
    std::streambuf::int_type character) {
    if (std::streambuf::traits_type::eq_int_type(character, std::streambuf::traits_type::eof()))
        return 0;
    const char one = std::streambuf::traits_type::to_char_type(character);
    xsputn(&one, 1);
    return character;
}

KDVFS_INLINE void BackgroundStream::write_all() {
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

KDVFS_INLINE TraceFile::TraceFile(std::ostream& out, const DeviceInfo& device, TimePoint origin,
                                  ClockPoint highest)
    : stream_{out}, writer_{stream_, device, origin, highest} {}

KDVFS_INLINE void TraceFile::close() {
    writer_.close();
    stream_.finish();
    writer_.close();  // tells whether the stream failed
    if (stream_.dropped() == 0) return;
    throw Error{Errc::io,
                {"write the whole trace", "the output stream",
                 std::to_string(stream_.dropped()) + " events found 64 MiB waiting to be written",
                 "write the trace to a faster disk"}};
}

#endif

}  // namespace kdvfs::inline v0_3::measure
