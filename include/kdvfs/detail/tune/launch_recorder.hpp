// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/tune/iteration_sample.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// The launches of an iteration on the stream that matters most, in enqueue order.
struct RecordedSequence {
    std::vector<KernelId> launches;
    std::vector<Seconds> gaps;  ///< before each launch, in which the stream ran none; or empty
    std::vector<std::uint32_t> depths;  ///< how many scopes of the sequence are around each
    std::uint64_t iterations = 0;       ///< that were exactly so
};

/// An iteration as it ran, and how many of the program's iterations it stands for.
struct RecordedIteration {
    double count = 0;
    std::vector<KernelId> launches;
    std::vector<std::uint32_t> depths;
    std::vector<Seconds> times;  ///< of each launch; or empty
    std::vector<Seconds> gaps;   ///< before each launch; or empty
};

/// Finds out which kernels a program launches in an iteration: the sequences that most iterations
/// of a stream had, and a sample of iterations as they ran at the baseline. Not thread-safe.
class SequenceRecorder {
public:
    /// A scope was entered, inside so many others.
    void launched(TrackId track, KernelId kernel, std::uint32_t depth = 0) {
        Launches& current = current_[track];
        current.kernels.push_back(kernel);
        current.depths.push_back(depth);
    }

    /// An iteration has ended.
    /// @param window of the block that measures it at the baseline; 0 where none does
    void end_iteration(std::uint32_t window = 0) {
        for (auto& [track, launches] : current_) {
            if (launches.kernels.empty()) continue;
            Stream& stream = streams_[track];
            const std::uint64_t hash = note(stream, launches);
            if (window != 0) awaited_[window].push_back({track, hash, std::exchange(launches, {})});
            launches = {};
        }
        while (awaited_.size() > most_awaited) awaited_.erase(awaited_.begin());
    }

    /// A block's launches as they ran on the GPU, at the clocks that the plan will be compared
    /// with, in order.
    void ran(std::span<const KernelInterval> intervals, std::size_t iterations,
             std::uint32_t window = 0) {
        std::map<TrackId, std::vector<KernelInterval>> by_track;
        for (const KernelInterval& interval : intervals)
            by_track[interval.track].push_back(interval);
        const auto awaited = awaited_.find(window);
        for (auto& [track, runs] : by_track) {
            std::stable_sort(runs.begin(), runs.end(),
                             [](const auto& a, const auto& b) { return a.start < b.start; });
            const auto stream = streams_.find(track);
            if (stream == streams_.end()) continue;
            note_gaps(stream->second, runs, iterations);
            if (awaited != awaited_.end()) note_times(stream->second, track, awaited->second, runs);
        }
        if (awaited != awaited_.end()) awaited_.erase(awaited);
    }

    /// The most frequent sequence of the stream with most time, `time_of` being a launch's; nothing
    /// until two iterations were alike.
    template <class TimeOf>
    [[nodiscard]] std::optional<RecordedSequence> typical(TimeOf time_of) const {
        const Sequence* longest = nullptr;
        Seconds most{-1};
        for (const auto& [track, stream] : streams_) {
            const Sequence& sequence = most_frequent(stream);
            Seconds time{0};
            for (const KernelId kernel : sequence.launches.kernels) time += time_of(kernel);
            if (sequence.iterations < 2 || time <= most) continue;
            longest = &sequence;
            most = time;
        }
        if (longest == nullptr) return std::nullopt;
        RecordedSequence result{longest->launches.kernels, longest->gaps, longest->launches.depths,
                                longest->iterations};
        for (Seconds& gap : result.gaps) gap /= static_cast<double>(longest->measured);
        return result;
    }

