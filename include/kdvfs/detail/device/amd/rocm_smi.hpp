// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/settable_clocks.hpp>
#include <kdvfs/detail/device/amd/system_files.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3::device::amd {

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

}  // namespace kdvfs::inline v0_3::device::amd

/// ROCm SMI, looked for when the program runs: kdvfs needs neither its header nor its import
/// library to be built. The declarations follow rocm_smi.h of ROCm 5.2, which later ones have kept.
namespace kdvfs::inline v0_3::device {
namespace rocm_smi {

/// rsmi_status_t.
enum class Status : std::uint32_t {
    success = 0,
    invalid_arguments = 1,
    not_supported = 2,
    permission = 4,
    out_of_bounds = 7,
    interrupted = 12,
    unexpected_data = 15,
    busy = 16,
};

/// rsmi_clk_type_t.
enum class ClockType : std::uint32_t { core = 0, memory = 4 };

inline constexpr std::uint32_t upper_limit = 1;  // rsmi_freq_ind_t
inline constexpr std::size_t most_levels = 32;   // RSMI_MAX_NUM_FREQUENCIES

/// rsmi_dev_perf_level_t: the words of these, from 0 on.
inline constexpr std::array<std::string_view, 9> performance_levels{"auto",
                                                                    "low",
                                                                    "high",
                                                                    "manual",
                                                                    "profile_standard",
                                                                    "profile_peak",
                                                                    "profile_min_mclk",
                                                                    "profile_min_sclk",
                                                                    "perf_determinism"};

/// The number of a performance level; AMD SMI has the same.
constexpr std::optional<std::uint32_t> number_of_level(std::string_view level) {
    const auto found = std::find(performance_levels.begin(), performance_levels.end(), level);
    if (found == performance_levels.end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - performance_levels.begin());
}

/// The functions that kdvfs calls.
struct Functions {
    Status (*init)(std::uint64_t) = nullptr;
    Status (*shut_down)() = nullptr;
    Status (*status_string)(Status, const char**) = nullptr;
    Status (*num_monitor_devices)(std::uint32_t*) = nullptr;
    Status (*dev_pci_id_get)(std::uint32_t, std::uint64_t*) = nullptr;
    Status (*dev_perf_level_set)(std::uint32_t, std::uint32_t) = nullptr;
    Status (*dev_clk_range_set)(std::uint32_t, std::uint64_t, std::uint64_t, ClockType) = nullptr;
    Status (*dev_od_clk_info_set)(std::uint32_t, std::uint32_t, std::uint64_t, ClockType) = nullptr;
    Status (*perf_determinism_mode_set)(std::uint32_t, std::uint64_t) = nullptr;
    Status (*dev_gpu_clk_freq_set)(std::uint32_t, ClockType, std::uint64_t) = nullptr;
    Status (*dev_power_cap_set)(std::uint32_t, std::uint32_t, std::uint64_t) = nullptr;
};

/// What a status of ROCm SMI means. Any refused write answers not_supported, whatever the driver
/// said.
constexpr Errc errc_of(Status status) {
    switch (status) {
        case Status::permission:
        case Status::not_supported:
        case Status::invalid_arguments:
        case Status::out_of_bounds: return Errc::refused;
        case Status::busy:
        case Status::interrupted: return Errc::busy;
        default: return Errc::io;
    }
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
                         "choose another ClockPath");
        }
    }
    const std::string nodes = "/sys/class/kfd/kfd/topology/nodes";
    for (const std::string& node : amd::detail::names_in(nodes)) {
        if (amd::detail::names_in(nodes + "/" + node + "/io_links").empty()) {
            cannot_start("KFD node " + node + " has no io_links, without which the library aborts",
                         "choose another ClockPath");
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
        return kdvfs::detail::shared_session<Session>(
            [] { return std::unique_ptr<Session>{new Session}; });
    }

    /// @throws Error where the library cannot start, or would end the process
    void start() {
        detail::require_startable();
        start_once();
        functions_.shut_down();
        start_once();
        started_ = true;
    }

    ~Session() {
        if (started_) functions_.shut_down();
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// The library's number of a GPU.
    /// @throws Error (not_supported) where it does not list the GPU
    [[nodiscard]] std::uint32_t index_of(const amd::Card& card) const {
        const io::PciAddress at = card.address;
        const std::uint64_t wanted = std::uint64_t{at.domain} << 32 | std::uint64_t{at.bus} << 8 |
                                     std::uint64_t{at.device} << 3 | at.function;
        std::uint32_t count = 0;
        functions_.num_monitor_devices(&count);
        for (std::uint32_t index = 0; index < count; ++index) {
            std::uint64_t address = 0;
            const Status status = functions_.dev_pci_id_get(index, &address);
            if (status == Status::success && address == wanted) return index;
        }
        throw Error{
            Errc::not_supported,
            {"find the GPU in ROCm SMI", to_string(card),
             "it lists " + std::to_string(count) + " other GPUs", "choose another ClockPath"}};
    }

    [[nodiscard]] const Functions& functions() const { return functions_; }

    [[nodiscard]] std::string words_of(Status status) const {
        const char* words = nullptr;
        functions_.status_string(status, &words);
        return "ROCm SMI status " + std::to_string(static_cast<std::uint32_t>(status)) +
               (words != nullptr ? ": " + std::string{words} : std::string{});
    }

private:
    /// Those of ROCm 6 and 7, of ROCm 5, and of Debian 12, whose declarations are the same.
    static std::array<std::string, 4> names() {
        return {"librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5",
                "librocm_smi64.so.1"};
    }

    Session() : library_{names()} {
        if (!library_.is_open()) {
            detail::cannot_start("it is not installed here",
                                 "install it, or choose another ClockPath");
        }
        find_functions();
    }

    void find_functions() {
        require(functions_.init, "rsmi_init");
        require(functions_.shut_down, "rsmi_shut_down");
        require(functions_.status_string, "rsmi_status_string");
        require(functions_.num_monitor_devices, "rsmi_num_monitor_devices");
        require(functions_.dev_pci_id_get, "rsmi_dev_pci_id_get");
        require(functions_.dev_perf_level_set, "rsmi_dev_perf_level_set_v1");
        require(functions_.dev_clk_range_set, "rsmi_dev_clk_range_set");
        require(functions_.dev_od_clk_info_set, "rsmi_dev_od_clk_info_set");
        require(functions_.perf_determinism_mode_set, "rsmi_perf_determinism_mode_set");
        require(functions_.dev_gpu_clk_freq_set, "rsmi_dev_gpu_clk_freq_set");
        require(functions_.dev_power_cap_set, "rsmi_dev_power_cap_set");
    }

    template <class Function>
    void require(Function*& function, const char* symbol) {
        library_.find(function, symbol);
        if (function == nullptr) {
            detail::cannot_start(library_.name() + " has no " + symbol, "choose another ClockPath");
        }
    }

    void start_once() const {
        const Status status = functions_.init(0);
        if (status == Status::success) return;
        std::string words = words_of(status);
        std::string remedy = "see ROCm SMI's own message on the error stream";
        const std::string lost = amd::lost_mutexes(amd::find_cards().size());
        if (!lost.empty()) {
            words += "; a process died inside it, and its lock is lost: " + lost;
            remedy = "end all users of ROCm SMI, then remove " + lost;
        }
        throw Error{Errc::busy, {"start ROCm SMI", "this machine", words, remedy}};
    }

    kdvfs::detail::SharedLibrary library_;
    Functions functions_;
    bool started_ = false;
};

/// Writes settings through the library, which turns each call into the same texts that
/// `SysfsWriter` writes. All arguments on which the library would abort are refused before. Calls
/// are to come from one thread: the library's lock between processes is not safe between threads of
/// one.
class Writer final : public amd::ClockWriter {
public:
    /// @throws Error where the library cannot be used for this GPU, saying what to use instead
    explicit Writer(const amd::Card& card)
        : session_{Session::open()},
          index_{session_->index_of(card)},
          object_{to_string(card)},
          levels_file_{card.folder + "/pp_dpm_sclk"} {}

    [[nodiscard]] std::string name() const override { return "rocm_smi"; }

    void write_level(const std::string& level) override {
        const auto number = number_of_level(level);
        if (!number) fail("set the performance level " + level, Status::invalid_arguments);
        check("set the performance level " + level, call().dev_perf_level_set(index_, *number));
    }

    void write_limits(const amd::ClockLimits& limits) override {
        const std::string action = "set core limits of " + to_string(limits.core_min) + " and " +
                                   to_string(limits.core_max);
        if (limits.core_min >= limits.core_max) fail(action, Status::invalid_arguments);
        check(action, call().dev_clk_range_set(index_, limits.core_min.count, limits.core_max.count,
                                               ClockType::core));
        if (limits.memory_max == auto_clock) return;
        check("set a memory limit of " + to_string(limits.memory_max),
              call().dev_od_clk_info_set(index_, upper_limit, limits.memory_max.count,
                                         ClockType::memory));
    }

    void write_determinism(Megahertz cap) override {
        check("set a deterministic core limit of " + to_string(cap),
              call().perf_determinism_mode_set(index_, cap.count));
    }

    /// The library reads the list of levels first, and aborts the process on a text that it does
    /// not expect.
    void write_levels_up_to(unsigned highest) override {
        const std::string action = "allow core levels up to " + std::to_string(highest);
        write_level("manual");  // the list may differ from level to level
        const auto file = amd::read_file(levels_file_);
        const auto list = amd::parse_clock_list(file.text);
        const bool expected = list && list->plain && list->one_current &&
                              list->clocks.size() <= most_levels &&
                              std::is_sorted(list->clocks.begin(), list->clocks.end());
        if (!expected || highest >= list->clocks.size()) fail(action, Status::unexpected_data);
        const std::uint64_t mask = (std::uint64_t{2} << highest) - 1;
        check(action, call().dev_gpu_clk_freq_set(index_, ClockType::core, mask));
    }

    void write_power_limit(Watts limit) {
        check("set a power limit of " + std::to_string(limit.count) + " W",
              call().dev_power_cap_set(
                  index_, 0, static_cast<std::uint64_t>(std::llround(limit.count * 1e6))));
    }

private:
    [[nodiscard]] const Functions& call() const { return session_->functions(); }

    void check(std::string action, Status status) const {
        if (status != Status::success) fail(std::move(action), status);
    }

    [[noreturn]] void fail(std::string action, Status status) const {
        throw Error{errc_of(status),
                    {std::move(action), object_, session_->words_of(status),
                     status == Status::permission
                         ? "run as root: the library asks for it, even where the files do not"
                         : "the driver or the library does not accept this on this board"}};
    }

    std::shared_ptr<Session> session_;
    std::uint32_t index_;
    std::string object_;
    std::string levels_file_;
};

}  // namespace rocm_smi

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

}  // namespace kdvfs::inline v0_3::device
