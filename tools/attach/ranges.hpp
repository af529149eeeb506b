// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/device/contracts.hpp>
#include <tools/attach/device.hpp>
#include <tools/attach/launch_names.hpp>
#include <tools/attach/pipeline.hpp>
#include <tools/attach/process.hpp>
#include <tools/attach/record_streams.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attach {

/// Who opened a range. NVTX asks libraries to keep their ranges in a domain of their own; the one
/// without a name is the program's.
enum class Opener { program, library };

/// The ranges that a thread has open, each with its scopes: a range becomes a scope on a stream
/// with the first launch inside it there, and ends after the last one. Ranges of libraries are a
/// second stack beside those of the program.
class RangeStack {
public:
    /// @param domain of NVTX, each of which nests by itself; null is the program's
    /// @param opener whose it is, for scopes; none: it is no scope, and its launches belong to the
    ///        range around it
    /// @returns how many ranges of the domain enclose it
    int push(std::string_view name, const void* domain, std::optional<Opener> opener) {
        const std::lock_guard lock{mutex_};
        Range range;
        range.domain = domain;
        range.opener = opener;
        if (opener) {
            for (const Range& around : open_) {
                if (around.opener == opener) range.path = around.path;
            }
            if (!range.path.empty()) range.path += '/';
            range.path += range_name(name);
            range.operation = operation_of(name);
        }
        const auto around = std::count_if(open_.begin(), open_.end(),
                                          [&](const Range& each) { return each.domain == domain; });
        open_.push_back(std::move(range));
        return static_cast<int>(around);
    }
    /// @returns how many ranges of the domain enclosed the one that ends; less than 0 where none is
    ///          open
    int pop(const void* domain) noexcept {
        const std::lock_guard lock{mutex_};
        const auto of_domain = [&](const Range& each) { return each.domain == domain; };
        const auto last = std::find_if(open_.rbegin(), open_.rend(), of_domain);
        if (last == open_.rend()) return -2;
        if (last->running) {
            const AtLaunch end{last->running->last};
            last->running->device->pipeline()->leave(last->running->entered, last->running->stream);
        }
        for (OnStream& scope : last->scopes) {
            const AtLaunch end{scope.last};
            scope.device->sink().leave_noexcept(scope.token);
        }
        open_.erase(std::next(last).base());
        return static_cast<int>(std::count_if(open_.begin(), open_.end(), of_domain));
    }
    /// Whether the program has a range open here that is a scope.
    [[nodiscard]] bool has_programs() {
        const std::lock_guard lock{mutex_};
        return std::any_of(open_.begin(), open_.end(),
                           [](const Range& each) { return each.opener == Opener::program; });
    }

    /// A launch inside these ranges: those of the opener without a scope on its stream get one,
    /// which begins with it. @returns whether there is any
    /// @throws Error as entering a scope
    bool launched(Opener opener, Device& device, kdvfs::StreamRef stream,
                  std::uint32_t correlation) {
        const std::lock_guard lock{mutex_};
        bool any = false;
        for (Range& range : open_) {
            if (range.opener != opener) continue;
            any = true;
            if (runs_operation(range, device, stream, correlation)) continue;
            OnStream* known = nullptr;
            for (OnStream& scope : range.scopes) {
                if (scope.device == &device && scope.stream == stream) known = &scope;
            }
            if (known == nullptr) {
                const AtLaunch begin{correlation};
                const auto& kind = device.range_kind(range.path);
                known = &range.scopes.emplace_back(
                    OnStream{&device, stream, device.sink().enter(stream, kind), 0});
            }
            known->last = correlation;
        }
        return any;
    }

private:
    /// An operation of a pipeline, on the stream of its first launch.
    struct Running {
        Device* device;
        kdvfs::StreamRef stream;
        PipelineRanges::Entered entered;
        std::uint32_t last;
    };
    struct OnStream {
        Device* device;
        kdvfs::StreamRef stream;
        kdvfs::extend::ScopeToken token;
        std::uint32_t last;
    };
    struct Range {
        std::string path{};
        const void* domain = nullptr;
        std::optional<Opener> opener{};
        std::vector<OnStream> scopes{};
        std::optional<NamedOperation> operation{};  ///< that has not begun, by its name
        std::optional<Running> running{};
    };

    /// Whether the launch is one of the pipeline's operation that the range is.
    static bool runs_operation(Range& range, Device& device, kdvfs::StreamRef stream,
                               std::uint32_t correlation) {
        if (device.pipeline() == nullptr) return false;
        if (const auto named = std::exchange(range.operation, std::nullopt)) {
            const AtLaunch begin{correlation};
            if (const auto entered = device.pipeline()->enter(stream, *named, range.path))
                range.running.emplace(Running{&device, stream, *entered, correlation});
        }
        if (range.running && range.running->stream == stream) range.running->last = correlation;
        return range.running.has_value();
    }

