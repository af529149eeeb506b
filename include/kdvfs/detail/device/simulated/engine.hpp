// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/simulated/power_sensor.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/power_limiter.hpp>
#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <variant>
#include <vector>

namespace kdvfs::inline v0_3::simulated {

class Device;
class Engine;

/// A point in a stream that other streams and the host can wait for.
class Event {
public:
    /// When the stream passed the event last. @pre it has been recorded and reached
    [[nodiscard]] TimePoint time() const { return time_; }

private:
    friend class Device;
    friend class Engine;
    class Engine;
    std::uint64_t enqueued_ = 0;
    std::uint64_t reached_ = 0;
    TimePoint time_{};
};

/// What can stand in a stream.
struct KernelOperation {
    KernelModel kernel;
};
struct MarkerOperation {
    Marker marker;
};
struct RecordOperation {
    Event* event;
    std::uint64_t number;
};
struct WaitOperation {
    Event* event;
    std::uint64_t number;
};
struct AnswerOperation {
    const std::uint32_t* word;
    std::uint32_t number;
};
struct CallbackOperation {
    std::function<void()> call;
};
using Operation = std::variant<KernelOperation, MarkerOperation, RecordOperation, WaitOperation,
                               AnswerOperation, CallbackOperation>;

/// Recorded work of one stream, to be launched many times.
class Graph {
private:
    friend class Device;
    friend class Engine;
    class Engine;
    std::deque<Operation> operations_;
};

/// A queue of work on a simulated device; created by it and valid as long as it.
class Stream {
private:
    friend class Device;
    friend class Engine;
    class Engine;
    Device* device_ = nullptr;
    std::deque<Operation> queue_;
    bool busy_ = false;          // the front operation has begun
    std::uint64_t capture_ = 0;  // the capture that is being recorded, 0 = none
    Graph recorded_;
};

/// The true energy of a simulated board, and the counter that shows it: sampled every period,
/// noisy, in whole quanta, and open to faults.
class EnergyMeter {
public:
    /// @param sensors what the counter shows otherwise than at once, and the power log
    EnergyMeter(EnergyCounterTraits traits, std::uint64_t seed,
                const std::optional<Sensors>& sensors = {})
        : traits_{traits}, random_{seed} {
        if (!sensors) return;
        constexpr Duration usual = std::chrono::milliseconds{1};
        if (traits_.period == Duration::zero()) traits_.period = usual;
        sensed_.emplace(*sensors, traits_.period, seed);
    }

    /// The kernels have the board draw `power` from `from` to `to`.
    void draw(Watts power, TimePoint from, TimePoint to) {
        if (!sensed_) return draw_load(power, from, to);
        while (from < to) {
            const TimePoint until = std::min(to, sensed_->outside.changes());
            const Watts load = power + sensed_->outside.watts();
            draw_load(load, from, until);
            sensed_->log.draw(load, until);
            sensed_->counter.draw(load, until);
            if (until == sensed_->outside.changes()) sensed_->outside.change();
            from = until;
        }
        while (const auto sample = sensed_->counter.next(to)) {
            take_sample(sensed_->counter.timestamp(sample->first), sample->second);
        }
    }
    /// The power log's readings that were taken by now, with timestamps after `since`.
    [[nodiscard]] std::vector<PowerReading> read_log(TimePoint since, TimePoint now) const {
        return sensed_ ? sensed_->log.read(since, now) : std::vector<PowerReading>{};
    }

    /// What the counter shows now.
    [[nodiscard]] EnergyReading read(TimePoint now) const {
        const bool follows = traits_.period == Duration::zero() && !frozen_;
        return {shown(sample_), follows ? now : sampled_at_, ReadingStatus::ok};
    }

    /// The power meter beside the counter, without its faults: the mean over the counter's last
    /// period.
    [[nodiscard]] Watts mean_power() const { return mean_power_; }

    /// The energy that was really drawn: what a test compares with.
    [[nodiscard]] Joules truth() const { return truth_; }
    [[nodiscard]] const EnergyCounterTraits& traits() const { return traits_; }

    /// The counter stands still from now on, or runs again.
    void freeze(bool frozen) { frozen_ = frozen; }
    /// The counter transitions, forwards or backwards.
    void transition(Joules by) { offset_ += by; }
    /// The counter shows so many times the joules.
    void scale(double factor) { scale_ = factor; }
    /// The counter starts again from zero at this many joules; 0 = never.
    void wrap_at(Joules limit) { wrap_ = limit; }

private:
    /// What lies between the load and the readings, where anything does.
    struct Sensed {
        Sensed(const Sensors& sensors, Duration period, std::uint64_t seed)
            : log{sensors.log, sensors.load.rise, seed},
              counter{sensors.counter, sensors.load.rise, period},
              outside{sensors.load, seed + 1} {}

