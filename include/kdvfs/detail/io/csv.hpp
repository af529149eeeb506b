// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace kdvfs::detail {

/// Reads comma-separated values line by line (RFC 4180, fields without line breaks; LF or CRLF;
/// a UTF-8 byte order mark is skipped, as are empty lines) and knows the line for errors.
/// A last line without a line break is an error: the file may have been cut inside a number.
class CsvReader {
public:
    /// `name` is what errors call the input, usually the path.
    CsvReader(std::istream& input, std::string name) : input_{input}, name_{std::move(name)} {}

    /// The next line's fields; false at the end of the input.
    /// @throws Error (invalid_input) naming file and line.
    bool next(std::vector<std::string>& fields) {
        std::string text;
        do {
            if (!read_line(text)) return false;
        } while (text.empty());
        split(text, fields);
        return true;
    }

    [[nodiscard]] std::size_t line() const { return line_; }

    /// Rejects the line read last, or any other.
    [[noreturn]] void fail(const std::string& why, std::size_t line) const {
        throw Error{Errc::invalid_input,
                    {"read a CSV file", name_ + ':' + std::to_string(line), why,
                     "mend that line; README.md, \"Sweep files\", has the columns"}};
    }
    [[noreturn]] void fail(const std::string& why) const { fail(why, line_); }

private:
    static constexpr std::size_t longest_line = 64 * 1024;

    bool read_line(std::string& text) {
        text.clear();
        ++line_;
        for (int next = input_.get(); next != std::istream::traits_type::eof();
             next = input_.get()) {
            const char c = std::istream::traits_type::to_char_type(next);
            if (c == '\n') {
                finish_line(text);
                return true;
            }
            if (text.size() == longest_line) fail("the line is longer than 64 KiB");
            text.push_back(c);
        }
        if (input_.bad()) fail("the file cannot be read");
        if (text.empty()) return false;
        fail("the last line has no line break, so the file may be cut short");
    }

    void finish_line(std::string& text) const {
        if (!text.empty() && text.back() == '\r') text.pop_back();
        if (line_ == 1 && text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
        for (const char c : text)
            if (static_cast<unsigned char>(c) < ' ' && c != '\t')
                fail("there is a control character");
    }

    void split(std::string_view text, std::vector<std::string>& fields) const {
        fields.clear();
        for (bool more = true; more;) {
            fields.push_back(take_field(text));
            more = !text.empty();
            if (more && text.front() != ',') fail("there is text after a closing quote");
            if (more) text.remove_prefix(1);
        }
    }

    /// Takes one field off the front, leaving the comma behind it.
    std::string take_field(std::string_view& text) const {
        if (!text.starts_with('"')) {
            const std::size_t end = std::min(text.find(','), text.size());
            std::string field{text.substr(0, end)};
            text.remove_prefix(end);
            if (field.find('"') != std::string::npos) fail("there is a quote inside a bare field");
            return field;
        }
        std::string field;
        for (text.remove_prefix(1);; text.remove_prefix(1)) {
            if (text.empty()) fail("a quoted field does not end");
            if (text.starts_with("\"\""))
                text.remove_prefix(1);
            else if (text.front() == '"')
                break;
            field.push_back(text.front());
        }
        text.remove_prefix(1);
        return field;
    }

    std::istream& input_;
    std::string name_;
    std::size_t line_ = 0;
};

/// A whole text as a number; nothing if it is none or lies outside the type's range.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

/// Rejects a header that lacks columns, all of them at once, and says what other notation it sees.
inline void require_columns(const std::vector<std::string>& header,
                            std::initializer_list<const char*> needed, const CsvReader& reader) {
    std::string missing;
    for (const char* name : needed)
        if (std::find(header.begin(), header.end(), name) == header.end())
            missing += (missing.empty() ? "" : ", ") + std::string{name};
    if (missing.empty()) return;
    for (const auto& [separator, word] : {std::pair{';', "semicolons"}, std::pair{'\t', "tabs"}}) {
        if (header.size() == 1 && header.front().find(separator) != std::string::npos)
            reader.fail(std::string{"the columns are separated by "} + word +
                        "; write it with commas between columns, and points in numbers");
    }
    const bool one = missing.find(',') == std::string::npos;
    reader.fail((one ? "there is no column " : "there are no columns ") + missing);
}

/// Rejects a line that has not as many fields as the header.
inline void require_width(const std::vector<std::string>& fields, std::size_t width,
                          const CsvReader& reader) {
    if (fields.size() == width) return;
    reader.fail("there are " + std::to_string(fields.size()) + " fields instead of " +
                std::to_string(width) +
                (fields.size() > width ? "; numbers have decimal points, and texts with commas "
                                         "stand in quotes"
                                       : ""));
}

/// What to say of a field that is no number.
inline std::string number_fault(std::string_view text, const std::string& column) {
    const std::string shown = ": \"" + std::string{text.substr(0, 40)} + '"';
    std::string pointed{text};
    std::replace(pointed.begin(), pointed.end(), ',', '.');
    if (pointed != text && parse_number<double>(pointed))
        return column + " has a decimal comma" + shown + "; write " + pointed;
    return column + " is not a number in range" + shown;
}

/// A clock in MHz as sweep files write it: "-1" or "auto" for auto, else a whole number from 1 to
/// 100000, "810.0" included. Nothing for anything else, zero included.
inline std::optional<Megahertz> parse_clock(std::string_view text) {
    if (text == "auto") return auto_clock;
    const auto number = parse_number<double>(text);
    if (!number || !std::isfinite(*number) || *number != std::floor(*number)) return std::nullopt;
    if (*number == -1) return auto_clock;
    if (*number < 1 || *number > 100'000) return std::nullopt;
    return Megahertz{static_cast<std::uint32_t>(*number)};
}

/// The shortest text that reads back as the same number.
inline std::string to_text(double number) {
    char buffer[32];
    const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, number);
    return error == std::errc{} ? std::string{buffer, end} : std::string{"nan"};
}

/// A field as CSV, quoted where it must be.
inline std::string to_csv_field(std::string_view text) {
    if (text.find_first_of(",\"") == std::string_view::npos) return std::string{text};
    std::string quoted = "\"";
    for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
    return quoted + '"';
}

/// A clock as sweep files write it.
inline std::string to_csv_field(Megahertz clock) {
    return clock == auto_clock ? "auto" : std::to_string(clock.count);
}

}  // namespace kdvfs::detail
