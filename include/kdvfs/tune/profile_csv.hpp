// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/tune/profile.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Sweep files:
/// `gpu,kernel,core_mhz,mem_mhz,time_s,energy_j[,variant][,group][,power_w][,is_baseline][,count]`
/// `[,sample]`, columns in any order, unknown ones ignored. Time and energy are per launch; -1 or
/// "auto" is the board's own clock; without a variant a kernel is written as `to_string(KernelKey)`
/// does.
namespace kdvfs::tune {
namespace detail {

class SweepColumns {
public:
    SweepColumns(const std::vector<std::string>& header, const kdvfs::detail::CsvReader& reader)
        : width_{header.size()} {
        for (std::size_t column = 0; column < header.size(); ++column) {
            if (!column_of_.try_emplace(header[column], column).second)
                reader.fail("the column \"" + header[column] + "\" is there twice");
        }
        kdvfs::detail::require_columns(
            header, {"gpu", "kernel", "core_mhz", "mem_mhz", "time_s", "energy_j"}, reader);
    }

    [[nodiscard]] std::size_t width() const { return width_; }

    /// A field by column name; empty where the file has no such column.
    [[nodiscard]] std::string_view get(const std::vector<std::string>& fields,
                                       const char* name) const {
        const auto found = column_of_.find(name);
        return found == column_of_.end() ? std::string_view{} : fields[found->second];
    }

private:
    std::map<std::string, std::size_t, std::less<>> column_of_;
    std::size_t width_;
};

template <class Number>
Number parse_field(std::string_view text, const char* column,
                   const kdvfs::detail::CsvReader& reader) {
    const auto value = kdvfs::detail::parse_number<Number>(text);
    if (!value) reader.fail(kdvfs::detail::number_fault(text, column));
    return *value;
}

inline std::uint32_t parse_optional(std::string_view text, std::uint32_t otherwise,
                                    const char* column, const kdvfs::detail::CsvReader& reader) {
    return text.empty() ? otherwise : parse_field<std::uint32_t>(text, column, reader);
}

/// A name and its variant. Where no column says the variant, the name may: "sort#2".
inline KernelKey parse_key(std::string_view kernel, std::string_view variant_text,
                           const kdvfs::detail::CsvReader& reader) {
    if (!variant_text.empty() || !ends_in_variant(kernel))
        return {std::string{kernel}, variant(parse_optional(variant_text, 0, "variant", reader))};
    const std::size_t hash = kernel.rfind('#');
    const auto index =
        parse_field<std::uint32_t>(kernel.substr(hash + 1), "kernel#variant", reader);
    return {std::string{kernel.substr(0, hash)}, variant(index)};
}

inline Megahertz parse_clock_field(std::string_view text, const char* column,
                                   const kdvfs::detail::CsvReader& reader) {
    const auto clock = kdvfs::detail::parse_clock(text);
    if (!clock)
        reader.fail(std::string{column} + " is no clock (1 to 100000 whole MHz, -1 or auto): \"" +
                    std::string{text.substr(0, 40)} + '"');
    return *clock;
}

inline bool parse_flag(std::string_view text, const char* column,
                       const kdvfs::detail::CsvReader& reader) {
    if (text.empty() || text == "0" || text == "false") return false;
    if (text == "1" || text == "true") return true;
    reader.fail(std::string{column} + " is neither 0 nor 1");
}

inline ProfileRow parse_row(const std::vector<std::string>& fields, const SweepColumns& columns,
                            const kdvfs::detail::CsvReader& reader) {
    kdvfs::detail::require_width(fields, columns.width(), reader);
    const auto get = [&](const char* name) { return columns.get(fields, name); };
    ProfileRow row;
    row.key = parse_key(get("kernel"), get("variant"), reader);
    row.clock = {parse_clock_field(get("core_mhz"), "core_mhz", reader),
                 parse_clock_field(get("mem_mhz"), "mem_mhz", reader)};
    row.cost = {Seconds{parse_field<double>(get("time_s"), "time_s", reader)},
                Joules{parse_field<double>(get("energy_j"), "energy_j", reader)}};
    row.group = get("group");
    row.count = parse_optional(get("count"), 1, "count", reader);
    row.sample = parse_optional(get("sample"), 0, "sample", reader);
    row.is_baseline = parse_flag(get("is_baseline"), "is_baseline", reader);
    return row;
}

/// What a sweep file holds, complete or not.
struct SweepRows {
    std::optional<Profile> profile;
    std::map<KernelKey, std::size_t> first_line;
};

inline SweepRows read_rows(kdvfs::detail::CsvReader& reader) {
    std::vector<std::string> fields;
    if (!reader.next(fields)) reader.fail("the file is empty");
    const SweepColumns columns{fields, reader};
    SweepRows rows;
    while (reader.next(fields)) {
        const ProfileRow row = parse_row(fields, columns, reader);
        const std::string_view gpu = columns.get(fields, "gpu");
        if (!is_gpu_name(gpu)) reader.fail("the GPU's name has characters that are not allowed");
        if (!rows.profile) rows.profile.emplace(std::string{gpu});
        if (rows.profile->gpu() != gpu)
            reader.fail("the file mixes GPUs: " + rows.profile->gpu() + " and " + std::string{gpu});
        if (const auto fault = rows.profile->try_add(row)) reader.fail(*fault);
        rows.first_line.try_emplace(row.key, reader.line());
    }
    return rows;
}

}  // namespace detail

/// Reads a sweep file. Errors call the input `name`.
/// @throws Error (invalid_input) naming file and line, for anything that is not a sound profile
/// of one GPU with a baseline for every kernel.
inline Profile read_profile(std::istream& input, const std::string& name) {
    kdvfs::detail::CsvReader reader{input, name};
    detail::SweepRows rows = detail::read_rows(reader);
    if (!rows.profile) reader.fail("there are no measurements");
    if (const KernelProfile* kernel = rows.profile->find_without_baseline()) {
        reader.fail("the baseline is missing: " + to_string(kernel->key) + " was not measured at " +
                        to_string(*rows.profile->baseline()),
                    rows.first_line.at(kernel->key));
    }
    return *std::move(rows.profile);
}

/// Reads a sweep file. @throws Error (io) if it cannot be opened, else as above.
inline Profile read_profile(const std::filesystem::path& path) {
    std::ifstream input{path, std::ios::binary};
    if (!input) {
        throw Error{Errc::io, {"open a sweep file", path.string(), std::strerror(errno), ""}};
    }
    return read_profile(input, path.string());
}

/// The header line of the sweep files that kdvfs writes.
inline constexpr std::string_view sweep_header =
    "gpu,kernel,variant,group,core_mhz,mem_mhz,time_s,energy_j,is_baseline,count,sample\n";

/// One measurement as a line of a sweep file, so that sweeps can append as they go.
inline std::string to_csv_line(const std::string& gpu, const ProfileRow& row) {
    const std::array<std::string, 11> fields{kdvfs::detail::to_csv_field(gpu),
                                             kdvfs::detail::to_csv_field(row.key.name),
                                             std::to_string(row.key.variant.index),
                                             kdvfs::detail::to_csv_field(row.group),
                                             kdvfs::detail::to_csv_field(row.clock.core),
                                             kdvfs::detail::to_csv_field(row.clock.memory),
                                             kdvfs::detail::to_text(row.cost.time.count()),
                                             kdvfs::detail::to_text(row.cost.energy.count),
                                             row.is_baseline ? "1" : "0",
                                             std::to_string(row.count),
                                             std::to_string(row.sample)};
    std::string line;
    for (const std::string& field : fields) line += field + ',';
    line.back() = '\n';
    return line;
}

/// A profile as a sweep file.
inline std::string to_csv(const Profile& profile) {
    std::string text{sweep_header};
    for (const KernelProfile& kernel : profile.kernels()) {
        for (const ProfilePoint& point : kernel.points) {
            for (const auto& sample : point.samples) {
                text += to_csv_line(
                    profile.gpu(), {kernel.key, point.clock, sample.cost, kernel.group,
                                    kernel.count, sample.index, point.clock == profile.baseline()});
            }
        }
    }
    return text;
}

}  // namespace kdvfs::tune
