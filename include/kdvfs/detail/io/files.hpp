// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/error.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::io {

/// An environment variable; empty where it is not set. Ends with a zero.
inline std::string_view environment(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? std::string_view{} : text;
}

/// Where a machine's programs are, whatever PATH says.
inline constexpr const char* usual_folders = "/usr/bin:/bin:/usr/sbin:/sbin";

/// Finds a program as a shell does.
/// @param folders  separated by colons; a name with a slash is looked for in none of them
/// @param root     of the machine, where it is another's tree
/// @returns its absolute path; empty where there is none that this process may run
inline std::string find_program(const std::string& name, std::string_view folders,
                                const std::filesystem::path& root = {}) {
    const auto runs = [](const std::filesystem::path& path) {
        std::error_code unknown;
        return std::filesystem::is_regular_file(path, unknown) && ::access(path.c_str(), X_OK) == 0;
    };
    std::error_code unknown;
    if (name.find('/') != std::string::npos)
        return runs(name) ? std::filesystem::absolute(name, unknown).string() : std::string{};
    while (!folders.empty()) {
        const std::size_t end = std::min(folders.find(':'), folders.size());
        std::filesystem::path path{folders.substr(0, end)};
        path = root.empty() ? path / name : root / path.relative_path() / name;
        if (end > 0 && runs(path)) return std::filesystem::absolute(path, unknown).string();
        folders.remove_prefix(std::min(end + 1, folders.size()));
    }
    return {};
}

/// An open file descriptor, closed when it goes.
class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int fd) noexcept : fd_{fd} {}
    Descriptor(Descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() { close(); }

    void close() noexcept {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    /// Gives the descriptor away unclosed.
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }

private:
    int fd_ = -1;
};

inline std::atomic<std::uint32_t> forks{0};
// At load rather than at first use: no guard stands between a scope and the answer.
// Fails only where there is no memory for 24 bytes.
inline const int fork_hook = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });

/// How many forks lie between this process and the one that was started. A GPU object remembers
/// the generation that opened it: in a later one it is a copy that must not touch what the parent
/// still drives. Free of system calls.
inline std::uint32_t fork_generation() { return forks.load(std::memory_order_relaxed); }

/// A descriptor of this process alone: a forked child closes it at once, and the child's copy of
/// the object closes nothing. While a child held on to it, a lock would not be free, and a reader
/// would not see its end, when this process is gone.
class ProcessDescriptor {
public:
    ProcessDescriptor() = default;
    explicit ProcessDescriptor(Descriptor file) : file_{std::move(file)} {
        static const int registered = ::pthread_atfork(nullptr, nullptr, &close_in_child);
        static_cast<void>(registered);  // fails only where there is no memory for 24 bytes
        if (file_.is_open()) replace(none, file_.get());
    }
    ProcessDescriptor(ProcessDescriptor&&) noexcept = default;
    ProcessDescriptor& operator=(ProcessDescriptor&&) noexcept = default;
    ~ProcessDescriptor() { close(); }

    void close() noexcept {
        if (!file_.is_open()) return;
        if (fork_generation() != generation_) {
            static_cast<void>(file_.release());
            return;
        }
        replace(file_.get(), none);
        file_.close();
    }
    [[nodiscard]] int get() const noexcept { return file_.get(); }

private:
    static constexpr int none = -1;
    static constexpr std::size_t most = 128;  // beyond them a child keeps what it was given
    using Slots = std::array<std::atomic<int>, most>;

    static Slots& slots() {
        static Slots& all = []() -> Slots& {
            static Slots made;
            for (auto& slot : made) slot = none;
            return made;
        }();
        return all;
    }

    static void replace(int before, int after) noexcept {
        for (std::atomic<int>& slot : slots()) {
            int expected = before;
            if (slot.compare_exchange_strong(expected, after)) return;
        }
    }

    static void close_in_child() {
        for (std::atomic<int>& slot : slots()) {
            if (const int fd = slot.exchange(none); fd != none) ::close(fd);
        }
    }

    Descriptor file_;
    std::uint32_t generation_ = fork_generation();
};

[[noreturn]] inline void throw_file_error(std::string action, const std::filesystem::path& path,
                                          int error) {
    throw Error{Errc::io,
                {std::move(action), path.string(), std::strerror(error),
                 "check that the folder exists, is writable and has space left"}};
}

/// Runs `read`; what it finds wrong with a file is said of that file.
template <class Read>
auto naming_file(const std::string& file, Read&& read) {
    try {
        return read();
    } catch (const Error& error) {
        const ErrorText& text = error.text();
        if (error.code() != Errc::invalid_input || text.object.starts_with(file)) throw;
        const std::string& remedy = text.remedy;
        throw Error{error.code(),
                    {text.action, file + ": " + text.object, text.vendor_words,
                     remedy.empty() ? "fix that place, or write the file again" : remedy}};
    }
}

