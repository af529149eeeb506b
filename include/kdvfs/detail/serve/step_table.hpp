// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/serve/step_table.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace kdvfs::inline v0_3::serve {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE StepTable::StepTable(const std::vector<StepRow>& rows) {
    for (const StepRow& row : rows) check(row);
    find_axes(rows);
    average(rows);
    for (PerClock& clock : costs_) {
        clock.prefill.fill_holes();
        clock.decode.fill_holes();
    }
    fill_between_clocks();
}

KDVFS_INLINE std::optional<Cost> StepTable::cost(StepShape shape, Megahertz clock) const {
    const auto place = std::find(clocks_.begin(), clocks_.end(), clock);
    if (place == clocks_.end()) return std::nullopt;
    return cost_at(shape, static_cast<std::size_t>(place - clocks_.begin()));
}

KDVFS_INLINE std::optional<Cost> StepTable::cost_at(StepShape shape, std::size_t clock) const {
    const PerClock& at = costs_[clock];
    const auto decode = [&] { return at.decode.at(shape.sequences, shape.context_tokens); };
    const auto prefill = [&] {
        const auto& contexts = at.prefill.columns();
        const std::uint32_t context = contexts.size() < 2 ? contexts.front() : shape.prompt_context;
        return at.prefill.at(shape.prompt_tokens, std::max(context, contexts.front()));
    };
    switch (phase_of(shape)) {
        case Phase::idle: return Cost{};
        case Phase::prefill: return prefill();
        case Phase::decode: return decode();
        case Phase::mixed: break;
    }
    const auto first = prefill();
    const auto second = decode();
    const auto weights = at.decode.at(smallest_.sequences, smallest_.context_tokens);
    if (!first || !second || !weights) return std::nullopt;
    return *first + *second + *weights * -1;
}

KDVFS_INLINE const char* StepTable::find_fault(const StepRow& row) {
    const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
    if (row.phase == Phase::mixed) return "rows are prefill, decode or idle";
    if (row.phase != Phase::idle && (row.batch == 0 || row.context == 0))
        return "batch and context must be positive";
    if (std::uint64_t{row.batch} * row.context > std::numeric_limits<std::uint32_t>::max())
        return "batch x context is too large";
    if (!positive(row.cost.time.count()) || !positive(row.cost.energy.count))
        return "time and energy must be positive";
    return nullptr;
}

KDVFS_INLINE Watts StepTable::idle_power(Megahertz clock) const {
    const auto place = std::find(clocks_.begin(), clocks_.end(), clock);
    if (place == clocks_.end()) return {};
    return costs_[static_cast<std::size_t>(place - clocks_.begin())].idle.value_or(Watts{});
}

KDVFS_INLINE StepShape StepTable::largest() const {
    const PerClock& any = costs_.front();
    const auto last = [](const std::vector<std::uint32_t>& axis) {
        return axis.empty() ? 0 : axis.back();
    };
    const auto& read_before = any.prefill.columns();
    return {
        last(any.prefill.rows()), last(any.decode.rows()), last(any.decode.columns()),
        read_before.size() < 2 ? std::numeric_limits<std::uint32_t>::max() : read_before.back()};
}

KDVFS_INLINE std::string StepTable::range() const {
    const auto span = [](const std::vector<std::uint32_t>& axis) {
        if (axis.empty()) return std::string{"no"};
        return std::to_string(axis.front()) + " to " + std::to_string(axis.back());
    };
    const PerClock& any = costs_.front();
    const auto& read_before = any.prefill.columns();
    return "prefill of " + span(any.prefill.rows()) + " tokens" +
           (read_before.size() < 2 ? "" : " after " + span(read_before)) + ", decode of " +
           span(any.decode.rows()) + " sequences of " + span(any.decode.columns()) + " tokens";
}

