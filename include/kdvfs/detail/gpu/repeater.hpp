// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/meter.hpp>
#include <kdvfs/detail/gpu/scope_kinds.hpp>
#include <kdvfs/detail/gpu/stream_scopes.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <set>

namespace kdvfs::inline v0_3::detail {

/// Repeats work in place, each kernel, variant and clock once, until the counter can tell its
/// joules. One kernel at a time; a launch within repeated work is none of its own. Thread-safe.
template <StreamRuntime Runtime>
class Repeater {
public:
    /// All by reference; they must outlive it.
    struct Parts {
        Runtime& runtime;
        const DeviceInfo& info;
        const RepeatOptions& options;
        const ScopeKinds& kinds;
        StreamScopes<Runtime>& scopes;
    };
    explicit Repeater(Parts parts) : parts_{parts} {}

    /// Calls `work` again and again where it is its turn, else never.
    /// @param kind_of_work asked for only then, and may run the work itself; null: it must not run
    ///        again
    /// @param begins is told that there is something to read the counter for
    /// @throws Error (io) naming the kernel where its work throws, or the stream fails under it
    template <class Begins>
    void repeat(Meter& meter, StreamRef stream,
                const std::function<const ScopeKind*()>& kind_of_work,
                const std::function<void()>& work, const Begins& begins) {
        static thread_local bool within = false;
        if (within || !begun_by_now() || parts_.runtime.track_key(stream).capture != 0) return;
        const std::lock_guard one_at_a_time{repeating_};
        const ScopedFlag inside{within};
        const ScopeKind* const kind = kind_of_work();
        if (kind == nullptr || !repeated_.insert(kind->number).second) return;
        parts_.runtime.synchronize(stream);
        say_begin();
        meter.begin_repeat(parts_.runtime, kind->kernel);
        begins();
        Repeats done;
        try {
            done = repeat_until_resolved(meter, stream, *kind, work);
        } catch (const std::exception& error) {
            meter.end_repeat(parts_.runtime, 0, {});
            throw Error{
                Errc::io,
                {.action = "repeat kernel '" + to_string(parts_.kinds.kernels().key(kind->kernel)) +
                           "' in place",
                 .object = to_string(parts_.info),
                 .vendor_words = error.what(),
                 .remedy = "if it must not run twice, let its type say `static constexpr "
                           "bool runs_once = true;`"}};
        }
        meter.end_repeat(parts_.runtime, done.calls, done.ended);
    }

    /// Says on standard error, once, that this process's results are not to be used.
    void say_end() noexcept {
        if (!has_repeated_.exchange(false)) return;
        std::fprintf(stderr,
                     "kdvfs: kernels were repeated in place on %s: discard the results of "
                     "this run\n",
                     parts_.info.address.c_str());
    }

private:
    void say_begin() noexcept {
        if (has_repeated_.exchange(true)) return;
        std::fprintf(stderr,
                     "kdvfs: repeating kernels in place on %s: results of this run are "
                     "wrong from here on\n",
                     parts_.info.address.c_str());
    }

    struct ScopedFlag {
        explicit ScopedFlag(bool& raised) : flag{raised} { flag = true; }
        ~ScopedFlag() { flag = false; }
        ScopedFlag(const ScopedFlag&) = delete;
        ScopedFlag& operator=(const ScopedFlag&) = delete;
        bool& flag;
    };

    /// Whether the program has run as it is for long enough.
    [[nodiscard]] bool begun_by_now() {
        const Duration::rep now = parts_.runtime.now().time_since_epoch().count();
        Duration::rep first = none_yet;
        if (first_launch_.compare_exchange_strong(first, now)) first = now;
        return now - first >= parts_.options.after.count();
    }

    struct Repeats {
        std::uint64_t calls = 0;
        TimePoint ended{};  ///< before what follows, which takes long where the host is busy
    };
    Repeats repeat_until_resolved(Meter& meter, StreamRef stream, const ScopeKind& kind,
                                  const std::function<void()>& work) {
        // The GPU rests between two while a busy host wakes this thread.
        constexpr Duration batch = std::chrono::milliseconds{100};
        constexpr std::uint64_t most = 1000;  // in the stream's queue
        Runtime& runtime = parts_.runtime;
        const TimePoint began = runtime.now();
        const ScopeToken token = parts_.scopes.enter(stream, kind);
        Repeats done;
        try {
            for (std::uint64_t size = 1;;) {
                const TimePoint before = runtime.now();
                for (std::uint64_t i = 0; i < size; ++i) work();
                runtime.synchronize(stream);
                const TimePoint now = runtime.now();
                done = {done.calls + size, now};
                if (now - before < batch) size = std::min(2 * size, most);
                if (now - began < parts_.options.at_least) continue;
                const measure::RepeatedFigure found = meter.repeated_so_far();
                const bool resolved =
                    found.power.count > 0 &&
                    found.half_width.count <= parts_.options.widest * found.power.count;
                if (resolved || now - began >= parts_.options.at_most) break;
            }
        } catch (...) {
            try {
                leave(token);
            } catch (const std::exception&) {  // what the work threw says more
            }
            throw;
        }
        leave(token);
        runtime.synchronize(stream);
        return done;
    }

    void leave(const ScopeToken& token) {
        if (token.track != nullptr) parts_.scopes.leave(token);
    }

    Parts parts_;
    std::mutex repeating_;
    std::atomic<bool> has_repeated_{false};
    std::set<std::uint32_t> repeated_;  ///< scope kinds: a kernel, a variant and its clock each
    static constexpr Duration::rep none_yet = -1;
    std::atomic<Duration::rep> first_launch_{none_yet};  ///< of those that could be repeated
};

}  // namespace kdvfs::inline v0_3::detail
