// SPDX-License-Identifier: MIT
// libkdvfs: the C interface. Each function turns exceptions into codes and a text.
#include <kdvfs/kdvfs.h>

#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/extend.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/nvidia.hpp>
#include <kdvfs/rocm.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/version.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

struct kdvfs_gpu {
    std::unique_ptr<kdvfs::simulated::Device> simulated{};  // outlives the handle
    std::optional<kdvfs::Gpu> gpu{};
};
struct kdvfs_scope {
    kdvfs::Scope scope;
};
struct kdvfs_request {
    kdvfs::StandingRequest request;
};

namespace {

using kdvfs::Errc;
using kdvfs::Error;

thread_local std::string last_error;

kdvfs_status status_of(Errc code) {
    switch (code) {
        case Errc::invalid_input: return KDVFS_INVALID_INPUT;
        case Errc::not_supported: return KDVFS_NOT_SUPPORTED;
        case Errc::refused: return KDVFS_REFUSED;
        case Errc::busy: return KDVFS_BUSY;
        case Errc::vanished: return KDVFS_VANISHED;
        case Errc::external_change: return KDVFS_EXTERNAL_CHANGE;
        case Errc::timed_out: return KDVFS_TIMED_OUT;
        case Errc::io: return KDVFS_IO;
    }
    return KDVFS_UNEXPECTED;
}

/// Calls `work`; what it throws becomes the result and the thread's last error.
template <class Work>
kdvfs_status guarded(Work work) noexcept {
    try {
        last_error.clear();
        work();
        return KDVFS_OK;
    } catch (const Error& error) {
        last_error = error.what();
        return status_of(error.code());
    } catch (const std::exception& error) {
        last_error = error.what();
    } catch (...) {
        last_error = "an exception of an unknown type";
    }
    return KDVFS_UNEXPECTED;
}

[[noreturn]] void refuse(const char* action, std::string object, const char* why,
                         const char* remedy) {
    throw Error{Errc::invalid_input, {action, std::move(object), why, remedy}};
}

/// @throws Error (invalid_input) for a null pointer
template <class Pointer>
Pointer given(Pointer pointer, const char* action, const char* what) {
    if (pointer == nullptr) refuse(action, what, "it is null", "pass a valid pointer");
    return pointer;
}

const kdvfs::Gpu& open_gpu(kdvfs_gpu* handle, const char* action) {
    given(handle, action, "the GPU's handle");
    if (!handle->gpu) refuse(action, "the GPU's handle", "it is closed", "open the GPU again");
    return *handle->gpu;
}

kdvfs::simulated::Device& simulated_device(kdvfs_gpu* handle, const char* action) {
    static_cast<void>(open_gpu(handle, action));
    if (handle->simulated == nullptr) {
        refuse(action, "a real GPU", "the work is simulated",
               "open the GPU with kdvfs_open_simulated");
    }
    return *handle->simulated;
}

kdvfs::GpuOptions options_of(unsigned flags) {
    if ((flags & ~unsigned{KDVFS_MEASURE_ONLY | KDVFS_FALL_BACK}) != 0) {
        refuse("open a GPU", "flags", "an unknown flag is set",
               "use KDVFS_MEASURE_ONLY and KDVFS_FALL_BACK");
    }
    kdvfs::GpuOptions options;
    if ((flags & (KDVFS_MEASURE_ONLY | KDVFS_FALL_BACK)) != 0) {
        options.on_refused = kdvfs::OnRefused::measure_only;
    }
    return options;
}

kdvfs::simulated::Board board_of(std::string_view name) {
    using namespace kdvfs::simulated;
    if (name == "mi210") return mi210();
    if (name == "mi250x") return mi250x();
    if (name == "mi300x") return mi300x();
    if (name == "h100") return h100();
    if (name == "rtx_3080_ti") return rtx_3080_ti();
    refuse("open a simulated GPU", std::string{name}, "there is no such board",
           "use mi210, mi250x, mi300x, h100 or rtx_3080_ti");
}

}  // namespace

