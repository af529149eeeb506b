// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::tune {

/// The launches of an iteration on the stream that matters most, in enqueue order.
struct RecordedSequence {
    std::vector<KernelId> launches;
    std::vector<Seconds> gaps;  ///< before each launch, in which the stream ran none; or empty
    std::vector<std::uint32_t> depths;  ///< how many scopes of the sequence are around each
    std::uint64_t iterations = 0;       ///< that were exactly so
};

/// Finds out which kernels a program launches in an iteration. Of the sequences that iterations of
/// a stream had, it keeps the most frequent ones; programs are no tapes. Not thread-safe.
class SequenceRecorder {
public:
    /// A scope was entered, inside so many others.
    void launched(TrackId track, KernelId kernel, std::uint32_t depth = 0) {
        Launches& current = current_[track];
        current.kernels.push_back(kernel);
        current.depths.push_back(depth);
    }

    /// An iteration has ended.
    void end_iteration() {
        for (auto& [track, launches] : current_) {
            if (launches.kernels.empty()) continue;
            note(streams_[track], launches);
            launches = {};
        }
    }

    /// An iteration's launches as they ran on the GPU, at the clocks that the plan will be compared
    /// with, in order: gaps between them are averaged.
    void ran(std::span<const KernelInterval> intervals, std::size_t iterations) {
        std::map<TrackId, std::vector<KernelInterval>> by_track;
        for (const KernelInterval& interval : intervals)
            by_track[interval.track].push_back(interval);
        for (auto& [track, runs] : by_track) {
            std::stable_sort(runs.begin(), runs.end(),
                             [](const auto& a, const auto& b) { return a.start < b.start; });
            if (const auto stream = streams_.find(track); stream != streams_.end())
                note_gaps(stream->second, runs, iterations);
        }
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

private:
    /// Sequences of a stream that are told apart; the rarest makes room for a new one.
    static constexpr std::size_t kept = 8;

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
    using Stream = std::vector<Sequence>;

    static std::uint64_t hash_of(const std::vector<KernelId>& launches) {
        std::uint64_t hash = 0xcbf29ce484222325;
        for (const KernelId kernel : launches) hash = (hash ^ kernel.value) * 0x100000001b3;
        return hash;
    }

    static void note(Stream& stream, const Launches& launches) {
        const std::uint64_t hash = hash_of(launches.kernels);
        for (Sequence& known : stream) {
            if (known.hash != hash || known.launches != launches) continue;
            ++known.iterations;
            return;
        }
        if (stream.size() == kept)
            stream.erase(std::min_element(
                stream.begin(), stream.end(),
                [](const auto& a, const auto& b) { return a.iterations < b.iterations; }));
        stream.push_back({hash, 1, launches, {}, 0});
    }

    static const Sequence& most_frequent(const Stream& stream) {
        return *std::max_element(stream.begin(), stream.end(), [](const auto& a, const auto& b) {
            return a.iterations < b.iterations;
        });
    }

    /// Only where every iteration ran as the most frequent one.
    static void note_gaps(Stream& stream, const std::vector<KernelInterval>& runs,
                          std::size_t iterations) {
        for (Sequence& known : stream) {
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

    std::map<TrackId, Launches> current_;
    std::map<TrackId, Stream> streams_;
};

}  // namespace kdvfs::tune
