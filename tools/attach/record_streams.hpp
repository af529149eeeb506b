// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>
#include <tools/attach/cuda_driver.hpp>
#include <tools/attach/newest_launches.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace attach {

/// Which launch the markers of this thread stand at: a marker that enters stands at the launch's
/// begin, one that leaves at its end. With 0 they stand at none, and their time is the host's when
/// they are put: for whoever has waited for the stream.
class [[nodiscard]] AtLaunch {
public:
    explicit AtLaunch(std::uint32_t correlation) : before_{std::exchange(current(), correlation)} {}
    ~AtLaunch() { current() = before_; }
    AtLaunch(const AtLaunch&) = delete;
    AtLaunch& operator=(const AtLaunch&) = delete;

    static std::uint32_t& current() {
        thread_local std::uint32_t correlation = 0;
        return correlation;
    }

private:
    std::uint32_t before_;
};

/// Streams whose launches are timed by the driver's own records: a `StreamRuntime` whose markers
/// cost the GPU nothing. A timestamp is the begin or end of the launch that the marker stands at,
/// told when the record arrives; core cycles are not counted. A request is a write into the stream,
/// before the launch; while a stream is captured there is none. A launch may be one of many
/// kernels, as that of a graph is: its scope encloses theirs, which come with their records.
/// Thread-safe.
class RecordStreams {
public:
    /// @param object names the device in errors
    RecordStreams(std::string object, const CudaDriver& driver)
        : object_{std::move(object)}, driver_{driver} {}

    RecordStreams(const RecordStreams&) = delete;
    RecordStreams& operator=(const RecordStreams&) = delete;

    // What the library calls; see `StreamRuntime`.

    [[nodiscard]] kdvfs::TrackKey track_key(kdvfs::StreamRef stream) { return key_of(stream); }
    [[nodiscard]] kdvfs::TrackKey key_now(const kdvfs::TrackKey& before) { return before; }

    [[nodiscard]] kdvfs::RequestCell* make_cell() {
        const std::lock_guard lock{putting_};
        if (cells_taken_ == cells_per_block) map_cells();
        return blocks_.back().cells + cells_taken_++;
    }

    /// Launching threads wait for one another here, never for who takes records or timestamps.
    void put_marker(kdvfs::StreamRef stream, const kdvfs::Marker& marker) {
        std::unique_lock lock{putting_};
        if (word_of(marker) != marker.word) {
            const std::uint64_t address = device_address(marker.cell);
            lock.unlock();
            write(stream.as<void>(), address, marker.word);
            lock.lock();
            word_of(marker) = marker.word;
        }
        if (!marker.timestamped) return;
        const std::uint32_t launch = AtLaunch::current();
        put_.push_back({marker.tag, launch, launch == 0 ? host_now() : kdvfs::TimePoint{}});
        if (put_.size() < remembered) return;
        lock.unlock();  // nobody has drained for long
        const std::lock_guard taking{mutex_};
        take_put();
    }

    /// Records arrive on threads of the driver: no thread that launches looks for them.
    static constexpr bool collected_beside = true;
    std::size_t collect_timestamps(std::span<kdvfs::MarkerTimestamp> out) noexcept {
        return drain_timestamps(out);
    }
    std::size_t drain_timestamps(std::span<kdvfs::MarkerTimestamp> out) noexcept {
        const std::lock_guard lock{mutex_};
        take_put();
        std::size_t count = 0;
        for (Track& track : tracks_) {
            while (count < out.size() && !track.pending.empty()) {
                Pending& next = track.pending.front();
                const auto time = time_of(next);
                if (!time) {
                    if (!has_kernels(next) && is_stuck(track)) {
                        // And so are all up to the next that is known.
                        lose_front(track);
                        continue;
                    }
                    break;
                }
                // Launches of one stream can overlap by a little; a track's times only rise.
                if (!put_kernels(track, next, out, count) || count == out.size()) return count;
                track.last = std::max(track.last, *time);
                next.tag.scope_kind = kind_of(next);
                out[count++] = {next.tag, track.last, 0, 0};
                track.pending.pop_front();
                track.waiting_since = {};
            }
        }
        return count;
    }

