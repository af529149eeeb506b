// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// The words of a program behind "--". CLI11 expands an argument such as [a,b] of an option that
/// takes several to a and b, even there; with a mark at its end it does not.
namespace cli {

inline constexpr char word_mark = '\x1f';

/// Adds the option that takes a program and its arguments.
inline CLI::Option* add_program(CLI::App& sub, const std::string& name,
                                std::vector<std::string>& program, const std::string& text) {
    const auto without_mark = [](std::string word) {
        if (word.starts_with('[') && word.ends_with(word_mark)) word.pop_back();
        return word;
    };
    return sub.add_option(name, program, text)->transform(without_mark);
}

/// Whether a subcommand has such an option: "command", and "what" of `kdvfs worth`.
inline bool takes_program(const CLI::App& sub) {
    return sub.get_option_no_throw("command") != nullptr ||
           sub.get_option_no_throw("what") != nullptr;
}

/// Returns the command line with marks at those words that the option of `add_program` takes off.
inline std::vector<std::string> mark_program(const CLI::App& app, int argc,
                                             const char* const* argv) {
    std::vector<std::string> words{argv, argv + argc};
    const auto subs = app.get_subcommands(
        [&](const CLI::App* sub) { return words.size() > 1 && sub->get_name() == words[1]; });
    if (subs.empty() || !takes_program(*subs.front())) return words;
    bool is_program = false;
    for (std::string& word : words) {
        if (is_program && word.starts_with('[')) word += word_mark;
        is_program = is_program || word == "--";
    }
    return words;
}

}  // namespace cli
