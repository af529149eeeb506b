// SPDX-License-Identifier: MIT
#pragma once

#include <bench/boards/preset_checks.hpp>

#include <array>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace board_fit {

/// Idle watts of a preset at each measured clock. The row of the H100 at 345 MHz is left out: an
/// outlier of 117 W, where its neighbours draw 72 W.
/// @param file with the columns board, core_mhz, idle_w in this order
inline Errors idle_by_clock(const std::string& file, std::string_view name,
                            const kdvfs::simulated::Board& board) {
    std::ifstream input{file};
    if (!input) throw std::runtime_error{"cannot read " + file};
    kdvfs::io::CsvReader reader{input, file};
    std::vector<std::string> fields;
    Errors errors;
    while (reader.next(fields)) {
        if (fields.size() < 3 || fields[0] != name) continue;
        const auto mhz = kdvfs::io::parse_number<double>(fields[1]);
        const auto watts = kdvfs::io::parse_number<double>(fields[2]);
        if (!mhz || !watts) reader.fail("not a row of idle watts");
        if (name == "h100_sxm" && *mhz == 345) continue;
        errors.add(idle_power(board, core_clock(*mhz)).count, *watts);
    }
    return errors;
}

/// DGEMM on an H100: its energy per FLOP against that at 1005 MHz. The energy of its work is fitted
/// at 795, 1095 and 1305 MHz, as were the volts of the preset.
inline Errors h100_dgemm(const std::vector<PublishedRow>& all) {
    const kdvfs::simulated::Board board = unlimited(kdvfs::simulated::h100());
    std::vector<PublishedRow> fitted, judged;
    for (const PublishedRow& row : all) {
        if (row.board.rfind("H100", 0) != 0 || !row.does("DGEMM")) continue;
        const bool by_limit =
            row.has("power-limited");  // another clock held than the one requested
        if (row.core_mhz == 795 || row.core_mhz == 1095 || row.core_mhz == 1305)
            fitted.push_back(row);
        else if (!by_limit)
            judged.push_back(row);
    }
    const auto idle = [&](const PublishedRow& row) {
        return idle_power(board, core_clock(row.core_mhz)).count;
    };
    const auto volts2 = [&](const PublishedRow& row) {
        return board.voltage.at(row.core_mhz) * board.voltage.at(row.core_mhz);
    };
    double work = 0;  // joules of the default's second of work, at relative voltage 1
    for (const PublishedRow& row : fitted)
        work += (row.watts - idle(row)) * row.time_rel / volts2(row) /
                static_cast<double>(fitted.size());
    Errors errors;
    for (const PublishedRow& row : judged)
        errors.add(idle(row) * row.time_rel + work * volts2(row), row.watts * row.time_rel);
    return errors;
}

