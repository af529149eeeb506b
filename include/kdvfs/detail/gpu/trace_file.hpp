// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/trace.hpp>
#include <kdvfs/units.hpp>

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

#include <pthread.h>
#include <signal.h>

namespace kdvfs::detail {

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
    TraceFile(std::ostream& out, const DeviceInfo& device, TimePoint origin)
        : stream_{out}, writer_{stream_, device, origin} {}

    [[nodiscard]] measure::TraceWriter& writer() { return writer_; }

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
    measure::TraceWriter writer_;
};

}  // namespace kdvfs::detail
