// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/schedule.hpp>
#include <kdvfs/tune/switch_model.hpp>

#include <cstddef>
#include <limits>
#include <vector>

namespace kdvfs::tune::detail {

/// A schedule launch by launch: what it has cost before each, and the clock that holds there.
class ScheduleTrace {
public:
    static constexpr std::size_t switching = std::numeric_limits<std::size_t>::max();

    ScheduleTrace(const SwitchModel& model, const Schedule& schedule)
        : before_(model.launches() + 1), clock_(model.launches() + 1, switching) {
        std::size_t clock = schedule.start;
        std::size_t launch = 0;
        Choice total;
        const auto run_to = [&](std::size_t end) {
            for (;; total += model.cost(launch++, clock)) {
                before_[launch] = total;
                clock_[launch] = clock;
                if (launch == end) return;
            }
        };
        for (const Schedule::Request& request : schedule.requests) {
            run_to(request.before);
            const Jump& jump = *model.jump(launch, model.slot(clock, request.clock));
            total += model.cost(jump, clock, request.clock);
            launch = jump.lands;
            clock = request.clock;
        }
        run_to(model.launches());
    }

    /// Launches before which both schedules hold the same clock: there one can go over into the
    /// other.
    [[nodiscard]] std::vector<std::size_t> meetings(const ScheduleTrace& other) const {
        std::vector<std::size_t> launches;
        for (std::size_t i = 0; i < clock_.size(); ++i)
            if (clock_[i] != switching && clock_[i] == other.clock_[i]) launches.push_back(i);
        return launches;
    }
    [[nodiscard]] const Choice& before(std::size_t launch) const { return before_[launch]; }

private:
    std::vector<Choice> before_;
    std::vector<std::size_t> clock_;
};

/// The best schedule within a time limit that is `outer`, but `inner` between two launches; `outer`
/// itself if there is none better. `outer` may be over the limit.
inline Schedule best_crossover(const SwitchModel& model, const Schedule& outer,
                               const Schedule& inner, double time_limit) {
    const ScheduleTrace a{model, outer};
    const ScheduleTrace b{model, inner};
    const std::vector<std::size_t> meetings = a.meetings(b);
    const auto change = [&](std::size_t launch) {
        Choice difference = b.before(launch);
        return difference -= a.before(launch);
    };
    double best = outer.total.time <= time_limit ? outer.total.energy : unreachable;
    std::size_t from = 0;
    std::size_t to = 0;
    Choice total;
    for (std::size_t i = 0; i < meetings.size(); ++i) {
        const Choice first = change(meetings[i]);
        for (std::size_t j = i + 1; j < meetings.size(); ++j) {
            Choice sum = outer.total + change(meetings[j]);
            sum -= first;
            if (sum.time > time_limit || sum.energy >= best) continue;
            best = sum.energy;
            total = sum;
            from = meetings[i];
            to = meetings[j];
        }
    }
    if (from == to) return outer;
    Schedule crossed{from == 0 ? inner.start : outer.start, {}, total};
    for (const auto& request : outer.requests)
        if (request.before < from) crossed.requests.push_back(request);
    for (const auto& request : inner.requests)
        if (request.before >= from && request.before < to) crossed.requests.push_back(request);
    for (const auto& request : outer.requests)
        if (request.before >= to) crossed.requests.push_back(request);
    return crossed;
}

}  // namespace kdvfs::tune::detail
