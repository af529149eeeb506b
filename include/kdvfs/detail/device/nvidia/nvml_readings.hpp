// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/nvidia/nvml_library.hpp>
#include <kdvfs/detail/device/process_list.hpp>
#include <kdvfs/detail/io/pci_address.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::device {

/// A board's PCI address as sysfs spells it, and with it locks and restore records. NVML takes
/// others, too: of "0000:1b:00.0" CUDA prints "0000:1B:00.0", NVML "00000000:1B:00.0" and lspci
/// "1b:00.0". What is no address stays as it is.
inline std::string nvml_address(const std::string& spelled) {
    for (const std::string& whole : {spelled, spelled + ".0", "0:" + spelled})
        if (const auto address = io::parse_pci_address(whole)) return to_string(*address);
    return spelled;
}

/// The PCI addresses of the NVIDIA GPUs that this process can reach, as sysfs spells them.
/// @param library what the dynamic loader is asked for.
/// @throws Error if there is no driver.
inline std::vector<std::string> nvml_addresses(const std::string& library = "libnvidia-ml.so.1") {
    std::vector<std::string> addresses = nvml::Library{library}.addresses();
    for (std::string& address : addresses) address = nvml_address(address);
    return addresses;
}

/// Why a board's clocks are where they are (NVML's clocks event reasons).
struct LimitReasons {
    std::uint64_t bits = 0;

    [[nodiscard]] bool idle() const { return (bits & 0x1U) != 0; }
    /// Locked or application clocks: set by somebody, kdvfs included.
    [[nodiscard]] bool set_clocks() const { return (bits & 0x2U) != 0; }
    [[nodiscard]] bool power_cap() const { return (bits & 0x4U) != 0; }
    [[nodiscard]] bool thermal() const { return (bits & 0x60U) != 0; }
    [[nodiscard]] bool hardware() const { return (bits & 0x88U) != 0; }
};

/// An NVIDIA GPU as NVML shows it: reads, and never changes anything. Fulfils EnergySource.
/// Any thread may read at any time.
class NvmlReadings {
public:
    /// @param address PCI "0000:03:00.0", in any spelling; @param library what the dynamic loader
    /// is asked for.
    /// @throws Error if there is no driver or no such GPU.
    explicit NvmlReadings(const std::string& address,
                          const std::string& library = "libnvidia-ml.so.1")
        : library_{library} {
        info_.address = nvml_address(address);
        info_.name = "NVIDIA GPU";
        check(read().handle_by_address(address.c_str(), &handle_), "find the GPU");
        identify();
        list_clocks();
        info_.mechanism = "measure only, driver " + driver_version();
        sample_room_ = find_sample_room();
    }

