// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// A kernel as a planned sequence numbers it.
using PlanKernel = std::uint32_t;
/// What a sequence does not name.
inline constexpr PlanKernel not_in_plan = ~PlanKernel{0};

/// A clock as an index into `PlanTrack::clocks`.
using PlanClock = std::uint32_t;
/// The first of the clocks is the board's own choice, whether the plan asks for it or not.
inline constexpr PlanClock plan_auto = 0;

/// What a plan asks for in the gap between two launches.
struct PlannedRest {
    PlanClock now = plan_auto;  ///< at its begin
    Duration after{0};          ///< until `then`; 0: `now` stays
    PlanClock then = plan_auto;
};

/// A planned sequence, laid out to be followed: what each launch is and which clock is asked for
/// when it comes, by position. Immutable.
class PlanTrack {
public:
    /// @throws Error (invalid_input) for a sequence without launches or boundaries, with launches
    ///         of kernels that it does not have, or with boundaries out of order or beyond its end
    explicit PlanTrack(const PlannedSequence& plan) : clocks_{ClockPoint{}} {
        check(plan);
        for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
            lasts_.push_back(plan.kernels[k].lasts);
            const ClockRequest& own = plan.kernels[k].own;
            own_.push_back(own.asks ? std::optional{add_clock(own.point)} : std::nullopt);
            numbers_.emplace(plan.kernels[k].key, static_cast<PlanKernel>(k));
        }
        lay_out(plan);
        index_places(plan);
        find_safe_clocks();
    }

    [[nodiscard]] std::size_t size() const noexcept { return launches_.size(); }
    [[nodiscard]] std::size_t kernels() const noexcept { return lasts_.size(); }
    [[nodiscard]] std::size_t boundaries() const noexcept { return boundaries_; }
    [[nodiscard]] const std::vector<ClockPoint>& clocks() const noexcept { return clocks_; }

    /// The launch at a place.
    [[nodiscard]] PlanKernel kernel(std::size_t place) const noexcept {
        return launches_[place].kernel;
    }
    /// The clock that is asked for when the launch at a place comes.
    [[nodiscard]] PlanClock clock(std::size_t place) const noexcept {
        return launches_[place].clock;
    }
    /// What is asked for in the gap before a place; null where nothing is.
    [[nodiscard]] const PlannedRest* rest_before(std::size_t place) const noexcept {
        const std::uint32_t rest = launches_[place].rest;
        return rest == no_rest ? nullptr : &rests_[rest];
    }
    [[nodiscard]] const std::vector<PlannedRest>& rests() const noexcept { return rests_; }

    /// The place behind one; the first behind the last.
    [[nodiscard]] std::size_t after(std::size_t place) const noexcept {
        return place + 1 == launches_.size() ? 0 : place + 1;
    }
    /// The place so many launches on, or, if negative, back.
    [[nodiscard]] std::size_t beside(std::size_t place, std::ptrdiff_t steps) const noexcept {
        const auto all = static_cast<std::ptrdiff_t>(size());
        const auto sum = (static_cast<std::ptrdiff_t>(place) + steps) % all;
        return static_cast<std::size_t>(sum < 0 ? sum + all : sum);
    }

    /// Where a kernel is launched, ascending.
    [[nodiscard]] std::span<const std::uint32_t> places(PlanKernel kernel) const noexcept {
        return {places_.data() + first_place_[kernel], places_.data() + first_place_[kernel + 1]};
    }

    /// Whether the plan knows a kernel and has neither a place nor a clock for it: scopes of phases
    /// around those that are planned, or of kernels that keep the clock.
    [[nodiscard]] bool is_passed_over(PlanKernel kernel) const noexcept {
        return kernel != not_in_plan && places(kernel).empty() && !own_[kernel];
    }

    /// The clock of a kernel whose place is not known; none where the plan has none.
    [[nodiscard]] std::optional<PlanClock> own_clock(PlanKernel kernel) const noexcept {
        return kernel == not_in_plan ? std::nullopt : own_[kernel];
    }

    /// The plan's figure of how long a launch lasts.
    [[nodiscard]] Duration lasts(PlanKernel kernel) const noexcept { return lasts_[kernel]; }

    /// The kernel's own clock where it has one. Else a clock that holds back neither what `clock`
    /// was meant for nor a kernel that comes where the plan does not have it: no lower than any
    /// that the plan asks for at that kernel.
    [[nodiscard]] PlanClock safe(PlanKernel kernel, PlanClock clock) const noexcept {
        if (kernel == not_in_plan) return plan_auto;
        if (own_[kernel]) return *own_[kernel];
        return index_of(higher_cap(clocks_[safe_[kernel]], clocks_[clock]));
    }

    /// The number of a kernel, `not_in_plan` where the plan does not name it.
    [[nodiscard]] PlanKernel number(const KernelKey& key) const {
        const auto found = numbers_.find(key);
        return found == numbers_.end() ? not_in_plan : found->second;
    }

