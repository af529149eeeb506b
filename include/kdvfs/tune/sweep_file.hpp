// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/profile_csv.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::tune {

/// A sweep file that grows as measurements are taken: each is on its way to the disk before the
/// next begins, so a killed sweep loses at most one, and goes on where it was. One process at a
/// time has the file; not thread-safe.
class SweepFile {
public:
    /// Opens a file or makes one. A last line that was cut short is dropped. Rows at `baseline`
    /// are marked as such; without it, the profile's own rule decides.
    /// @throws Error (io, busy), and (invalid_input) for a file that is not this GPU's sweep
    SweepFile(std::filesystem::path path, const std::string& gpu,
              std::optional<ClockPoint> baseline = std::nullopt)
        : path_{std::move(path)},
          file_{::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)},
          profile_{gpu},
          baseline_{baseline} {
        if (!file_.is_open()) kdvfs::detail::throw_file_error("open a sweep file", path_, errno);
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
        const std::size_t whole = text.rfind('\n') + 1;  // 0 where there is no whole line
        if (whole != text.size() && ::ftruncate(file_.get(), static_cast<off_t>(whole)) != 0)
            kdvfs::detail::throw_file_error("drop a line that was cut short", path_, errno);
        text.resize(whole);
        if (text.empty()) return write(std::string{sweep_header});
        if (!text.starts_with(sweep_header)) reject("it has other columns than kdvfs writes");
        std::istringstream lines{text};
        kdvfs::detail::CsvReader reader{lines, path_.string()};
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

}  // namespace kdvfs::tune
