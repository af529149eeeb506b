// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/tune/ledger.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/board_energy.hpp>
#include <tools/cli/metrics.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace cli {
namespace {

using nlohmann::json;

constexpr std::size_t most_kernels = 64;

std::string number(double value) { return kdvfs::io::format_text("%.9g", value); }

/// {name="value",...}, with what the format wants escaped.
std::string labels(MetricLabels pairs, const MetricLabels& constant) {
    pairs.insert(pairs.end(), constant.begin(), constant.end());
    std::string text;
    for (const auto& [name, value] : pairs) {
        text += text.empty() ? "{" : ",";
        text += name + "=\"";
        for (const char c : value) {
            if (c == '\\' || c == '"') text += '\\';
            text += c == '\n' ? std::string{"\\n"} : std::string{c};
        }
        text += '"';
    }
    return text.empty() ? text : text + '}';
}

/// A metric's lines: HELP and TYPE once, then its values.
class Metric {
public:
    Metric(std::string name, const char* type, const char* help) : name_{std::move(name)} {
        text_ = "# HELP " + name_ + ' ' + help + "\n# TYPE " + name_ + ' ' + type + '\n';
    }
    void add(const std::string& its_labels, double value) {
        text_ += name_ + its_labels + ' ' + number(value) + '\n';
        ++values_;
    }
    [[nodiscard]] std::string text() const { return values_ == 0 ? "" : text_; }

private:
    std::string name_;
    std::string text_;
    std::size_t values_ = 0;
};

/// What a kernel or range took on a board: of a process's report, or of the others together.
struct Share {
    double seconds = 0;
    double launches = 0;
    report_sums::EnergySum energy{};
    /// @param shared as `BoardUse::shared`
    void add(const json& row, bool shared) {
        seconds += row.value("time_s", 0.0);
        launches += row.value("calls", 0.0);
        if (row.value("metered_calls", 0) > 0) energy.add(report_sums::energy_of(row, shared));
    }
    void add_runs(const json& level, bool shared) {
        seconds += level.value("time_s", 0.0);
        launches += level.value("runs", 0.0);
        if (level.value("runs", 0) > 0) energy.add(report_sums::energy_of(level, shared));
    }
};

/// The ranges with most time; each sums up those in it, so that the others have no sum.
std::string range_text(const std::map<std::string, std::map<std::string, Share>>& boards,
                       const MetricLabels& constant) {
    Metric energy{"kdvfs_range_energy_joules", "gauge", "Joules of the kernels in a range."};
    Metric half{"kdvfs_range_energy_half_width_joules", "gauge",
                "Half of the 95 % interval of kdvfs_range_energy_joules."};
    Metric seconds{"kdvfs_range_seconds_total", "counter",
                   "Time of the kernels in a range, metered."};
    Metric runs{"kdvfs_range_runs_total", "counter", "Runs of a range, metered."};
    for (const auto& [address, ranges] : boards) {
        std::vector<std::pair<const std::string*, const Share*>> largest;
        for (const auto& [range, taken] : ranges) largest.emplace_back(&range, &taken);
        std::stable_sort(largest.begin(), largest.end(), [](const auto& a, const auto& b) {
            return a.second->seconds > b.second->seconds;
        });
        if (largest.size() > most_kernels) largest.resize(most_kernels);
        for (const auto& [range, taken] : largest) {
            const std::string its = labels({{"hw_id", address}, {"range", *range}}, constant);
            seconds.add(its, taken->seconds);
            runs.add(its, taken->launches);
            if (!taken->energy.resolved()) continue;
            energy.add(its, taken->energy.joules);
            half.add(its, std::sqrt(taken->energy.variance));
        }
    }
    return energy.text() + half.text() + seconds.text() + runs.text();
}

/// What a program that tunes itself has saved on a board.
struct SavedVisit {
    double begin;  ///< in seconds
    double end;
    const json* saving;
};

/// The savings of a board's processes together. They compare the energy of the whole board: of each
/// counts the part of its time in which none that began before it was there. So what is counted of
/// one does not change when another begins.
/// @param total what to add to
void add_visits(std::vector<SavedVisit> visits, kdvfs::tune::LedgerTotal& total) {
    std::stable_sort(visits.begin(), visits.end(),
                     [](const SavedVisit& a, const SavedVisit& b) { return a.begin < b.begin; });
    double until = -std::numeric_limits<double>::infinity();
    for (const SavedVisit& visit : visits) {
        double part = visit.end > until ? 1 : 0;
        const double alone = visit.end - until;
        if (part > 0 && until > visit.begin && std::isfinite(alone)) {
            part = alone / (visit.end - visit.begin);
        }
        until = std::max(until, visit.end);
        const json& saving = *visit.saving;
        const double joules = saving.value("saved_j", 0.0);
        kdvfs::tune::LedgerSegment segment;
        segment.saved = {part * joules};
        segment.saved_low = {part * saving.value("saved_low_j", joules)};
        segment.saved_high = {part * saving.value("saved_high_j", joules)};
        segment.lost = kdvfs::Seconds{saving.value("lost_s", 0.0)};  // each has lost its own
        total.add(segment);
    }
}

/// What programs that tune themselves have saved, by board; the errors of processes are
/// independent.
std::string saving_text(const std::vector<json>& processes, const MetricLabels& constant) {
    std::map<std::pair<std::string, std::string>, std::vector<SavedVisit>> visits;
    for (const json& process : processes) {
        for (const json& device : process["devices"]) {
            const auto saving = device.find("saving");
            if (saving == device.end() || !saving->is_object()) continue;
            constexpr double endless = std::numeric_limits<double>::infinity();
            const std::string address = device["report"]["device"].value("address", "");
            visits[{address, process.value("host", "")}].push_back(
                {process.value("begin_s", 0.0), process.value("end_s", endless), &*saving});
        }
    }
    std::map<std::string, kdvfs::tune::LedgerTotal> boards;
    for (const auto& [place, its] : visits) add_visits(its, boards[place.first]);
    Metric joules{"kdvfs_saved_joules", "gauge",
                  "Joules saved against the clocks as found; once where processes share a board."};
    Metric low{"kdvfs_saved_low_joules", "gauge",
               "Lower end of the 95 % interval of kdvfs_saved_joules."};
    Metric high{"kdvfs_saved_high_joules", "gauge",
                "Upper end of the 95 % interval of kdvfs_saved_joules."};
    Metric lost{"kdvfs_lost_seconds", "gauge", "Seconds lost against the clocks as found."};
    for (const auto& [address, saved] : boards) {
        const std::string its = labels({{"hw_id", address}}, constant);
        joules.add(its, saved.saved.count);
        low.add(its, saved.low().count);
        high.add(its, saved.high().count);
        lost.add(its, saved.lost.count());
    }
    return joules.text() + low.text() + high.text() + lost.text();
}

}  // namespace

