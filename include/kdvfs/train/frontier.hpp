// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/train/folding.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// A hull whose savings are whole multiples of `unit` microwatts, at least one: corners between
/// equal savings go, the shortest and the longest time stay. When all hulls of a pipeline are so,
/// prices are multiples of the unit, too, and the frontier has no more corners than the highest
/// price has units, however many operations there are.
inline Hull sparsified(const Hull& hull, std::int64_t unit) {
    Hull sparse;
    sparse.time.push_back(hull.time.front());
    sparse.energy.push_back(hull.energy.front());
    sparse.corner.push_back(hull.corner.front());
    for (std::size_t k = 0; k < hull.saving.size(); ++k) {
        const std::int64_t saving =
            std::max<std::int64_t>(1, (hull.saving[k] + unit / 2) / unit) * unit;
        if (!sparse.saving.empty() && sparse.saving.back() == saving) {
            sparse.time.pop_back();
            sparse.energy.pop_back();
            sparse.corner.pop_back();
        } else {
            sparse.saving.push_back(saving);
        }
        sparse.time.push_back(hull.time[k + 1]);
        sparse.energy.push_back(hull.energy[k + 1]);
        sparse.corner.push_back(hull.corner[k + 1]);
    }
    return sparse;
}

}  // namespace kdvfs::inline v0_3::train::detail

namespace kdvfs::inline v0_3::train {

/// How exact a frontier is to be.
struct FrontierOptions {
    /// The largest relative difference to the least effective energy that is allowed at any time.
    /// 0: every corner, exactly.
    double max_gap = 0;
    /// Whether long 1F1B pipelines are solved through shorter ones. The result is the same.
    bool fold = true;
};

/// A corner of a frontier. Effective energy is what operations need above blocked GPUs.
struct Corner {
    std::int64_t nanoseconds = 0;  ///< the iteration's length
    Femtojoules effective = 0;     ///< of durations that keep this length (primal)
    Femtojoules bound = 0;         ///< no durations that keep it need less (dual)
    std::int64_t microwatts = 0;   ///< what the next shorter nanosecond costs, in femtojoules

    [[nodiscard]] Seconds time() const { return to_seconds(nanoseconds); }
    /// The certificate of this corner: 0 where it is optimal.
    [[nodiscard]] Femtojoules gap() const { return effective - bound; }
};

/// How long each operation of an iteration may last.
struct Timing {
    std::int64_t nanoseconds = 0;           ///< the iteration's length
    std::vector<std::int64_t> durations{};  ///< each between the operation's shortest and longest
    std::vector<std::int64_t> starts{};     ///< since the iteration's start
    std::vector<Watts> prices{};            ///< what each operation's next shorter second costs
    Femtojoules effective = 0;
    Femtojoules bound = 0;
};

/// The time-energy frontier of a pipeline: for every length of an iteration the least energy, if
/// clocks may change within operations. Exact: all corners of a convex, piecewise linear curve,
/// each with its certificate; or, with a `max_gap`, fewer corners whose gap is proven.
/// Immutable after construction, and so safe to use from several threads; copies are cheap.
class Frontier {
public:
    /// Costs microseconds per operation and corner: a second for 8 stages and 64 microbatches.
    /// @throws Error (invalid_input) for a gap that is negative or no number
    explicit Frontier(Pipeline pipeline, FrontierOptions options = {});

    [[nodiscard]] const Pipeline& pipeline() const { return model_->pipeline; }
    /// All corners, from the shortest iteration to that of the least effective energy.
    [[nodiscard]] const std::vector<Corner>& corners() const { return model_->corners; }
    [[nodiscard]] Seconds shortest() const { return corners().front().time(); }
    /// The iteration of the least effective energy: a longer one saves nothing.
    [[nodiscard]] Seconds frugal() const { return corners().back().time(); }
    /// The largest relative gap between the frontier and its bound at any length. 0: exact.
    [[nodiscard]] double gap() const { return model_->gap; }
    /// How many corners came from a shorter pipeline.
    [[nodiscard]] std::size_t folded_corners() const { return model_->folded; }

