// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/tune/csv_fields.hpp>
#include <kdvfs/detail/tune/iteration_sample.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// Iterations of a program as they were recorded at the baseline clocks: a sample of all, each with
/// the number of iterations that it stands for.
struct LaunchTrace {
    struct Launch {
        std::uint32_t kernel = 0;  ///< index into `kernels`
        std::uint32_t depth = 0;   ///< scopes of the trace around it
        Seconds time{0};           ///< 0 where it was not measured
        Seconds gap{0};            ///< before it, in which the stream ran none

        friend bool operator==(const Launch&, const Launch&) = default;
    };
    struct Iteration {
        double count = 1;
        std::vector<Launch> launches;

        friend bool operator==(const Iteration&, const Iteration&) = default;
    };

    std::vector<KernelKey> kernels;
    std::vector<Iteration> iterations;

    [[nodiscard]] std::size_t launches() const {
        std::size_t sum = 0;
        for (const Iteration& iteration : iterations) sum += iteration.launches.size();
        return sum;
    }

    /// Drops iterations until so many launches are left, as `IterationSample` does; the rest stands
    /// for as many iterations of each kind as before.
    void limit(std::size_t most_launches) {
        iterations =
            limited_to(most_launches, std::move(iterations), &Launch::kernel, &Iteration::count);
    }

    /// Adds the iterations of another run.
    void append(const LaunchTrace& other) {
        std::map<KernelKey, std::uint32_t> index;
        for (std::uint32_t k = 0; k < kernels.size(); ++k) index.emplace(kernels[k], k);
        std::vector<std::uint32_t> numbers;
        for (const KernelKey& key : other.kernels) {
            const auto [at, is_new] =
                index.try_emplace(key, static_cast<std::uint32_t>(kernels.size()));
            if (is_new) kernels.push_back(key);
            numbers.push_back(at->second);
        }
        for (Iteration iteration : other.iterations) {
            for (Launch& launch : iteration.launches) launch.kernel = numbers[launch.kernel];
            iterations.push_back(std::move(iteration));
        }
    }
};

/// Where a sweep leaves the iterations that it recorded: beside the profile that it writes.
inline std::filesystem::path trace_path(std::filesystem::path profile) {
    return profile.replace_extension(".iterations.csv");
}

/// Files of recorded iterations: `iteration,count,kernel,variant,depth,time_s,gap_s`, a launch a
/// line in order; `time_s` is 0 where the launch was not measured.
/// @throws Error (io)
inline void write_trace(const std::filesystem::path& path, const LaunchTrace& trace) {
    std::string text = "iteration,count,kernel,variant,depth,time_s,gap_s\n";
    std::vector<std::string> keys;
    for (const KernelKey& key : trace.kernels)
        keys.push_back(kdvfs::detail::csv_field(key.name) + ',' +
                       std::to_string(key.variant.index));
    for (std::size_t i = 0; i < trace.iterations.size(); ++i) {
        const std::string begin =
            std::to_string(i) + ',' + kdvfs::detail::to_text(trace.iterations[i].count) + ',';
        for (const LaunchTrace::Launch& launch : trace.iterations[i].launches)
            text += begin + keys[launch.kernel] + ',' + std::to_string(launch.depth) + ',' +
                    kdvfs::detail::to_text(launch.time.count()) + ',' +
                    kdvfs::detail::to_text(launch.gap.count()) + '\n';
    }
    kdvfs::detail::write_file_atomically(path, text);
}

/// @throws Error (invalid_input) naming file and line, (io)
inline LaunchTrace read_trace(const std::filesystem::path& path) {
    std::ifstream input = open_input(path);
    kdvfs::detail::CsvReader reader{input, path.string()};
    NamedColumns columns{reader, {"iteration", "count", "kernel", "time_s"}};
    LaunchTrace trace;
    std::map<KernelKey, std::uint32_t> index;
    std::string current;
    const auto time_of = [&](const char* column) {
        const std::string text = columns.get(column);
        const double seconds = text.empty() ? 0 : parse_field<double>(text, column, reader);
        if (!(seconds >= 0 && seconds <= longest_launch.count()))
            reader.fail(std::string{column} + " is out of range");
        return Seconds{seconds};
    };
    while (columns.next()) {
        KernelKey key;
        parse_key(columns.get("kernel"), columns.get("variant"), reader, key);
        if (!is_kernel_name(key.name)) reader.fail("this is no kernel name");
        if (trace.iterations.empty() || columns.get("iteration") != current) {
            current = columns.get("iteration");
            trace.iterations.emplace_back().count =
                parse_field<double>(columns.get("count"), "count", reader);
            if (!(trace.iterations.back().count > 0 && trace.iterations.back().count < 1e15))
                reader.fail("the count is out of range");
        }
        const auto [at, is_new] =
            index.try_emplace(key, static_cast<std::uint32_t>(trace.kernels.size()));
        if (is_new) trace.kernels.push_back(key);
        auto& launches = trace.iterations.back().launches;
        const std::string depth = columns.get("depth");
        launches.push_back({at->second,
                            depth.empty() ? 0 : parse_field<std::uint32_t>(depth, "depth", reader),
                            time_of("time_s"), time_of("gap_s")});
    }
    return trace;
}

}  // namespace kdvfs::inline v0_3::tune::detail

namespace kdvfs::inline v0_3::tune {
using detail::LaunchTrace;
}  // namespace kdvfs::inline v0_3::tune