KDVFS_INLINE void StepTable::check(const StepRow& row) {
    if (const char* why = find_fault(row))
        throw Error{Errc::invalid_input,
                    {"use a row of a step table", std::string{to_string(row.phase)}, why,
                     "leave that row out, or measure it again"}};
}

KDVFS_INLINE void StepTable::find_axes(const std::vector<StepRow>& rows) {
    std::set<std::uint32_t> prompts, read_before, batches, contexts;
    std::set<Megahertz> clocks;
    for (const StepRow& row : rows) {
        clocks.insert(row.clock);
        if (row.phase == Phase::prefill) {
            prompts.insert(prompt_tokens(row));
            read_before.insert(row.prompt_context);
        }
        if (row.phase != Phase::decode) continue;
        batches.insert(row.batch);
        contexts.insert(row.context);
    }
    if (prompts.empty()) read_before.insert(0);
    if (prompts.empty() && batches.empty())
        throw Error{Errc::invalid_input,
                    {"make a step table", "prefill and decode", "there are no such rows",
                     "measure the steps that the engine runs"}};
    clocks_.assign(clocks.begin(), clocks.end());
    if (clocks_.front() == auto_clock)
        std::rotate(clocks_.begin(), clocks_.begin() + 1, clocks_.end());
    const std::vector<std::uint32_t> batch_axis{batches.begin(), batches.end()};
    const std::vector<std::uint32_t> context_axis{contexts.begin(), contexts.end()};
    for (std::size_t c = 0; c < clocks_.size(); ++c)
        costs_.push_back(
            {{{prompts.begin(), prompts.end()}, {read_before.begin(), read_before.end()}},
             {batch_axis, context_axis}});
    if (!batch_axis.empty())
        smallest_ = {0, batch_axis.front(),
                     std::clamp(256U, context_axis.front(), context_axis.back())};
}

KDVFS_INLINE void StepTable::average(const std::vector<StepRow>& rows) {
    using Key = std::pair<std::pair<Megahertz, Phase>, std::pair<std::uint32_t, std::uint32_t>>;
    std::map<Key, std::pair<Cost, double>> sums;
    for (const StepRow& row : rows) {
        const auto place = row.phase == Phase::prefill
                               ? std::pair{prompt_tokens(row), row.prompt_context}
                           : row.phase == Phase::decode ? std::pair{row.batch, row.context}
                                                        : std::pair<std::uint32_t, std::uint32_t>{};
        auto& [sum, count] = sums[{{row.clock, row.phase}, place}];
        sum += row.cost;
        ++count;
    }
    const auto index = [](const auto& axis, auto value) {
        return static_cast<std::size_t>(std::find(axis.begin(), axis.end(), value) - axis.begin());
    };
    for (const auto& [key, sum] : sums) {
        PerClock& at = costs_[index(clocks_, key.first.first)];
        const Cost mean = sum.first * (1 / sum.second);
        const auto [row, column] = key.second;
        if (key.first.second == Phase::idle)
            at.idle = mean.energy / mean.time;
        else if (key.first.second == Phase::prefill)
            at.prefill.cell(index(at.prefill.rows(), row), index(at.prefill.columns(), column)) =
                mean;
        else
            at.decode.cell(index(at.decode.rows(), row), index(at.decode.columns(), column)) = mean;
    }
}

KDVFS_INLINE void StepTable::fill_between_clocks() {
    const auto fill_grid = [&](detail::CostGrid PerClock::*grid) {
        const auto& shape = costs_.front().*grid;
        for (std::size_t r = 0; r < shape.rows().size(); ++r)
            for (std::size_t c = 0; c < shape.columns().size(); ++c)
                fill_line([&](std::size_t clock) -> auto& {
                    return (costs_[clock].*grid).cell(r, c);
                });
    };
    fill_grid(&PerClock::prefill);
    fill_grid(&PerClock::decode);
    fill_line([&](std::size_t clock) -> auto& { return costs_[clock].idle; });
}

#endif

}  // namespace kdvfs::inline v0_3::serve
