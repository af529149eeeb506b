// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/text_stream.hpp>
#include <kdvfs/detail/tune/run_schedule.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What the ranks of a job that tunes itself say to each other, as texts of one line each, but for
/// plans. Texts come from processes of the same user; what does not parse is an error.
namespace kdvfs::inline v0_3::tune::detail {

/// What ranks do from an iteration on, until the next order.
struct RankOrder {
    std::uint64_t from = 0;   ///< iteration, as every rank counts them
    std::uint64_t ahead = 0;  ///< of the iteration in which it was given
    std::uint32_t epoch = 0;  ///< how often the program has changed, as rank 0 knows
    RunPhase phase = RunPhase::warm_up;
    RunStep step{};
    std::uint32_t plan = 0;    ///< number of the plan that is followed
    bool metered = false;      ///< explored: the stage is measured
    std::uint64_t stage = 0;   ///< explored: number of the stage; 0: at the baseline
    std::uint32_t length = 0;  ///< explored: iterations of the stage; 0: not known
    /// Explored: by rank. None: it does not explore, and neither do ranks beyond the last.
    std::vector<std::optional<ClockPoint>> clocks{};

    [[nodiscard]] bool is_as(const RankOrder& other) const {
        return epoch == other.epoch && phase == other.phase && step.as == other.step.as &&
               step.block == other.step.block && plan == other.plan && metered == other.metered &&
               stage == other.stage;
    }
    /// Whether it holds as soon as it arrives: what was done before may do harm.
    [[nodiscard]] bool is_at_once() const {
        return phase != RunPhase::explore && phase != RunPhase::follow;
    }
    /// What a rank explores; nothing where it does not.
    [[nodiscard]] std::optional<ClockPoint> clock_of(std::uint32_t rank) const {
        return rank < clocks.size() ? clocks[rank] : std::nullopt;
    }
};

/// A rank's iterations are steady: what it is, to find its equals by.
struct RankReady {
    std::uint32_t epoch = 0;
    std::string program;   ///< hash of board, setting, kernels and their launches
    std::string clocks;    ///< hash of those that it can explore
    std::string stored{};  ///< what a `ProfileStore` calls the program; empty: none is used
};

/// What a rank has measured in a stage of exploring.
struct RankBlock {
    std::uint64_t stage = 0;
    ClockPoint clock;
    std::uint32_t iterations = 0;
    Seconds iteration{0};
    Watts power{};
    std::vector<ProfileRow> rows{};  ///< none: it could not be measured
};

/// A plan, and who follows it.
struct RankPlan {
    std::uint32_t number = 0;
    std::vector<std::uint32_t> ranks;
    std::string json;
};

/// Reads words between spaces.
class MessageReader {
public:
    explicit MessageReader(std::string_view text) : text_{text}, rest_{text} {}

