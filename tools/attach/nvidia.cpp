// SPDX-License-Identifier: MIT
//
// Attaching to CUDA programs: the driver loads this library (CUDA_INJECTION64_PATH) and calls
// `InitializeInjection`; CUPTI then calls back at each launch, and leaves records of when it ran.
#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/detail/io/text_stream.hpp>
#include <kdvfs/detail/open/site_locks.hpp>
#include <kdvfs/error.hpp>
#include <tools/attach/cuda_driver.hpp>
#include <tools/attach/cupti.hpp>
#include <tools/attach/device.hpp>
#include <tools/attach/launch_again.hpp>
#include <tools/attach/launch_names.hpp>
#include <tools/attach/no_readings.hpp>
#include <tools/attach/process.hpp>
#include <tools/attach/ranges.hpp>
#include <tools/attach/record_clock.hpp>
#include <tools/attach/record_streams.hpp>
#include <tools/attach/shared_cupti.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iomanip>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace attach {
namespace {

namespace cupti = attach::cupti;

/// The library that reads the board, and the command that frees its clocks where this process dies:
/// `KDVFS_NVML` and `KDVFS_NVIDIA_SMI` name others.
kdvfs::device::NvmlOptions nvml_options(kdvfs::device::ClockAccess access) {
    kdvfs::device::NvmlOptions options;
    options.access = access;
    const auto replace = [](std::string& path, const char* name) {
        if (const auto text = kdvfs::io::environment(name); !text.empty()) path = text;
    };
    replace(options.library, "KDVFS_NVML");
    replace(options.restorer, "KDVFS_NVIDIA_SMI");
    return options;
}

/// Measured only, unless clocks are to be set.
template <class Readings>
kdvfs::Gpu open_gpu(const std::string& address, const Settings& settings,
                    const std::shared_ptr<RecordStreams>& streams,
                    const std::shared_ptr<Readings>& readings) {
    using Board = kdvfs::extend::OwnedDevice<kdvfs::device::Nvml>;
    return kdvfs::Gpu{kdvfs::extend::open_device(
        address + " attached", [&] { return streams; },
        [&] {
            if (!settings.drives_clocks()) return std::shared_ptr<Board>{};
            auto board = std::make_shared<Board>(
                address, kdvfs::extend::with_site_locks(
                             nvml_options(kdvfs::device::ClockAccess::set), address));
            if (const auto& missing = board->device.info().restoring; !missing.empty())
                Process::instance().note(missing);
            return board;
        },
        [&] { return readings; }, attached_options(settings, kdvfs::gpu_name(readings->info())))};
}

/// A GPU with its streams, as CUPTI's callbacks see it.
struct CudaGpu {
    std::shared_ptr<RecordStreams> streams;
    Device* device = nullptr;
};

/// @param ordinal the driver's number of the device
std::unique_ptr<CudaGpu> open_cuda_gpu(int ordinal) {
    Process& process = Process::instance();
    const CudaDriver& driver = CudaDriver::of_process();
    std::array<char, 32> address{};
    if (driver.pci_address == nullptr ||
        driver.pci_address(address.data(), static_cast<int>(address.size()), ordinal) != 0) {
        throw kdvfs::Error{kdvfs::Errc::io,
                           {.action = "read the PCI address",
                            .object = "CUDA device " + std::to_string(ordinal),
                            .vendor_words = "",
                            .remedy = "update NVIDIA's driver"}};
    }
    auto gpu = std::make_unique<CudaGpu>();
    gpu->streams = std::make_shared<RecordStreams>(address.data(), driver);
    gpu->streams->ask_for_records([] { Process::instance().want_records(); });
    const auto open = [&]() -> Opened {
        std::string why;
        try {
            return {open_gpu(address.data(), process.settings(), gpu->streams,
                             std::make_shared<kdvfs::device::NvmlReadings>(
                                 address.data(),
                                 nvml_options(kdvfs::device::ClockAccess::measure_only).library))};
        } catch (const kdvfs::Error& error) {
            if (process.settings().drives_clocks()) throw;
            why = error.what();
        }
        process.note("no joules: " + why);
        return {open_gpu(address.data(), process.settings(), gpu->streams,
                         std::make_shared<NoReadings>("NVIDIA GPU", address.data(), why)),
                false};
    };
    gpu->device = &process.add(std::make_unique<Device>(open(), process.settings(), 1));
    // Where clocks are asked for by name and grid, joules are told so, too.
    if (!process.settings().sets_clocks) {
        gpu->streams->split_by([device = gpu->device](std::uint32_t kind, kdvfs::Duration time,
                                                      std::optional<std::uint32_t> place) {
            return device->split(kind, time, place.value_or(Device::nowhere));
        });
    }
    return gpu;
}

/// The launches that were seen, of the last ones, where there is a clock for the time without work.
/// Thread-safe.
class SeenLaunches {
public:
    SeenLaunches() {
        if (Process::instance().settings().idle.clock)
            correlations_ = std::vector<std::atomic<std::uint32_t>>(std::size_t{1} << 17U);
    }
    void add(std::uint32_t correlation) {
        if (!correlations_.empty())
            correlations_[correlation % correlations_.size()].store(correlation);
    }
    /// Of launches that were overwritten since, and where none are kept, nothing is known: true.
    [[nodiscard]] bool has(std::uint32_t correlation) const {
        if (correlations_.empty()) return true;
        return correlations_[correlation % correlations_.size()].load() >= correlation;
    }

private:
    std::vector<std::atomic<std::uint32_t>> correlations_;
};

/// CUPTI's side of this process.
class Cupti {
public:
    static Cupti& instance() {
        static auto& cupti = *new Cupti;
        return cupti;
    }

