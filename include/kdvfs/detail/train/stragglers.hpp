// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

struct StragglerOptions {
    /// A stage is slow when its operations take so much longer than planned, relative to the least
    /// slow stage of all copies: 0.02 is 2 %.
    double notice = 0.02;
    /// Slowness is rounded down to multiples of this, and an answer stays while it is within two.
    double margin = 0.005;
};

/// How slow the stages of all copies of a pipeline are, as an answer takes them.
struct StragglerState {
    std::vector<double> slowness;  ///< copy by copy, by stage: 1 where it is not slow
    std::vector<double> given;     ///< by copy, seconds: as `Session::straggler` gave it, or 0

    [[nodiscard]] bool none() const {
        return std::all_of(slowness.begin(), slowness.end(), [](double s) { return s == 1; }) &&
               std::all_of(given.begin(), given.end(), [](double g) { return g == 0; });
    }
    friend bool operator==(const StragglerState&, const StragglerState&) = default;
};

/// What all stages of all copies say of iterations, some of them later than others: taken together
/// once each that has said something before has said something new. Every rank has one and hands
/// it the same figures. A pure state machine.
class StageReports {
public:
    struct Figures {
        std::vector<double> slowness{};  ///< by stage; 0: not known
        double excess = 0;               ///< of the longest stage; 0: not known
    };

    /// @param slowness of the stages that have something new to say; 0: of the others
    /// @param excess the largest of theirs
    /// @returns what is complete now; figures that are not known until then
    Figures add(std::span<const double> slowness, double excess) {
        if (news_.slowness.empty()) news_.slowness.assign(slowness.size(), 0);
        has_reported_.resize(slowness.size());
        bool is_complete = true;
        for (std::size_t i = 0; i < slowness.size(); ++i) {
            if (slowness[i] > 0) {
                news_.slowness[i] = slowness[i];
                has_reported_[i] = true;
            }
            if (has_reported_[i] && news_.slowness[i] == 0) is_complete = false;
        }
        news_.excess = std::max(news_.excess, excess);
        if (is_complete) return std::exchange(news_, {});
        return {std::vector<double>(slowness.size(), 0), 0};
    }

private:
    Figures news_;
    std::vector<bool> has_reported_;
};

/// Finds slow stages in what all ranks have measured. Every rank has one and hands it the same
/// figures, and so all agree without asking. A pure state machine.
class StragglerWatch {
public:
    StragglerWatch(std::size_t copies, std::size_t stages, const StragglerOptions& options = {})
        : options_{options}, state_{std::vector<double>(copies * stages, 1.0), {}} {}

    /// @param slowness copy by copy, by stage: the median over an iteration's operations of
    /// measured
    ///                 over planned duration, at the clocks that they ran at. 0: not known.
    /// @param given by copy, seconds
    const StragglerState& look(std::span<const double> slowness, std::span<const double> given) {
        double least = 0;
        for (const double s : slowness)
            if (s > 0 && std::isfinite(s) && (least == 0 || s < least)) least = s;
        for (std::size_t i = 0; i < slowness.size(); ++i)
            if (slowness[i] > 0 && std::isfinite(slowness[i]))
                state_.slowness[i] = rounded(slowness[i] / least, state_.slowness[i]);
        state_.given.assign(given.begin(), given.end());
        return state_;
    }

    /// Whether iterations by an answer have taken longer than it says, three times in a row.
    /// @param excess the longest of all stages' spans over its planned span; 0: not known
    /// @param answering whether an answer is followed, else the first plan
    bool is_broken(double excess, bool answering) {
        if (!(excess > 0) || !std::isfinite(excess)) return false;
        if (!answering) {
            usual_ += (excess - usual_) / 8;
            late_ = 0;
            return false;
        }
        late_ = excess > std::max(usual_, 1.0) * (1 + options_.notice) ? late_ + 1 : 0;
        return late_ >= 3;
    }

private:
    [[nodiscard]] double rounded(double slowness, double before) const {
        if (slowness < 1 + options_.notice) return 1;
        const bool holds = before > 1 && slowness > before - 0.4 * options_.margin &&
                           slowness < before + 2 * options_.margin;
        if (holds) return before;
        return 1 + std::floor((slowness - 1) / options_.margin) * options_.margin;
    }

    StragglerOptions options_;
    StragglerState state_;
    double usual_ = 1;  ///< excess while the first plan is followed, as where messages take time
    std::uint32_t late_ = 0;
};

}  // namespace kdvfs::inline v0_3::train