    [[nodiscard]] std::string_view word(char end = ' ') {
        const std::size_t at = rest_.find(end);
        const std::string_view word = rest_.substr(0, at);
        rest_ = at == std::string_view::npos ? std::string_view{} : rest_.substr(at + 1);
        return word;
    }
    template <class Number>
    [[nodiscard]] Number number() {
        const auto value = kdvfs::detail::parse_number<Number>(word());
        if (!value) fail();
        return *value;
    }
    [[nodiscard]] ClockPoint clock() { return clock(word()); }
    [[nodiscard]] ClockPoint clock(std::string_view first) {
        const auto core = kdvfs::detail::parse_clock(first);
        const auto memory = kdvfs::detail::parse_clock(word());
        if (!core || !memory) fail();
        return {*core, *memory};
    }
    /// @throws Error (invalid_input) where there are more than could be meant
    [[nodiscard]] std::size_t count(std::size_t most) {
        const auto value = number<std::size_t>();
        if (value > most) fail();
        return value;
    }
    [[nodiscard]] std::string_view rest() const { return rest_; }
    [[nodiscard]] bool at_end() const { return rest_.empty(); }
    [[noreturn]] void fail() const {
        throw Error{Errc::invalid_input,
                    {"read what another rank says", std::string{text_.substr(0, 80)},
                     "it is no message of this version",
                     "let all ranks of a job have the same version of kdvfs"}};
    }

private:
    std::string_view text_;
    std::string_view rest_;
};

inline constexpr std::size_t most_ranks = 1'000'000;

inline std::string clock_words(ClockPoint clock) {
    return ' ' + kdvfs::detail::to_csv_field(clock.core) + ' ' +
           kdvfs::detail::to_csv_field(clock.memory);
}

inline std::string to_message(const RankOrder& order) {
    kdvfs::io::TextStream text;
    text << "order " << order.from << ' ' << order.ahead << ' ' << order.epoch << ' '
         << static_cast<int>(order.phase) << ' ' << static_cast<int>(order.step.as) << ' '
         << order.step.block << ' ' << order.step.triple << ' ' << order.plan << ' '
         << order.metered << ' ' << order.stage << ' ' << order.length << ' '
         << order.clocks.size();
    for (const auto& clock : order.clocks) text << (clock ? clock_words(*clock) : " -");
    return text.str();
}
inline RankOrder read_order(MessageReader& words) {
    RankOrder order;
    order.from = words.number<std::uint64_t>();
    order.ahead = words.number<std::uint64_t>();
    order.epoch = words.number<std::uint32_t>();
    order.phase = static_cast<RunPhase>(words.count(static_cast<std::size_t>(RunPhase::rest)));
    order.step.as =
        static_cast<RunStep::As>(words.count(static_cast<std::size_t>(RunStep::As::planned)));
    order.step.block = words.number<std::uint32_t>();
    order.step.triple = words.number<std::uint32_t>();
    order.plan = words.number<std::uint32_t>();
    order.metered = words.count(1) != 0;
    order.stage = words.number<std::uint64_t>();
    order.length = words.number<std::uint32_t>();
    order.clocks.resize(words.count(most_ranks));
    for (auto& clock : order.clocks)
        if (const std::string_view core = words.word(); core != "-") clock = words.clock(core);
    return order;
}

inline std::string to_message(const RankReady& ready) {
    return "ready " + std::to_string(ready.epoch) + ' ' + ready.program + ' ' + ready.clocks + ' ' +
           ready.stored;
}
inline RankReady read_ready(MessageReader& words) {
    const auto epoch = words.number<std::uint32_t>();
    std::string program{words.word()};
    std::string clocks{words.word()};
    return {epoch, std::move(program), std::move(clocks), std::string{words.rest()}};
}

inline std::string to_message(const RankBlock& block) {
    std::string text = "block " + std::to_string(block.stage) + clock_words(block.clock) + ' ' +
                       std::to_string(block.iterations) + ' ' +
                       kdvfs::detail::to_text(block.iteration.count()) + ' ' +
                       kdvfs::detail::to_text(block.power.count) + '\n';
    for (const ProfileRow& row : block.rows)
        text += kdvfs::detail::to_text(row.cost.time.count()) + ' ' +
                kdvfs::detail::to_text(row.cost.energy.count) + ' ' +
                kdvfs::detail::to_text(row.energy_sd.count) + ' ' + std::to_string(row.count) +
                ' ' + kdvfs::detail::to_text(row.block.energy.count) + ' ' +
                kdvfs::detail::to_text(row.block.energy_sd.count) + ' ' +
                std::to_string(row.held.count) + (row.at_limit ? " 1 " : " 0 ") +
                std::to_string(row.key.variant.index) + ' ' + row.key.name + '\n';
    return text;
}
inline RankBlock read_block(MessageReader& words) {
    RankBlock block;
    MessageReader head{words.word('\n')};
    block.stage = head.number<std::uint64_t>();
    block.clock = head.clock();
    block.iterations = head.number<std::uint32_t>();
    block.iteration = Seconds{head.number<double>()};
    block.power = {head.number<double>()};
    if (!(block.iteration >= Seconds{0} && block.power.count >= 0)) words.fail();
    while (!words.at_end()) {
        MessageReader line{words.word('\n')};
        ProfileRow& row = block.rows.emplace_back();
        row.clock = block.clock;
        row.cost.time = Seconds{line.number<double>()};
        row.cost.energy = {line.number<double>()};
        row.energy_sd = {line.number<double>()};
        row.count = line.number<std::uint32_t>();
        row.block.energy = {line.number<double>()};
        row.block.energy_sd = {line.number<double>()};
        row.block.id = row.block.energy.count > 0 ? 1 : 0;
        row.held = {line.number<std::uint32_t>()};
        row.at_limit = line.number<std::uint32_t>() != 0;
        row.key.variant.index = line.number<std::uint32_t>();
        row.key.name = std::string{line.rest()};
        if (find_fault(row)) words.fail();
    }
    return block;
}

inline std::string to_message(const RankPlan& plan) {
    std::string text =
        "plan " + std::to_string(plan.number) + ' ' + std::to_string(plan.ranks.size());
    for (const std::uint32_t rank : plan.ranks) text += ' ' + std::to_string(rank);
    return text + ' ' + plan.json;
}
inline RankPlan read_plan(MessageReader& words) {
    RankPlan plan;
    plan.number = words.number<std::uint32_t>();
    plan.ranks.resize(words.count(most_ranks));
    for (std::uint32_t& rank : plan.ranks) rank = words.number<std::uint32_t>();
    plan.json = std::string{words.rest()};
    return plan;
}

}  // namespace kdvfs::inline v0_3::tune::detail
