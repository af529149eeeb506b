// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <tools/cli/report_diff.hpp>
#include <tools/cli/report_version.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace cli {
namespace {

using kdvfs::io::format_text;
using nlohmann::json;

constexpr const char* iteration_name = "iteration";

double number(const json& item, const char* key) {
    const auto found = item.find(key);
    return found != item.end() && found->is_number() ? found->get<double>() : 0;
}

std::optional<Figure> energy_of(const json& item, double per) {
    const auto energy = item.find("energy");
    if (energy == item.end() || energy->value("status", "") != "resolved" || per <= 0) return {};
    const double joules = number(*energy, "joules");
    const double half_width = number(*energy, "half_width_95");
    if (!(joules > 0) || half_width >= joules) return {};
    return Figure{joules / per, half_width / per};
}

/// With the scatter that one's energy has from that of its time; nothing where that is not known.
std::optional<Figure> scattered(std::optional<Figure> energy, const std::optional<Figure>& time) {
    if (!energy || !time) return {};
    const double scatters = energy->value * time->half_width / time->value;
    return Figure{energy->value, std::hypot(energy->half_width, scatters)};
}

std::string name_of(const json& kernel) {
    std::string name = kernel.value("kernel", "");
    if (const auto variant = kernel.value("variant", 0U)) name += '#' + std::to_string(variant);
    return name;
}

DiffItem item_of_row(const json& row, double iterations) {
    DiffItem item;
    const double calls = number(row, "metered_calls");
    const double time = number(row, "time_s");
    item.calls = number(row, "calls") / std::max(iterations, 1.0);
    if (calls <= 0 || time <= 0) return item;
    const double half_width = number(row, "call_time_half_width_s");
    if (half_width > 0) item.time = Figure{time / calls, half_width};
    // Energy is that of the time under trusted samples, or of this kernel's share of the time in
    // which several ran.
    item.counted = number(row, "counted_time_s") / time;
    item.energy = scattered(energy_of(row, calls * item.counted), item.time);
    return item;
}

DiffItem item_of_level(const json& level) {
    DiffItem item;
    const double runs = number(level, "runs");
    item.calls = runs;
    if (runs <= 0) return item;
    const double half_width = number(level, "run_time_half_width_s");
    if (half_width > 0) item.time = Figure{number(level, "time_s") / runs, half_width};
    item.energy = scattered(energy_of(level, runs), item.time);
    return item;
}

/// Of the standard normal distribution, by Newton's method on its error function.
double normal_quantile(double probability) {
    double x = 0;
    for (int i = 0; i < 50; ++i) {
        const double below = 0.5 * std::erfc(-x / std::sqrt(2.0));
        const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
        x -= std::clamp((below - probability) / density, -1.0, 1.0);
    }
    return x;
}

/// Of Student's t with 16 degrees of freedom or about, from a normal quantile (Abramowitz and
/// Stegun 26.7.5): times are known from 16 to 31 batches of a run.
double student_quantile(double x) {
    constexpr double degrees = 16;
    const double x3 = x * x * x;
    const double x5 = x3 * x * x;
    return x + (x3 + x) / 4 / degrees + (5 * x5 + 16 * x3 + 3 * x) / 96 / degrees / degrees;
}

/// @param widen   half-widths, so that all changes hold at once
/// @param drifts  so much may differ between runs of the same, as a share
std::optional<Change> change(const std::optional<Figure>& before,
                             const std::optional<Figure>& after, double widen, double drifts) {
    if (!before || !after) return {};
    const double ratio = after->value / before->value;
    const double relative =
        std::hypot(before->half_width / before->value, after->half_width / after->value);
    return Change{ratio - 1, widen * ratio * relative + drifts};
}

/// What is compared of one line at a time.
struct Widening {
    double time = 1;
    double energy = 1;