/// Training on H100s by power limit: a mix of a GEMM and a copy, whose shares are fitted at 700 and
/// 400 W. The limit bounds the mean power of the mix, at one core clock: kernels are shorter than
/// what the limiter averages over.
inline Errors h100_training(const std::vector<PublishedRow>& all, std::string_view workload) {
    namespace simulated = kdvfs::simulated;
    const simulated::Board board = unlimited(simulated::h100());
    constexpr double n = 8192, elements = 0x1p30;
    const std::array kernels{
        simulated::roofline(board, {2 * n * n * n, 0, 6 * n * n}, {0.92, 0.8, 0.9}),
        simulated::roofline(board, {0, 0, 4 * elements})};
    /// Seconds under a limit of work that takes a second at the top clock.
    const auto seconds = [&](double share, double limit) {
        const auto at = [&](double mhz) {
            double time = 0, energy = 0;
            for (std::size_t k = 0; k < 2; ++k) {
                const auto top = operate(board, kernels[k], {});
                const auto run = operate(board, kernels[k], core_clock(mhz));
                const double takes = (k == 0 ? share : 1 - share) * (run.time / top.time);
                time += takes;
                energy += takes * run.power.count;
            }
            return std::pair{time, energy / time};
        };
        double low = board.core_min.count, high = board.core_max.count;
        if (at(high).second <= limit) return at(high).first;
        while (high - low > 1) {
            const double middle = (low + high) / 2;
            (at(middle).second > limit ? high : low) = middle;
        }
        return at(low).first;
    };
    const auto slowdown = [&](double share, double limit) {
        return seconds(share, limit) / seconds(share, 700);
    };
    double share = 0;
    for (const PublishedRow& row : all)
        if (row.does(workload) && row.power_cap_w == 400 && row.time_rel > 0)
            share = minimise(
                [&](const std::vector<double>& x) {
                    return x[0] < 0 || x[0] > 1 ? 1e9
                                                : std::abs(slowdown(x[0], 400) / row.time_rel - 1);
                },
                {0.5}, {0.2})[0];
    Errors errors;
    for (const PublishedRow& row : all)
        if (row.does(workload) && row.time_rel > 0 && row.power_cap_w != 700 &&
            row.power_cap_w != 400 && row.power_cap_w > 0)
            errors.add(1 / slowdown(share, row.power_cap_w), 1 / row.time_rel);
    return errors;
}

/// Watts by busy CUs, without memory traffic: known by the point with all CUs busy.
inline Errors busy_cus(const std::vector<PublishedRow>& all, const kdvfs::simulated::Board& board,
                       std::string_view name) {
    const auto kernel_of = [](const PublishedRow& row) {
        return row.workload.substr(0, row.workload.rfind(','));
    };
    const auto idle = [&](const PublishedRow& row) {
        return operate(board, {}, core_clock(row.core_mhz)).power.count;
    };
    Errors errors;
    for (const PublishedRow& full : all) {
        if (full.board != name || !full.does(", 304 of 304 CUs") || full.teraflops <= 0) continue;
        const double volts = board.voltage.at(full.core_mhz);
        const double work = (full.watts - idle(full)) / full.teraflops / (volts * volts);
        for (const PublishedRow& row : all) {
            if (row.board != name || kernel_of(row) != kernel_of(full)) continue;
            if (row.workload == full.workload) continue;
            const double its = board.voltage.at(row.core_mhz);
            errors.add(idle(row) + work * row.teraflops * its * its, row.watts);
        }
    }
    return errors;
}

/// Idle watts as found, of points that say so: at the clock that was read, or asleep.
inline Errors idle_points(const std::vector<PublishedRow>& all,
                          const kdvfs::simulated::Board& board, std::string_view name) {
    kdvfs::simulated::Board awake = board;
    awake.idle_core = kdvfs::auto_clock;
    Errors errors;
    for (const PublishedRow& row : all) {
        const bool idle = row.does("idle") || row.does("mostly waiting");
        if (row.board != name || !idle || row.does("one die") || row.watts <= 0) continue;
        const bool asleep = row.core_mhz > 0 ? row.core_mhz <= board.idle_core.count + 50
                                             : !row.does("model loaded");
        errors.add(idle_power(asleep ? board : awake, core_clock(row.core_mhz)).count, row.watts);
    }
    return errors;
}

/// An assumption: measured values lie between these shares of a preset's.
struct AssumedRange {
    double low = 1;
    double high = 1;

    /// The part of points that it holds, in percent.
    [[nodiscard]] double holds_pct(const Errors& errors) const {
        double held = 0;
        for (const double pct : errors.pct) {
            const double measured = 1 / (1 + pct / 100);
            held += measured >= low && measured <= high ? 1 : 0;
        }
        return 100 * held / static_cast<double>(errors.pct.size());
    }
};

/// Hosts contradict each other: 36 to 38 W at 31 to 34 C, and 57 W at 49 C, both at 1700 MHz.
inline constexpr AssumedRange mi210_idle{0.7, 1.2};

}  // namespace board_fit