    /// Subscribes. @returns why not; nothing where it did
    std::string begin() {
        if (std::string why = shared_.open(); !why.empty()) return why;
        const Settings& settings = Process::instance().settings();
        const auto status = shared_.join(
            {.called = &called,
             .take_records = [this](std::uint8_t* buffer, std::size_t used) { take(buffer, used); },
             .records_come = [this](bool come) { pause(!come); },
             .clock_changed = [this] { restart_clock(false); },
             .whole_graphs = settings.whole_graphs || settings.sets_clocks});
        if (status != cupti::success) {
            return status == cupti::held_by_another ? "another profiler holds CUPTI"
                                                    : library().words_of(status);
        }
        restart_clock(!shared_.has_other_clock());
        for (const std::uint32_t id : cupti::instantiations) shared_.listen(id, true);
        listen(true);
        // From here to the end: records are not switched while the program runs. On an H200 with
        // CUDA 13.0, 4 of 37 runs of a program in which they were ended by a fault of CUPTI's own
        // thread.
        if (std::string why = record(settings.meter_every != 0U); !why.empty()) {
            shared_.leave();
            return why;
        }
        Process::instance().before_report([this](bool at_end) { bring_in(at_end); });
        return {};
    }

    /// Callbacks on or off.
    void listen(bool on) {
        for (const cupti::LaunchCall& call : cupti::launch_calls) {
            shared_.listen(call.id, on);
            if (call.per_thread_id != 0) shared_.listen(call.per_thread_id, on);
        }
    }
    /// Records on or off, where no work is under way. @returns why not
    std::string record(bool on) {
        const auto status = shared_.want_records(on);
        return status == cupti::success ? std::string{} : library().words_of(status);
    }

    [[nodiscard]] std::uint64_t kernel_records() const { return kernel_records_; }
    [[nodiscard]] std::uint64_t kernel_launches() const { return kernel_launches_; }

    /// Brings in the records that are done; at the end all that there are.
    void bring_in(bool at_end) {
        shared_.settle();
        shared_.flush(at_end);
        note_other_profiler();
        if (!at_end) return;
        std::size_t dropped = 0;
        if (library().dropped(nullptr, 0, &dropped) == cupti::success && dropped > 0) {
            Process::instance().note("CUPTI dropped " + std::to_string(dropped) + " records");
        }
        const std::lock_guard lock{mutex_};
        for (const auto& [ordinal, gpu] : gpus_) gpu->streams->finish();
    }

private:
    [[nodiscard]] const cupti::Library& library() const { return shared_.library(); }