    /// Timestamps that are still to come are no earlier. A stream's times only rise; one whose
    /// records are ten seconds behind the newest is not waited for.
    [[nodiscard]] kdvfs::TimePoint earliest_to_come() noexcept {
        constexpr kdvfs::Duration patience = std::chrono::seconds{10};
        const std::lock_guard lock{mutex_};
        take_put();
        kdvfs::TimePoint earliest = kdvfs::TimePoint::max();
        for (const Track& track : tracks_) {
            if (!track.pending.empty()) earliest = std::min(earliest, track.last);
        }
        return std::max(earliest, newest_ - patience);
    }

    [[nodiscard]] std::uint64_t lost_timestamps() noexcept {
        const std::lock_guard lock{mutex_};
        return lost_;
    }

    /// Waits for the stream, and for the records of what it has run; for these no longer than
    /// 0.3 s.
    void synchronize(kdvfs::StreamRef stream) {
        constexpr int between_asking = 25;
        wait_for(stream);
        for (int tries = 0; tries < 150 && awaits_records(); ++tries) {
            if (want_records_ && tries % between_asking == 0) want_records_();
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
        }
    }
    /// Waits for the stream alone.
    void wait_for(kdvfs::StreamRef stream) {
        if (driver_.synchronize == nullptr) return;
        if (const int status = driver_.synchronize(stream.as<void>()); status != 0) {
            throw kdvfs::Error{kdvfs::Errc::io,
                               {.action = "wait for a stream",
                                .object = object_,
                                .vendor_words = "driver error " + std::to_string(status),
                                .remedy = "check what the stream runs"}};
        }
    }
    [[nodiscard]] kdvfs::TimePoint now() noexcept { return host_now(); }
    [[nodiscard]] std::string_view marker_mechanism() const {
        return "none: times from the driver's records of launches, without core cycles";
    }

    // What attaching calls.

    /// Which kind a launch's scope is, once its time is known; scopes of other kinds are let be.
    /// @param split called with the kind at the launch, the launch's time and what `may_repeat` was
    ///              told of it, once for each launch, under a lock of this object
    using Split = std::uint32_t(std::uint32_t kind, kdvfs::Duration time,
                                std::optional<std::uint32_t> place);
    void split_by(std::function<Split> split) {
        const std::lock_guard lock{mutex_};
        split_ = std::move(split);
    }

    /// Scopes of this kind are of launches whose kernels have their kind with their record.
    void name_by_record(std::uint32_t kind) {
        const std::lock_guard lock{mutex_};
        unnamed_ = kind;
    }

    /// Who is asked to bring in records that are waited for, on another thread: the driver keeps
    /// them until its buffers are full. To be said before the first launch.
    void ask_for_records(std::function<void()> want) { want_records_ = std::move(want); }

    /// A launch may have several records, one for each time that it is made, itself last.
    /// @param place where it is made, for `split_by`
    void may_repeat(std::uint32_t correlation, std::uint32_t place) {
        const std::lock_guard lock{mutex_};
        places_.put(correlation, place);
    }

    /// A launch of many kernels is about to be made; its scope is one that encloses.
    void launches_many(std::uint32_t correlation) {
        const std::lock_guard lock{mutex_};
        many_.try_emplace(correlation);
    }
    /// It was made.
    /// @param records how many it will have; nothing where that is not known
    void launched_many(std::uint32_t correlation, std::optional<std::size_t> records) {
        const std::lock_guard lock{mutex_};
        take_put();
        const auto found = many_.find(correlation);
        if (found == many_.end()) return;
        if (!found->second.expected) found->second.expected = records;  // it may have failed
        if (found->second.markers == 0) many_.erase(found);             // it is not metered
    }
    /// Whether it is one of many kernels, whose records are waited for.
    [[nodiscard]] bool is_of_many(std::uint32_t correlation) {
        const std::lock_guard lock{mutex_};
        return many_.contains(correlation);
    }

