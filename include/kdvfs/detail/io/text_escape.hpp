// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>

#include <locale.h>  // newlocale and uselocale are no part of <clocale>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace kdvfs::inline v0_3::io {

/// Lets this thread print numbers as the "C" locale does, whatever `setlocale` has been given.
class ClassicNumbers {
public:
    ClassicNumbers() : before_{::uselocale(classic())} {}
    ~ClassicNumbers() { ::uselocale(before_); }
    ClassicNumbers(const ClassicNumbers&) = delete;
    ClassicNumbers& operator=(const ClassicNumbers&) = delete;

private:
    static locale_t classic() {
        static const locale_t locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
        return locale;
    }

    locale_t before_;
};

/// As `printf` writes it in the "C" locale.
[[gnu::format(printf, 1, 2)]] inline std::string format_text(const char* format, ...) {
    const ClassicNumbers classic;
    std::va_list arguments;
    std::va_list again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, arguments);
    std::string text(static_cast<std::size_t>(std::max(length, 0)), '\0');
    std::vsnprintf(text.data(), text.size() + 1, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}

/// A JSON string with its quotes. Control characters are escaped; bytes that are not UTF-8 become
/// U+FFFD, because a driver's words may be anything and the file must stay valid.
inline std::string json_string(std::string_view text) {
    constexpr std::string_view hex = "0123456789abcdef";
    const auto continuation = [&](std::size_t at) {
        return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
    };
    std::string out = "\"";
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const std::size_t length = byte < 0x80                    ? 1
                                   : byte >= 0xC2 && byte <= 0xDF ? 2
                                   : byte >= 0xE0 && byte <= 0xEF ? 3
                                   : byte >= 0xF0 && byte <= 0xF4 ? 4
                                                                  : 0;
        bool whole = length > 0;
        for (std::size_t k = 1; k < length; ++k) whole = whole && continuation(i + k);
        if (!whole) {
            out += "\\ufffd";
        } else if (length > 1) {
            out += text.substr(i, length);
            i += length - 1;
        } else if (byte == '"' || byte == '\\') {
            out += '\\';
            out += text[i];
        } else if (byte < 0x20 || byte == 0x7F) {
            out += "\\u00";
            out += hex[byte >> 4U];
            out += hex[byte & 15U];
        } else {
            out += text[i];
        }
    }
    return out += '"';
}

/// A number that JSON and CSV can hold: the shortest text that reads back as the same double.
/// JSON has no word for what is not finite, hence null.
inline std::string json_number(double value) {
    if (!std::isfinite(value)) return "null";
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    return {digits.data(), end};
}

/// A field of CSV by RFC 4180: quoted where it has to be.
inline std::string csv_field(std::string_view text) {
    if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string{text};
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"') quoted += '"';
        quoted += c;
    }
    return quoted += '"';
}

/// A name for a column: of a long one, the beginning and the end.
inline std::string shortened(const std::string& name, std::size_t most = 56) {
    if (name.size() <= most) return name;
    const std::size_t end = most / 3;
    return name.substr(0, most - end - 3) + "..." + name.substr(name.size() - end);
}

}  // namespace kdvfs::inline v0_3::io