    /// @param comparisons of all lines
    explicit Widening(double comparisons) {
        const double all = normal_quantile(1 - 0.025 / std::max(comparisons, 1.0));
        const double one = normal_quantile(0.975);
        time = student_quantile(all) / student_quantile(one);
        energy = all / one;
    }
    void compare(DiffLine& line, const DiffItem& before, const DiffItem& after) const {
        // Halves of recorded runs of an H100 and two H200s differ by up to 0.09 % in the time of a
        // kernel, as the board gets warm.
        constexpr double drifts = 1e-3;
        line.time = change(before.time, after.time, time, drifts);
        // Nothing says which of both a part that is not counted is: where it changes, as where
        // kernels run beside others in one report alone, energies may differ by as much.
        const double share = before.counted > 0 && after.counted > 0
                                 ? std::abs(std::log(after.counted / before.counted))
                                 : 0;
        line.energy = change(before.energy, after.energy, energy, drifts + share);
    }
};

/// Of kernels that were called as often as each other: what one call of each takes.
DiffItem sum_of(const std::vector<const DiffItem*>& items) {
    DiffItem sum{.time = Figure{}, .energy = Figure{}};
    const auto add = [](std::optional<Figure>& all, const std::optional<Figure>& one) {
        if (!all || !one) return all.reset();
        *all = {all->value + one->value, all->half_width + one->half_width};
    };
    for (const DiffItem* item : items) {
        sum.calls = item->calls;
        sum.counted = std::min(sum.counted, item->counted);
        add(sum.time, item->time);
        add(sum.energy, item->energy);
    }
    return sum;
}

bool as_often(double calls, double others) { return std::abs(calls - others) <= 0.01 * calls; }
/// Neither a range nor a group of kernels.
bool is_kernel(const std::string& name) {
    return name != iteration_name && !name.starts_with("range ") && !name.starts_with("together:");
}

/// Finds what may be several kernels in one: the only new one of those called so often, where two
/// or more that were called as often are gone.
void find_fused(std::vector<DiffLine>& lines, const Widening& widening) {
    for (DiffLine& line : lines) {
        if (line.before || !is_kernel(line.name) || line.after->calls <= 0) continue;
        std::vector<const DiffItem*> gone;
        int alike = 0;
        for (const DiffLine& other : lines) {
            if (!is_kernel(other.name) || (other.before && other.after)) continue;
            const DiffItem& item = other.before ? *other.before : *other.after;
            if (!as_often(line.after->calls, item.calls)) continue;
            alike += other.before ? 0 : 1;
            if (!other.before) continue;
            gone.push_back(&item);
            line.replaces.push_back(other.name);
        }
        if (alike != 1 || gone.size() < 2) {
            line.replaces.clear();
            continue;
        }
        widening.compare(line, sum_of(gone), *line.after);
    }
}

std::string cell(const std::optional<Change>& change, const char* more, const char* less,
                 double tolerance) {
    if (!change) return "-";
    return format_text("%+.2f %% +- %.2f%s", 100 * change->share, 100 * change->half_width,
                       change->more_than(tolerance)   ? more
                       : change->less_than(tolerance) ? less
                                                      : "");
}

}  // namespace

DiffItems diff_items(const json& report, const std::string& file) {
    const bool is_report = report.is_object() && report.contains("rows") &&
                           report["rows"].is_array() && report.contains("totals");
    if (!is_report)
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"compare reports", file, "it is no report",
                            "give a program's report.json, or what kdvfs run --report FILE.json "
                            "wrote"}};
    refuse_newer_report(report, file);
    DiffItems items;
    double iterations = 0;
    for (const json& level : report.value("levels", json::array())) {
        const bool iteration = level.value("level", "") == iteration_name;
        if (iteration) iterations = number(level, "runs");
        const std::string name = iteration ? iteration_name : "range " + name_of(level);
        items[name] = item_of_level(level);
        if (iteration) items[name].time_share = 2;  // first in the table
    }
    double all_time = 0;
    for (const json& row : report["rows"]) all_time += number(row, "time_s");
    std::map<std::string, double> times;
    for (const json& row : report["rows"]) {
        if (number(row, "calls") <= 0) continue;
        DiffItem& item = items[name_of(row)] = item_of_row(row, iterations);
        times[name_of(row)] = number(row, "counted_time_s");
        item.time_share = number(row, "time_s") / std::max(all_time, 1e-12);
    }
    for (const json& group : report.value("groups", json::array())) {
        if (group.value("with_idle", false)) continue;
        std::vector<std::string> names;
        double time = 0;
        for (const json& kernel : group.value("kernels", json::array())) {
            names.push_back(name_of(kernel));
            time += times[names.back()];
        }
        std::sort(names.begin(), names.end());
        std::string name = "together:";
        for (const std::string& each : names) name += ' ' + each;
        DiffItem& item = items[name];
        item.calls = 1;
        item.time_share = time / std::max(all_time, 1e-12);
        // Of a second of the same mix: calls of unlike kernels cannot be counted together.
        item.energy = energy_of(group, time);
    }
    return items;
}

