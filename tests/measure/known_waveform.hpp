// SPDX-License-Identifier: MIT
#pragma once

#include <bench/power_profile/power_profile.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace kdvfs::measure {

/// A kernel of 200 us whose power inside is known, a logger of 1 ms, a GPU clock that drifts by
/// 20 ppm, execution times that jitter by 5 %, and one run in five that is slow and draws less. The
/// truth that power profiles are tested against.
class KnownWaveform {
public:
    struct Traits {
        std::size_t steady = 11;  ///< the first execution whose power has arrived
        double jitter = 0.05;     ///< of execution times
        std::int64_t window = 0;  ///< ns that the logger averages over; 0 = an instant
        double inherited = 0;     ///< watts that what ran before leaves behind
        double start = 0.6;       ///< of the power, in the first execution
        double rise = 0;          ///< s, time constant of the power's arrival instead of `steady`
        double spike_watts = 0;   ///< beyond the rest, from `spike_from` to `spike_to`
        double spike_from = 0;    ///< parts of the kernel
        double spike_to = 0;
    };

    explicit KnownWaveform(std::uint64_t seed) : KnownWaveform{seed, {}} {}
    KnownWaveform(std::uint64_t seed, Traits traits) : random_{seed}, traits_{traits} {}

    static constexpr double seconds = 200e-6;
    static double watts(double part) {
        return 400 + 120 * std::sin(6.283185307 * part) + (part > 0.6 ? 60 * (part - 0.6) : 0);
    }

    /// With the spike.
    [[nodiscard]] double truth(double part) const {
        const bool inside = traits_.spike_from <= part && part < traits_.spike_to;
        return watts(part) + (inside ? traits_.spike_watts : 0);
    }

    ProfiledRun operator()(std::size_t executions) {
        now_ += std::uniform_int_distribution<std::int64_t>{5'000'000, 15'000'000}(random_);
        ProfiledRun run;
        const std::int64_t delay =
            3000 + std::uniform_int_distribution<std::int64_t>{0, 300}(random_);
        run.anchors.push_back({at(now_ + delay), gpu(now_)});
        now_ += 50'000;
        slow_ = random_() % 5 == 0;
        done_.clear();
        std::int64_t log = (now_ / 1'000'000 + 1) * 1'000'000 + phase;
        for (std::size_t i = 1; i <= executions; ++i) {
            const double factor =
                std::normal_distribution<double>{slow_ ? 1.4 : 1.0, traits_.jitter}(random_);
            const auto length = static_cast<std::int64_t>(200'000 * factor);
            run.executions.push_back({at(now_), at(now_ + length)});
            // Power arrives linearly with the executions.
            const double waited = 200e-6 * static_cast<double>(i);
            const double arrived =
                traits_.rise > 0
                    ? -std::expm1(-waited / traits_.rise)
                    : std::min(1.0, static_cast<double>(i) / static_cast<double>(traits_.steady));
            const double arrival = traits_.start + (1 - traits_.start) * arrived;
            done_.push_back({now_, length, arrival});
            for (; log < now_ + length; log += 1'000'000) {
                if (log < now_) continue;
                const double noise = std::normal_distribution<double>{1, 0.01}(random_);
                const double shown = mean_until(log) * noise;
                run.logs.push_back({gpu(log), {shown, 0.5 * shown}});
            }
            now_ += length;
        }
        return run;
    }

private:
    struct Done {
        std::int64_t start;
        std::int64_t length;
        double arrival;
    };
    static constexpr std::int64_t phase = 137'000;
    static constexpr double idle_watts = 90;

    static TimePoint at(std::int64_t nanoseconds) { return TimePoint{Duration{nanoseconds}}; }
    static GpuTime gpu(std::int64_t nanoseconds) {
        return {123'456 + nanoseconds - nanoseconds / 50'000};
    }

    [[nodiscard]] double power_at(std::int64_t time) const {
        for (auto it = done_.rbegin(); it != done_.rend(); ++it) {
            if (time < it->start) continue;
            const double part =
                static_cast<double>(time - it->start) / static_cast<double>(it->length);
            return truth(part) * it->arrival * (slow_ ? 0.7 : 1) +
                   traits_.inherited * (1 - it->arrival);
        }
        return idle_watts;
    }
    [[nodiscard]] double mean_until(std::int64_t time) const {
        constexpr int places = 50;
        if (traits_.window == 0) return power_at(time);
        double sum = 0;
        for (int i = 0; i < places; ++i) {
            sum += power_at(time - traits_.window * (2 * i + 1) / (2 * places));
        }
        return sum / places;
    }

    std::mt19937_64 random_;
    Traits traits_;
    std::vector<Done> done_;
    bool slow_ = false;
    std::int64_t now_ = 1'000'000'000;
};

/// Relative root mean square of a smoothed curve against the waveform.
inline double error_of(const SmoothCurve& curve, double arrival = 1) {
    double squares = 0;
    for (const auto& point : curve.points) {
        const double truth = arrival * KnownWaveform::watts(point.x / KnownWaveform::seconds);
        squares += (point.y / truth - 1) * (point.y / truth - 1);
    }
    return std::sqrt(squares / static_cast<double>(curve.points.size()));
}

}  // namespace kdvfs::measure