    /// A launch ran then, or one kernel of a launch of many.
    /// @param kind of the kernel's scope, where it is not that of the launch
    void arrived(std::uint32_t correlation, kdvfs::TimePoint start, kdvfs::TimePoint end,
                 std::optional<std::uint32_t> kind = {}) {
        const std::lock_guard lock{mutex_};
        take({correlation, start, end}, kind);
    }
    /// A record of a launch.
    struct Ran {
        std::uint32_t correlation = 0;
        kdvfs::TimePoint start{};
        kdvfs::TimePoint end{};
    };
    /// As `arrived`, for many at once: a launch waits once for all.
    /// @returns the places of those of launches of many kernels: these are not taken, as they come
    ///          with a kind
    [[nodiscard]] std::vector<std::size_t> arrived(std::span<const Ran> all) {
        std::vector<std::size_t> of_many;
        const std::lock_guard lock{mutex_};
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!many_.empty() && many_.contains(all[i].correlation)) {
                of_many.push_back(i);
            } else {
                take(all[i], {});
            }
        }
        return of_many;
    }
    /// The launch as a whole has a record, beside those of its kernels or in their place.
    void arrived_whole(std::uint32_t correlation, kdvfs::TimePoint start, kdvfs::TimePoint end,
                       std::uint32_t kind) {
        arrived(correlation, start, end, kind);
        const std::lock_guard lock{mutex_};
        if (const auto many = many_.find(correlation); many != many_.end()) {
            many->second.expected = many->second.kernels.size();
        }
    }
    /// A launch was refused, or its times are not known: it took none.
    void failed(std::uint32_t correlation) {
        const std::lock_guard lock{mutex_};
        const kdvfs::TimePoint at = newest_ == kdvfs::TimePoint{} ? host_now() : newest_;
        times_.put(correlation, {at, at});
        if (const auto many = many_.find(correlation); many != many_.end()) {
            many->second.expected = 0;
        }
    }
    /// No more records will come: what still waits for one is lost.
    void finish() {
        const std::lock_guard lock{mutex_};
        finished_ = true;
    }
    [[nodiscard]] std::uint64_t records() {
        const std::lock_guard lock{mutex_};
        return records_;
    }
    /// How many markers wait for their launch's record.
    [[nodiscard]] std::size_t waiting() {
        const std::lock_guard lock{mutex_};
        take_put();
        std::size_t sum = 0;
        for (const Track& track : tracks_) sum += track.pending.size();
        return sum;
    }

