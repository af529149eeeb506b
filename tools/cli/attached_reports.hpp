// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <tools/cli/board_energy.hpp>
#include <tools/cli/input.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

/// What the processes that `libkdvfs_attach.so` is in have reported.
namespace cli {

namespace report_sums {

/// Whether a value has all that an example has, of the same types; each element of a list is as the
/// example's one.
/// @param whole else keys may be missing, and null stands for what is not there or not known
inline bool resembles(const nlohmann::json& value, const nlohmann::json& example,
                      bool whole = true) {
    if (!whole && value.is_null()) return true;
    if (example.is_number()) return value.is_number();
    if (value.type() != example.type()) return false;
    if (example.is_array()) {
        return example.empty() ||
               std::all_of(value.begin(), value.end(), [&](const nlohmann::json& each) {
                   return resembles(each, example.front(), whole);
               });
    }
    if (!example.is_object()) return true;
    for (const auto& item : example.items()) {
        const auto found = value.find(item.key());
        const bool is_there = found != value.end();
        if (is_there ? !resembles(*found, item.value(), whole) : whole) return false;
    }
    return true;
}

/// Whether the numbers of an energy that is called resolved are some.
inline bool is_energy(const nlohmann::json& energy) {
    const auto is_good = [&](const char* key) {
        const auto found = energy.find(key);
        return found == energy.end() || found->is_number();
    };
    return energy.at("status") != "resolved" || (is_good("joules") && is_good("half_width_95"));
}

/// Whether each energy and each name that is read of a device's report is there.
inline bool has_energies(const nlohmann::json& report) {
    const auto& totals = report.at("totals");
    const auto& rows = report.at("rows");
    const auto& levels = report.at("levels");
    const auto is_row = [](const nlohmann::json& row) {
        const auto& energy = row.at("energy");
        return is_energy(energy) &&
               (energy.at("status") != "resolved" || energy.contains("joules"));
    };
    const auto is_level = [](const nlohmann::json& level) {
        const auto name = level.find("kernel");
        const bool named = name == level.end() || name->is_string();
        return is_energy(level.at("energy")) && (named || level.at("level") == "iteration");
    };
    return is_energy(totals.at("kernels")) && is_energy(totals.at("idle")) &&
           std::all_of(rows.begin(), rows.end(), is_row) &&
           std::all_of(levels.begin(), levels.end(), is_level);
}

/// What a process's report may lack, as those of older versions do.
inline const nlohmann::json& optional_of_reports() {
    static const auto example = nlohmann::json::parse(R"({
        "host": "", "begin_s": 1, "end_s": 1, "devices": [{
            "iterations": {"by": "", "share": 1, "alike": 1},
            "saving": {"saved_j": 1, "saved_low_j": 1, "saved_high_j": 1, "lost_s": 1},
            "report": {
                "idle_clock": {"time_s": 1, "times": 1, "waking_s": 1, "clock": {"core_mhz": 1}},
                "totals": {"unexplained_j": 1, "counted_time_s": 1, "idle_time_s": 1,
                           "outside_j": 1},
                "rows": [{"counted_time_s": 1,
                          "repeated": {"repeats": 1, "power_w": 1, "power_half_width_w": 1}}]
            }}]})");
    return example;
}

/// Whether all is there that is read of a process's report, which may be of another version.
inline bool is_report(const nlohmann::json& json) {
    static const auto example = nlohmann::json::parse(R"({
        "pid": 1, "rank": "", "ended": true, "notes": [""], "devices": [{
            "launches": 1, "iterations": {"count": 1, "launches": 1},
            "report": {
                "device": {"name": "", "address": ""},
                "totals": {"counter_j": 1, "kernels": {"status": ""}, "idle": {"status": ""}},
                "rows": [{"kernel": "", "variant": 1, "calls": 1, "metered_calls": 1, "time_s": 1,
                          "energy": {"status": ""}, "asked": {}, "applied": {},
                          "held_core_mhz": 1}],
                "levels": [{"level": "", "runs": 1, "time_s": 1, "energy": {"status": ""}}]
            }}]})");
    return resembles(json, example) && resembles(json, optional_of_reports(), false) &&
           std::all_of(json["devices"].begin(), json["devices"].end(),
                       [](const auto& device) { return has_energies(device["report"]); });
}

