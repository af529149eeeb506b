// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/units.hpp>
#include <tools/attach/process.hpp>
#include <tools/attach/record_streams.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace attach {

/// The driver's own records of when dispatches ran on an AMD GPU: where there are any, launches get
/// no markers. This is the door for rocprofiler-sdk, whose buffered records of kernel dispatches
/// carry an external correlation number that the launching thread has pushed; its service can be
/// configured by a library of its own alone, which speaks these five functions.
/// `KDVFS_DISPATCH_RECORDS` names that library. So far there is a double of one, and no other.
struct DispatchRecords {
    /// A dispatch has run: the number pushed at its launch, when, in ns by `now`.
    using Ran = void (*)(std::uint64_t launch, std::uint64_t start, std::uint64_t end);

    int (*begin)(Ran ran) = nullptr;  ///< from here on records come, on any thread; 0 where they do
    void (*push)(std::uint64_t launch) = nullptr;  ///< dispatches of this thread have this number
    void (*pop)() = nullptr;                       ///< until here
    /// What has run by now is told before it returns; also while the process ends.
    void (*flush)() = nullptr;
    std::uint64_t (*now)() = nullptr;  ///< by the records' clock

    /// @param why not, where it is asked for and cannot be had
    /// @returns nothing where it is not asked for or cannot be had
    static std::optional<DispatchRecords> open(std::string& why) {
        const std::string path{kdvfs::io::environment("KDVFS_DISPATCH_RECORDS")};
        if (path.empty()) return std::nullopt;
        const kdvfs::io::SharedLibrary library{path};
        if (!library.is_open()) {
            why = library.words().empty() ? path + " cannot be loaded" : library.words();
            return std::nullopt;
        }
        DispatchRecords found;
        const auto find = [&]<class Function>(Function& function, const char* name) {
            library.find(function, name);
            if (function == nullptr) why = path + " has no " + name;
        };
        find(found.begin, "kdvfs_dispatch_records_begin");
        find(found.push, "kdvfs_dispatch_records_push");
        find(found.pop, "kdvfs_dispatch_records_pop");
        find(found.flush, "kdvfs_dispatch_records_flush");
        find(found.now, "kdvfs_dispatch_records_now");
        if (!why.empty()) return std::nullopt;
        return found;
    }
};

/// The driver's records of dispatches, where there are any: one numbering of launches, whatever the
/// GPU.
class Dispatches {
public:
    static Dispatches& instance() {
        static auto& dispatches = *new Dispatches;
        return dispatches;
    }

    [[nodiscard]] bool there() const { return records_.has_value(); }

    /// Streams that are timed by records, of a GPU that is opened now.
    std::shared_ptr<RecordStreams> streams_of(const std::string& object, const CudaDriver& driver) {
        auto streams = std::make_shared<RecordStreams>(object, driver);
        const std::lock_guard lock{mutex_};
        return streams_.emplace_back(std::move(streams));
    }

    /// The dispatches of this thread belong to a launch, until its end.
    [[nodiscard]] std::uint32_t begin_launch() {
        std::uint32_t number = ++launches_;
        if (number == 0) number = ++launches_;  // 0 is none
        records_->push(number);
        return number;
    }
    void end_launch() const { records_->pop(); }

private:
    Dispatches() {
        std::string why;
        records_ = DispatchRecords::open(why);
        if (records_ && records_->begin(&ran) != 0) {
            records_.reset();
            why = "they could not be begun";
        }
        if (!why.empty()) Process::instance().note("no records of dispatches: " + why);
        if (!records_) return;
        Process::instance().before_report([this](bool at_end) {
            records_->flush();
            if (!at_end) return;
            const std::lock_guard lock{mutex_};
            for (const auto& streams : streams_) streams->finish();
        });
    }

    static void ran(std::uint64_t launch, std::uint64_t start, std::uint64_t end) {
        try {
            Dispatches& all = instance();
            const std::int64_t offset = all.offset();
            const auto on_host = [offset](std::uint64_t time) {
                return kdvfs::TimePoint{kdvfs::Duration{static_cast<std::int64_t>(time) + offset}};
            };
            const std::lock_guard lock{all.mutex_};
            for (const auto& streams : all.streams_) {
                streams->arrived(static_cast<std::uint32_t>(launch), on_host(start), on_host(end));
            }
        } catch (const std::exception& error) {
            Process::instance().give_up(error.what());
        }
    }

    /// Where the records' clock lies off the host's, now: the closest of four looks.
    [[nodiscard]] std::int64_t offset() const {
        const auto host = [] {
            return std::chrono::steady_clock::now().time_since_epoch().count();
        };
        std::int64_t closest = std::numeric_limits<std::int64_t>::max();
        std::int64_t found = 0;
        for (int i = 0; i < 4; ++i) {
            const std::int64_t before = host();
            const auto theirs = static_cast<std::int64_t>(records_->now());
            const std::int64_t after = host();
            if (after - before >= closest) continue;
            closest = after - before;
            found = before + (after - before) / 2 - theirs;
        }
        return found;
    }

    std::optional<DispatchRecords> records_;
    std::atomic<std::uint32_t> launches_{0};
    std::mutex mutex_;
    std::deque<std::shared_ptr<RecordStreams>> streams_;
};

}  // namespace attach
