// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/error.hpp>

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// NVIDIA's management library, loaded at run time: kdvfs needs neither its header nor its import
/// library to be built. The declarations follow the API reference of NVML 13 (functions, codes
/// and field numbers are kept stable across versions by NVIDIA).
namespace kdvfs::inline v0_3::device::nvml {

/// A device of the library.
using Handle = struct OpaqueDevice*;

/// nvmlReturn_t.
enum class Status : int {
    success = 0,
    uninitialized = 1,
    invalid_argument = 2,
    not_supported = 3,
    no_permission = 4,
    not_found = 6,
    insufficient_size = 7,
    driver_not_loaded = 9,
    timeout = 10,
    library_not_found = 12,
    function_not_found = 13,
    gpu_is_lost = 15,
    reset_required = 16,
    version_mismatch = 18,
    in_use = 19,
};

/// nvmlValue_t; which member holds is said beside it by a ValueType.
union Value {
    double real;
    std::uint32_t natural;
    std::uint64_t long_natural;
    std::int64_t long_integer;
};

/// nvmlValueType_t.
enum class ValueType : std::uint32_t {
    real = 0,
    natural = 1,
    unsigned_long = 2,
    long_natural = 3,
    long_integer = 4,
};

/// nvmlSample_t.
struct Sample {
    std::uint64_t time_us;  ///< CPU time since 1970
    Value value;
};

/// nvmlFieldValue_t.
struct FieldValue {
    std::uint32_t field;
    std::uint32_t scope;
    std::int64_t time_us;  ///< CPU time since 1970
    std::int64_t latency_us;
    ValueType type;
    Status status;
    Value value;
};

/// nvmlPciInfo_t.
struct PciInfo {
    std::array<char, 16> short_address;
    std::uint32_t domain;
    std::uint32_t bus;
    std::uint32_t device;
    std::uint32_t device_id;
    std::uint32_t subsystem_id;
    std::array<char, 32> address;  ///< "00000000:1B:00.0"
};

/// nvmlWorkloadPowerProfileCurrentProfiles_v1_t: bit sets of profile numbers.
struct PowerProfiles {
    std::uint32_t version = sizeof(PowerProfiles) | 1U << 24U;
    std::array<std::uint32_t, 8> supported{};
    std::array<std::uint32_t, 8> requested{};
    std::array<std::uint32_t, 8> enforced{};
};

/// nvmlWorkloadPowerProfileUpdateProfiles_v1_t, which has no version in it.
struct PowerProfilesUpdate {
    /// nvmlPowerProfileOperation_t.
    enum Operation : std::uint32_t { clear = 0, set = 1, set_and_overwrite = 2 };
    Operation operation = set_and_overwrite;
    std::array<std::uint32_t, 8> profiles{};
};

/// nvmlProcessInfo_t, of version 2 on.
struct Process {
    std::uint32_t id;
    std::uint64_t memory;
    std::uint32_t gpu_instance;
    std::uint32_t compute_instance;
};
/// nvmlProcessInfo_v1_t.
struct OldProcess {
    std::uint32_t id;
    std::uint64_t memory;
};
/// nvmlProcessUtilizationSample_t: per cent of a sampling period.
struct ProcessUse {
    std::uint32_t id;
    std::uint64_t time_us;
    std::uint32_t cores;
    std::uint32_t memory;
    std::uint32_t encoder;
    std::uint32_t decoder;
};

inline constexpr std::uint32_t field_power_average = 185;
inline constexpr std::uint32_t field_power_instant = 186;
inline constexpr std::uint32_t sampling_total_power = 0;
inline constexpr std::uint32_t clock_core = 1;    // NVML_CLOCK_SM
inline constexpr std::uint32_t clock_memory = 2;  // NVML_CLOCK_MEM

/// The reading functions, of which those that a driver may lack are null there.
struct Readers {
    Status (*init)();
    Status (*shutdown)();
    const char* (*error_string)(Status);
    Status (*driver_version)(char*, unsigned);
    Status (*count)(unsigned*);
    Status (*handle_by_index)(unsigned, Handle*);
    Status (*pci_info)(Handle, PciInfo*);
    Status (*handle_by_address)(const char*, Handle*);
    Status (*name)(Handle, char*, unsigned);
    Status (*compute_capability)(Handle, int*, int*);
    Status (*supported_memory_clocks)(Handle, unsigned*, unsigned*);
    Status (*supported_core_clocks)(Handle, unsigned, unsigned*, unsigned*);
    Status (*clock)(Handle, std::uint32_t, unsigned*);
    Status (*limit_reasons)(Handle, unsigned long long*);
    Status (*power_limit)(Handle, unsigned*);
    Status (*total_energy)(Handle, unsigned long long*);
    Status (*field_values)(Handle, int, FieldValue*);
    Status (*samples)(Handle, std::uint32_t, unsigned long long, ValueType*, unsigned*, Sample*);
    Status (*power_profiles)(Handle, PowerProfiles*);
    Status (*processes)(Handle, unsigned*, Process*);
    Status (*old_processes)(Handle, unsigned*, OldProcess*);  ///< of drivers without the former
    Status (*process_use)(Handle, ProcessUse*, unsigned*, unsigned long long);
};

/// The functions that change a board. They are looked up only for a device opened to set clocks:
/// a process that measures has no way to reach them.
struct Setters {
    Status (*lock_core)(Handle, unsigned, unsigned) = nullptr;
    Status (*unlock_core)(Handle) = nullptr;
    Status (*lock_memory)(Handle, unsigned, unsigned) = nullptr;  ///< null on older drivers
    Status (*unlock_memory)(Handle) = nullptr;                    ///< null on older drivers
};

/// The functions of the power limit, in milliwatts; looked up only where one is to be set.
struct PowerLimitCalls {
    Status (*get)(Handle, unsigned*) = nullptr;
    Status (*range)(Handle, unsigned* low, unsigned* high) = nullptr;
    Status (*set)(Handle, unsigned) = nullptr;
};

/// What asks for workload power profiles; looked up only where one is to be switched to.
using UpdatePowerProfiles = Status (*)(Handle, const PowerProfilesUpdate*);

/// The loaded and initialised library. Its functions may be called from any thread.
class Library {
public:
    static constexpr int oldest_driver = 450;

