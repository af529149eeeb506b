// SPDX-License-Identifier: MIT
// Exports NVML's own names. Declarations are written afresh from NVML's documentation and not
// shared with the library under test, so that a slip in one shows against the other.
#include "nvml_double.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>

namespace {

enum Code {
    success = 0,
    invalid_argument = 2,
    not_supported = 3,
    not_found = 6,
    insufficient_size = 7,
};

nvml_double::Board board;

/// The code with which a function is to fail now, or success.
nvml_double::Fault fault_of(const char* function) {
    const auto found = board.faults.find(function);
    if (found == board.faults.end()) return {};
    if (found->second.spared_calls > 0) {
        --found->second.spared_calls;
        return {};
    }
    return found->second;
}

/// What the library keeps in static objects from its first call on ends with the process, before
/// all that was there to be ended until then: who calls later is lost.
bool has_ended = false;
struct StaticObjects {
    ~StaticObjects() { has_ended = true; }
};

template <class Act>
int guarded(const char* function, Act act) {
    if (has_ended) {
        std::fprintf(stderr, "%s was called when NVML had ended\n", function);
        std::abort();
    }
    const nvml_double::Fault fault = fault_of(function);
    if (fault.code != success && !fault.acts_all_the_same) return fault.code;
    const int code = act();
    return fault.code != success ? fault.code : code;
}

int copy_text(const std::string& from, char* to, unsigned room) {
    if (from.size() + 1 > room) return insufficient_size;
    std::memcpy(to, from.c_str(), from.size() + 1);
    return success;
}

int copy_list(const std::vector<unsigned>& from, unsigned* count, unsigned* to) {
    const auto room = *count;
    *count = static_cast<unsigned>(from.size());
    if (to == nullptr || room < from.size()) return insufficient_size;
    std::copy(from.begin(), from.end(), to);
    return success;
}

std::string call(const char* name, unsigned low, unsigned high) {
    return std::string{name} + '(' + std::to_string(low) + ", " + std::to_string(high) + ')';
}

union Value {
    double real;
    unsigned natural;
    unsigned long long long_natural;
};
struct Sample {
    unsigned long long time;
    Value value;
};
struct FieldValue {
    unsigned field;
    unsigned scope;
    long long time;
    long long latency;
    unsigned type;
    int status;
    Value value;
};

/// For the board's owner, and for who is in another process.
void note_write(const std::string& text) {
    board.writes.push_back(text);
    if (const char* const log = std::getenv("NVML_DOUBLE_LOG")) {
        std::ofstream{log, std::ios::app} << text << '\n';
    }
}

std::vector<nvml_double::Process> processes() {
    if (board.processes) return *board.processes;
    return {{static_cast<unsigned>(getpid()), 90}};
}

/// What is asked for may be read while it is set.
std::mutex& profiles_of_board() {
    static std::mutex mutex;
    return mutex;
}

}  // namespace

extern "C" {

nvml_double::Board* nvml_double_board() { return &board; }

int nvmlInit_v2() {
    static const StaticObjects objects;
    return guarded(__func__, [] {
        ++board.starts;
        return success;
    });
}

int nvmlShutdown() {
    --board.starts;
    return success;
}

const char* nvmlErrorString(int code) {
    switch (code) {
        case 3: return "Not Supported";
        case 4: return "Insufficient Permissions";
        case 6: return "Not Found";
        case 15: return "GPU is lost";
        default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char* text, unsigned room) {
    return copy_text(board.driver, text, room);
}

int nvmlDeviceGetCount_v2(unsigned* count) {
    return guarded(__func__, [&] {
        *count = 1;
        return success;
    });
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    return guarded(__func__, [&]() -> int {
        if (index != 0) return invalid_argument;
        *device = &board;
        return success;
    });
}

struct PciInfo {
    char short_address[16];
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned device_and_vendor;
    unsigned subsystem;
    char address[32];
};

/// NVML writes a domain of eight digits, and capitals.
int nvmlDeviceGetPciInfo_v3(void*, PciInfo* info) {
    std::string address = "0000" + board.address;
    std::transform(address.begin(), address.end(), address.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    *info = {};
    return copy_text(address, info->address, sizeof info->address);
}

/// However it is spelled, as NVML has it: "00000000:1B:00.0" and "0000:1b:00.0" are one.
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
    const auto numbers_of = [](const char* text) {
        std::array<unsigned, 4> numbers{};
        auto& [domain, bus, slot, function] = numbers;
        const int found = std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function);
        return found == 4 ? std::optional{numbers} : std::nullopt;
    };
    const auto wanted = numbers_of(address);
    if (!wanted || wanted != numbers_of(board.address.c_str())) return not_found;
    *device = &board;
    return success;
}

int nvmlDeviceGetName(void*, char* text, unsigned room) {
    return copy_text(board.name, text, room);
}

int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
    *major = 9;
    *minor = 0;
    return success;
}