private:
    static constexpr std::uint32_t no_rest = ~std::uint32_t{0};
    struct Launch {
        PlanKernel kernel = 0;
        PlanClock clock = plan_auto;
        std::uint32_t rest = no_rest;  ///< before it
    };

    static void check(const PlannedSequence& plan) {
        const auto fail = [](const std::string& object, const char* why) {
            throw Error{Errc::invalid_input,
                        {"follow a plan", object, why, "make the plan again from its profile"}};
        };
        if (plan.launches.empty()) fail("its sequence", "there is no launch in it");
        if (plan.launches.size() > not_in_plan - 1) fail("its sequence", "it is too long");
        if (plan.boundaries.empty()) fail("its boundaries", "there are none");
        for (const std::uint32_t kernel : plan.launches)
            if (kernel >= plan.kernels.size()) fail("its sequence", "a launch has no kernel");
        for (std::size_t b = 0; b < plan.boundaries.size(); ++b) {
            const std::size_t before = plan.boundaries[b].before;
            if (before >= plan.launches.size()) fail("its boundaries", "one is beyond the end");
            if (plan.boundaries[b].after.value_or(Duration{0}) < Duration::zero())
                fail("its boundaries", "one is before its gap");
            if (b > 0 && !in_order(plan.boundaries[b - 1], plan.boundaries[b]))
                fail("its boundaries", "they are not in order");
            if (b > 1 && plan.boundaries[b].after > Duration::zero() &&
                plan.boundaries[b - 1].after > Duration::zero() &&
                plan.boundaries[b - 1].before == before)
                fail("its boundaries", "a gap has more than one behind its begin");
        }
    }

    static bool in_order(const PlannedSequence::Boundary& first,
                         const PlannedSequence::Boundary& second) {
        if (first.before != second.before) return first.before < second.before;
        return first.after && (!second.after || *first.after < *second.after);
    }

    void lay_out(const PlannedSequence& plan) {
        boundaries_ = plan.boundaries.size();
        launches_.resize(plan.launches.size());
        PlanClock clock = add_clock(plan.boundaries.back().clock);
        auto boundary = plan.boundaries.begin();
        for (std::size_t place = 0; place < launches_.size(); ++place) {
            std::optional<PlannedRest> rest;
            for (; boundary != plan.boundaries.end() && boundary->before == place; ++boundary) {
                const PlanClock next = add_clock(boundary->clock);
                if (boundary->after == Duration::zero())
                    rest = PlannedRest{next, Duration::zero(), next};
                if (boundary->after > Duration::zero())
                    rest = PlannedRest{clock, *boundary->after, next};
                clock = next;
            }
            launches_[place] = {plan.launches[place], clock, no_rest};
            if (!rest) continue;
            launches_[place].rest = static_cast<std::uint32_t>(rests_.size());
            rests_.push_back(*rest);
        }
    }

    PlanClock add_clock(ClockPoint clock) {
        const auto known = std::find(clocks_.begin(), clocks_.end(), clock);
        if (known == clocks_.end()) return clocks_.push_back(clock), last_clock();
        return static_cast<PlanClock>(known - clocks_.begin());
    }
    [[nodiscard]] PlanClock last_clock() const noexcept {
        return static_cast<PlanClock>(clocks_.size() - 1);
    }

    void index_places(const PlannedSequence& plan) {
        first_place_.assign(plan.kernels.size() + 1, 0);
        for (const Launch& launch : launches_) ++first_place_[launch.kernel + 1];
        for (std::size_t k = 0; k < plan.kernels.size(); ++k)
            first_place_[k + 1] += first_place_[k];
        places_.resize(launches_.size());
        std::vector<std::uint32_t> next{first_place_.begin(), first_place_.end() - 1};
        for (std::size_t place = 0; place < launches_.size(); ++place)
            places_[next[launches_[place].kernel]++] = static_cast<std::uint32_t>(place);
    }

    void find_safe_clocks() {
        safe_.assign(kernels(), plan_auto);
        for (PlanKernel k = 0; k < kernels(); ++k) {
            if (places(k).empty()) continue;
            ClockPoint highest = clocks_[clock(places(k).front())];
            for (const std::uint32_t place : places(k))
                highest = higher_cap(highest, clocks_[clock(place)]);
            safe_[k] = index_of(highest);
        }
    }

    /// The clock if the plan has it, else the board's own choice.
    [[nodiscard]] PlanClock index_of(ClockPoint clock) const noexcept {
        const auto known = std::find(clocks_.begin(), clocks_.end(), clock);
        return known == clocks_.end() ? plan_auto : static_cast<PlanClock>(known - clocks_.begin());
    }

    std::vector<Launch> launches_;
    std::vector<PlannedRest> rests_;
    std::vector<ClockPoint> clocks_;
    std::vector<Duration> lasts_;
    std::vector<std::optional<PlanClock>> own_;  // by kernel
    std::vector<PlanClock> safe_;                // by kernel
    std::vector<std::uint32_t> first_place_;     // by kernel, into `places_`; one more at the end
    std::vector<std::uint32_t> places_;
    std::map<KernelKey, PlanKernel> numbers_;
    std::size_t boundaries_ = 0;
};

