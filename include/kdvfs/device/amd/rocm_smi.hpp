// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/device/amd/capped_clocks.hpp>
#include <kdvfs/device/amd/card.hpp>
#include <kdvfs/device/amd/gpu_metrics.hpp>
#include <kdvfs/device/amd/power_limit.hpp>
#include <kdvfs/device/contracts.hpp>

#include <rocm_smi/rocm_smi.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::device::amd {

/// The mutexes that ROCm SMI keeps for all processes, one per card in /dev/shm, which are lost for
/// good: their owner died, and the next one did not mend them. Only removing the file helps, which
/// is for an administrator to do: living processes may still have it open.
/// @returns the files, "/dev/shm/rocm_smi_card0 /dev/shm/rocm_smi_card3"; empty where there is none
inline std::string lost_mutexes(std::size_t cards) {
    std::string lost;
    for (std::size_t card = 0; card < cards; ++card) {
        const std::string name = "/rocm_smi_card" + std::to_string(card);
        const kdvfs::detail::Descriptor file{::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0)};
        struct stat status {};
        if (!file.is_open() || ::fstat(file.get(), &status) != 0) continue;
        if (static_cast<std::size_t>(status.st_size) < sizeof(pthread_mutex_t)) continue;
        void* const memory = ::mmap(nullptr, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE,
                                    MAP_SHARED, file.get(), 0);
        if (memory == MAP_FAILED) continue;
        auto* const mutex = static_cast<pthread_mutex_t*>(memory);
        const int answer = ::pthread_mutex_trylock(mutex);
        if (answer == EOWNERDEAD) ::pthread_mutex_consistent(mutex);
        if (answer == 0 || answer == EOWNERDEAD) ::pthread_mutex_unlock(mutex);
        if (answer == ENOTRECOVERABLE) lost += (lost.empty() ? "/dev/shm" : " /dev/shm") + name;
        ::munmap(memory, sizeof(pthread_mutex_t));
    }
    return lost;
}

}  // namespace kdvfs::device::amd

namespace kdvfs::device {
namespace rocm_smi {

/// What a status of ROCm SMI means. Any refused write answers NOT_SUPPORTED, whatever the driver
/// said.
constexpr Errc errc_of(rsmi_status_t status) {
    switch (status) {
        case RSMI_STATUS_PERMISSION:
        case RSMI_STATUS_NOT_SUPPORTED:
        case RSMI_STATUS_INVALID_ARGS:
        case RSMI_STATUS_INPUT_OUT_OF_BOUNDS: return Errc::refused;
        case RSMI_STATUS_BUSY:
        case RSMI_STATUS_INTERRUPT: return Errc::busy;
        default: return Errc::io;
    }
}

inline std::string words_of(rsmi_status_t status) {
    const char* words = nullptr;
    rsmi_status_string(status, &words);
    return "ROCm SMI status " + std::to_string(static_cast<std::uint32_t>(status)) +
           (words != nullptr ? ": " + std::string{words} : std::string{});
}

namespace detail {

[[noreturn]] inline void cannot_start(std::string words, std::string remedy) {
    throw Error{Errc::not_supported,
                {"start ROCm SMI", "this machine", std::move(words), std::move(remedy)}};
}

/// ROCm SMI looks at every AMD GPU when it starts, and aborts the process where what it expects is
/// not there: so the expectations of all GPUs are checked, not of the wanted one alone.
inline void require_startable() {
    if (std::getenv("RSMI_DEBUG_INFINITE_LOOP") != nullptr) {
        cannot_start("RSMI_DEBUG_INFINITE_LOOP is set, and makes it wait forever",
                     "unset the variable");
    }
    const auto cards = amd::find_cards();
    if (cards.empty()) cannot_start("there is no AMD GPU", "check that amdgpu is loaded");
    for (const amd::Card& card : cards) {
        if (amd::detail::names_in(card.folder + "/hwmon").empty()) {
            cannot_start(to_string(card) + " has no hwmon folder, without which the library aborts",
                         "use amdgpu sysfs instead");
        }
    }
    const std::string nodes = "/sys/class/kfd/kfd/topology/nodes";
    for (const std::string& node : amd::detail::names_in(nodes)) {
        if (amd::detail::names_in(nodes + "/" + node + "/io_links").empty()) {
            cannot_start("KFD node " + node + " has no io_links, without which the library aborts",
                         "use amdgpu sysfs instead");
        }
    }
}

}  // namespace detail

/// ROCm SMI, started. It is started, stopped and started again, because only a second start clears
/// up after a process that died inside a call. One for all devices of a process; a call into the
/// library without a session, or with a wrong index, would crash.
class Session {
public:
    /// @throws Error where the library cannot start, or would end the process
    static std::shared_ptr<Session> open() {
        static std::mutex mutex;
        static std::weak_ptr<Session> shared;
        const std::lock_guard lock{mutex};
        auto session = shared.lock();
        if (!session) {
            session.reset(new Session);
            shared = session;
        }
        return session;
    }