private:
    struct Pending {
        kdvfs::MarkerTag tag;
        std::uint32_t correlation;
        kdvfs::TimePoint put;  ///< of a marker at no launch
    };
    struct Track {
        std::deque<Pending> pending;
        kdvfs::TimePoint last{};
        kdvfs::TimePoint waiting_since{};
    };
    /// A launch of many kernels.
    struct Many {
        struct Kernel {
            std::uint32_t kind;
            kdvfs::TimePoint start;
            kdvfs::TimePoint end;
        };
        std::vector<Kernel> kernels{};
        std::size_t put = 0;      ///< timestamps of these that were handed out
        std::size_t markers = 0;  ///< of scopes that begin or end with it
        std::optional<std::size_t> expected{};
        kdvfs::TimePoint last_came{};
    };
    static constexpr std::uint32_t no_kind = ~std::uint32_t{0};
    /// When a launch ran.
    struct Times {
        kdvfs::TimePoint start{};
        kdvfs::TimePoint end{};
        std::uint32_t kind = no_kind;         ///< that the launch's own scope is to have
        std::uint32_t kind_before = no_kind;  ///< that it had
    };
    /// Host memory that cells lie in, and its address on the device where that is known.
    struct Block {
        kdvfs::RequestCell* cells = nullptr;
        std::uint64_t address = 0;
    };

    static constexpr std::size_t remembered = std::size_t{1} << 17U;
    static constexpr std::size_t cells_per_block = 1024;

    static kdvfs::TimePoint host_now() {
        return kdvfs::TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    }

    /// A stream of a thread's own is one track a thread.
    static kdvfs::TrackKey key_of(kdvfs::StreamRef stream) {
        static std::atomic<std::uint64_t> threads{0};
        thread_local const std::uint64_t number = ++threads;
        const bool per_thread =
            reinterpret_cast<std::uintptr_t>(stream.as<void>()) == std::uintptr_t{2};
        return {stream, per_thread ? number : 0, 0};
    }

    // Requests.

    void write(void* stream, std::uint64_t address, kdvfs::RequestWord word) {
        const auto refuse = [&](kdvfs::Errc code, std::string words) {
            throw kdvfs::Error{code,
                               {.action = "put a request into a stream",
                                .object = object_,
                                .vendor_words = std::move(words),
                                .remedy = "attach without a plan or a sweep"}};
        };
        if (address == 0) refuse(kdvfs::Errc::not_supported, "the driver maps no host memory");
        if (driver_.captures(stream)) refuse(kdvfs::Errc::invalid_input, "it is being captured");
        const int status = driver_.write(stream, address, word.raw(), 0);
        if (status != 0) refuse(kdvfs::Errc::io, "driver error " + std::to_string(status));
    }

    /// The caller holds the lock.
    [[nodiscard]] std::uint64_t device_address(const kdvfs::RequestCell* cell) const {
        for (const Block& block : blocks_) {
            if (cell < block.cells || cell >= block.cells + cells_per_block) continue;
            if (block.address == 0) return 0;
            return block.address + static_cast<std::uint64_t>(cell - block.cells) * sizeof *cell;
        }
        return 0;
    }

    /// Never given back: a stream may still write. The caller holds the lock.
    void map_cells() {
        constexpr std::size_t bytes = cells_per_block * sizeof(kdvfs::RequestCell);
        void* const memory =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            throw kdvfs::Error{kdvfs::Errc::io,
                               {.action = "map host memory",
                                .object = object_,
                                .vendor_words = "",
                                .remedy = "see the limits on memory (ulimit -v)"}};
        }
        constexpr unsigned portable_and_mapped = 3;
        std::uint64_t address = 0;
        const bool mapped = driver_.write != nullptr && driver_.register_memory != nullptr &&
                            driver_.device_address != nullptr &&
                            driver_.register_memory(memory, bytes, portable_and_mapped) == 0 &&
                            driver_.device_address(&address, memory, 0) == 0;
        blocks_.push_back({static_cast<kdvfs::RequestCell*>(memory), mapped ? address : 0});
        cells_taken_ = 0;
    }

    /// What was put last on the marker's track. The caller holds the lock.
    kdvfs::RequestWord& word_of(const kdvfs::Marker& marker) {
        if (words_.size() <= marker.tag.track) words_.resize(marker.tag.track + std::size_t{1});
        return words_[marker.tag.track];
    }

    // Timestamps. The caller holds the lock.

    /// Takes over what launching threads have put since the last time.
    void take_put() {
        {
            const std::lock_guard lock{putting_};
            put_.swap(taken_);
        }
        for (const Pending& marker : taken_) {
            if (tracks_.size() <= marker.tag.track)
                tracks_.resize(marker.tag.track + std::size_t{1});
            Track& track = tracks_[marker.tag.track];
            if (!many_.empty()) {
                const auto many = many_.find(marker.correlation);
                if (many != many_.end()) ++many->second.markers;
            }
            track.pending.push_back(marker);
            if (track.pending.size() > remembered) lose_front(track);
        }
        taken_.clear();
    }

    void take(const Ran& ran, std::optional<std::uint32_t> kind) {
        ++records_;
        newest_ = std::max(newest_, ran.end);
        const auto many = many_.find(ran.correlation);
        if (many != many_.end() && kind) {
            many->second.kernels.push_back({*kind, ran.start, ran.end});
            many->second.last_came = host_now();
        }
        Times launch{ran.start, ran.end, kind.value_or(no_kind)};
        const Times* const before = times_.find(ran.correlation);
        if (before != nullptr && !place_of(ran.correlation)) {  // one launch in several parts
            launch.start = std::min(launch.start, before->start);
            launch.end = std::max(launch.end, before->end);
        }
        times_.put(ran.correlation, launch);
    }

    /// When the stream passed the marker; nothing where that is not known yet.
    [[nodiscard]] std::optional<kdvfs::TimePoint> time_of(const Pending& marker) const {
        if (marker.correlation == 0) return marker.put;
        const Times* const launch = times_.find(marker.correlation);
        if (launch == nullptr) return std::nullopt;
        const auto many = many_.find(marker.correlation);
        if (many != many_.end() && !is_complete(many->second)) return std::nullopt;
        return marker.tag.leaving ? launch->end : launch->start;
    }

    /// Whether all kernels of a launch have come. Not all of a graph's nodes run, or leave records:
    /// those that others are a second ahead of will not come.
    [[nodiscard]] bool is_complete(const Many& many) const {
        if (finished_ || (many.expected && many.kernels.size() >= *many.expected)) return true;
        return !many.kernels.empty() && host_now() - many.last_came > std::chrono::seconds{1};
    }

    /// Whether some kernels of the launch have come already.
    [[nodiscard]] bool has_kernels(const Pending& marker) const {
        const auto many = many_.find(marker.correlation);
        return many != many_.end() && !many->second.kernels.empty();
    }

    /// Before the first marker that leaves with a launch of many kernels: the scopes of these. A
    /// track has one at a time: of kernels that overlap, the time is that of the first.
    /// @returns whether all of them are handed out
    bool put_kernels(Track& track, const Pending& marker, std::span<kdvfs::MarkerTimestamp> out,
                     std::size_t& count) {
        constexpr std::uint32_t not_counted = 0;  // `MeteringWindows::in_graph`
        if (!marker.tag.leaving || marker.correlation == 0) return true;
        const auto found = many_.find(marker.correlation);
        if (found == many_.end()) return true;
        auto& [kernels, put, markers, expected, last_came] = found->second;
        if (put == 0) {
            std::sort(kernels.begin(), kernels.end(),
                      [](const auto& a, const auto& b) { return a.start < b.start; });
        }
        for (; put < 2 * kernels.size(); ++put) {
            if (count == out.size()) return false;
            auto& [kind, start, end] = kernels[put / 2];
            const bool leaving = put % 2 == 1;
            if (split_ && !leaving) kind = split_(kind, end - start, std::nullopt);
            track.last = std::max(track.last, leaving ? end : start);
            out[count++] = {{marker.tag.track, kind, leaving, not_counted}, track.last, 0, 0};
        }
        many_.erase(found);
        return true;
    }

    /// Of launches that may be repeated.
    [[nodiscard]] std::optional<std::uint32_t> place_of(std::uint32_t correlation) const {
        const std::uint32_t* const place = places_.find(correlation);
        return place != nullptr ? std::optional{*place} : std::nullopt;
    }

    /// The kind of a marker whose time is known: split once, when the launch's scope begins.
    [[nodiscard]] std::uint32_t kind_of(const Pending& marker) {
        const std::uint32_t kind = marker.tag.scope_kind;
        if (marker.correlation == 0) return kind;
        Times* const launch = times_.find(marker.correlation);
        if (launch == nullptr) return kind;
        if (kind == unnamed_ && launch->kind != no_kind) return launch->kind;
        if (!split_) return kind;
        if (launch->kind == no_kind || launch->kind_before != kind) {
            if (marker.tag.leaving) return kind;  // of a range, which began with another launch
            const std::uint32_t split =
                split_(kind, launch->end - launch->start, place_of(marker.correlation));
            if (split == kind) return kind;
            launch->kind_before = kind;
            launch->kind = split;
        }
        return launch->kind;
    }

    [[nodiscard]] bool awaits_records() {
        const std::lock_guard lock{mutex_};
        take_put();
        return std::any_of(tracks_.begin(), tracks_.end(), [this](const Track& track) {
            return std::any_of(track.pending.begin(), track.pending.end(),
                               [this](const Pending& marker) { return !time_of(marker); });
        });
    }

    /// Whether the front's record will not come any more: those of launches behind it have been
    /// there for a second.
    [[nodiscard]] bool is_stuck(Track& track) const {
        if (finished_) return true;
        const std::size_t look = std::min<std::size_t>(track.pending.size(), 64);
        for (std::size_t i = 1; i < look; ++i) {
            if (!time_of(track.pending[i])) continue;
            const kdvfs::TimePoint now = host_now();
            if (track.waiting_since == kdvfs::TimePoint{}) track.waiting_since = now;
            return now - track.waiting_since > std::chrono::seconds{1};
        }
        return false;
    }

    void lose_front(Track& track) {
        const Pending& lost = track.pending.front();
        if (lost.tag.leaving) many_.erase(lost.correlation);
        track.pending.pop_front();
        ++lost_;
    }

    const std::string object_;
    const CudaDriver driver_;

    // Of launching threads; taken within `mutex_`.
    std::mutex putting_;
    std::vector<Pending> put_;
    std::vector<kdvfs::RequestWord> words_;  // by track
    std::vector<Block> blocks_;
    std::size_t cells_taken_ = cells_per_block;

    std::mutex mutex_;
    std::vector<Pending> taken_;  // from `put_`; empty between calls
    std::function<Split> split_;
    std::uint32_t unnamed_ = no_kind;
    std::map<std::uint32_t, Many> many_;  // by correlation
    std::function<void()> want_records_;
    std::vector<Track> tracks_;  // by number
    NewestLaunches<Times> times_{remembered};
    NewestLaunches<std::uint32_t> places_{remembered};  // of launches that may be repeated
    kdvfs::TimePoint newest_{};
    std::uint64_t records_ = 0;
    std::uint64_t lost_ = 0;
    bool finished_ = false;
};

static_assert(kdvfs::StreamRuntime<RecordStreams>);

}  // namespace attach
