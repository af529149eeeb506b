// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/followed_plan.hpp>
#include <kdvfs/detail/control/gate.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/device/contracts.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// A mutex for what one thread mostly has to itself. Locking is one atomic exchange, unlocking a
/// plain store: half of what a futex costs, which must ask at each unlock whether someone sleeps.
/// A thread that meets another looks again every 20 us instead of being woken: a runtime's launch
/// may block for long while the track is held, and spinning would burn a core.
class TrackMutex {
public:
    void lock() noexcept {
        while (held_.exchange(true, std::memory_order_acquire)) {
            while (held_.load(std::memory_order_relaxed)) {
                std::this_thread::sleep_for(std::chrono::microseconds{20});
            }
        }
    }
    bool try_lock() noexcept { return !held_.exchange(true, std::memory_order_acquire); }
    void unlock() noexcept { held_.store(false, std::memory_order_release); }

private:
    std::atomic<bool> held_{false};
};

/// What enqueueing can tell of a scope's outcome. `asked` is settled by the controller: switched,
/// refused, overtaken, missed, or elided because the device already held the request.
enum class ScopeOutcome : std::uint8_t {
    kept,
    stream_redundant,
    not_worth_it,
    refused,
    captured,
    measured,  ///< the GPU is opened to measure only
    followed,  ///< between two boundaries of a plan that the track follows
    asked,
};
inline constexpr std::size_t scope_outcomes = 8;

/// The scopes of one track, each counted once, by scope kind: plain numbers under the track's
/// mutex, so that counting costs no atomic operation.
struct TrackCounts {
    struct OfKind {
        std::array<std::uint64_t, scope_outcomes> outcomes{};
        std::uint64_t unmetered_calls = 0;              ///< live ones that leave no interval
        std::optional<measure::GateRefusal> refusal{};  ///< the gate's last one
    };
    std::vector<OfKind> kinds{};
    std::uint64_t unmetered = 0;

    void count(std::uint32_t kind, ScopeOutcome outcome) {
        ++of(kind).outcomes[static_cast<std::size_t>(outcome)];
    }
    void count_unmetered(std::uint32_t kind, bool live) {
        ++unmetered;
        if (live) ++of(kind).unmetered_calls;
    }
    OfKind& of(std::uint32_t kind) {
        if (kinds.size() <= kind) kinds.resize(kind + std::size_t{1});
        return kinds[kind];
    }
};

/// What a track wants put into its stream when a scope enters or leaves.
struct TrackStep {
    std::uint64_t entry = 0;  ///< the scope's entry in the stack, for leaving
    RequestWord word{};       ///< the track's request from here on
    bool changed = false;     ///< whether that differs from what the stream was told before
};

/// The host's side of a stream: a stack of the scopes that are open on it, in enqueue order.
/// Knows nothing of devices; the caller puts the markers. Not thread-safe by itself: hold `mutex`.
class StreamTrack {
public:
    /// @param timestamps whose they are, see `timestamps()`
    StreamTrack(TrackId id, TrackKey key, RequestCell* cell, TrackId timestamps)
        : id_{id}, timestamps_{timestamps}, key_{key}, cell_{cell}, captured_{key.capture != 0} {
        stack_.reserve(16);  // no allocation after a track's first scope, unless nested deeper
    }