    ~Session() { rsmi_shut_down(); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// The library's number of a GPU.
    /// @throws Error (not_supported) where it does not list the GPU
    [[nodiscard]] std::uint32_t index_of(const amd::Card& card) const {
        const amd::PciAddress at = card.address;
        const std::uint64_t wanted = std::uint64_t{at.domain} << 32 | std::uint64_t{at.bus} << 8 |
                                     std::uint64_t{at.device} << 3 | at.function;
        std::uint32_t count = 0;
        rsmi_num_monitor_devices(&count);
        for (std::uint32_t index = 0; index < count; ++index) {
            std::uint64_t address = 0;
            if (rsmi_dev_pci_id_get(index, &address) == RSMI_STATUS_SUCCESS && address == wanted) {
                return index;
            }
        }
        throw Error{
            Errc::not_supported,
            {"find the GPU in ROCm SMI", to_string(card),
             "it lists " + std::to_string(count) + " other GPUs", "use amdgpu sysfs instead"}};
    }

private:
    Session() {
        detail::require_startable();
        start();
        rsmi_shut_down();
        start();
    }

    static void start() {
        const rsmi_status_t status = rsmi_init(0);
        if (status == RSMI_STATUS_SUCCESS) return;
        std::string words = words_of(status);
        std::string remedy = "see ROCm SMI's own message on the error stream";
        const std::string lost = amd::lost_mutexes(amd::find_cards().size());
        if (!lost.empty()) {
            words += "; a process died inside it, and its lock is lost: " + lost;
            remedy = "end all users of ROCm SMI, then remove " + lost;
        }
        throw Error{Errc::busy, {"start ROCm SMI", "this machine", words, remedy}};
    }
};

/// Writes settings through the library, which turns each call into the same texts that
/// `SysfsWriter` writes. All arguments on which the library would abort are refused before.
class Writer {
public:
    static constexpr std::string_view name = "rocm_smi";

    explicit Writer(const amd::Card& card)
        : session_{Session::open()},
          index_{session_->index_of(card)},
          object_{to_string(card)},
          levels_file_{card.folder + "/pp_dpm_sclk"} {}

    void write_level(const std::string& level) {
        const auto known = level_of(level);
        if (!known) fail("set the performance level " + level, RSMI_STATUS_INVALID_ARGS);
        check("set the performance level " + level, rsmi_dev_perf_level_set_v1(index_, *known));
    }

    void write_limits(const amd::ClockLimits& limits) {
        const std::string action = "set core limits of " + to_string(limits.core_min) + " and " +
                                   to_string(limits.core_max);
        if (limits.core_min >= limits.core_max) fail(action, RSMI_STATUS_INVALID_ARGS);
        check(action, rsmi_dev_clk_range_set(index_, limits.core_min.count, limits.core_max.count,
                                             RSMI_CLK_TYPE_SYS));
        if (limits.memory_max == auto_clock) return;
        check("set a memory limit of " + to_string(limits.memory_max),
              rsmi_dev_od_clk_info_set(index_, RSMI_FREQ_IND_MAX, limits.memory_max.count,
                                       RSMI_CLK_TYPE_MEM));
    }

    void write_determinism(Megahertz cap) {
        check("set a deterministic core limit of " + to_string(cap),
              rsmi_perf_determinism_mode_set(index_, cap.count));
    }