    NvmlReadings(const NvmlReadings&) = delete;
    NvmlReadings& operator=(const NvmlReadings&) = delete;

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return clocks_; }
    [[nodiscard]] const std::string& driver_version() const { return library_.driver_version(); }

    /// The clocks that run now; NVML refreshes them every 100 ms.
    /// @throws Error with NVML's words.
    [[nodiscard]] ClockPoint read_running_clocks() {
        return {read_clock(nvml::clock_core), read_clock(nvml::clock_memory)};
    }

    /// None where the driver does not say.
    [[nodiscard]] LimitReasons read_limit_reasons() const noexcept {
        unsigned long long bits = 0;
        if (read().limit_reasons == nullptr ||
            read().limit_reasons(handle_, &bits) != nvml::Status::success) {
            return {};
        }
        return {bits};
    }

    /// The board's power cap, 0 where unknown.
    [[nodiscard]] Watts read_power_limit() const noexcept {
        unsigned milliwatts = 0;
        if (read().power_limit == nullptr ||
            read().power_limit(handle_, &milliwatts) != nvml::Status::success) {
            return {};
        }
        return {milliwatts * 1e-3};
    }

    /// The workload power profiles that are enforced, whoever has asked for them: "workload power
    /// profiles 1 6", "no workload power profile"; empty where the board has none.
    [[nodiscard]] std::string read_operating_point() const {
        const auto profiles = read_power_profiles();
        if (!profiles || numbers_in(profiles->supported).empty()) return {};
        const auto enforced = numbers_in(profiles->enforced);
        if (enforced.empty()) return "no workload power profile";
        std::string text = "workload power profiles";
        for (const PreparedPoint point : enforced) text += " " + std::to_string(point.number);
        return text;
    }

    /// Since the driver was loaded. Slow: 3 ms a read on an H100, where the counter moves every
    /// 100 ms. NVML does not say when it took the sample: the time is that of the read.
    [[nodiscard]] EnergyReading read_energy() noexcept {
        if (read().total_energy == nullptr) return {};
        unsigned long long millijoules = 0;
        const Duration before = now();
        const nvml::Status status = read().total_energy(handle_, &millijoules);
        const TimePoint middle{before + (now() - before) / 2};
        if (status == nvml::Status::not_supported) return {{}, middle, ReadingStatus::absent};
        if (status != nvml::Status::success) return {{}, middle, ReadingStatus::failed};
        return {{static_cast<double>(millijoules) * 1e-3}, middle, ReadingStatus::ok};
    }

    /// 100 ms on an H100 (measured); other boards are taken to be no faster.
    [[nodiscard]] Duration counter_period() const { return std::chrono::milliseconds{100}; }

    /// Power at this moment, or averaged by the board (over a second on most).
    [[nodiscard]] PowerReading read_power_instant() const noexcept {
        return read_power_field(nvml::field_power_instant);
    }
    [[nodiscard]] PowerReading read_power_average() const noexcept {
        return read_power_field(nvml::field_power_average);
    }
    /// Power at this moment, where the board says it, else averaged.
    [[nodiscard]] PowerReading read_power() const noexcept {
        const PowerReading instant = read_power_instant();
        return instant.status == ReadingStatus::absent ? read_power_average() : instant;
    }

    /// Whether the driver keeps power samples for `read_power_samples`.
    [[nodiscard]] bool has_power_samples() const noexcept { return sample_room_ > 0; }

    /// The driver's buffer of power samples (119 of them; 20 ms apart on an H100 and an H200),
    /// those taken after `since`, oldest first; empty where there is no buffer or nothing new.
    /// @throws Error with NVML's words.
    [[nodiscard]] std::vector<PowerReading> read_power_samples(TimePoint since) {
        std::vector<nvml::Sample> samples(sample_room_);
        if (samples.empty()) return {};
        const Duration epoch = unix_epoch();
        const auto since_us =
            std::chrono::duration_cast<std::chrono::microseconds>(since.time_since_epoch() - epoch);
        auto count = static_cast<unsigned>(samples.size());
        auto type = nvml::ValueType::natural;
        const nvml::Status status = read().samples(
            handle_, nvml::sampling_total_power,
            static_cast<unsigned long long>(std::max<std::int64_t>(0, since_us.count())), &type,
            &count, samples.data());
        if (status == nvml::Status::not_found) return {};
        check(status, "read the power samples");
        samples.resize(std::min<std::size_t>(count, samples.size()));
        std::vector<PowerReading> readings;
        for (const nvml::Sample& sample : samples) {
            const TimePoint at{epoch + std::chrono::microseconds{sample.time_us}};
            if (sample.time_us == 0 || at <= since) continue;
            readings.push_back({{number(type, sample.value) * 1e-3}, at, ReadingStatus::ok});
        }
        std::sort(readings.begin(), readings.end(),
                  [](const auto& a, const auto& b) { return a.sampled_at < b.sampled_at; });
        return readings;
    }

    /// Those with a compute context of which the driver has seen work since the last call; all of
    /// them where it does not say who works. For one thread.
    [[nodiscard]] OtherProcesses read_other_processes() {
        std::vector<ListedProcess> listed;
        if (read().processes != nullptr) {
            listed = list_processes<nvml::Process>(read().processes);
        } else if (read().old_processes != nullptr) {
            listed = list_processes<nvml::OldProcess>(read().old_processes);
        }
        note_work(listed);
        return processes_.others(listed);
    }