std::string prometheus_text(const std::vector<json>& processes, const MetricLabels& constant) {
    using Kernel = std::pair<std::string, std::uint32_t>;
    std::map<std::string, std::map<Kernel, Share>> boards;
    std::map<std::string, std::map<std::string, Share>> ranges;      // by address and path
    std::map<std::string, std::pair<std::string, double>> counters;  // name and joules, by address
    for (const BoardUse& use : board_uses(processes)) {
        auto& [name, joules] = counters[use.address];
        name = use.name;
        joules += use.joules();
        auto& kernels = boards[use.address];
        for (const json* report : use.reports) {
            for (const json& row : report->at("rows")) {
                kernels[{row.value("kernel", ""), row.value("variant", 0U)}].add(row, use.shared());
            }
            for (const json& level : report->value("levels", json::array())) {
                if (level.value("level", "") == "scope") {
                    ranges[use.address][level.value("kernel", "")].add_runs(level, use.shared());
                }
            }
        }
    }
    Metric processes_seen{"kdvfs_processes", "gauge", "Processes that have reported."};
    Metric board{"hw_energy_joules_total", "counter", "Joules by the board's energy counter."};
    Metric energy{"kdvfs_kernel_energy_joules", "gauge", "Joules of a kernel."};
    Metric half{"kdvfs_kernel_energy_half_width_joules", "gauge",
                "Half of the 95 % interval of kdvfs_kernel_energy_joules."};
    Metric seconds{"kdvfs_kernel_seconds_total", "counter", "Time of a kernel, metered."};
    Metric launches{"kdvfs_kernel_launches_total", "counter", "Launches of a kernel."};
    processes_seen.add(labels({}, constant), static_cast<double>(processes.size()));
    for (const auto& [address, counter] : counters) {
        board.add(
            labels({{"hw_id", address}, {"hw_type", "gpu"}, {"hw_name", counter.first}}, constant),
            counter.second);
    }
    for (const auto& [address, kernels] : boards) {
        std::vector<std::pair<const Kernel*, Share>> rows;
        for (const auto& [kernel, taken] : kernels) rows.emplace_back(&kernel, taken);
        std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
            return a.second.seconds > b.second.seconds;
        });
        Share others;
        for (std::size_t i = most_kernels; i < rows.size(); ++i) {
            const Share& each = rows[i].second;
            others.seconds += each.seconds;
            others.launches += each.launches;
            others.energy.add(each.energy);
        }
        const Kernel rest{"(others)", 0};
        if (rows.size() > most_kernels) {
            rows.resize(most_kernels);
            rows.emplace_back(&rest, others);
        }
        for (const auto& [kernel, taken] : rows) {
            const std::string its = labels({{"hw_id", address},
                                            {"kernel", kernel->first},
                                            {"variant", std::to_string(kernel->second)}},
                                           constant);
            seconds.add(its, taken.seconds);
            launches.add(its, taken.launches);
            if (!taken.energy.resolved()) continue;
            energy.add(its, taken.energy.joules);
            half.add(its, std::sqrt(taken.energy.variance));
        }
    }
    return processes_seen.text() + board.text() + energy.text() + half.text() + seconds.text() +
           launches.text() + range_text(ranges, constant) + saving_text(processes, constant);
}

}  // namespace cli