int nvmlDeviceGetSupportedMemoryClocks(void*, unsigned* count, unsigned* clocks) {
    return guarded(__func__, [&]() -> int {
        std::vector<unsigned> list;
        for (const auto& [memory, cores] : board.core_clocks_by_memory) list.push_back(memory);
        std::reverse(list.begin(), list.end());
        return copy_list(list, count, clocks);
    });
}

int nvmlDeviceGetSupportedGraphicsClocks(void*, unsigned memory, unsigned* count,
                                         unsigned* clocks) {
    return guarded(__func__, [&]() -> int {
        const auto found = board.core_clocks_by_memory.find(memory);
        if (found == board.core_clocks_by_memory.end()) return not_found;
        return copy_list(found->second, count, clocks);
    });
}

int nvmlDeviceGetClockInfo(void*, unsigned type, unsigned* clock) {
    return guarded(__func__, [&]() -> int {
        if (type != 1 && type != 2) return invalid_argument;
        const auto& lock = type == 1 ? board.core_lock : board.memory_lock;
        const unsigned wished = type == 1 ? board.wished_core : board.wished_memory;
        *clock = lock ? std::clamp(wished, lock->first, lock->second) : wished;
        return success;
    });
}

#ifdef NVML_DOUBLE_OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(void*, unsigned long long* reasons) {
#endif
    *reasons = board.limit_reasons;
    return success;
}

int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
    *milliwatts = 700'000;
    return success;
}

int nvmlDeviceGetPowerManagementLimit(void*, unsigned* milliwatts) {
    *milliwatts = board.power_limit;
    return success;
}

int nvmlDeviceGetPowerManagementLimitConstraints(void*, unsigned* low, unsigned* high) {
    *low = 200'000;
    *high = 700'000;
    return success;
}

int nvmlDeviceSetPowerManagementLimit(void*, unsigned milliwatts) {
    note_write("power limit " + std::to_string(milliwatts));
    return guarded(__func__, [&] {
        board.power_limit = milliwatts;
        return success;
    });
}

int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
    return guarded(__func__, [&] {
        if (board.before_read != nullptr) board.before_read();
        *millijoules = std::atomic_ref{board.millijoules}.load();
        return success;
    });
}