/// Removes numbers and texts that are null, so that readers need only ask whether they are there.
/// @param example what a value may have
inline void drop_unknown(nlohmann::json& value, const nlohmann::json& example) {
    if (example.is_array()) {
        for (nlohmann::json& each : value) drop_unknown(each, example.front());
    }
    if (!example.is_object() || !value.is_object()) return;
    for (const auto& item : example.items()) {
        const auto found = value.find(item.key());
        if (found == value.end()) continue;
        if (found->is_null() && !item.value().is_object()) {
            value.erase(found);
        } else {
            drop_unknown(*found, item.value());
        }
    }
}

/// Makes what was read of a process's report as others expect it; false where it is no report.
inline bool accept_report(nlohmann::json& json) {
    if (!is_report(json)) return false;
    drop_unknown(json, optional_of_reports());
    return true;
}

}  // namespace report_sums

/// The reports of processes in a file that `kdvfs run --report FILE.json` wrote.
/// @param remedy what to give instead
/// @throws Error (io) where it cannot be read, (invalid_input) where it is no such report
inline std::vector<nlohmann::json> read_run_report(
    const std::string& file,
    const std::string& remedy = "give what kdvfs run --report FILE.json wrote") {
    const auto refuse = [&](const char* why) {
        throw kdvfs::Error{kdvfs::Errc::invalid_input, {"read a report", file, why, remedy}};
    };
    constexpr int deepest = 32;
    bool too_deep = false;
    const auto watch = [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
        too_deep = too_deep || depth > deepest;
        return depth <= deepest;
    };
    auto report = nlohmann::json::parse(read_input(file).text, watch, /*allow_exceptions=*/false);
    if (too_deep) refuse("it is nested too deep");
    auto found = report.is_object() ? report.find("processes") : report.end();
    if (found == report.end() || !found->is_array()) refuse("it is no report of kdvfs run");
    for (nlohmann::json& process : *found)
        if (!report_sums::accept_report(process)) refuse("one of its processes has no report");
    return found->get<std::vector<nlohmann::json>>();
}

/// The reports in a folder, by rank where there are ranks, else by process. A file that is no
/// report is not looked at.
inline std::vector<nlohmann::json> read_attached_reports(const std::filesystem::path& folder) {
    std::vector<nlohmann::json> reports;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator{folder, ignored}) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with("attached.") || !name.ends_with(".json")) continue;
        std::ifstream file{entry.path()};
        auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
        if (report_sums::accept_report(json)) reports.push_back(std::move(json));
    }
    std::sort(reports.begin(), reports.end(), [](const auto& a, const auto& b) {
        const auto place = [](const nlohmann::json& report) {
            const std::string rank = report.value("rank", "");
            return std::make_tuple(rank.size(), rank, report.value("pid", 0));
        };
        return place(a) < place(b);
    });
    return reports;
}

namespace report_sums {

inline nlohmann::json unresolved_energy() {
    return {{"joules", nullptr}, {"half_width_95", nullptr}, {"status", "unresolved"}};
}

/// Of a row or level.
/// @param shared whether other processes were on the board at the same time
inline nlohmann::json energy_of(const nlohmann::json& item, bool shared) {
    return shared ? unresolved_energy() : item.at("energy");
}

/// An energy and its interval, summed: known where there are parts and all of them are; intervals
/// of parts add as those of independent errors.
struct EnergySum {
    double joules = 0;
    double variance = 0;
    std::size_t parts = 0;
    std::size_t known = 0;

    [[nodiscard]] bool resolved() const { return parts > 0 && known == parts; }
    void add(const nlohmann::json& energy) {
        ++parts;
        if (energy.value("status", "") != "resolved") return;
        ++known;
        joules += energy.value("joules", 0.0);
        variance += std::pow(energy.value("half_width_95", 0.0), 2);
    }
    void add(const EnergySum& other) {
        joules += other.joules;
        variance += other.variance;
        parts += other.parts;
        known += other.known;
    }
    [[nodiscard]] nlohmann::json json() const {
        if (!resolved()) return unresolved_energy();
        return {{"joules", joules}, {"half_width_95", std::sqrt(variance)}, {"status", "resolved"}};
    }
};

/// The half-width of a mean over the calls of several processes, whose errors are independent;
/// known where it is for each.
struct MeanHalfWidth {
    double calls = 0;
    double variance = 0;  ///< of the total
    bool known = true;

