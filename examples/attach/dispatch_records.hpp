// SPDX-License-Identifier: MIT
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

namespace attach {

/// The driver's own records of when dispatches ran on an AMD GPU: where there are any, launches get
/// no markers. This is the door for rocprofiler-sdk, whose buffered records of kernel dispatches
/// carry an external correlation number that the launching thread has pushed; its service can be
/// configured by a library of its own alone, which speaks these five functions.
/// `KDVFS_DISPATCH_RECORDS` names that library. So far there is a double of one, and no other.
struct DispatchRecords {
    /// A dispatch has run: the number pushed at its launch, when, in ns by `now`.
    using Ran = void (*)(std::uint64_t launch, std::uint64_t start, std::uint64_t end);

    int (*begin)(Ran ran) = nullptr;  ///< from here on records come, on any thread; 0 where they do
    void (*push)(std::uint64_t launch) = nullptr;  ///< dispatches of this thread have this number
    void (*pop)() = nullptr;                       ///< until here
    /// What has run by now is told before it returns; also while the process ends.
    void (*flush)() = nullptr;
    std::uint64_t (*now)() = nullptr;  ///< by the records' clock

    /// @param why not, where it is asked for and cannot be had
    /// @returns nothing where it is not asked for or cannot be had
    static std::optional<DispatchRecords> open(std::string& why) {
        const char* const path = std::getenv("KDVFS_DISPATCH_RECORDS");
        if (path == nullptr || *path == '\0') return std::nullopt;
        void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            const char* const words = ::dlerror();
            why = words == nullptr ? std::string{path} + " cannot be loaded" : words;
            return std::nullopt;
        }
        DispatchRecords found;
        const auto find = [&]<class Function>(Function& function, const char* name) {
            function = reinterpret_cast<Function>(::dlsym(library, name));
            if (function == nullptr) why = std::string{path} + " has no " + name;
        };
        find(found.begin, "kdvfs_dispatch_records_begin");
        find(found.push, "kdvfs_dispatch_records_push");
        find(found.pop, "kdvfs_dispatch_records_pop");
        find(found.flush, "kdvfs_dispatch_records_flush");
        find(found.now, "kdvfs_dispatch_records_now");
        if (!why.empty()) return std::nullopt;
        return found;
    }
};

}  // namespace attach
