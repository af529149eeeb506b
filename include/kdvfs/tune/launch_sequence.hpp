// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/kept_files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
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

// Files about sequences: the launches of an iteration in order
// (`kernel[,variant][,gap_s][,depth]`, a line each; the gap is the time before the launch in which
// the stream ran none, the depth says how many of the sequence's scopes are around it),
// and how long clock switches take
// (`from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s[,transition_s]`).

namespace detail {

/// The columns that a header names; missing ones that are needed are an error.
class NamedColumns {
public:
    NamedColumns(io::CsvReader& reader, std::initializer_list<const char*> needed)
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
    io::CsvReader& reader_;
    std::vector<std::string> header_;
    std::vector<std::string> fields_;
};

inline std::ifstream open_input(const std::filesystem::path& path) {
    std::ifstream input{path, std::ios::binary};
    if (!input) kdvfs::detail::throw_file_error("open a file", path, errno);
    return input;
}

inline Seconds parse_delay(const NamedColumns& columns, const char* name,
                           const io::CsvReader& reader) {
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
    io::CsvReader reader{input, name};
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
    io::CsvReader reader{input, name};
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
    return io::kept_paths("switch_latency", gpu);
}

/// The file of a GPU's switching latencies; nothing where none has been kept.
inline std::optional<std::filesystem::path> find_switch_latencies(const std::string& gpu) {
    return io::find_kept(switch_latency_paths(gpu));
}

}  // namespace kdvfs::inline v0_3::tune
