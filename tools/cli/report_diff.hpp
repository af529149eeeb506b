// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// A figure and the half-width of its 95 % interval.
struct Figure {
    double value = 0;
    double half_width = 0;
};

/// How a figure of the second report differs from that of the first, in parts of the first.
struct Change {
    double share = 0;
    double half_width = 0;  ///< of the 95 % interval that holds for all changes of the diff at once

    [[nodiscard]] bool more_than(double tolerance) const { return share - half_width > tolerance; }
    [[nodiscard]] bool less_than(double tolerance) const { return share + half_width < -tolerance; }
    /// Whether it may be beyond the tolerance.
    [[nodiscard]] bool may_be_more_than(double tolerance) const {
        return share + half_width > tolerance;
    }
};

/// What a report says of a kernel, a group of kernels, a range or the iteration: of a call or run.
struct DiffItem {
    double calls = 0;              ///< in an iteration, where iterations are known, else of the run
    double time_share = 0;         ///< of the time of all kernels
    double counted = 1;            ///< of the time: what its energy is of
    std::optional<Figure> time{};  ///< s
    std::optional<Figure> energy{};  ///< J
};

/// A report as `diff_reports` compares it, by the names that its table prints.
using DiffItems = std::map<std::string, DiffItem>;

/// Reads report.json, or what `kdvfs run` and `kdvfs merge` wrote.
/// @throws Error (invalid_input) naming `file`
DiffItems diff_items(const nlohmann::json& report, const std::string& file);

/// A line of the table.
struct DiffLine {
    std::string name;
    std::optional<DiffItem> before{};  ///< none: it is new
    std::optional<DiffItem> after{};   ///< none: it is gone
    /// Of what is new: kernels that are gone and were called as often, in whose place it may be,
    /// all in one. It is compared with their sum.
    std::vector<std::string> replaces{};
    std::optional<Change> time{};
    std::optional<Change> energy{};
};

enum class DiffVerdict { no_worse, worse, undecided };

struct ReportDiff {
    std::vector<DiffLine> lines;  ///< the iteration first, then by time
    double tolerance = 0;

    /// Worse: some energy or time has grown by more than the tolerance, with 95 % confidence for
    /// all of them together. Undecided: nothing could be compared, or, where a tolerance is given,
    /// something may have grown by more.
    [[nodiscard]] DiffVerdict verdict() const;
};

/// Compares two reports kernel by kernel. Intervals are widened so that all hold at once
/// (Bonferroni). Each report has found its board's sensor for itself, so that these errors are
/// independent. Energies of calls include by how much calls of other length would have drawn more.
ReportDiff diff_reports(const DiffItems& before, const DiffItems& after, double tolerance);

std::string to_text(const ReportDiff& diff);

}  // namespace cli
