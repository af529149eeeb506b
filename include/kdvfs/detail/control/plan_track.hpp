// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace kdvfs::detail {

/// A kernel as a planned sequence numbers it.
using PlanKernel = std::uint32_t;
/// What a sequence does not name.
inline constexpr PlanKernel not_in_plan = ~PlanKernel{0};

/// A clock as an index into `PlanTrack::clocks`.
using PlanClock = std::uint32_t;
/// The first of the clocks is the board's own choice, whether the plan asks for it or not.
inline constexpr PlanClock plan_auto = 0;

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

    /// Whether the plan knows a kernel and has no place for it: scopes of phases around those that
    /// are planned, or of kernels that keep the clock.
    [[nodiscard]] bool is_passed_over(PlanKernel kernel) const noexcept {
        return kernel != not_in_plan && places(kernel).empty();
    }

    /// The plan's figure of how long a launch lasts.
    [[nodiscard]] Duration lasts(PlanKernel kernel) const noexcept { return lasts_[kernel]; }

    /// A clock that holds back neither what `clock` was meant for nor a kernel that comes where
    /// the plan does not have it: no lower than any that the plan asks for at that kernel.
    [[nodiscard]] PlanClock safe(PlanKernel kernel, PlanClock clock) const noexcept {
        if (kernel == not_in_plan) return plan_auto;
        return index_of(higher_cap(clocks_[safe_[kernel]], clocks_[clock]));
    }

    /// The number of a kernel, `not_in_plan` where the plan does not name it.
    [[nodiscard]] PlanKernel number(const KernelKey& key) const {
        const auto found = numbers_.find(key);
        return found == numbers_.end() ? not_in_plan : found->second;
    }

private:
    struct Launch {
        PlanKernel kernel = 0;
        PlanClock clock = plan_auto;
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
            if (b > 0 && before <= plan.boundaries[b - 1].before)
                fail("its boundaries", "they are not in order");
        }
    }

    void lay_out(const PlannedSequence& plan) {
        boundaries_ = plan.boundaries.size();
        launches_.resize(plan.launches.size());
        PlanClock clock = add_clock(plan.boundaries.back().clock);
        auto boundary = plan.boundaries.begin();
        for (std::size_t place = 0; place < launches_.size(); ++place) {
            if (boundary != plan.boundaries.end() && boundary->before == place)
                clock = add_clock((boundary++)->clock);
            launches_[place] = {plan.launches[place], clock};
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
    std::vector<ClockPoint> clocks_;
    std::vector<Duration> lasts_;
    std::vector<PlanClock> safe_;             // by kernel
    std::vector<std::uint32_t> first_place_;  // by kernel, into `places_`; one more at the end
    std::vector<std::uint32_t> places_;
    std::map<KernelKey, PlanKernel> numbers_;
    std::size_t boundaries_ = 0;
};

}  // namespace kdvfs::detail
