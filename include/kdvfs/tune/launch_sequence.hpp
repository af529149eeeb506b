// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/profile_csv.hpp>
#include <kdvfs/tune/switch_model.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <istream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
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

// Files about sequences: the launches of an iteration in order
// (`kernel[,variant][,gap_s][,depth]`, a line each; the gap is the time before the launch in which
// the stream ran none, the depth says how many of the sequence's scopes are around it),
// and how long clock switches take
// (`from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s[,transition_s]`).

namespace detail {

/// The columns that a header names; missing ones that are needed are an error.
class NamedColumns {
public:
    NamedColumns(kdvfs::detail::CsvReader& reader, std::initializer_list<const char*> needed)
        : reader_{reader} {
        if (!reader.next(header_)) reader.fail("the file is empty");
        kdvfs::detail::require_columns(header_, needed, reader);
    }
    bool next() {
        if (!reader_.next(fields_)) return false;
        kdvfs::detail::require_width(fields_, header_.size(), reader_);
        return true;
    }
    [[nodiscard]] bool has(const char* name) const {
        return std::find(header_.begin(), header_.end(), name) != header_.end();
    }
    [[nodiscard]] std::string get(const char* name) const {
        const auto at = std::find(header_.begin(), header_.end(), name);
        return at == header_.end() ? "" : fields_[static_cast<std::size_t>(at - header_.begin())];
    }

private:
    kdvfs::detail::CsvReader& reader_;
    std::vector<std::string> header_;
    std::vector<std::string> fields_;
};

inline std::ifstream open_input(const std::filesystem::path& path) {
    std::ifstream input{path, std::ios::binary};
    if (!input) kdvfs::detail::throw_file_error("open a file", path, errno);
    return input;
}

inline Seconds parse_delay(const NamedColumns& columns, const char* name,
                           const kdvfs::detail::CsvReader& reader) {
    const std::string text = columns.get(name);
    if (text.empty()) return Seconds{0};
    const double seconds = parse_field<double>(text, name, reader);
    if (!(seconds >= 0 && seconds <= 100))
        reader.fail(std::string{name} + " is no time from 0 to 100 s");
    return Seconds{seconds};
}

}  // namespace detail

/// @throws Error (invalid_input) naming file and line
inline LaunchSequence read_launches(std::istream& input, const std::string& name) {
    kdvfs::detail::CsvReader reader{input, name};
    detail::NamedColumns columns{reader, {"kernel"}};
    LaunchSequence sequence;
    while (columns.next()) {
        detail::parse_key(columns.get("kernel"), columns.get("variant"), reader,
                          sequence.launches.emplace_back());
        if (!is_kernel_name(sequence.launches.back().name)) reader.fail("this is no kernel name");
        if (columns.has("gap_s"))
            sequence.gaps.push_back(detail::parse_delay(columns, "gap_s", reader));
        if (!columns.has("depth")) continue;
        const auto depth =
            detail::parse_field<std::uint32_t>(columns.get("depth"), "depth", reader);
        const std::uint32_t before = sequence.depths.empty() ? 0 : sequence.depths.back() + 1;
        if (depth > before) reader.fail("it is inside a scope that is not there");
        sequence.depths.push_back(depth);
    }
    if (sequence.launches.empty()) reader.fail("there are no launches");
    return sequence;
}
inline LaunchSequence read_launches(const std::filesystem::path& path) {
    std::ifstream input = detail::open_input(path);
    return read_launches(input, path.string());
}

/// @throws Error (io)
inline void write_launches(const std::filesystem::path& path, const LaunchSequence& sequence) {
    const bool gaps = !sequence.gaps.empty();
    const bool nested = std::any_of(sequence.depths.begin(), sequence.depths.end(),
                                    [](std::uint32_t depth) { return depth > 0; });
    std::string text = "kernel,variant";
    text += gaps ? ",gap_s" : "";
    text += nested ? ",depth\n" : "\n";
    for (std::size_t i = 0; i < sequence.launches.size(); ++i) {
        const KernelKey& key = sequence.launches[i];
        text += kdvfs::detail::csv_field(key.name) + ',' + std::to_string(key.variant.index);
        if (gaps) text += ',' + kdvfs::detail::to_text(sequence.gaps[i].count());
        if (nested) text += ',' + std::to_string(sequence.depths[i]);
        text += '\n';
    }
    kdvfs::detail::write_file_atomically(path, text);
}

