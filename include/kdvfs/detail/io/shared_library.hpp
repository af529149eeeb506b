// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

namespace kdvfs::inline v0_3::io {

/// Keeps the library that holds this code mapped until the process ends: threads or devices run it,
/// and a plugin may be closed under them. Does nothing for a program's own code, which always
/// stays.
inline void keep_loaded(const void* code) noexcept {
    Dl_info where{};
    if (::dladdr(code, &where) == 0 || where.dli_fname == nullptr) return;
    static_cast<void>(::dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
}

/// The absolute path of the folder of the library that holds this code; empty where it is not
/// known.
inline std::string folder_of(const void* code) {
    Dl_info where{};
    if (::dladdr(code, &where) == 0 || where.dli_fname == nullptr) return {};
    const std::string file = where.dli_fname;
    const std::size_t name = file.rfind('/');
    const std::unique_ptr<char, void (*)(void*)> folder{
        ::realpath(name == std::string::npos ? "." : file.substr(0, name + 1).c_str(), nullptr),
        &std::free};
    return folder ? folder.get() : std::string{};
}

/// A library that is looked for when the program runs, and may be missing. Once found it stays
/// until the process ends: vendors' libraries have threads and destructors of their own.
class SharedLibrary {
public:
    enum class Where {
        anywhere,
        this_process,  ///< nothing is loaded: only what the process has already is found
    };

    /// @param names what the dynamic loader is asked for, one after the other
    explicit SharedLibrary(std::span<const std::string> names, Where where = Where::anywhere) {
        const int no_load = where == Where::this_process ? RTLD_NOLOAD : 0;
        for (const std::string& name : names) {
            handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | no_load);
            if (handle_ != nullptr) {
                name_ = name;
                return;
            }
            const char* const words = ::dlerror();
            if (words != nullptr) words_ = words;
        }
    }
    explicit SharedLibrary(const std::string& name, Where where = Where::anywhere)
        : SharedLibrary{std::span{&name, 1}, where} {}
    ~SharedLibrary() {
        if (handle_ != nullptr) ::dlclose(handle_);
    }
    SharedLibrary(SharedLibrary&& other) noexcept
        : handle_{std::exchange(other.handle_, nullptr)},
          name_{std::move(other.name_)},
          words_{std::move(other.words_)} {}
    SharedLibrary(const SharedLibrary&) = delete;
    SharedLibrary& operator=(const SharedLibrary&) = delete;

    [[nodiscard]] bool is_open() const { return handle_ != nullptr; }
    /// The name by which it was found.
    [[nodiscard]] const std::string& name() const { return name_; }
    /// What the loader said last where it was not.
    [[nodiscard]] const std::string& words() const { return words_; }

    /// A function of the library, as the pointer that it initialises; null where there is none.
    class Symbol {
    public:
        explicit Symbol(void* address) : address_{address} {}
        [[nodiscard]] bool is_found() const { return address_ != nullptr; }
        template <class Function>
        operator Function*() const {  // NOLINT(google-explicit-constructor): what it is for
            return reinterpret_cast<Function*>(address_);
        }

    private:
        void* address_;
    };
    Symbol operator[](const char* symbol) const {
        return Symbol{is_open() ? ::dlsym(handle_, symbol) : nullptr};
    }
    template <class Function>
    void find(Function*& function, const char* symbol) const {
        function = (*this)[symbol];
    }

private:
    void* handle_ = nullptr;
    std::string name_;
    std::string words_;
};

/// What is made at the first call and kept until the process ends. No lock is held meanwhile:
/// whoever loads a library or looks up its symbols may have to wait for a thread that runs the
/// static initialisers of another, and these may call this, too. Where several threads make one at
/// once, that of the first is kept.
/// @param make of a type of its own for each thing that is kept: a lambda
template <class Make>
const auto& made_once(Make make) {
    using Made = decltype(make());
    static constinit std::atomic<const Made*> kept{nullptr};
    const Made* made = kept.load(std::memory_order_acquire);
    if (made != nullptr) return *made;
    auto fresh = std::make_unique<const Made>(make());
    if (kept.compare_exchange_strong(made, fresh.get(), std::memory_order_acq_rel)) {
        made = fresh.release();
    }
    return *made;
}

/// What all users of a library have in common while there are any, such as that it was started: one
/// `Session` for them all. Thread-safe; a second user waits until it is started.
/// @param load returns a `unique_ptr<Session>` that is not started. No lock is held meanwhile, as
/// in
///             `made_once`: only the first of several is started, by its `start()`
template <class Session, class Load>
std::shared_ptr<Session> shared_session(Load load) {
    static std::mutex mutex;
    static std::weak_ptr<Session> shared;
    const auto find = [] {
        const std::lock_guard lock{mutex};
        return shared.lock();
    };
    if (auto session = find()) return session;
    std::shared_ptr<Session> fresh = load();  // outlives the lock: its end may unload the library
    const std::lock_guard lock{mutex};
    if (auto session = shared.lock()) return session;
    fresh->start();
    shared = fresh;
    return fresh;
}

}  // namespace kdvfs::inline v0_3::io
