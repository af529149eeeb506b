// SPDX-License-Identifier: MIT
#pragma once

#include "generator.hpp"

#include <kdvfs/error.hpp>
#include <kdvfs/serve/step.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace gpt {

/// A text to go on from, and by how many bytes.
struct GenerationRequest {
    int seed = 0;  ///< of its sampling
    std::vector<int> prompt;
    int answer_tokens = 1;
};

/// What a request has become.
struct Generated {
    GenerationRequest request;
    std::vector<int> answer;
};

/// What a step did, for who keeps statistics.
struct StepEvents {
    std::uint32_t in_batch = 0;
    std::uint32_t decoded = 0;
    std::uint32_t first_tokens = 0;
    std::vector<Generated> finished;
};

/// Continuous batching: each step gives every running sequence one more token, and reads up to a
/// chunk of prompt tokens beside, first come first served; the step that ends a prompt gives its
/// first token. Not thread-safe.
class Batcher {
public:
    /// @param chunk most prompt tokens of a step
    Batcher(const ModelShape& shape, int chunk) : shape_{shape}, chunk_{chunk} {
        for (int slot = shape.batch; slot-- > 0;) free_slots_.push_back(slot);
    }
    /// Of a step, at most.
    [[nodiscard]] static int most_rows(const ModelShape& shape, int chunk) {
        return shape.batch + chunk;
    }

    /// @throws kdvfs::Error for a request that never fits into the cache, or is empty
    void submit(GenerationRequest request) {
        const std::size_t all =
            request.prompt.size() + static_cast<std::size_t>(std::max(request.answer_tokens, 0));
        if (request.prompt.empty() || request.answer_tokens < 1 ||
            all > static_cast<std::size_t>(shape_.sequence)) {
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"serve a request", std::to_string(all) + " tokens",
                                "a sequence holds " + std::to_string(shape_.sequence),
                                "give a prompt, and ask for fewer bytes"}};
        }
        waiting_.push_back(std::move(request));
    }
    [[nodiscard]] bool idle() const { return waiting_.empty() && running_.empty(); }
    [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }

    /// Chooses the next step's tokens. @pre not idle
    [[nodiscard]] const StepTokens& next() {
        step_ = {};
        prompt_tokens_ = 0;
        read_before_ = 0;
        rows_of_.clear();
        for (std::size_t i = 0; i < running_.size(); ++i) {
            Sequence& sequence = running_[i];
            if (sequence.read < sequence.size()) continue;
            const int at = sequence.read + static_cast<int>(sequence.done.answer.size()) - 1;
            step_.add(sequence.done.answer.back(), sequence.slot, at, sequence.seed());
            sample_for(i);
        }
        decoded_ = static_cast<std::uint32_t>(rows_of_.size());
        for (std::size_t i = 0; i < running_.size(); ++i) read_prompt(i);
        while (prompt_tokens_ < chunk_ && !waiting_.empty() && !free_slots_.empty()) {
            running_.push_back({{std::move(waiting_.front()), {}}, free_slots_.back()});
            waiting_.pop_front();
            free_slots_.pop_back();
            read_prompt(running_.size() - 1);
        }
        return step_;
    }

    /// The shape of what `next` has chosen.
    [[nodiscard]] kdvfs::serve::StepShape shape() const {
        std::uint64_t context = 0;
        for (std::size_t i = 0; i < decoded_; ++i)
            context += static_cast<std::uint64_t>(step_.positions[i]) + 1;
        return {
            static_cast<std::uint32_t>(prompt_tokens_), decoded_,
            decoded_ == 0 ? 0 : static_cast<std::uint32_t>(context / decoded_),
            prompt_tokens_ == 0 ? 0 : static_cast<std::uint32_t>(read_before_ / prompt_tokens_)};
    }

    /// The step has given these bytes.
    StepEvents take(const std::vector<int>& bytes) {
        StepEvents events;
        events.in_batch = static_cast<std::uint32_t>(running_.size());
        events.decoded = decoded_;
        for (std::size_t b = 0; b < bytes.size(); ++b) {
            Generated& done = running_[rows_of_[b]].done;
            if (done.answer.empty()) ++events.first_tokens;
            done.answer.push_back(bytes[b]);
        }
        std::erase_if(running_, [&](Sequence& sequence) {
            if (static_cast<int>(sequence.done.answer.size()) < sequence.done.request.answer_tokens)
                return false;
            free_slots_.push_back(sequence.slot);
            events.finished.push_back(std::move(sequence.done));
            return true;
        });
        return events;
    }

private:
    struct Sequence {
        Generated done;
        int slot = 0;
        int read = 0;  ///< of the prompt

        [[nodiscard]] int size() const { return static_cast<int>(done.request.prompt.size()); }
        [[nodiscard]] int seed() const { return done.request.seed; }
    };

    void sample_for(std::size_t sequence) {
        step_.sampled.push_back(step_.rows() - 1);
        rows_of_.push_back(sequence);
    }
    void read_prompt(std::size_t index) {
        Sequence& sequence = running_[index];
        if (sequence.read == sequence.size()) return;
        const std::int64_t read = sequence.read;
        for (; sequence.read < sequence.size() && prompt_tokens_ < chunk_; ++prompt_tokens_) {
            read_before_ += read;
            step_.add(sequence.done.request.prompt[static_cast<std::size_t>(sequence.read)],
                      sequence.slot, sequence.read, sequence.seed());
            ++sequence.read;
        }
        if (sequence.read == sequence.size()) sample_for(index);
    }

    ModelShape shape_;
    int chunk_;
    std::deque<GenerationRequest> waiting_;
    std::vector<Sequence> running_;
    std::vector<int> free_slots_;
    StepTokens step_;
    std::vector<std::size_t> rows_of_;  ///< the sequence that each sampled byte goes to
    int prompt_tokens_ = 0;
    std::int64_t read_before_ = 0;  ///< in earlier steps, summed over these tokens
    std::uint32_t decoded_ = 0;
};

}  // namespace gpt
