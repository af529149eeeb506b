// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>
#include <kdvfs/device/level_cell.hpp>

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace kdvfs {

/// A vendor's stream handle, whatever its type: HIP, CUDA and the simulated GPU all use pointers.
/// The null pointer is the default stream.
class StreamRef {
public:
    constexpr StreamRef() = default;
    // Implicit on purpose: users pass their hipStream_t or cudaStream_t.
    // NOLINTNEXTLINE(google-explicit-constructor)
    template <class Handle>
    requires(!std::is_pointer_v<Handle>)  // a handle's address is not the handle
        StreamRef(Handle* handle)
        : handle_{handle} {}
    // NOLINTNEXTLINE(google-explicit-constructor)
    StreamRef(std::nullptr_t) {}

    template <class Handle>
    [[nodiscard]] Handle* as() const {
        return static_cast<Handle*>(handle_);
    }

    friend bool operator==(StreamRef, StreamRef) = default;
    friend auto operator<=>(StreamRef, StreamRef) = default;

private:
    void* handle_ = nullptr;
};

/// Which lane a call on a stream belongs to. `thread` tells the lanes of a per-thread default
/// stream apart and is 0 for every other stream; `capture` is the id of the capture that the
/// stream is recording, 0 for live work.
struct LaneKey {
    StreamRef stream{};
    std::uint64_t thread = 0;
    std::uint64_t capture = 0;

    friend bool operator==(const LaneKey&, const LaneKey&) = default;
    friend auto operator<=>(const LaneKey&, const LaneKey&) = default;
};

/// Whose stamp a marker pushes. Computed on the host at enqueue, repeated by every replay of a
/// captured graph.
struct MarkerTag {
    std::uint32_t lane = 0;
    std::uint32_t scope_kind = 0;
    bool leaving = false;
    std::uint32_t burst = 0;  ///< which metered stretch of iterations it belongs to; may wrap
};

/// A one-thread operation in a stream: stores a level, and pushes a stamp where asked to.
struct Marker {
    LevelCell* cell = nullptr;
    LevelWord word{};
    MarkerTag tag{};
    bool stamped = false;
    bool captured = false;  ///< the stream is being captured, as its key has just told
};

/// What a stamped marker left behind when the stream passed it.
struct MarkerStamp {
    MarkerTag tag{};
    TimePoint time{};
    std::uint64_t core_cycles =
        0;                   ///< a free-running count of core clock cycles, 0 if there is none
    std::uint32_t unit = 0;  ///< whose count it is: only those of one unit can be subtracted
};

/// The contract of a runtime whose streams can carry markers. Called on the user's own threads,
/// by many at once; no kdvfs thread ever calls it but for `now`.
/// - `lane_key(stream)`: throws `Error` for a stream of another device;
/// - `key_now(key)`: the key that its stream has now, by whether it is captured and who asks; the
///   stream's device is not looked up again; throws `Error`;
/// - `make_cell()`: a cell valid until the process ends; throws `Error`;
/// - `put_marker(stream, marker)`: enqueues, never waits; throws `Error` where the request was not
///   put, while a timestamp alone that fails is lost and counted;
/// - `drain_stamps(out)`: moves the oldest stamps out, in stream order within a lane, and returns
///   how many; never blocks;
/// - `lost_stamps()`: how many were overwritten before they were drained, or could not be taken;
/// - `synchronize(stream)`: waits until the stream is empty; throws `Error`;
/// - `marker_mechanism()`: which way markers go on this machine, for the report.
template <class Runtime>
concept StreamRuntime = requires(Runtime& runtime, StreamRef stream, const LaneKey& key,
                                 const Marker& marker, std::span<MarkerStamp> stamps) {
    { runtime.lane_key(stream) } -> std::same_as<LaneKey>;
    { runtime.key_now(key) } -> std::same_as<LaneKey>;
    { runtime.make_cell() } -> std::same_as<LevelCell*>;
    { runtime.put_marker(stream, marker) } -> std::same_as<void>;
    { runtime.drain_stamps(stamps) }
    noexcept->std::same_as<std::size_t>;
    { runtime.lost_stamps() }
    noexcept->std::same_as<std::uint64_t>;
    { runtime.synchronize(stream) } -> std::same_as<void>;
    { runtime.now() }
    noexcept->std::same_as<TimePoint>;
    { runtime.marker_mechanism() } -> std::convertible_to<std::string_view>;
};

/// A runtime whose streams can also wait for the host: for measuring, since a wait may hold a queue
/// that other streams need.
/// - `make_answer_word()`: a word that streams can wait for, valid until the process ends; throws
///   `Error`;
/// - `put_wait(stream, word, number)`: lets the stream stand still until the word is at least that
///   number; throws `Error`.
template <class Runtime>
concept WaitingRuntime = StreamRuntime<Runtime> &&
    requires(Runtime& runtime, StreamRef stream, std::uint32_t* word, std::uint32_t number) {
    { runtime.make_answer_word() } -> std::same_as<std::uint32_t*>;
    { runtime.put_wait(stream, word, number) } -> std::same_as<void>;
};

}  // namespace kdvfs