    /// Launches are counted and not timed while another profiler has the records.
    void pause(bool paused) {
        paused_ = paused;
        std::vector<Device*> devices;
        {
            const std::lock_guard lock{mutex_};
            for (const auto& [ordinal, gpu] : gpus_) devices.push_back(gpu->device);
        }
        for (Device* device : devices) device->pause(paused);
    }

    void note_other_profiler() {
        const SharedCupti::Use use = shared_.use();
        if (use.times == 0) return;
        kdvfs::io::TextStream text;
        text << std::fixed << std::setprecision(1) << "another profiler used CUPTI for "
             << use.seconds << " s (" << use.times << (use.times == 1 ? " time)" : " times)")
             << "; launches were not timed for " << use.without_records << " s of it";
        Process::instance().note_again("another profiler used CUPTI for ", text.str());
    }

    /// The launch that this thread is in, between its two callbacks.
    struct InLaunch {
        CudaGpu* gpu = nullptr;
        LaunchScopes scopes{};
        std::uint32_t correlation = 0;
        const void* graph = nullptr;  ///< whose kernels will have records
        unsigned nested = 0;          ///< launches within the launch
        bool in_kdvfs = false;        ///< what is called now is called by kdvfs
    };
    static InLaunch& in_launch() {
        thread_local InLaunch launch;
        return launch;
    }

    static void called(void*, int domain, std::uint32_t id, const cupti::CallbackData* data) {
        InLaunch& launch = in_launch();
        if (domain != cupti::driver_api || launch.in_kdvfs || !Process::instance().runs()) return;
        launch.in_kdvfs = true;
        try {
            if (data->site == cupti::at_enter) {
                instance().entered(launch, id, *data);
            } else {
                instance().left(launch, id, *data);
            }
        } catch (const std::exception& error) {
            Process::instance().give_up(error.what());
        }
        launch.in_kdvfs = false;
    }

    void entered(InLaunch& launch, std::uint32_t id, const cupti::CallbackData& data) {
        seen_.add(data.correlation);
        if (launch.correlation != 0) {
            ++launch.nested;
            return;
        }
        const cupti::Launch made = cupti::read_launch(id, data.parameters);
        if (made.call == nullptr || CudaDriver::of_process().captures(made.stream)) return;
        CudaGpu* const gpu = gpu_of(data.context);
        if (gpu == nullptr) return;
        const bool kernel = made.call->work == cupti::Work::kernel ||
                            made.call->work == cupti::Work::kernel_by_config;
        if (kernel && shared_.has_records()) {
            kernel_launches_.fetch_add(1, std::memory_order_relaxed);
        }
        const auto& kind = kind_of(*gpu, made, data);
        Device& device = *gpu->device;
        const std::uint32_t place = device.launched(kind);
        launch.gpu = gpu;
        launch.correlation = data.correlation;
        if (made.call->work == cupti::Work::graph && device.looks_into_graphs()) {
            launch.graph = made.function;
            gpu->streams->launches_many(data.correlation);
        }
        if (device.repeats()) {
            LastSets& sets = LastSets::of_thread();
            if (made.again()) repeat(*gpu, made, kind, data.correlation, place);
            sets.add(id, made);
        }
        launch.scopes.enter(device, made.stream, kind, data.correlation);
    }

    /// Launches a kernel again and again with its own arguments, where that is asked for.
    static void repeat(const CudaGpu& gpu, const cupti::Launch& made,
                       const kdvfs::extend::ScopeKind& kind, std::uint32_t correlation,
                       std::uint32_t place) {
        const AtLaunch none{0};
        Device::Again again{.launch = [&] { launch_again(made); },
                            .wait = [&] { gpu.streams->wait_for(made.stream); },
                            .place = place};
        if (LastSets::of_thread().any_on(made.stream)) {
            again.cleared = [&] {
                LastSets::of_thread().make_again_on(made.stream);
                launch_again(made);
            };
        }
        gpu.streams->may_repeat(correlation, place);
        gpu.device->repeat(made.stream, kind, again);
    }

