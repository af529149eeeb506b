// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>

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

/// Sweep files:
/// `gpu,kernel,core_mhz,mem_mhz,time_s,energy_j[,energy_sd_j][,variant][,group][,power_w]`
/// `[,is_baseline][,count][,sample][,block][,block_energy_j][,block_energy_sd_j]`, columns in any
/// order, unknown ones ignored. Time and energy are per launch; `energy_sd_j` is the standard
/// deviation of what the energy may be off, 0 or empty where it is not known; -1 or "auto" is the
/// board's own clock; without a variant a kernel is written as `to_string(KernelKey)` does. Rows of
/// one `block` were measured together (`ProfileBlock`); 0 or empty: by themselves.
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
    }

    [[nodiscard]] std::size_t width() const { return width_; }

    /// A field; empty where the file has no such column.
    [[nodiscard]] std::string_view get(const Fields& fields, std::size_t column) const {
        return column < width_ ? fields[column] : std::string_view{};
    }

    std::size_t gpu, kernel, variant, group, core, memory, time, energy, energy_sd, count, sample,
        is_baseline, block, block_energy, block_energy_sd;

private:
    std::size_t width_;
};

template <class Number>
Number parse_field(std::string_view text, const char* column, const io::CsvReader& reader) {
    const auto value = kdvfs::detail::parse_number<Number>(text);
    if (!value) reader.fail(kdvfs::detail::number_fault(text, column));
    return *value;
}

inline std::uint32_t parse_optional(std::string_view text, std::uint32_t otherwise,
                                    const char* column, const io::CsvReader& reader) {
    return text.empty() ? otherwise : parse_field<std::uint32_t>(text, column, reader);
}

/// 0 where there is nothing.
inline Joules parse_joules(std::string_view text, const char* column, const io::CsvReader& reader) {
    return {text.empty() ? 0 : parse_field<double>(text, column, reader)};
}

/// A name and its variant. Where no column says the variant, the name may: "sort#2".
inline void parse_key(std::string_view kernel, std::string_view variant_text,
                      const io::CsvReader& reader, KernelKey& key) {
    if (!variant_text.empty() || !ends_in_variant(kernel)) {
        key.name = kernel;
        key.variant = variant(parse_optional(variant_text, 0, "variant", reader));
        return;
    }
    const std::size_t hash = kernel.rfind('#');
    key.variant =
        variant(parse_field<std::uint32_t>(kernel.substr(hash + 1), "kernel#variant", reader));
    key.name = kernel.substr(0, hash);
}

inline Megahertz parse_clock_field(std::string_view text, const char* column,
                                   const io::CsvReader& reader) {
    const auto clock = kdvfs::detail::parse_clock(text);
    if (!clock)
        reader.fail(std::string{column} + " is no clock (1 to 100000 whole MHz, -1 or auto): \"" +
                    std::string{text.substr(0, 40)} + '"');
    return *clock;
}

inline bool parse_flag(std::string_view text, const char* column, const io::CsvReader& reader) {
    if (text.empty() || text == "0" || text == "false") return false;
    if (text == "1" || text == "true") return true;
    reader.fail(std::string{column} + " is neither 0 nor 1");
}

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

/// Reads a sweep file. Errors call the input `name`.
/// @throws Error (invalid_input) naming file and line, for anything that is not a sound profile
/// of one GPU with a baseline for every kernel.
inline Profile read_profile(std::istream& input, const std::string& name) {
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
    "gpu,kernel,variant,group,core_mhz,mem_mhz,time_s,energy_j,is_baseline,count,sample,"
    "energy_sd_j,block,block_energy_j,block_energy_sd_j\n";

/// One measurement as a line of a sweep file, so that sweeps can append as they go.
inline std::string to_csv_line(const std::string& gpu, const ProfileRow& row) {
    const std::array<std::string, 15> fields{kdvfs::detail::csv_field(gpu),
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
                                             kdvfs::detail::to_text(row.block.energy_sd.count)};
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
                text += to_csv_line(profile.gpu(),
                                    {kernel.key, point.clock, sample.cost, kernel.group,
                                     kernel.count, sample.index, point.clock == profile.baseline(),
                                     sample.energy_sd, profile.block_of(sample)});
            }
        }
    }
    return text;
}

/// A sweep file that grows as measurements are taken: each is on its way to the disk before the
/// next begins, so a killed sweep loses at most one, and goes on where it was. One process at a
/// time has the file; not thread-safe.
class SweepFile {
public:
    /// Opens a file or makes one. A last line that was cut short is dropped. Rows at `baseline`
    /// are marked as such; without it, the profile's own rule decides.
    /// @throws Error (io, busy), and (invalid_input) for what is no file or not this GPU's sweep,
    ///         which stays as it is
    SweepFile(std::filesystem::path path, const std::string& gpu,
              std::optional<ClockPoint> baseline = std::nullopt)
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

    /// What has been measured, by this process and before.
    [[nodiscard]] const Profile& profile() const { return profile_; }

    [[nodiscard]] std::optional<ClockPoint> baseline() const { return baseline_; }

    /// Adds a measurement. @throws Error (io), and as `Profile::add`
    void append(const ProfileRow& row) { append(std::vector{row}); }

    /// Adds what was measured together, in one piece.
    void append(std::vector<ProfileRow> rows) {
        std::string lines;
        for (ProfileRow& row : rows) {
            row.is_baseline = row.clock == baseline_;
            profile_.add(row);
            lines += to_csv_line(profile_.gpu(), row);
        }
        write(lines);
    }

private:
    void resume(const std::string& gpu) {
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

    void take_over(const std::string& text, const std::string& gpu) {
        std::istringstream lines{text};
        io::CsvReader reader{lines, path_.string()};
        detail::SweepRows rows = detail::read_rows(reader);
        if (!rows.profile) return;
        if (rows.profile->gpu() != gpu) reject("it is of another GPU, " + rows.profile->gpu());
        profile_ = *std::move(rows.profile);
    }

    [[noreturn]] void reject(const std::string& why) const {
        throw Error{Errc::invalid_input,
                    {"go on with a sweep", path_.string(), why, "write to another file"}};
    }

    std::string read_all() const {
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

    void write(const std::string& text) const {
        if (const int error = kdvfs::detail::write_all(file_.get(), text); error != 0)
            kdvfs::detail::throw_file_error("write a sweep file", path_, error);
    }

    std::filesystem::path path_;
    kdvfs::detail::Descriptor file_;
    Profile profile_;
    std::optional<ClockPoint> baseline_;
};

using detail::read_rows;

}  // namespace kdvfs::inline v0_3::tune
