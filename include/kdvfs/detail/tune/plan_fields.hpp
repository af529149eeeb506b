// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

namespace detail {

inline nlohmann::ordered_json clock_json(Megahertz clock) {
    if (clock == auto_clock) return -1;
    return clock.count;
}

/// The best single clock point for everything.
inline nlohmann::ordered_json static_json(ClockPoint clock, const Cost& cost,
                                          const Cost& baseline) {
    return {{"core_mhz", clock_json(clock.core)},
            {"mem_mhz", clock_json(clock.memory)},
            {"time_pct", time_percent(cost, baseline)},
            {"energy_pct", energy_percent(cost, baseline)}};
}

/// Takes fields out of a parsed plan file, and names the one that is wrong.
class PlanFields {
public:
    PlanFields(const nlohmann::json& json, std::string file, std::string place)
        : json_{json}, file_{std::move(file)}, place_{std::move(place)} {
        if (!json_.is_object()) fail("", "is no object");
    }

    [[noreturn]] void fail(const std::string& field, const std::string& why) const {
        throw Error{Errc::invalid_input,
                    {"read a file of kdvfs", file_, place_ + field + " " + why,
                     "fix that field, or write the file again"}};
    }
    [[nodiscard]] const nlohmann::json& get(const char* field) const {
        const auto found = json_.find(field);
        if (found == json_.end()) fail(field, "is missing");
        return *found;
    }
    [[nodiscard]] bool has(const char* field) const { return json_.contains(field); }
    [[nodiscard]] PlanFields object(const char* field) const {
        return {get(field), file_, place_ + field + "."};
    }
    [[nodiscard]] double number(const char* field, double least) const {
        const nlohmann::json& value = get(field);
        if (!value.is_number()) fail(field, "is no number");
        const double number = value.get<double>();
        if (!std::isfinite(number) || number < least) fail(field, "is out of range");
        return number;
    }
    [[nodiscard]] std::uint32_t integer(const char* field, std::uint32_t otherwise) const {
        const auto found = json_.find(field);
        if (found == json_.end()) return otherwise;
        if (!found->is_number_unsigned() ||
            found->get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max())
            fail(field, "is no whole number in range");
        return found->get<std::uint32_t>();
    }
    [[nodiscard]] std::string text(const char* field) const {
        const nlohmann::json& value = get(field);
        if (!value.is_string()) fail(field, "is no text");
        return value.get<std::string>();
    }
    [[nodiscard]] Megahertz clock(const char* field) const {
        const double number = this->number(field, -1);
        if (number == -1) return auto_clock;
        if (number < 1 || number > 100'000 || number != std::floor(number))
            fail(field, "is no clock (1 to 100000 whole MHz, or -1 for auto)");
        return {static_cast<std::uint32_t>(number)};
    }
    [[nodiscard]] Cost cost(const char* time, const char* energy) const {
        const Cost cost{Seconds{number(time, 0)}, Joules{number(energy, 0)}};
        if (cost.time.count() <= 0) fail(time, "is not above zero");
        return cost;
    }

private:
    const nlohmann::json& json_;
    std::string file_;
    std::string place_;
};

/// JSON text as a value. Rejects keys that are there twice and nesting deeper than plans have.
inline nlohmann::json parse_json(std::string_view text, const std::string& file) {
    std::vector<std::set<std::string>> keys;
    std::string fault;
    const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
        if (depth > 8 && fault.empty()) fault = "it is nested too deep";
        keys.resize(static_cast<std::size_t>(std::max(depth, 0)) + 1);
        if (event == nlohmann::json::parse_event_t::key &&
            !keys.back().insert(parsed.get<std::string>()).second && fault.empty())
            fault = "the key " + parsed.dump() + " is there twice";
        return true;
    };
    const auto fail = [&](const std::string& object, const std::string& why) {
        throw Error{
            Errc::invalid_input,
            {"read a file of kdvfs", object, why, "fix that place, or write the file again"}};
    };
    nlohmann::json json;
    try {
        json = nlohmann::json::parse(text, watch);
    } catch (const nlohmann::json::parse_error& error) {
        const std::size_t end = std::min(error.byte, text.size());
        const auto line =
            1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
        fail(file + ':' + std::to_string(line), "this is no JSON");
    } catch (const nlohmann::json::exception& error) {
        fail(file, error.what());
    }
    if (!fault.empty()) fail(file, fault);
    return json;
}

}  // namespace detail

using detail::parse_json;
using detail::PlanFields;
using detail::static_json;

}  // namespace kdvfs::inline v0_3::tune