DiffVerdict ReportDiff::verdict() const {
    bool compared = false;
    bool open = false;
    for (const DiffLine& line : lines) {
        for (const auto& change : {line.time, line.energy}) {
            if (!change) continue;
            compared = true;
            if (change->more_than(tolerance)) return DiffVerdict::worse;
            open = open || (tolerance > 0 && change->may_be_more_than(tolerance));
        }
    }
    return compared && !open ? DiffVerdict::no_worse : DiffVerdict::undecided;
}

ReportDiff diff_reports(const DiffItems& before, const DiffItems& after, double tolerance) {
    ReportDiff diff{.lines = {}, .tolerance = tolerance};
    double comparisons = 0;
    for (const auto& [name, item] : before) {
        const auto found = after.find(name);
        if (found == after.end()) continue;
        comparisons += item.time && found->second.time ? 1 : 0;
        comparisons += item.energy && found->second.energy ? 1 : 0;
    }
    const Widening widening{comparisons};
    for (const auto& [name, item] : before) {
        DiffLine line{.name = name, .before = item};
        if (const auto found = after.find(name); found != after.end()) {
            line.after = found->second;
            widening.compare(line, item, found->second);
        }
        diff.lines.push_back(std::move(line));
    }
    for (const auto& [name, item] : after) {
        if (before.count(name) == 0) diff.lines.push_back({.name = name, .after = item});
    }
    find_fused(diff.lines, widening);
    const auto share = [](const DiffLine& line) {
        return std::max(line.before ? line.before->time_share : 0,
                        line.after ? line.after->time_share : 0);
    };
    std::stable_sort(diff.lines.begin(), diff.lines.end(),
                     [&](const auto& a, const auto& b) { return share(a) > share(b); });
    return diff;
}

std::string to_text(const ReportDiff& diff) {
    std::string text =
        format_text("%-44s %-28s %-28s %s\n", "", "time of a call", "energy of a call", "calls");
    int dearer = 0;
    int slower = 0;
    int fresh = 0;
    int gone = 0;
    for (const DiffLine& each : diff.lines) {
        const bool group = each.name.starts_with("together:");
        if (group && !each.energy) continue;  // another grouping of the same kernels
        const std::string time = cell(each.time, " slower", " faster", diff.tolerance);
        const std::string energy = cell(each.energy, " dearer", " cheaper", diff.tolerance);
        std::string calls;
        if (!each.before) {
            calls = "new";
            for (const std::string& gone_name : each.replaces) {
                calls += (calls == "new" ? ", in place of " : ", ") + gone_name;
            }
            ++fresh;
        } else if (!each.after) {
            calls = "gone";
            ++gone;
        } else if (std::abs(each.after->calls - each.before->calls) > 0.01 * each.before->calls &&
                   each.name != iteration_name) {
            calls = format_text("%.4g, was %.4g", each.after->calls, each.before->calls);
        }
        dearer += each.energy && each.energy->more_than(diff.tolerance);
        slower += each.time && each.time->more_than(diff.tolerance);
        std::string shown =
            format_text("%-44s %-28s %-28s %s", kdvfs::io::shortened(each.name, 44).c_str(),
                        time.c_str(), energy.c_str(), calls.c_str());
        shown.erase(shown.find_last_not_of(" \n") + 1);
        text += shown + '\n';
    }
    const DiffVerdict verdict = diff.verdict();
    return text + format_text("%d dearer, %d slower, %d new, %d gone: %s\n", dearer, slower, fresh,
                              gone,
                              verdict == DiffVerdict::worse      ? "worse"
                              : verdict == DiffVerdict::no_worse ? "no worse"
                                                                 : "undecided");
}

}  // namespace cli