    /// The effective energy at a length; beyond the frugal end that of the frugal end.
    /// @throws Error (invalid_input) for a time shorter than `shortest`
    [[nodiscard]] Joules effective(Seconds length) const;
    /// The effective energy and what all stages use while blocked.
    [[nodiscard]] Joules total(Seconds length) const;

    /// The length to run at while another pipeline needs `straggler` for its iteration: that, but
    /// no longer than saves energy, and no shorter than possible.
    [[nodiscard]] Seconds answer(Seconds straggler) const;

    /// Durations with which an iteration of this length needs the least energy, up to `gap`.
    /// @throws Error (invalid_input) for a time shorter than `shortest`
    [[nodiscard]] Timing timing(Seconds length) const;

private:
    struct Model {
        Pipeline pipeline;
        detail::Network network;
        std::vector<Hull> hulls{};          ///< by curve; thinned, or empty if exact
        std::vector<const Hull*> exact{};   ///< by operation
        std::vector<const Hull*> walked{};  ///< by operation
        std::vector<Corner> corners{};
        std::vector<detail::ParametricFlow::State>
            states{};  ///< some of the corners, longest first
        double gap = 0;
        std::size_t folded = 0;  ///< corners that came from a shorter pipeline

        explicit Model(Pipeline described) : pipeline{std::move(described)}, network{pipeline} {
            for (const Operation& operation : pipeline.operations)
                exact.push_back(&pipeline.curves[operation.curve].hull());
        }

        void sparse(std::int64_t unit) {
            hulls.clear();
            walked = exact;
            if (unit <= 1) return;
            for (const Curve& curve : pipeline.curves)
                hulls.push_back(detail::sparsified(curve.hull(), unit));
            for (std::size_t i = 0; i < walked.size(); ++i)
                walked[i] = &hulls[pipeline.operations[i].curve];
        }

        /// Fills the corners. @return false if the gap gets larger than allowed
        bool solve(std::int64_t unit, const FrontierOptions& options) {
            sparse(unit);
            corners.clear();
            states.clear();
            gap = 0;
            steps_ = 0;
            stride_ = 1;
            folded = 0;
            // Exact gaps are 0 by the certificates.
            allowed_ = unit <= 1 ? std::numeric_limits<double>::infinity() : options.max_gap;
            const bool solved = unit <= 1 && options.fold && detail::Folding::applies(pipeline)
                                    ? walk_folded()
                                    : walk(detail::ParametricFlow{network, walked}, 0);
            std::reverse(corners.begin(), corners.end());
            return solved;
        }

        /// Adds corners down to `end` nanoseconds, or to the shortest.
        bool walk(detail::ParametricFlow flow, std::int64_t end) {
            for (; flow.length() > end; flow.advance()) {
                const detail::Certificate sums = flow.certificate(exact);
                if (!add({flow.length(), sums.primal, sums.dual, flow.price()})) return false;
                remember([&] { return flow.state(); });
                if (flow.at_shortest()) break;
            }
            return true;
        }

        /// Walks a shorter pipeline and takes over each corner that can be repeated; where some
        /// cannot, the long pipeline is walked from one that can to the next.
        bool walk_folded() {
            const detail::Folding fold{pipeline, network};
            std::vector<const Hull*> shorter;
            for (const Operation& operation : fold.shorter().operations)
                shorter.push_back(&pipeline.curves[operation.curve].hull());
            detail::ParametricFlow flow{fold.network(), shorter};
            std::optional<detail::Folding::Repeated> last;
            std::size_t tried = 0;
            const auto from_last = [&] {
                return last ? detail::ParametricFlow{network, exact, fold.lifted(*last)}
                            : detail::ParametricFlow{network, exact};
            };
            for (;; flow.advance()) {
                if (const auto period = fold.period(flow)) {
                    const detail::Certificate sums = fold.certificate(flow, shorter, *period);
                    const Corner corner{flow.length() + fold.repeats() * *period, sums.primal,
                                        sums.dual, flow.price()};
                    if (!follows(corner)) walk(from_last(), corner.nanoseconds);
                    add(corner);
                    ++folded;
                    last = detail::Folding::Repeated{flow.state(), *period};
                    remember([&] { return fold.lifted(*last); });
                }
                if (flow.at_shortest()) break;
                if (++tried == enough_tries && 2 * folded < tried) return start_over();
            }
            return walk(from_last(), 0);
        }