/// Writes all of `content`, however many calls that takes. Returns 0 or errno.
inline int write_all(int descriptor, std::string_view content) {
    while (!content.empty()) {
        const ssize_t written = ::write(descriptor, content.data(), content.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return errno;
        content.remove_prefix(static_cast<std::size_t>(written));
    }
    return 0;
}

/// Puts a new file in the place of a regular one, or of none. `mode` is that of the new file, less
/// the process' mask where there was none before.
inline void replace_file(const std::filesystem::path& path, std::string_view content,
                         std::optional<mode_t> mode) {
    static std::atomic<unsigned> counter{0};
    std::filesystem::path temporary = path;
    temporary.replace_filename("." + path.filename().string() + "." + std::to_string(::getpid()) +
                               "." + std::to_string(counter++) + ".tmp");

    const int descriptor =
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0) throw_file_error("create a temporary file", temporary, errno);

    int error = write_all(descriptor, content);
    if (error == 0 && mode && ::fchmod(descriptor, *mode & 0777U) != 0) error = errno;
    if (error == 0 && ::fsync(descriptor) != 0) error = errno;
    if (::close(descriptor) != 0 && error == 0) error = errno;
    if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
    if (error != 0) {
        ::unlink(temporary.c_str());
        throw_file_error("write a file", path, error);
    }
}

/// The path of what was opened, links resolved by whoever opened it.
inline std::filesystem::path path_of(int descriptor) {
    std::error_code ignored;
    return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored);
}

/// Replaces a file as a whole: readers see the old content or the new, never a part, and after a
/// failure the old file is untouched. The content goes to a temporary beside the target, reaches
/// the disk, and is renamed; the old file's mode stays. A link is followed, as far as the system
/// lets this process follow it. What is no regular file is never replaced: devices, FIFOs and
/// sockets are written to as they are, block devices and folders are refused.
/// @throws Error (io) with the operating system's words. Thread-safe.
inline void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
    const Descriptor there{::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC)};
    if (!there.is_open() && errno == ENOENT) {
        std::error_code ignored;
        if (std::filesystem::is_symlink(path, ignored))
            throw Error{Errc::io,
                        {"write a file", path.string(), "it is a link that leads nowhere",
                         "give the file itself"}};
        return replace_file(path, content, std::nullopt);
    }
    struct stat status {};
    if (!there.is_open() || ::fstat(there.get(), &status) != 0)
        throw_file_error("write a file", path, errno);
    if (S_ISBLK(status.st_mode))
        throw Error{Errc::io,
                    {"write a file", path.string(), "it is a block device", "give a file's path"}};
    if (!S_ISREG(status.st_mode)) {
        if (const int error = write_all(there.get(), content); error != 0)
            throw_file_error("write a file", path, error);
        return;
    }
    const std::filesystem::path target = path_of(there.get());
    std::error_code ignored;
    replace_file(std::filesystem::exists(target, ignored) ? target : path, content, status.st_mode);
}

/// "fnv1a64:0123456789abcdef": the 64-bit FNV-1a hash (Fowler, Noll, Vo; IETF draft-eastlake-fnv)
/// of a file's bytes. Tells versions of an input apart; it is no defence against forgery.
inline std::string content_hash(std::string_view bytes) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char byte : bytes) {
        hash ^= static_cast<unsigned char>(byte);
        hash *= 0x100000001b3;
    }
    std::string text = "fnv1a64:";
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(hash >> shift) & 15];
    return text;
}

/// Where what has been measured of a GPU is kept: the user's folder (`$XDG_DATA_HOME/kdvfs`, or
/// `~/.local/share/kdvfs`), then the machine's.
/// @param folder  what was measured
/// @param name    whose it is; letters, digits and hyphens are kept
inline std::vector<std::filesystem::path> kept_paths(const char* folder, std::string name) {
    for (char& c : name) {
        const bool kept =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
        if (!kept) c = '_';
    }
    const std::filesystem::path file = std::filesystem::path{folder} / (name + ".csv");
    std::vector<std::filesystem::path> paths;
    const auto variable = [](const char* which) {
        return std::filesystem::path{environment(which)};
    };
    if (const auto data = variable("XDG_DATA_HOME"); data.is_absolute())
        paths.push_back(data / "kdvfs" / file);
    else if (const auto home = variable("HOME"); home.is_absolute())
        paths.push_back(home / ".local/share/kdvfs" / file);
    paths.push_back(std::filesystem::path{"/var/lib/kdvfs"} / file);
    return paths;
}

/// The first of them that is there.
inline std::optional<std::filesystem::path> find_kept(
    const std::vector<std::filesystem::path>& paths) {
    for (const std::filesystem::path& path : paths) {
        std::error_code unreadable;
        if (std::filesystem::is_regular_file(path, unreadable)) return path;
    }
    return std::nullopt;
}

}  // namespace kdvfs::inline v0_3::io
