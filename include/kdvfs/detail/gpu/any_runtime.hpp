// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace kdvfs::detail {

/// Any `StreamRuntime`, its type forgotten, so that there is one `Gpu` type and a scope compiled
/// without a vendor's headers can still reach the vendor's streams.
class AnyRuntime {
public:
    virtual ~AnyRuntime() = default;
    virtual TrackKey track_key(StreamRef stream) = 0;
    virtual RequestCell* make_cell() = 0;
    virtual void put_marker(StreamRef stream, const Marker& marker) = 0;
    virtual std::size_t drain_timestamps(std::span<MarkerTimestamp> out) noexcept = 0;
    virtual std::uint64_t lost_timestamps() noexcept = 0;
    virtual void synchronize(StreamRef stream) = 0;
    virtual TimePoint now() noexcept = 0;
    virtual std::string marker_mechanism() = 0;
    /// @throws Error (not_supported) where streams cannot wait, as the next one
    virtual std::uint32_t* make_answer_word() = 0;
    virtual void put_wait(StreamRef stream, std::uint32_t* word, std::uint32_t number) = 0;
};

/// `Runtime` may be a reference: then the runtime outlives the GPU object.
template <class Runtime>
requires StreamRuntime<std::remove_reference_t<Runtime>>
class RuntimeOf final : public AnyRuntime {
public:
    template <class... Arguments>
    explicit RuntimeOf(Arguments&&... arguments)
        : runtime_{std::forward<Arguments>(arguments)...} {}

    TrackKey track_key(StreamRef stream) override { return runtime_.track_key(stream); }
    RequestCell* make_cell() override { return runtime_.make_cell(); }
    void put_marker(StreamRef stream, const Marker& marker) override {
        runtime_.put_marker(stream, marker);
    }
    std::size_t drain_timestamps(std::span<MarkerTimestamp> out) noexcept override {
        return runtime_.drain_timestamps(out);
    }
    std::uint64_t lost_timestamps() noexcept override { return runtime_.lost_timestamps(); }
    void synchronize(StreamRef stream) override { runtime_.synchronize(stream); }
    TimePoint now() noexcept override { return runtime_.now(); }
    std::string marker_mechanism() override { return std::string{runtime_.marker_mechanism()}; }
    std::uint32_t* make_answer_word() override {
        if constexpr (WaitingRuntime<std::remove_reference_t<Runtime>>) {
            return runtime_.make_answer_word();
        } else {
            cannot_wait();
        }
    }
    void put_wait(StreamRef stream, std::uint32_t* word, std::uint32_t number) override {
        if constexpr (WaitingRuntime<std::remove_reference_t<Runtime>>) {
            runtime_.put_wait(stream, word, number);
        } else {
            cannot_wait();
        }
    }

private:
    [[noreturn]] static void cannot_wait() {
        throw Error{Errc::not_supported,
                    {.action = "let a stream wait for an answer",
                     .object = "this runtime",
                     .vendor_words = "its streams cannot wait",
                     .remedy = "use Ordering::stream"}};
    }

    Runtime runtime_;
};

}  // namespace kdvfs::detail
