// SPDX-License-Identifier: MIT
#pragma once

#include <tools/attach/device.hpp>
#include <tools/attach/record_streams.hpp>
#include <tools/attach/rocprofiler.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace attach {

/// Whether this thread is in a call of HIP that kdvfs stands before, or makes.
inline bool& in_launch() {
    thread_local bool inside = false;
    return inside;
}

/// What an AMD GPU runs, as rocprofiler-sdk tells it, where the process has it: the time of each
/// dispatch and copy, whoever launched it and however its function was found. The launching thread
/// is asked for a number of each, so that a launch knows its dispatches, and those that no launch
/// was seen of get scopes of their own. Thread-safe.
class Dispatches {
public:
    static Dispatches& instance() {
        static auto& dispatches = *new Dispatches;
        return dispatches;
    }

    /// What `rocprofiler_configure` answers: null where kdvfs has no use for it.
    /// @param caller code of the library
    rocprofiler::Configuration* configure(std::uint32_t version, rocprofiler::ClientId& id,
                                          const void* caller);
    /// Whether dispatches are told of. Decided once the program has called HIP.
    [[nodiscard]] bool there() const { return there_.load(std::memory_order_acquire); }

    /// A GPU whose launches are timed by records, and its streams.
    void add(Device& device, int ordinal, std::shared_ptr<RecordStreams> streams);

    enum class Kernels { one, many };
    /// What this thread dispatches belongs to a launch, until its end.
    /// @returns its number
    [[nodiscard]] std::uint32_t begin_launch(Device& device, Kernels kernels);
    void end_launch();

private:
    struct Gpu {
        Device* device;
        int ordinal;
        std::shared_ptr<RecordStreams> streams;
        const kdvfs::extend::ScopeKind* unseen;  ///< of launches, before their records tell more
    };
    /// The launch that a thread is in.
    struct Launch {
        Gpu* gpu = nullptr;
        std::uint32_t number = 0;
        std::uint32_t dispatches = 0;
    };
    // Numbers of dispatches.
    static constexpr std::uint64_t nobodys = 0;  ///< nobody was asked, or nobody knew
    static constexpr std::uint64_t own = 1;      ///< of kdvfs's work, or before its first launch
    static constexpr std::uint32_t of_unseen = 1U << 31U;

    static Launch& launch_of_thread() {
        thread_local Launch launch;
        return launch;
    }

    int initialize();
    std::uint32_t next_number();
    std::uint64_t number_of_dispatch() noexcept;
    [[nodiscard]] Gpu* gpu_of_thread();
    Gpu* gpu_of(const Device& device);
    void take(rocprofiler::RecordHeader** headers, std::size_t count) noexcept;
    void take(const rocprofiler::Record& record, std::int64_t offset);
    [[nodiscard]] std::uint32_t kind_of(const Gpu& gpu, const rocprofiler::Record& record);
    [[nodiscard]] std::int64_t offset() const;
    void bring_in(bool at_end);
    template <class Call>
    static void called(Call call, std::uint64_t*, void*) noexcept;

    rocprofiler::Library library_;
    rocprofiler::Context context_;
    rocprofiler::Buffer buffer_;
    std::uint32_t version_ = 0;
    std::atomic<bool> there_{false};
    std::atomic<std::uint32_t> launches_{0};
    std::atomic<std::uint64_t> dropped_{0};
    std::mutex mutex_;
    std::deque<Gpu> gpus_;
    std::map<std::uint64_t, std::string> kernels_;  // symbols, by the library's number
};

}  // namespace attach
