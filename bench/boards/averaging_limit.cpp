// SPDX-License-Identifier: MIT
//
// averaging_limit [RESULTS]
// How well a power limit that averages foretells the clocks of GEMMs at it: recordings of one
// kernel after the other on H100 and H200 (RESULTS/*/mix_runs.csv and mix_power.csv, by
// bench/nvidia_round). Each recording is kept out in turn: the law is fitted to the others,
// kernels' own watts and clocks are those of the kept-out recording's runs of 5 s, and all its
// shorter runs of GEMMs are foretold.
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/tune/limited_plan.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using kdvfs::Seconds;
using kdvfs::device::PowerLimiter;
using kdvfs::tune::LimitedRun;
using kdvfs::tune::PowerByClock;

/// A kernel by itself, for seconds.
struct Kernel {
    std::string name;
    double watts = 0;
    double mhz = 0;        ///< the clock that holds
    bool limited = false;  ///< by the power limit
};
struct Recording {
    std::string name;
    std::vector<LimitedRun> runs;
    std::vector<bool> own;  ///< by run: one of 5 s, which the kernel's own watts and clock are of
    std::vector<Kernel> kernels;
    double limit_watts = 0;

    [[nodiscard]] bool judges(std::size_t run) const {
        const std::string& kernel = kernels[runs[run].kernel].name;
        return !own[run] && std::find(judged.begin(), judged.end(), kernel) != judged.end();
    }
    static constexpr std::array<const char*, 2> judged{"gemm_8192", "gemm_2048"};
};

/// The law of the limiter, and how a kernel's watts follow the clock near the one that holds.
struct Law {
    PowerLimiter limiter;
    double exponent = 2.5;
};

constexpr double top_mhz = 1980;

double number(const std::string& text) { return kdvfs::io::parse_number<double>(text).value(); }

/// The rows of a file behind its comment and header.
std::vector<std::vector<std::string>> rows(const std::filesystem::path& file, std::size_t width) {
    std::ifstream input{file};
    if (!input) throw std::runtime_error{"cannot read " + file.string()};
    std::string line;
    std::getline(input, line);
    kdvfs::io::CsvReader reader{input, file.string()};
    std::vector<std::vector<std::string>> found;
    for (std::vector<std::string> fields; reader.next(fields);)
        if (fields.size() == width) found.push_back(fields);
    found.erase(found.begin());
    return found;
}

Recording read(const std::filesystem::path& folder) {
    Recording recording{folder.filename().string(), {}, {}, {}, 0};
    const auto power = rows(folder / "mix_power.csv", 2);
    double ended = 0;
    for (const auto& row : rows(folder / "mix_runs.csv", 6)) {
        const double begin = 1e-9 * number(row[1]);
        const double end = 1e-9 * number(row[2]);
        const double mhz = 1e-6 * number(row[4]) / (end - begin);
        std::size_t k = 0;
        while (k < recording.kernels.size() && recording.kernels[k].name != row[0]) ++k;
        if (k == recording.kernels.size()) recording.kernels.push_back({row[0]});
        recording.runs.push_back({k, Seconds{begin - ended}, Seconds{end - begin}, mhz});
        recording.own.push_back(row[5] == "1");
        ended = end;
        if (!recording.own.back()) continue;
        double sum = 0;
        double count = 0;
        constexpr double settled_s = 0.3;
        for (const auto& sample : power) {
            const double at = 1e-9 * number(sample[0]);
            if (at < begin + settled_s || at > end) continue;
            sum += number(sample[1]);
            ++count;
        }
        recording.kernels[k] = {row[0], sum / count, mhz, mhz < 0.99 * top_mhz};
        recording.limit_watts = std::max(recording.limit_watts, sum / count);
    }
    return recording;
}

std::vector<PowerByClock> powers(const Recording& recording, double exponent) {
    std::vector<PowerByClock> powers;
    for (const Kernel& kernel : recording.kernels)
        powers.emplace_back([kernel, exponent](double mhz) {
            const double relative = kernel.limited ? std::pow(mhz / kernel.mhz, exponent) : 1;
            return kdvfs::Watts{kernel.watts * relative};
        });
    return powers;
}

kdvfs::Watts idle(double) { return {120}; }  // H100 SXM at its highest clock (EnergAIzer)

PowerLimiter limiter_of(const Recording& recording, double rate) {
    return {{recording.limit_watts}, rate, 0, top_mhz};
}

/// Errors of the foretold mean clocks of one kernel's runs, in percent; ascending.
std::map<std::string, std::vector<double>> errors(const Recording& recording, const Law& law) {
    std::map<std::string, std::vector<double>> found;
    const auto clocks =
        kdvfs::tune::clocks_at_limit(powers(recording, law.exponent), idle, recording.runs,
                                     limiter_of(recording, law.limiter.rate));
    for (std::size_t i = 0; i < clocks.size(); ++i)
        if (recording.judges(i))
            found[recording.kernels[recording.runs[i].kernel].name].push_back(
                100 * std::abs(clocks[i] / recording.runs[i].mhz - 1));
    for (auto& [kernel, all] : found) std::sort(all.begin(), all.end());
    return found;
}

double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

/// The law with the least mean errors: the rate of each recording by itself, their geometric mean,
/// at the best of some exponents.
Law fitted(const std::vector<const Recording*>& recordings) {
    Law best;
    double least = 1e9;
    for (const double exponent : {2.0, 2.25, 2.5, 2.75, 3.0, 3.25}) {
        double log_rate = 0;
        for (const Recording* recording : recordings) {
            const LimitedRun* first = recording->runs.data();
            const PowerLimiter found = kdvfs::tune::fit_limiter(
                powers(*recording, exponent), idle, recording->runs, limiter_of(*recording, 1),
                [&](const LimitedRun& run) {
                    return recording->judges(static_cast<std::size_t>(&run - first));
                });
            log_rate += std::log(found.rate) / static_cast<double>(recordings.size());
        }
        const Law law{{{}, std::exp(log_rate), 0, top_mhz}, exponent};
        double cost = 0;
        for (const Recording* recording : recordings)
            for (const auto& [kernel, all] : errors(*recording, law)) cost += mean(all);
        if (cost < least) least = cost, best = law;
    }
    return best;
}

void judge(const std::vector<Recording>& recordings, const Recording& out) {
    std::vector<const Recording*> others;
    for (const Recording& recording : recordings)
        if (&recording != &out) others.push_back(&recording);
    const Law law = fitted(others);
    const auto found = errors(out, law);
    std::printf("%-12s", out.name.c_str());
    std::size_t within = 0;
    std::size_t count = 0;
    for (const char* kernel : Recording::judged) {
        const auto& all = found.at(kernel);
        std::printf("  %s: mean error %.2f %%, 9 of 10 within %.1f %%", kernel, mean(all),
                    all[all.size() * 9 / 10]);
        for (const double error : all) within += error <= 3 ? 1 : 0;
        count += all.size();
    }
    std::printf("  %zu of %zu runs within 3 %%; rate %.1f per second, watts as clock^%.1f\n",
                within, count, law.limiter.rate, law.exponent);
}

}  // namespace

int main(int argc, char** argv) try {
    const std::filesystem::path folder = argc > 1 ? argv[1] : "bench/results";
    std::vector<Recording> recordings;
    for (const char* name : {"h100", "h100_again", "h100_third", "h200", "h200_again"})
        recordings.push_back(read(folder / name));
    for (const Recording& out : recordings) judge(recordings, out);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "averaging_limit: %s\n", error.what());
    return 1;
}
