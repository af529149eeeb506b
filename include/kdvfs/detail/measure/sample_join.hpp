// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// What the counter grew by while runs of one kernel went on.
struct CountedJoules {
    Seconds time{0};
    double joules = 0;
    std::uint64_t runs = 0;
    Seconds edges{0};  ///< lengths of the rows that they begin and end in

    CountedJoules& operator+=(const CountedJoules& other) {
        time += other.time;
        joules += other.joules;
        runs += other.runs;
        edges += other.edges;
        return *this;
    }
};

/// A part of a run: the `index`-th of so many that are equally long.
struct RunPart {
    int index = 0;
    int of = 1;

    /// How many there are of a run that is longer than `part`, of about that length each.
    [[nodiscard]] static int count(Duration length, Duration part) {
        constexpr Duration::rep most = 16;  // ranges of a second need no columns by the hundred
        return static_cast<int>(std::clamp<Duration::rep>((length + part / 2) / part, 2, most));
    }
};

/// Where an iteration begins, which ends the one before; where it ends; where it turned out to be
/// no iteration like others; where the ends of all scopes that are open are lost.
enum class IterationMark { begins, ends, spoilt, scopes_spoilt };

/// Joins kernel intervals, counter samples and clock changes, each in its own order and late, into
/// one walk along the time axis. What it finds goes to a `Sink`:
/// - `passes(from, to, known)`: what follows up to the next is of this time, of which all is known
///   or not;
/// - `run(kernel, track, applied, place, share, in_row, part)`: for this long a kernel ran, in the
/// row
///   or outside any (of n kernels that overlap, each has 1/n of the time, since nothing says more);
///   in which part of the run, nothing where it is not walked in parts; `idle(time, applied,
///   in_row)`: for this long none did;
/// - `scope_ended(kernel, track, whole)`: its run has been walked over, all of it or, where not all
///   was metered, what was; `mark_iteration(mark, number)`: `scopes_spoilt` behind the ends of that
///   moment;
/// - `end_row(joules, time, metered)`: a row between two samples of one segment ended; rows with
///   time outside the metering are not metered; `break_row(impossible)`: the row has no joules,
///   because the counter lost its thread or, impossibly, went back;
/// - `measured_directly(kernel, applied, CountedJoules)`: a run longer than `direct_from`, alone on
///   the device and under one clock: its joules by interpolated counter difference.
/// Memory is bounded by `capacity`, allocation stops once the buffers have grown.
class SampleJoin {
public:
    SampleJoin(std::size_t capacity, Duration direct_from)
        : capacity_{capacity}, direct_from_{direct_from} {}

    template <class Sink>
    void add(const KernelInterval& interval, Sink& sink) {
        // One without time may end its scope yet, and so may one whose time is over.
        if (interval.end < interval.start) return;
        if (interval.start < walked_to_) ++late_;
        if (interval.end <= std::max(interval.start, walked_to_) && !interval.ends_scope) return;
        if (intervals_.size() >= capacity_) make_room(intervals_, sink);
        ++burst_;
        if (!intervals_.empty() && interval.start < intervals_.items.back().start) {
            intervals_.sorted = false;
        }
        intervals_.items.push_back(interval);
    }

    template <class Sink>
    void add(const EnergySample& sample, Sink& sink) {
        if (sample.at < walked_to_ || !std::isfinite(sample.total.count)) {
            // One before all others hides nothing: counting begins with the next.
            if (last_ || !samples_.empty() || !std::isfinite(sample.total.count)) ++late_;
            return;
        }
        if (samples_.size() >= capacity_) make_room(samples_, sink);
        if (!samples_.empty() && sample.at < samples_.items.back().start) samples_.sorted = false;
        samples_.items.push_back({sample.at, sample});
    }

    void clocks_applied(TimePoint at, ClockPoint applied) {
        clocks_.items.push_back({at, applied});
    }
    void metering(TimePoint at, bool on) { metering_.items.push_back({at, on}); }
    void iteration(TimePoint at, IterationMark mark, std::uint64_t number = 0) {
        auto& marks = mark == IterationMark::scopes_spoilt ? spoilt_ : iterations_;
        marks.items.push_back({at, {mark, number}});
    }

    /// Walks up to `until`: nothing that began before it may come later.
    template <class Sink>
    void advance(TimePoint until, Sink& sink);

    [[nodiscard]] TimePoint walked_to() const { return walked_to_; }
    /// Intervals that can be added before the buffer has to be walked.
    [[nodiscard]] std::size_t room() const {
        return capacity_ - std::min(capacity_, intervals_.size());
    }
    /// Whether the buffer may be full before this is asked again: intervals come in bursts, such as
    /// the records of a second.
    [[nodiscard]] bool fills() {
        longest_burst_ = std::max(longest_burst_, std::exchange(burst_, 0));
        return room() < std::max(capacity_ / 8, 2 * longest_burst_);
    }

