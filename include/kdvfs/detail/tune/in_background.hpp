// SPDX-License-Identifier: MIT
#pragma once

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <future>
#include <utility>

namespace kdvfs::inline v0_3::tune::detail {

/// A result in the making, on a thread of its own that takes no signals. The destructor waits for
/// it.
template <class Result>
class InBackground {
public:
    explicit InBackground(std::function<Result()> make) {
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        result_ = std::async(std::launch::async | std::launch::deferred, std::move(make));
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    /// Whether `take` would not wait long. What no thread could be had for is made by it.
    [[nodiscard]] bool is_ready() const {
        return result_.wait_for(std::chrono::seconds{0}) != std::future_status::timeout;
    }
    /// Waits for the result. Once.
    [[nodiscard]] Result take() { return result_.get(); }

private:
    std::future<Result> result_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