    std::mutex mutex_;
    std::vector<Range> open_;
};

/// The ranges of all threads. A launch belongs to the program's ranges of its own thread; where
/// these are none, to those of the one thread that has any open, if it is one: so the backward
/// pass, which PyTorch launches from a thread of its own, is inside the range around `backward()`.
/// Only where there is none of the program's is it inside the ranges that libraries have open on
/// its thread. Ranges that are asked for by name (`KDVFS_ATTACH_MATCH`) are the program's, whoever
/// opened them. Thread-safe.
class Ranges {
public:
    static Ranges& of_process() {
        static auto& ranges = *new Ranges;  // threads may outlive static objects
        return ranges;
    }

    /// @param domain as `RangeStack::push`
    /// @returns how many ranges of this thread and domain enclose the new one
    int push(std::string_view name, const void* domain = nullptr) {
        const auto& match = Process::instance().settings().match;
        std::optional<Opener> opener = domain == nullptr ? Opener::program : Opener::library;
        if (match) {
            opener.reset();
            if (std::regex_search(name.begin(), name.end(), *match)) opener = Opener::program;
        }
        const int around = own().push(name, domain, opener);
        if (opener == Opener::program) note_programs(own());
        return around;
    }
    /// @returns how many ranges of this thread and domain enclosed the one that ends, or less than
    /// 0
    int pop(const void* domain = nullptr) {
        const int around = own().pop(domain);
        note_programs(own());
        return around;
    }
    bool launched(Device& device, kdvfs::StreamRef stream, std::uint32_t correlation) {
        RangeStack* const own = mine();
        const auto inside = [&](RangeStack* stack, Opener opener) {
            return stack != nullptr && stack->launched(opener, device, stream, correlation);
        };
        if (inside(own, Opener::program)) return true;
        RangeStack* const others = only_.load();
        if (others != own && inside(others, Opener::program)) return true;
        return inside(own, Opener::library);
    }

private:
    Ranges() = default;

    static RangeStack*& mine() {
        thread_local RangeStack* stack = nullptr;
        return stack;
    }
    RangeStack& own() {
        if (mine() == nullptr) {
            const std::lock_guard lock{mutex_};
            mine() = &stacks_.emplace_back();  // kept: another thread may be looking at it
        }
        return *mine();
    }
    /// Whether this thread is one of those with ranges of the program.
    void note_programs(RangeStack& stack) {
        static thread_local bool noted = false;
        const bool has = stack.has_programs();
        if (std::exchange(noted, has) == has) return;
        const std::lock_guard lock{mutex_};
        if (has) {
            with_programs_.push_back(&stack);
        } else {
            std::erase(with_programs_, &stack);
        }
        only_ = with_programs_.size() == 1 ? with_programs_.front() : nullptr;
    }

    std::mutex mutex_;
    std::deque<RangeStack> stacks_;
    std::vector<RangeStack*> with_programs_;
    std::atomic<RangeStack*> only_{nullptr};
};

/// A range of the program begins or ends on this thread: by a call of NVTX, roctx or Kokkos, or by
/// the record of one.
void push_range(const char* name) noexcept;
void pop_range() noexcept;

/// The scopes that a launch has by itself, besides those of the ranges that it is in.
class LaunchScopes {
public:
    /// @param kind        of the launch
    /// @param correlation as `AtLaunch`
    /// @throws Error as entering a scope
    void enter(Device& device, kdvfs::StreamRef stream, const kdvfs::extend::ScopeKind& kind,
               std::uint32_t correlation) {
        const AtLaunch here{correlation};
        device_ = &device;
        sink_ = &device.sink();
        const bool by_range = Process::instance().settings().level == Level::range;
        if (by_range && !Ranges::of_process().launched(device, stream, correlation)) {
            outside_ = sink_->enter(stream, device.outside());
        }
        if (by_range && !device.sums_ranges()) return;
        own_ = sink_->enter(stream, device.scope_kind(kind));
    }
    void leave(std::uint32_t correlation) noexcept {
        if (sink_ == nullptr) return;
        const AtLaunch here{correlation};
        sink_->leave_noexcept(own_);
        sink_->leave_noexcept(outside_);
    }
    /// The launch has failed: nothing is put into its stream. A call into HIP that succeeds would
    /// reset the error that the program may ask for next (hipGetLastError before ROCm 7).
    void leave_failed() noexcept {
        if (sink_ == nullptr) return;
        device_->leave_unmarked(own_);
        device_->leave_unmarked(outside_);
    }

private:
    Device* device_ = nullptr;
    kdvfs::extend::ScopeSink* sink_ = nullptr;
    kdvfs::extend::ScopeToken outside_{};
    kdvfs::extend::ScopeToken own_{};
};

}  // namespace attach
