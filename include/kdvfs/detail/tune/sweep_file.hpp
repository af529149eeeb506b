// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/profile.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/tune/csv_fields.hpp>
#include <kdvfs/error.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

namespace detail {

using Fields = std::vector<std::string_view>;

/// Where a sweep file has its columns.
class SweepColumns {
public:
    SweepColumns(const Fields& header, const io::CsvReader& reader) : width_{header.size()} {
        std::vector<std::string> names{header.begin(), header.end()};
        for (std::size_t column = 0; column < names.size(); ++column)
            if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(column),
                          names[column]) != names.begin() + static_cast<std::ptrdiff_t>(column))
                reader.fail("the column \"" + names[column] + "\" is there twice");
        kdvfs::detail::require_columns(
            names, {"gpu", "kernel", "core_mhz", "mem_mhz", "time_s", "energy_j"}, reader);
        const auto find = [&](const char* name) {
            return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) -
                                            names.begin());
        };
        gpu = find("gpu");
        kernel = find("kernel");
        variant = find("variant");
        group = find("group");
        core = find("core_mhz");
        memory = find("mem_mhz");
        time = find("time_s");
        energy = find("energy_j");
        energy_sd = find("energy_sd_j");
        count = find("count");
        sample = find("sample");
        is_baseline = find("is_baseline");
        block = find("block");
        block_energy = find("block_energy_j");
        block_energy_sd = find("block_energy_sd_j");
        held = find("held_mhz");
        at_limit = find("at_limit");
    }

    [[nodiscard]] std::size_t width() const { return width_; }

    /// A field; empty where the file has no such column.
    [[nodiscard]] std::string_view get(const Fields& fields, std::size_t column) const {
        return column < width_ ? fields[column] : std::string_view{};
    }

    std::size_t gpu, kernel, variant, group, core, memory, time, energy, energy_sd, count, sample,
        is_baseline, block, block_energy, block_energy_sd, held, at_limit;

private:
    std::size_t width_;
};

/// Fills a row, whose memory is used again.
inline void parse_row(const Fields& fields, const SweepColumns& columns,
                      const io::CsvReader& reader, ProfileRow& row) {
    kdvfs::detail::require_width(fields, columns.width(), reader);
    const auto get = [&](std::size_t column) { return columns.get(fields, column); };
    parse_key(get(columns.kernel), get(columns.variant), reader, row.key);
    row.clock = {parse_clock_field(get(columns.core), "core_mhz", reader),
                 parse_clock_field(get(columns.memory), "mem_mhz", reader)};
    row.cost = {Seconds{parse_field<double>(get(columns.time), "time_s", reader)},
                Joules{parse_field<double>(get(columns.energy), "energy_j", reader)}};
    row.energy_sd = parse_joules(get(columns.energy_sd), "energy_sd_j", reader);
    row.block = {parse_optional(get(columns.block), 0, "block", reader),
                 parse_joules(get(columns.block_energy), "block_energy_j", reader),
                 parse_joules(get(columns.block_energy_sd), "block_energy_sd_j", reader)};
    row.group = get(columns.group);
    row.count = parse_optional(get(columns.count), 1, "count", reader);
    row.sample = parse_optional(get(columns.sample), 0, "sample", reader);
    row.is_baseline = parse_flag(get(columns.is_baseline), "is_baseline", reader);
    row.held = {parse_optional(get(columns.held), 0, "held_mhz", reader)};
    row.at_limit = parse_flag(get(columns.at_limit), "at_limit", reader);
}

/// What a sweep file holds, complete or not.
struct SweepRows {
    std::optional<Profile> profile;
    std::vector<std::size_t> first_line;  ///< by kernel
};

inline SweepRows read_rows(io::CsvReader& reader) {
    Fields fields;
    if (!reader.next(fields)) reader.fail("the file is empty");
    const SweepColumns columns{fields, reader};
    SweepRows rows;
    ProfileRow row;
    while (reader.next(fields)) {
        parse_row(fields, columns, reader, row);
        const std::string_view gpu = columns.get(fields, columns.gpu);
        if (!rows.profile) {
            if (!is_gpu_name(gpu))
                reader.fail("the GPU's name has characters that are not allowed");
            rows.profile.emplace(std::string{gpu});
        }
        if (rows.profile->gpu() != gpu)
            reader.fail("the file mixes GPUs: " + rows.profile->gpu() + " and " + std::string{gpu});
        const std::size_t known = rows.profile->kernels().size();
        if (const auto fault = rows.profile->try_add(row)) reader.fail(*fault);
        if (rows.profile->kernels().size() > known) rows.first_line.push_back(reader.line());
    }
    return rows;
}

}  // namespace detail