        PowerLogSensor log;
        CounterSensor counter;
        OutsideLoad outside;
    };

    void draw_load(Watts power, TimePoint from, TimePoint to) {
        const TimePoint tick = last_tick(to);
        if (tick > from) {
            const Joules truth = truth_ + power * Seconds{tick - from};
            if (!sensed_) take_sample(tick, truth);
            mean_power_ = (truth - truth_at_tick_) / Seconds{tick - tick_};
            truth_at_tick_ = truth;
            tick_ = tick;
        }
        truth_ += power * Seconds{to - from};
    }
    [[nodiscard]] TimePoint last_tick(TimePoint until) const {
        if (traits_.period == Duration::zero()) return until;
        return until - until.time_since_epoch() % traits_.period;
    }

    void take_sample(TimePoint at, Joules truth) {
        if (frozen_) return;
        sampled_at_ = at;
        double noisy = truth.count;
        if (traits_.noise.count > 0) {
            noisy += std::normal_distribution{0.0, traits_.noise.count}(random_);
        }
        if (noisy > sample_.count) sample_ = {noisy};  // a counter never counts down by noise
    }

    [[nodiscard]] Joules shown(Joules value) const {
        double joules = scale_ * value.count + offset_.count;
        if (wrap_.count > 0) joules = std::fmod(joules, wrap_.count);
        if (traits_.quantum.count > 0) {
            joules = std::floor(joules / traits_.quantum.count) * traits_.quantum.count;
        }
        return {joules};
    }

    EnergyCounterTraits traits_;
    std::mt19937_64 random_;
    std::optional<Sensed> sensed_{};
    Joules truth_{};
    Joules sample_{};
    double scale_ = 1;
    TimePoint tick_{};
    Joules truth_at_tick_{};
    Watts mean_power_{};
    Joules offset_{};
    Joules wrap_{};
    TimePoint sampled_at_{};
    bool frozen_ = false;
};

/// What is going to happen in virtual time. Events of one instant happen in the order in which
/// they were scheduled, so that a run is the same every time.
class EventQueue {
public:
    using Action = std::function<void()>;

    void schedule(TimePoint at, Action action) {
        events_.emplace(std::pair{at, ++scheduled_}, std::move(action));
    }

    [[nodiscard]] bool empty() const { return events_.empty(); }

    /// When the next event is due; the end of time where there is none.
    [[nodiscard]] TimePoint next() const {
        return events_.empty() ? TimePoint::max() : events_.begin()->first.first;
    }

    /// Takes the next event out. @pre not empty
    Action pop() {
        auto node = events_.extract(events_.begin());
        return std::move(node.mapped());
    }

private:
    std::map<std::pair<TimePoint, std::uint64_t>, Action> events_;
    std::uint64_t scheduled_ = 0;
};

/// The part of a simulated GPU that works: streams in virtual time, what runs in them, how fast,
/// and what it draws. Time passes only in `run_until`. Kernels of several streams share the board
/// at one core clock (`sharing_the_board`): of n alike, each has 1/n of its speed.
class Engine {
public:
    struct Options {
        Duration marker_time{0};
        std::size_t timestamp_capacity = 0;
        double spread = 0;  ///< of a kernel's power from call to call, relative
        std::uint64_t seed = 1;
    };

    /// `board` and `meter` must outlive the engine.
    Engine(const Board& board, EnergyMeter& meter, Options options)
        : board_{board}, meter_{meter}, options_{options} {}

    [[nodiscard]] Stream* create_stream() {
        streams_.push_back(std::make_unique<Stream>());
        return streams_.back().get();
    }
    [[nodiscard]] Event* create_event() {
        events_.push_back(std::make_unique<Event>());
        return events_.back().get();
    }

    /// Puts an operation behind the others of its stream, or into the graph that it records.
    static void enqueue(Stream& stream, Operation operation) {
        auto& queue = stream.capture_ != 0 ? stream.recorded_.operations_ : stream.queue_;
        queue.push_back(std::move(operation));
    }

    /// From now on these caps hold.
    void hold(ClockPoint caps) {
        paused_ = false;
        caps_ = caps;
        power_cap_changed();
    }
    /// The board's power cap is another one: what runs goes on at the clocks that it allows.
    void power_cap_changed() { replan(); }
    /// The core stands still until `hold` or `resume`.
    void pause() {
        paused_ = true;
        replan();
    }
    /// The core works on as before the pause, if there was one.
    void resume() {
        if (std::exchange(paused_, false)) replan();
    }

