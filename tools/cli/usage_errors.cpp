// SPDX-License-Identifier: MIT
#include <tools/cli/program_words.hpp>
#include <tools/cli/usage_errors.hpp>

#include <algorithm>
#include <cstddef>
#include <sstream>

namespace cli {
namespace {

/// Letters to insert, delete or replace (Levenshtein, 1966), two exchanged neighbours being one.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> cost(a.size() + 1,
                                               std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
    for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        for (std::size_t j = 1; j <= b.size(); ++j) {
            cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                                   cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    }
    return cost[a.size()][b.size()];
}

/// The subcommand that was being parsed, else the command itself.
const CLI::App& parsed_subcommand(const CLI::App& app) {
    const auto parsed = app.get_subcommands();
    return parsed.empty() ? app : *parsed.back();
}

std::vector<std::string> option_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    return names;
}

/// Of the arguments that CLI11 lists behind a colon the first that looks like an option, else the
/// last.
std::string unexpected(const std::string& message) {
    std::istringstream words{message.substr(std::min(message.rfind(": ") + 1, message.size()))};
    std::string found;
    for (std::string word; !found.starts_with('-') && words >> word;) found = word;
    return found;
}

/// "kdvfs plan --help"
std::string help_of(const CLI::App& app, const CLI::App& sub) {
    return "`kdvfs" + (&sub == &app ? "" : " " + sub.get_name()) + " --help`";
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
    std::string best;
    std::size_t least = 1 + word.size() / 4;  // of a short word little may differ
    for (const std::string& candidate : candidates) {
        const std::size_t its = distance(word, candidate);
        if (its >= (best.empty() ? least + 1 : least)) continue;
        least = its;
        best = candidate;
    }
    return best;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
        names.push_back(sub->get_name());
    return names;
}

std::string usage_error_text(const CLI::App& app, const CLI::Error& error) {
    const CLI::App& sub = parsed_subcommand(app);
    std::string mistake = error.what();
    std::string fix = "see " + help_of(app, sub);
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
        const std::string word = unexpected(mistake);
        mistake = "it takes no argument '" + word + "'";
        const std::string meant = word.starts_with('-')
                                      ? nearest(word.substr(0, word.find('=')), option_names(sub))
                                      : std::string{};
        if (!meant.empty())
            fix = "did you mean " + meant + "?";
        else if (takes_program(sub))
            fix = "put -- before a program's own arguments: kdvfs " + sub.get_name() +
                  " ... -- PROGRAM";
    } else if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) &&
               &sub == &app) {
        mistake = "no subcommand is given";
    }
    std::replace(mistake.begin(), mistake.end(), '\n', ' ');
    return "kdvfs" + (&sub == &app ? "" : " " + sub.get_name()) + ": " + mistake + "; " + fix +
           '\n';
}

}  // namespace cli