/// What a follower met on its way. The time is that of the plan's own figures.
struct FollowCounts {
    std::uint64_t launches = 0;
    std::uint64_t lost_launches = 0;  ///< of them, those that came while the place was not known
    Duration time{0};
    Duration lost_time{0};

    std::uint64_t left_out = 0;  ///< launches of the plan that did not come
    std::uint64_t added = 0;     ///< launches that the plan does not have where they came
    std::uint64_t swapped = 0;   ///< pairs that came in the other order
    std::uint64_t replaced = 0;  ///< launches in whose place another one came
    std::uint64_t times_lost = 0;
    std::uint64_t cut_short = 0;  ///< iterations that ended before the plan's last launch

    FollowCounts& operator+=(const FollowCounts& other) {
        launches += other.launches;
        lost_launches += other.lost_launches;
        time += other.time;
        lost_time += other.lost_time;
        left_out += other.left_out;
        added += other.added;
        swapped += other.swapped;
        replaced += other.replaced;
        times_lost += other.times_lost;
        cut_short += other.cut_short;
        return *this;
    }
};

/// Finds, launch by launch, where in a planned iteration a stream is, and says which clock the plan
/// asks for there. Launches that are left out, added, replaced or swapped are told from the names
/// around them. Two names in a row that do not fit mean that the place is lost: the clock is that
/// of the kernel alone (`PlannedSequence::Kernel::own`), or auto, until three names in a row fit
/// again, at the nearest place where they do, or an iteration begins as the plan's does. A pure
/// state machine; not thread-safe; never allocates.
class PlanFollower {
public:
    /// @param track must outlive the follower, which expects its first launch
    explicit PlanFollower(const PlanTrack& track) : track_{&track} {}

    /// The next launch of the stream. @returns the clock to ask for before it
    PlanClock launched(PlanKernel kernel) noexcept {
        count(kernel);
        has_own_clock_ = track_->own_clock(kernel).has_value();
        if (fit_ == Fit::sure && kernel == track_->kernel(next_)) {
            ++in_a_row_;
            clock_ = track_->clock(next_);
            next_ = track_->after(next_);
            return clock_;
        }
        if (track_->is_passed_over(kernel)) return clock_;
        in_a_row_ = 0;
        switch (fit_) {
            case Fit::sure: mismatch(kernel); break;
            case Fit::doubtful: settle(kernel); break;
            case Fit::lost: search(kernel); break;
        }
        return clock_;
    }