    [[nodiscard]] TimePoint now() const noexcept { return now_; }
    [[nodiscard]] ClockPoint caps() const { return caps_; }
    /// The chip's temperature, where it moves; else that of the board's constants.
    [[nodiscard]] double celsius() const {
        return warms() ? celsius_ : board_.thermal.given_at_celsius;
    }
    [[nodiscard]] bool idle() const {
        return std::all_of(streams_.begin(), streams_.end(),
                           [](const auto& stream) { return stream->queue_.empty(); });
    }
    [[nodiscard]] static bool empty(const Stream& stream) { return stream.queue_.empty(); }
    [[nodiscard]] std::deque<MarkerTimestamp>& timestamps() { return timestamps_; }
    [[nodiscard]] std::uint64_t lost_timestamps() const { return lost_timestamps_; }

    /// Lets something happen at a moment of virtual time, now at the earliest.
    void schedule(TimePoint at, EventQueue::Action action) {
        schedule_.schedule(std::max(at, now_), std::move(action));
    }
    void on_cell_written(std::function<void()> listener) { cell_written_ = std::move(listener); }

    /// Lets time pass until `done()` says so, or nothing is left to happen before `limit`.
    /// @returns false if everything came to rest without `done`
    template <class Done>
    bool run_until(Done done, TimePoint limit) {
        for (begin_ready(); !done(); begin_ready()) {
            TimePoint next = std::min(limit, schedule_.next());
            for (const Running& running : running_) next = std::min(next, running.ends);
            if (next == TimePoint::max()) return false;
            if (ceiling_moves() || warms()) next = std::min(next, now_ + limiter_step);
            pass_to(next);
            end_finished();
            if (ceiling_moves() || warms()) replan();
            while (schedule_.next() <= now_) schedule_.pop()();
        }
        return true;
    }

    /// Lets time pass up to `until`, and all that is due by then happen.
    void run_to(TimePoint until) {
        run_until([&] { return now_ == until && schedule_.next() > until; }, until);
    }

private:
    struct Running {
        Stream* stream;
        KernelModel kernel;
        double remaining;  // share of the work that is left, 1 to 0
        TimePoint ends;
        double draws;         // of the point's power
        double launches = 1;  // in the point's time
    };

    /// Begins what stands at the front of each stream; what takes no time is done at once.
    void begin_ready() {
        const auto before = running_.size();
        bool again = true;
        while (again) {
            again = false;
            for (const auto& stream : streams_) again = begin_front(*stream) || again;
        }
        if (running_.size() != before) replan();
    }

    /// @returns whether another stream may have become ready by it
    bool begin_front(Stream& stream) {
        bool progress = false;
        while (!stream.queue_.empty() && !stream.busy_) {
            Operation& front = stream.queue_.front();
            if (auto* kernel = std::get_if<KernelOperation>(&front)) {
                stream.busy_ = true;
                running_.push_back({&stream, kernel->kernel, 1.0, now_, power_of_call()});
                return progress;
            }
            if (auto* marker = std::get_if<MarkerOperation>(&front)) {
                stream.busy_ = true;
                schedule(now_ + options_.marker_time,
                         [this, &stream, passed = marker->marker] { pass_marker(stream, passed); });
                return progress;
            }
            if (auto* wait = std::get_if<WaitOperation>(&front)) {
                if (wait->event->reached_ < wait->number) return progress;
            } else if (auto* answer = std::get_if<AnswerOperation>(&front)) {
                if (*answer->word < answer->number) return progress;
            } else if (auto* record = std::get_if<RecordOperation>(&front)) {
                record->event->reached_ = std::max(record->event->reached_, record->number);
                record->event->time_ = now_;
            } else if (auto* callback = std::get_if<CallbackOperation>(&front)) {
                callback->call();
            }
            stream.queue_.pop_front();
            progress = true;
        }
        return progress;
    }

    void pass_marker(Stream& stream, const Marker& marker) {
        stream.busy_ = false;
        stream.queue_.pop_front();
        if (marker.timestamped) {
            if (timestamps_.size() == options_.timestamp_capacity) {
                timestamps_.pop_front();
                ++lost_timestamps_;
            }
            timestamps_.push_back({marker.tag, now_, static_cast<std::uint64_t>(core_cycles_)});
        }
        if (marker.cell == nullptr) return;
        marker.cell->store(marker.word);
        if (cell_written_) cell_written_();
    }

