// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>

#include <cstddef>
#include <cstdint>
#include <istream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// A latency (or any other column) that must not be above a value.
struct Bound {
    std::string column;
    double at_most = 0;
};

/// What a configuration is looked for by. Empty texts and lists admit all.
struct Constraint {
    std::string task{};
    std::string model{};
    std::vector<std::string> gpus{};
    std::vector<Bound> bounds{};
    std::string energy = "joules_per_token";  ///< the column to make least
};

/// A table of measured configurations, a row each: ML.ENERGY's rows, or any other with a header.
/// Columns with a meaning of their own: `task`, `model`, `gpu` (texts to choose by), `gpus` (1
/// where it is missing) and `batch` (breaks ties); every column may bound or rank. Constant after
/// reading: threads may share it.
class ConfigurationTable {
public:
    /// @throws Error (invalid_input) naming file and line
    ConfigurationTable(std::istream& input, std::string name);

    [[nodiscard]] std::size_t size() const { return texts_.size(); }
    [[nodiscard]] const std::vector<std::string>& header() const { return header_; }
    [[nodiscard]] const std::vector<std::string>& row(std::size_t row) const { return texts_[row]; }
    /// Where the row stands in the file; the header has line 1.
    [[nodiscard]] std::size_t line(std::size_t row) const { return lines_[row]; }

    /// @throws Error (invalid_input) naming all of the columns that are not there
    void require(const std::vector<std::string>& names) const;
    /// @throws Error (invalid_input) where there is no such column
    [[nodiscard]] std::size_t column(const std::string& name) const;
    [[nodiscard]] std::optional<std::size_t> find_column(std::string_view name) const;
    /// Not a number where the field is none.
    [[nodiscard]] double number(std::size_t column, std::size_t row) const;

    /// Whether the first row is to be preferred where energies are equal: fewer GPUs, smaller
    /// batch, earlier line.
    [[nodiscard]] bool before(std::size_t a, std::size_t b) const;

    /// The rows of a task and a model, in the order of the file.
    [[nodiscard]] const std::vector<std::uint32_t>& rows(const std::string& task,
                                                         const std::string& model) const;

    /// A number for each GPU's name; none where no row has it.
    [[nodiscard]] std::optional<std::uint32_t> gpu_index(const std::string& gpu) const;
    [[nodiscard]] std::uint32_t gpu_of(std::size_t row) const { return gpus_[row]; }

private:
    static constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

    static std::string key(const std::string& task, const std::string& model);

    void index();

    std::string name_;
    std::vector<std::string> header_;
    std::vector<std::vector<std::string>> texts_;
    std::vector<std::vector<double>> numbers_;  ///< by column, then row
    std::vector<std::size_t> lines_;
    std::vector<std::pair<double, double>> ties_;  ///< GPUs and batch of each row
    std::unordered_map<std::string, std::vector<std::uint32_t>> groups_;
    std::unordered_map<std::string, std::uint32_t> gpu_names_;
    std::vector<std::uint32_t> gpus_;
};

/// The row of least energy that keeps all bounds; of equal ones that with fewer GPUs, then the
/// smaller batch, then the earlier. Nothing where no row keeps them. A row without a number in a
/// column that counts does not take part.
/// @throws Error (invalid_input) where the table has no column for what was asked
KDVFS_INLINE std::optional<std::size_t> recommend(const ConfigurationTable& table,
                                                  const Constraint& constraint);

/// The rows of the wished task, model and GPUs that no other beats in both the first bound's
/// column and energy, from the fastest to the most frugal; bounds do not matter. Of rows that are
/// equal in both, the preferred one.
/// @throws Error (invalid_input) without a bound, or where the table has no such column
KDVFS_INLINE std::vector<std::size_t> frontier(const ConfigurationTable& table,
                                               const Constraint& constraint);

}  // namespace kdvfs::inline v0_3::serve

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/serve/recommend.hpp>
#endif
