// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/kernel.hpp>

#include <chrono>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>

namespace kdvfs::inline v0_3::io {

/// Text that is JSON already, such as a number with fixed decimals.
struct JsonText {
    std::string text;
};

/// A list with each item on a line of its own.
template <class Items>
struct JsonLines {
    const Items& items;
};
template <class Items>
JsonLines(const Items&) -> JsonLines<Items>;

template <class Value>
void append_json(std::string& text, const Value& value);

class JsonFields;

/// What `append_json` takes, beside numbers and text.
template <class Value>
concept JsonOptional = requires(const Value& value) {
    value.has_value();
};
template <class Value>
concept JsonTime = requires {
    typename Value::period;
};
template <class Value>
concept JsonObject = requires(JsonFields& fields, const Value& value) {
    write_fields(fields, value);
};
template <class Value>
concept JsonList = requires(const Value& value) {
    value.begin();
};
template <class Value>
concept JsonListOfLines = requires(const Value& value) {
    value.items;
};

/// The fields of a JSON object, appended to a text in the order of the calls: `object("key",
/// value)`. Numbers are the shortest text that reads back the same, units are their count, times
/// are seconds; what is not finite and an empty optional are null. A function of a `JsonFields&`
/// writes an object; so does `write_fields(JsonFields&, value)`, found by the value's namespace.
class JsonFields {
public:
    explicit JsonFields(std::string& text) : text_{text} {}

    template <class Value>
    JsonFields& operator()(std::string_view key, const Value& value) {
        text_ += comma_;
        comma_ = ",";
        text_ += json_string(key) + ':';
        append_json(text_, value);
        return *this;
    }

private:
    std::string& text_;
    const char* comma_ = "";
};

template <class Items>
void append_json_list(std::string& text, const Items& items, const char* space) {
    text += '[';
    const char* comma = "";
    for (const auto& item : items) {
        text += comma;
        text += space;
        append_json(text, item);
        comma = ",";
    }
    text += ']';
}

/// Appends a value as JSON; see `JsonFields`.
template <class Value>
void append_json(std::string& text, const Value& value) {
    if constexpr (std::same_as<Value, bool>) {
        text += value ? "true" : "false";
    } else if constexpr (std::integral<Value>) {
        text += std::to_string(value);
    } else if constexpr (std::floating_point<Value>) {
        text += json_number(value);
    } else if constexpr (std::convertible_to<Value, std::string_view>) {
        text += json_string(value);
    } else if constexpr (std::same_as<Value, JsonText>) {
        text += value.text;
    } else if constexpr (std::invocable<const Value&, JsonFields&>) {
        JsonFields fields{text += '{'};
        value(fields);
        text += '}';
    } else if constexpr (std::same_as<Value, std::nullopt_t>) {
        text += "null";
    } else if constexpr (JsonOptional<Value>) {
        value ? append_json(text, *value) : append_json(text, std::nullopt);
    } else if constexpr (JsonTime<Value>) {
        append_json(text, std::chrono::duration<double>{value}.count());
    } else if constexpr (JsonObject<Value>) {
        append_json(text, [&](JsonFields& fields) { write_fields(fields, value); });
    } else if constexpr (JsonList<Value>) {
        append_json_list(text, value, "");
    } else if constexpr (JsonListOfLines<Value>) {
        append_json_list(text, value.items, "\n");
    } else {
        append_json(text, value.count);
    }
}

inline void write_fields(JsonFields& out, const KernelKey& key) {
    out("kernel", key.name)("variant", key.variant.index);
}

inline void write_fields(JsonFields& out, ClockPoint point) {
    out("core_mhz", point.core)("memory_mhz", point.memory);
}

}  // namespace kdvfs::inline v0_3::io
