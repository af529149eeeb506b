// SPDX-License-Identifier: MIT
//
// Ranges that programs name: NVIDIA's NVTX (version 3 finds this library by NVTX_INJECTION64_PATH)
// and AMD's roctx, whose entry points are exported. Both pass on to another tool: the one that
// KDVFS_NVTX_NEXT names, and the roctx library that the program has. NVTX's tables follow
// nvtxTypes.h and nvToolsExt.h of NVTX 3.
#include <kdvfs/detail/io/files.hpp>
#include <tools/attach/process.hpp>
#include <tools/attach/ranges.hpp>
#include <tools/attach/roctx.hpp>

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

using attach::Process;
using attach::Ranges;

/// @param domain null: the program's own
int push(const char* name, const void* domain = nullptr) noexcept {
    try {
        if (name == nullptr || !Process::instance().runs()) return 0;
        Process::instance().range_begins(name);
        return Ranges::of_process().push(name, domain);
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
        return 0;
    }
}
int pop(const void* domain = nullptr) noexcept {
    try {
        if (!Process::instance().runs()) return 0;
        return Ranges::of_process().pop(domain);
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
        return 0;
    }
}

/// As much as ranges need of a wide text: what is not ASCII becomes '?'.
std::string narrow(const wchar_t* text) {
    std::string out;
    for (; text != nullptr && *text != L'\0' && out.size() < 1024; ++text) {
        out += *text < 128 ? static_cast<char>(*text) : '?';
    }
    return out;
}

/// nvtxEventAttributes_t.
struct EventAttributes {
    std::uint16_t version;
    std::uint16_t size;
    std::uint32_t category;
    std::int32_t color_type;
    std::uint32_t color;
    std::int32_t payload_type;
    std::int32_t reserved;
    std::uint64_t payload;
    std::int32_t message_type;  ///< 1 text, 2 wide text, 3 a handle that we gave out
    const void* message;
};

int push_attributes(const EventAttributes* event, const void* domain = nullptr) noexcept {
    try {
        if (event == nullptr || event->message == nullptr) return push("", domain);
        switch (event->message_type) {
            case 1:
            case 3: return push(static_cast<const char*>(event->message), domain);
            case 2:
                return push(narrow(static_cast<const wchar_t*>(event->message)).c_str(), domain);
            default: return push("", domain);
        }
    } catch (const std::exception&) {
        return 0;
    }
}

/// A text that stays: its address is the handle that NVTX's users pass instead of it.
const char* keep(const std::string& text) noexcept {
    static auto& mutex = *new std::mutex;
    static auto& texts = *new std::set<std::string>;
    try {
        const std::lock_guard lock{mutex};
        return texts.insert(text).first->c_str();
    } catch (const std::exception&) {
        return "";
    }
}

// Another tool. Its functions are called after kdvfs's, with the program's own arguments, and what
// they return is what the program gets.

using Function = void (*)();

/// The functions of NVTX that kdvfs takes, by their places in NVTX's two tables.
enum Core { core_push_event = 8, core_push_ascii, core_push_wide, core_pop };
enum Domains {
    domains_push_event = 4,
    domains_pop = 5,
    domains_register_ascii = 10,
    domains_register_wide,
    domains_create_ascii,
    domains_create_wide
};
constexpr unsigned table_size = 16;
using Functions = std::array<std::atomic<Function>, table_size>;
Functions& next_core() {
    static auto& functions = *new Functions{};
    return functions;
}
Functions& next_domains() {
    static auto& functions = *new Functions{};
    return functions;
}
/// The other tool's function; null where it has none.
template <class Signature>
Signature* next(const Functions& functions, unsigned place) {
    return reinterpret_cast<Signature*>(functions[place].load(std::memory_order_acquire));
}

/// Texts of the handles that the other tool gave out.
struct Texts {
    std::mutex mutex;
    std::map<const void*, const char*> by_handle;

    static Texts& instance() {
        static auto& texts = *new Texts;
        return texts;
    }
    void add(const void* handle, const char* text) {
        const std::lock_guard lock{mutex};
        by_handle[handle] = text;
    }
    const char* find(const void* handle) {
        const std::lock_guard lock{mutex};
        const auto found = by_handle.find(handle);
        return found == by_handle.end() ? "" : found->second;
    }
};

