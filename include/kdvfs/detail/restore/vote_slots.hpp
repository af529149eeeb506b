// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/error.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::restore {

/// The text of a slot: one line of fixed length, "kdvfs-vote 1 asks CORE MEMORY" in MHz, 0 for
/// auto, or "kdvfs-vote 1 none 0 0".
namespace vote_text {

inline constexpr std::size_t size = 64;
inline constexpr std::uint32_t highest = 100'000;  ///< MHz, of a clock that can be meant

inline std::string of(const std::optional<ClockPoint>& request) {
    const ClockPoint point = request.value_or(ClockPoint{});
    std::string text = std::string{"kdvfs-vote 1 "} + (request ? "asks " : "none ") +
                       std::to_string(point.core.count) + ' ' + std::to_string(point.memory.count);
    text.resize(size - 1, ' ');
    return text + '\n';
}

/// A vote, which may be for nothing. @returns nothing for any other text than `of` writes
inline std::optional<std::optional<ClockPoint>> parse(std::string_view text) {
    for (const bool asks : {true, false}) {
        const std::string_view begin = asks ? "kdvfs-vote 1 asks " : "kdvfs-vote 1 none ";
        if (!text.starts_with(begin)) continue;
        const char* const end = text.data() + text.size();
        std::uint32_t core = 0;
        std::uint32_t memory = 0;
        const auto first = std::from_chars(text.data() + begin.size(), end, core);
        if (first.ec != std::errc{} || first.ptr == end || core > highest) return std::nullopt;
        const auto second = std::from_chars(first.ptr + 1, end, memory);
        if (second.ec != std::errc{} || memory > highest) return std::nullopt;
        const std::optional<ClockPoint> vote{ClockPoint{{core}, {memory}}};
        if (std::string_view{of(asks ? vote : std::nullopt)} != text) return std::nullopt;
        return asks ? vote : std::optional<ClockPoint>{};
    }
    return std::nullopt;
}

}  // namespace vote_text

/// The folder in which the processes that share a device vote for its clocks, beside its lock:
/// LOCK's name with ".votes" for ".lock". Each has a slot, a file that it holds a lock on while it
/// lives; whoever drives the device reads them all.
class VoteFolder {
public:
    static std::string path_of(const RestorePlace& place) {
        return place.lock.substr(0, place.lock.size() - std::string_view{".lock"}.size()) +
               ".votes";
    }

    /// Opens the folder; nothing where there is none, or it belongs to another user than root.
    static std::optional<VoteFolder> find(const std::string& path) {
        Descriptor folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
        struct stat status {};
        if (!folder.is_open() || ::fstat(folder.get(), &status) != 0) return std::nullopt;
        if (status.st_uid != 0 && status.st_uid != ::geteuid() && ::geteuid() != 0)
            return std::nullopt;
        return VoteFolder{path, raised(std::move(folder))};
    }

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] int descriptor() const noexcept { return folder_.get(); }

    /// What the slots say whose processes live.
    struct Votes {
        std::size_t processes = 0;
        std::optional<ClockPoint> highest{};  ///< nothing: none asks
        std::string refused{};                ///< a slot whose text makes no sense, and was ignored
    };

    /// Removes the slots of processes that have ended, where this user may.
    /// @param accepts whether a clock point can be set on the device
    template <class Accepts>
    [[nodiscard]] Votes look(Accepts accepts) const {
        Votes votes;
        for (const std::string& name : names()) {
            const Descriptor slot = open(name);
            if (!slot.is_open()) continue;
            if (::flock(slot.get(), LOCK_SH | LOCK_NB) == 0) {
                ::unlinkat(folder_.get(), name.c_str(), 0);
                continue;
            }
            if (++votes.processes > most) continue;
            std::array<char, vote_text::size> text{};
            const ssize_t count = ::pread(slot.get(), text.data(), text.size(), 0);
            const auto vote =
                vote_text::parse({text.data(), static_cast<std::size_t>(count > 0 ? count : 0)});
            if (!vote || (*vote && !accepts(**vote))) {
                votes.refused = path_ + "/" + name;
            } else if (*vote) {
                votes.highest = votes.highest ? higher_cap(*votes.highest, **vote) : **vote;
            }
        }
        return votes;
    }