    /// @param half_width of the mean of so many calls; null where it is not known
    void add(double its_calls, const nlohmann::json& half_width) {
        if (its_calls <= 0) return;
        calls += its_calls;
        known = known && half_width.is_number();
        if (known) variance += std::pow(its_calls * half_width.get<double>(), 2);
    }
    [[nodiscard]] nlohmann::json json() const {
        return known && calls > 0 ? nlohmann::json(std::sqrt(variance) / calls) : nlohmann::json{};
    }
};

/// A row or level of several processes.
struct MergedItem {
    nlohmann::json item{};
    EnergySum energy{};
    MeanHalfWidth time{};

    /// @param calls      the key of how many were metered
    /// @param half_width the key of the half-width of their mean time
    void add(const nlohmann::json& part, bool shared, const char* calls, const char* half_width) {
        const double its_calls = part.value(calls, 0.0);
        if (its_calls > 0) energy.add(energy_of(part, shared));
        const auto found = part.find(half_width);
        time.add(its_calls, found == part.end() ? nlohmann::json{} : *found);
        item[half_width] = time.json();
        item["energy"] = energy.json();
    }
};

inline void add_number(nlohmann::json& sum, const nlohmann::json& part, const char* key) {
    if (!part.contains(key) || !part[key].is_number()) return;
    // A number of seconds or joules may happen to be whole.
    const bool counts =
        part[key].is_number_integer() && (!sum.contains(key) || sum[key].is_number_integer());
    if (counts) {
        sum[key] = sum.value(key, std::int64_t{0}) + part[key].get<std::int64_t>();
    } else {
        sum[key] = sum.value(key, 0.0) + part[key].get<double>();
    }
}

}  // namespace report_sums

/// Returns one report of all GPUs of all processes: rows of the same kernel and variant are added,
/// and so are levels; totals are those of the boards (`board_uses`); `processes` holds each
/// process's own report. `kdvfs report` draws it.
inline nlohmann::json merge_attached_reports(std::vector<nlohmann::json> processes) {
    using nlohmann::json;
    const std::vector<BoardUse> boards = board_uses(processes);
    std::vector<std::pair<const json*, bool>> reports;  // and whether its board was shared
    for (const BoardUse& board : boards) {
        for (const json* report : board.reports) reports.emplace_back(report, board.shared());
    }
    std::map<std::pair<std::string, std::uint32_t>, report_sums::MergedItem> rows;
    std::map<std::string, report_sums::MergedItem> levels;  // by range
    json totals = json::object();
    std::map<std::string, report_sums::EnergySum> parts;
    for (const auto& [report, shared] : reports) {
        for (const json& row : report->at("rows")) {
            auto& merged_row = rows[{row.value("kernel", ""), row.value("variant", 0U)}];
            json& sum = merged_row.item;
            if (sum.is_null()) {
                sum = {{"kernel", row["kernel"]}, {"variant", row["variant"]}};
            }
            for (const char* key : {"calls", "metered_calls", "time_s", "counted_time_s"}) {
                report_sums::add_number(sum, row, key);
            }
            merged_row.add(row, shared, "metered_calls", "call_time_half_width_s");
            sum["requested"] = sum["asked"] = row["asked"];
            sum["reported"] = sum["applied"] = row["applied"];
            sum["measured_core_mhz"] = sum["held_core_mhz"] = row["held_core_mhz"];
            if (row.contains("repeated") && !row["repeated"].is_null()) {
                sum["repeated"] = row["repeated"];
            }
        }
        for (const json& level : report->at("levels")) {
            const bool iteration = level["level"] == "iteration";
            const std::string name = iteration ? "" : level.value("kernel", "");
            auto& merged_level = levels[name];
            json& sum = merged_level.item;
            if (sum.is_null()) {
                sum = {{"level", level["level"]}, {"kernel", iteration ? json{} : json(name)}};
            }
            for (const char* key : {"runs", "time_s", "counted_time_s"}) {
                report_sums::add_number(sum, level, key);
            }
            merged_level.add(level, shared, "runs", "run_time_half_width_s");
        }
    }
    json shared_boards = json::array();
    for (const BoardUse& use : boards) {
        for (const char* key :
             {"counter_j", "unexplained_j", "counted_time_s", "idle_time_s", "outside_j"}) {
            report_sums::add_number(totals, use.totals(), key);
        }
        for (const char* key : {"kernels", "idle", "together"}) {
            const json unresolved = report_sums::unresolved_energy();
            parts[key].add(use.shared() ? unresolved : use.totals().value(key, unresolved));
        }
        if (use.shared()) shared_boards.push_back({{"host", use.host}, {"address", use.address}});
    }
    for (const auto& [key, sum] : parts) totals[key] = sum.json();
    totals["shared_boards"] = shared_boards;
    json merged{{"version", kdvfs::measure::report_json_version},
                {"device", reports.empty() ? json::object() : reports.front().first->at("device")},
                {"totals", std::move(totals)},
                {"rows", json::array()}};
    for (auto& [key, row] : rows) merged["rows"].push_back(std::move(row.item));
    merged["levels"] = json::array();
    for (auto& [range, level] : levels) merged["levels"].push_back(std::move(level.item));
    for (const char* list : {"rows", "levels"}) {
        std::stable_sort(merged[list].begin(), merged[list].end(),
                         [](const json& a, const json& b) {
                             return a.value("time_s", 0.0) > b.value("time_s", 0.0);
                         });
    }
    merged["processes"] = std::move(processes);
    return merged;
}

