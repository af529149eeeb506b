// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/sampler.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/self_check.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What reaches the meter from threads that it must never hold up: the iterations and scopes of the
// launching threads, the events of those that drive clocks, the samples of the one that reads the
// counter.

namespace kdvfs::inline v0_3 {

/// Whether an iteration is metered, where one in `every` is: one of each block of `every`, drawn by
/// a hash of the block's number (SplitMix64; Steele, Lea and Flood, OOPSLA 2014), the same in each
/// run. A fixed place would always meet the same kind of iteration where programs validate, or
/// accumulate, every so often. Of the first block it is one of the later half: programs warm up.
[[nodiscard]] inline bool is_metered_iteration(std::uint64_t iteration, unsigned every) {
    if (every <= 1) return every == 1;
    const std::uint64_t block = iteration / every;
    std::uint64_t hash = (block + 1) * 0x9E3779B97F4A7C15U;
    hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9U;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBU;
    hash ^= hash >> 31;
    const unsigned left_out = block == 0 ? every / 2 : 0;
    return iteration % every == left_out + hash % (every - left_out);
}

namespace detail {

/// Something that the threads that drive the clocks tell the meter.
struct ClockEvent {
    enum class Kind {
        asked,      ///< `to` is wanted from `at` on
        applied,    ///< the device went from `from` to `to`; the call began at `called`
        fault,      ///< `words` say what went wrong
        abandoned,  ///< what comes from `track` makes no sense any more
    };
    Kind kind = Kind::fault;
    TimePoint called{};
    TimePoint at{};
    ClockPoint from{};
    ClockPoint to{};
    TrackId track{};
    std::array<char, 160> words{};  ///< ends with a zero; cut where longer

    void say(std::string_view text) {
        const std::size_t length = std::min(text.size(), words.size() - 1);
        std::copy_n(text.begin(), length, words.begin());
        words[length] = 0;
    }
};

/// A bounded queue of clock events. Pushing copies one event under a lock that is never held for
/// more than that, so no clock waits for whoever writes a trace or solves for energies.
/// Thread-safe.
class ClockEvents {
public:
    ClockEvents() { queue_.reserve(capacity); }

    void push(const ClockEvent& event) noexcept {
        const std::lock_guard lock{mutex_};
        if (queue_.size() == capacity_) {
            ++lost_;
            return;
        }
        queue_.push_back(event);  // within its reserve
        any_.store(true, std::memory_order_release);
    }

    [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_acquire); }

    /// Moves all events to `out`, oldest first; what `out` held is gone.
    /// @returns false where somebody was at it who is not waited for
    bool take(std::vector<ClockEvent>& out, bool waits) {
        out.clear();
        out.reserve(capacity);
        std::unique_lock lock{mutex_, std::defer_lock};
        if (waits) {
            lock.lock();
        } else if (!lock.try_lock()) {
            return false;
        }
        std::swap(queue_, out);
        any_.store(false, std::memory_order_relaxed);
        return true;
    }

    /// Nobody will take them any more: what is pushed from here on is lost.
    void end() noexcept {
        const std::lock_guard lock{mutex_};
        queue_ = {};
        capacity_ = 0;
    }

    /// Events that found the queue full.
    [[nodiscard]] std::uint64_t lost() const {
        const std::lock_guard lock{mutex_};
        return lost_;
    }

private:
    static constexpr std::size_t capacity = 2048;

    mutable std::mutex mutex_;
    std::vector<ClockEvent> queue_;
    std::size_t capacity_ = capacity;
    std::uint64_t lost_ = 0;
    std::atomic<bool> any_{false};
};

/// Which iterations are metered. Free of locks for scopes; one thread at a time begins iterations.
class MeteringWindows {
public:
    explicit MeteringWindows(unsigned every) : every_{std::max(every, 1U)} {}

    /// Whether scopes are metered in this iteration.
    [[nodiscard]] bool metering() const { return is_metered(window()); }
    /// Which stretch of iterations this is: metered ones have odd numbers, others even ones.
    [[nodiscard]] std::uint32_t window() const { return window_.load(std::memory_order_relaxed); }
    [[nodiscard]] static constexpr bool is_metered(std::uint32_t window) { return window % 2 == 1; }
    /// The first window of those that a metered one is in without an unmetered one in between; an
    /// unmetered one is alone, and so is one of long ago. For the one thread that drains
    /// timestamps.
    [[nodiscard]] std::uint32_t stretch_of(std::uint32_t window) const {
        if (!is_metered(window)) return window;
        const std::uint64_t gaps = gaps_begun_.load(std::memory_order_acquire);
        for (std::uint64_t i = gaps; i > 0 && gaps - i < gaps_.size(); --i) {
            const std::uint32_t gap = gaps_[(i - 1) % gaps_.size()].load(std::memory_order_relaxed);
            if (gap < window) return gap + 1;
        }
        return gaps < gaps_.size() ? 1 : window;
    }
    /// The window of timestamps in graphs, which are replayed in any iteration.
    static constexpr std::uint32_t in_graph = 0;
    /// The window of timestamps that only say how long scopes last: they are of no metered time.
    static constexpr std::uint32_t for_gate = ~std::uint32_t{0};