    /// Pushes a scope that asks for `request`; `no_request` inherits what encloses it.
    /// @param kind of the scope, for `kind_of`
    TrackStep enter(RequestIndex request, std::uint32_t kind = 0) {
        const RequestWord before = word();
        open_.store(open_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        RequestWord own{};
        const bool same = request != no_request && before.request() == request;
        if (request != no_request) {
            own = same ? before : RequestWord{request, next_ticket_++};
            if (!same) kinds_[own.ticket() % kinds_.size()].store(kind, std::memory_order_relaxed);
        }
        stack_.push_back({.entry = ++last_entry_, .word = own});
        if (request != no_request) word_ = own;
        return {.entry = last_entry_, .word = word_, .changed = word_ != before};
    }

    /// Pushes a scope whose request no marker says: it is for the highest clocks, and nothing
    /// lowers them yet.
    TrackStep enter_unmarked(RequestIndex request, std::uint32_t kind) {
        open_.store(open_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        unmarked_open_.store(unmarked_open_.load(std::memory_order_relaxed) + 1);
        passes_unmarked_.store(without_marker_behind);
        stack_.push_back({.entry = ++last_entry_, .unmarked = request, .kind = kind});
        return {.entry = last_entry_, .word = word_};
    }
    /// Something is about to be said inside of unmarked scopes: theirs is what holds around it.
    /// @param each called with the kind of each
    template <class Function>
    void mark_open(Function each) {
        if (unmarked_open_.load(std::memory_order_relaxed) == 0) return;
        for (Entry& entry : stack_) {
            if (entry.unmarked == no_request) continue;
            entry.word = RequestWord{std::exchange(entry.unmarked, no_request), next_ticket_++};
            kinds_[entry.word.ticket() % kinds_.size()].store(entry.kind,
                                                              std::memory_order_relaxed);
            each(entry.kind);
        }
        unmarked_open_.store(0);
        word_ = innermost();
    }
    /// Whether a scope without a marker is open on the host. Callable without `mutex`.
    [[nodiscard]] bool has_unmarked_open() const { return unmarked_open_.load() > 0; }
    /// Whether the stream may be at a scope without a marker. Callable without `mutex`.
    [[nodiscard]] bool hides_scopes() {
        if (has_unmarked_open()) return true;
        std::uint64_t behind = passes_unmarked_.load();
        if (behind <= without_marker_behind) return behind == without_marker_behind;
        constexpr std::uint32_t tickets = 1U << (32 - RequestWord::request_bits);
        const RequestWord marker{static_cast<std::uint32_t>(behind)};
        const bool passed = (cell_->load().ticket() - marker.ticket()) % tickets < tickets / 2;
        if (passed) passes_unmarked_.compare_exchange_strong(behind, 0);
        return !passed;
    }

    /// Removes a scope's own entry, wherever it is in the stack. Scopes of one track may be left in
    /// any order: what stays is what the others still ask for.
    /// @returns nothing if the entry is not there (left before)
    std::optional<TrackStep> leave(std::uint64_t entry) {
        const auto found = std::find_if(stack_.rbegin(), stack_.rend(),
                                        [&](const Entry& e) { return e.entry == entry; });
        if (found == stack_.rend()) return std::nullopt;
        const RequestWord before = word_;
        if (found->unmarked != no_request) {
            unmarked_open_.store(unmarked_open_.load(std::memory_order_relaxed) - 1);
        }
        stack_.erase(std::next(found).base());
        word_ = innermost();
        const RequestWord now = word_;
        if (now != before) last_.store(now.raw(), std::memory_order_relaxed);
        open_.store(open_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
        return TrackStep{.entry = entry, .word = now, .changed = now != before};
    }

    /// Serves another stream or capture, with its stack empty, as long as nothing that the old one
    /// needs is left. Of a stream: no scope, no request on its way, no standing vote, no graph that
    /// ends its request; its scopes without markers are forgotten. Of a capture: no open scope, no
    /// plan, of which only the newest graph's last word is known to end it. From then on a captured
    /// track's vote is the highest that any of its captures asks for, and ends with the first
    /// replay that ends.
    /// @param timestamps the number of the new one's; the old one's may still be on their way
    /// @returns whether it does
    bool serve(const TrackKey& key, TrackId timestamps) {
        if (abandoned || !stack_.empty()) return false;
        if (captured_) {
            if (follower != nullptr) return false;
            shared_.store(true, std::memory_order_relaxed);
        } else {
            if (is_protected || has_graphs || outer_request() != no_request || !at_rest()) {
                return false;
            }
            follower.reset();
            passes_unmarked_.store(0);
        }
        key_ = key;
        timestamps_ = timestamps;
        return true;
    }
    /// The highest request of its captures.
    [[nodiscard]] RequestIndex highest_captured() const { return {highest_captured_.load()}; }
    void highest_captured(RequestIndex request) { highest_captured_.store(request.value); }

    /// From here on this encloses all scopes of the track, until it is called again.
    /// @param kind of the scope at the boundary, for `kind_of`
    TrackStep set_outer_request(RequestIndex request, std::uint32_t kind = 0) {
        const RequestWord before = word();
        outermost_ = request == no_request ? RequestWord{} : RequestWord{request, next_ticket_++};
        if (request != no_request) {
            kinds_[outermost_.ticket() % kinds_.size()].store(kind, std::memory_order_relaxed);
        }
        word_ = innermost();
        return {.word = word_, .changed = word_ != before};
    }
    /// The same in the gap behind a launch: no scope's request.
    TrackStep rest(RequestIndex request) {
        const RequestWord before = word();
        outermost_ = RequestWord{request, next_ticket_ - 1};
        word_ = innermost();
        return {.word = word_, .changed = word_ != before};
    }
    /// What encloses all scopes of the track.
    [[nodiscard]] RequestIndex outer_request() const { return outermost_.request(); }

    /// A marker with this word was put into the stream.
    void was_put(RequestWord word) {
        const std::uint64_t overruled = overruled_.load(std::memory_order_relaxed);
        if (overruled != 0 && word_of(overruled) != put_ && cell_->load() == put_) {
            overruled_.store(0, std::memory_order_relaxed);  // the stream is past it
        }
        // A graph shows its replays by any marker that says something new, a stream its end by the
        // last one.
        const bool showed = captured_ && marked_ && shows();
        shows_.store(word != put_ || showed, std::memory_order_relaxed);
        std::uint64_t hidden = without_marker_behind;
        if (word != put_) {
            passes_unmarked_.compare_exchange_strong(hidden, std::uint64_t{1} << 32U | word.raw());
        }
        marked_ = true;
        put_ = word;
        last_.store(word.raw(), std::memory_order_relaxed);
    }
    /// Whether the cell tells what the stream is at: of a live track that it has passed the last
    /// marker, of a captured one that a graph is replayed. Markers that only take the time do not
    /// show. Callable without `mutex`.
    [[nodiscard]] bool shows() const { return shows_.load(std::memory_order_relaxed); }

    /// The stream could not be told of the word: the last word that was put, which may be still
    /// on its way, means the word instead. Its ticket is never used again.
    void overrule() { overrule(word()); }
    /// The last word that was put means no request: nothing behind it will say so.
    void end_with_last_word() { overrule(RequestWord{no_request, put_.ticket()}); }

    /// What the stream asks for now. Callable without `mutex`.
    [[nodiscard]] RequestWord observed() const {
        RequestWord word = cell_->load();
        if (shared_.load(std::memory_order_relaxed) && word.request() != no_request) {
            word = RequestWord{highest_captured(), word.ticket()};
        }
        const std::uint64_t overruled = overruled_.load(std::memory_order_relaxed);
        return word == word_of(overruled) ? RequestWord{static_cast<std::uint32_t>(overruled)}
                                          : word;
    }

    /// The kind of the scope that a ticket was given to, of the last `remembered` tickets. Callable
    /// without `mutex`.
    [[nodiscard]] std::uint32_t kind_of(std::uint32_t ticket) const {
        return kinds_[ticket % kinds_.size()].load(std::memory_order_relaxed);
    }
    static constexpr std::size_t remembered = 256;

    /// The track's request now: that of the innermost scope with an opinion.
    [[nodiscard]] RequestWord word() const { return word_; }

    /// Whether no scope is open on the host, nor under way in the stream: the cell holds what was
    /// put last. Callable without `mutex`.
    [[nodiscard]] bool at_rest() const {
        return open_.load(std::memory_order_acquire) == 0 &&
               cell_->load().raw() == last_.load(std::memory_order_relaxed);
    }

    [[nodiscard]] TrackId id() const { return id_; }
    /// The number that timestamps carry: one of its own for each stream and capture that the track
    /// has served.
    [[nodiscard]] TrackId timestamps() const { return timestamps_; }
    [[nodiscard]] const TrackKey& key() const { return key_; }
    [[nodiscard]] RequestCell& cell() const { return *cell_; }
    /// Whether it is recorded into graphs. Callable without `mutex`.
    [[nodiscard]] bool captured() const { return captured_; }
    [[nodiscard]] std::size_t depth() const { return stack_.size(); }

    // Public, because whoever enters or leaves needs them around the track's own steps.
    TrackMutex mutex;                         ///< held while a step is taken and its marker is put
    TrackCounts counts;                       ///< under `mutex`
    std::unique_ptr<TrackFollower> follower;  ///< under `mutex`; null: follows no plan
    bool has_graphs = false;             ///< under `mutex`: captures of the stream end its request
    std::atomic<bool> abandoned{false};  ///< its cell says nothing any more
    std::atomic<bool> is_protected{false};  ///< it has a standing vote

private:
    struct Entry {
        std::uint64_t entry = 0;
        RequestWord word{};
        RequestIndex unmarked = no_request;  ///< asked for without a marker
        std::uint32_t kind = 0;              ///< of a scope without one
    };
    static constexpr std::uint64_t without_marker_behind = 1;

    [[nodiscard]] RequestWord innermost() const {
        const auto asking = std::find_if(stack_.rbegin(), stack_.rend(), [](const Entry& e) {
            return e.word.request() != no_request;
        });
        if (asking != stack_.rend()) return asking->word;
        if (outermost_.request() != no_request) return outermost_;
        // The last ticket tells one end of all requests from another.
        return RequestWord{no_request, next_ticket_ - 1};
    }

    void overrule(RequestWord meaning) {
        overruled_.store(std::uint64_t{put_.raw()} << 32U | meaning.raw(),
                         std::memory_order_relaxed);
        last_.store(put_.raw(), std::memory_order_relaxed);
    }

    static constexpr RequestWord word_of(std::uint64_t overruled) {
        return RequestWord{static_cast<std::uint32_t>(overruled >> 32U)};
    }

    TrackId id_;
    TrackId timestamps_;  // under `mutex`
    TrackKey key_;        // under `mutex`
    RequestCell* cell_;
    const bool captured_;
    std::vector<Entry> stack_;
    std::uint64_t last_entry_ = 0;
    std::uint32_t next_ticket_ = 1;
    RequestWord outermost_{};
    RequestWord word_{};
    RequestWord put_{};
    bool marked_ = false;  // once at least
    // Written under `mutex` only.
    std::array<std::atomic<std::uint32_t>, remembered> kinds_{};  // by ticket
    std::atomic<std::uint32_t> open_{0};
    std::atomic<std::uint32_t> unmarked_open_{0};
    /// 0: the stream is at no scope without a marker; 1: it may be; else the first marker's word
    /// behind such scopes, and 2^32.
    std::atomic<std::uint64_t> passes_unmarked_{0};
    std::atomic<bool> shared_{false};  // by captures
    std::atomic<std::uint32_t> highest_captured_{0};
    std::atomic<bool> shows_{true};
    std::atomic<std::uint32_t> last_{0};       // the word that the cell will end up with
    std::atomic<std::uint64_t> overruled_{0};  // a word, and the word that it means instead
};

/// A track with its mutex held, so that it serves the stream that it was found for.
struct LockedTrack {
    StreamTrack& track;
    std::unique_lock<TrackMutex> lock;
};

/// All tracks of a GPU object, by stream and capture. They stay until it ends: no runtime says when
/// a stream, its thread or a graph does. Instead, once there are many, a stream or a capture that
/// comes is given a track that rests. Captures have a vote each until then; those that share a
/// track share its vote. Thread-safe.
class TrackTable {
public:
    /// Tracks of streams, and of captures, before one that rests is given away. An idle listener
    /// looks at so many cells, beside graphs five times a second.
    static constexpr std::size_t most_at_rest = 256;

    TrackTable() : serial_{next_serial()} {}

    /// The track of a key; a new one, on a cell from `make_cell()`, where none can be given to it.
    /// Waits for whoever holds it.
    template <class MakeCell>
    LockedTrack find(const TrackKey& key, MakeCell make_cell) {
        // A thread uses few streams: remember its last tracks, and whose they are.
        struct Last {
            std::uint64_t serial = 0;
            TrackKey key{};
            StreamTrack* track = nullptr;
        };
        thread_local std::array<Last, 8> remembered{};
        // Streams are heap objects: their addresses differ in the middle.
        const auto address = reinterpret_cast<std::uintptr_t>(key.stream.as<void>());
        Last& last = remembered[(address >> 4U ^ address >> 7U ^ address >> 12U) % 8];
        StreamTrack* track = last.serial == serial_ && last.key == key ? last.track : nullptr;
        while (true) {
            if (track == nullptr) {
                track = &find_slowly(key, make_cell);
                last = {serial_, key, track};
            }
            std::unique_lock lock{track->mutex};
            if (track->key() == key) return {*track, std::move(lock)};
            track = nullptr;  // it has been given away
        }
    }

    template <class Function>
    void for_each(Function function) {
        const std::lock_guard lock{mutex_};
        for (StreamTrack& track : tracks_) function(track);
    }

    /// All tracks so far; they stay.
    std::vector<StreamTrack*> all() {
        std::vector<StreamTrack*> tracks;
        for_each([&](StreamTrack& track) { tracks.push_back(&track); });
        return tracks;
    }

    /// Whether a stream whose track was given away may be at a scope without a marker.
    [[nodiscard]] bool hides_scopes() const { return hides_scopes_; }
    void hides_no_scopes() { hides_scopes_ = false; }

private:
    /// Tracks in the order in which they are given away.
    struct Ring {
        std::vector<StreamTrack*> tracks{};
        std::size_t next = 0;
    };
    Ring& ring_of(const TrackKey& key) { return key.capture == 0 ? streams_ : captures_; }

    /// A cell is made without the lock that the listener wants: the runtime may map memory for it.
    template <class MakeCell>
    StreamTrack& find_slowly(const TrackKey& key, MakeCell& make_cell) {
        if (StreamTrack* const known = find_known(key)) return *known;
        const std::lock_guard one_at_a_time{making_};
        if (StreamTrack* const known = find_known(key)) return *known;
        if (StreamTrack* const given = give_one(key)) return *given;
        RequestCell* cell = make_cell();
        const std::lock_guard lock{mutex_};
        const TrackId id{static_cast<std::uint32_t>(tracks_.size())};
        StreamTrack& track = tracks_.emplace_back(id, key, cell, TrackId{next_timestamps_++});
        ring_of(key).tracks.push_back(&track);
        by_key_[key] = &track;
        return track;
    }

    StreamTrack* find_known(const TrackKey& key) {
        const std::lock_guard lock{mutex_};
        const auto known = by_key_.find(key);
        return known == by_key_.end() ? nullptr : known->second;
    }

    /// A track that rests, where there are many. A capture's is that of an earlier one of its
    /// stream, if there is one: their graphs seldom run at once.
    StreamTrack* give_one(const TrackKey& key) {
        const std::lock_guard lock{mutex_};
        if (ring_of(key).tracks.size() < most_at_rest) return nullptr;
        StreamTrack* const earlier =
            key.capture == 0 ? nullptr : give_one_of(key, [&](const StreamTrack& track) {
                return track.key().stream == key.stream;
            });
        return earlier != nullptr ? earlier : give_one_of(key, [](const auto&) { return true; });
    }
    template <class Suits>
    StreamTrack* give_one_of(const TrackKey& key, Suits suits) {
        Ring& ring = ring_of(key);
        const std::size_t most_looks = std::min(ring.tracks.size(), most_at_rest);
        for (std::size_t looks = 0; looks < most_looks; ++looks) {
            StreamTrack& track = *ring.tracks[ring.next++ % ring.tracks.size()];
            // Whoever holds a track may wait for the table.
            const std::unique_lock track_lock{track.mutex, std::try_to_lock};
            if (track_lock && suits(track) && give(track, key)) return &track;
        }
        return nullptr;
    }

    /// Both are locked. @returns whether the track may be given away
    bool give(StreamTrack& track, const TrackKey& key) {
        const TrackKey before = track.key();
        const bool hides = !track.captured() && track.hides_scopes();
        if (!track.serve(key, {next_timestamps_})) return false;
        ++next_timestamps_;
        if (hides) hides_scopes_ = true;
        by_key_.erase(before);
        by_key_[key] = &track;
        return true;
    }

    // Addresses come back after a table has died, serial numbers do not.
    static std::uint64_t next_serial() {
        static std::atomic<std::uint64_t> serial{0};
        return ++serial;
    }

    std::uint64_t serial_;
    std::mutex making_;
    std::mutex mutex_;
    std::deque<StreamTrack> tracks_;
    std::map<TrackKey, StreamTrack*> by_key_;
    Ring streams_;
    Ring captures_;
    std::uint32_t next_timestamps_ = 0;
    std::atomic<bool> hides_scopes_{false};
};

}  // namespace kdvfs::inline v0_3::detail