    /// An iteration begins: the next launch should be the plan's first.
    void begin_iteration() noexcept {
        if (fit_ != Fit::lost && next_ != 0 && counts_.launches > 0) ++counts_.cut_short;
        fit_ = Fit::sure;
        next_ = 0;
        in_a_row_ = 0;
    }

    /// Goes on where another follower of the same track is, with counts of its own.
    void go_on_from(const PlanFollower& other) noexcept {
        const FollowCounts counts = counts_;
        *this = other;
        counts_ = counts;
        clock_ = plan_auto;
        in_a_row_ = 0;
    }

    /// Whether neither the place nor a clock of the last kernel alone is known.
    [[nodiscard]] bool lost() const noexcept { return fit_ == Fit::lost && !has_own_clock_; }
    /// How many launches up to now have come where the plan has them, without one between.
    [[nodiscard]] std::uint64_t in_a_row() const noexcept { return in_a_row_; }
    /// Whether the launch that came last was the plan's last one.
    [[nodiscard]] bool at_end() const noexcept { return in_a_row_ > 0 && next_ == 0; }
    /// The place of the launch that is expected next, where it is not lost.
    [[nodiscard]] std::size_t next() const noexcept { return next_; }
    [[nodiscard]] PlanClock clock() const noexcept { return clock_; }
    /// What the plan asks for behind the launch that came last, until the next one comes; null
    /// where nothing is, or its place is not known.
    [[nodiscard]] const PlannedRest* rest() const noexcept {
        return in_a_row_ > 0 ? track_->rest_before(next_) : nullptr;
    }
    [[nodiscard]] const FollowCounts& counts() const noexcept { return counts_; }

private:
    enum class Fit : std::uint8_t {
        sure,      ///< the last name fitted
        doubtful,  ///< the last name did not
        lost,
    };
    /// Launches that may be left out at once without losing the place.
    static constexpr std::ptrdiff_t most_left_out = 32;
    /// Names in a row that tell a place.
    static constexpr std::size_t reporting = 3;
    /// How many places of a name are looked at, on each side of the likely one.
    static constexpr std::size_t looked_at = 64;

    void count(PlanKernel kernel) noexcept {
        ++counts_.launches;
        if (kernel != not_in_plan) counts_.time += track_->lasts(kernel);
    }

    [[nodiscard]] PlanKernel ahead(std::ptrdiff_t steps) const noexcept {
        return track_->kernel(track_->beside(next_, steps));
    }

    void mismatch(PlanKernel kernel) noexcept {
        if (next_ == resync_.from && kernel == track_->kernel(resync_.to)) {
            counts_.left_out += distance(resync_.from, resync_.to);
            return go_on_at(resync_.to);
        }
        fit_ = Fit::doubtful;
        first_ = kernel;
        names_[0] = kernel;
        clock_ = track_->safe(kernel, clock_);
    }

    /// The second name tells what the first one was.
    void settle(PlanKernel kernel) noexcept {
        const PlanKernel first = names_[0];
        if (first == ahead(1) && kernel == ahead(0)) {
            ++counts_.swapped;
            return go_on(track_->beside(next_, 2), track_->clock(next_));
        }
        for (std::ptrdiff_t left_out = 1; left_out <= most_left_out; ++left_out) {
            if (first == ahead(left_out) && kernel == ahead(left_out + 1)) {
                counts_.left_out += static_cast<std::uint64_t>(left_out);
                return go_on_at(track_->beside(next_, left_out + 1));
            }
            if (left_out > 1) continue;
            if (kernel == ahead(0)) {
                ++counts_.added;
                return go_on_at(next_);
            }
            if (kernel == ahead(1)) {
                ++counts_.replaced;
                return go_on_at(track_->beside(next_, 1));
            }
        }
        lose(kernel);
    }

