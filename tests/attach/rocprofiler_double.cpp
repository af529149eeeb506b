// SPDX-License-Identifier: MIT
//
// Stands for librocprofiler-sdk over the double of HIP: clients that are found as the real one
// finds them, contexts, buffers, requests for numbers, symbols of kernels, ranges of roctx. Layouts
// are written afresh from the library's public headers. ROCPROFILER_DOUBLE_VERSION is its version;
// ROCPROFILER_DOUBLE_ASKS_NOBODY=1: no dispatch has a number of the tool's.
#include <tests/hip_double/hip_double.hpp>

#include <dlfcn.h>
#include <link.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

using Status = int;
constexpr Status success = 0;
constexpr Status context_not_found = 2;
constexpr Status buffer_not_found = 3;
constexpr Status service_already_configured = 15;
constexpr Status configuration_locked = 16;
constexpr std::uint32_t copy_kind = 10;
constexpr std::uint32_t dispatch_kind = 11;
constexpr std::uint32_t code_object_calls = 10;
constexpr std::uint32_t marker_calls = 7;

struct Id {
    std::uint64_t handle;
};
struct ClientId {
    const char* name;
    std::uint32_t handle;
};
using FinalizeClient = void (*)(ClientId);
struct Configured {
    std::size_t size;
    int (*initialize)(FinalizeClient, void*);
    void (*finalize)(void*);
    void* data;
};
using Configure = Configured* (*)(std::uint32_t, const char*, std::uint32_t, ClientId*);
struct Header {
    std::uint32_t category;
    std::uint32_t kind;
    void* payload;
};
using Take = void (*)(Id, Id, Header**, std::size_t, void*, std::uint64_t);
using Request = int (*)(std::uint64_t, Id, std::uint32_t, std::int32_t, std::uint64_t,
                        std::uint64_t*, void*);

/// A call back's record: 1.0 has a third number in it.
struct CallOf10 {
    std::uint64_t context, thread, internal, external, ancestor;
    std::uint32_t kind;
    std::int32_t operation;
    std::uint32_t phase;
    void* payload;
};
struct CallOf06 {
    std::uint64_t context, thread, internal, external;
    std::uint32_t kind;
    std::int32_t operation;
    std::uint32_t phase;
    void* payload;
};
template <class Record>
using Called = void (*)(Record, std::uint64_t*, void*);

struct Calls {
    void* function;
    void* data;
};
struct Buffer {
    std::uint64_t context;
    std::size_t size;
    std::size_t watermark;
    Take take;
    void* data;
    std::deque<std::vector<unsigned char>> records{};
    std::vector<std::uint32_t> kinds{};
    std::size_t used = 0;
};
struct Context {
    bool active = false;
    std::map<std::uint32_t, std::uint64_t> buffers{};  // by kind
    std::map<std::uint32_t, Calls> calls{};            // by kind
    std::set<std::uint32_t> requests{};
    Request request = nullptr;
    void* request_data = nullptr;
};
/// What was captured when a dispatch was put.
struct Pending {
    std::uint64_t internal;
    std::uint64_t thread;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> externals{};  // context, number
};

struct Sdk {
    std::recursive_mutex mutex;
    bool locked = false;
    std::vector<Configured> clients;
    std::deque<Context> contexts;
    std::deque<Buffer> buffers;
    std::map<std::uint64_t, Pending> pending;
    std::map<std::string, std::uint64_t> kernels;
    std::uint64_t dispatched = 0;
};
Sdk& sdk() {
    static auto& one = *new Sdk;
    return one;
}

std::uint32_t version() {
    const char* const text = std::getenv("ROCPROFILER_DOUBLE_VERSION");
    return text == nullptr ? 10000 : static_cast<std::uint32_t>(std::atoi(text));
}

/// Since boot, as rocprofiler-sdk's: another clock than the host's monotonic one.
std::uint64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(time.tv_nsec) + 5'000'000'000U;
}

Context* find_context(Id id) {
    if (id.handle == 0 || id.handle > sdk().contexts.size()) return nullptr;
    return &sdk().contexts[id.handle - 1];
}

void deliver(std::uint64_t number) {
    Buffer& buffer = sdk().buffers[number - 1];
    std::vector<Header> headers;
    std::deque<std::vector<unsigned char>> records;
    std::vector<std::uint32_t> kinds;
    records.swap(buffer.records);
    kinds.swap(buffer.kinds);
    buffer.used = 0;
    std::vector<Header*> pointers;
    headers.reserve(records.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
        headers.push_back({1, kinds[i], records[i].data()});
        pointers.push_back(&headers.back());
    }
    if (!pointers.empty()) {
        buffer.take({buffer.context}, {number}, pointers.data(), pointers.size(), buffer.data, 0);
    }
}