using detail::read_rows;

namespace detail {

/// All measurements of a profile, as files have them.
inline std::vector<ProfileRow> rows_of(const Profile& profile) {
    std::vector<ProfileRow> rows;
    for (const KernelProfile& kernel : profile.kernels())
        for (const ProfilePoint& point : kernel.points)
            for (const ProfileSample& sample : point.samples)
                rows.push_back({kernel.key, point.clock, sample.cost, kernel.group, kernel.count,
                                sample.index, point.clock == profile.baseline(), sample.energy_sd,
                                profile.block_of(sample), sample.held, sample.at_limit});
    return rows;
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE Profile read_profile(std::istream& input, const std::string& name) {
    io::CsvReader reader{input, name};
    detail::SweepRows rows = detail::read_rows(reader);
    if (!rows.profile) reader.fail("there are no measurements");
    if (const KernelProfile* kernel = rows.profile->find_without_baseline()) {
        reader.fail(
            "the baseline is missing: " + to_string(kernel->key) + " was not measured at " +
                to_string(*rows.profile->baseline()),
            rows.first_line[static_cast<std::size_t>(kernel - rows.profile->kernels().data())]);
    }
    return *std::move(rows.profile);
}

KDVFS_INLINE Profile read_profile(const std::filesystem::path& path) {
    std::ifstream input{path, std::ios::binary};
    if (!input) {
        throw Error{Errc::io, {"open a sweep file", path.string(), std::strerror(errno), ""}};
    }
    return read_profile(input, path.string());
}

KDVFS_INLINE std::string to_csv_line(const std::string& gpu, const ProfileRow& row) {
    const std::array<std::string, 17> fields{kdvfs::detail::csv_field(gpu),
                                             kdvfs::detail::csv_field(row.key.name),
                                             std::to_string(row.key.variant.index),
                                             kdvfs::detail::csv_field(row.group),
                                             kdvfs::detail::to_csv_field(row.clock.core),
                                             kdvfs::detail::to_csv_field(row.clock.memory),
                                             kdvfs::detail::to_text(row.cost.time.count()),
                                             kdvfs::detail::to_text(row.cost.energy.count),
                                             row.is_baseline ? "1" : "0",
                                             std::to_string(row.count),
                                             std::to_string(row.sample),
                                             kdvfs::detail::to_text(row.energy_sd.count),
                                             std::to_string(row.block.id),
                                             kdvfs::detail::to_text(row.block.energy.count),
                                             kdvfs::detail::to_text(row.block.energy_sd.count),
                                             std::to_string(row.held.count),
                                             row.at_limit ? "1" : "0"};
    std::string line;
    for (const std::string& field : fields) line += field + ',';
    line.back() = '\n';
    return line;
}

KDVFS_INLINE std::string to_csv(const Profile& profile) {
    std::string text{sweep_header};
    for (const ProfileRow& row : detail::rows_of(profile)) text += to_csv_line(profile.gpu(), row);
    return text;
}

KDVFS_INLINE SweepFile::SweepFile(std::filesystem::path path, const std::string& gpu,
                                  std::optional<ClockPoint> baseline)
    : path_{std::move(path)},
      file_{::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC, 0666)},
      profile_{gpu},
      baseline_{baseline} {
    struct stat status {};
    if (!file_.is_open() || ::fstat(file_.get(), &status) != 0)
        kdvfs::detail::throw_file_error("open a sweep file", path_, errno);
    if (!S_ISREG(status.st_mode)) reject("it is no regular file");
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
        throw Error{Errc::busy,
                    {"open a sweep file", path_.string(), "another process is writing to it",
                     "wait for it to end"}};
    }
    resume(gpu);
}

KDVFS_INLINE void SweepFile::append(std::vector<ProfileRow> rows) {
    std::string lines;
    for (ProfileRow& row : rows) {
        row.is_baseline = row.clock == baseline_;
        profile_.add(row);
        lines += to_csv_line(profile_.gpu(), row);
    }
    write(lines);
}