/// What the program passes where the message is a handle: of the other tool where that registers
/// texts, else of kdvfs, which the other tool does not know and gets as text.
EventAttributes for_kdvfs(const EventAttributes& event) {
    EventAttributes own = event;
    const bool theirs = next<void>(next_domains(), domains_register_ascii) != nullptr;
    if (event.message_type == 3 && theirs) own.message = Texts::instance().find(event.message);
    return own;
}
EventAttributes for_next(const EventAttributes& event) {
    EventAttributes other = event;
    const bool theirs = next<void>(next_domains(), domains_register_ascii) != nullptr;
    if (event.message_type == 3 && !theirs) other.message_type = 1;
    return other;
}

// The entry points.
int push_ascii(const char* name) {
    const int depth = push(name);
    const auto other = next<int(const char*)>(next_core(), core_push_ascii);
    return other == nullptr ? depth : other(name);
}
int push_wide(const wchar_t* name) {
    const int depth = push(narrow(name).c_str());
    const auto other = next<int(const wchar_t*)>(next_core(), core_push_wide);
    return other == nullptr ? depth : other(name);
}
int push_event(const EventAttributes* event) {
    if (event == nullptr) return push_attributes(event);
    const EventAttributes own = for_kdvfs(*event);
    const int depth = push_attributes(&own);
    const auto other = next<int(const EventAttributes*)>(next_core(), core_push_event);
    if (other == nullptr) return depth;
    const EventAttributes theirs = for_next(*event);
    return other(&theirs);
}
int plain_pop() {
    const int depth = pop();
    const auto other = next<int()>(next_core(), core_pop);
    return other == nullptr ? depth : other();
}
/// The domain as the other tool knows it: nothing where it makes none.
void* their_domain(void* domain) {
    return next<void>(next_domains(), domains_create_ascii) == nullptr ? nullptr : domain;
}
int domain_push_event(void* domain, const EventAttributes* event) {
    if (event == nullptr) return push_attributes(event, domain);
    const EventAttributes own = for_kdvfs(*event);
    const int depth = push_attributes(&own, domain);
    const auto other = next<int(void*, const EventAttributes*)>(next_domains(), domains_push_event);
    if (other == nullptr) return depth;
    const EventAttributes theirs = for_next(*event);
    return other(their_domain(domain), &theirs);
}
int domain_pop(void* domain) {
    const int depth = pop(domain);
    const auto other = next<int(void*)>(next_domains(), domains_pop);
    return other == nullptr ? depth : other(their_domain(domain));
}
// A domain's handle is its name, kept; that of the other tool where it makes one.
const void* create_domain_ascii(const char* name) {
    const auto other = next<const void*(const char*)>(next_domains(), domains_create_ascii);
    const void* const theirs = other == nullptr ? nullptr : other(name);
    return theirs != nullptr ? theirs : keep(name == nullptr ? "" : name);
}
const void* create_domain_wide(const wchar_t* name) {
    const auto other = next<const void*(const wchar_t*)>(next_domains(), domains_create_wide);
    const void* const theirs = other == nullptr ? nullptr : other(name);
    return theirs != nullptr ? theirs : keep(narrow(name));
}
const void* register_ascii(void* domain, const char* text) {
    const char* const own = keep(text == nullptr ? "" : text);
    const auto other =
        next<const void*(void*, const char*)>(next_domains(), domains_register_ascii);
    if (other == nullptr) return own;
    const void* const theirs = other(their_domain(domain), text);
    Texts::instance().add(theirs, own);
    return theirs;
}
const void* register_wide(void* domain, const wchar_t* text) {
    const char* const own = keep(narrow(text));
    const auto other =
        next<const void*(void*, const wchar_t*)>(next_domains(), domains_register_wide);
    if (other == nullptr) return own;
    const void* const theirs = other(their_domain(domain), text);
    Texts::instance().add(theirs, own);
    return theirs;
}

/// NvtxExportTableCallbacks.
struct Callbacks {
    std::size_t size;
    int (*table_of)(int module, Function*** table, unsigned* entries);
};
using ExportTable = const void* (*)(std::uint32_t id);

/// One of NVTX's tables: pointers to the variables that the program calls through. Before a tool
/// puts a function there, each holds NVTX's own, which begins the initialisation: that must never
/// be called from here, where the initialisation is under way or over, as it would call itself.
struct Table {
    Function** slots = nullptr;
    unsigned entries = 0;
    std::array<Function, table_size> initial{};

