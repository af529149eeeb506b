// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/train/network.hpp>
#include <kdvfs/detail/train/parametric_flow.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/schedules.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// A 1F1B pipeline of many microbatches, seen through one of fewer.
///
/// Column k of a pipeline holds the backwards of microbatch k and the forwards that run beside
/// them; who waits does so for its own column or the one before. If in the middle of the short
/// pipeline two neighbouring columns carry the same flows, pass the same flows on, and one happens
/// as the other, a period later, then the second column can be repeated: flows and times of the
/// long pipeline follow, no reduced cost changes, and so the solution is optimal there, too.
class Folding {
public:
    /// Whether a pipeline is of the kind that folds, and long enough.
    static bool applies(const Pipeline& pipeline) {
        const std::size_t passes = std::size_t{2} * pipeline.stages * pipeline.microbatches;
        return pipeline.schedule == Schedule::one_f_one_b &&
               pipeline.microbatches > short_length(pipeline) + pipeline.stages &&
               pipeline.operations.size() == passes &&
               std::all_of(pipeline.dependencies.begin(), pipeline.dependencies.end(),
                           [](const Dependency& d) { return d.nanoseconds() == 0; });
    }

    explicit Folding(const Pipeline& pipeline, const Network& network)
        : long_{&pipeline},
          long_network_{&network},
          short_{shortened(pipeline)},
          network_{short_},
          repeats_{pipeline.microbatches - short_.microbatches},
          middle_{static_cast<std::int64_t>(short_.microbatches / 2)} {
        for (std::uint32_t i = 0; i < short_.operations.size(); ++i) {
            by_place_[place(short_.operations[i], column(short_, i))] = i;
            if (column(short_, i) == middle_) second_.push_back(i);
        }
        for (const std::uint32_t i : second_)
            first_.push_back(by_place_.at(place(short_.operations[i], middle_ - 1)));
        for (std::uint32_t a = network_.operations; a < network_.arcs.size(); ++a)
            by_wait_[wait(network_, a)] = a;
        find_boundary();
        match();
    }

    [[nodiscard]] const Pipeline& shorter() const { return short_; }
    [[nodiscard]] const Network& network() const { return network_; }

    /// The period, if this state of the short pipeline's walk can be repeated.
    [[nodiscard]] std::optional<std::int64_t> period(const ParametricFlow& flow) const {
        const std::vector<std::int64_t>& times = flow.times();
        const std::vector<std::int64_t>& flows = flow.flows();
        const auto shift = [&](std::size_t k) {
            const Network::Arc& a = network_.arcs[first_[k]];
            const Network::Arc& b = network_.arcs[second_[k]];
            return std::pair{times[b.tail] - times[a.tail], times[b.head] - times[a.head]};
        };
        const std::int64_t period = shift(0).first;
        for (std::size_t k = 0; k < first_.size(); ++k)
            if (shift(k) != std::pair{period, period} || flows[first_[k]] != flows[second_[k]])
                return std::nullopt;
        for (const auto& [into, out] : boundary_)
            if (flows[into] != flows[out]) return std::nullopt;
        return period;
    }

    [[nodiscard]] std::int64_t repeats() const { return repeats_; }

    /// A state of the short pipeline that can be repeated.
    struct Repeated {
        ParametricFlow::State state;
        std::int64_t period = 0;
    };

    /// The long pipeline's certificate: the short one's and that of the repeated column.
    [[nodiscard]] Certificate certificate(const ParametricFlow& flow,
                                          const std::vector<const Hull*>& hulls,
                                          std::int64_t period) const {
        Certificate column{0, -static_cast<Femtojoules>(flow.price()) * period};
        for (const std::uint32_t i : second_) {
            column.primal += hulls[i]->energy_at(flow.window(i));
            column.dual += ParametricFlow::least(*hulls[i], flow.flows()[i]);
        }
        const Certificate once = flow.certificate(hulls);
        return {once.primal + repeats_ * column.primal, once.dual + repeats_ * column.dual};
    }

