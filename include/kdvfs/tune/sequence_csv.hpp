// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/profile_csv.hpp>
#include <kdvfs/tune/switch_model.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <istream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// Files about sequences: the launches of an iteration in order (`kernel[,variant]`, a line each),
/// and how long clock switches take
/// (`from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s[,transition_s]`).
namespace kdvfs::tune {
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

/// The launches of an iteration, in order. @throws Error (invalid_input) naming file and line
inline std::vector<KernelKey> read_sequence(std::istream& input, const std::string& name) {
    kdvfs::detail::CsvReader reader{input, name};
    detail::NamedColumns columns{reader, {"kernel"}};
    std::vector<KernelKey> launches;
    while (columns.next()) {
        launches.push_back(
            detail::parse_key(columns.get("kernel"), columns.get("variant"), reader));
        if (!is_kernel_name(launches.back().name)) reader.fail("this is no kernel name");
    }
    if (launches.empty()) reader.fail("there are no launches");
    return launches;
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

}  // namespace kdvfs::tune