    Table(const Callbacks& callbacks, int module) {
        if (callbacks.table_of(module, &slots, &entries) == 0) entries = 0;
        if (entries > table_size) entries = table_size;
        for (unsigned place = 0; place < entries; ++place) {
            if (slots[place] != nullptr) initial[place] = *slots[place];
        }
    }
    /// What another tool has put in since.
    void find_changed(Functions& functions) const {
        for (unsigned place = 0; place < entries; ++place) {
            if (slots[place] == nullptr || *slots[place] == initial[place]) continue;
            functions[place].store(*slots[place], std::memory_order_release);
        }
    }
    void put_back() const {
        for (unsigned place = 0; place < entries; ++place) {
            if (slots[place] != nullptr) *slots[place] = initial[place];
        }
    }
    template <class Entry>
    void put(unsigned place, Entry entry) const {
        if (place < entries && slots[place] != nullptr) {
            *slots[place] = reinterpret_cast<Function>(entry);
        }
    }
};

/// Has the tool that KDVFS_NVTX_NEXT names take its functions first. @returns whether it did
bool join_next(ExportTable export_table, const Table& core, const Table& domains) {
    const std::string path{kdvfs::io::environment("KDVFS_NVTX_NEXT")};
    if (path.empty()) return false;
    using Begin = int (*)(ExportTable);
    void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    const char* const words = library == nullptr ? ::dlerror() : nullptr;
    const auto begin = library == nullptr
                           ? nullptr
                           : reinterpret_cast<Begin>(::dlsym(library, "InitializeInjectionNvtx2"));
    const auto refuse = [&](const std::string& why) {
        Process::instance().note("the NVTX tool " + path + " is left out: " + why);
        return false;
    };
    if (begin == nullptr) {
        return refuse(words != nullptr ? words : "it has no InitializeInjectionNvtx2");
    }
    if (begin(export_table) == 0) {
        core.put_back();
        domains.put_back();
        return refuse("it has refused");
    }
    core.find_changed(next_core());
    domains.find_changed(next_domains());
    return true;
}

/// The next function of that name behind this library: of the roctx library that the program has.
template <class Signature>
Signature* next_roctx(const char* name) {
    return reinterpret_cast<Signature*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

void attach::push_range(const char* name) noexcept { push(name); }
void attach::pop_range() noexcept { pop(); }

extern "C" {

/// What NVTX calls at the program's first range. @returns 1 where ranges will be taken
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(ExportTable export_table) {
    constexpr std::uint32_t callbacks_id = 1;
    const auto* const callbacks = static_cast<const Callbacks*>(export_table(callbacks_id));
    if (callbacks == nullptr || callbacks->size < sizeof(Callbacks)) return 0;
    const Table core{*callbacks, 1};
    const Table domains{*callbacks, 5};
    try {
        const bool has_next = join_next(export_table, core, domains);
        // With a tool, cuDNN opens ranges in each of its calls: a ResNet's step took 6 % longer.
        if (!Process::instance().settings().uses_ranges()) return has_next ? 1 : 0;
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
    }
    core.put(core_push_event, &push_event);
    core.put(core_push_ascii, &push_ascii);
    core.put(core_push_wide, &push_wide);
    core.put(core_pop, &plain_pop);
    domains.put(domains_push_event, &domain_push_event);
    domains.put(domains_pop, &domain_pop);
    domains.put(domains_register_ascii, &register_ascii);
    domains.put(domains_register_wide, &register_wide);
    domains.put(domains_create_ascii, &create_domain_ascii);
    domains.put(domains_create_wide, &create_domain_wide);
    return 1;
}

__attribute__((visibility("default"))) int roctxRangePushA(const char* name) {
    static const auto other = next_roctx<int(const char*)>("roctxRangePushA");
    const int depth = push(name);
    if (other == nullptr) return depth;
    const attach::InRoctx here;
    return other(name);
}
__attribute__((visibility("default"))) int roctxRangePop() {
    static const auto other = next_roctx<int()>("roctxRangePop");
    const int depth = pop();
    if (other == nullptr) return depth;
    const attach::InRoctx here;
    return other();
}
__attribute__((visibility("default"))) void roctxMarkA(const char* text) {
    static const auto other = next_roctx<void(const char*)>("roctxMarkA");
    if (other != nullptr) other(text);
}
__attribute__((visibility("default"))) std::uint64_t roctxRangeStartA(const char* name) {
    static const auto other = next_roctx<std::uint64_t(const char*)>("roctxRangeStartA");
    return other == nullptr ? 0 : other(name);
}
__attribute__((visibility("default"))) void roctxRangeStop(std::uint64_t id) {
    static const auto other = next_roctx<void(std::uint64_t)>("roctxRangeStop");
    if (other != nullptr) other(id);
}

}  // extern "C"