    /// The long pipeline's state that follows.
    [[nodiscard]] ParametricFlow::State lifted(const Repeated& repeated) const {
        const ParametricFlow::State& from = repeated.state;
        ParametricFlow::State state;
        state.price = from.price;
        state.times.assign(long_network_->nodes, 0);
        for (std::uint32_t i = 0; i < long_network_->operations; ++i) {
            const Network::Arc& arc = long_network_->arcs[i];
            const Network::Arc& like = network_.arcs[same_[i]];
            state.times[arc.tail] = from.times[like.tail] + later_[i] * repeated.period;
            state.times[arc.head] = from.times[like.head] + later_[i] * repeated.period;
        }
        for (const std::uint32_t a : same_) state.flows.push_back(from.flows[a]);
        return state;
    }

private:
    using Place = std::pair<std::uint32_t, std::int64_t>;  // stage and pass, column

    /// Warm-up and cool-down are as long as there are stages; what is between settles in as many.
    static std::uint32_t short_length(const Pipeline& pipeline) { return 4 * pipeline.stages + 4; }

    static Pipeline shortened(const Pipeline& pipeline) {
        CurveIndex curve_of;
        for (const Operation& operation : pipeline.operations)
            curve_of[{operation.stage, operation.pass, 0}] = operation.curve;
        return make_pipeline({Schedule::one_f_one_b, pipeline.stages, 1, short_length(pipeline)},
                             curve_of, pipeline.curves, pipeline.blocking_power);
    }

    static std::int64_t column(const Pipeline& pipeline, std::uint32_t operation) {
        const Operation& o = pipeline.operations[operation];
        const std::int64_t ahead = o.pass == Pass::forward ? pipeline.stages - 1 - o.stage : 0;
        return o.microbatch - ahead;
    }
    static Place place(const Operation& operation, std::int64_t column) {
        return {2 * operation.stage + (operation.pass == Pass::forward ? 0U : 1U), column};
    }
    static std::pair<std::uint32_t, std::uint32_t> wait(const Network& network, std::uint32_t arc) {
        const Dependency& d = network.waits[arc - network.operations];
        return {d.first, d.then};
    }

    /// Which column of the short pipeline one of the long pipeline is, and how many periods later.
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> folded(std::int64_t column) const {
        if (column <= middle_) return {column, 0};
        if (column <= middle_ + repeats_) return {middle_, column - middle_};
        return {column - repeats_, repeats_};
    }

    /// Pairs of waiting arcs: into the second column and, the same one, out of it.
    void find_boundary() {
        for (std::uint32_t a = network_.operations; a < network_.arcs.size(); ++a) {
            const auto [tail, head] = wait(network_, a);
            if (column(short_, tail) != middle_ - 1 || column(short_, head) != middle_) continue;
            const std::uint32_t next_tail = by_place_.at(place(short_.operations[tail], middle_));
            const std::uint32_t next_head =
                by_place_.at(place(short_.operations[head], middle_ + 1));
            boundary_.emplace_back(a, by_wait_.at({next_tail, next_head}));
        }
    }

    /// Finds what each arc of the long pipeline repeats.
    void match() {
        for (std::uint32_t i = 0; i < long_network_->operations; ++i) {
            const auto [at, later] = folded(column(*long_, i));
            same_.push_back(by_place_.at(place(long_->operations[i], at)));
            later_.push_back(later);
        }
        for (std::uint32_t a = long_network_->operations; a < long_network_->arcs.size(); ++a) {
            const auto [tail, head] = wait(*long_network_, a);
            const std::int64_t apart = column(*long_, head) - column(*long_, tail);
            const std::int64_t at = folded(column(*long_, head)).first - apart;
            const std::uint32_t before = by_place_.at(place(long_->operations[tail], at));
            same_.push_back(by_wait_.at({before, same_[head]}));
        }
    }

    const Pipeline* long_;
    const Network* long_network_;
    Pipeline short_;
    Network network_;
    std::int64_t repeats_;
    std::int64_t middle_;
    std::map<Place, std::uint32_t> by_place_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> by_wait_;
    std::vector<std::uint32_t> first_;   ///< the operations of a column in the middle
    std::vector<std::uint32_t> second_;  ///< the same ones of the next column
    std::vector<std::pair<std::uint32_t, std::uint32_t>> boundary_;
    std::vector<std::uint32_t> same_;  ///< by arc of the long pipeline: the short one's
    std::vector<std::int64_t> later_;  ///< by operation: periods
};

}  // namespace kdvfs::inline v0_3::train::detail