/// Where a sweep leaves the launches of an iteration: beside the profile that it writes.
inline std::filesystem::path sequence_path(std::filesystem::path profile) {
    return profile.replace_extension(".sequence.csv");
}

/// The launches of an iteration, in order. @throws Error (invalid_input) naming file and line
inline std::vector<KernelKey> read_sequence(std::istream& input, const std::string& name) {
    return read_launches(input, name).launches;
}
inline std::vector<KernelKey> read_sequence(const std::filesystem::path& path) {
    std::ifstream input = detail::open_input(path);
    return read_sequence(input, path.string());
}

/// Measured switching delays. Pairs that the file does not have get the longest that it has.
/// @throws Error (invalid_input) naming file and line
inline SwitchCosts read_switch_costs(std::istream& input, const std::string& name) {
    using Pair = std::pair<ClockPoint, ClockPoint>;
    kdvfs::detail::CsvReader reader{input, name};
    detail::NamedColumns columns{
        reader, {"from_core_mhz", "from_mem_mhz", "to_core_mhz", "to_mem_mhz", "latency_s"}};
    auto known = std::make_shared<std::map<Pair, SwitchDelay>>();
    SwitchDelay longest;
    const auto clock = [&](const char* column) {
        return detail::parse_clock_field(columns.get(column), column, reader);
    };
    while (columns.next()) {
        const Pair pair{{clock("from_core_mhz"), clock("from_mem_mhz")},
                        {clock("to_core_mhz"), clock("to_mem_mhz")}};
        const SwitchDelay delay{detail::parse_delay(columns, "latency_s", reader),
                                detail::parse_delay(columns, "transition_s", reader)};
        if (delay.transition > delay.latency) reader.fail("the transition outlasts the latency");
        if (!known->try_emplace(pair, delay).second) reader.fail("this pair is there twice");
        if (delay.latency >= longest.latency) longest = delay;
    }
    if (known->empty()) reader.fail("there are no switches");
    SwitchCosts costs;
    costs.delay = [known, longest](ClockPoint from, ClockPoint to) {
        const auto found = known->find({from, to});
        return found == known->end() ? longest : found->second;
    };
    return costs;
}
inline SwitchCosts read_switch_costs(const std::filesystem::path& path) {
    std::ifstream input = detail::open_input(path);
    return read_switch_costs(input, path.string());
}

/// Where the switching latencies of a GPU are kept once they have been measured: the user's folder
/// (`$XDG_DATA_HOME/kdvfs`, or `~/.local/share/kdvfs`), then the machine's.
inline std::vector<std::filesystem::path> switch_latency_paths(const std::string& gpu) {
    std::string file = gpu;
    for (char& c : file) {
        const bool kept =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
        if (!kept) c = '_';
    }
    const std::filesystem::path name = std::filesystem::path{"switch_latency"} / (file + ".csv");
    std::vector<std::filesystem::path> paths;
    const auto variable = [](const char* which) {
        return std::filesystem::path{kdvfs::detail::environment(which)};
    };
    if (const auto data = variable("XDG_DATA_HOME"); data.is_absolute())
        paths.push_back(data / "kdvfs" / name);
    else if (const auto home = variable("HOME"); home.is_absolute())
        paths.push_back(home / ".local/share/kdvfs" / name);
    paths.push_back(std::filesystem::path{"/var/lib/kdvfs"} / name);
    return paths;
}

/// The file of a GPU's switching latencies; nothing where none has been kept.
inline std::optional<std::filesystem::path> find_switch_latencies(const std::string& gpu) {
    for (const std::filesystem::path& path : switch_latency_paths(gpu)) {
        std::error_code unreadable;
        if (std::filesystem::is_regular_file(path, unreadable)) return path;
    }
    return std::nullopt;
}

}  // namespace kdvfs::inline v0_3::tune
