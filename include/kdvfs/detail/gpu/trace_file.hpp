// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/background_stream.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/trace.hpp>
#include <kdvfs/units.hpp>

#include <ostream>
#include <string>

namespace kdvfs::detail {

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
            {"write the whole trace", "its stream",
             std::to_string(stream_.dropped()) + " events found 64 MiB waiting to be written",
             "write the trace to a faster disk"}};
    }

private:
    BackgroundStream stream_;
    measure::TraceWriter writer_;
};

}  // namespace kdvfs::detail