#ifdef NVML_DOUBLE_OLD_DRIVER
struct ProcessInfo {
    unsigned pid;
    unsigned long long used_memory;
};
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, ProcessInfo* infos) {
#else
struct ProcessInfo {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance;
    unsigned compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, ProcessInfo* infos) {
#endif
    return guarded("nvmlDeviceGetComputeRunningProcesses", [&]() -> int {
        const auto list = processes();
        const unsigned room = *count;
        *count = static_cast<unsigned>(list.size());
        if (room < list.size()) return insufficient_size;
        for (std::size_t i = 0; i < list.size(); ++i) {
            infos[i] = {};
            infos[i].pid = list[i].id;
        }
        return success;
    });
}

struct ProcessUtilization {
    unsigned pid;
    unsigned long long time;
    unsigned sm;
    unsigned memory;
    unsigned encoder;
    unsigned decoder;
};
int nvmlDeviceGetProcessUtilization(void*, ProcessUtilization* samples, unsigned* count,
                                    unsigned long long since) {
    return guarded(__func__, [&]() -> int {
        const auto list = processes();
        const unsigned room = *count;
        *count = static_cast<unsigned>(list.size());
        if (list.empty()) return not_found;
        if (samples == nullptr || room < list.size()) return insufficient_size;
        for (std::size_t i = 0; i < list.size(); ++i) {
            samples[i] = {list[i].id, since + 1'000'000, list[i].use, 0, 0, 0};
        }
        return success;
    });
}

struct CurrentPowerProfiles {
    unsigned version;
    unsigned supported[8];
    unsigned requested[8];
    unsigned enforced[8];
};

int nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(void*, CurrentPowerProfiles* profiles) {
    return guarded(__func__, [&] {
        const std::lock_guard lock{profiles_of_board()};
        const bool is_known = profiles->version == (sizeof *profiles | 1U << 24U);
        if (!is_known || board.power_profiles == 0) return not_supported;
        profiles->supported[0] = board.power_profiles;
        profiles->requested[0] = board.requested_profiles;
        profiles->enforced[0] = board.enforced_profiles;
        return success;
    });
}

#ifndef NVML_DOUBLE_OLD_DRIVER
struct PowerProfilesToUpdate {
    unsigned operation;  // 0 clear, 1 set, 2 set and overwrite
    unsigned mask[8];
};

/// All that are asked for are enforced, as where none excludes another.
int nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(void*, PowerProfilesToUpdate* update) {
    note_write("profiles " + std::to_string(update->operation) + " " +
               std::to_string(update->mask[0]));
    return guarded(__func__, [&]() -> int {
        const std::lock_guard lock{profiles_of_board()};
        if (board.power_profiles == 0) return not_supported;
        if (update->operation > 2 || (update->mask[0] & ~board.power_profiles) != 0)
            return invalid_argument;
        auto& requested = board.requested_profiles;
        if (update->operation == 0) requested &= ~update->mask[0];
        if (update->operation == 1) requested |= update->mask[0];
        if (update->operation == 2) requested = update->mask[0];
        board.enforced_profiles = requested;
        return success;
    });
}
#endif

int nvmlDeviceGetFieldValues(void*, int count, FieldValue* values) {
    return guarded(__func__, [&] {
        if (board.before_read != nullptr) board.before_read();
        for (int i = 0; i < count; ++i) {
            const bool known = values[i].field == 185 || values[i].field == 186;
            values[i].status = known ? success : not_supported;
            values[i].type = 1;
            values[i].time = 1'700'000'000'000'000;
            values[i].value.natural =
                std::atomic_ref{board.milliwatts}.load() + (values[i].field == 185 ? 1000 : 0);
        }
        return success;
    });
}

int nvmlDeviceGetSamples(void*, unsigned type, unsigned long long since, unsigned* value_type,
                         unsigned* count, Sample* samples) {
    return guarded(__func__, [&]() -> int {
        if (type != 0) return invalid_argument;
        *value_type = 1;
        if (samples == nullptr) {
            *count = 120;
            return success;
        }
        const unsigned room = *count;
        *count = 0;
        for (const auto& sample : board.samples) {
            if (sample.time_us <= since || *count == room) continue;
            samples[*count].time = sample.time_us;
            samples[*count].value.natural = sample.milliwatts;
            ++*count;
        }
        return *count == 0 ? not_found : success;
    });
}

int nvmlDeviceSetGpuLockedClocks(void*, unsigned low, unsigned high) {
    note_write(call("core", low, high));
    return guarded(__func__, [&] {
        if (low > high) return invalid_argument;
        board.core_lock = {low, high};
        return success;
    });
}

int nvmlDeviceResetGpuLockedClocks(void*) {
    note_write("core free");
    return guarded(__func__, [] {
        board.core_lock.reset();
        return success;
    });
}

#ifndef NVML_DOUBLE_OLD_DRIVER
int nvmlDeviceSetMemoryLockedClocks(void*, unsigned low, unsigned high) {
    note_write(call("memory", low, high));
    return guarded(__func__, [&] {
        if (low > high) return invalid_argument;
        board.memory_lock = {low, high};
        return success;
    });
}

int nvmlDeviceResetMemoryLockedClocks(void*) {
    note_write("memory free");
    return guarded(__func__, [] {
        board.memory_lock.reset();
        return success;
    });
}
#endif

}  // extern "C"