namespace report_sums {

/// A kernel for people: its name, and behind it the blocks of its grid and, where launches of one
/// name and grid are split by their times, the mean time of those.
/// @param row   of an attached process; its variant is `attach::grid_variant`, plus 64 for each
/// split
/// @param width of the whole: the name's middle is left out where it is longer
inline std::string shown_name(const nlohmann::json& row, std::size_t width) {
    const auto variant = row.value("variant", 0U);
    const unsigned power = variant % 64;
    std::string behind;
    if (power == 1) behind = ", 1 block";
    if (power > 1) {
        const auto least = std::uint64_t{1} << (power - 1);
        behind = ", " + std::to_string(least) + '-' + std::to_string(2 * least - 1) + " blocks";
    }
    const auto metered = row.value("metered_calls", 0LL);
    if (variant >= 64 && metered > 0) {
        behind += kdvfs::io::format_text(
            ", %.3g ms", 1e3 * row.value("time_s", 0.0) / static_cast<double>(metered));
    }
    const std::size_t room = width > behind.size() + 12 ? width - behind.size() : 12;
    return kdvfs::io::shortened(row.value("kernel", ""), room) + behind;
}

/// What a program that tunes itself has saved on a device of its report, in a line; empty where it
/// does not.
inline std::string saving_text(const nlohmann::json& device) {
    const auto saving = device.find("saving");
    if (saving == device.end() || !saving->is_object()) return {};
    const auto text = saving->find("text");
    if (text == saving->end() || !text->is_string()) return {};
    return "kdvfs: " + text->get<std::string>().substr(0, 400) + '\n';
}

/// A table of a merged report's ranges, `most` at most, those with most time; empty where there are
/// none.
inline std::string ranges_text(const nlohmann::json& merged, std::size_t most) {
    std::string text;
    std::size_t shown = 0;
    for (const nlohmann::json& level : merged["levels"]) {
        const auto runs = level.value("runs", 0LL);
        if (level["kernel"].is_null() || runs == 0) continue;
        if (shown == most) break;
        if (shown++ == 0) {
            text += kdvfs::io::format_text("%-58s %9s %11s %8s %22s %7s\n",
                                           "range, by the kernels in it", "runs", "time s",
                                           "ms/run", "energy", "J/run");
        }
        const nlohmann::json& its = level["energy"];
        double joules = its.value("status", "") == "resolved" ? its.value("joules", 0.0) : 0;
        // An interval that holds 0 tells nothing.
        if (joules > 0 && its.value("half_width_95", 0.0) >= joules) joules = 0;
        std::string energy = "unresolved";
        std::string each = "-";
        if (joules > 0) {
            energy =
                kdvfs::io::format_text("%.4g J +- %.2g", joules, its.value("half_width_95", 0.0));
            each = kdvfs::io::format_text("%.4g", joules / static_cast<double>(runs));
        }
        const double time = level.value("time_s", 0.0);
        text += kdvfs::io::format_text("%-58s %9lld %11.6g %8.4g %22s %7s\n",
                                       kdvfs::io::shortened(level.value("kernel", ""), 58).c_str(),
                                       runs, time, 1e3 * time / static_cast<double>(runs),
                                       energy.c_str(), each.c_str());
    }
    return text;
}

/// What the clock for the time without work did; empty where there was none.
inline std::string idle_text(const nlohmann::json& report) {
    const auto idle = report.find("idle_clock");
    if (idle == report.end() || !idle->is_object()) return "";
    return kdvfs::io::format_text(
        "kdvfs: without work %.3f s at %d MHz, in %lld rests; waking took %.4f s at most\n",
        idle->value("time_s", 0.0), idle->value(nlohmann::json::json_pointer{"/clock/core_mhz"}, 0),
        idle->value("times", 0LL), idle->value("waking_s", 0.0));
}

}  // namespace report_sums