    /// The sample of the stream with most time. Sequences that came three times or more stand for
    /// as many iterations as they came in, the others together for the rest.
    template <class TimeOf>
    [[nodiscard]] std::vector<RecordedIteration> sample(TimeOf time_of) const {
        const Stream* longest = nullptr;
        Seconds most{-1};
        for (const auto& [track, stream] : streams_) {
            Seconds time{0};
            for (const Sequence& sequence : stream.sequences)
                for (const KernelId kernel : sequence.launches.kernels)
                    time += time_of(kernel) * static_cast<double>(sequence.iterations);
            if (time <= most) continue;
            longest = &stream;
            most = time;
        }
        return longest == nullptr ? std::vector<RecordedIteration>{} : sample_of(*longest);
    }

private:
    /// Sequences of a stream that are kept; the rarest makes room for a new one.
    static constexpr std::size_t kept = 8;
    static constexpr std::size_t most_awaited = 16;       ///< blocks
    static constexpr std::size_t most_timed = 1U << 16U;  ///< launches of the sample
    static constexpr std::size_t most_hashes = 1U << 16U;
    static constexpr std::uint64_t frequent = 3;  ///< iterations that make a sequence a kind

    struct Launches {
        std::vector<KernelId> kernels;
        std::vector<std::uint32_t> depths;

        friend bool operator==(const Launches&, const Launches&) = default;
    };
    struct Sequence {
        std::uint64_t hash = 0;
        std::uint64_t iterations = 0;
        Launches launches;
        std::vector<Seconds> gaps;  // sums over `measured` iterations
        std::uint64_t measured = 0;
    };
    struct Timed {
        std::uint64_t hash = 0;
        Launches launches;
        std::vector<Seconds> times;
        std::vector<Seconds> gaps;
    };
    struct Stream {
        std::vector<Sequence> sequences;
        std::map<std::uint64_t, std::uint64_t> counts;  // iterations by hash
        std::uint64_t iterations = 0;
        std::deque<Timed> timed;
        std::size_t timed_launches = 0;
    };
    /// An iteration whose intervals have not come yet.
    struct Awaited {
        TrackId track;
        std::uint64_t hash = 0;
        Launches launches;
    };

    static std::uint64_t hash_of(const std::vector<KernelId>& launches) {
        std::uint64_t hash = 0xcbf29ce484222325;
        for (const KernelId kernel : launches) hash = (hash ^ kernel.value) * 0x100000001b3;
        return hash;
    }

    static std::uint64_t note(Stream& stream, const Launches& launches) {
        const std::uint64_t hash = hash_of(launches.kernels);
        ++stream.iterations;
        if (stream.counts.size() < most_hashes || stream.counts.contains(hash))
            ++stream.counts[hash];
        std::vector<Sequence>& sequences = stream.sequences;
        for (Sequence& known : sequences) {
            if (known.hash != hash || known.launches != launches) continue;
            ++known.iterations;
            return hash;
        }
        if (sequences.size() == kept)
            sequences.erase(std::min_element(
                sequences.begin(), sequences.end(),
                [](const auto& a, const auto& b) { return a.iterations < b.iterations; }));
        sequences.push_back({hash, 1, launches, {}, 0});
        return hash;
    }

    static const Sequence& most_frequent(const Stream& stream) {
        return *std::max_element(
            stream.sequences.begin(), stream.sequences.end(),
            [](const auto& a, const auto& b) { return a.iterations < b.iterations; });
    }

    /// Only where every iteration ran as the most frequent one.
    static void note_gaps(Stream& stream, const std::vector<KernelInterval>& runs,
                          std::size_t iterations) {
        for (Sequence& known : stream.sequences) {
            const std::vector<KernelId>& launches = known.launches.kernels;
            const std::size_t length = launches.size();
            if (runs.size() != iterations * length) continue;
            bool same = true;
            for (std::size_t i = 0; i < runs.size() && same; ++i)
                same = runs[i].kernel == launches[i % length];
            if (!same) continue;
            known.gaps.resize(length, Seconds{0});
            known.measured += iterations;
            // What precedes the first launch is not known: it is given the others' mean.
            for (std::size_t i = 0; i < runs.size(); ++i) {
                const std::size_t before = i == 0 ? std::min(length, runs.size() - 1) : i;
                if (before == 0) break;
                const Duration gap = runs[before].start - runs[before - 1].end;
                known.gaps[i % length] += std::max(Seconds{0}, Seconds{gap});
            }
            return;
        }
    }

