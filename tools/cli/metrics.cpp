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

/// What programs that tune themselves have saved, by board. Processes that were on a board at the
/// same time compare the energy of the whole board: the first of them that tunes itself stands for
/// all. Those after one another add up, and their errors are independent. Each has lost its own
/// time.
std::string saving_text(const std::vector<json>& processes, const std::vector<BoardUse>& uses,
                        const MetricLabels& constant) {
    std::map<const json*, const json*> savings;  // by report
    for (const json& process : processes)
        for (const json& device : process["devices"])
            if (device.contains("saving")) savings[&device["report"]] = &device["saving"];
    std::map<std::string, kdvfs::tune::LedgerTotal> boards;
    for (const BoardUse& use : uses) {
        bool counted = false;
        for (const json* report : use.reports) {
            const auto found = savings.find(report);
            if (found == savings.end()) continue;
            const json& saving = *found->second;
            kdvfs::tune::LedgerSegment segment;
            segment.lost = kdvfs::Seconds{saving.value("lost_s", 0.0)};
            if (!std::exchange(counted, true)) {
                segment.saved = {saving.value("saved_j", 0.0)};
                segment.saved_low = {saving.value("saved_low_j", segment.saved.count)};
                segment.saved_high = {saving.value("saved_high_j", segment.saved.count)};
            }
            boards[use.address].add(segment);
        }
    }
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
    const std::vector<BoardUse> uses = board_uses(processes);
    for (const BoardUse& use : uses) {
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
           launches.text() + range_text(ranges, constant) + saving_text(processes, uses, constant);
}

}  // namespace cli
