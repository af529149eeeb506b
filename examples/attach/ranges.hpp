// SPDX-License-Identifier: MIT
#pragma once

#include <examples/attach/device.hpp>
#include <examples/attach/launch_names.hpp>
#include <examples/attach/record_streams.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/device/contracts.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attach {

/// The ranges that a thread has open, each with its scopes: a range becomes a scope on a stream
/// with the first launch inside it there, and ends after the last one.
class RangeStack {
public:
    void push(std::string_view name) {
        const std::lock_guard lock{mutex_};
        Range range;
        range.path = open_.empty() ? range_name(name) : open_.back().path + '/' + range_name(name);
        open_.push_back(std::move(range));
    }
    /// @returns whether there was one
    bool pop() noexcept {
        const std::lock_guard lock{mutex_};
        if (open_.empty()) return false;
        for (OnStream& scope : open_.back().scopes) {
            const AtLaunch end{scope.last};
            scope.device->sink().leave_noexcept(scope.token);
        }
        open_.pop_back();
        return true;
    }
    [[nodiscard]] std::size_t depth() {
        const std::lock_guard lock{mutex_};
        return open_.size();
    }

    /// A launch inside these ranges: those without a scope on its stream get one, which begins with
    /// it. @returns whether there is any range
    /// @throws Error as entering a scope
    bool launched(Device& device, kdvfs::StreamRef stream, std::uint32_t correlation) {
        const std::lock_guard lock{mutex_};
        for (Range& range : open_) {
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
        return !open_.empty();
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
        std::vector<OnStream> scopes;
    };

    std::mutex mutex_;
    std::vector<Range> open_;
};

/// The ranges of all threads. A thread that never opened one belongs to those of the thread that
/// did, as long as only one has any open: so the backward pass, which PyTorch launches from a
/// thread of its own, is inside the range around `backward()`. Thread-safe.
class Ranges {
public:
    static Ranges& of_process() {
        static auto& ranges = *new Ranges;  // threads may outlive static objects
        return ranges;
    }

    /// @returns how many ranges of this thread enclose the new one
    int push(std::string_view name) {
        RangeStack& stack = own();
        stack.push(name);
        const std::size_t depth = stack.depth();
        if (depth == 1) opened(stack);
        return static_cast<int>(depth) - 1;
    }
    /// @returns how many ranges of this thread enclosed the one that ends, or less than 0
    int pop() {
        RangeStack& stack = own();
        if (!stack.pop()) return -2;
        const std::size_t depth = stack.depth();
        if (depth == 0) closed(stack);
        return static_cast<int>(depth);
    }
    bool launched(Device& device, kdvfs::StreamRef stream, std::uint32_t correlation) {
        RangeStack* const stack = mine() != nullptr ? mine() : only_.load();
        return stack != nullptr && stack->launched(device, stream, correlation);
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
