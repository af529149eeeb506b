// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/files.hpp>
#include <tools/attach/dispatches.hpp>
#include <tools/attach/hip_functions.hpp>
#include <tools/attach/launch_names.hpp>
#include <tools/attach/process.hpp>
#include <tools/attach/ranges.hpp>
#include <tools/attach/roctx.hpp>

#include <chrono>
#include <exception>
#include <iterator>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

namespace attach {

using namespace rocprofiler;

Configuration* Dispatches::configure(std::uint32_t version, ClientId& id, const void* caller) {
    Process& process = Process::instance();
    if (!process.runs() || kdvfs::io::environment("KDVFS_ROCPROFILER") == "off") return nullptr;
    if (const std::string missing = library_.find(caller); !missing.empty()) {
        process.note("rocprofiler-sdk has no " + missing + ": launches are taken from HIP's calls");
        return nullptr;
    }
    version_ = version;
    id.name = "kdvfs";
    static Configuration configuration{
        sizeof(Configuration), [](void (*)(ClientId), void*) { return instance().initialize(); },
        [](void*) { Process::instance().end(); }, nullptr};
    return &configuration;
}

/// Called by the library, once, before the program's call of HIP that came first goes on. HIP must
/// not be called here.
int Dispatches::initialize() {
    constexpr std::size_t buffer_bytes = std::size_t{1} << 20U;
    constexpr std::size_t watermark = buffer_bytes / 2;
    const auto calls = [&](Called kind) {
        const auto function = version_ >= version_1
                                  ? reinterpret_cast<void (*)()>(&Dispatches::called<Call>)
                                  : reinterpret_cast<void (*)()>(&Dispatches::called<CallBefore1>);
        return library_.trace_calls(context_, kind, nullptr, 0, function, nullptr);
    };
    const TakeRecords took = [](Context, Buffer, RecordHeader** headers, std::size_t count, void*,
                                std::uint64_t dropped) {
        instance().dropped_ += dropped;
        instance().take(headers, count);
    };
    const Request requested = [](std::uint64_t, Context, Traced, std::int32_t, std::uint64_t,
                                 std::uint64_t* external, void*) {
        *external = instance().number_of_dispatch();
        return 0;
    };
    constexpr Traced kinds[]{Traced::kernel_dispatch, Traced::memory_copy};
    Status failed = library_.create_context(&context_);
    const auto attempt = [&](auto step) {
        if (failed == success) failed = step();
    };
    attempt([&] {
        return library_.create_buffer(context_, buffer_bytes, watermark, lossless, took, nullptr,
                                      &buffer_);
    });
    for (const Traced kind : kinds) {
        attempt([&] { return library_.trace_into(context_, kind, nullptr, 0, buffer_); });
    }
    attempt([&] { return library_.request_numbers(context_, kinds, 2, requested, nullptr); });
    attempt([&] { return calls(Called::code_object); });
    attempt([&] { return library_.start_context(context_); });
    if (failed != success) {
        Process::instance().note("rocprofiler-sdk refused (" + std::to_string(failed) +
                                 "): launches are taken from HIP's calls");
        return -1;
    }
    // Ranges are also had from roctx's calls.
    Context ranges;
    if (library_.create_context(&ranges) == success) {
        const Context dispatches = std::exchange(context_, ranges);
        if (calls(Called::marker_core) == success) library_.start_context(ranges);
        context_ = dispatches;
    }
    Process::instance().before_report([this](bool at_end) { bring_in(at_end); });
    there_.store(true, std::memory_order_release);
    return 0;
}

template <class Call>
void Dispatches::called(Call call, std::uint64_t*, void*) noexcept {
    if (call.phase != entering || call.payload == nullptr) return;
    try {
        if (call.kind == Called::code_object && call.operation == kernel_registered) {
            const auto& symbol = *static_cast<const KernelSymbol*>(call.payload);
            std::string_view name = symbol.name == nullptr ? "" : symbol.name;
            constexpr std::string_view descriptor = ".kd";
            if (name.ends_with(descriptor)) name.remove_suffix(descriptor.size());
            const std::lock_guard lock{instance().mutex_};
            instance().kernels_[symbol.kernel] = name;
        } else if (call.kind == Called::marker_core && !InRoctx::here() &&
                   Process::instance().runs()) {
            if (call.operation == range_push) {
                push_range(static_cast<const RangePushed*>(call.payload)->message);
            } else if (call.operation == range_pop) {
                pop_range();
            }
        }
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
    }
}

void Dispatches::add(Device& device, int ordinal, std::shared_ptr<RecordStreams> streams) {
    const auto& unseen = device.launch_kind("launch that was not seen", {});
    streams->name_by_record(unseen.number);
    streams->ask_for_records([] { Process::instance().want_records(); });
    const std::lock_guard lock{mutex_};
    gpus_.push_back({&device, ordinal, std::move(streams), &unseen});
}

std::uint32_t Dispatches::next_number() {
    while (true) {
        const std::uint32_t number = ++launches_ & ~of_unseen;
        if (number > own) return number;
    }
}

Dispatches::Gpu* Dispatches::gpu_of(const Device& device) {
    const std::lock_guard lock{mutex_};
    for (Gpu& gpu : gpus_) {
        if (gpu.device == &device) return &gpu;
    }
    return nullptr;
}

/// @returns null where that GPU is not open
Dispatches::Gpu* Dispatches::gpu_of_thread() {
    using GetDevice = int (*)(int*);
    static const auto get_device = reinterpret_cast<GetDevice>(next_hip("hipGetDevice"));
    int ordinal = 0;
    if (get_device == nullptr || get_device(&ordinal) != 0) return nullptr;
    const std::lock_guard lock{mutex_};
    for (Gpu& gpu : gpus_) {
        if (gpu.ordinal == ordinal) return &gpu;
    }
    return nullptr;
}

std::uint32_t Dispatches::begin_launch(Device& device, Kernels kernels) {
    Launch& launch = launch_of_thread();
    launch = {gpu_of(device), next_number(), 0};
    if (launch.gpu == nullptr) return std::exchange(launch.number, 0);
    if (kernels == Kernels::many) launch.gpu->streams->launches_many(launch.number);
    return launch.number;
}

/// What has dispatched nothing by now takes no time: it was refused, or another thread dispatches
/// it, and is asked then.
void Dispatches::end_launch() {
    const Launch launch = std::exchange(launch_of_thread(), {});
    if (launch.gpu == nullptr) return;
    if (launch.dispatches == 0) launch.gpu->streams->failed(launch.number);
    launch.gpu->streams->launched_many(launch.number, launch.dispatches);
}

/// On the thread that dispatches, within the library: HIP is asked for nothing but its device.
std::uint64_t Dispatches::number_of_dispatch() noexcept {
    Launch& launch = launch_of_thread();
    if (launch.number != 0) {
        ++launch.dispatches;
        return launch.number;
    }
    Process& process = Process::instance();
    if (in_launch() || !process.runs()) return own;
    in_launch() = true;
    std::uint64_t number = nobodys;
    try {
        Gpu* const gpu = gpu_of_thread();
        if (gpu == nullptr) {
            number = own;
        } else if (!process.settings().drives_clocks()) {  // else a request would be put
            const std::uint32_t its = next_number() | of_unseen;
            const auto stream =
                kdvfs::StreamRef{reinterpret_cast<void*>(std::uintptr_t{2})};  // the thread's own
            gpu->device->launched(*gpu->unseen);
            LaunchScopes scopes;
            scopes.enter(*gpu->device, stream, *gpu->unseen, its);
            scopes.leave(its);
            number = its;
        }
    } catch (const std::exception& error) {
        process.give_up(error.what());
    }
    in_launch() = false;
    return number;
}

void Dispatches::take(RecordHeader** headers, std::size_t count) noexcept {
    try {
        const std::int64_t offset = this->offset();
        for (std::size_t i = 0; i < count; ++i) {
            const RecordHeader& header = *headers[i];
            if (header.category != tracing_category || header.payload == nullptr) continue;
            if (header.kind != Traced::kernel_dispatch && header.kind != Traced::memory_copy) {
                continue;
            }
            take(*static_cast<const Record*>(header.payload), offset);
        }
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
    }
}

void Dispatches::take(const Record& record, std::int64_t offset) {
    if (record.external == own) return;
    const auto on_host = [offset](std::uint64_t time) {
        return kdvfs::TimePoint{kdvfs::Duration{static_cast<std::int64_t>(time) + offset}};
    };
    const kdvfs::TimePoint start = on_host(record.start);
    const kdvfs::TimePoint end = on_host(record.end);
    std::deque<Gpu*> gpus;
    {
        const std::lock_guard lock{mutex_};
        for (Gpu& gpu : gpus_) gpus.push_back(&gpu);
    }
    const auto number = static_cast<std::uint32_t>(record.external);
    const bool is_known = number != nobodys && record.end >= record.start;
    for (Gpu* gpu : gpus) {
        gpu->device->worked(end - start, is_known);
        if (!is_known) {
            if (number != nobodys) gpu->streams->failed(number);
        } else if ((number & of_unseen) != 0 || gpu->streams->is_of_many(number)) {
            gpu->streams->arrived(number, start, end, kind_of(*gpu, record));
        } else {
            gpu->streams->arrived(number, start, end);
        }
    }
}

std::uint32_t Dispatches::kind_of(const Gpu& gpu, const Record& record) {
    if (record.kind == Traced::memory_copy) {
        constexpr const char* names[]{"memcpy", "memcpy HtoH", "memcpy HtoD", "memcpy DtoH",
                                      "memcpy DtoD"};
        const auto direction = static_cast<std::size_t>(record.operation);
        return gpu.device->launch_kind(names[direction < std::size(names) ? direction : 0], {})
            .number;
    }
    const auto& dispatch = *reinterpret_cast<const DispatchRecord*>(&record);
    std::uint64_t blocks = 1;
    for (int i = 0; i < 3; ++i) {
        if (dispatch.workgroup[i] != 0) blocks *= dispatch.grid[i] / dispatch.workgroup[i];
    }
    std::string symbol;
    {
        const std::lock_guard lock{mutex_};
        if (const auto found = kernels_.find(dispatch.kernel); found != kernels_.end()) {
            symbol = found->second;
        }
    }
    return gpu.device->kind_of_symbol(symbol.c_str(), grid_variant(blocks));
}

/// Where the records' clock lies off the host's, now: the closest of four looks.
std::int64_t Dispatches::offset() const {
    const auto host = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
    std::int64_t closest = std::numeric_limits<std::int64_t>::max();
    std::int64_t found = 0;
    for (int i = 0; i < 4; ++i) {
        std::uint64_t theirs = 0;
        const std::int64_t before = host();
        library_.timestamp(&theirs);
        const std::int64_t after = host();
        if (after - before >= closest) continue;
        closest = after - before;
        found = before + (after - before) / 2 - static_cast<std::int64_t>(theirs);
    }
    return found;
}

void Dispatches::bring_in(bool at_end) {
    for (int tries = 0; tries < 10 && library_.flush_buffer(buffer_) == buffer_busy; ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    if (!at_end) return;
    if (dropped_ > 0) {
        Process::instance().note("rocprofiler-sdk dropped " + std::to_string(dropped_) +
                                 " records");
    }
    const std::lock_guard lock{mutex_};
    for (const Gpu& gpu : gpus_) gpu.streams->finish();
}

}  // namespace attach

extern "C" {

/// What rocprofiler-sdk calls in each library that has it, before HIP's first call goes on.
__attribute__((visibility("default"))) attach::rocprofiler::Configuration* rocprofiler_configure(
    std::uint32_t version, const char*, std::uint32_t, attach::rocprofiler::ClientId* id) {
    const void* const caller = __builtin_return_address(0);
    try {
        return attach::Dispatches::instance().configure(version, *id, caller);
    } catch (const std::exception& error) {
        attach::Process::instance().note(error.what());
        return nullptr;
    }
}

}  // extern "C"