    /// From now on longer runs than this are measured directly.
    void direct_from(Duration length) { direct_from_ = length; }
    /// From now on longer runs than this are walked in parts of about that length.
    void parts_from(Duration length) { part_ = length; }

    /// Intervals and samples that came after their time was walked over, or were no numbers.
    [[nodiscard]] std::uint64_t late() const { return late_; }
    /// How often the buffers were full and had to be walked before `advance` allowed it.
    [[nodiscard]] std::uint64_t overflows() const { return overflows_; }

private:
    template <class Value>
    struct At {
        TimePoint start;
        Value value;
    };

    template <class Item>
    struct Queue {
        std::deque<Item> items;  // grows without being moved: launching threads add
        std::size_t head = 0;
        bool sorted = true;

        [[nodiscard]] bool empty() const { return head == items.size(); }
        [[nodiscard]] std::size_t size() const { return items.size() - head; }
        [[nodiscard]] TimePoint next() const {
            return empty() ? TimePoint::max() : items[head].start;
        }
        const Item& pop() { return items[head++]; }
        void forget_popped() {
            items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(head));
            head = 0;
        }
        void sort() {
            if (sorted) return;
            std::stable_sort(items.begin() + static_cast<std::ptrdiff_t>(head), items.end(),
                             [](const Item& a, const Item& b) { return a.start < b.start; });
            sorted = true;
        }
    };

    /// A kernel that runs, or one that ended since the last sample and waits for the next.
    struct Run {
        KernelId kernel;
        TrackId track;
        std::uint32_t place;
        TimePoint start;
        TimePoint end;
        ClockPoint applied;
        bool ends_scope;
        bool whole;
        bool direct = false;  ///< long, and so far alone under one clock
        std::optional<double> joules_at_start;
        Seconds row_at_start{0};
    };

    [[nodiscard]] std::optional<RunPart> part(const Run& run, TimePoint at) const {
        const Duration length = run.end - run.start;
        if (length <= part_) return {};
        const int of = RunPart::count(length, part_);
        return RunPart{static_cast<int>(of * (at - run.start) / length), of};
    }
    /// Where what is handed out of a run changes next.
    [[nodiscard]] TimePoint next_edge(const Run& run) const {
        const auto now = part(run, walked_to_);
        if (!now) return run.end;
        // Up, so that the edge lies in the part that begins there.
        const Duration length = run.end - run.start;
        return run.start + ((now->index + 1) * length + Duration{now->of - 1}) / now->of;
    }

    template <class Item, class Sink>
    void make_room(Queue<Item>& queue, Sink& sink) {
        ++overflows_;
        queue.sort();
        const TimePoint middle = queue.items[queue.head + queue.size() / 2].start;
        advance(std::max(middle, walked_to_) + Duration{1}, sink);
    }

    template <class Sink>
    void pass(TimePoint to, Sink& sink);
    template <class Sink>
    void meet(const EnergySample& sample, Sink& sink);
    void start(const KernelInterval& interval);
    template <class Sink>
    void end_runs(TimePoint now, Sink& sink);
    [[nodiscard]] double counter_at(TimePoint at, const EnergySample& next) const {
        const double part = Seconds{at - last_->at} / Seconds{next.at - last_->at};
        return last_->total.count + part * (next.total - last_->total).count;
    }

    std::size_t capacity_;
    Duration direct_from_;
    Duration part_ = Duration::max();
    Queue<KernelInterval> intervals_;
    Queue<At<EnergySample>> samples_;
    Queue<At<ClockPoint>> clocks_;
    Queue<At<bool>> metering_;
    Queue<At<std::pair<IterationMark, std::uint64_t>>> iterations_;
    Queue<At<std::pair<IterationMark, std::uint64_t>>> spoilt_;
    std::size_t burst_ = 0;  // intervals since `fills` was asked
    std::size_t longest_burst_ = 0;

    TimePoint walked_to_ = TimePoint::min();
    std::vector<Run> running_;
    std::vector<Run> ended_;
    std::optional<EnergySample> last_;
    ClockPoint applied_;
    bool metered_ = true;
    bool row_metered_ = true;
    bool in_iteration_ = false;
    std::uint64_t late_ = 0;
    std::uint64_t overflows_ = 0;
};

