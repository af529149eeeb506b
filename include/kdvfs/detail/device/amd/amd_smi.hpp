// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/rocm_smi.hpp>
#include <kdvfs/detail/device/amd/settable_clocks.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/error.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

/// AMD SMI, looked for when the program runs. Its SONAME has changed with each ABI, 24 (ROCm 6.2)
/// to 27; the few functions here have kept their arguments in all of them, and those that one lacks
/// are null: 24 has no limit of one end, 27 none of both (amdsmi.h and its change log).
namespace kdvfs::inline v0_3::device::amd_smi {

/// amdsmi_status_t.
enum class Status : std::uint32_t {
    success = 0,
    invalid = 1,
    not_supported = 2,
    timed_out = 8,
    retry = 9,
    no_permission = 10,
    interrupted = 11,
    busy = 30,
    not_found = 31,
};

/// A device of the library.
using Handle = void*;

/// amdsmi_clk_type_t; the first two of amdsmi_clk_limit_type_t and amdsmi_freq_ind_t.
enum class ClockType : std::uint32_t { core = 0, memory = 4 };
inline constexpr std::uint32_t lower_limit = 0;
inline constexpr std::uint32_t upper_limit = 1;
inline constexpr std::uint64_t amd_gpus = 2;  // AMDSMI_INIT_AMD_GPUS

/// The functions that kdvfs calls. An `amdsmi_bdf_t` is a word: domain << 16 | bus << 8 | device <<
/// 3 | function.
struct Functions {
    Status (*init)(std::uint64_t) = nullptr;
    Status (*shut_down)() = nullptr;
    Status (*status_code_to_string)(Status, const char**) = nullptr;
    Status (*get_processor_handle_from_bdf)(std::uint64_t, Handle*) = nullptr;
    Status (*set_gpu_perf_level)(Handle, std::uint32_t) = nullptr;
    Status (*set_gpu_perf_determinism_mode)(Handle, std::uint64_t) = nullptr;
    Status (*set_clk_freq)(Handle, ClockType, std::uint64_t) = nullptr;
    /// One of the three may be enough.
    Status (*set_gpu_clk_range)(Handle, std::uint64_t, std::uint64_t, ClockType) = nullptr;
    Status (*set_gpu_clk_limit)(Handle, ClockType, std::uint32_t, std::uint64_t) = nullptr;
    Status (*set_gpu_od_clk_info)(Handle, std::uint32_t, std::uint64_t, ClockType) = nullptr;
};

/// What a status of AMD SMI means.
constexpr Errc errc_of(Status status) {
    switch (status) {
        case Status::invalid:
        case Status::not_supported:
        case Status::no_permission: return Errc::refused;
        case Status::timed_out: return Errc::timed_out;
        case Status::retry:
        case Status::interrupted:
        case Status::busy: return Errc::busy;
        default: return Errc::io;
    }
}

/// AMD SMI, started; one for all devices of a process.
class Session {
public:
    /// @throws Error (not_supported) where the library is not here, or cannot start
    static std::shared_ptr<Session> open() {
        return kdvfs::detail::shared_session<Session>(
            [] { return std::unique_ptr<Session>{new Session}; });
    }

    /// @throws Error (not_supported) where it cannot start
    void start() {
        const Status status = functions_.init(amd_gpus);
        if (status != Status::success) cannot_start(words_of(status));
        started_ = true;
    }

