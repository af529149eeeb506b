// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/schedules.hpp>

#include <kdvfs/error.hpp>
#include <kdvfs/train/pipeline_shape.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if KDVFS_DEFINES_ENGINE

namespace kdvfs::inline v0_3::train {

namespace detail {

/// Reads the order of operations as text.
class ScheduleTextReader {
public:
    [[nodiscard]] PipelineShape read(std::string_view text) {
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = std::min(text.find('\n', begin), text.size());
            read_line(text.substr(begin, end - begin));
            begin = end + 1;
        }
        if (shape_.order.empty()) reject("the text", "it has no operations");
        if (has_weights_) split_backwards();
        shape_.schedule = Schedule::graph;
        shape_.stages = static_cast<std::uint32_t>(shape_.order.size());
        return std::move(shape_);
    }

private:
    [[noreturn]] void reject(const std::string& what, const std::string& why) const {
        throw Error{Errc::invalid_input,
                    {"read a schedule", "line " + std::to_string(line_), what + ": " + why,
                     "write operations as F0, B0, W0, F3.1 (microbatch.chunk) or F4+B1"}};
    }

    static bool is_space(char c) {
        return std::isspace(static_cast<unsigned char>(c)) != 0 || c == ',' || c == ';';
    }

    /// A stage: "stage 0: F0 F1 B0", the name of the stage is optional.
    void read_line(std::string_view line) {
        ++line_;
        line = line.substr(0, line.find('#'));
        if (const std::size_t colon = line.find(':'); colon != line.npos)
            line.remove_prefix(colon + 1);
        std::vector<Operation> stage;
        for (std::size_t at = 0; at < line.size();) {
            if (is_space(line[at])) {
                ++at;
                continue;
            }
            std::size_t end = at;
            while (end < line.size() && !is_space(line[end])) ++end;
            stage.push_back(operation(line.substr(at, end - at)));
            at = end;
        }
        if (stage.empty()) return;
        for (Operation& operation : stage)
            operation.stage = static_cast<std::uint32_t>(shape_.order.size());
        shape_.order.push_back(std::move(stage));
    }

    [[nodiscard]] Operation operation(std::string_view word) {
        const std::size_t plus = word.find('+');
        if (plus == word.npos) return part(word);
        Operation forward = part(word.substr(0, plus));
        Operation backward = part(word.substr(plus + 1));
        if (forward.pass == Pass::backward) std::swap(forward, backward);
        if (forward.pass != Pass::forward || backward.pass != Pass::backward)
            reject(std::string{word}, "only a forward and a backward run at the same time");
        forward.pass = Pass::forward_backward;
        forward.over_chunk = backward.chunk;
        forward.over_microbatch = backward.microbatch;
        return forward;
    }

    [[nodiscard]] Operation part(std::string_view word) {
        std::size_t letters = 0;
        while (letters < word.size() &&
               (std::isalpha(static_cast<unsigned char>(word[letters])) != 0 ||
                word[letters] == '_' || word[letters] == '-'))
            ++letters;
        Operation read;
        read.pass = pass(word.substr(0, letters));
        const std::size_t dot = std::min(word.find('.', letters), word.size());
        read.microbatch = number(word, word.substr(letters, dot - letters));
        if (dot < word.size()) read.chunk = number(word, word.substr(dot + 1));
        shape_.microbatches = std::max(shape_.microbatches, read.microbatch + 1);
        shape_.chunks = std::max(shape_.chunks, read.chunk + 1);
        return read;
    }

    [[nodiscard]] Pass pass(std::string_view written) {
        std::string name{written};
        for (char& c : name)
            c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        static constexpr std::pair<std::string_view, Pass> names[] = {
            {"f", Pass::forward},          {"forward", Pass::forward},
            {"b", Pass::backward},         {"backward", Pass::backward},
            {"i", Pass::backward_input},   {"input", Pass::backward_input},
            {"bi", Pass::backward_input},  {"backward_input", Pass::backward_input},
            {"w", Pass::backward_weight},  {"weight", Pass::backward_weight},
            {"bw", Pass::backward_weight}, {"backward_weight", Pass::backward_weight}};
        for (const auto& [known, pass] : names)
            if (name == known) {
                has_weights_ = has_weights_ || pass == Pass::backward_weight;
                return pass;
            }
        reject(std::string{written}, "it is no pass");
    }

    [[nodiscard]] std::uint32_t number(std::string_view word, std::string_view digits) const {
        std::uint32_t value = 0;
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (error != std::errc{} || end != digits.data() + digits.size() || value > 1'000'000)
            reject(std::string{word}, "it has no number of a microbatch, or of a chunk");
        return value;
    }

    /// Papers on zero bubbles write B for the part of a backward that other stages wait for. A B
    /// whose weight's part is not written is a whole one.
    void split_backwards() {
        for (auto& stage : shape_.order)
            for (Operation& operation : stage) {
                if (operation.pass != Pass::backward) continue;
                const bool is_split =
                    std::any_of(stage.begin(), stage.end(), [&](const Operation& other) {
                        return other.pass == Pass::backward_weight &&
                               other.microbatch == operation.microbatch &&
                               other.chunk == operation.chunk;
                    });
                if (is_split) operation.pass = Pass::backward_input;
            }
    }

    PipelineShape shape_;
    std::size_t line_ = 0;
    bool has_weights_ = false;
};

}  // namespace detail

KDVFS_INLINE PipelineShape parse_schedule(std::string_view text) {
    return detail::ScheduleTextReader{}.read(text);
}

}  // namespace kdvfs::inline v0_3::train

#endif
