// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/serve/recommend.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <cmath>

namespace kdvfs::inline v0_3::serve {

namespace detail {

/// @throws Error (invalid_input) where the table has no columns for what was asked
inline void require_columns(const ConfigurationTable& table, const Constraint& constraint) {
    std::vector<std::string> needed{constraint.energy};
    if (!constraint.task.empty()) needed.emplace_back("task");
    if (!constraint.model.empty()) needed.emplace_back("model");
    if (!constraint.gpus.empty()) needed.emplace_back("gpu");
    for (const Bound& bound : constraint.bounds) needed.push_back(bound.column);
    table.require(needed);
}

/// Calls `visit` with each row of the wished task, model and GPUs, in the order of the file.
template <class Visit>
void visit_admitted(const ConfigurationTable& table, const Constraint& constraint, Visit visit) {
    std::vector<std::uint32_t> gpus;
    for (const std::string& gpu : constraint.gpus)
        if (const auto index = table.gpu_index(gpu)) gpus.push_back(*index);
    for (const std::uint32_t row : table.rows(constraint.task, constraint.model))
        if (constraint.gpus.empty() ||
            std::find(gpus.begin(), gpus.end(), table.gpu_of(row)) != gpus.end())
            visit(row);
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE ConfigurationTable::ConfigurationTable(std::istream& input, std::string name)
    : name_{std::move(name)} {
    kdvfs::detail::CsvReader reader{input, name_, "docs/serving.md"};
    if (!reader.next(header_)) reader.fail("the file is empty");
    for (auto column = header_.begin(); column != header_.end(); ++column)
        if (std::find(header_.begin(), column, *column) != column)
            reader.fail("the column '" + *column + "' is there twice");
    numbers_.resize(header_.size());
    std::vector<std::string> fields;
    while (reader.next(fields)) {
        kdvfs::detail::require_width(fields, header_.size(), reader);
        lines_.push_back(reader.line());
        for (std::size_t c = 0; c < fields.size(); ++c) {
            const auto number = kdvfs::detail::parse_number<double>(fields[c]);
            numbers_[c].push_back(number && std::isfinite(*number) ? *number : nothing);
        }
        texts_.push_back(std::move(fields));
    }
    index();
}

KDVFS_INLINE void ConfigurationTable::require(const std::vector<std::string>& names) const {
    if (const std::string fault = kdvfs::detail::columns_fault(header_, names); !fault.empty())
        throw Error{Errc::invalid_input,
                    {"look for a configuration", name_ + ":1", fault,
                     "name columns of that line, or take another table"}};
}

KDVFS_INLINE std::size_t ConfigurationTable::column(const std::string& name) const {
    require({name});
    return *find_column(name);
}

KDVFS_INLINE std::optional<std::size_t> ConfigurationTable::find_column(
    std::string_view name) const {
    const auto place = std::find(header_.begin(), header_.end(), name);
    if (place == header_.end()) return std::nullopt;
    return static_cast<std::size_t>(place - header_.begin());
}

KDVFS_INLINE double ConfigurationTable::number(std::size_t column, std::size_t row) const {
    return numbers_[column][row];
}

KDVFS_INLINE bool ConfigurationTable::before(std::size_t a, std::size_t b) const {
    const auto [gpus_a, batch_a] = ties_[a];
    const auto [gpus_b, batch_b] = ties_[b];
    if (gpus_a != gpus_b) return gpus_a < gpus_b;
    if (batch_a != batch_b) return batch_a < batch_b;
    return a < b;
}

KDVFS_INLINE const std::vector<std::uint32_t>& ConfigurationTable::rows(
    const std::string& task, const std::string& model) const {
    static const std::vector<std::uint32_t> none;
    const auto place = groups_.find(key(task, model));
    return place == groups_.end() ? none : place->second;
}

KDVFS_INLINE std::optional<std::uint32_t> ConfigurationTable::gpu_index(
    const std::string& gpu) const {
    const auto place = gpu_names_.find(gpu);
    if (place == gpu_names_.end()) return std::nullopt;
    return place->second;
}

KDVFS_INLINE std::string ConfigurationTable::key(const std::string& task,
                                                 const std::string& model) {
    return task + '\n' + model;  // no field has a line break
}

KDVFS_INLINE void ConfigurationTable::index() {
    const auto task = find_column("task"), model = find_column("model"), gpu = find_column("gpu"),
               gpus = find_column("gpus"), batch = find_column("batch");
    const auto text = [&](const auto& column, std::size_t row) {
        return column ? texts_[row][*column] : std::string{};
    };
    const auto tie = [&](const auto& column, std::size_t row, double otherwise) {
        const double value = column ? numbers_[*column][row] : otherwise;
        return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
    };
    for (std::size_t r = 0; r < texts_.size(); ++r) {
        // Also under what leaves the task or the model open.
        const std::string t = text(task, r), m = text(model, r);
        const auto place = static_cast<std::uint32_t>(r);
        groups_[key("", "")].push_back(place);
        if (!t.empty()) groups_[key(t, "")].push_back(place);
        if (!m.empty()) groups_[key("", m)].push_back(place);
        if (!t.empty() && !m.empty()) groups_[key(t, m)].push_back(place);
        const auto next = static_cast<std::uint32_t>(gpu_names_.size());
        gpus_.push_back(gpu_names_.try_emplace(text(gpu, r), next).first->second);
        ties_.emplace_back(tie(gpus, r, 1), tie(batch, r, 0));
    }
}

KDVFS_INLINE std::optional<std::size_t> recommend(const ConfigurationTable& table,
                                                  const Constraint& constraint) {
    detail::require_columns(table, constraint);
    const std::size_t energy = table.column(constraint.energy);
    std::vector<std::pair<std::size_t, double>> bounds;
    for (const Bound& bound : constraint.bounds)
        bounds.emplace_back(table.column(bound.column), bound.at_most);
    std::optional<std::size_t> best;
    detail::visit_admitted(table, constraint, [&](std::size_t row) {
        const double value = table.number(energy, row);
        if (std::isnan(value)) return;
        for (const auto& [column, at_most] : bounds)
            if (!(table.number(column, row) <= at_most)) return;
        const double least = best ? table.number(energy, *best) : value;
        if (!best || value < least || (value == least && table.before(row, *best))) best = row;
    });
    return best;
}

KDVFS_INLINE std::vector<std::size_t> frontier(const ConfigurationTable& table,
                                               const Constraint& constraint) {
    if (constraint.bounds.empty())
        throw Error{Errc::invalid_input,
                    {"draw a frontier", "", "there is no latency", "name one as a target"}};
    detail::require_columns(table, constraint);
    const std::size_t latency = table.column(constraint.bounds.front().column);
    const std::size_t energy = table.column(constraint.energy);
    std::vector<std::size_t> rows;
    detail::visit_admitted(table, constraint, [&](std::size_t row) {
        if (!std::isnan(table.number(latency, row)) && !std::isnan(table.number(energy, row)))
            rows.push_back(row);
    });
    std::sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) {
        if (table.number(latency, a) != table.number(latency, b))
            return table.number(latency, a) < table.number(latency, b);
        if (table.number(energy, a) != table.number(energy, b))
            return table.number(energy, a) < table.number(energy, b);
        return table.before(a, b);
    });
    std::vector<std::size_t> best;
    for (const std::size_t row : rows)
        if (best.empty() || table.number(energy, row) < table.number(energy, best.back()))
            best.push_back(row);
    return best;
}

#endif

}  // namespace kdvfs::inline v0_3::serve
