// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/serve/recommend.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/text_options.hpp>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// `kdvfs recommend TABLE.csv ...`: exit status 3 where nothing meets the targets.
struct RecommendCommand {
    static constexpr int nothing_found = 3;

    std::string table;
    std::vector<std::string> targets;
    kdvfs::serve::Constraint constraint;
    std::string format = "table";
    std::string output;
    bool frontier = false;

    static void add_to(CLI::App& app) {
        auto command = std::make_shared<RecommendCommand>();
        CLI::App* sub = app.add_subcommand(
            "recommend", "Choose the measured configuration of least energy under latency targets");
        sub->add_option("table", command->table,
                        "CSV, a measured configuration a row; - for standard input")
            ->required();
        sub->add_option("--task", command->constraint.task, "Of the rows to choose from");
        sub->add_option("--model", command->constraint.model, "Of the rows to choose from");
        sub->add_option("--gpu", command->constraint.gpus, "GPUs to choose from, such as H100,B200")
            ->delimiter(',');
        sub->add_option("--target", command->targets,
                        "COLUMN=VALUE that a row must not exceed, such as itl_p50_ms=50")
            ->delimiter(',');
        sub->add_option("--energy", command->constraint.energy, "Column to make least")
            ->capture_default_str();
        sub->add_flag("--frontier", command->frontier,
                      "Also what no row beats in both the first target's column and energy");
        sub->add_option("--format", command->format, "Output")
            ->check(CLI::IsMember({"table", "json"}))
            ->capture_default_str();
        sub->add_option("-o,--output", command->output, "File to write instead of printing");
        sub->callback([command] { command->run(); });
    }

    /// @throws CLI::RuntimeError with status 3 where no row meets the targets
    void run() {
        using namespace kdvfs::serve;
        for (const std::string& target : targets) constraint.bounds.push_back(parse_bound(target));
        Input input{table};
        const ConfigurationTable rows{input.stream(), input.name()};
        const auto chosen = recommend(rows, constraint);
        const auto curve =
            frontier ? kdvfs::serve::frontier(rows, constraint) : std::vector<std::size_t>{};
        write(output, format == "json" ? json(rows, chosen, curve) : text(rows, chosen, curve));
        if (!chosen) throw CLI::RuntimeError{nothing_found};
    }

private:
    static kdvfs::serve::Bound parse_bound(const std::string& text) {
        const std::size_t sign = text.rfind('=');
        if (sign == std::string::npos || sign == 0)
            reject("--target", text, "give COLUMN=VALUE such as itl_p50_ms=50");
        const auto value = kdvfs::io::parse_number<double>(text.substr(sign + 1));
        if (!value || std::isnan(*value))
            reject("--target", text, "give COLUMN=VALUE such as itl_p50_ms=50");
        return {text.substr(0, sign), *value};
    }

    static nlohmann::ordered_json field(const std::string& text) {
        if (const auto whole = kdvfs::io::parse_number<std::int64_t>(text)) return *whole;
        if (const auto number = kdvfs::io::parse_number<double>(text))
            if (std::isfinite(*number)) return *number;
        return text;
    }

    /// `{"line": N, "row": {...}}`; the header of the file has line 1.
    static nlohmann::ordered_json row_json(const kdvfs::serve::ConfigurationTable& rows,
                                           std::size_t row) {
        nlohmann::ordered_json fields = nlohmann::ordered_json::object();
        for (std::size_t c = 0; c < rows.header().size(); ++c)
            fields[rows.header()[c]] = field(rows.row(row)[c]);
        return {{"line", rows.line(row)}, {"row", fields}};
    }

    /// The chosen row, or `null`; with a frontier an object in any case, `line` and `row` of which
    /// are null where nothing was found.
    [[nodiscard]] std::string json(const kdvfs::serve::ConfigurationTable& rows,
                                   std::optional<std::size_t> chosen,
                                   const std::vector<std::size_t>& curve) const {
        nlohmann::ordered_json result;
        if (chosen) result = row_json(rows, *chosen);
        if (frontier) {
            if (!chosen) result = {{"line", nullptr}, {"row", nullptr}};
            result["frontier"] = nlohmann::ordered_json::array();
            for (const std::size_t row : curve) result["frontier"].push_back(row_json(rows, row));
        }
        return result.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
    }

    [[nodiscard]] std::string text(const kdvfs::serve::ConfigurationTable& rows,
                                   std::optional<std::size_t> chosen,
                                   const std::vector<std::size_t>& curve) const {
        std::string text = "nothing meets the targets\n";
        if (chosen) {
            text = "line " + std::to_string(rows.line(*chosen)) + '\n';
            for (std::size_t c = 0; c < rows.header().size(); ++c)
                text += "  " + rows.header()[c] + ": " + rows.row(*chosen)[c] + '\n';
        }
        if (!frontier) return text;
        const std::size_t latency = rows.column(constraint.bounds.front().column);
        const std::size_t energy = rows.column(constraint.energy);
        text += "frontier: line, " + rows.header()[latency] + ", " + rows.header()[energy] + '\n';
        for (const std::size_t row : curve)
            text += "  " + std::to_string(rows.line(row)) + "  " + rows.row(row)[latency] + "  " +
                    rows.row(row)[energy] + '\n';
        return text;
    }
};

}  // namespace cli
