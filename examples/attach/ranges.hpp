// SPDX-License-Identifier: MIT
#pragma once

#include <examples/attach/device.hpp>
#include <examples/attach/launch_names.hpp>
#include <examples/attach/process.hpp>
#include <examples/attach/record_streams.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/device/contracts.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attach {

/// The ranges that a thread has open, each with its scopes: a range becomes a scope on a stream
/// with the first launch inside it there, and ends after the last one.
class RangeStack {
public:
    /// @param taken whether it is a scope; else its launches belong to the range around it
    /// @returns whether it is the first that is taken
    bool push(std::string_view name, bool taken) {
        const std::lock_guard lock{mutex_};
        Range range;
        if (!open_.empty()) range.path = open_.back().path;
        if (taken) range.path += (range.path.empty() ? "" : "/") + range_name(name);
        range.taken = taken;
        open_.push_back(std::move(range));
        return taken && ++taken_ == 1;
    }
    /// @returns whether it was the last that was taken; nothing where none is open
    std::optional<bool> pop() noexcept {
        const std::lock_guard lock{mutex_};
        if (open_.empty()) return std::nullopt;
        for (OnStream& scope : open_.back().scopes) {
            const AtLaunch end{scope.last};
            scope.device->sink().leave_noexcept(scope.token);
        }
        const bool taken = open_.back().taken;
        open_.pop_back();
        return taken && --taken_ == 0;
    }
    [[nodiscard]] std::size_t depth() {
        const std::lock_guard lock{mutex_};
        return open_.size();
    }

    /// A launch inside these ranges: those without a scope on its stream get one, which begins with
    /// it. @returns whether there is any range that is taken
    /// @throws Error as entering a scope
    bool launched(Device& device, kdvfs::StreamRef stream, std::uint32_t correlation) {
        const std::lock_guard lock{mutex_};
        bool any = false;
        for (Range& range : open_) {
            if (!range.taken) continue;
            any = true;
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
    struct OnStream {
        Device* device;
        kdvfs::StreamRef stream;
        kdvfs::detail::ScopeToken token;
        std::uint32_t last;
    };
    struct Range {
        std::string path;
        bool taken = true;
        std::vector<OnStream> scopes;
    };

    std::mutex mutex_;
    std::vector<Range> open_;
    std::size_t taken_ = 0;  ///< of the open ones
};

/// The ranges of all threads. A launch that no range of its own thread takes belongs to those of
/// the one thread that has any open that are taken, if it is one: so the backward pass, which
/// PyTorch launches from a thread of its own, is inside the range around `backward()`, whatever
/// ranges the libraries that it calls open there for themselves. Thread-safe.
class Ranges {
public:
    static Ranges& of_process() {
        static auto& ranges = *new Ranges;  // threads may outlive static objects
        return ranges;
    }

    /// @returns how many ranges of this thread enclose the new one
    int push(std::string_view name) {
        const auto& match = Process::instance().settings().match;
        RangeStack& stack = own();
        if (stack.push(name, !match || std::regex_search(name.begin(), name.end(), *match))) {
            opened(stack);
        }
        return static_cast<int>(stack.depth()) - 1;
    }
    /// @returns how many ranges of this thread enclosed the one that ends, or less than 0
    int pop() {
        RangeStack& stack = own();
        const auto last_taken = stack.pop();
        if (!last_taken) return -2;
        if (*last_taken) closed(stack);
        return static_cast<int>(stack.depth());
    }
    bool launched(Device& device, kdvfs::StreamRef stream, std::uint32_t correlation) {
        RangeStack* const own = mine();
        if (own != nullptr && own->launched(device, stream, correlation)) return true;
        RangeStack* const others = only_.load();
        return others != nullptr && others != own && others->launched(device, stream, correlation);
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
    void opened(RangeStack& stack) {
        const std::lock_guard lock{mutex_};
        with_open_.push_back(&stack);
        only_ = with_open_.size() == 1 ? with_open_.front() : nullptr;
    }
    void closed(RangeStack& stack) {
        const std::lock_guard lock{mutex_};
        std::erase(with_open_, &stack);
        only_ = with_open_.size() == 1 ? with_open_.front() : nullptr;
    }

    std::mutex mutex_;
    std::deque<RangeStack> stacks_;
    std::vector<RangeStack*> with_open_;
    std::atomic<RangeStack*> only_{nullptr};
};

}  // namespace attach
