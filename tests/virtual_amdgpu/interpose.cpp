// SPDX-License-Identifier: MIT
//
// The libc calls that ROCm SMI and kdvfs make, answered by a virtual machine for paths below /sys.
// Folders and links stand as a skeleton on disk, so that opendir, readdir, stat and readlink need
// no model of their own; an opened file is a memfd holding what the machine answered, and what is
// written to it goes to the machine.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>

namespace virtual_amdgpu {
namespace {

struct Mount {
    Machine* machine;
    std::string skeleton;
};

std::atomic<Mount*> mounted{nullptr};
thread_local bool passing_through = false;

/// While it lives, this thread's calls go to the real libc.
class PassThrough {
public:
    PassThrough() : before_{passing_through} { passing_through = true; }
    ~PassThrough() { passing_through = before_; }

private:
    bool before_;
};

template <class Function>
Function real(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// Which virtual file a descriptor stands for. Descriptors above the table are never virtual.
class Descriptors {
public:
    void add(int fd, std::string path) {
        const std::lock_guard lock{mutex_};
        paths_[fd] = std::move(path);
        count_ = paths_.size();
    }
    void remove(int fd) {
        if (count_ == 0) return;
        const std::lock_guard lock{mutex_};
        paths_.erase(fd);
        count_ = paths_.size();
    }
    std::optional<std::string> path(int fd) {
        if (count_ == 0 || passing_through) return std::nullopt;
        const std::lock_guard lock{mutex_};
        const auto found = paths_.find(fd);
        if (found == paths_.end()) return std::nullopt;
        return found->second;
    }

private:
    std::mutex mutex_;
    std::map<int, std::string> paths_;
    std::atomic<std::size_t> count_{0};
};

Descriptors& descriptors() {
    static auto& instance =
        *new Descriptors;  // outlives every static destructor that closes a file
    return instance;
}

std::mutex shared_memory_mutex;
std::set<std::string> shared_memory_names;

/// Where in the skeleton a path stands, or nothing for a path that is not ours.
std::optional<std::string> in_skeleton(const char* path) {
    const Mount* mount = mounted;
    if (mount == nullptr || passing_through || path == nullptr) return std::nullopt;
    if (std::strncmp(path, "/sys", 4) != 0 || (path[4] != '/' && path[4] != '\0')) {
        return std::nullopt;
    }
    return mount->skeleton + path;
}

/// The machine's own name of a path, its links followed.
std::string machine_path(const std::string& skeleton_path) {
    char resolved[PATH_MAX];
    const PassThrough pass;
    const Mount* mount = mounted;
    if (::realpath(skeleton_path.c_str(), resolved) == nullptr) {
        return skeleton_path.substr(mount->skeleton.size());
    }
    return std::string{resolved}.substr(mount->skeleton.size());
}

int fail(int error) {
    errno = error;
    return -1;
}

int open_virtual(const std::string& skeleton_path, int flags) {
    Machine& machine = *mounted.load()->machine;
    const std::string path = machine_path(skeleton_path);
    if (const int error = machine.open(path)) return fail(error);
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    if (writes && !machine.find(path)->write) return fail(EACCES);
    const PassThrough pass;
    const int fd = memfd_create("virtual_amdgpu", MFD_CLOEXEC);
    if (fd >= 0) descriptors().add(fd, path);
    return fd;
}

/// Fills a just opened descriptor, so that plain reads find the text.
int load(int fd) {
    const auto path = descriptors().path(fd);
    const Answer answer = mounted.load()->machine->read(*path);
    if (answer.error != 0) return answer.error;
    const PassThrough pass;
    if (::pwrite(fd, answer.text.data(), answer.text.size(), 0) < 0) return errno;
    return 0;
}

FILE* fopen_virtual(const std::string& skeleton_path, const char* mode) {
    const bool reads = mode[0] == 'r' && std::strchr(mode, '+') == nullptr;
    const int fd = open_virtual(skeleton_path, reads ? O_RDONLY : O_WRONLY);
    if (fd < 0) return nullptr;
    return ::fdopen(fd, mode);
}

ssize_t write_virtual(const std::string& path, std::string_view text) {
    Mount* mount = mounted;
    if (mount == nullptr) return fail(ENODEV);
    if (const int error = mount->machine->write(path, text)) return fail(error);
    return static_cast<ssize_t>(text.size());
}

std::string make_skeleton(const Machine& machine) {
    std::string root = "/dev/shm/virtual_amdgpu.XXXXXX";  // memory, where there is any to write to
    if (::mkdtemp(root.data()) == nullptr) root = "/tmp/virtual_amdgpu.XXXXXX";
    if (root.ends_with("XXXXXX") && ::mkdtemp(root.data()) == nullptr) {
        std::perror("virtual_amdgpu: mkdtemp");
        std::abort();
    }
    for (const auto& [path, node] : machine.nodes()) {
        if (node.kind == Node::Kind::folder) std::filesystem::create_directories(root + path);
    }
    for (const auto& [path, node] : machine.nodes()) {
        if (node.kind == Node::Kind::link)
            std::filesystem::create_symlink(node.target, root + path);
        if (node.kind != Node::Kind::file) continue;
        const int fd = ::open((root + path).c_str(), O_CREAT | O_WRONLY, node.write ? 0644 : 0444);
        if (fd >= 0) ::close(fd);
    }
    return root;
}

}  // namespace

Mounted::Mounted(Machine& machine) {
    const PassThrough pass;
    skeleton_ = make_skeleton(machine);
    if (mounted.exchange(new Mount{&machine, skeleton_}) != nullptr) {
        std::fputs("virtual_amdgpu: two machines mounted at once\n", stderr);
        std::abort();
    }
}

Mounted::~Mounted() {
    const PassThrough pass;
    delete mounted.exchange(nullptr);
    std::error_code ignored;
    std::filesystem::remove_all(skeleton_, ignored);
    const std::lock_guard lock{shared_memory_mutex};
    for (const std::string& name : shared_memory_names) ::shm_unlink(name.c_str());
    shared_memory_names.clear();
}

std::string Mounted::shared_memory_name(const std::string& name) {
    const std::size_t slash = name.starts_with('/') ? 1 : 0;
    return "/virtual_amdgpu_" + std::to_string(::getpid()) + "_" + name.substr(slash);
}

}  // namespace virtual_amdgpu

using namespace virtual_amdgpu;

extern "C" {

int open(const char* path, int flags, ...) {
    static const auto original = real<int (*)(const char*, int, ...)>("open");
    std::va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    const auto mapped = in_skeleton(path);
    return mapped ? open_virtual(*mapped, flags) : original(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
    std::va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open(path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
    static const auto original = real<FILE* (*)(const char*, const char*)>("fopen");
    const auto mapped = in_skeleton(path);
    return mapped ? fopen_virtual(*mapped, mode) : original(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
    static const auto original = real<FILE* (*)(const char*, const char*)>("fopen64");
    const auto mapped = in_skeleton(path);
    return mapped ? fopen_virtual(*mapped, mode) : original(path, mode);
}

int stat(const char* path, struct stat* status) noexcept {
    static const auto original = real<int (*)(const char*, struct stat*)>("stat");
    const auto mapped = in_skeleton(path);
    return original(mapped ? mapped->c_str() : path, status);
}

int access(const char* path, int mode) noexcept {
    static const auto original = real<int (*)(const char*, int)>("access");
    const auto mapped = in_skeleton(path);
    return original(mapped ? mapped->c_str() : path, mode);
}

DIR* opendir(const char* path) {
    static const auto original = real<DIR* (*)(const char*)>("opendir");
    const auto mapped = in_skeleton(path);
    return original(mapped ? mapped->c_str() : path);
}

ssize_t readlink(const char* path, char* buffer, size_t size) noexcept {
    static const auto original = real<ssize_t (*)(const char*, char*, size_t)>("readlink");
    const auto mapped = in_skeleton(path);
    return original(mapped ? mapped->c_str() : path, buffer, size);
}

ssize_t read(int fd, void* buffer, size_t size) {
    static const auto original = real<ssize_t (*)(int, void*, size_t)>("read");
    if (descriptors().path(fd) && ::lseek(fd, 0, SEEK_CUR) == 0) {
        if (const int error = load(fd)) return fail(error);
    }
    return original(fd, buffer, size);
}

// A read at an offset is answered anew each time, as by sysfs.
ssize_t pread(int fd, void* buffer, size_t size, off_t offset) {
    static const auto original = real<ssize_t (*)(int, void*, size_t, off_t)>("pread");
    const auto path = descriptors().path(fd);
    if (!path) return original(fd, buffer, size, offset);
    Mount* mount = mounted;
    if (mount == nullptr) return fail(ENODEV);
    const Answer answer = mount->machine->read(*path);
    if (answer.error != 0) return fail(answer.error);
    if (offset < 0 || static_cast<size_t>(offset) >= answer.text.size()) return 0;
    const size_t count = std::min(size, answer.text.size() - static_cast<size_t>(offset));
    std::memcpy(buffer, answer.text.data() + offset, count);
    return static_cast<ssize_t>(count);
}

ssize_t pread64(int fd, void* buffer, size_t size, off64_t offset) {
    return pread(fd, buffer, size, offset);
}

size_t fread(void* buffer, size_t size, size_t count, FILE* file) {
    static const auto original = real<size_t (*)(void*, size_t, size_t, FILE*)>("fread");
    const int fd = ::fileno(file);
    if (descriptors().path(fd) && std::ftell(file) == 0) {
        if (const int error = load(fd)) {
            errno = error;
            return 0;
        }
    }
    return original(buffer, size, count, file);
}

ssize_t write(int fd, const void* buffer, size_t size) {
    static const auto original = real<ssize_t (*)(int, const void*, size_t)>("write");
    const auto path = descriptors().path(fd);
    if (!path) return original(fd, buffer, size);
    return write_virtual(*path, {static_cast<const char*>(buffer), size});
}

ssize_t writev(int fd, const iovec* parts, int count) {
    static const auto original = real<ssize_t (*)(int, const iovec*, int)>("writev");
    const auto path = descriptors().path(fd);
    if (!path) return original(fd, parts, count);
    std::string text;
    for (int i = 0; i < count; ++i) {
        text.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    }
    return write_virtual(*path, text);
}

int close(int fd) {
    static const auto original = real<int (*)(int)>("close");
    descriptors().remove(fd);
    return original(fd);
}

int fclose(FILE* file) {
    static const auto original = real<int (*)(FILE*)>("fclose");
    descriptors().remove(::fileno(file));
    return original(file);
}

uid_t geteuid() noexcept {
    static const auto original = real<uid_t (*)()>("geteuid");
    const Mount* mount = mounted;
    return mount != nullptr && !passing_through ? mount->machine->user() : original();
}

int shm_open(const char* name, int flags, mode_t mode) {
    static const auto original = real<int (*)(const char*, int, mode_t)>("shm_open");
    if (mounted.load() == nullptr || passing_through) return original(name, flags, mode);
    const std::string own = Mounted::shared_memory_name(name);
    {
        const std::lock_guard lock{shared_memory_mutex};
        shared_memory_names.insert(own);
    }
    return original(own.c_str(), flags, mode);
}

}  // extern "C"