    ~Session() {
        if (started_) functions_.shut_down();
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    [[nodiscard]] const Functions& functions() const { return functions_; }
    /// "27": the ABI.
    [[nodiscard]] std::string abi() const {
        return library_.name().substr(library_.name().rfind('.') + 1);
    }

    /// @throws Error (not_supported) where the library does not know the GPU
    [[nodiscard]] Handle handle_of(const amd::Card& card) const {
        const io::PciAddress at = card.address;
        const std::uint64_t word = std::uint64_t{at.domain} << 16 | std::uint64_t{at.bus} << 8 |
                                   std::uint64_t{at.device} << 3 | at.function;
        Handle handle = nullptr;
        const Status status = functions_.get_processor_handle_from_bdf(word, &handle);
        if (status == Status::success && handle != nullptr) return handle;
        throw Error{Errc::not_supported,
                    {"find the GPU in AMD SMI", to_string(card), words_of(status),
                     "choose another ClockPath"}};
    }

    [[nodiscard]] std::string words_of(Status status) const {
        const char* words = nullptr;
        functions_.status_code_to_string(status, &words);
        return "AMD SMI status " + std::to_string(static_cast<std::uint32_t>(status)) +
               (words != nullptr ? ": " + std::string{words} : std::string{});
    }

private:
    static std::array<std::string, 4> names() {
        return {"libamd_smi.so.27", "libamd_smi.so.26", "libamd_smi.so.25", "libamd_smi.so.24"};
    }

    Session() : library_{names()} {
        if (!library_.is_open()) cannot_start("it is not installed here");
        find_functions();
    }

    void find_functions() {
        require(functions_.init, "amdsmi_init");
        require(functions_.shut_down, "amdsmi_shut_down");
        require(functions_.status_code_to_string, "amdsmi_status_code_to_string");
        require(functions_.get_processor_handle_from_bdf, "amdsmi_get_processor_handle_from_bdf");
        require(functions_.set_gpu_perf_level, "amdsmi_set_gpu_perf_level");
        library_.find(functions_.set_gpu_perf_determinism_mode,
                      "amdsmi_set_gpu_perf_determinism_mode");
        library_.find(functions_.set_clk_freq, "amdsmi_set_clk_freq");
        library_.find(functions_.set_gpu_clk_range, "amdsmi_set_gpu_clk_range");
        library_.find(functions_.set_gpu_clk_limit, "amdsmi_set_gpu_clk_limit");
        library_.find(functions_.set_gpu_od_clk_info, "amdsmi_set_gpu_od_clk_info");
    }

    template <class Function>
    void require(Function*& function, const char* symbol) {
        library_.find(function, symbol);
        if (function == nullptr) cannot_start(library_.name() + " has no " + symbol);
    }

    [[noreturn]] static void cannot_start(std::string words) {
        throw Error{Errc::not_supported,
                    {"start AMD SMI", "this machine", std::move(words),
                     "install it with its driver, or choose another ClockPath"}};
    }

    kdvfs::detail::SharedLibrary library_;
    Functions functions_;
    bool started_ = false;
};

/// Writes settings through AMD SMI, which writes the driver's files.
class Writer final : public amd::ClockWriter {
public:
    /// @throws Error where the library cannot be used for this GPU
    explicit Writer(const amd::Card& card)
        : session_{Session::open()}, handle_{session_->handle_of(card)}, object_{to_string(card)} {}

    [[nodiscard]] std::string name() const override { return "amd_smi " + session_->abi(); }

    void write_level(const std::string& level) override {
        const std::string action = "set the performance level " + level;
        const auto number = rocm_smi::number_of_level(level);
        if (!number) fail(action, Status::invalid);
        check(action, call().set_gpu_perf_level(handle_, *number));
    }

    /// Where both ends cannot be written at once the lower one is written first: the present range
    /// touches the wanted one (see `CappedClocks`), so that it never lies above the upper one.
    void write_limits(const amd::ClockLimits& limits) override {
        const std::string action = "set core limits of " + to_string(limits.core_min) + " and " +
                                   to_string(limits.core_max);
        if (limits.core_min >= limits.core_max) fail(action, Status::invalid);
        if (call().set_gpu_clk_range != nullptr) {
            check(action, call().set_gpu_clk_range(handle_, limits.core_min.count,
                                                   limits.core_max.count, ClockType::core));
        } else {
            limit(action, ClockType::core, lower_limit, limits.core_min);
            limit(action, ClockType::core, upper_limit, limits.core_max);
        }
        if (limits.memory_max == auto_clock) return;
        limit("set a memory limit of " + to_string(limits.memory_max), ClockType::memory,
              upper_limit, limits.memory_max);
    }

    void write_determinism(Megahertz cap) override {
        const std::string action = "set a deterministic core limit of " + to_string(cap);
        if (call().set_gpu_perf_determinism_mode == nullptr) absent(action);
        check(action, call().set_gpu_perf_determinism_mode(handle_, cap.count));
    }

    void write_levels_up_to(unsigned highest) override {
        const std::string action = "allow core levels up to " + std::to_string(highest);
        if (call().set_clk_freq == nullptr) absent(action);
        write_level("manual");
        const std::uint64_t mask = (std::uint64_t{2} << highest) - 1;
        check(action, call().set_clk_freq(handle_, ClockType::core, mask));
    }

private:
    [[nodiscard]] const Functions& call() const { return session_->functions(); }

    void limit(const std::string& action, ClockType domain, std::uint32_t end, Megahertz clock) {
        if (call().set_gpu_clk_limit != nullptr) {
            check(action, call().set_gpu_clk_limit(handle_, domain, end, clock.count));
        } else if (call().set_gpu_od_clk_info != nullptr) {
            check(action, call().set_gpu_od_clk_info(handle_, end, clock.count, domain));
        } else {
            absent(action);
        }
    }

    void check(const std::string& action, Status status) const {
        if (status != Status::success) fail(action, status);
    }

    [[noreturn]] void absent(const std::string& action) const {
        throw Error{Errc::not_supported,
                    {action, object_, "AMD SMI " + session_->abi() + " has no function for it",
                     "choose another ClockPath"}};
    }

    [[noreturn]] void fail(const std::string& action, Status status) const {
        throw Error{errc_of(status),
                    {action, object_, session_->words_of(status),
                     status == Status::no_permission
                         ? "run as root: the library asks for it, even where the files do not"
                         : "the driver or the library does not accept this on this board"}};
    }

    std::shared_ptr<Session> session_;
    Handle handle_;
    std::string object_;
};

}  // namespace kdvfs::inline v0_3::device::amd_smi
