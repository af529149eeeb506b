// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <concepts>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace kdvfs::inline v0_3::restore {

[[noreturn]] inline void reject(const std::string& path, std::string why) {
    throw Error{Errc::refused,
                {.action = "trust what is written",
                 .object = path,
                 .vendor_words = std::move(why),
                 .remedy = "see that the GPU's clocks are as they should be, then remove it"}};
}

/// A descriptor above the three of standard input, output and error, and above those that a
/// watchdog is given: what a program does to its low numbers does not reach it.
inline Descriptor raised(Descriptor file) {
    if (!file.is_open() || file.get() >= 10) return file;
    const int error = errno;
    Descriptor above{::fcntl(file.get(), F_DUPFD_CLOEXEC, 10)};
    errno = above.is_open() ? error : errno;
    return above;
}

/// Whether an open file has no name any more.
inline bool is_removed(int file) noexcept {
    struct stat status {};
    return ::fstat(file, &status) == 0 && status.st_nlink == 0;
}

/// The folder that holds the restore record of one GPU. It steers what a privileged process does
/// later: it has one owner, only the owner or root may write there, and no link is followed into or
/// out of it.
class RestoreFolder {
public:
    /// Opens a folder; nothing where there is none or it may not be opened.
    /// @throws Error (refused) where it is a link, no folder, or others may write to it
    static std::optional<RestoreFolder> find(const std::string& path) {
        Descriptor folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
        if (!folder.is_open()) {
            if (errno == ELOOP || errno == ENOTDIR) reject(path, "it is no folder, or a link");
            return std::nullopt;
        }
        struct stat status {};
        if (::fstat(folder.get(), &status) != 0) reject(path, "it cannot be examined");
        if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) reject(path, "others may write to it");
        return RestoreFolder{path, raised(std::move(folder)), status.st_uid};
    }

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] int descriptor() const noexcept { return folder_.get(); }
    [[nodiscard]] uid_t owner() const noexcept { return owner_; }

    /// Opens a file that is there; not open where there is none.
    /// @throws Error (refused) where it is not to be trusted
    [[nodiscard]] Descriptor open(const char* name, int access = O_RDONLY) const {
        const std::string path = path_ + "/" + name;
        Descriptor file = raised(Descriptor{::openat(
            folder_.get(), name, access | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)});
        if (!file.is_open()) {
            if (errno == ENOENT) return file;
            reject(path, errno == ELOOP ? "it is a link" : std::generic_category().message(errno));
        }
        struct stat status {};
        if (::fstat(file.get(), &status) != 0) reject(path, "it cannot be examined");
        if (!S_ISREG(status.st_mode)) reject(path, "it is no file");
        if (status.st_nlink > 1) reject(path, "it has a second name");
        if (status.st_uid != owner_ && status.st_uid != 0) {
            reject(path, "it belongs to user " + std::to_string(status.st_uid) +
                             " and its folder to user " + std::to_string(owner_));
        }
        if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) reject(path, "others may write to it");
        return file;
    }

    void remove(const char* name) const noexcept { ::unlinkat(folder_.get(), name, 0); }

private:
    RestoreFolder(std::string path, Descriptor folder, uid_t owner)
        : path_{std::move(path)}, folder_{std::move(folder)}, owner_{owner} {}

    std::string path_;
    Descriptor folder_;
    uid_t owner_;
};

/// Whether a folder is that of this container alone: this process is not in the machine's first PID
/// namespace, and nothing is mounted there.
inline bool is_of_container(const std::string& folder) {
    constexpr ino_t first_pid_namespace = 0xEFFFFFFC;  // PROC_PID_INIT_INO of Linux
    struct stat pids {};
    struct stat inside {};
    struct stat above {};
    if (::stat("/proc/self/ns/pid", &pids) != 0 || pids.st_ino == first_pid_namespace) return false;
    return ::stat(folder.c_str(), &inside) == 0 && ::stat((folder + "/..").c_str(), &above) == 0 &&
           inside.st_dev == above.st_dev;
}

/// A device that is set by a file: whoever may write to that may set the device. Of others only
/// root may.
template <class Device>
concept SetByFile = requires(const Device& device) {
    { device.settings_file() } -> std::convertible_to<std::string>;
};

/// The path of that file; empty where root alone may set the device.
template <class Device>
std::string settings_file_of(const Device& device) {
    if constexpr (SetByFile<Device>) return device.settings_file();
    return {};
}

/// Who may read a file, and so lock it.
struct Readers {
    uid_t user = 0;
    gid_t group = 0;
    mode_t mode = 0600;

    /// Those who may write to another file; root alone where that has no name, or is not there.
    static Readers writers_of(const std::string& path) {
        struct stat status {};
        if (path.empty() || ::stat(path.c_str(), &status) != 0) return {};
        Readers readers{status.st_uid, status.st_gid, S_IRUSR | S_IWUSR};
        if ((status.st_mode & S_IWGRP) != 0) readers.mode |= S_IRGRP;
        if ((status.st_mode & S_IWOTH) != 0) readers.mode |= S_IROTH;
        return readers;
    }