/// Calls all contexts back that want this.
void call(std::uint32_t kind, std::int32_t operation, std::uint32_t phase, void* payload) {
    for (std::size_t i = 0; i < sdk().contexts.size(); ++i) {
        const Context& context = sdk().contexts[i];
        const auto found = context.calls.find(kind);
        if (!context.active || found == context.calls.end()) continue;
        std::uint64_t user = 0;
        const auto thread = static_cast<std::uint64_t>(::gettid());
        if (version() >= 10000) {
            reinterpret_cast<Called<CallOf10>>(found->second.function)(
                {i + 1, thread, 1, 0, kind, kind, operation, phase, payload}, &user,
                found->second.data);
        } else {
            reinterpret_cast<Called<CallOf06>>(found->second.function)(
                {i + 1, thread, 1, 0, kind, operation, phase, payload}, &user, found->second.data);
        }
    }
}

std::uint64_t kernel_number(const char* symbol) {
    const auto [known, is_new] =
        sdk().kernels.try_emplace(symbol == nullptr ? "?" : symbol, sdk().kernels.size() + 100);
    if (is_new) {
        const std::string name = known->first + ".kd";  // of the kernel's descriptor
        struct {
            std::uint64_t size, kernel, code_object;
            const char* name;
            std::uint64_t object;
            std::uint32_t sizes[4];
        } symbols{56, known->second, 1, name.c_str(), 0, {}};
        call(code_object_calls, 2, 1, &symbols);
    }
    return known->second;
}

std::uint64_t put(const hip_double::Work& work) {
    const std::uint32_t kind = work.kernel == nullptr ? copy_kind : dispatch_kind;
    const std::lock_guard lock{sdk().mutex};
    if (work.kernel != nullptr) kernel_number(work.kernel);
    const std::uint64_t number = ++sdk().dispatched;
    Pending pending{number, static_cast<std::uint64_t>(::gettid())};
    for (std::size_t i = 0; i < sdk().contexts.size(); ++i) {
        const Context& context = sdk().contexts[i];
        if (!context.active || !context.buffers.contains(kind)) continue;
        std::uint64_t external = 0;
        if (context.requests.contains(kind) &&
            std::getenv("ROCPROFILER_DOUBLE_ASKS_NOBODY") == nullptr) {
            context.request(pending.thread, {i + 1}, kind, 0, number, &external,
                            context.request_data);
        }
        pending.externals.emplace_back(i + 1, external);
    }
    sdk().pending[number] = pending;
    return number;
}

void ran(std::uint64_t number, const hip_double::Work& work, std::uint64_t start,
         std::uint64_t end) {
    const std::lock_guard lock{sdk().mutex};
    const Pending pending = sdk().pending.at(number);
    sdk().pending.erase(number);
    const std::uint32_t kind = work.kernel == nullptr ? copy_kind : dispatch_kind;
    for (const auto& [context, external] : pending.externals) {
        std::vector<unsigned char> record(kind == copy_kind ? 96 : 184);
        const auto write = [&](std::size_t at, auto value) {
            std::memcpy(record.data() + at, &value, sizeof value);
        };
        write(0, std::uint64_t{record.size()});
        write(8, kind);
        write(16, pending.internal);
        write(24, external);
        write(32, pending.thread);
        write(40, start);
        write(48, end);
        if (kind == copy_kind) {
            constexpr std::int32_t directions[]{1, 2, 3, 4};  // hipMemcpyKind has host first
            write(12, directions[work.copy & 3]);
        } else {
            write(12, std::int32_t{2});
            write(56, std::uint64_t{72});
            write(80, kernel_number(work.kernel));
            for (std::size_t i = 0; i < 3; ++i) {
                write(104 + 4 * i, work.block[i]);
                write(116 + 4 * i, work.block[i] * work.grid[i]);
            }
        }
        const std::uint64_t its = sdk().contexts[context - 1].buffers.at(kind);
        Buffer& buffer = sdk().buffers[its - 1];
        buffer.used += record.size();
        buffer.records.push_back(std::move(record));
        buffer.kinds.push_back(kind);
        if (buffer.used >= buffer.watermark) deliver(its);
    }
}

/// Every `rocprofiler_configure` once: of the global scope, of each library, and of those that
/// ROCP_TOOL_LIBRARIES names.
std::vector<Configure> find_clients() {
    std::vector<Configure> found;
    const auto add = [&](void* function) {
        const auto its = reinterpret_cast<Configure>(function);
        if (its != nullptr && std::find(found.begin(), found.end(), its) == found.end()) {
            found.push_back(its);
        }
    };
    add(::dlsym(RTLD_DEFAULT, "rocprofiler_configure"));
    std::vector<std::string> libraries;
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* names) {
            if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {
                static_cast<std::vector<std::string>*>(names)->emplace_back(info->dlpi_name);
            }
            return 0;
        },
        &libraries);
    for (const std::string& name : libraries) {
        if (void* const library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
            add(::dlsym(library, "rocprofiler_configure"));
        }
    }
    if (const char* const tool = std::getenv("ROCP_TOOL_LIBRARIES")) {
        if (void* const library = ::dlopen(tool, RTLD_LAZY | RTLD_GLOBAL)) {
            add(::dlsym(library, "rocprofiler_configure"));
        }
    }
    return found;
}

