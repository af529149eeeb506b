// SPDX-License-Identifier: MIT
#pragma once

#include <tools/attach/redirect_symbols.hpp>

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string_view>

namespace attach {

/// The functions of the HIP library that the program has. Those that put work into a stream are
/// redirected: whoever looks them up in the library itself (Triton, CuPy, JAX: by `dlsym` or
/// `hipGetProcAddress`) finds those of this library. Thread-safe.
class HipFunctions {
public:
    static HipFunctions& of_process() {
        static auto& functions = *new HipFunctions;
        return functions;
    }

    /// The program's own function: the next one of its name, or, where a program opened the library
    /// by itself, that of the library. Null where there is none.
    [[nodiscard]] void* real(const char* name) {
        redirect();
        if (const Entry* const entry = find(name)) return entry->real;
        if (void* const next = ::dlsym(RTLD_NEXT, name)) return next;
        void* const library = this->library();
        return library == nullptr ? nullptr : ::dlsym(library, name);
    }

    /// The function of this library that stands before one of HIP; null where none does.
    [[nodiscard]] void* replacement(const char* name) {
        redirect();
        const Entry* const entry = find(name);
        return entry == nullptr ? nullptr : entry->own;
    }

    /// Redirects what the program will look up, once its HIP library is there. To be called as
    /// early as that can be.
    void redirect() {
        if (redirected_.load(std::memory_order_acquire)) return;
        const std::lock_guard lock{mutex_};
        if (redirected_.load(std::memory_order_relaxed)) return;
        void* const its_library = library();
        void* const own_library = own();
        if (its_library == nullptr || own_library == nullptr) return;
        for (std::size_t i = 0; i < names.size(); ++i) {
            Entry& entry = entries_[i];
            entry.own = ::dlsym(own_library, names[i]);
            entry.real = ::dlsym(its_library, names[i]);
            if (entry.real == entry.own) entry.real = nullptr;
        }
        redirected_.store(true, std::memory_order_release);
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (entries_[i].own == nullptr) continue;
            redirect_symbol(names[i], entries_[i].real, entries_[i].own);
        }
    }

private:
    /// What puts work into a stream, and what looks up or instantiates it.
    static constexpr std::array names{
        "hipLaunchKernel",
        "hipLaunchKernel_spt",
        "hipExtLaunchKernel",
        "hipModuleLaunchKernel",
        "hipExtModuleLaunchKernel",
        "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_"
        "tS6_j",
        "hipLaunchCooperativeKernel",
        "hipLaunchCooperativeKernel_spt",
        "hipLaunchKernelExC",
        "hipModuleLaunchCooperativeKernel",
        "hipModuleLaunchCooperativeKernelMultiDevice",
        "hipLaunchCooperativeKernelMultiDevice",
        "hipExtLaunchMultiKernelMultiDevice",
        "hipConfigureCall",
        "hipLaunchByPtr",
        "hipGraphInstantiate",
        "hipGraphInstantiateWithFlags",
        "hipGraphLaunch",
        "hipGraphLaunch_spt",
        "hipMemcpyAsync",
        "hipMemcpyAsync_spt",
        "hipMemcpyWithStream",
        "hipMemcpy2DAsync",
        "hipMemcpy2DAsync_spt",
        "hipMemsetAsync",
        "hipMemsetAsync_spt",
        "hipGetProcAddress",
    };
    struct Entry {
        void* real = nullptr;
        void* own = nullptr;
    };

    HipFunctions() = default;

    /// @returns null before everything is redirected, too
    [[nodiscard]] const Entry* find(std::string_view name) const {
        if (!redirected_.load(std::memory_order_acquire)) return nullptr;
        const auto found = std::find(names.begin(), names.end(), name);
        return found == names.end() ? nullptr
                                    : &entries_[static_cast<std::size_t>(found - names.begin())];
    }

    /// The program's HIP library; null before it is loaded.
    [[nodiscard]] static void* library() {
        void* found = nullptr;
        ::dl_iterate_phdr(
            [](dl_phdr_info* info, std::size_t, void* handle) {
                const std::string_view path = info->dlpi_name;
                if (path.find("libamdhip64.so") == std::string_view::npos) return 0;
                *static_cast<void**>(handle) =
                    ::dlopen(info->dlpi_name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
                return 1;
            },
            &found);
        return found;
    }
    /// This library.
    [[nodiscard]] static void* own() {
        Dl_info info{};
        if (::dladdr(reinterpret_cast<void*>(&HipFunctions::of_process), &info) == 0) {
            return nullptr;
        }
        return ::dlopen(info.dli_fname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    }

    std::mutex mutex_;
    std::atomic<bool> redirected_{false};
    std::array<Entry, names.size()> entries_{};
};

/// `HipFunctions::real`.
inline void* next_hip(const char* name) { return HipFunctions::of_process().real(name); }

}  // namespace attach
