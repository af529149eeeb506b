// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::device {

/// The runtime of a GPU that was opened by its PCI address: there is no HIP and no CUDA, so there
/// are no streams. Requests without a stream (`Gpu::request`) are what it serves. Thread-safe.
class NoStreams {
public:
    /// @param address of the GPU, for errors
    explicit NoStreams(std::string address) : address_{std::move(address)} {}

    [[nodiscard]] TrackKey track_key(StreamRef) const { refuse(); }
    [[nodiscard]] TrackKey key_now(const TrackKey&) const { refuse(); }
    [[nodiscard]] RequestCell* make_cell() const { refuse(); }
    void put_marker(StreamRef, const Marker&) const { refuse(); }
    std::size_t drain_timestamps(std::span<MarkerTimestamp>) const noexcept { return 0; }
    [[nodiscard]] std::uint64_t lost_timestamps() const noexcept { return 0; }
    void synchronize(StreamRef) const { refuse(); }
    [[nodiscard]] TimePoint now() const noexcept {
        return TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }
    [[nodiscard]] std::string_view marker_mechanism() const { return "none, no streams"; }

private:
    [[noreturn]] void refuse() const {
        throw Error{Errc::not_supported,
                    {.action = "enter a scope on a stream",
                     .object = address_,
                     .vendor_words = "the GPU was opened by its PCI address, without streams",
                     .remedy = "open it by its HIP or CUDA number, or use Gpu::request"}};
    }

    std::string address_;
};
static_assert(StreamRuntime<NoStreams>);

}  // namespace kdvfs::device
