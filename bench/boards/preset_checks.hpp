// SPDX-License-Identifier: MIT
#pragma once

#include <bench/boards/published_rows.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// Presets of simulated boards held against published points.
namespace board_fit {

/// Errors of one quantity, % of the measured value.
struct Errors {
    std::vector<double> pct;

    void add(double predicted, double measured) { pct.push_back(100 * (predicted / measured - 1)); }
    [[nodiscard]] double mean() const {
        double sum = 0;
        for (const double e : pct) sum += std::abs(e);
        return pct.empty() ? 0 : sum / static_cast<double>(pct.size());
    }
    [[nodiscard]] double rms() const {
        double sum = 0;
        for (const double e : pct) sum += e * e;
        return pct.empty() ? 0 : std::sqrt(sum / static_cast<double>(pct.size()));
    }
    [[nodiscard]] double worst() const {
        double most = 0;
        for (const double e : pct) most = std::max(most, std::abs(e));
        return most;
    }
};

/// Errors of watts, and of time and energy relative to the default.
struct PointErrors {
    Errors watts, time, energy;

    void add(const PointErrors& more) {
        const auto append = [](Errors& to, const Errors& from) {
            to.pct.insert(to.pct.end(), from.pct.begin(), from.pct.end());
        };
        append(watts, more.watts);
        append(time, more.time);
        append(energy, more.energy);
    }
};

/// Finds a minimum by steps along the parameters, halved eight times.
inline std::vector<double> minimise(const std::function<double(const std::vector<double>&)>& cost,
                                    std::vector<double> x, std::vector<double> steps) {
    double best = cost(x);
    for (int halving = 0; halving < 8; ++halving) {
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t k = 0; k < x.size(); ++k)
                for (const double sign : {1.0, -1.0}) {
                    std::vector<double> next = x;
                    next[k] += sign * steps[k];
                    const double value = cost(next);
                    if (value >= best - 1e-12) continue;
                    best = value;
                    x = next;
                    moved = true;
                }
        }
        for (double& step : steps) step /= 2;
    }
    return x;
}

inline kdvfs::ClockPoint core_clock(double mhz) {
    return {{static_cast<std::uint32_t>(mhz + 0.5)}, kdvfs::auto_clock};
}

/// A board without a limit, to draw what a kernel needs at a clock that was measured to hold.
inline kdvfs::simulated::Board unlimited(kdvfs::simulated::Board board) {
    board.power_cap = {1e9};
    return board;
}

/// BF16 GEMMs of 8192 cubed on MI355X boards: volts and the energy of matrix work follow from the
/// points of other boards.
class Mi355xGemm {
public:
    explicit Mi355xGemm(const std::vector<PublishedRow>& all) {
        for (const PublishedRow& row : all)
            if (row.board == "MI355X" && row.does("GEMM BF16") && !row.does("small") &&
                row.watts > 0)
                rows_.push_back(row);
    }

    /// Knee in MHz, relative volts at the top, pJ per FLOP.
    [[nodiscard]] std::vector<double> fit(const std::string& without) const {
        return minimise(
            [&](const std::vector<double>& x) {
                double sum = 0;
                for (const PublishedRow& row : rows_) {
                    if (gpu_of(row) == without) continue;
                    const double error = watts(x, row.core_mhz) / row.watts - 1;
                    sum += error * error;
                }
                return x[0] < 700 || x[0] > 1700 || x[1] < 1 ? 1e9 : sum;
            },
            {1200, 1.25, 0.6}, {100, 0.05, 0.05});
    }

    [[nodiscard]] PointErrors judge() const {
        PointErrors errors;
        std::vector<std::string> gpus;
        for (const PublishedRow& row : rows_) gpus.push_back(gpu_of(row));
        std::sort(gpus.begin(), gpus.end());
        gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
        for (const std::string& gpu : gpus) {
            const std::vector<double> x = fit(gpu);
            const auto [board, gemm] = model(x);
            const auto found = operate(board, gemm, {});
            for (const PublishedRow& row : rows_) {
                if (gpu_of(row) != gpu) continue;
                errors.watts.add(watts(x, row.core_mhz), row.watts);
                if (row.energy_rel <= 0 || row.time_rel <= 1) continue;
                const auto run = operate(unlimited(board), gemm, core_clock(row.core_mhz));
                const double time = run.time / found.time;
                errors.time.add(time, row.time_rel);
                errors.energy.add(time * run.power.count / found.power.count, row.energy_rel);
            }
        }
        return errors;
    }

    /// The core clock that holds under a requested limit; how far it droops follows from the other
    /// boards: the median of their medians, as one board of eight holds its limits.
    [[nodiscard]] Errors judge_held_clocks() const {
        Errors errors;
        for (const PublishedRow& row : rows_) {
            const double limit = limit_of(row);
            if (limit <= 0) continue;
            auto [board, gemm] = model(fit(gpu_of(row)));
            board.limit_droop = droop(gpu_of(row));
            errors.add(operate(board, gemm, core_clock(limit)).core.count, row.core_mhz);
        }
        return errors;
    }

