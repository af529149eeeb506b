// SPDX-License-Identifier: MIT
#include "../launched_rank.hpp"
#include "../worth.hpp"
#include "c_handles.hpp"
#include "open_boards.hpp"

#include <kdvfs/detail/train/owned_power_limit.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/extend.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/session.hpp>
#include <kdvfs/tune/validation.hpp>
#include <kdvfs/version.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace {
using namespace kdvfs::c_interface;
}  // namespace

struct kdvfs_request {
    kdvfs_gpu* gpu;
    kdvfs::StandingRequest standing;
};

namespace {

/// What lies in a `kdvfs_scope`.
struct OpenScope {
    static constexpr std::uint64_t is_open = 0x6b64766673636f70;  // "kdvfscop"

    OpenScope(kdvfs_gpu& its, kdvfs::Scope entered) : gpu{&its}, scope{std::move(entered)} {}

    std::uint64_t mark = is_open;
    kdvfs_gpu* gpu;
    kdvfs::Scope scope;
};
static_assert(sizeof(OpenScope) <= sizeof(kdvfs_scope));
static_assert(alignof(OpenScope) <= alignof(kdvfs_scope));

kdvfs::GpuOptions options_of(const kdvfs_options* options) {
    kdvfs::GpuOptions result;
    if (options == nullptr) return result;
    if (options->size != sizeof(kdvfs_options)) {
        reject("open a GPU", "the options", "their size is not that of this version",
               "call kdvfs_options_init first");
    }
    if (options->meter_every == 0)
        reject("open a GPU", "meter_every", "it is 0", "use 1 to meter every iteration");
    if (options->measure_if_refused != 0) result.on_refused = kdvfs::OnRefused::measure_only;
    result.meter_every = options->meter_every;
    result.controller.never_below.core = {options->never_below_mhz};
    result.controller.never_above.core = {options->never_above_mhz};
    if (options->switch_latency_ns >= 0)
        result.switch_latency = kdvfs::Duration{options->switch_latency_ns};
    if (options->idle_clock_mhz > 0)
        result.idle_clock.clock = kdvfs::ClockPoint{{options->idle_clock_mhz}, {}};
    result.idle_clock.after = kdvfs::Duration{options->idle_after_ns};
    return result;
}

kdvfs::simulated::Board board_of(const std::string& preset) {
    namespace presets = kdvfs::simulated;
    if (preset == "mi300x") return presets::mi300x();
    if (preset == "mi250x") return presets::mi250x();
    if (preset == "mi210") return presets::mi210();
    if (preset == "h100") return presets::h100();
    if (preset == "rtx3080ti") return presets::rtx_3080_ti();
    reject("open a simulated GPU", "'" + preset + "'", "there is no such preset",
           "use mi300x, mi250x, mi210, h100 or rtx3080ti");
}

kdvfs::simulated::Device& simulated_of(kdvfs_gpu* gpu) {
    if (const auto& device = given(gpu, "the GPU").simulated) return *device;
    throw kdvfs::Error{kdvfs::Errc::not_supported,
                       {.action = "use a function of simulated GPUs",
                        .object = kdvfs::to_string(gpu->gpu->info()),
                        .vendor_words = "this GPU is not simulated",
                        .remedy = "open one with kdvfs_open_simulated"}};
}

template <class Make>
void begin(kdvfs_gpu* gpu, const char* name, kdvfs_scope* scope, Make make) {
    BeginningCall call{gpu};
    static_cast<void>(given(name, "the name"));
    static_cast<void>(given(scope, "the scope"));
    ::new (scope) OpenScope{*gpu, make(*gpu)};
    call.has_begun();
}

/// @param make returns the open `kdvfs::Gpu`
template <class Make>
kdvfs_status open(kdvfs_gpu** gpu, Make make) {
    return guarded([&] {
        given(gpu, "where the GPU goes") = nullptr;
        auto opened = std::make_unique<kdvfs_gpu>();
        opened->gpu = make();
        opened->bound = opened->gpu->with<Policies>();
        *gpu = opened.release();
    });
}

/// The handles that are closed: a leak checker finds them here.
void keep(kdvfs_gpu& gpu) {
    static std::atomic<kdvfs_gpu*> closed{nullptr};
    gpu.closed_before = closed.load();
    while (!closed.compare_exchange_weak(gpu.closed_before, &gpu)) {
    }
}

/// What a handle holds, unless somebody may still use it.
void free_what_it_holds(kdvfs_gpu& gpu) {
    if (gpu.users.count() != 0 || gpu.users.has_calls()) return;
    gpu.bound.reset();
    gpu.gpu.reset();
    gpu.streams = {};
    gpu.simulated.reset();
}

/// `KDVFS_INVALID_INPUT` says that the handle is kept: no error of a GPU that is gone may be it.
void close_for_good(kdvfs_gpu& gpu) {
    const struct Closing {
        kdvfs_gpu& gpu;
        ~Closing() {
            free_what_it_holds(gpu);
            keep(gpu);
        }
    } closing{gpu};
    std::optional<kdvfs::Error> first;
    const auto attempt = [&](auto&& work) {
        try {
            work();
        } catch (const kdvfs::Error& error) {
            if (!first) first = error;
        }
    };
    gpu.session.reset();
    for (const auto& each : gpu.limits) {
        attempt([&] {
            if (const auto limit = each.lock()) limit->close();
        });
    }
    attempt([&] { gpu.gpu->close(); });
    if (!first) return;
    if (first->code() != kdvfs::Errc::invalid_input) throw kdvfs::Error{*first};
    throw kdvfs::Error{kdvfs::Errc::refused, first->text()};
}

kdvfs_status open_at(const char* vendor, const char* address, Use use, const kdvfs_options* options,
                     kdvfs_gpu** gpu) {
    return open(gpu, [&] {
        return kdvfs::c_interface::open_board(
            &given(vendor, "the vendor"), &given(address, "the address"), use, options_of(options));
    });
}

kdvfs_status open_number(const char* vendor, int number, Use use, const kdvfs_options* options,
                         kdvfs_gpu** gpu) {
    return open(gpu, [&] {
        return kdvfs::c_interface::open_number(&given(vendor, "the vendor"), number, use,
                                               options_of(options));
    });
}

}  // namespace