    /// Gives a block's iterations on one track their times: the n-th scope of a kernel that was
    /// entered is the n-th that ended. Nothing where some are missing.
    static void note_times(Stream& stream, TrackId track, std::span<const Awaited> iterations,
                           const std::vector<KernelInterval>& runs) {
        std::vector<Timed> timed;
        std::map<KernelId, std::deque<std::pair<std::size_t, std::size_t>>> open;
        for (const Awaited& each : iterations) {
            if (each.track != track) continue;
            const std::size_t length = each.launches.kernels.size();
            for (std::size_t i = 0; i < length; ++i)
                open[each.launches.kernels[i]].emplace_back(timed.size(), i);
            timed.push_back({each.hash, each.launches, std::vector<Seconds>(length, Seconds{0}),
                             std::vector<Seconds>(length, Seconds{0})});
        }
        std::optional<TimePoint> busy_until;
        for (const KernelInterval& run : runs) {
            auto& waiting = open[run.kernel];
            if (waiting.empty()) return;
            const auto [iteration, launch] = waiting.front();
            Seconds& time = timed[iteration].times[launch];
            if (busy_until && time == Seconds{0})
                timed[iteration].gaps[launch] =
                    std::max(Seconds{0}, Seconds{run.start - *busy_until});
            time += run.end - run.start;
            busy_until = std::max(busy_until.value_or(run.end), run.end);
            if (run.ends_scope) waiting.pop_front();
        }
        for (const auto& [kernel, waiting] : open)
            if (!waiting.empty()) return;
        for (Timed& each : timed) {
            stream.timed_launches += each.times.size();
            stream.timed.push_back(std::move(each));
        }
        if (stream.timed_launches > most_timed) limit(stream);
    }

    static void limit(Stream& stream) {
        detail::IterationSample sample;
        for (const Timed& each : stream.timed) sample.add(each.hash, each.times.size());
        sample.limit(most_timed);
        std::deque<Timed> sampled;
        stream.timed_launches = 0;
        for (const detail::SampledIteration& each : sample.iterations()) {
            stream.timed_launches += each.launches;
            sampled.push_back(std::move(stream.timed[each.place]));
        }
        stream.timed = std::move(sampled);
    }

    static std::uint64_t count_of(const Stream& stream, std::uint64_t hash) {
        const auto found = stream.counts.find(hash);
        return found == stream.counts.end() ? 1 : found->second;
    }

    static std::vector<RecordedIteration> sample_of(const Stream& stream) {
        std::map<std::uint64_t, std::uint64_t> timed;  // iterations of each kind
        auto rest = static_cast<double>(stream.iterations);
        double of_rest = 0;
        for (const Timed& each : stream.timed) {
            const std::uint64_t count = count_of(stream, each.hash);
            if (count < frequent)
                ++of_rest;
            else if (timed[each.hash]++ == 0)
                rest -= static_cast<double>(count);
        }
        std::vector<RecordedIteration> sample;
        for (const Sequence& sequence : stream.sequences) {
            if (sequence.iterations < frequent || timed.contains(sequence.hash)) continue;
            sample.push_back({static_cast<double>(sequence.iterations),
                              sequence.launches.kernels,
                              sequence.launches.depths,
                              {},
                              {}});
            rest -= sample.back().count;
        }
        for (const Timed& each : stream.timed) {
            const auto kind = timed.find(each.hash);
            const double count = kind == timed.end()
                                     ? std::max(rest, 1.0) / of_rest
                                     : static_cast<double>(count_of(stream, each.hash)) /
                                           static_cast<double>(kind->second);
            sample.push_back(
                {count, each.launches.kernels, each.launches.depths, each.times, each.gaps});
        }
        return sample;
    }

    std::map<TrackId, Launches> current_;
    std::map<TrackId, Stream> streams_;
    std::map<std::uint32_t, std::vector<Awaited>> awaited_;  // by window
};

}  // namespace kdvfs::inline v0_3::tune
