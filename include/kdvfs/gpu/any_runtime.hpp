// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/stream_runtime.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace kdvfs {

/// Any `StreamRuntime`, its type forgotten, so that there is one `Gpu` type and a scope compiled
/// without a vendor's headers can still reach the vendor's streams.
class AnyRuntime {
public:
    virtual ~AnyRuntime() = default;
    virtual LaneKey lane_key(StreamRef stream) = 0;
    virtual LevelCell* make_cell() = 0;
    virtual void put_marker(StreamRef stream, const Marker& marker) = 0;
    virtual std::size_t drain_stamps(std::span<MarkerStamp> out) noexcept = 0;
    virtual std::uint64_t lost_stamps() noexcept = 0;
    virtual void synchronize(StreamRef stream) = 0;
    virtual TimePoint now() noexcept = 0;
    virtual std::string marker_mechanism() = 0;
};

/// `Runtime` may be a reference: then the runtime outlives the GPU object.
template <class Runtime>
requires StreamRuntime<std::remove_reference_t<Runtime>>
class RuntimeOf final : public AnyRuntime {
public:
    template <class... Arguments>
    explicit RuntimeOf(Arguments&&... arguments)
        : runtime_{std::forward<Arguments>(arguments)...} {}

    LaneKey lane_key(StreamRef stream) override { return runtime_.lane_key(stream); }
    LevelCell* make_cell() override { return runtime_.make_cell(); }
    void put_marker(StreamRef stream, const Marker& marker) override {
        runtime_.put_marker(stream, marker);
    }
    std::size_t drain_stamps(std::span<MarkerStamp> out) noexcept override {
        return runtime_.drain_stamps(out);
    }
    std::uint64_t lost_stamps() noexcept override { return runtime_.lost_stamps(); }
    void synchronize(StreamRef stream) override { runtime_.synchronize(stream); }
    TimePoint now() noexcept override { return runtime_.now(); }
    std::string marker_mechanism() override { return std::string{runtime_.marker_mechanism()}; }

private:
    Runtime runtime_;
};

}  // namespace kdvfs
