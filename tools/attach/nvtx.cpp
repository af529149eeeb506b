// SPDX-License-Identifier: MIT
//
// Ranges that programs name: NVIDIA's NVTX (version 3 finds this library by NVTX_INJECTION64_PATH)
// and AMD's roctx, whose entry points are exported. NVTX's tables follow nvtxTypes.h and
// nvToolsExt.h of NVTX 3.
#include <tools/attach/process.hpp>
#include <tools/attach/ranges.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
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

// The entry points.
int push_ascii(const char* name) { return push(name); }
int push_wide(const wchar_t* name) { return push(narrow(name).c_str()); }
int push_event(const EventAttributes* event) { return push_attributes(event); }
int domain_push_event(void* domain, const EventAttributes* event) {
    return push_attributes(event, domain);
}
int domain_pop(void* domain) { return pop(domain); }
// A domain's handle is its name, kept.
const char* create_domain_ascii(const char* name) { return keep(name == nullptr ? "" : name); }
const char* create_domain_wide(const wchar_t* name) { return keep(narrow(name)); }
int plain_pop() { return pop(); }
const char* register_ascii(void*, const char* text) { return keep(text == nullptr ? "" : text); }
const char* register_wide(void*, const wchar_t* text) { return keep(narrow(text)); }

using Function = void (*)();

/// NvtxExportTableCallbacks.
struct Callbacks {
    std::size_t size;
    int (*table_of)(int module, Function*** table, unsigned* entries);
};

template <class Entry>
void put(Function** table, unsigned entries, unsigned place, Entry entry) {
    if (place < entries && table[place] != nullptr) {
        *table[place] = reinterpret_cast<Function>(entry);
    }
}

}  // namespace

extern "C" {

/// What NVTX calls at the program's first range. @returns 1 where ranges will be taken
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*export_table)(std::uint32_t id)) {
    constexpr std::uint32_t callbacks_id = 1;
    constexpr int core = 1;
    constexpr int core_domains = 5;
    if (!Process::instance().runs()) return 0;
    const auto* const callbacks = static_cast<const Callbacks*>(export_table(callbacks_id));
    if (callbacks == nullptr || callbacks->size < sizeof(Callbacks)) return 0;
    Function** table = nullptr;
    unsigned entries = 0;
    if (callbacks->table_of(core, &table, &entries) == 0) return 0;
    put(table, entries, 8, &push_event);
    put(table, entries, 9, &push_ascii);
    put(table, entries, 10, &push_wide);
    put(table, entries, 11, &plain_pop);
    if (callbacks->table_of(core_domains, &table, &entries) != 0) {
        put(table, entries, 4, &domain_push_event);
        put(table, entries, 5, &domain_pop);
        put(table, entries, 10, &register_ascii);
        put(table, entries, 11, &register_wide);
        put(table, entries, 12, &create_domain_ascii);
        put(table, entries, 13, &create_domain_wide);
    }
    return 1;
}

__attribute__((visibility("default"))) int roctxRangePushA(const char* name) { return push(name); }
__attribute__((visibility("default"))) int roctxRangePop() { return pop(); }
__attribute__((visibility("default"))) void roctxMarkA(const char*) {}
__attribute__((visibility("default"))) std::uint64_t roctxRangeStartA(const char*) { return 0; }
__attribute__((visibility("default"))) void roctxRangeStop(std::uint64_t) {}

}  // extern "C"
