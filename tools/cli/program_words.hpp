// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// The words behind "--", a program's or files. CLI11 expands an argument such as [a,b] of an
/// option that takes several to a and b, even there; with a mark at its end it does not.
namespace cli {

inline constexpr char word_mark = '\x1f';

/// Adds the option that takes a program and its arguments.
inline CLI::Option* add_program(CLI::App& sub, const std::string& name,
                                std::vector<std::string>& program, const std::string& text) {
    return sub.add_option(name, program, text);
}

/// Whether a subcommand has such an option: "command", and "what" of `kdvfs worth`.
inline bool takes_program(const CLI::App& sub) {
    return sub.get_option_no_throw("command") != nullptr ||
           sub.get_option_no_throw("what") != nullptr;
}

/// Returns the command line with marks at those words behind "--" that need one; the arguments of
/// its subcommand take them off.
inline std::vector<std::string> mark_words(CLI::App& app, int argc, const char* const* argv) {
    std::vector<std::string> words{argv, argv + argc};
    const auto subs = app.get_subcommands(
        [&](CLI::App* sub) { return words.size() > 1 && sub->get_name() == words[1]; });
    if (subs.empty()) return words;
    const auto without_mark = [](std::string word) {
        if (word.starts_with('[') && word.ends_with(word_mark)) word.pop_back();
        return word;
    };
    for (CLI::Option* option : subs.front()->get_options())
        if (option->get_positional()) option->transform(without_mark);
    bool behind = false;
    for (std::string& word : words) {
        if (behind && word.starts_with('[')) word += word_mark;
        behind = behind || word == "--";
    }
    return words;
}

}  // namespace cli