KDVFS_INLINE void SweepFile::resume(const std::string& gpu) {
    std::string text = read_all();
    if (!text.starts_with(sweep_header.substr(0, text.size())))
        reject("it has other columns than kdvfs writes");
    const std::size_t size = text.size();
    const std::size_t whole = text.rfind('\n') + 1;  // 0 where there is no whole line
    text.resize(whole);
    if (whole > 0) take_over(text, gpu);
    // Only now: what is no sweep of this GPU is left as it is.
    if (whole != size && ::ftruncate(file_.get(), static_cast<off_t>(whole)) != 0)
        kdvfs::detail::throw_file_error("drop a line that was cut short", path_, errno);
    if (whole == 0) write(std::string{sweep_header});
}

KDVFS_INLINE void SweepFile::take_over(const std::string& text, const std::string& gpu) {
    std::istringstream lines{text};
    io::CsvReader reader{lines, path_.string()};
    detail::SweepRows rows = detail::read_rows(reader);
    if (!rows.profile) return;
    if (rows.profile->gpu() != gpu) reject("it is of another GPU, " + rows.profile->gpu());
    profile_ = *std::move(rows.profile);
}

KDVFS_INLINE void SweepFile::reject(const std::string& why) const {
    throw Error{Errc::invalid_input,
                {"go on with a sweep", path_.string(), why, "write to another file"}};
}

KDVFS_INLINE std::string SweepFile::read_all() const {
    std::string text;
    char buffer[65536];
    for (;;) {
        const ssize_t got =
            ::pread(file_.get(), buffer, sizeof buffer, static_cast<off_t>(text.size()));
        if (got < 0) kdvfs::detail::throw_file_error("read a sweep file", path_, errno);
        if (got == 0) return text;
        text.append(buffer, static_cast<std::size_t>(got));
    }
}

KDVFS_INLINE void SweepFile::write(const std::string& text) const {
    if (const int error = kdvfs::detail::write_all(file_.get(), text); error != 0)
        kdvfs::detail::throw_file_error("write a sweep file", path_, error);
}

KDVFS_INLINE LaunchSequence read_launches(std::istream& input, const std::string& name) {
    io::CsvReader reader{input, name};
    detail::NamedColumns columns{reader, {"kernel"}};
    LaunchSequence sequence;
    while (columns.next()) {
        detail::parse_key(columns.get("kernel"), columns.get("variant"), reader,
                          sequence.launches.emplace_back());
        if (!is_kernel_name(sequence.launches.back().name)) reader.fail("this is no kernel name");
        if (columns.has("gap_s"))
            sequence.gaps.push_back(detail::parse_delay(columns, "gap_s", reader));
        if (columns.has("start_s"))
            sequence.runs.push_back(
                {columns.has("stream")
                     ? detail::parse_field<std::uint32_t>(columns.get("stream"), "stream", reader)
                     : 0,
                 detail::parse_delay(columns, "start_s", reader),
                 detail::parse_delay(columns, "end_s", reader)});
        if (!columns.has("depth")) continue;
        const auto depth =
            detail::parse_field<std::uint32_t>(columns.get("depth"), "depth", reader);
        const std::uint32_t before = sequence.depths.empty() ? 0 : sequence.depths.back() + 1;
        if (depth > before) reader.fail("it is inside a scope that is not there");
        sequence.depths.push_back(depth);
    }
    if (sequence.launches.empty()) reader.fail("there are no launches");
    return sequence;
}

KDVFS_INLINE LaunchSequence read_launches(const std::filesystem::path& path) {
    std::ifstream input = detail::open_input(path);
    return read_launches(input, path.string());
}

KDVFS_INLINE void write_launches(const std::filesystem::path& path,
                                 const LaunchSequence& sequence) {
    const bool gaps = !sequence.gaps.empty();
    const bool nested = std::any_of(sequence.depths.begin(), sequence.depths.end(),
                                    [](std::uint32_t depth) { return depth > 0; });
    std::string text = "kernel,variant";
    text += gaps ? ",gap_s" : "";
    text += nested ? ",depth\n" : "\n";
    for (std::size_t i = 0; i < sequence.launches.size(); ++i) {
        const KernelKey& key = sequence.launches[i];
        text += kdvfs::detail::csv_field(key.name) + ',' + std::to_string(key.variant.index);
        if (gaps) text += ',' + kdvfs::detail::to_text(sequence.gaps[i].count());
        if (nested) text += ',' + std::to_string(sequence.depths[i]);
        text += '\n';
    }
    kdvfs::detail::write_file_atomically(path, text);
}

KDVFS_INLINE std::vector<KernelKey> read_sequence(const std::filesystem::path& path) {
    std::ifstream input = detail::open_input(path);
    return read_sequence(input, path.string());
}

#endif

}  // namespace kdvfs::inline v0_3::tune