    void left(InLaunch& launch, std::uint32_t id, const cupti::CallbackData& data) {
        note_graph(id, data);
        if (launch.correlation == 0) return;
        if (launch.nested > 0) {
            --launch.nested;
            return;
        }
        const std::uint32_t correlation = std::exchange(launch.correlation, 0);
        CudaGpu* const gpu = std::exchange(launch.gpu, nullptr);
        auto scopes = std::exchange(launch.scopes, {});
        const auto* const status = static_cast<const int*>(data.result);
        if (status != nullptr && *status != 0) gpu->streams->failed(correlation);
        scopes.leave(correlation);
        if (const void* const graph = std::exchange(launch.graph, nullptr)) {
            gpu->streams->launched_many(correlation, graphs_.records_of(graph));
        }
    }

    /// The kind of a launch's scope. A thread remembers those of its last launches.
    const kdvfs::extend::ScopeKind& kind_of(const CudaGpu& gpu, const cupti::Launch& made,
                                            const cupti::CallbackData& data) {
        struct Observed {
            const CudaGpu* gpu = nullptr;
            const void* function = nullptr;
            const char* fixed = nullptr;
            kdvfs::Variant variant{};
            std::string symbol{};
            const kdvfs::extend::ScopeKind* kind = nullptr;
        };
        // Four places for each: two kernels that pushed each other out would be named at each
        // launch.
        constexpr std::size_t most = 4096;
        constexpr std::size_t places = 4;
        thread_local Observed* remembered = nullptr;
        thread_local std::size_t next = 0;
        // A thread may launch when its objects have ended, as the first one does at exit: it
        // remembers nothing then.
        thread_local bool has_ended = false;
        if (remembered == nullptr && !has_ended) {
            remembered = new Observed[most];
            thread_local struct Ends {
                ~Ends() {
                    delete[] std::exchange(remembered, nullptr);
                    has_ended = true;
                }
            } ends;
        }
        const kdvfs::Variant variant = grid_variant(made.blocks);
        const auto place = reinterpret_cast<std::uintptr_t>(made.function) / 16 +
                           std::uintptr_t{31} * variant.index +
                           reinterpret_cast<std::uintptr_t>(made.call->name);
        std::span<Observed> seen;
        if (remembered != nullptr)
            seen = {&remembered[(place ^ place >> 9U) % (most / places) * places], places};
        // CUPTI sets the symbol at launches of kernels and leaves it as it was elsewhere. A graph's
        // handle may be that of one before it.
        const bool graph = made.call->work == cupti::Work::graph;
        const bool named = made.call->name == nullptr && !graph && data.symbol != nullptr;
        const std::string name_of_graph = graph ? graphs_.name_of(made.function) : std::string{};
        const char* const symbol = named ? data.symbol : name_of_graph.c_str();
        for (const Observed& known : seen) {
            if (known.function == made.function && known.variant == variant && known.gpu == &gpu &&
                known.fixed == made.call->name && known.kind != nullptr && known.symbol == symbol) {
                return *known.kind;
            }
        }
        const std::string name = graph                        ? name_of_graph
                                 : made.call->name != nullptr ? made.call->name
                                                              : launch_name(symbol);
        const auto& kind =
            graph ? gpu.device->graph_kind(name) : gpu.device->launch_kind(name, variant);
        if (!seen.empty())
            seen[next++ % places] = {&gpu, made.function, made.call->name, variant, symbol, &kind};
        return kind;
    }

    // Graphs: a launch is named by how many nodes it has.