protected:
    /// Of workload power profiles: NVML has names for 0 to 15, and restore records room for them.
    static constexpr std::uint32_t most_prepared_points = 16;

    /// Nothing where the driver or the board knows none.
    [[nodiscard]] std::optional<nvml::PowerProfiles> read_power_profiles() const {
        nvml::PowerProfiles profiles;
        const auto query = read().power_profiles;
        const bool known = query != nullptr && query(handle_, &profiles) == nvml::Status::success;
        return known ? std::optional{profiles} : std::nullopt;
    }
    [[nodiscard]] static std::vector<PreparedPoint> numbers_in(
        const std::array<std::uint32_t, 8>& bits) {
        std::vector<PreparedPoint> numbers;
        for (std::uint32_t i = 0; i < bits.size() * 32; ++i) {
            if ((bits[i / 32] >> i % 32 & 1U) != 0) numbers.push_back({i});
        }
        return numbers;
    }

    [[nodiscard]] const nvml::Library& library() const { return library_; }
    [[nodiscard]] const nvml::Readers& read() const { return library_.readers(); }
    [[nodiscard]] nvml::Handle handle() const { return handle_; }

    void check(nvml::Status status, std::string action) const {
        library_.check(status, std::move(action), to_string(info_));
    }

    Megahertz read_clock(std::uint32_t domain) {
        unsigned megahertz = 0;
        check(read().clock(handle_, domain, &megahertz), "read the running clock");
        return {megahertz};
    }

    static Duration clock_time(clockid_t clock) noexcept {
        timespec time{};
        clock_gettime(clock, &time);
        return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
    }
    static Duration now() noexcept { return clock_time(CLOCK_MONOTONIC); }
    /// Where 1970 lies on the Timeline, anew for each reading: somebody may set the clock.
    static Duration unix_epoch() noexcept { return now() - clock_time(CLOCK_REALTIME); }

    DeviceInfo info_;
    SupportedClocks clocks_;

