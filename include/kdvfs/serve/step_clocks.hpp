// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// A step's clock. The variant is what its scope is counted under.
struct StepDecision {
    Megahertz clock = auto_clock;
    Variant variant{};
    bool urgent = false;  ///< the top clock, because time is short or the shape was never measured

    friend constexpr bool operator==(const StepDecision&, const StepDecision&) = default;
};

/// The clocks of a plan, as data: a pure function of a step's shape and slack. Processes that have
/// the same table decide alike. Made by `make_step_plan`, or read from text.
struct StepClockTable {
    struct Entry {
        Megahertz clock = auto_clock;
        Seconds delay{0};  ///< against the top clock; minus infinity where prompts do not wait

        friend constexpr bool operator==(const Entry&, const Entry&) = default;
    };

    StepBuckets buckets{};
    std::vector<Entry> entries{};  ///< by bucket
    StepShape largest{};           ///< that was measured
    Megahertz top = auto_clock;
    Megahertz idle = auto_clock;
    Seconds reserve{0};      ///< slack that is never given away
    bool is_urgent = false;  ///< whether shapes and slacks may ask for the top clock

    /// What a step is to run at. Allocates nothing, throws nothing.
    /// @param slack how much later than at the top clock the tightest first token of its prompts
    ///        may come (`FirstTokenSlack`); no number counts as none
    /// @param floor the lowest clock for steps without prompts
    [[nodiscard]] StepDecision decide(StepShape shape, Seconds slack,
                                      Megahertz floor = {}) const noexcept {
        if (phase_of(shape) == Phase::idle) return {idle, {}, false};
        const std::size_t bucket = buckets.bucket(shape);
        const bool urgent =
            is_urgent && (!is_measured(shape) || !(slack - reserve >= entries[bucket].delay));
        Megahertz clock = urgent ? top : entries[bucket].clock;
        if (shape.prompt_tokens == 0 && clock != auto_clock) clock = std::max(clock, floor);
        return {clock, buckets.variant(shape, urgent), urgent};
    }
    /// What a step is to run at where no plan is followed.
    [[nodiscard]] StepDecision at_top(StepShape shape) const noexcept {
        return {top, buckets.variant(shape, true), true};
    }

private:
    [[nodiscard]] bool is_measured(StepShape shape) const noexcept {
        return buckets.covered(shape) && shape.prompt_tokens <= largest.prompt_tokens &&
               shape.sequences <= largest.sequences &&
               (shape.sequences == 0 || shape.context_tokens <= largest.context_tokens) &&
               shape.prompt_context <= largest.prompt_context;
    }
};

/// The table as text: what is sent to the ranks of an instance. Numbers keep every bit.
inline std::string to_text(const StepClockTable& table) {
    const auto number = [](Seconds time) {
        return std::isinf(time.count()) ? std::string{"never"}
                                        : kdvfs::detail::to_text(time.count());
    };
    std::string text = "step-clocks-2\n";
    const StepBuckets::Edges& edges = table.buckets.edges();
    for (const auto* axis :
         {&edges.prompt_tokens, &edges.sequences, &edges.context_tokens, &edges.prompt_context}) {
        text += std::to_string(axis->size());
        for (const std::uint32_t edge : *axis) text += ' ' + std::to_string(edge);
        text += '\n';
    }
    for (const std::uint32_t each : {table.largest.prompt_tokens, table.largest.sequences,
                                     table.largest.context_tokens, table.largest.prompt_context,
                                     table.top.count, table.idle.count, table.is_urgent ? 1U : 0U})
        text += std::to_string(each) + ' ';
    text += number(table.reserve) + '\n';
    for (const StepClockTable::Entry& entry : table.entries)
        text += std::to_string(entry.clock.count) + ' ' + number(entry.delay) + '\n';
    return text;
}

namespace detail {

/// Reads what `to_text` wrote.
class StepClocksReader {
public:
    explicit StepClocksReader(std::string_view text) : input_{std::string{text}} {}

    [[nodiscard]] StepClockTable read() {
        if (word() != "step-clocks-2") reject("it does not begin with step-clocks-2");
        StepBuckets::Edges edges;
        for (auto* axis : {&edges.prompt_tokens, &edges.sequences, &edges.context_tokens,
                           &edges.prompt_context}) {
            axis->assign(std::min<std::size_t>(whole(), 4096), 0);
            for (std::uint32_t& edge : *axis) edge = whole();
        }
        StepClockTable table;
        table.buckets = StepBuckets{std::move(edges)};
        table.largest = {whole(), whole(), whole(), whole()};
        table.top = {whole()};
        table.idle = {whole()};
        table.is_urgent = whole() != 0;
        table.reserve = time();
        if (table.buckets.size() > 10'000'000) reject("it has too many buckets");
        table.entries.resize(table.buckets.size());
        for (StepClockTable::Entry& entry : table.entries) {
            entry.clock = {whole()};
            entry.delay = time();
        }
        if (std::string rest; input_ >> rest) reject("something follows its last bucket");
        return table;
    }

private:
    [[noreturn]] static void reject(const char* why) {
        throw Error{Errc::invalid_input,
                    {"read a table of steps' clocks", "the text", why,
                     "send it as a whole, and let all ranks run the same version of kdvfs"}};
    }
    std::string word() {
        std::string word;
        if (!(input_ >> word)) reject("it ends too early");
        return word;
    }
    std::uint32_t whole() {
        const auto number = kdvfs::detail::parse_number<std::uint32_t>(word());
        if (!number) reject("a number is none");
        return *number;
    }
    Seconds time() {
        const std::string text = word();
        if (text == "never") return -Seconds{std::numeric_limits<double>::infinity()};
        const auto number = kdvfs::detail::parse_number<double>(text);
        if (!number || !std::isfinite(*number)) reject("a time is none");
        return Seconds{*number};
    }

    std::istringstream input_;
};

}  // namespace detail

/// @throws Error (invalid_input) for a text that `to_text` did not write
inline StepClockTable parse_step_clocks(std::string_view text) {
    return detail::StepClocksReader{text}.read();
}

}  // namespace kdvfs::inline v0_3::serve