    void note_graph(std::uint32_t id, const cupti::CallbackData& data) {
        for (const std::uint32_t call : cupti::instantiations) {
            if (id != call) continue;
            struct {
                void** executable;
                void* graph;
            } parameters;
            std::memcpy(&parameters, data.parameters, sizeof parameters);
            std::size_t nodes = 0;
            const CudaDriver& driver = CudaDriver::of_process();
            if (parameters.executable == nullptr || driver.graph_nodes == nullptr ||
                driver.graph_nodes(parameters.graph, nullptr, &nodes) != 0) {
                return;
            }
            graphs_.made(*parameters.executable, nodes,
                         records_of(driver, parameters.graph, nodes));
        }
    }

    /// How many records a launch of the graph will leave.
    /// @returns nothing where that cannot be told: it has graphs in it, or the driver does not say
    static std::optional<std::size_t> records_of(const CudaDriver& driver, void* graph,
                                                 std::size_t count) {
        constexpr int kernel = 0;  // CU_GRAPH_NODE_TYPE_KERNEL, _MEMCPY, _MEMSET
        constexpr int memset = 2;
        constexpr int host = 3;
        constexpr int empty = 5;
        std::vector<void*> nodes(count);
        if (driver.node_type == nullptr || driver.graph_nodes(graph, nodes.data(), &count) != 0) {
            return std::nullopt;
        }
        std::size_t records = 0;
        for (void* const node : nodes) {
            int type = -1;
            if (driver.node_type(node, &type) != 0) return std::nullopt;
            if (type >= kernel && type <= memset) {
                ++records;
            } else if (type != host && type != empty) {
                return std::nullopt;
            }
        }
        return records;
    }

    /// The GPU of a context; null where it could not be opened.
    CudaGpu* gpu_of(void* context) {
        struct Last {
            void* context = nullptr;
            CudaGpu* gpu = nullptr;
        };
        thread_local Last last;
        if (last.context == context && last.gpu != nullptr) return last.gpu;
        int ordinal = 0;
        const CudaDriver& driver = CudaDriver::of_process();
        if (driver.context_device == nullptr || driver.context_device(&ordinal) != 0) {
            return nullptr;
        }
        const std::lock_guard lock{opening_};
        CudaGpu* gpu = nullptr;
        {
            const std::lock_guard look{mutex_};
            if (const auto known = gpus_.find(ordinal); known != gpus_.end()) {
                gpu = known->second.get();
            }
        }
        if (gpu == nullptr) {
            auto opened = open_cuda_gpu(ordinal);
            gpu = opened.get();
            gpu->device->share_metering();
            {
                const std::lock_guard look{mutex_};
                gpus_.emplace(ordinal, std::move(opened));
            }
            for (bool paused = paused_;; paused = paused_) {
                gpu->device->pause(paused);
                if (paused == paused_) break;
            }
        }
        last = {context, gpu};
        return gpu;
    }

    // Records.

    void take(std::uint8_t* buffer, std::size_t used) {
        compare_clocks();
        std::vector<CudaGpu*> gpus;
        {
            const std::lock_guard lock{mutex_};
            for (const auto& [ordinal, gpu] : gpus_) gpus.push_back(gpu.get());
        }
        constexpr std::size_t most_at_once = 128;
        std::vector<cupti::Activity> activities;
        activities.reserve(most_at_once);
        bool unseen = false;
        std::byte* record = nullptr;
        while (library().next_record(buffer, used, &record) == cupti::success) {
            const auto activity = cupti::read_activity(record);
            if (!activity) continue;
            if (activity->kind == cupti::Kind::kernel) {
                ++kernel_records_;
                unseen = unseen || !seen_.has(activity->correlation);
            }
            activities.push_back(*activity);
            if (activities.size() < most_at_once) continue;
            take(activities, gpus);
            activities.clear();
        }
        take(activities, gpus);
        if (unseen && !has_unseen_.exchange(true)) {
            Process::instance().stay_up(
                "a kernel ran whose launch was not seen: the clock stays up from here on");
        }
    }

