// SPDX-License-Identifier: MIT
//
// averaging_limit [RESULTS]
// How well a power limit that averages foretells the clocks of GEMMs at it: recordings of one
// kernel after the other on H100 and H200 (RESULTS/*/mix_runs.csv and mix_power.csv, by
// bench/nvidia_round). Each recording is kept out in turn: the law is fitted to the others,
// kernels' own watts and clocks are those of the kept-out recording's runs of 5 s, and all its
// shorter runs of GEMMs are foretold.
#include <bench/boards/averaging_limit.hpp>
#include <kdvfs/detail/io/csv.hpp>

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

using namespace power_limit;

struct Run {
    std::string kernel;
    double begin = 0;
    double end = 0;
    double mhz = 0;  ///< mean
    bool own = false;

    [[nodiscard]] double seconds() const { return end - begin; }
};
struct Recording {
    std::string name;
    std::vector<Run> runs;
    std::map<std::string, Kernel> kernels;
    double limit_watts = 0;
};

constexpr double top_mhz = 1980;
constexpr std::array<const char*, 2> judged{"gemm_8192", "gemm_2048"};

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
    Recording recording{folder.filename().string(), {}, {}, 0};
    for (const auto& row : rows(folder / "mix_runs.csv", 6)) {
        Run run{row[0], 1e-9 * number(row[1]), 1e-9 * number(row[2]), 0, row[5] == "1"};
        run.mhz = 1e-6 * number(row[4]) / run.seconds();
        recording.runs.push_back(run);
    }
    const auto power = rows(folder / "mix_power.csv", 2);
    for (const Run& run : recording.runs) {
        if (!run.own) continue;
        double sum = 0;
        double count = 0;
        constexpr double settled_s = 0.3;
        for (const auto& sample : power) {
            const double at = 1e-9 * number(sample[0]);
            if (at < run.begin + settled_s || at > run.end) continue;
            sum += number(sample[1]);
            ++count;
        }
        recording.kernels[run.kernel] = {sum / count, run.mhz, run.mhz < 0.99 * top_mhz};
        recording.limit_watts = std::max(recording.limit_watts, sum / count);
    }
    return recording;
}

/// Errors of the foretold mean clocks of one kernel's runs, in percent; ascending.
std::map<std::string, std::vector<double>> errors(const Recording& recording, const Law& law) {
    std::map<std::string, std::vector<double>> found;
    Board board{law, recording.limit_watts, top_mhz};
    for (const Run& run : recording.runs) {
        const double mhz = board.run(recording.kernels.at(run.kernel), run.seconds());
        if (!run.own) found[run.kernel].push_back(100 * std::abs(mhz / run.mhz - 1));
    }
    for (auto& [kernel, all] : found) std::sort(all.begin(), all.end());
    return found;
}

double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

double cost(const std::vector<const Recording*>& recordings, const Law& law) {
    double sum = 0;
    for (const Recording* recording : recordings) {
        const auto found = errors(*recording, law);
        for (const char* kernel : judged) sum += mean(found.at(kernel));
    }
    return sum;
}

/// The law with the least mean errors: one parameter after the other, in ever smaller steps.
Law fitted(const std::vector<const Recording*>& recordings) {
    Law law;
    double best = cost(recordings, law);
    const std::array<double Law::*, 2> parameters{&Law::rate, &Law::exponent};
    for (double step = 1.4; step > 1.02;) {
        bool moved = false;
        for (const auto parameter : parameters)
            for (const double factor : {step, 1 / step}) {
                Law next = law;
                next.*parameter *= factor;
                const double its = cost(recordings, next);
                if (its >= best) continue;
                best = its;
                law = next;
                moved = true;
            }
        if (!moved) step = std::sqrt(step);
    }
    return law;
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
    for (const char* kernel : judged) {
        const auto& all = found.at(kernel);
        std::printf("  %s: mean error %.2f %%, 9 of 10 within %.1f %%", kernel, mean(all),
                    all[all.size() * 9 / 10]);
        for (const double error : all) within += error <= 3 ? 1 : 0;
        count += all.size();
    }
    std::printf("  %zu of %zu runs within 3 %%; rate %.1f per second, watts as clock^%.1f\n",
                within, count, law.rate, law.exponent);
}

}  // namespace

int main(int argc, char** argv) try {
    const std::filesystem::path folder = argc > 1 ? argv[1] : "bench/results";
    std::vector<Recording> recordings;
    for (const char* name : {"h100", "h100_again", "h200", "h200_again"})
        recordings.push_back(read(folder / name));
    for (const Recording& out : recordings) judge(recordings, out);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "averaging_limit: %s\n", error.what());
    return 1;
}
