// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace amd_round {

/// What became of an assumption.
enum class Verdict { holds, broken, not_tried };

constexpr const char* to_string(Verdict verdict) {
    switch (verdict) {
        case Verdict::holds: return "yes";
        case Verdict::broken: return "NO";
        case Verdict::not_tried: break;
    }
    return "not tried";
}

/// The assumptions that kdvfs makes of an AMD GPU, and what was measured of each.
class Table {
public:
    void add(std::string assumption, std::string measured, bool holds) {
        push(
            {std::move(assumption), std::move(measured), holds ? Verdict::holds : Verdict::broken});
    }
    void leave_out(std::string assumption, std::string why) {
        push({std::move(assumption), std::move(why), Verdict::not_tried});
    }

    [[nodiscard]] bool all_hold() const {
        return std::none_of(rows_.begin(), rows_.end(),
                            [](const Row& row) { return row.verdict == Verdict::broken; });
    }

    void print() const {
        std::size_t width = 0;
        for (const Row& row : rows_) width = std::max(width, row.assumption.size());
        std::printf("\n%-*s | holds     | measured\n", static_cast<int>(width), "assumption");
        for (const Row& row : rows_) {
            std::printf("%-*s | %-9s | %s\n", static_cast<int>(width), row.assumption.c_str(),
                        to_string(row.verdict), row.measured.c_str());
        }
    }

    /// @returns whether it could be written
    [[nodiscard]] bool write_csv(const std::string& path) const {
        std::ofstream out{path};
        out << "assumption,holds,measured\n";
        for (const Row& row : rows_) {
            out << quoted(row.assumption) << ',' << to_string(row.verdict) << ','
                << quoted(row.measured) << '\n';
        }
        out.flush();
        return out.good();
    }

private:
    struct Row {
        std::string assumption;
        std::string measured;
        Verdict verdict;
    };

    /// Said at once, too: a round on a board that hangs must not end without a word.
    void push(Row row) {
        std::printf("%s: %s\n", row.assumption.c_str(), to_string(row.verdict));
        std::fflush(stdout);
        rows_.push_back(std::move(row));
    }

    static std::string quoted(const std::string& text) {
        std::string all = "\"";
        for (const char letter : text) all += letter == '"' ? "\"\"" : std::string{letter};
        return all + '"';
    }

    std::vector<Row> rows_;
};

/// "3.14" with `digits` digits behind the point.
inline std::string number(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

inline double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace amd_round
