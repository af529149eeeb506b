// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/serve/step_table.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::serve {
namespace detail {

/// Where the columns of a header are. @throws Error (invalid_input) naming all that are missing
template <std::size_t Count>
std::array<std::size_t, Count> find_columns(const io::CsvReader& reader,
                                            const std::vector<std::string>& header,
                                            const std::array<std::string_view, Count>& names) {
    kdvfs::detail::require_columns(header, names, reader);
    std::array<std::size_t, Count> places{};
    for (std::size_t n = 0; n < Count; ++n)
        places[n] = static_cast<std::size_t>(std::find(header.begin(), header.end(), names[n]) -
                                             header.begin());
    return places;
}

/// One field as a number. @throws Error (invalid_input) naming line and column
template <class Number>
Number number_field(const io::CsvReader& reader, const std::string& field,
                    std::string_view column) {
    const auto number = kdvfs::detail::parse_number<Number>(field);
    if (!number) reader.fail(kdvfs::detail::number_fault(field, std::string{column}));
    return *number;
}

inline StepRow parse_step_row(const io::CsvReader& reader,
                              const std::array<std::string_view, 6>& names,
                              const std::array<std::string, 6>& fields) {
    StepRow row;
    if (fields[0] == "prefill")
        row.phase = Phase::prefill;
    else if (fields[0] == "decode")
        row.phase = Phase::decode;
    else if (fields[0] == "idle")
        row.phase = Phase::idle;
    else
        reader.fail("'" + fields[0] + "' is no phase: prefill, decode or idle");
    row.batch = number_field<std::uint32_t>(reader, fields[1], names[1]);
    row.context = number_field<std::uint32_t>(reader, fields[2], names[2]);
    const auto clock = kdvfs::detail::parse_clock(fields[3]);
    if (!clock) reader.fail("'" + fields[3] + "' is no clock in MHz");
    row.clock = *clock;
    row.cost = {Seconds{number_field<double>(reader, fields[4], names[4])},
                Joules{number_field<double>(reader, fields[5], names[5])}};
    return row;
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE StepTable read_step_table(std::istream& input, const std::string& name) {
    static constexpr std::array<std::string_view, 6> names{"phase",    "batch",  "context",
                                                           "core_mhz", "time_s", "energy_j"};
    io::CsvReader reader{input, name, "docs/serving.md"};
    std::vector<std::string> fields;
    if (!reader.next(fields)) reader.fail("the file is empty");
    const std::size_t width = fields.size();
    const auto places = detail::find_columns(reader, fields, names);
    static constexpr std::string_view context_name = "prompt_context";
    const auto context = static_cast<std::size_t>(
        std::find(fields.begin(), fields.end(), context_name) - fields.begin());
    std::vector<StepRow> rows;
    while (reader.next(fields)) {
        kdvfs::detail::require_width(fields, width, reader);
        std::array<std::string, 6> chosen;
        for (std::size_t n = 0; n < chosen.size(); ++n) chosen[n] = fields[places[n]];
        rows.push_back(detail::parse_step_row(reader, names, chosen));
        if (context < width)
            rows.back().prompt_context =
                detail::number_field<std::uint32_t>(reader, fields[context], context_name);
        if (const char* fault = StepTable::find_fault(rows.back())) reader.fail(fault);
    }
    return kdvfs::detail::naming_file(name + ':' + std::to_string(reader.line()),
                                      [&] { return StepTable{rows}; });
}

KDVFS_INLINE StepTable read_step_table(const std::filesystem::path& path) {
    std::ifstream input{path};
    if (!input)
        throw Error{Errc::io, {"open a step table", path.string(), "", "check the file's name"}};
    return read_step_table(input, path.string());
}

KDVFS_INLINE std::string to_csv(const std::vector<StepRow>& rows) {
    std::string text = "phase,batch,context,core_mhz,time_s,energy_j,prompt_context\n";
    for (const StepRow& row : rows) {
        text.append(to_string(row.phase)).append(",");
        text += std::to_string(row.batch) + ',' + std::to_string(row.context) + ',' +
                kdvfs::detail::to_csv_field(row.clock) + ',' +
                kdvfs::detail::to_text(row.cost.time.count()) + ',' +
                kdvfs::detail::to_text(row.cost.energy.count) + ',' +
                std::to_string(row.prompt_context) + '\n';
    }
    return text;
}

#endif

}  // namespace kdvfs::inline v0_3::serve
