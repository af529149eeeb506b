// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace cli {

/// One use of a board: the processes that were on it at the same time. They read the same counter,
/// so the board's energy is that of the process that saw most of it, never their sum.
struct BoardUse {
    std::string host;     ///< empty in reports of older versions
    std::string address;  ///< PCI address
    std::string name;
    std::vector<const nlohmann::json*> reports{};  ///< one a process; first that which saw most

    [[nodiscard]] const nlohmann::json& totals() const { return reports.front()->at("totals"); }

    /// Joules by the board's counter, metered or not.
    [[nodiscard]] double joules() const {
        return totals().value("counter_j", 0.0) + totals().value("outside_j", 0.0);
    }
    /// Whether several processes were on it at once: no energy of a kernel can be known then.
    [[nodiscard]] bool shared() const { return reports.size() > 1; }
};

/// The uses of all boards, by host, address and time. All sums of joules over processes are made of
/// these.
/// @param processes reports of attached processes; must outlive the result
inline std::vector<BoardUse> board_uses(const std::vector<nlohmann::json>& processes) {
    struct Visit {
        double begin;
        double end;
        const nlohmann::json* report;
    };
    std::map<std::pair<std::string, std::string>, std::vector<Visit>> visits;
    for (const nlohmann::json& process : processes) {
        constexpr double endless = std::numeric_limits<double>::infinity();
        for (const nlohmann::json& device : process["devices"]) {
            const nlohmann::json& report = device["report"];
            visits[{process.value("host", ""), report["device"].value("address", "")}].push_back(
                {process.value("begin_s", 0.0), process.value("end_s", endless), &report});
        }
    }
    std::vector<BoardUse> uses;
    for (auto& [place, its_visits] : visits) {
        std::stable_sort(its_visits.begin(), its_visits.end(),
                         [](const Visit& a, const Visit& b) { return a.begin < b.begin; });
        double until = -std::numeric_limits<double>::infinity();
        for (const Visit& visit : its_visits) {
            const nlohmann::json& report = *visit.report;
            if (visit.begin >= until) {
                uses.push_back({place.first, place.second, report["device"].value("name", "")});
            }
            until = std::max(until, visit.end);
            const BoardUse candidate{.host = {}, .address = {}, .name = {}, .reports = {&report}};
            BoardUse& use = uses.back();
            const bool most = use.reports.empty() || candidate.joules() > use.joules();
            use.reports.insert(most ? use.reports.begin() : use.reports.end(), &report);
        }
    }
    return uses;
}

}  // namespace cli