    /// A timestamped marker is about to be put into a stream, not into a graph.
    void expect_timestamp() { expected_.fetch_add(1, std::memory_order_relaxed); }
    /// The marker that was announced last on this thread could not be put.
    void expect_no_timestamp() { expected_.fetch_sub(1, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t expected() const {
        return expected_.load(std::memory_order_relaxed);
    }
    /// A scope was entered with a timestamp and will not be left with one: what is open when the
    /// timestamps of the next window come is not paired with them.
    void break_off() { broken_at_ = window_.fetch_add(2) + 2; }
    [[nodiscard]] std::uint32_t broken_at() const {
        return broken_at_.load(std::memory_order_relaxed);
    }

    /// Grows with every timestamped marker and every iteration.
    [[nodiscard]] std::uint64_t activity() const {
        return expected() + begun_.load(std::memory_order_relaxed);
    }
    /// Whether the counter rests, because nothing is metered: whoever begins work must say so.
    [[nodiscard]] bool counter_rests() const { return rests_.load(std::memory_order_relaxed); }
    void let_counter_rest(bool rests) { rests_.store(rests, std::memory_order_relaxed); }

    /// Whether the next iteration is metered, by the rule of one in `every`.
    bool next_is_metered() {
        return is_metered_iteration(iteration_.fetch_add(1),
                                    every_.load(std::memory_order_relaxed));
    }
    /// One in so many from now on.
    void meter_every(unsigned iterations) {
        every_.store(std::max(iterations, 1U), std::memory_order_relaxed);
    }
    /// @param own a metered iteration has a window of its own, behind a metered one, too
    void begin(bool metered, bool own = false) {
        const std::uint64_t number = begun_.fetch_add(1, std::memory_order_relaxed) + 1;
        if (metered != metering()) {
            const std::uint32_t window = window_.fetch_add(1, std::memory_order_relaxed) + 1;
            if (!metered) note_gap(window);
        } else if (metered && own) {
            window_.fetch_add(2, std::memory_order_relaxed);
        }
        const std::lock_guard lock{beginning_};
        const std::uint64_t end = end_.load(std::memory_order_relaxed);
        if (end - front_.load(std::memory_order_acquire) == boundaries_.size()) {
            overflowed_.store(true, std::memory_order_relaxed);
            return;
        }
        boundaries_[end % boundaries_.size()] = {expected(), number, metered && !own};
        end_.store(end + 1, std::memory_order_release);
    }
    /// What began behind the first `drained` timestamps.
    struct Begun {
        bool any = false;
        bool metered = true;       ///< all of it, in the window before
        std::uint64_t number = 0;  ///< of the last of them, from 1 on; 0: not known
    };
    /// For the one thread that drains timestamps; takes no lock.
    [[nodiscard]] Begun begun_before(std::uint64_t drained) {
        Begun result;
        std::uint64_t front = front_.load(std::memory_order_relaxed);
        for (; front != end_.load(std::memory_order_acquire); ++front) {
            const Boundary& begun = boundaries_[front % boundaries_.size()];
            if (begun.behind >= drained) break;
            result.any = true;
            result.number = begun.number;
            result.metered = result.metered && begun.metered;
        }
        front_.store(front, std::memory_order_release);
        if (overflowed_.exchange(false)) result = {.any = true, .metered = false};
        return result;
    }

private:
    void note_gap(std::uint32_t window) {
        const std::uint64_t gaps = gaps_begun_.load(std::memory_order_relaxed);
        gaps_[gaps % gaps_.size()].store(window, std::memory_order_relaxed);
        gaps_begun_.store(gaps + 1, std::memory_order_release);
    }

    struct Boundary {
        std::uint64_t behind = 0;  ///< so many timestamped markers
        std::uint64_t number = 0;  ///< of the iteration
        bool metered = true;       ///< and goes on in the window before
    };
    std::mutex beginning_;  ///< among launching threads alone
    std::array<Boundary, 1024> boundaries_{};
    std::atomic<std::uint64_t> front_{0};
    std::atomic<std::uint64_t> end_{0};
    std::atomic<bool> overflowed_{false};  ///< an iteration's begin found no room
    std::atomic<unsigned> every_;
    std::atomic<std::uint64_t> iteration_{0};
    std::atomic<std::uint32_t> window_{1};
    std::array<std::atomic<std::uint32_t>, 1024> gaps_{};  ///< unmetered windows, the last ones
    std::atomic<std::uint64_t> gaps_begun_{0};
    std::atomic<std::uint32_t> broken_at_{0};
    std::atomic<std::uint64_t> expected_{0};
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<bool> rests_{false};
};

/// The sampling of a counter, and the check of it: the part of the meter that the actuator drives.
/// Its lock is never held while something is solved or written. Thread-safe.
class CounterSampling {
public:
    CounterSampling(const measure::SamplerSettings& settings, TimePoint start)
        : limits_{settings.limits}, sampler_{settings, start} {}

    /// The sampler's next read is due then.
    [[nodiscard]] TimePoint next_read() const {
        const std::lock_guard lock{mutex_};
        return sampler_.next_read();
    }
    /// A read of the counter has come back. @returns what it was worth
    ReadingStatus sampled(const EnergyReading& reading, TimePoint now) {
        const std::lock_guard lock{mutex_};
        const ReadingStatus status = sampler_.complete(reading, now);
        if (check_) check_->take(reading, now);
        if (sampler_.found_counter_period()) limits_.period = sampler_.counter_period();
        return status;
    }
    /// The power log has these new samples, oldest first.
    void power_logged(std::span<const PowerReading> samples) {
        constexpr std::size_t most = 4096;  // that wait: over a minute of them
        // The log's clock is another one: what is told twice lies a little off.
        constexpr Duration apart = std::chrono::milliseconds{1};
        const std::lock_guard lock{mutex_};
        for (const PowerReading& sample : samples) {
            if (sample.sampled_at < logged_to_ + apart || logged_.size() == most) continue;
            logged_to_ = sample.sampled_at;
            logged_.push_back(sample);
        }
    }
    /// @returns false where somebody was at it who is not waited for
    bool take_samples(std::vector<measure::EnergySample>& samples, std::vector<PowerReading>& power,
                      std::optional<Duration>& period, bool waits) {
        std::unique_lock lock{mutex_, std::defer_lock};
        if (waits) {
            lock.lock();
        } else if (!lock.try_lock()) {
            return false;
        }
        sampler_.take_samples(samples);
        power.clear();
        power.swap(logged_);
        if (sampler_.found_counter_period()) period = sampler_.counter_period();
        return true;
    }
    /// The counter's period where it was found, not given.
    [[nodiscard]] std::optional<Duration> found_period() const {
        const std::lock_guard lock{mutex_};
        if (!sampler_.found_counter_period()) return std::nullopt;
        return sampler_.counter_period();
    }
    [[nodiscard]] measure::CounterFaults faults() const {
        const std::lock_guard lock{mutex_};
        return sampler_.faults();
    }

    /// Nothing that runs is metered, or something is again.
    void rest(bool rests, TimePoint now) {
        const std::lock_guard lock{mutex_};
        if (rests) {
            sampler_.rest(now);
        } else {
            sampler_.resume(now);
        }
    }

    /// Begins to watch the counter beside the power. @returns for how long to go on
    [[nodiscard]] Duration begin_check(TimePoint now) {
        const std::lock_guard lock{mutex_};
        check_.emplace(limits_);
        if (sampler_.last_status() == ReadingStatus::absent) check_->take(EnergyReading{}, now);
        checking_ = true;
        // A counter that fails is asked once a second at least.
        const Duration every = sampler_.last_status() == ReadingStatus::failed
                                   ? std::chrono::seconds{1}
                                   : sampler_.period();
        return measure::SelfCheckRun::shortest + 2 * std::max(every, limits_.period);
    }
    /// Whether power readings are wanted beside the counter's.
    [[nodiscard]] bool checking() const { return checking_; }
    void power_read(const PowerReading& reading, TimePoint now) {
        const std::lock_guard lock{mutex_};
        if (check_ && reading.status == ReadingStatus::ok) check_->take(reading.watts, now);
    }
    /// @param reference the name of a sensor outside the GPU, and its mean power meanwhile
    [[nodiscard]] measure::SelfCheck end_check(
        TimePoint now, std::optional<std::pair<std::string, Watts>> reference = {}) {
        const std::lock_guard lock{mutex_};
        if (reference) check_->take_reference(std::move(reference->first), reference->second);
        checking_ = false;
        if (sampler_.last_status() == ReadingStatus::absent) check_->take(EnergyReading{}, now);
        checked_ = check_->result();
        check_.reset();
        return *checked_;
    }
    /// The last check, if there was one.
    [[nodiscard]] std::optional<measure::SelfCheck> checked() const {
        const std::lock_guard lock{mutex_};
        return checked_;
    }

private:
    mutable std::mutex mutex_;
    measure::CounterLimits limits_;
    measure::Sampler sampler_;
    std::vector<PowerReading> logged_;  ///< that nobody has taken yet
    TimePoint logged_to_{};
    std::optional<measure::SelfCheckRun> check_;  ///< while one goes on
    std::optional<measure::SelfCheck> checked_;   ///< the last one
    std::atomic<bool> checking_{false};
};

}  // namespace detail
}  // namespace kdvfs::inline v0_3