/// A table of a merged report: kernels by time, `most` at most, and as many ranges.
inline std::string attached_text(const nlohmann::json& merged, std::size_t most) {
    using nlohmann::json;
    std::string text;
    const json& processes = merged["processes"];
    for (const json& process : processes) {
        for (const json& device : process["devices"]) {
            const json& iterations = device["iterations"];
            const std::string rank = process.value("rank", "");
            text += kdvfs::io::format_text(
                "kdvfs: process %d%s%s on %s: %lld launches, %lld iterations",
                process.value("pid", 0), rank.empty() ? "" : ", rank ", rank.c_str(),
                device["report"]["device"].value("name", "").c_str(), device.value("launches", 0LL),
                iterations.value("count", 0LL));
            if (iterations.value("by", nlohmann::json{}) == "period") {
                text += kdvfs::io::format_text(
                    " of %lld launches (%.0f %% of the time, %.1f %% alike)",
                    iterations.value("launches", 0LL), 100 * iterations.value("share", 0.0),
                    100 * iterations.value("alike", 0.0));
            }
            text += process.value("ended", false) ? "\n"
                                                  : "; it did not end by itself: the last "
                                                    "second may be missing\n";
            text += report_sums::saving_text(device) + report_sums::idle_text(device["report"]);
        }
        for (const json& note : process["notes"]) {
            text += "kdvfs: process " + std::to_string(process.value("pid", 0)) + ": " +
                    note.get<std::string>() + '\n';
        }
    }
    for (const json& board : merged["totals"]["shared_boards"]) {
        text += "kdvfs: several processes were on board " + board.value("address", "") +
                " at once: its total is known, no kernel's energy is\n";
    }
    const json& rows = merged["rows"];
    if (rows.empty()) return text;
    const json& totals = merged["totals"];
    const double time = totals.value("counted_time_s", 0.0);
    text += kdvfs::io::format_text("%-58s %9s %11s %8s %22s %7s\n", "kernel", "calls", "time s",
                                   "ms/call", "energy", "W");
    std::size_t shown = 0;
    for (const json& row : rows) {
        const double its = row.value("time_s", 0.0);
        const auto metered = row.value("metered_calls", 0LL);
        if (row.value("calls", 0LL) == 0) continue;
        if (++shown > most) break;
        const bool resolved = row["energy"].value("status", "") == "resolved" && its > 0;
        std::string energy = "unresolved";
        std::string watts = "-";
        if (resolved) {
            const double joules = row["energy"].value("joules", 0.0);
            energy = kdvfs::io::format_text("%.4g J +- %.2g", joules,
                                            row["energy"].value("half_width_95", 0.0));
            const double counted = row.value("counted_time_s", 0.0);
            if (counted > 0) watts = kdvfs::io::format_text("%.1f", joules / counted);
        }
        text += kdvfs::io::format_text("%-58s %9lld %11.6g %8.4g %22s %7s\n",
                                       report_sums::shown_name(row, 58).c_str(),
                                       row.value("calls", 0LL), its,
                                       metered > 0 ? 1e3 * its / static_cast<double>(metered) : 0,
                                       energy.c_str(), watts.c_str());
        if (row.contains("repeated") && row["repeated"].is_object()) {
            text += kdvfs::io::format_text("  repeated %lld times: %.1f W +- %.1f\n",
                                           row["repeated"].value("repeats", 0LL),
                                           row["repeated"].value("power_w", 0.0),
                                           row["repeated"].value("power_half_width_w", 0.0));
        }
    }
    text += report_sums::ranges_text(merged, most);
    const auto resolved = [&](const char* part) {
        return totals[part].value("status", "") == "resolved";
    };
    const auto sum = [&](const char* part) -> std::string {
        const json& energy = totals[part];
        if (!resolved(part)) return "unresolved";
        return kdvfs::io::format_text("%.5g J +- %.2g", energy.value("joules", 0.0),
                                      energy.value("half_width_95", 0.0));
    };
    const std::string parts = resolved("kernels") || !resolved("together")
                                  ? "kernels " + sum("kernels") + ", idle " + sum("idle")
                                  : "kernels and idle " + sum("together");
    return text + kdvfs::io::format_text("counter %.6g J over %.6g s = %s, unexplained %.4g J\n",
                                         totals.value("counter_j", 0.0), time, parts.c_str(),
                                         totals.value("unexplained_j", 0.0));
}

}  // namespace cli