    void lose(PlanKernel kernel) noexcept {
        fit_ = Fit::lost;
        if (!has_own_clock_) ++counts_.times_lost;
        names_[1] = kernel;
        known_ = 2;
        lost_at_ = next_;
        since_ = 2;
        next_ = track_->beside(next_, 2);  // where it would be, if names alone had changed
        fall_back(kernel);
    }

    /// The launch has a clock of its own, or counts as one that came while the place was not known.
    void fall_back(PlanKernel kernel) noexcept {
        clock_ = track_->own_clock(kernel).value_or(plan_auto);
        if (has_own_clock_) return;
        ++counts_.lost_launches;
        if (kernel != not_in_plan) counts_.lost_time += track_->lasts(kernel);
    }

    void search(PlanKernel kernel) noexcept {
        if (known_ == reporting) {
            std::copy(names_.begin() + 1, names_.end(), names_.begin());
            --known_;
        }
        names_[known_++] = kernel;
        ++since_;
        if (known_ == reporting) {
            if (const auto place = nearest_place()) return find(*place);
        }
        next_ = track_->after(next_);
        fall_back(kernel);
    }

    /// The place is known again. Where the program has left out launches, it may do so next time.
    void find(std::size_t place) noexcept {
        const std::size_t first = track_->beside(place, 1 - static_cast<std::ptrdiff_t>(since_));
        if (since_ == reporting && track_->kernel(first) == first_) resync_ = {lost_at_, first};
        go_on_at(place);
    }

    /// The place nearest to the expected one at which the last names end.
    [[nodiscard]] std::optional<std::size_t> nearest_place() const noexcept {
        const PlanKernel last = names_[reporting - 1];
        if (last == not_in_plan) return std::nullopt;
        const auto places = track_->places(last);
        if (places.empty()) return std::nullopt;
        const auto at = static_cast<std::size_t>(
            std::lower_bound(places.begin(), places.end(), next_) - places.begin());
        for (std::size_t back = 1, on = 0;
             on + back <= places.size() && std::max(on, back) <= looked_at;) {
            const std::size_t before = places[(at + places.size() - back) % places.size()];
            const std::size_t behind = places[(at + on) % places.size()];
            const bool forward = distance(next_, behind) <= distance(before, next_);
            const std::size_t place = forward ? behind : before;
            if (fits_at(place)) return place;
            ++(forward ? on : back);
        }
        return std::nullopt;
    }

    [[nodiscard]] bool fits_at(std::size_t place) const noexcept {
        for (std::size_t i = 0; i + 1 < reporting; ++i) {
            const auto steps =
                static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(reporting - 1);
            if (names_[i] != track_->kernel(track_->beside(place, steps))) return false;
        }
        return true;
    }

    /// From one place on to another.
    [[nodiscard]] std::size_t distance(std::size_t from, std::size_t to) const noexcept {
        return to >= from ? to - from : to + track_->size() - from;
    }

    void go_on_at(std::size_t place) noexcept { go_on(track_->after(place), track_->clock(place)); }
    void go_on(std::size_t next, PlanClock clock) noexcept {
        fit_ = Fit::sure;
        next_ = next;
        clock_ = clock;
        in_a_row_ = 1;
    }

    const PlanTrack* track_;
    std::size_t next_ = 0;
    std::uint64_t in_a_row_ = 0;
    Fit fit_ = Fit::sure;
    PlanClock clock_ = plan_auto;
    bool has_own_clock_ = false;  // the kernel that came last
    struct Resync {
        std::size_t from = nowhere;
        std::size_t to = 0;
    };
    static constexpr std::size_t nowhere = ~std::size_t{0};

    PlanKernel first_ = not_in_plan;             // that did not fit
    std::size_t lost_at_ = 0;                    // the place that was expected then
    std::size_t since_ = 0;                      // launches since, with that one
    Resync resync_;                              // over launches that were left out the last time
    std::size_t known_ = 0;                      // of `names_`
    std::array<PlanKernel, reporting> names_{};  // the last ones, oldest first
    FollowCounts counts_;
};

}  // namespace kdvfs::inline v0_3::detail