    /// Whether they and no others may read a file.
    [[nodiscard]] bool are_those_of(const struct stat& file) const {
        constexpr mode_t others = S_IRGRP | S_IROTH;
        const bool same_group = (mode & S_IRGRP) == 0 || file.st_gid == group;
        return file.st_uid == user && same_group && (file.st_mode & others) == (mode & others);
    }
};

/// Where a GPU's restore record and its lock are, and for whom they hold.
///
/// A machine has one folder for all its users, /run/kdvfs, made by root, and refused where others
/// may write to it, for they could hold any lock there and keep root out: in it a folder for each
/// GPU, which a scheduler's prolog gives to the user of the job, and beside that the GPU's lock,
/// which is made by root and only ever opened for reading (`flock` asks for no more, and where
/// fs.protected_regular is 2 nobody may create over another's file). Nobody else may open it than
/// who may set the device: a lock that anybody could hold would keep root out. Without the folder a
/// user has one of its own, and what is locked there is locked for that user alone.
struct RestorePlace {
    static constexpr const char* machine_root = "/run/kdvfs";

    RestoreFolder folder;
    std::string lock;             ///< path
    bool for_machine = false;     ///< the lock is the one of all users of the machine
    std::string settings_file{};  ///< by which the device is set

    /// Where this process keeps what it owes to a GPU.
    /// @param settings_file whose writers may set it; empty: root alone
    /// @throws Error (refused) where the GPU is given to somebody else, or others than root may
    /// write to the machine's folder, (io) where no folder can be made
    static RestorePlace of_this_process(const std::string& device, const std::string& settings_file,
                                        const std::string& machine = machine_root) {
        require_closed(machine);
        if (::geteuid() == 0) {
            make_for_machine(machine, device, Readers::writers_of(settings_file));
        }
        const std::string shared_lock = machine + "/" + device + ".lock";
        const bool has_lock = may_read(shared_lock, device);
        const std::string given = machine + "/" + device;
        if (has_lock) {
            auto folder = RestoreFolder::find(given);
            const bool may_use =
                folder && (folder->owner() == ::geteuid() || ::geteuid() == 0) &&
                ::faccessat(folder->descriptor(), ".", W_OK | X_OK, AT_EACCESS) == 0;
            if (may_use) return {std::move(*folder), shared_lock, true, settings_file};
        }
        return in_own(own_root(), device, has_lock ? shared_lock : std::string{});
    }

    /// Where the record and the lock of a device's owner are, for whoever only looks: nothing is
    /// made. Nothing where there is none.
    /// @throws Error (refused) as `of_this_process`
    static std::optional<RestorePlace> find(const std::string& device,
                                            const std::string& machine = machine_root) {
        require_closed(machine);
        const std::string shared_lock = machine + "/" + device + ".lock";
        const bool has_lock = may_read(shared_lock, device);
        if (has_lock) {
            if (auto folder = RestoreFolder::find(machine + "/" + device)) {
                return RestorePlace{std::move(*folder), shared_lock, true};
            }
        }
        const std::string lock = own_lock(device, machine);
        auto folder = RestoreFolder::find(own_root() + "/" + device);
        if (!folder || ::access(lock.c_str(), R_OK) != 0) return std::nullopt;
        return RestorePlace{std::move(*folder), lock, has_lock};
    }

    /// A place in a folder of the caller's own; for tests, and machines without /run/kdvfs.
    static RestorePlace in_own(const std::string& root, const std::string& device,
                               std::string shared_lock = {}) {
        const std::string path = root + "/" + device;
        for (const std::string& made : {root, path}) {
            if (::mkdir(made.c_str(), 0700) != 0 && errno != EEXIST) cannot("make", made);
            auto folder = RestoreFolder::find(made);
            if (!folder) cannot("open", made);
            if (folder->owner() != ::geteuid()) {
                reject(made, "it belongs to user " + std::to_string(folder->owner()));
            }
        }
        const bool for_machine = !shared_lock.empty();
        if (!for_machine) {
            shared_lock = path + ".lock";
            make_lock(shared_lock, {::geteuid(), ::getegid(), 0600});
            ::mkdir((path + ".votes").c_str(), 0700);
        }
        return {*RestoreFolder::find(path), std::move(shared_lock), for_machine};
    }

    /// "/run/kdvfs/0000:c1:00.0, one owner on this machine".
    [[nodiscard]] std::string words() const {
        const std::string root = lock.substr(0, lock.rfind('/'));
        return folder.path() +
               (!for_machine
                    ? ", one owner among this user's processes only (there is no /run/kdvfs for "
                      "this GPU)"
                : is_of_container(root)
                    ? ", one owner in this container only (" + root + " of the host is not mounted)"
                    : ", one owner on this machine");
    }

