// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/version.hpp>

#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

/// Objects that all modules of a process share, whatever their visibility, `RTLD_LOCAL` or their
/// version of kdvfs. Symbols cannot do that: g++ unites an inline variable across `RTLD_LOCAL` only
/// where its visibility is default, clang never does, and other versions must not be united.
///
/// The first module makes a page of memory with a name of its own (a memfd), which the others find
/// in /proc/self/maps. Nobody else looks meanwhile: `dl_iterate_phdr` holds the loader's lock. The
/// page is not inherited by forked children, which therefore share nothing with their parents.
/// Everything here is hidden: each module runs its own code.
namespace kdvfs::inline v0_3::io {

/// One shared object, in a list. C layout, the same in all versions: other versions read it, but
/// for `object`, which has a meaning only where `abi` is their own.
struct ProcessObject {
    ProcessObject* next = nullptr;
    const char* name = "";     ///< what it is: "open GPUs"
    const char* abi = "";      ///< what its layout depends on
    const char* version = "";  ///< of kdvfs, for people: "kdvfs 0.3.0"
    void* object = nullptr;
    /// Whether it holds the device of this name; null where it never does. Never waits.
    int (*holds)(void* object, const char* device) = nullptr;
};

/// The page. C layout, the same in all versions that know its name.
struct ProcessPage {
    static constexpr const char* file_name = "kdvfs-process-objects-1";
    static constexpr std::array<char, 16> right_format{"kdvfs objects 1"};

    std::array<char, 16> format{};
    ProcessObject* first = nullptr;
};

/// What a module must have in common with another to share objects of C++: the ABI version and what
/// changes the layout of standard types.
[[gnu::visibility("hidden")]] inline std::string abi_of_this_module() {
    std::string abi = KDVFS_ABI_VERSION;
#if defined(_LIBCPP_ABI_VERSION)
    abi += ", libc++ " + std::to_string(_LIBCPP_ABI_VERSION);
#elif defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
    abi += ", old std::string";
#endif
#if defined(_GLIBCXX_DEBUG) || defined(_LIBCPP_DEBUG)
    abi += ", debug containers";
#endif
    return abi;
}

/// "kdvfs 0.3.0".
[[gnu::visibility("hidden")]] inline std::string version_of_this_module() {
    return "kdvfs " + std::to_string(KDVFS_VERSION_MAJOR) + "." +
           std::to_string(KDVFS_VERSION_MINOR) + "." + std::to_string(KDVFS_VERSION_PATCH);
}

/// The page of this process; null where there is none. Takes no lock and no memory.
[[gnu::visibility("hidden")]] inline ProcessPage* find_process_page() noexcept {
    const Descriptor maps{::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    if (!maps.is_open()) return nullptr;
    std::array<char, 8192> text;  // a line has the path of a file in it: at most 4096 characters
    std::size_t size = 0;
    while (true) {
        const ssize_t count = ::read(maps.get(), text.data() + size, text.size() - size);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return nullptr;
        size += static_cast<std::size_t>(count);
        std::string_view left{text.data(), size};
        for (auto end = left.find('\n'); end != left.npos; end = left.find('\n')) {
            const std::string_view line = left.substr(0, end);
            left.remove_prefix(end + 1);
            if (line.find(ProcessPage::file_name) == line.npos) continue;
            if (line.find(" rw") == line.npos) continue;
            std::uintptr_t address = 0;
            std::from_chars(line.data(), line.data() + line.size(), address, 16);
            auto* const page = reinterpret_cast<ProcessPage*>(address);
            if (page != nullptr && page->format == ProcessPage::right_format) return page;
        }
        size = left.size() == text.size() ? 0 : left.size();
        std::memmove(text.data(), left.data(), size);
    }
}

/// @returns null where the system has no memory, or no memfd
[[gnu::visibility("hidden")]] inline ProcessPage* make_process_page() noexcept {
    const Descriptor file{::memfd_create(ProcessPage::file_name, MFD_CLOEXEC)};
    constexpr std::size_t size = 4096;
    if (!file.is_open() || ::ftruncate(file.get(), size) != 0) return nullptr;
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
    if (memory == MAP_FAILED) return nullptr;
    if (::madvise(memory, size, MADV_DONTFORK) != 0) {
        ::munmap(memory, size);
        return nullptr;
    }
    auto* const page = new (memory) ProcessPage;
    page->format = ProcessPage::right_format;
    return page;
}

/// Calls `visit` with the process's page, made where there is none yet, and with null where it
/// cannot be made. No other module calls it meanwhile. `visit` must not load libraries.
template <class Visit>
[[gnu::visibility("hidden")]] void visit_process_page(Visit visit) {
    ::dl_iterate_phdr(
        [](dl_phdr_info*, std::size_t, void* data) noexcept {
            ProcessPage* page = find_process_page();
            if (page == nullptr) page = make_process_page();
            (*static_cast<Visit*>(data))(page);
            return 1;  // once is enough
        },
        &visit);
}

/// The object of this name that all modules with the same ABI share; made where there is none yet,
/// never destroyed. The module that makes it is never unloaded from then on. Where the system has
/// no memfd or no /proc, an object of this module's own. Slow: keep what it returns, until a fork.
/// @param name   the same for all versions of kdvfs
/// @param layout changes with the layout of `Object` and of what it refers to
/// @param holds  whether an `Object` holds a device; null where it never does
template <class Object>
[[gnu::visibility("hidden")]] Object& shared_by_process(
    std::string_view name, std::uint64_t layout = sizeof(Object),
    int (*holds)(void* object, const char* device) = nullptr) {
    struct Mine {
        std::string name;
        std::string abi;
        std::string version = version_of_this_module();
        Object object{};
        ProcessObject entry{};
    };
    auto mine = std::make_unique<Mine>();
    mine->name = name;
    mine->abi = abi_of_this_module() + ", layout " + std::to_string(layout % 1000000);
    // Not as one braced list: nvcc 13 gives g++ one that it cannot convert.
    mine->entry.name = mine->name.c_str();
    mine->entry.abi = mine->abi.c_str();
    mine->entry.version = mine->version.c_str();
    mine->entry.object = &mine->object;
    mine->entry.holds = holds;
    void* there = nullptr;
    visit_process_page([&](ProcessPage* page) noexcept {
        if (page == nullptr) return;
        for (const ProcessObject* each = page->first; each != nullptr; each = each->next) {
            if (mine->name == each->name && mine->abi == each->abi) there = each->object;
        }
        if (there != nullptr) return;
        mine->entry.next = page->first;
        page->first = &mine->entry;
    });
    if (there != nullptr) return *static_cast<Object*>(there);
    keep_loaded(reinterpret_cast<const void*>(&version_of_this_module));
    return mine.release()->object;
}

/// What a module of another version is, in words; nothing where none of them holds the device.
[[gnu::visibility("hidden")]] inline std::optional<std::string> held_by_other_version(
    const std::string& device, const void* own) {
    ProcessObject* first = nullptr;
    visit_process_page([&](ProcessPage* page) noexcept {
        if (page != nullptr) first = page->first;
    });
    for (const ProcessObject* each = first; each != nullptr; each = each->next) {
        if (each->object == own || each->holds == nullptr) continue;
        if (each->holds(each->object, device.c_str()) == 0) continue;
        return std::string{each->version} + " (" + each->abi + ")";
    }
    return std::nullopt;
}

}  // namespace kdvfs::inline v0_3::io