private:
    void identify() {
        std::array<char, 96> text{};
        check(read().name(handle_, text.data(), static_cast<unsigned>(text.size())),
              "read the name");
        info_.name = text.data();
        int major = 0;
        int minor = 0;
        check(read().compute_capability(handle_, &major, &minor), "read the architecture");
        info_.architecture = "sm_" + std::to_string(major) + std::to_string(minor);
        info_.operating_point = read_operating_point();
        if (const auto profiles = read_power_profiles()) {
            for (const PreparedPoint point : numbers_in(profiles->supported)) {
                if (point.number < most_prepared_points) info_.prepared_points.push_back(point);
            }
        }
    }

    /// A list of clocks by NVML's two-call protocol; empty where the board has none.
    template <class Query>
    std::vector<Megahertz> list(Query query, const char* action) {
        unsigned count = 0;
        nvml::Status status = query(&count, nullptr);
        if (status == nvml::Status::not_supported) return {};
        if (status != nvml::Status::insufficient_size) check(status, action);
        std::vector<unsigned> raw(count);
        if (count > 0) check(query(&count, raw.data()), action);
        raw.resize(std::min<std::size_t>(count, raw.size()));
        std::vector<Megahertz> clocks;
        for (const unsigned clock : raw) clocks.push_back({clock});
        return clocks;
    }

    void list_clocks() {
        auto& memory = clocks_.memory.listed;
        auto& core = clocks_.core.listed;
        memory = list(
            [&](unsigned* count, unsigned* clocks) {
                return read().supported_memory_clocks(handle_, count, clocks);
            },
            "list the memory clocks");
        for (const Megahertz at : memory) {
            const auto more = list(
                [&](unsigned* count, unsigned* clocks) {
                    return read().supported_core_clocks(handle_, at.count, count, clocks);
                },
                "list the core clocks");
            core.insert(core.end(), more.begin(), more.end());
        }
        for (auto* domain : {&memory, &core}) {
            std::sort(domain->begin(), domain->end());
            domain->erase(std::unique(domain->begin(), domain->end()), domain->end());
        }
    }

    [[nodiscard]] PowerReading read_power_field(std::uint32_t field) const noexcept {
        if (read().field_values == nullptr) return {};
        nvml::FieldValue value{};
        value.field = field;
        const nvml::Status status = read().field_values(handle_, 1, &value);
        const TimePoint at{unix_epoch() + std::chrono::microseconds{value.time_us}};
        if (status != nvml::Status::success) return {{}, at, ReadingStatus::failed};
        if (value.status != nvml::Status::success) return {{}, at, ReadingStatus::absent};
        return {{number(value.type, value.value) * 1e-3}, at, ReadingStatus::ok};
    }

    /// By NVML's two-call protocol, whose list may have grown in between.
    template <class Process, class Query>
    [[nodiscard]] std::vector<ListedProcess> list_processes(Query query) const {
        std::array<Process, 256> room;
        auto count = static_cast<unsigned>(room.size());
        if (query(handle_, &count, room.data()) != nvml::Status::success) return {};
        std::vector<ListedProcess> listed;
        for (const Process& each :
             std::span{room}.first(std::min<std::size_t>(count, room.size()))) {
            listed.push_back({static_cast<long>(each.id), true});
        }
        return listed;
    }
    /// Clears the mark of processes that had no work.
    void note_work(std::vector<ListedProcess>& listed) {
        if (read().process_use == nullptr) return;
        unsigned count = 0;
        nvml::Status status = read().process_use(handle_, nullptr, &count, used_to_us_);
        if (status != nvml::Status::success && status != nvml::Status::insufficient_size &&
            status != nvml::Status::not_found) {
            return;
        }
        std::vector<nvml::ProcessUse> uses(std::min(count, 4096U));
        count = static_cast<unsigned>(uses.size());
        if (count > 0) status = read().process_use(handle_, uses.data(), &count, used_to_us_);
        uses.resize(status == nvml::Status::success ? std::min<std::size_t>(count, uses.size())
                                                    : 0);
        for (ListedProcess& each : listed) {
            each.works = std::any_of(uses.begin(), uses.end(), [&](const nvml::ProcessUse& use) {
                return use.id == static_cast<std::uint32_t>(each.id) && use.cores > 0;
            });
        }
        for (const nvml::ProcessUse& use : uses) used_to_us_ = std::max(used_to_us_, use.time_us);
    }

    static double number(nvml::ValueType type, const nvml::Value& value) noexcept {
        switch (type) {
            case nvml::ValueType::real: return value.real;
            case nvml::ValueType::natural: return value.natural;
            case nvml::ValueType::unsigned_long:
            case nvml::ValueType::long_natural: return static_cast<double>(value.long_natural);
            case nvml::ValueType::long_integer: return static_cast<double>(value.long_integer);
        }
        return 0;
    }

    [[nodiscard]] std::size_t find_sample_room() const noexcept {
        if (read().samples == nullptr) return 0;
        unsigned count = 0;
        auto type = nvml::ValueType::natural;
        const nvml::Status status =
            read().samples(handle_, nvml::sampling_total_power, 0, &type, &count, nullptr);
        return status == nvml::Status::success || status == nvml::Status::insufficient_size ? count
                                                                                            : 0;
    }

    nvml::Library library_;
    nvml::Handle handle_ = nullptr;
    std::size_t sample_room_ = 0;
    ProcessList processes_;
    std::uint64_t used_to_us_ = 0;  ///< the last sample of who works
};

static_assert(EnergySource<NvmlReadings>);
static_assert(PowerSource<NvmlReadings>);
static_assert(PowerLog<NvmlReadings>);
static_assert(ListsProcesses<NvmlReadings>);

}  // namespace kdvfs::inline v0_3::device