private:
    /// Votes that are read at most: more processes do not share a board in practice.
    static constexpr std::size_t most = 256;

    VoteFolder(std::string path, Descriptor folder)
        : path_{std::move(path)}, folder_{std::move(folder)} {}

    [[nodiscard]] std::vector<std::string> names() const {
        std::vector<std::string> all;
        const int again = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR* const listing = again >= 0 ? ::fdopendir(again) : nullptr;
        if (listing == nullptr) return all;
        while (const dirent* entry = ::readdir(listing)) {
            if (std::string_view{entry->d_name}.starts_with("slot-"))
                all.emplace_back(entry->d_name);
        }
        ::closedir(listing);
        return all;
    }

    [[nodiscard]] Descriptor open(const std::string& name) const {
        Descriptor slot{::openat(folder_.get(), name.c_str(),
                                 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
        struct stat status {};
        const bool is_file =
            slot.is_open() && ::fstat(slot.get(), &status) == 0 && S_ISREG(status.st_mode);
        return is_file ? std::move(slot) : Descriptor{};
    }

    std::string path_;
    Descriptor folder_;
};

/// A process's vote for the clocks of a device that another process drives. Counts from its first
/// request until it, or the process, is gone. One thread at a time.
class VoteSlot {
public:
    /// @throws Error (io) where no slot can be made
    explicit VoteSlot(VoteFolder folder) : folder_{std::move(folder)} {
        for (int attempt = 0; attempt < 10; ++attempt) {
            if (make()) return;
        }
        throw Error{Errc::io,
                    {.action = "vote for the clocks",
                     .object = folder_.path(),
                     .vendor_words = std::generic_category().message(errno),
                     .remedy = "see that this user may write there, or open the GPU to measure "
                               "only"}};
    }
    VoteSlot(const VoteSlot&) = delete;
    VoteSlot& operator=(const VoteSlot&) = delete;
    ~VoteSlot() {
        if (fork_generation() == generation_) {
            ::unlinkat(folder_.descriptor(), name_.c_str(), 0);
        }
    }

    /// Votes for clocks, or for none, from now on.
    void request(const std::optional<ClockPoint>& request) noexcept {
        if (request == voted_) return;
        voted_ = request;
        write();
    }

private:
    void write() const noexcept {
        const std::string text = vote_text::of(voted_);
        const ssize_t written = ::pwrite(file_.get(), text.data(), text.size(), 0);
        static_cast<void>(written);
    }

    /// It gets its name when it is locked: a slot that is not is of a process that has ended.
    bool make() {
        std::uint64_t number = 0;
        if (::getrandom(&number, sizeof number, 0) != sizeof number) return false;
        const std::string fresh = "new-" + std::to_string(number);
        Descriptor file =
            raised(Descriptor{::openat(folder_.descriptor(), fresh.c_str(),
                                       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644)});
        if (!file.is_open()) return false;
        ::fchmod(file.get(), 0644);  // whatever the umask: whoever drives must read it
        if (::flock(file.get(), LOCK_EX) != 0) return false;
        file_ = ProcessDescriptor{std::move(file)};
        write();
        name_ = "slot-" + std::to_string(number);
        return ::renameat(folder_.descriptor(), fresh.c_str(), folder_.descriptor(),
                          name_.c_str()) == 0;
    }

    VoteFolder folder_;
    ProcessDescriptor file_;
    std::string name_;
    std::optional<ClockPoint> voted_;
    std::uint32_t generation_ = fork_generation();
};

}  // namespace kdvfs::inline v0_3::restore