    /// @param path what the dynamic loader is asked for: a double in tests.
    /// @throws Error if the library is absent, too old, or refuses to start.
    explicit Library(const std::string& path) : path_{path}, file_{path} {
        if (!file_.is_open()) {
            throw Error{Errc::not_supported,
                        {"load NVML", path, file_.words(),
                         "install NVIDIA's driver, or run where it is (in a container: with the "
                         "utility capability)"}};
        }
        resolve_readers();
        check(readers_.init(), "start NVML", path_);
        started_ = true;
        try {
            check_driver();
        } catch (...) {
            stop();
            throw;
        }
    }

    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    ~Library() { stop(); }

    [[nodiscard]] const Readers& readers() const { return readers_; }
    [[nodiscard]] const std::string& driver_version() const { return driver_version_; }
    /// The folder that the dynamic loader found it in.
    [[nodiscard]] std::string folder() const {
        return io::folder_of(reinterpret_cast<const void*>(readers_.init));
    }

    /// The PCI addresses of the boards that this process can reach, as NVML spells them.
    /// @throws Error with NVML's words.
    [[nodiscard]] std::vector<std::string> addresses() const {
        unsigned count = 0;
        check(readers_.count(&count), "count the boards", path_);
        std::vector<std::string> found;
        for (unsigned i = 0; i < count; ++i) {
            Handle board = nullptr;
            PciInfo info{};
            // One that is another container's, or lost, cannot be opened either.
            if (readers_.handle_by_index(i, &board) != Status::success) continue;
            if (readers_.pci_info(board, &info) != Status::success) continue;
            info.address.back() = '\0';
            found.emplace_back(info.address.data());
        }
        return found;
    }

    /// @throws Error if the driver cannot lock core clocks at all.
    [[nodiscard]] Setters find_setters() const {
        Setters setters;
        require(setters.lock_core, "nvmlDeviceSetGpuLockedClocks");
        require(setters.unlock_core, "nvmlDeviceResetGpuLockedClocks");
        find(setters.lock_memory, "nvmlDeviceSetMemoryLockedClocks");
        find(setters.unlock_memory, "nvmlDeviceResetMemoryLockedClocks");
        return setters;
    }

    /// @throws Error (not_supported) where the driver lacks one
    [[nodiscard]] PowerLimitCalls find_power_limit_calls() const {
        PowerLimitCalls calls;
        require(calls.get, "nvmlDeviceGetPowerManagementLimit");
        require(calls.range, "nvmlDeviceGetPowerManagementLimitConstraints");
        require(calls.set, "nvmlDeviceSetPowerManagementLimit");
        return calls;
    }

    /// Null where the driver cannot switch profiles, or not by one call.
    [[nodiscard]] UpdatePowerProfiles find_update_power_profiles() const {
        UpdatePowerProfiles update = nullptr;
        find(update, "nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1");
        return update;
    }

    /// @throws Error for anything but success.
    void check(Status status, std::string action, std::string object) const {
        if (status == Status::success) return;
        throw Error{code_of(status),
                    {std::move(action), std::move(object), readers_.error_string(status),
                     std::string{remedy_for(status)}}};
    }