void begin_clients() {
    if (sdk().locked) return;
    std::uint32_t priority = 0;
    for (const Configure configure : find_clients()) {
        ClientId id{nullptr, 500 + priority};
        if (const Configured* const client = configure(version(), "double", priority++, &id)) {
            sdk().clients.push_back(*client);
        }
    }
    for (const Configured& client : sdk().clients) client.initialize(nullptr, client.data);
    sdk().locked = true;
    std::atexit([] {
        for (const Configured& client : sdk().clients) {
            if (client.finalize != nullptr) client.finalize(client.data);
        }
    });
}

// What stands in roctx's table before its own functions.
using Push = int (*)(const char*);
using Pop = int (*)();
Push next_push = nullptr;
Pop next_pop = nullptr;
int push(const char* message) {
    struct {
        std::uint64_t size;
        const char* message;
        std::uint64_t returned;
    } data{24, message, 0};
    call(marker_calls, 1, 1, &data);
    const int depth = next_push(message);
    call(marker_calls, 1, 2, &data);
    return depth;
}
int pop() {
    std::uint64_t data[3]{24};
    call(marker_calls, 2, 1, data);
    const int depth = next_pop();
    call(marker_calls, 2, 2, data);
    return depth;
}

}  // namespace

extern "C" {

int rocprofiler_set_api_table(const char* name, std::uint64_t, std::uint64_t, void** tables,
                              std::uint64_t) {
    begin_clients();
    if (std::strcmp(name, "hip") == 0) {
        static_cast<hip_double::ApiTable*>(tables[0])->listen({&put, &now, &ran});
    } else if (std::strcmp(name, "roctx") == 0) {
        auto** const table = static_cast<void**>(tables[0]);
        next_push = reinterpret_cast<Push>(table[0]);
        next_pop = reinterpret_cast<Pop>(table[1]);
        table[0] = reinterpret_cast<void*>(&push);
        table[1] = reinterpret_cast<void*>(&pop);
    }
    return 0;
}

Status rocprofiler_create_context(Id* id) {
    if (sdk().locked) return configuration_locked;
    sdk().contexts.emplace_back();
    id->handle = sdk().contexts.size();
    return success;
}
Status rocprofiler_start_context(Id id) {
    Context* const context = find_context(id);
    if (context == nullptr) return context_not_found;
    context->active = true;
    return success;
}
Status rocprofiler_create_buffer(Id context, std::size_t size, std::size_t watermark, int,
                                 Take take, void* data, Id* buffer) {
    if (sdk().locked) return configuration_locked;
    if (find_context(context) == nullptr) return context_not_found;
    sdk().buffers.push_back({context.handle, size, watermark, take, data});
    buffer->handle = sdk().buffers.size();
    return success;
}
Status rocprofiler_flush_buffer(Id buffer) {
    const std::lock_guard lock{sdk().mutex};
    if (buffer.handle == 0 || buffer.handle > sdk().buffers.size()) return buffer_not_found;
    deliver(buffer.handle);
    return success;
}
Status rocprofiler_configure_buffer_tracing_service(Id id, std::uint32_t kind, const std::int32_t*,
                                                    std::size_t, Id buffer) {
    if (sdk().locked) return configuration_locked;
    Context* const context = find_context(id);
    if (context == nullptr) return context_not_found;
    if (buffer.handle == 0 || buffer.handle > sdk().buffers.size()) return buffer_not_found;
    return context->buffers.emplace(kind, buffer.handle).second ? success
                                                                : service_already_configured;
}
Status rocprofiler_configure_callback_tracing_service(Id id, std::uint32_t kind,
                                                      const std::int32_t*, std::size_t,
                                                      void* called, void* data) {
    if (sdk().locked) return configuration_locked;
    Context* const context = find_context(id);
    if (context == nullptr) return context_not_found;
    return context->calls.emplace(kind, Calls{called, data}).second ? success
                                                                    : service_already_configured;
}
Status rocprofiler_configure_external_correlation_id_request_service(Id id,
                                                                     const std::uint32_t* kinds,
                                                                     std::size_t count,
                                                                     Request request, void* data) {
    if (sdk().locked) return configuration_locked;
    Context* const context = find_context(id);
    if (context == nullptr) return context_not_found;
    if (context->request != nullptr) return service_already_configured;
    context->requests.insert(kinds, kinds + count);
    context->request = request;
    context->request_data = data;
    return success;
}
Status rocprofiler_get_timestamp(std::uint64_t* time) {
    *time = now();
    return success;
}

}  // extern "C"
