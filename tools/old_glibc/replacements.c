// SPDX-License-Identifier: MIT
// What this compiler's headers, libstdc++.a and libgcc_eh.a want of a glibc newer than 2.28, for
// programs that are linked against stub_libraries.py's. Hidden: other modules keep the real ones.
// Where the machine's glibc has the real function, it is called.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// What headers called up to 2.32, with the version of the structure.
extern int __xstat(int version, const char* path, struct stat* result);
extern int __lxstat(int version, const char* path, struct stat* result);
extern int __fxstat(int version, int file, struct stat* result);
enum { structure_version = 1 };  // _STAT_VER of x86-64

#pragma GCC visibility push(hidden)

/// 2.32. False is always right: the reference counts of shared pointers stay atomic.
char __libc_single_threaded = 0;

// 2.33
int stat(const char* path, struct stat* result) {
    return __xstat(structure_version, path, result);
}
int lstat(const char* path, struct stat* result) {
    return __lxstat(structure_version, path, result);
}
int fstat(int file, struct stat* result) { return __fxstat(structure_version, file, result); }
int fstat64(int file, struct stat64* result) {
    return __fxstat(structure_version, file, (struct stat*)result);  // one layout on x86-64
}

/// 2.36, of std::random_device.
uint32_t arc4random(void) {
    uint32_t value = 0;
    size_t read = 0;
    while (read < sizeof value) {
        const ssize_t more = getrandom((char*)&value + read, sizeof value - read, 0);
        if (more > 0) {
            read += (size_t)more;
        } else if (errno != EINTR) {
            abort();  // a kernel before 3.17
        }
    }
    return value;
}

// 2.35, of the unwinder: the module that holds an address, and its table of frames.
struct search {
    const char* address;
    struct dl_find_object* result;
};

static int is_in_module(struct dl_phdr_info* info, size_t size, void* data) {
    (void)size;
    const struct search* search = data;
    const char* frames = NULL;
    const char* begin = (const char*)UINTPTR_MAX;
    const char* end = NULL;
    int holds = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)* part = &info->dlpi_phdr[i];
        const char* at = (const char*)(info->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_GNU_EH_FRAME) frames = at;
        if (part->p_type != PT_LOAD) continue;
        if (at < begin) begin = at;
        if (at + part->p_memsz > end) end = at + part->p_memsz;
        if (search->address >= at && search->address < at + part->p_memsz) holds = 1;
    }
    if (!holds || frames == NULL) return 0;
    search->result->dlfo_map_start = (void*)begin;
    search->result->dlfo_map_end = (void*)end;
    search->result->dlfo_eh_frame = (void*)frames;
    return 1;
}

int _dl_find_object(void* address, struct dl_find_object* result) {
    const struct search search = {address, result};
    memset(result, 0, sizeof *result);
    return dl_iterate_phdr(is_in_module, (void*)&search) == 1 ? 0 : -1;
}

/// `deadline` of `clock` as a time of CLOCK_REALTIME.
static struct timespec as_real_time(clockid_t clock, const struct timespec* deadline) {
    struct timespec now;
    struct timespec real;
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &real);
    const int64_t second = 1000000000;
    const int64_t left =
        (deadline->tv_sec - now.tv_sec) * second + (deadline->tv_nsec - now.tv_nsec);
    const int64_t at = real.tv_sec * second + real.tv_nsec + (left > 0 ? left : 0);
    return (struct timespec){.tv_sec = at / second, .tv_nsec = at % second};
}

// 2.30, of std::condition_variable and std::timed_mutex: both ask the clock again where a wait has
// ended too early, as it does where the time of day is set forward.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
    int (*real)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
    *(void**)&real = dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
    if (real != NULL) return real(condition, mutex, clock, deadline);
    const struct timespec at = as_real_time(clock, deadline);
    return pthread_cond_timedwait(condition, mutex, &at);
}

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                            const struct timespec* deadline) {
    int (*real)(pthread_mutex_t*, clockid_t, const struct timespec*);
    *(void**)&real = dlsym(RTLD_DEFAULT, "pthread_mutex_clocklock");
    if (real != NULL) return real(mutex, clock, deadline);
    const struct timespec at = as_real_time(clock, deadline);
    return pthread_mutex_timedlock(mutex, &at);
}

/// 2.34. Without it, what is open now is closed file by file.
int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int first) {
    int (*real)(posix_spawn_file_actions_t*, int);
    *(void**)&real = dlsym(RTLD_DEFAULT, "posix_spawn_file_actions_addclosefrom_np");
    if (real != NULL) return real(actions, first);
    DIR* files = opendir("/proc/self/fd");
    if (files == NULL) return errno;
    int failed = 0;
    for (struct dirent* entry = readdir(files); entry != NULL && failed == 0;
         entry = readdir(files)) {
        const int file = atoi(entry->d_name);
        if (file >= first && entry->d_name[0] != '.' && file != dirfd(files)) {
            failed = posix_spawn_file_actions_addclose(actions, file);
        }
    }
    closedir(files);
    return failed;
}

#pragma GCC visibility pop
