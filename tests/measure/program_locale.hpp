// SPDX-License-Identifier: MIT
#pragma once

#include <clocale>
#include <locale>
#include <string>

/// While it lives, streams of this program group digits by two and have a decimal comma: "1.23,5".
class GroupedNumbers {
public:
    GroupedNumbers()
        : before_{std::locale::global(std::locale{std::locale::classic(), new Punctuation})} {}
    ~GroupedNumbers() { std::locale::global(before_); }
    GroupedNumbers(const GroupedNumbers&) = delete;
    GroupedNumbers& operator=(const GroupedNumbers&) = delete;

private:
    struct Punctuation : std::numpunct<char> {
        char do_decimal_point() const override { return ','; }
        char do_thousands_sep() const override { return '.'; }
        std::string do_grouping() const override { return "\2"; }
    };

    std::locale before_;
};

/// While it lives, `printf` writes a decimal comma, where the machine has such a locale.
class CommaOfPrintf {
public:
    CommaOfPrintf() {
        for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"})
            if (!holds_) holds_ = std::setlocale(LC_ALL, name) != nullptr;
    }
    ~CommaOfPrintf() { std::setlocale(LC_ALL, "C"); }
    CommaOfPrintf(const CommaOfPrintf&) = delete;
    CommaOfPrintf& operator=(const CommaOfPrintf&) = delete;

    [[nodiscard]] bool holds() const { return holds_; }

private:
    bool holds_ = false;
};