extern "C" {

int kdvfs_c_version(void) { return KDVFS_C_VERSION; }

const char* kdvfs_version(void) {
    static const std::string text = std::to_string(KDVFS_VERSION_MAJOR) + '.' +
                                    std::to_string(KDVFS_VERSION_MINOR) + '.' +
                                    std::to_string(KDVFS_VERSION_PATCH);
    return text.c_str();
}

const char* kdvfs_status_text(kdvfs_status status) {
    switch (status) {
        case KDVFS_OK: return "ok";
        case KDVFS_INVALID_INPUT: return "invalid input";
        case KDVFS_NOT_SUPPORTED: return "not supported";
        case KDVFS_REFUSED: return "refused";
        case KDVFS_BUSY: return "busy";
        case KDVFS_VANISHED: return "vanished";
        case KDVFS_EXTERNAL_CHANGE: return "changed by someone else";
        case KDVFS_TIMED_OUT: return "timed out";
        case KDVFS_IO: return "input/output";
        case KDVFS_NO_MEMORY: return "out of memory";
        case KDVFS_INTERNAL: return "internal error";
        default: return "unknown status";
    }
}

const char* kdvfs_last_error(void) { return last_error().c_str(); }

void kdvfs_free(char* text) { std::free(text); }

void kdvfs_options_init(kdvfs_options* options) {
    if (options == nullptr) return;
    *options = {};
    options->size = sizeof(kdvfs_options);
    options->meter_every = kdvfs::GpuOptions{}.meter_every;
    options->switch_latency_ns = -1;
    options->idle_after_ns = kdvfs::Duration{kdvfs::GpuOptions{}.idle_clock.after}.count();
}

kdvfs_status kdvfs_open(const char* vendor, const char* address, const kdvfs_options* options,
                        kdvfs_gpu** gpu) {
    return open_at(vendor, address, Use::drive, options, gpu);
}

kdvfs_status kdvfs_measure(const char* vendor, const char* address, const kdvfs_options* options,
                           kdvfs_gpu** gpu) {
    return open_at(vendor, address, Use::measure, options, gpu);
}

kdvfs_status kdvfs_open_device(const char* vendor, int number, const kdvfs_options* options,
                               kdvfs_gpu** gpu) {
    return open_number(vendor, number, Use::drive, options, gpu);
}

kdvfs_status kdvfs_measure_device(const char* vendor, int number, const kdvfs_options* options,
                                  kdvfs_gpu** gpu) {
    return open_number(vendor, number, Use::measure, options, gpu);
}

kdvfs_status kdvfs_open_simulated(const char* preset, uint64_t seed, const kdvfs_options* options,
                                  kdvfs_gpu** gpu) {
    return guarded([&] {
        given(gpu, "where the GPU goes") = nullptr;
        auto opened = std::make_unique<kdvfs_gpu>();
        kdvfs::simulated::DeviceOptions made;
        made.seed = seed;
        opened->simulated = std::make_unique<kdvfs::simulated::Device>(
            board_of(&given(preset, "the preset")), std::move(made));
        opened->gpu = kdvfs::simulated::open(*opened->simulated, options_of(options));
        opened->bound = opened->gpu->with<Policies>();
        *gpu = opened.release();
    });
}

kdvfs_status kdvfs_close(kdvfs_gpu* gpu) {
    if (gpu == nullptr) return KDVFS_OK;
    return guarded([&] {
        AloneWith alone{*gpu};
        if (!alone) {
            reject("close the GPU",
                   std::to_string(gpu->users.count()) +
                       " scopes, requests, steps, pipeline sessions or power limits",
                   "they have not ended", "end or close them first");
        }
        alone.close();
        close_for_good(*gpu);
    });
}

kdvfs_status kdvfs_force_close(kdvfs_gpu* gpu) {
    if (gpu == nullptr) return KDVFS_OK;
    return guarded([&] {
        AloneWith alone{*gpu, true};
        alone.close();
        close_for_good(*gpu);
    });
}

kdvfs_status kdvfs_check(kdvfs_gpu* gpu) {
    return guarded([&] {
        const Call call{gpu};
        gpu->gpu->check();
    });
}

int kdvfs_measure_only(const kdvfs_gpu* gpu) {
    bool is_so = false;
    static_cast<void>(guarded([&] {
        const Call call{gpu};
        is_so = gpu->gpu->measure_only();
    }));
    return is_so ? 1 : 0;
}

kdvfs_status kdvfs_core_clocks(const kdvfs_gpu* gpu, uint32_t* clocks, size_t capacity,
                               size_t* count) {
    return guarded([&] {
        const Call call{gpu};
        const auto& listed = gpu->gpu->supported_clocks().core.listed;
        given(count, "where the count goes") = listed.size();
        if (capacity == 0) return;
        static_cast<void>(given(clocks, "where the clocks go"));
        for (size_t i = 0; i < std::min(capacity, listed.size()); ++i) clocks[i] = listed[i].count;
    });
}

kdvfs_status kdvfs_follow_plan(kdvfs_gpu* gpu, const char* file) {
    return guarded([&] {
        kdvfs_gpu& its = given(gpu, "the GPU");
        const std::string path = &given(file, "the file");
        const AloneWith alone{its};
        if (!alone) {
            reject("follow a plan", path, "scopes or requests have not ended",
                   "end them before the plan changes");
        }
        if (its.session) {
            reject("follow a plan", path,
                   "a session has begun, which takes its plan from KDVFS_MODE",
                   "set KDVFS_MODE=follow:PLAN, or begin no session");
        }
        const auto& info = its.gpu->info();
        const auto& clocks = its.gpu->supported_clocks();
        const std::string text = kdvfs::tune::read_trusted_file(path);
        auto plan =
            kdvfs::tune::has_sequence(text, path)
                ? kdvfs::tune::to_plan_table(kdvfs::tune::parse_sequence(text, path), info, clocks)
                : kdvfs::tune::to_plan_table(kdvfs::tune::parse_plan(text, path), info, clocks,
                                             [](std::string_view) { return true; });
        its.bound = its.gpu->with<Policies>(std::move(plan));
    });
}

kdvfs_status kdvfs_session_begin(kdvfs_gpu* gpu) {
    return guarded([&] {
        kdvfs_gpu& its = given(gpu, "the GPU");
        const AloneWith alone{its};
        if (!alone) {
            reject("begin a session", kdvfs::to_string(its.gpu->info()),
                   "scopes or requests have not ended", "begin it before the first scope");
        }
        const auto mode = kdvfs::tune::session_mode_from_environment();
        its.session.emplace(*its.gpu, LaunchedRank::from_environment().of(mode));
    });
}

kdvfs_status kdvfs_report_cost(double seconds, double joules) {
    return guarded(
        [&] { kdvfs::tune::report_cost({.time = kdvfs::Seconds{seconds}, .energy = {joules}}); });
}

int kdvfs_session_done(const kdvfs_gpu* gpu) {
    bool is_so = true;
    static_cast<void>(guarded([&] {
        const Call call{gpu};
        is_so = !gpu->session || gpu->session->done();
    }));
    return is_so ? 1 : 0;
}

kdvfs_status kdvfs_scope_begin(kdvfs_gpu* gpu, void* stream, const char* name, uint32_t variant,
                               kdvfs_scope* scope) {
    return guarded([&] {
        begin(gpu, name, scope, [&](kdvfs_gpu& its) {
            if (its.session) {
                return kdvfs::Scope{*its.session, stream_of(its, stream), name, {variant}};
            }
            return kdvfs::Scope{*its.bound, stream_of(its, stream), name, {variant}};
        });
    });
}

kdvfs_status kdvfs_scope_begin_at(kdvfs_gpu* gpu, void* stream, const char* name, uint32_t variant,
                                  uint32_t core_mhz, uint32_t memory_mhz, kdvfs_scope* scope) {
    return guarded([&] {
        begin(gpu, name, scope, [&](kdvfs_gpu& its) {
            const kdvfs::ClockRequest request{.asks = true, .point = {{core_mhz}, {memory_mhz}}};
            return kdvfs::Scope{*its.gpu, stream_of(its, stream), name, {variant}, request};
        });
    });
}

kdvfs_status kdvfs_phase_begin(kdvfs_gpu* gpu, void* stream, const char* name, kdvfs_scope* scope) {
    return guarded([&] {
        begin(gpu, name, scope, [&](kdvfs_gpu& its) -> kdvfs::Scope {
            return kdvfs::Phase{*its.gpu, stream_of(its, stream), name};
        });
    });
}

kdvfs_status kdvfs_scope_end(kdvfs_scope* scope) {
    return guarded([&] {
        auto& ending = *reinterpret_cast<OpenScope*>(&given(scope, "the scope"));
        if (std::exchange(scope->opaque[0], 0) != OpenScope::is_open) return;
        kdvfs_gpu& gpu = *ending.gpu;
        if (!gpu.users.enter(Users::call)) return;  // it has ended with its GPU
        const struct Ended {
            kdvfs_gpu& gpu;
            OpenScope& scope;
            ~Ended() {
                scope.~OpenScope();
                gpu.users.leave(Users::call + Users::begun);
            }
        } ended{gpu, ending};
        ending.scope.close();
    });
}

kdvfs_status kdvfs_next_iteration(kdvfs_gpu* gpu) {
    return guarded([&] {
        const Call call{gpu};
        gpu->session ? gpu->session->next_iteration() : gpu->bound->next_iteration();
    });
}

kdvfs_status kdvfs_request_begin(kdvfs_gpu* gpu, uint32_t core_mhz, uint32_t memory_mhz,
                                 kdvfs_request** request) {
    return guarded([&] {
        given(request, "where the request goes") = nullptr;
        BeginningCall call{gpu};
        const kdvfs::ClockPoint point{{core_mhz}, {memory_mhz}};
        *request = new kdvfs_request{gpu, kdvfs::StandingRequest{*gpu->gpu, point}};
        call.has_begun();
    });
}

kdvfs_status kdvfs_request_change(kdvfs_request* request, uint32_t core_mhz, uint32_t memory_mhz) {
    return guarded([&] {
        given(request, "the request").standing.change(kdvfs::ClockPoint{{core_mhz}, {memory_mhz}});
    });
}

void kdvfs_request_end(kdvfs_request* request) {
    if (request == nullptr) return;
    kdvfs_gpu* const gpu = request->gpu;
    delete request;
    gpu->users.leave(Users::begun);
}

kdvfs_status kdvfs_report_json(kdvfs_gpu* gpu, char** json) {
    return guarded([&] {
        given(json, "where the report goes") = nullptr;
        std::ostringstream out;
        const Call call{gpu};
        kdvfs::measure::write_json(out, gpu->gpu->report());
        *json = copy_of(out.str());
    });
}

kdvfs_status kdvfs_worth_json(kdvfs_gpu* gpu, double power_limit_w, char** json) {
    return guarded([&] {
        given(json, "where the ranges go") = nullptr;
        const Call call{gpu};
        const kdvfs::measure::Report report = gpu->gpu->report();
        if (report.scopes.writes > 0)
            worth::refuse_worth(kdvfs::to_string(report.device), "clocks have been set in this run",
                                "open the GPU to measure it alone");
        const auto limit = power_limit_w == 0 ? std::nullopt : std::optional{power_limit_w};
        *json = copy_of(worth::to_json(worth::worth_of(
            worth::as_found(report), kdvfs::to_string(report.device), limit, "power_limit_w")));
    });
}

kdvfs_status kdvfs_simulated_stream(kdvfs_gpu* gpu, void** stream) {
    return guarded([&] {
        given(stream, "where the stream goes") = nullptr;
        const Call call{gpu};
        gpu->streams.push_back(simulated_of(gpu).create_stream());
        *stream = gpu->streams.back();
    });
}

kdvfs_status kdvfs_simulated_launch(kdvfs_gpu* gpu, void* stream, double matrix_flops,
                                    double vector_flops, double memory_bytes) {
    return guarded([&] {
        const Call call{gpu};
        auto& device = simulated_of(gpu);
        if (!(matrix_flops >= 0 && vector_flops >= 0 && memory_bytes >= 0)) {
            reject("launch a simulated kernel", "its work", "it is negative or not a number",
                   "give FLOPs and bytes of 0 or more");
        }
        device.launch(
            stream_of(*gpu, stream),
            kdvfs::simulated::roofline(device.board(), {matrix_flops, vector_flops, memory_bytes}));
    });
}

kdvfs_status kdvfs_simulated_synchronize(kdvfs_gpu* gpu) {
    return guarded([&] {
        const Call call{gpu};
        simulated_of(gpu).synchronize();
    });
}

kdvfs_status kdvfs_simulated_totals(kdvfs_gpu* gpu, double* seconds, double* joules) {
    return guarded([&] {
        const Call call{gpu};
        const auto& device = simulated_of(gpu);
        const std::chrono::duration<double> passed = device.now().time_since_epoch();
        if (seconds != nullptr) *seconds = passed.count();
        if (joules != nullptr) *joules = device.true_energy().count;
    });
}

}  // extern "C"