    /// Nothing changes until `next`: power, speed and clock are constant.
    void pass_to(TimePoint next) {
        const Seconds time = next - now_;
        const Watts drawn = power();
        meter_.draw(drawn, now_, next);
        if (averages()) ceiling_.pass(limiter(), drawn, time);
        if (warms()) warm(drawn, time);
        core_cycles_ += core_mhz() * 1e6 * time.count();
        if (!paused_) {
            for (Running& running : running_) {
                running.remaining -= running.launches * (time / point_.time);
            }
        }
        now_ = next;
    }

    void end_finished() {
        const auto finished = std::partition(running_.begin(), running_.end(),
                                             [&](const Running& r) { return r.ends > now_; });
        if (finished == running_.end()) return;
        for (auto it = finished; it != running_.end(); ++it) {
            it->stream->busy_ = false;
            it->stream->queue_.pop_front();
        }
        running_.erase(finished, running_.end());
        replan();
    }

    void replan() {
        if (running_.empty()) return;
        point_ = point_of(shared_kernel());
        for (Running& running : running_) {
            const Seconds left =
                point_.time * (std::max(running.remaining, 0.0) / running.launches);
            running.ends = paused_ ? TimePoint::max() : now_ + std::chrono::round<Duration>(left);
        }
    }

    [[nodiscard]] bool averages() const { return board_.limiter_rate > 0; }
    [[nodiscard]] device::PowerLimiter limiter() const {
        return {board_.power_cap, board_.limiter_rate, static_cast<double>(board_.core_min.count),
                static_cast<double>(board_.core_max.count)};
    }
    /// Whether what runs now runs at another clock soon.
    [[nodiscard]] bool ceiling_moves() const {
        return averages() && !running_.empty() && !paused_ &&
               (ceiling_.mhz() < board_.core_max.count || power() > board_.power_cap);
    }
    /// What runs, as one kernel.
    [[nodiscard]] KernelModel shared_kernel() {
        if (running_.size() == 1) {
            running_.front().launches = 1;
            return running_.front().kernel;
        }
        std::vector<KernelModel> kernels;
        for (const Running& running : running_) kernels.push_back(running.kernel);
        std::vector<double> launches(kernels.size());
        const KernelModel all = sharing_the_board(board_, kernels, launches);
        for (std::size_t i = 0; i < launches.size(); ++i) running_[i].launches = launches[i];
        return all;
    }
    [[nodiscard]] OperatingPoint point_of(const KernelModel& kernel) const {
        if (warms()) return point_of(at_temperature(board_, celsius_), kernel);
        return point_of(board_, kernel);
    }
    [[nodiscard]] OperatingPoint point_of(const Board& board, const KernelModel& kernel) const {
        return averages() ? operate_below(board, kernel, caps_, ceiling_.mhz())
                          : operate(board, kernel, caps_);
    }

    /// Whether the temperature moves.
    [[nodiscard]] bool warms() const { return board_.thermal.time_constant > Duration::zero(); }
    void warm(Watts drawn, Seconds time) {
        const Thermal& thermal = board_.thermal;
        const double steady = thermal.coolant_celsius + thermal.kelvin_per_watt * drawn.count;
        celsius_ += (steady - celsius_) * -std::expm1(-(time / Seconds{thermal.time_constant}));
    }

    [[nodiscard]] double power_of_call() {
        if (options_.spread <= 0) return 1;
        const double share = 1 + options_.spread * std::normal_distribution<double>{}(random_);
        return std::max(share, 0.0);
    }

    [[nodiscard]] Watts power() const {
        if (running_.empty() || paused_)
            return idle_power(warms() ? at_temperature(board_, celsius_) : board_, caps_);
        double draws = 0;
        for (const Running& running : running_) draws += running.draws;
        return point_.power * (draws / static_cast<double>(running_.size()));
    }

    [[nodiscard]] double core_mhz() const {
        if (paused_) return 0;
        if (running_.empty()) return operate(board_, KernelModel{}, caps_).core.count;
        return point_.core.count;
    }

    /// Between two moves of the power limit's ceiling or of the temperature.
    static constexpr Duration limiter_step = std::chrono::milliseconds{1};

    const Board& board_;
    EnergyMeter& meter_;
    Options options_;
    std::mt19937_64 random_{options_.seed};
    device::ClockCeiling ceiling_{limiter()};
    EventQueue schedule_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::vector<std::unique_ptr<Event>> events_;
    std::deque<MarkerTimestamp> timestamps_;
    std::vector<Running> running_;
    OperatingPoint point_{};  // of what runs
    double celsius_ = board_.thermal.coolant_celsius;
    std::function<void()> cell_written_;
    ClockPoint caps_{};
    TimePoint now_{};
    double core_cycles_ = 0;
    std::uint64_t lost_timestamps_ = 0;
    bool paused_ = false;
};

}  // namespace kdvfs::inline v0_3::simulated