    /// Allows the core levels from the lowest to this one. The library reads the list first, and
    /// aborts the process on a text that it does not expect.
    void write_levels_up_to(unsigned highest) {
        const std::string action = "allow core levels up to " + std::to_string(highest);
        write_level("manual");  // the list may differ from level to level
        const auto file = amd::read_file(levels_file_);
        const auto list = amd::parse_clock_list(file.text);
        const bool expected = list && list->plain && list->one_current &&
                              list->clocks.size() <= RSMI_MAX_NUM_FREQUENCIES &&
                              std::is_sorted(list->clocks.begin(), list->clocks.end());
        if (!expected || highest >= list->clocks.size()) fail(action, RSMI_STATUS_UNEXPECTED_DATA);
        const std::uint64_t mask = (std::uint64_t{2} << highest) - 1;
        check(action, rsmi_dev_gpu_clk_freq_set(index_, RSMI_CLK_TYPE_SYS, mask));
    }

    void write_power_limit(Watts limit) {
        check("set a power limit of " + std::to_string(limit.count) + " W",
              rsmi_dev_power_cap_set(index_, 0,
                                     static_cast<std::uint64_t>(std::llround(limit.count * 1e6))));
    }

private:
    static std::optional<rsmi_dev_perf_level_t> level_of(std::string_view level) {
        static constexpr std::pair<std::string_view, rsmi_dev_perf_level_t> known[] = {
            {"auto", RSMI_DEV_PERF_LEVEL_AUTO},
            {"low", RSMI_DEV_PERF_LEVEL_LOW},
            {"high", RSMI_DEV_PERF_LEVEL_HIGH},
            {"manual", RSMI_DEV_PERF_LEVEL_MANUAL},
            {"profile_standard", RSMI_DEV_PERF_LEVEL_STABLE_STD},
            {"profile_peak", RSMI_DEV_PERF_LEVEL_STABLE_PEAK},
            {"profile_min_mclk", RSMI_DEV_PERF_LEVEL_STABLE_MIN_MCLK},
            {"profile_min_sclk", RSMI_DEV_PERF_LEVEL_STABLE_MIN_SCLK},
            {"perf_determinism", RSMI_DEV_PERF_LEVEL_DETERMINISM},
        };
        for (const auto& [word, value] : known) {
            if (word == level) return value;
        }
        return std::nullopt;
    }

    void check(std::string action, rsmi_status_t status) const {
        if (status != RSMI_STATUS_SUCCESS) fail(std::move(action), status);
    }

    [[noreturn]] void fail(std::string action, rsmi_status_t status) const {
        throw Error{errc_of(status),
                    {std::move(action), object_, words_of(status),
                     status == RSMI_STATUS_PERMISSION
                         ? "run as root: the library asks for it, even where the files do not"
                         : "the driver or the library does not accept this on this board"}};
    }

    std::shared_ptr<Session> session_;
    std::uint32_t index_;
    std::string object_;
    std::string levels_file_;
};

}  // namespace rocm_smi

/// An AMD GPU through ROCm SMI. Settings are written by the library; what is read is read from the
/// driver's files, because the library's readers abort the process on texts they do not expect
/// (`S: 19Mhz *`, `unavailable`), and its energy is 0.27 % too high. Calls that set clocks are to
/// come from one thread: the library's lock between processes is not safe between threads of one.
class RocmSmi : public amd::CappedClocks<rocm_smi::Writer>, public amd::MetricsFile {
public:
    /// @throws Error where the library cannot be used for this GPU, saying what to use instead
    explicit RocmSmi(const amd::Card& card)
        : CappedClocks{card, rocm_smi::Writer{card}}, MetricsFile{card} {}

    /// Tries the clocks (see `CappedClocks::probe`) and the counter.
    /// @throws Error with the library's answer where no way to set clocks works
    amd::Capabilities probe() {
        amd::Capabilities found = CappedClocks::probe();
        found.energy = energy_capability();
        return found;
    }
};

/// The power limit of an AMD GPU through ROCm SMI, which reports success whether the driver took
/// the limit or not: whoever sets one reads it back, as `PowerLimitGuard` does. Reading, and
/// putting back from outside, go by the driver's files.
class RocmSmiPowerLimit : public amd::SysfsPowerLimit {
public:
    /// @throws Error where the library cannot be used for this GPU, and as `SysfsPowerLimit`
    explicit RocmSmiPowerLimit(const amd::Card& card) : SysfsPowerLimit{card}, writer_{card} {}

    void set_power_limit(Watts limit) { writer_.write_power_limit(limit); }

private:
    rocm_smi::Writer writer_;
};

static_assert(RestorablePowerLimit<RocmSmiPowerLimit>);
static_assert(ClockControl<RocmSmi> && Restorable<RocmSmi>);
static_assert(EnergySource<RocmSmi>);

}  // namespace kdvfs::device