        /// Where few corners can be repeated, folding only costs time.
        bool start_over() {
            corners.clear();
            states.clear();
            steps_ = 0;
            stride_ = 1;
            folded = 0;
            return walk(detail::ParametricFlow{network, exact}, 0);
        }

        /// Whether there can be no other corner between the last one and this one.
        [[nodiscard]] bool follows(const Corner& corner) const {
            if (corners.empty()) return false;
            const Corner& before = corners.back();
            return corner.effective ==
                   before.effective + static_cast<Femtojoules>(before.microwatts) *
                                          (before.nanoseconds - corner.nanoseconds);
        }

        /// Where a path was missed, the same length comes again, with a higher price.
        /// @return false if the gap gets larger than allowed
        bool add(const Corner& corner) {
            double worst = relative(corner.effective, corner.bound);
            if (!corners.empty()) {
                const Corner& before = corners.back();
                worst = std::max(
                    worst, relative(corner.effective,
                                    before.bound + static_cast<Femtojoules>(before.microwatts) *
                                                       (before.nanoseconds - corner.nanoseconds)));
                if (before.nanoseconds == corner.nanoseconds) corners.pop_back();
            }
            corners.push_back(corner);
            gap = std::max(gap, worst);
            return gap <= allowed_;
        }

        static double relative(Femtojoules energy, Femtojoules bound) {
            if (energy == bound) return 0;
            if (energy <= 0) return std::numeric_limits<double>::infinity();
            return static_cast<double>(energy - bound) / static_cast<double>(energy);
        }

        /// Keeps every `stride_`-th state, so that all of them take 64 MiB at most.
        template <class MakeState>
        void remember(const MakeState& make_state) {
            const std::size_t bytes = 8 * (network.nodes + network.arcs.size());
            const std::size_t most = std::clamp<std::size_t>((64U << 20U) / bytes, 2, 256);
            if (steps_++ % stride_ != 0) return;
            if (states.size() == most) {
                for (std::size_t k = 1; 2 * k < states.size(); ++k)
                    states[k] = std::move(states[2 * k]);
                states.resize((states.size() + 1) / 2);
                stride_ *= 2;
                if ((steps_ - 1) % stride_ != 0) return;
            }
            states.push_back(make_state());
        }

        [[nodiscard]] Timing timing(std::int64_t length) const {
            const auto is_longer = [&](const detail::ParametricFlow::State& state) {
                return state.times.back() - state.times.front() >= length;
            };
            const auto after = std::partition_point(states.begin(), states.end(), is_longer);
            detail::ParametricFlow flow{network, walked,
                                        after == states.begin() ? states.front() : *(after - 1)};
            while (flow.length() > length && !flow.at_shortest())
                flow.advance(flow.length() - length);
            const detail::Certificate sums = flow.certificate(exact);
            Timing timing{flow.length(), {}, {}, {}, sums.primal, sums.dual};
            const detail::ParametricFlow::State state = flow.state();
            for (std::uint32_t i = 0; i < network.operations; ++i) {
                timing.durations.push_back(std::min(flow.window(i), exact[i]->time.back()));
                timing.starts.push_back(state.times[network.arcs[i].tail] - state.times.front());
                timing.prices.push_back({static_cast<double>(state.flows[i]) * 1e-6});
            }
            return timing;
        }

    private:
        static constexpr std::size_t enough_tries = 64;

        std::size_t steps_ = 0;
        std::size_t stride_ = 1;
        double allowed_ = 0;
    };

    /// To what savings are rounded first. The error of energies is of second order in that, so the
    /// unit grows as the root of the gap; the factor was found on pipelines of 4 to 64 stages.
    static std::int64_t first_unit(const Model& model, double max_gap);

    /// Times as printed are rounded: half a nanosecond short is not too short.
    [[nodiscard]] std::int64_t nanoseconds(Seconds length) const;

    std::shared_ptr<const Model> model_;
};

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/frontier.hpp>
#endif
