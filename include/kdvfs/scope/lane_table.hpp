// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/stream_runtime.hpp>
#include <kdvfs/scope/lane.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

namespace kdvfs {

/// All lanes of a GPU object, by stream. Lanes stay until it ends: a stream's handle may be used
/// again, and a captured graph may be replayed at any time. Thread-safe.
class LaneTable {
public:
    LaneTable() : serial_{next_serial()} {}

    /// The lane of a key; a new one, on a cell from `make_cell()`, at its first use.
    template <class MakeCell>
    Lane& find(const LaneKey& key, MakeCell make_cell) {
        // A thread uses few streams: remember its last lanes, and whose they are.
        struct Last {
            std::uint64_t serial = 0;
            LaneKey key{};
            Lane* lane = nullptr;
        };
        thread_local std::array<Last, 8> remembered{};
        // Streams are heap objects: their addresses differ in the middle.
        const auto address = reinterpret_cast<std::uintptr_t>(key.stream.as<void>());
        Last& last = remembered[(address >> 4U ^ address >> 7U ^ address >> 12U) % 8];
        if (last.serial == serial_ && last.key == key) return *last.lane;
        Lane& lane = find_slowly(key, make_cell);
        last = {serial_, key, &lane};
        return lane;
    }

    template <class Function>
    void for_each(Function function) {
        const std::lock_guard lock{mutex_};
        for (Lane& lane : lanes_) function(lane);
    }

private:
    template <class MakeCell>
    Lane& find_slowly(const LaneKey& key, MakeCell& make_cell) {
        const std::lock_guard lock{mutex_};
        if (const auto known = by_key_.find(key); known != by_key_.end()) return *known->second;
        LevelCell* cell = make_cell();
        const LaneId id{static_cast<std::uint32_t>(lanes_.size())};
        Lane& lane = lanes_.emplace_back(id, key, cell);
        by_key_.emplace(key, &lane);
        return lane;
    }

    // Addresses come back after a table has died, serial numbers do not.
    static std::uint64_t next_serial() {
        static std::atomic<std::uint64_t> serial{0};
        return ++serial;
    }

    std::uint64_t serial_;
    std::mutex mutex_;
    std::deque<Lane> lanes_;
    std::map<LaneKey, Lane*> by_key_;
};

}  // namespace kdvfs