    static constexpr Errc code_of(Status status) {
        switch (status) {
            case Status::invalid_argument: return Errc::invalid_input;
            case Status::not_supported:
            case Status::function_not_found:
            case Status::driver_not_loaded:
            case Status::library_not_found:
            case Status::version_mismatch: return Errc::not_supported;
            case Status::no_permission: return Errc::refused;
            case Status::timeout: return Errc::timed_out;
            case Status::gpu_is_lost:
            case Status::reset_required: return Errc::vanished;
            case Status::in_use: return Errc::busy;
            default: return Errc::io;
        }
    }

    static constexpr std::string_view remedy_for(Status status) {
        switch (status) {
            case Status::no_permission:
                return "run as root, have an administrator set the clocks, or open the GPU to "
                       "measure only";
            case Status::not_supported: return "this board cannot do it: open it to measure only";
            case Status::function_not_found: return "update NVIDIA's driver";
            case Status::driver_not_loaded: return "load NVIDIA's kernel driver";
            case Status::version_mismatch:
                return "driver and library differ: reboot, or restart the container";
            case Status::not_found: return "is this GPU visible to this process or container?";
            case Status::gpu_is_lost:
            case Status::reset_required: return "the GPU needs a reset by its administrator";
            default: return "";
        }
    }

private:
    template <class Function>
    void find(Function& function, const char* symbol) const {
        file_.find(function, symbol);
    }

    template <class Function>
    void require(Function& function, const char* symbol) const {
        find(function, symbol);
        if (function == nullptr) {
            throw Error{Errc::not_supported,
                        {std::string{"find "} + symbol, path_, "", "update NVIDIA's driver"}};
        }
    }

    void resolve_readers() {
        require(readers_.init, "nvmlInit_v2");
        require(readers_.shutdown, "nvmlShutdown");
        require(readers_.error_string, "nvmlErrorString");
        require(readers_.driver_version, "nvmlSystemGetDriverVersion");
        require(readers_.count, "nvmlDeviceGetCount_v2");
        require(readers_.handle_by_index, "nvmlDeviceGetHandleByIndex_v2");
        require(readers_.pci_info, "nvmlDeviceGetPciInfo_v3");
        require(readers_.handle_by_address, "nvmlDeviceGetHandleByPciBusId_v2");
        require(readers_.name, "nvmlDeviceGetName");
        require(readers_.compute_capability, "nvmlDeviceGetCudaComputeCapability");
        require(readers_.supported_memory_clocks, "nvmlDeviceGetSupportedMemoryClocks");
        require(readers_.supported_core_clocks, "nvmlDeviceGetSupportedGraphicsClocks");
        require(readers_.clock, "nvmlDeviceGetClockInfo");
        find(readers_.limit_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
        if (readers_.limit_reasons == nullptr) {  // its name before NVML 12.2
            find(readers_.limit_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
        }
        find(readers_.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
        find(readers_.total_energy, "nvmlDeviceGetTotalEnergyConsumption");
        find(readers_.field_values, "nvmlDeviceGetFieldValues");
        find(readers_.samples, "nvmlDeviceGetSamples");
        find(readers_.power_profiles, "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles");
        for (const char* name : {"nvmlDeviceGetComputeRunningProcesses_v3",
                                 "nvmlDeviceGetComputeRunningProcesses_v2"}) {
            if (readers_.processes == nullptr) find(readers_.processes, name);
        }
        find(readers_.old_processes, "nvmlDeviceGetComputeRunningProcesses");
        find(readers_.process_use, "nvmlDeviceGetProcessUtilization");
    }

    void check_driver() {
        std::array<char, 96> text{};
        check(readers_.driver_version(text.data(), static_cast<unsigned>(text.size())),
              "read the driver's version", path_);
        driver_version_ = text.data();
        int major = 0;
        std::from_chars(driver_version_.data(), driver_version_.data() + driver_version_.size(),
                        major);
        if (major < oldest_driver) {
            throw Error{Errc::not_supported,
                        {"use NVIDIA's driver " + driver_version_, path_, "",
                         "update it to " + std::to_string(oldest_driver) + " or later"}};
        }
    }

    // The library counts its starts, so that others in this process keep theirs. A forked child
    // has not started it.
    void stop() noexcept {
        if (started_ && getpid() == owner_) readers_.shutdown();
        started_ = false;
    }

    std::string path_;
    io::SharedLibrary file_;
    Readers readers_{};
    std::string driver_version_;
    bool started_ = false;
    pid_t owner_ = getpid();
};

}  // namespace kdvfs::inline v0_3::device::nvml
