// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/serve/cost_grid.hpp>
#include <kdvfs/serve/step.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::serve {

using tune::Cost;

/// One measured row of a step table. `batch` is the number of sequences and `context` the length
/// of each: of a prefill row, batch x context prompt tokens are read in the step. An idle row has
/// neither; its time may be any.
struct StepRow {
    Phase phase = Phase::decode;
    std::uint32_t batch = 0;
    std::uint32_t context = 0;
    Megahertz clock = auto_clock;
    Cost cost{};
    std::uint32_t prompt_context = 0;  ///< of a prefill row: `StepShape::prompt_context`
};

/// What steps cost at each clock, from measurements of pure prefill and pure decode steps.
/// Inside the measured range it interpolates (holes of a clock's grid are filled along the context,
/// then along the batch, then between the neighbouring clocks); outside it knows nothing and says
/// so. A mixed step costs its prefill part and its decode part less the smallest measured decode
/// step near a context of 256 tokens, because the weights are read once. Where all prefill rows
/// have the same context, they hold for any. Constant after construction: threads may share it.
class StepTable {
public:
    /// An instance that only decodes, or only reads prompts, has rows of that phase alone.
    /// @throws Error (invalid_input) where neither prefill nor decode has rows, or a row has no
    ///     batch, no context, or a time or energy that is not positive
    explicit StepTable(const std::vector<StepRow>& rows);

    /// Ascending; auto, if it was measured, is above all.
    [[nodiscard]] const std::vector<Megahertz>& clocks() const { return clocks_; }

    /// What a step takes at a clock of the table; nothing outside the measured range.
    /// Allocates nothing.
    [[nodiscard]] std::optional<Cost> cost(StepShape shape, Megahertz clock) const;

    /// The same by the clock's index in `clocks()`.
    [[nodiscard]] std::optional<Cost> cost_at(StepShape shape, std::size_t clock) const;

    /// What is wrong with a row by itself, as a clause; null if it is sound.
    [[nodiscard]] static const char* find_fault(const StepRow& row);

    /// Drawn while there is nothing to do; 0 where it was not measured.
    [[nodiscard]] Watts idle_power(Megahertz clock) const;

    /// The largest shape that was measured, dimension by dimension; where prefill was measured at
    /// one context, that of prompts has no end.
    [[nodiscard]] StepShape largest() const;

    /// "prefill of 1 to 512 tokens, decode of 1 to 128 sequences of 256 to 8192 tokens".
    [[nodiscard]] std::string range() const;

private:
    struct PerClock {
        detail::CostGrid prefill;
        detail::CostGrid decode;
        std::optional<Watts> idle{};
    };

    static std::uint32_t prompt_tokens(const StepRow& row) { return row.batch * row.context; }

    static void check(const StepRow& row);

    void find_axes(const std::vector<StepRow>& rows);

    /// Rows of the same place are samples of it.
    void average(const std::vector<StepRow>& rows);

    /// Cells that are still empty but known at a lower and a higher clock. Time goes with the
    /// period of the clock, so both are interpolated over it.
    void fill_between_clocks();

    template <class Cell>
    void fill_line(Cell cell) {
        std::optional<std::size_t> before;
        for (std::size_t here = 0; here < clocks_.size() && clocks_[here] != auto_clock; ++here) {
            if (!cell(here)) continue;
            const auto period = [&](std::size_t clock) { return 1.0 / clocks_[clock].count; };
            for (std::size_t gap = before ? *before + 1 : here; gap < here; ++gap) {
                const double above =
                    (period(*before) - period(gap)) / (period(*before) - period(here));
                cell(gap) = *cell(*before) * (1 - above) + *cell(here) * above;
            }
            before = here;
        }
    }

    std::vector<Megahertz> clocks_;
    std::vector<PerClock> costs_;
    StepShape smallest_{};
};

/// Step tables as files. Columns, in any order, others are ignored:
/// `phase` (prefill, decode or idle), `batch` (sequences), `context` (tokens of each; a prefill row
/// reads batch x context prompt tokens in one step), `core_mhz` (-1 or auto for the board's own
/// choice), `time_s`, `energy_j` (of one step; of an idle row any span of time and its energy).
/// `prompt_context`, which may be missing, is that of a prefill row (`StepShape`).
/// Several rows of one place are samples of it.
///
/// @throws Error (invalid_input) naming file and line; see StepTable
KDVFS_INLINE StepTable read_step_table(std::istream& input, const std::string& name);

/// @throws Error (io, invalid_input)
KDVFS_INLINE StepTable read_step_table(const std::filesystem::path& path);

/// Rows as such a file.
KDVFS_INLINE std::string to_csv(const std::vector<StepRow>& rows);

}  // namespace kdvfs::inline v0_3::serve

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/serve/step_table.hpp>
#include <kdvfs/detail/serve/step_table_csv.hpp>
#endif
