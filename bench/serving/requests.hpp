// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/serve/step_table_csv.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// A request as a trace tells it.
struct Request {
    Seconds arrival{0};  ///< since the trace began
    std::uint32_t prompt_tokens = 1;
    std::uint32_t answer_tokens = 1;

    friend bool operator==(const Request&, const Request&) = default;
};

namespace detail {

/// The two kinds of trace: absolute seconds, or milliseconds since the request before.
struct TraceColumns {
    std::array<std::string_view, 3> names;
    bool relative_ms;
};
inline constexpr TraceColumns absolute_columns{{"arrival_s", "prompt_tokens", "answer_tokens"},
                                               false};
inline constexpr TraceColumns relative_columns{{"dms", "in", "out"}, true};

inline Request parse_request(const io::CsvReader& reader, const TraceColumns& columns,
                             const std::array<std::string, 3>& fields, Seconds before) {
    const double time = number_field<double>(reader, fields[0], columns.names[0]);
    if (!std::isfinite(time)) reader.fail("the time is not finite");
    Request request{columns.relative_ms ? before + Seconds{time / 1000} : Seconds{time},
                    number_field<std::uint32_t>(reader, fields[1], columns.names[1]),
                    number_field<std::uint32_t>(reader, fields[2], columns.names[2])};
    if (request.arrival < before) reader.fail("the time goes back");
    if (request.prompt_tokens == 0 || request.answer_tokens == 0)
        reader.fail("a request has at least one prompt token and one answer token");
    return request;
}

}  // namespace detail

/// Reads a trace of requests in order of arrival. Columns, others are ignored: either `arrival_s`
/// (seconds since the beginning), `prompt_tokens`, `answer_tokens`; or `dms` (milliseconds since
/// the request before), `in`, `out`.
/// @throws Error (invalid_input) naming file and line where a column is missing, time goes back,
///     a token count is zero, or there is no request at all
inline std::vector<Request> read_requests(std::istream& input, const std::string& name) {
    io::CsvReader reader{input, name, "docs/serving.md"};
    std::vector<std::string> fields;
    if (!reader.next(fields)) reader.fail("the file is empty");
    const std::size_t width = fields.size();
    const bool relative = std::find(fields.begin(), fields.end(), "dms") != fields.end();
    const auto& columns = relative ? detail::relative_columns : detail::absolute_columns;
    const auto places = detail::find_columns(reader, fields, columns.names);
    std::vector<Request> requests;
    Seconds before{0};
    while (reader.next(fields)) {
        kdvfs::detail::require_width(fields, width, reader);
        requests.push_back(detail::parse_request(
            reader, columns, {fields[places[0]], fields[places[1]], fields[places[2]]}, before));
        before = requests.back().arrival;
    }
    if (requests.empty()) reader.fail("there are no requests");
    return requests;
}

/// @throws Error (io, invalid_input)
inline std::vector<Request> read_requests(const std::filesystem::path& path) {
    std::ifstream input{path};
    if (!input) throw Error{Errc::io, {"open a trace", path.string(), "", "check the file's name"}};
    return read_requests(input, path.string());
}

}  // namespace kdvfs::inline v0_3::serve