    /// A process has one numbering of launches, whatever the GPU.
    void take(const std::vector<cupti::Activity>& activities, const std::vector<CudaGpu*>& gpus) {
        std::vector<RecordStreams::Ran> all;
        std::vector<const cupti::Activity*> their;
        for (const cupti::Activity& activity : activities) {
            const auto start = clock_.on_host(activity.start);
            const auto end = clock_.on_host(activity.end);
            if (activity.end != 0 && start && end) {
                all.push_back({activity.correlation, *start, *end});
                their.push_back(&activity);
                continue;
            }
            for (CudaGpu* gpu : gpus) gpu->streams->failed(activity.correlation);
        }
        for (CudaGpu* gpu : gpus) {
            for (const std::size_t i : gpu->streams->arrived(all)) {
                const auto& [correlation, start, end] = all[i];
                if (their[i]->kind == cupti::Kind::graph) {
                    gpu->streams->arrived_whole(correlation, start, end,
                                                gpu->device->launch_kind("graph", {}).number);
                } else {
                    gpu->streams->arrived(correlation, start, end,
                                          kind_by_record(*gpu->device, *their[i]));
                }
            }
        }
    }

    /// The kind of a kernel, copy or memset that a graph has launched.
    static std::uint32_t kind_by_record(Device& device, const cupti::Activity& activity) {
        switch (activity.kind) {
            case cupti::Kind::copy: return device.launch_kind("memcpy", {}).number;
            case cupti::Kind::set: return device.launch_kind("memset", {}).number;
            default: return device.kind_of_symbol(activity.symbol, grid_variant(activity.blocks));
        }
    }

    void compare_clocks() {
        const auto compared = RecordClock::compare([this] { return shared_.timestamp(); });
        if (compared) clock_.add(*compared);
    }
    /// The rate of another clock is known after 5 ms to some 1e-5, later to better.
    void restart_clock(bool counts_nanoseconds) {
        clock_.restart(counts_nanoseconds);
        compare_clocks();
        if (counts_nanoseconds) return;
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
        compare_clocks();
    }

    SharedCupti& shared_ = SharedCupti::of_process();
    RecordClock clock_;
    SeenLaunches seen_;
    std::atomic<bool> has_unseen_{false};
    std::atomic<std::uint64_t> kernel_launches_{0};
    std::atomic<std::uint64_t> kernel_records_{0};

    std::mutex opening_;
    std::mutex mutex_;
    std::map<int, std::unique_ptr<CudaGpu>> gpus_;  // by the driver's number
    std::atomic<bool> paused_{false};
    Graphs graphs_;
};

}  // namespace
}  // namespace attach

extern "C" {

/// What CUDA's driver calls once it is initialised. Never refuses: a program that cannot be
/// attached runs plain.
__attribute__((visibility("default"))) int InitializeInjection() {
    using attach::Process;
    try {
        kdvfs::io::keep_loaded(reinterpret_cast<const void*>(&InitializeInjection));
        if (!Process::instance().runs()) return 1;
        if (const std::string why = attach::Cupti::instance().begin(); !why.empty()) {
            Process::instance().give_up("CUPTI: " + why);
        }
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
    }
    return 1;
}

/// For programs that compare: -1 no callbacks, 0 callbacks alone, else one iteration in so many is
/// metered, by records. To be called where no work is under way.
/// @returns 0, or -1 where CUPTI refused
__attribute__((visibility("default"))) int kdvfs_attach_meter(int every) {
    attach::Cupti& cupti = attach::Cupti::instance();
    attach::Process::instance().meter_every(static_cast<unsigned>(std::max(every, 0)));
    cupti.listen(every >= 0);
    return cupti.record(every > 0).empty() ? 0 : -1;
}

/// How many launches of kernels were named while there were records, and how many of these have
/// come.
__attribute__((visibility("default"))) void kdvfs_attach_counts(std::uint64_t* launches,
                                                                std::uint64_t* records) {
    attach::Cupti& cupti = attach::Cupti::instance();
    cupti.bring_in(false);
    *launches = cupti.kernel_launches();
    *records = cupti.kernel_records();
}

}  // extern "C"
