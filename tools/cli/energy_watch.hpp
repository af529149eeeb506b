// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>
#include <tools/cli/device_counter.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace cli {

/// Reads an energy counter ten times a second while something else runs.
class EnergyWatch {
public:
    /// `counter` must outlive the watch.
    explicit EnergyWatch(const DeviceCounter& counter) : counter_{counter} {
        look();
        thread_ = std::thread{[this] { watch(); }};
    }
    ~EnergyWatch() { stop(); }
    EnergyWatch(const EnergyWatch&) = delete;
    EnergyWatch& operator=(const EnergyWatch&) = delete;

    /// The joules between two moments, interpolated; waits for a sample behind the second one, a
    /// second at most. Once.
    /// @throws Error (not_supported) where the counter has lost energy or says nothing
    [[nodiscard]] kdvfs::Joules between(kdvfs::TimePoint from, kdvfs::TimePoint to) {
        stop();
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{1};
        while ((samples_.empty() || samples_.back().at < to) &&
               std::chrono::steady_clock::now() < deadline) {
            std::this_thread::sleep_for(std::chrono::milliseconds{10});
            look();
        }
        const auto first = total_at(from);
        const auto last = total_at(to);
        if (!first || !last || samples_.front().segment != samples_.back().segment ||
            last->count <= first->count) {
            throw kdvfs::Error{kdvfs::Errc::not_supported,
                               {"count the energy of a run", counter_.name,
                                "its counter stood still, jumped, or could not be read",
                                "make runs longer, a second at least, or use another counter"}};
        }
        return *last - *first;
    }

private:
    void look() {
        const kdvfs::TimePoint now{std::chrono::steady_clock::now().time_since_epoch()};
        const auto step = judge_.take(counter_.read(), now);
        if (step.sample) samples_.push_back(*step.sample);
    }

    void watch() {
        std::unique_lock lock{mutex_};
        while (!wakes_.wait_for(lock, std::chrono::milliseconds{100}, [&] { return stopping_; }))
            look();
    }

    void stop() {
        if (!thread_.joinable()) return;
        {
            const std::lock_guard lock{mutex_};
            stopping_ = true;
        }
        wakes_.notify_one();
        thread_.join();
    }

    /// Held at the first and last sample: within a counter period of them nothing better is known.
    [[nodiscard]] std::optional<kdvfs::Joules> total_at(kdvfs::TimePoint at) const {
        if (samples_.empty()) return std::nullopt;
        if (at <= samples_.front().at) return samples_.front().total;
        for (std::size_t i = 1; i < samples_.size(); ++i) {
            const auto& before = samples_[i - 1];
            const auto& after = samples_[i];
            if (at > after.at) continue;
            const double part =
                kdvfs::Seconds{at - before.at} / kdvfs::Seconds{after.at - before.at};
            return before.total + (after.total - before.total) * part;
        }
        return samples_.back().total;
    }

    const DeviceCounter& counter_;
    kdvfs::measure::EnergyCounter judge_;
    std::vector<kdvfs::measure::EnergySample> samples_;
    std::mutex mutex_;
    std::condition_variable wakes_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace cli