extern "C" {

int kdvfs_c_version(void) { return KDVFS_C_VERSION; }

const char* kdvfs_version(void) {
    static const std::string version = std::to_string(KDVFS_VERSION_MAJOR) + '.' +
                                       std::to_string(KDVFS_VERSION_MINOR) + '.' +
                                       std::to_string(KDVFS_VERSION_PATCH);
    return version.c_str();
}

const char* kdvfs_last_error(void) { return last_error.c_str(); }

kdvfs_status kdvfs_open_board(const char* vendor, const char* address, unsigned flags,
                              kdvfs_gpu** gpu) {
    return guarded([&] {
        constexpr const char* action = "open a GPU";
        *given(gpu, action, "the place for the handle") = nullptr;
        const std::string_view made_by{given(vendor, action, "the vendor")};
        const std::string at{given(address, action, "the PCI address")};
        const kdvfs::GpuOptions options = options_of(flags);
        const bool measure_only = (flags & KDVFS_MEASURE_ONLY) != 0;
        auto handle = std::make_unique<kdvfs_gpu>();
        if (made_by == "nvidia") {
            handle->gpu = measure_only ? kdvfs::nvidia::measure(at, options)
                                       : kdvfs::nvidia::open(at, options);
        } else if (made_by == "amd") {
            if (measure_only) {
                throw Error{Errc::not_supported,
                            {action, at, "AMD boards cannot be opened to measure only",
                             "pass KDVFS_FALL_BACK"}};
            }
            handle->gpu = kdvfs::rocm::open(at, options);
        } else {
            refuse(action, std::string{made_by}, "this vendor is not known", "use amd or nvidia");
        }
        *gpu = handle.release();
    });
}

kdvfs_status kdvfs_open_simulated(const char* board, unsigned flags, kdvfs_gpu** gpu) {
    return guarded([&] {
        constexpr const char* action = "open a simulated GPU";
        *given(gpu, action, "the place for the handle") = nullptr;
        auto handle = std::make_unique<kdvfs_gpu>();
        handle->simulated = std::make_unique<kdvfs::simulated::Device>(
            board_of(given(board, action, "the board's name")));
        handle->gpu = kdvfs::simulated::open(*handle->simulated, options_of(flags));
        *gpu = handle.release();
    });
}

kdvfs_status kdvfs_close(kdvfs_gpu* gpu) {
    return guarded([&] {
        const std::unique_ptr<kdvfs_gpu> last{gpu};
        if (gpu != nullptr && gpu->gpu) gpu->gpu->close();
    });
}

int kdvfs_measure_only(const kdvfs_gpu* gpu) {
    if (gpu == nullptr || !gpu->gpu) return -1;
    return gpu->gpu->measure_only() ? 1 : 0;
}

kdvfs_status kdvfs_scope_begin(kdvfs_gpu* gpu, void* stream, const char* name, uint32_t variant,
                               uint32_t core_mhz, kdvfs_scope** scope) {
    return guarded([&] {
        constexpr const char* action = "enter a scope";
        *given(scope, action, "the place for the scope") = nullptr;
        const kdvfs::ClockRequest request{.asks = core_mhz != 0,
                                          .point = {.core = kdvfs::Megahertz{core_mhz}}};
        const kdvfs::ScopeName entered{open_gpu(gpu, action), given(name, action, "the name"),
                                       kdvfs::variant(variant), request};
        *scope = new kdvfs_scope{kdvfs::Scope{kdvfs::StreamRef{stream}, entered}};
    });
}

kdvfs_status kdvfs_phase_begin(kdvfs_gpu* gpu, void* stream, const char* name,
                               kdvfs_scope** phase) {
    return guarded([&] {
        constexpr const char* action = "enter a phase";
        *given(phase, action, "the place for the phase") = nullptr;
        const auto entered =
            kdvfs::ScopeName::range(open_gpu(gpu, action), given(name, action, "the name"));
        *phase = new kdvfs_scope{kdvfs::Scope{kdvfs::StreamRef{stream}, entered}};
    });
}

kdvfs_status kdvfs_scope_end(kdvfs_scope* scope) {
    return guarded([&] {
        const std::unique_ptr<kdvfs_scope> last{scope};
        if (scope != nullptr) scope->scope.close();
    });
}

kdvfs_status kdvfs_next_iteration(kdvfs_gpu* gpu) {
    return guarded([&] { open_gpu(gpu, "begin an iteration").next_iteration(); });
}

kdvfs_status kdvfs_request_begin(kdvfs_gpu* gpu, uint32_t core_mhz, kdvfs_request** request) {
    return guarded([&] {
        constexpr const char* action = "request a clock";
        *given(request, action, "the place for the request") = nullptr;
        const kdvfs::ClockPoint clock{.core = kdvfs::Megahertz{core_mhz}};
        *request = new kdvfs_request{kdvfs::StandingRequest{open_gpu(gpu, action), clock}};
    });
}

kdvfs_status kdvfs_request_end(kdvfs_request* request) {
    return guarded([&] { delete request; });
}

kdvfs_status kdvfs_report_json(kdvfs_gpu* gpu, char** json) {
    return guarded([&] {
        constexpr const char* action = "make a report";
        *given(json, action, "the place for the report") = nullptr;
        std::ostringstream out;
        kdvfs::measure::write_json(out, open_gpu(gpu, action).report());
        const std::string text = out.str();
        auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
        if (copy == nullptr) throw std::bad_alloc{};
        *json = std::strcpy(copy, text.c_str());
    });
}

void kdvfs_free(char* text) { std::free(text); }

kdvfs_status kdvfs_check(kdvfs_gpu* gpu) {
    return guarded([&] { open_gpu(gpu, "check a GPU").check(); });
}

kdvfs_status kdvfs_simulated_launch(kdvfs_gpu* gpu, double matrix_flops, double vector_flops,
                                    double memory_bytes) {
    return guarded([&] {
        constexpr const char* action = "launch simulated work";
        auto& device = simulated_device(gpu, action);
        for (const double amount : {matrix_flops, vector_flops, memory_bytes}) {
            if (!(amount >= 0) || !std::isfinite(amount)) {
                refuse(action, std::to_string(amount), "an amount of work is below 0 or not finite",
                       "give operations and bytes of at least 0");
            }
        }
        device.launch(kdvfs::StreamRef{}, roofline(device.board(), {.matrix_flops = matrix_flops,
                                                                    .vector_flops = vector_flops,
                                                                    .memory_bytes = memory_bytes}));
    });
}

kdvfs_status kdvfs_simulated_synchronize(kdvfs_gpu* gpu) {
    return guarded([&] { simulated_device(gpu, "synchronize").synchronize(); });
}

}  // extern "C"