    /// How far the clock droops on the boards but one: `simulated::Board::limit_droop`.
    [[nodiscard]] double droop(const std::string& without) const {
        std::map<std::string, std::vector<double>> boards;
        for (const PublishedRow& row : rows_)
            if (const double limit = limit_of(row); limit > 0 && gpu_of(row) != without)
                boards[gpu_of(row)].push_back((1 - row.core_mhz / limit) * row.power_cap_w /
                                              row.watts);
        std::vector<double> medians;
        for (auto& [name, droops] : boards) medians.push_back(median(droops));
        return median(medians);
    }

private:
    static double median(std::vector<double> values) {
        std::sort(values.begin(), values.end());
        const std::size_t n = values.size();
        return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
    }
    /// 0 where none was requested.
    static double limit_of(const PublishedRow& row) {
        constexpr std::string_view words = "limit asked ";
        const std::size_t at = row.note.find(words);
        if (at == std::string::npos) return 0;
        const std::size_t begin = at + words.size();
        const std::size_t end = row.note.find(' ', begin);
        return kdvfs::io::parse_number<double>(row.note.substr(begin, end - begin)).value_or(0);
    }

    struct Model {
        kdvfs::simulated::Board board;
        kdvfs::simulated::KernelModel gemm;
    };

    static std::string gpu_of(const PublishedRow& row) {
        const std::size_t at = row.note.find("GPU ");
        return row.note.substr(at, 5);
    }
    static Model model(const std::vector<double>& x) {
        Model made{kdvfs::simulated::mi355x(), {}};
        made.board.voltage.knots = {{x[0], 1}, {2400, x[1]}};
        made.board.throughput.matrix_picojoules_per_flop = x[2];
        constexpr double n = 8192, reached = 0.8;  // of the peak: measured at 1000 to 1822 MHz
        made.gemm = kdvfs::simulated::roofline(made.board, {2 * n * n * n, 0, 6 * n * n},
                                               {reached, 0.8, 0.9});
        return made;
    }
    static double watts(const std::vector<double>& x, double mhz) {
        const auto [board, gemm] = model(x);
        return operate(unlimited(board), gemm, core_clock(mhz)).power.count;
    }

    std::vector<PublishedRow> rows_;
};

/// GEMMs on an MI325X at its default, under a limit of 750 W, and with the core clock limited, too.
/// Each is known by its name and its default point; what the others have in common (volts, and how
/// much of the time follows the core clock) follows from the other GEMMs.
class Mi325xGemm {
public:
    explicit Mi325xGemm(const std::vector<PublishedRow>& all) {
        for (const PublishedRow& row : all)
            if (row.board == "MI325X" && row.does("GEMM ") && row.watts > 0 && row.teraflops > 0)
                rows_.push_back(row);
        for (const PublishedRow& row : rows_)
            if (row.time_rel == 1) defaults_.push_back(row);
    }

    /// Relative volts at the top; of the peak that a core-bound 16-bit GEMM reaches; the share of
    /// the time of other GEMMs of 96K that follows the core clock.
    [[nodiscard]] std::vector<double> fit(const std::string& without) const {
        return minimise(
            [&](const std::vector<double>& x) {
                if (x[0] < 1 || x[0] > 1.6 || x[1] < 0.8 || x[1] > 1 || x[2] < 0.8 || x[2] > 1)
                    return 1e9;
                double sum = 0;
                for (const PublishedRow& known : defaults_)
                    if (known.workload != without) {
                        const PointErrors e = errors_of(x, known);
                        for (const Errors* q : {&e.watts, &e.time, &e.energy})
                            for (const double pct : q->pct) sum += pct * pct;
                    }
                return sum;
            },
            {1.25, 0.85, 0.9}, {0.08, 0.04, 0.04});
    }

    [[nodiscard]] PointErrors judge() const {
        PointErrors errors;
        for (const PublishedRow& known : defaults_)
            errors.add(errors_of(fit(known.workload), known));
        return errors;
    }

private:
    [[nodiscard]] PointErrors errors_of(const std::vector<double>& x,
                                        const PublishedRow& known) const {
        kdvfs::simulated::Board board = kdvfs::simulated::mi325x();
        board.voltage.knots = {{1100, 1}, {2100, x[0]}};
        const kdvfs::simulated::KernelModel gemm = kernel(board, x, known);
        PointErrors errors;
        for (const PublishedRow& row : rows_) {
            if (row.workload != known.workload || row.time_rel == 1) continue;
            board.power_cap = {row.power_cap_w};
            const double clock = row.has("core limit") ? row.core_mhz : known.core_mhz;
            const auto run = operate(board, gemm, core_clock(clock));
            errors.watts.add(run.power.count, row.watts);
            errors.time.add(run.time.count(), row.time_rel);
            errors.energy.add(run.time.count() * run.power.count / known.watts, row.energy_rel);
        }
        return errors;
    }

    /// A GEMM of 1 s at its default point, with the power measured there.
    static kdvfs::simulated::KernelModel kernel(const kdvfs::simulated::Board& board,
                                                const std::vector<double>& x,
                                                const PublishedRow& known) {
        const bool half = known.does("f16_") || known.does("fp16_");
        const double peak = board.throughput.matrix_flops_per_cycle * known.core_mhz * 1e6 * 1e-12;
        const double core = half                ? std::min(1.0, known.teraflops / peak / x[1])
                            : known.does("96K") ? x[2]
                                                : 1;
        kdvfs::simulated::KernelModel gemm;
        gemm.overlap = 6;
        gemm.core_time = kdvfs::Seconds{core * known.core_mhz / board.reference_core.count};
        gemm.memory_time =
            kdvfs::Seconds{std::pow(1 - std::pow(core, gemm.overlap), 1 / gemm.overlap)};
        const double volts = board.voltage.at(known.core_mhz);
        const double idle = operate(board, {}, core_clock(known.core_mhz)).power.count;
        gemm.core_energy = {(known.watts - idle) / (volts * volts)};
        return gemm;
    }

    std::vector<PublishedRow> rows_;
    std::vector<PublishedRow> defaults_;
};

}  // namespace board_fit