    /// Where a user keeps records on a machine that has no folder for all: what KDVFS_RECORDS
    /// names, else a folder that every process of this user finds, whoever has started it, and that
    /// is there until the machine boots: in /run/lock, where users may make one, else in /tmp. Not
    /// XDG_RUNTIME_DIR or /run/user/UID: these go when the user logs out, and a job of a scheduler,
    /// of cron or under nohup runs on.
    static std::string own_root() {
        std::string named{environment("KDVFS_RECORDS")};
        if (!named.empty()) return named;
        const std::string parent = may_make_in("/run/lock") ? "/run/lock" : "/tmp";
        return parent + "/kdvfs-" + std::to_string(::geteuid());
    }

    /// The lock of a record in `own_root()`: the machine's, where there is one.
    /// @throws Error (refused) as `of_this_process`
    static std::string own_lock(const std::string& device,
                                const std::string& machine = machine_root) {
        require_closed(machine);
        const std::string shared_lock = machine + "/" + device + ".lock";
        return may_read(shared_lock, device) ? shared_lock : own_root() + "/" + device + ".lock";
    }

    /// The same place once more, after what was there has been removed.
    /// @throws Error as `of_this_process`
    [[nodiscard]] RestorePlace made_again(const std::string& device) const {
        const std::string root = lock.substr(0, lock.rfind('/'));
        return for_machine ? of_this_process(device, settings_file, root) : in_own(root, device);
    }

    /// @throws Error (refused) where others than its owner may write to the machine's folder
    static void require_closed(const std::string& machine) {
        struct stat status {};
        if (::stat(machine.c_str(), &status) != 0) return;
        if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return;
        throw Error{Errc::refused,
                    {.action = "keep locks and restore records",
                     .object = machine,
                     .vendor_words = "others than root may write to it",
                     .remedy = "let an administrator remove what others have made in it, and chmod "
                               "0755 " +
                               machine}};
    }

private:
    [[noreturn]] static void cannot(const char* what, const std::string& path) {
        throw Error{Errc::io,
                    {.action = std::string{what} + " a folder for restore records",
                     .object = path,
                     .vendor_words = std::generic_category().message(errno),
                     .remedy = "let an administrator make /run/kdvfs (prolog.sh does), or set "
                               "KDVFS_RECORDS to a folder of this user's own"}};
    }

    /// Whether everybody may make a folder in it, and remove none of another's.
    static bool may_make_in(const char* path) {
        struct stat status {};
        constexpr mode_t shared = S_ISVTX | S_IWOTH;
        return ::stat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == 0 &&
               (status.st_mode & shared) == shared && ::access(path, W_OK | X_OK) == 0;
    }

    /// What root lacks is made, what it cannot make is seen later.
    static void make_for_machine(const std::string& machine, const std::string& device,
                                 const Readers& readers) {
        for (const std::string& path : {machine, machine + "/" + device}) {
            if (::mkdir(path.c_str(), 0755) == 0)
                ::chmod(path.c_str(), 0755);  // whatever the umask
        }
        const std::string lock = machine + "/" + device + ".lock";
        remove_unfit(lock, machine + "/" + device, readers);
        make_lock(lock, readers);
        // As /tmp: whoever shares the GPU has a file there, and removes no other's.
        const std::string votes = machine + "/" + device + ".votes";
        if (::mkdir(votes.c_str(), 01777) == 0) ::chmod(votes.c_str(), 01777);
    }

    static void make_lock(const std::string& path, const Readers& readers) {
        const Descriptor made{
            ::open(path.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
        if (!made.is_open()) return;
        if (::fchown(made.get(), readers.user, readers.group) == 0) {
            ::fchmod(made.get(), readers.mode);
        }
    }

    /// A lock that is for others than may set the device now, unless somebody holds it, or a prolog
    /// has given it away, together with the device's folder.
    static void remove_unfit(const std::string& path, const std::string& folder,
                             const Readers& readers) {
        const Descriptor lock{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
        struct stat status {};
        if (!lock.is_open() || ::fstat(lock.get(), &status) != 0) return;
        if (readers.are_those_of(status)) return;
        struct stat given {};
        if (status.st_uid != 0 && ::lstat(folder.c_str(), &given) == 0 &&
            given.st_uid == status.st_uid) {
            return;
        }
        if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    }

    /// @throws Error (refused) where there is a lock, given to somebody else
    static bool may_read(const std::string& lock, const std::string& device) {
        struct stat status {};
        if (::lstat(lock.c_str(), &status) != 0) return false;
        if (::faccessat(AT_FDCWD, lock.c_str(), R_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) == 0) {
            return true;
        }
        throw Error{Errc::refused,
                    {.action = "own the clocks",
                     .object = device,
                     .vendor_words = lock + " is given to user " + std::to_string(status.st_uid),
                     .remedy = status.st_uid == 0
                                   ? "only root may set them here: open it to measure only, or let "
                                     "an administrator give this user the GPU (prolog.sh does)"
                                   : "use a GPU of this user's job, or open it to measure only"}};
    }
};

}  // namespace kdvfs::inline v0_3::restore
