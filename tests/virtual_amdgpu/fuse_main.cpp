// SPDX-License-Identifier: MIT
//
// virtual_amdgpu_fuse MOUNTPOINT: four virtual GPUs (MI210 and MI300X, two of each), or those that
// KDVFS_VIRTUAL_BOARDS names ("mi210 mi300x_1.9"), as a file system, so that several processes,
// and programs that are not ours, see the same boards. A write
// takes 1 ms, as on real ones. Files have owners and modes, which can be changed. Stays in the
// foreground.
#define FUSE_USE_VERSION 31
#include "machine.hpp"

#include <fcntl.h>
#include <fuse.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

using virtual_amdgpu::Machine;
using virtual_amdgpu::Node;

std::unique_ptr<Machine> machine;

constexpr const char* four_boards = "mi210 mi300x mi210 mi300x";

/// @throws std::out_of_range for a name that is none
std::vector<virtual_amdgpu::Board> boards_of(const std::string& names) {
    using namespace virtual_amdgpu;
    static const std::map<std::string, Board> known{{"mi210", mi210()},
                                                    {"mi250x", mi250x()},
                                                    {"mi250x_second", mi250x_secondary()},
                                                    {"mi300x", mi300x()},
                                                    {"mi300x_1.3", mi300x(3)},
                                                    {"mi300x_1.6", mi300x(6)},
                                                    {"mi300x_1.8", mi300x(8)},
                                                    {"mi300x_1.9", mi300x(9)},
                                                    {"mi300x_1.9_no_energy", mi300x(9, false)},
                                                    {"mi400", mi400()},
                                                    {"mi400_points", mi400_with_points()}};
    std::vector<Board> boards;
    std::istringstream words{names};
    for (std::string name; words >> name;) boards.push_back(known.at(name));
    return boards;
}

/// Whose a file is, where somebody has changed that.
struct Rights {
    uid_t user = 0;
    gid_t group = 0;
    mode_t mode = 0;
};
std::map<std::string, Rights> changed_rights;
std::mutex rights_mutex;

Rights rights_of(const std::string& path, mode_t mode) {
    const std::lock_guard lock{rights_mutex};
    const auto changed = changed_rights.find(path);
    return changed != changed_rights.end() ? changed->second : Rights{.mode = mode};
}

std::string full(const char* path) {
    return std::strcmp(path, "/") == 0 ? "/sys" : "/sys" + std::string{path};
}

int get_attributes(const char* path, struct stat* status, fuse_file_info*) {
    const Node* node = machine->find(full(path));
    if (node == nullptr) return -ENOENT;
    *status = {};
    status->st_nlink = 1;
    switch (node->kind) {
        case Node::Kind::folder: status->st_mode = S_IFDIR | 0755; break;
        case Node::Kind::link: status->st_mode = S_IFLNK | 0777; break;
        case Node::Kind::file:
            status->st_mode = S_IFREG | (node->write ? 0644U : 0444U);
            status->st_size = 4096;
            break;
    }
    const Rights rights = rights_of(full(path), status->st_mode);
    status->st_uid = rights.user;
    status->st_gid = rights.group;
    status->st_mode = rights.mode;
    return 0;
}

/// Changes the rights of a file by `change`.
template <class Change>
int change_rights(const char* path, Change change) {
    struct stat status {};
    if (const int error = get_attributes(path, &status, nullptr)) return error;
    Rights rights{status.st_uid, status.st_gid, status.st_mode};
    change(rights);
    const std::lock_guard lock{rights_mutex};
    changed_rights[full(path)] = rights;
    return 0;
}

int change_owner(const char* path, uid_t user, gid_t group, fuse_file_info*) {
    return change_rights(path, [&](Rights& rights) {
        if (user != static_cast<uid_t>(-1)) rights.user = user;
        if (group != static_cast<gid_t>(-1)) rights.group = group;
    });
}

int change_mode(const char* path, mode_t mode, fuse_file_info*) {
    return change_rights(
        path, [&](Rights& rights) { rights.mode = (rights.mode & S_IFMT) | (mode & 07777U); });
}

int list(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
         fuse_readdir_flags) {
    const std::string folder = full(path) + "/";
    const auto& nodes = machine->nodes();
    for (auto at = nodes.lower_bound(folder); at != nodes.end(); ++at) {
        if (!at->first.starts_with(folder)) break;
        const std::string name = at->first.substr(folder.size());
        if (name.find('/') == std::string::npos) {
            fill(buffer, name.c_str(), nullptr, 0, fuse_fill_dir_flags{});
        }
    }
    return 0;
}

int read_link(const char* path, char* buffer, size_t size) {
    const Node* node = machine->find(full(path));
    if (node == nullptr || node->kind != Node::Kind::link) return -EINVAL;
    const size_t length = std::min(size - 1, node->target.size());
    std::memcpy(buffer, node->target.data(), length);
    buffer[length] = '\0';
    return 0;
}

int open_file(const char* path, fuse_file_info* file) {
    if (const int error = machine->open(full(path))) return -error;
    file->direct_io = 1;  // every read is answered anew, as by sysfs
    return 0;
}

int read_file(const char* path, char* buffer, size_t size, off_t offset, fuse_file_info*) {
    const auto answer = machine->read(full(path));
    if (answer.error != 0) return -answer.error;
    const auto start = std::min(static_cast<size_t>(offset), answer.text.size());
    const size_t count = std::min(size, answer.text.size() - start);
    std::memcpy(buffer, answer.text.data() + start, count);
    return static_cast<int>(count);
}

int write_file(const char* path, const char* text, size_t size, off_t, fuse_file_info*) {
    const int error = machine->write(full(path), {text, size});
    return error != 0 ? -error : static_cast<int>(size);
}

int truncate_file(const char*, off_t, fuse_file_info*) { return 0; }

}  // namespace

int main(int argc, char** argv) {
    const char* const named = std::getenv("KDVFS_VIRTUAL_BOARDS");
    machine = std::make_unique<Machine>(boards_of(named != nullptr ? named : four_boards));
    for (std::size_t i = 0; i < machine->size(); ++i) {
        machine->gpu(i).set_access_time({}, std::chrono::milliseconds{1});
    }
    fuse_operations operations{};
    operations.getattr = get_attributes;
    operations.readdir = list;
    operations.readlink = read_link;
    operations.open = open_file;
    operations.read = read_file;
    operations.write = write_file;
    operations.truncate = truncate_file;
    operations.chown = change_owner;
    operations.chmod = change_mode;
    char foreground[] = "-f";
    // Jobs are not root: the kernel checks their rights, as for sysfs.
    char option[] = "-o";
    char rights[] = "allow_other,default_permissions,attr_timeout=0";
    std::vector<char*> arguments{argv, argv + argc};
    for (char* word : {foreground, option, rights}) arguments.push_back(word);
    return fuse_main(static_cast<int>(arguments.size()), arguments.data(), &operations, nullptr);
}