template <class Sink>
void SampleJoin::advance(TimePoint until, Sink& sink) {
    intervals_.sort();
    samples_.sort();
    while (walked_to_ < until) {
        TimePoint next = std::min({until, intervals_.next(), samples_.next(), clocks_.next(),
                                   metering_.next(), iterations_.next(), spoilt_.next()});
        for (const Run& run : running_) next = std::min(next, next_edge(run));
        if (next > walked_to_) pass(next, sink);
        end_runs(walked_to_, sink);
        while (samples_.next() <= walked_to_) meet(samples_.pop().value, sink);
        while (metering_.next() <= walked_to_) {
            metered_ = metering_.pop().value;
            row_metered_ = row_metered_ && metered_;
        }
        while (iterations_.next() <= walked_to_) {
            const auto [mark, number] = iterations_.pop().value;
            sink.mark_iteration(mark, number);
            in_iteration_ = mark == IterationMark::begins;
        }
        while (clocks_.next() <= walked_to_) {
            applied_ = clocks_.pop().value;
            for (Run& run : running_) run.direct = false;
        }
        if (walked_to_ == until) break;
        while (intervals_.next() <= walked_to_) {
            const KernelInterval& interval = intervals_.pop();
            if (interval.end > walked_to_) {
                start(interval);
            } else if (interval.ends_scope) {
                sink.scope_ended(interval.kernel, interval.track, interval.whole);
            }
        }
        while (spoilt_.next() <= walked_to_) {
            const auto [mark, number] = spoilt_.pop().value;
            sink.mark_iteration(mark, number);
        }
    }
    intervals_.forget_popped();
    samples_.forget_popped();
    clocks_.forget_popped();
    metering_.forget_popped();
    iterations_.forget_popped();
    spoilt_.forget_popped();
}

/// Hands out the time up to `to`, in which nothing changes.
template <class Sink>
void SampleJoin::pass(TimePoint to, Sink& sink) {
    const bool in_row = last_ && row_metered_;
    sink.passes(walked_to_, to, metered_ && last_);
    if (running_.empty()) {
        // An iteration has its gaps before the first sample, too: its kernels there are walked.
        if (last_ || in_iteration_) sink.idle(Seconds{to - walked_to_}, applied_, in_row);
    } else {
        const Seconds share = Seconds{to - walked_to_} / static_cast<double>(running_.size());
        for (const Run& run : running_) {
            sink.run(run.kernel, run.track, applied_, run.place, share, in_row,
                     part(run, walked_to_));
        }
    }
    walked_to_ = to;
}

template <class Sink>
void SampleJoin::meet(const EnergySample& sample, Sink& sink) {
    const bool same_segment = last_ && last_->segment == sample.segment;
    if (same_segment && sample.at == last_->at) return;  // told twice
    const bool whole = same_segment && sample.at > last_->at && sample.total >= last_->total;
    if (whole) {
        for (auto* runs : {&running_, &ended_}) {
            for (Run& run : *runs) {
                if (run.start < last_->at) continue;
                run.joules_at_start = counter_at(run.start, sample);
                run.row_at_start = sample.at - last_->at;
            }
        }
        for (const Run& run : ended_) {
            if (!run.joules_at_start) continue;
            sink.measured_directly(
                run.kernel, run.applied,
                {run.end - run.start, counter_at(run.end, sample) - *run.joules_at_start, 1,
                 run.row_at_start + Seconds{sample.at - last_->at}});
        }
        sink.end_row((sample.total - last_->total).count, Seconds{sample.at - last_->at},
                     row_metered_);
    } else {
        for (Run& run : running_) run.direct = false;
        sink.break_row(same_segment);
    }
    ended_.clear();
    last_ = sample;
    row_metered_ = metered_;
}

inline void SampleJoin::start(const KernelInterval& interval) {
    if (running_.size() >= capacity_) {
        ++overflows_;
        return;
    }
    Run run{interval.kernel,
            interval.track,
            interval.place,
            interval.start,
            interval.end,
            applied_,
            interval.ends_scope,
            interval.whole,
            false,
            {},
            {}};
    if (running_.empty()) {
        run.direct =
            last_ && interval.start >= walked_to_ && interval.end - interval.start > direct_from_;
    } else {
        for (Run& other : running_) other.direct = false;
    }
    running_.push_back(run);
}

template <class Sink>
void SampleJoin::end_runs(TimePoint now, Sink& sink) {
    std::erase_if(running_, [&](const Run& run) {
        if (run.end > now) return false;
        if (run.ends_scope) sink.scope_ended(run.kernel, run.track, run.whole);
        if (run.direct && ended_.size() < capacity_) ended_.push_back(run);
        return true;
    });
}

}  // namespace kdvfs::inline v0_3::measure
