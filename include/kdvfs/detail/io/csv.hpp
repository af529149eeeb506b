// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <istream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::io {

/// Reads comma-separated values line by line (RFC 4180, fields without line breaks; LF or CRLF;
/// a UTF-8 byte order mark is skipped, as are empty lines) and knows the line for errors.
/// A last line without a line break is an error: the file may have been cut inside a number.
class CsvReader {
public:
    /// `name` is what errors call the input, usually the path; `guide` is the page that has its
    /// columns.
    CsvReader(std::istream& input, std::string name, std::string_view guide = "docs/sweeps.md")
        : input_{input}, name_{std::move(name)}, guide_{guide} {}

    /// The next line's fields, which stay valid until the next call; false at the end of the input.
    /// @throws Error (invalid_input) naming file and line.
    bool next(std::vector<std::string_view>& fields) {
        std::span<char> text;
        do {
            if (!read_line(text)) return false;
        } while (text.empty());
        split(text, fields);
        return true;
    }
    bool next(std::vector<std::string>& fields) {
        const bool found = next(views_);
        fields.assign(found ? views_.begin() : views_.end(), views_.end());
        return found;
    }

    [[nodiscard]] std::size_t line() const { return line_; }

    /// Rejects the line read last, or any other.
    [[noreturn]] void fail(const std::string& why, std::size_t line) const {
        throw Error{Errc::invalid_input,
                    {"read a CSV file", name_ + ':' + std::to_string(line), why,
                     "fix that line; " + std::string{guide_} + " has the columns"}};
    }
    [[noreturn]] void fail(const std::string& why) const { fail(why, line_); }

private:
    static constexpr std::size_t longest_line = 64U << 10U;

    /// A line without its break; false at the end of the input.
    bool read_line(std::span<char>& text) {
        ++line_;
        std::size_t searched = 0;
        for (;;) {
            const std::size_t end = buffer_.find('\n', begin_ + searched);
            if (std::min(end, buffer_.size()) - begin_ > longest_line)
                fail("the line is longer than 64 KiB");
            if (end != std::string::npos) {
                text = {buffer_.data() + begin_, end - begin_};
                begin_ = end + 1;
                finish_line(text);
                return true;
            }
            searched = buffer_.size() - begin_;
            if (!refill()) break;
        }
        if (input_.bad()) fail("the file cannot be read");
        if (begin_ == buffer_.size()) return false;
        fail("the last line has no line break, so the file may be cut short");
    }

    /// Gets more of the input behind what has not been looked at.
    bool refill() {
        buffer_.erase(0, begin_);
        begin_ = 0;
        const std::size_t kept = buffer_.size();
        buffer_.resize(kept + longest_line);
        input_.read(buffer_.data() + kept, static_cast<std::streamsize>(longest_line));
        buffer_.resize(kept + static_cast<std::size_t>(input_.gcount()));
        return buffer_.size() > kept;
    }

    void finish_line(std::span<char>& text) const {
        if (!text.empty() && text.back() == '\r') text = text.first(text.size() - 1);
        constexpr std::string_view mark = "\xEF\xBB\xBF";
        if (line_ == 1 && std::string_view{text.data(), text.size()}.starts_with(mark))
            text = text.subspan(mark.size());
        const auto is_control = [](char c) {
            return static_cast<unsigned char>(c) < ' ' && c != '\t';
        };
        std::span<const char> rest = text;
        for (std::uint64_t eight = 0; rest.size() >= sizeof eight;
             rest = rest.subspan(sizeof eight)) {
            std::memcpy(&eight, rest.data(), sizeof eight);
            // Any byte below a space sets its highest bit here.
            constexpr std::uint64_t each = 0x0101010101010101;
            if (((eight - each * ' ') & ~eight & each * 0x80) != 0) break;
        }
        if (std::any_of(rest.begin(), rest.end(), is_control)) fail("there is a control character");
    }

    void split(std::span<char> text, std::vector<std::string_view>& fields) const {
        fields.clear();
        for (bool more = true; more;) {
            fields.push_back(take_field(text));
            more = !text.empty();
            if (more && text.front() != ',') fail("there is text after a closing quote");
            if (more) text = text.subspan(1);
        }
    }

    /// Takes one field off the front, leaving the comma behind it; a quoted one is rewritten in
    /// its place.
    std::string_view take_field(std::span<char>& text) const {
        if (text.empty() || text.front() != '"') {
            std::size_t size = 0;  // fields are short: looked at once, not by calls of memchr
            for (; size < text.size() && text[size] != ','; ++size)
                if (text[size] == '"') fail("there is a quote inside a bare field");
            const std::string_view field{text.data(), size};
            text = text.subspan(size);
            return field;
        }
        std::size_t length = 0;
        std::size_t at = 1;
        for (;; ++at, ++length) {
            if (at == text.size()) fail("a quoted field does not end");
            if (text[at] == '"') {
                if (at + 1 == text.size() || text[at + 1] != '"') break;
                ++at;
            }
            text[length] = text[at];
        }
        const std::string_view field{text.data(), length};
        text = text.subspan(at + 1);
        return field;
    }

    std::istream& input_;
    std::string name_;
    std::string_view guide_;
    std::size_t line_ = 0;
    std::string buffer_;
    std::size_t begin_ = 0;  ///< of what has not been looked at
    std::vector<std::string_view> views_;
};

/// A whole text as a number; nothing if it is none or lies outside the type's range.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

/// What to say of a header that lacks columns, all of them at once, and what other notation it
/// seems to have; empty where it lacks none.
template <class Names>
std::string columns_fault(const std::vector<std::string>& header, const Names& needed) {
    std::string missing;
    bool one = true;
    for (const std::string_view name : needed) {
        if (std::find(header.begin(), header.end(), name) != header.end()) continue;
        one = missing.empty();
        missing.append(one ? "" : ", ").append(name);
    }
    if (missing.empty()) return "";
    for (const auto& [separator, word] : {std::pair{';', "semicolons"}, std::pair{'\t', "tabs"}}) {
        if (header.size() == 1 && header.front().find(separator) != std::string::npos)
            return std::string{"the columns are separated by "} + word +
                   "; write it with commas between columns, and points in numbers";
    }
    return (one ? "there is no column " : "there are no columns ") + missing;
}

/// Rejects a header that lacks columns.
template <class Names = std::initializer_list<std::string_view>>
void require_columns(const std::vector<std::string>& header, const Names& needed,
                     const CsvReader& reader) {
    if (const std::string fault = columns_fault(header, needed); !fault.empty()) reader.fail(fault);
}

/// Rejects a line that has not as many fields as the header.
template <class Field>
void require_width(const std::vector<Field>& fields, std::size_t width, const CsvReader& reader) {
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

/// A clock as sweep files write it.
inline std::string to_csv_field(Megahertz clock) {
    return clock == auto_clock ? "auto" : std::to_string(clock.count);
}

}  // namespace kdvfs::inline v0_3::io
