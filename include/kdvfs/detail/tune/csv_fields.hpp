// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

/// Fields of the CSV files of this room.
namespace kdvfs::inline v0_3::tune::detail {

template <class Number>
Number parse_field(std::string_view text, const char* column, const io::CsvReader& reader) {
    const auto value = kdvfs::detail::parse_number<Number>(text);
    if (!value) reader.fail(kdvfs::detail::number_fault(text, column));
    return *value;
}

inline std::uint32_t parse_optional(std::string_view text, std::uint32_t otherwise,
                                    const char* column, const io::CsvReader& reader) {
    return text.empty() ? otherwise : parse_field<std::uint32_t>(text, column, reader);
}

/// 0 where there is nothing.
inline Joules parse_joules(std::string_view text, const char* column, const io::CsvReader& reader) {
    return {text.empty() ? 0 : parse_field<double>(text, column, reader)};
}

/// A name and its variant. Where no column says the variant, the name may: "sort#2".
inline void parse_key(std::string_view kernel, std::string_view variant_text,
                      const io::CsvReader& reader, KernelKey& key) {
    if (!variant_text.empty() || !ends_in_variant(kernel)) {
        key.name = kernel;
        key.variant = variant(parse_optional(variant_text, 0, "variant", reader));
        return;
    }
    const std::size_t hash = kernel.rfind('#');
    key.variant =
        variant(parse_field<std::uint32_t>(kernel.substr(hash + 1), "kernel#variant", reader));
    key.name = kernel.substr(0, hash);
}

inline Megahertz parse_clock_field(std::string_view text, const char* column,
                                   const io::CsvReader& reader) {
    const auto clock = kdvfs::detail::parse_clock(text);
    if (!clock)
        reader.fail(std::string{column} + " is no clock (1 to 100000 whole MHz, -1 or auto): \"" +
                    std::string{text.substr(0, 40)} + '"');
    return *clock;
}

inline bool parse_flag(std::string_view text, const char* column, const io::CsvReader& reader) {
    if (text.empty() || text == "0" || text == "false") return false;
    if (text == "1" || text == "true") return true;
    reader.fail(std::string{column} + " is neither 0 nor 1");
}

/// The columns that a header names; missing ones that are needed are an error.
class NamedColumns {
public:
    NamedColumns(io::CsvReader& reader, std::initializer_list<const char*> needed)
        : reader_{reader} {
        if (!reader.next(header_)) reader.fail("the file is empty");
        kdvfs::detail::require_columns(header_, needed, reader);
    }
    bool next() {
        if (!reader_.next(fields_)) return false;
        kdvfs::detail::require_width(fields_, header_.size(), reader_);
        return true;
    }
    [[nodiscard]] bool has(const char* name) const {
        return std::find(header_.begin(), header_.end(), name) != header_.end();
    }
    [[nodiscard]] std::string get(const char* name) const {
        const auto at = std::find(header_.begin(), header_.end(), name);
        return at == header_.end() ? "" : fields_[static_cast<std::size_t>(at - header_.begin())];
    }

private:
    io::CsvReader& reader_;
    std::vector<std::string> header_;
    std::vector<std::string> fields_;
};

inline std::ifstream open_input(const std::filesystem::path& path) {
    std::ifstream input{path, std::ios::binary};
    if (!input) kdvfs::detail::throw_file_error("open a file", path, errno);
    return input;
}

inline Seconds parse_delay(const NamedColumns& columns, const char* name,
                           const io::CsvReader& reader) {
    const std::string text = columns.get(name);
    if (text.empty()) return Seconds{0};
    const auto seconds = parse_field<double>(text, name, reader);
    if (!(seconds >= 0 && seconds <= 100))
        reader.fail(std::string{name} + " is no time from 0 to 100 s");
    return Seconds{seconds};
}

}  // namespace kdvfs::inline v0_3::tune::detail
