// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// What one step (iteration) of an engine with continuous batching works on.
struct StepShape {
    std::uint32_t prompt_tokens = 0;   ///< read in this step, of all prompts together
    std::uint32_t sequences = 0;       ///< that get one more token each
    std::uint32_t context_tokens = 0;  ///< mean length of these sequences so far

    friend constexpr bool operator==(StepShape, StepShape) = default;
};

/// Prefill is bound by compute, decode by memory; a mixed step does both.
enum class Phase { idle, prefill, decode, mixed };

constexpr Phase phase_of(StepShape shape) {
    if (shape.prompt_tokens == 0) return shape.sequences == 0 ? Phase::idle : Phase::decode;
    return shape.sequences == 0 ? Phase::prefill : Phase::mixed;
}

constexpr std::string_view to_string(Phase phase) {
    switch (phase) {
        case Phase::idle: return "idle";
        case Phase::prefill: return "prefill";
        case Phase::decode: return "decode";
        case Phase::mixed: return "mixed";
    }
    return "unknown";
}

/// Sorts step shapes into variants, so that profiles, plans and reports can be keyed by them.
/// Each dimension has upper edges; a shape belongs to the first edge that is not below it. The
/// upper corner of a bucket stands for all its shapes: what keeps a latency there keeps it in the
/// whole bucket. Each shape has two variants, a relaxed one and an urgent one. What lies beyond
/// the last edge counts as the last, but is not `covered`. Constant: threads may share it.
class StepBuckets {
public:
    /// Positive, in ascending order.
    struct Edges {
        std::vector<std::uint32_t> prompt_tokens{64,  128, 192,  256,  320,  384, 448,
                                                 512, 768, 1024, 2048, 4096, 8192};
        std::vector<std::uint32_t> sequences{1,  2,  4,  6,  8,   12,  16,  24,
                                             32, 48, 64, 96, 128, 192, 256, 512};
        std::vector<std::uint32_t> context_tokens{512,  1024, 1536,  2048,  3072,
                                                  4096, 8192, 16384, 32768, 131072};
    };

    StepBuckets() : StepBuckets{Edges{}} {}
    /// @throws Error (invalid_input) where edges are missing, zero or do not ascend
    explicit StepBuckets(Edges edges) : edges_{std::move(edges)} {
        check(edges_.prompt_tokens, "prompt tokens");
        check(edges_.sequences, "sequences");
        check(edges_.context_tokens, "context tokens");
        // Index 0 of the first two dimensions means none at all.
        strides_[1] = edges_.context_tokens.size();
        strides_[0] = strides_[1] * (edges_.sequences.size() + 1);
    }

    [[nodiscard]] const Edges& edges() const { return edges_; }
    /// How many buckets there are; the variants are twice as many.
    [[nodiscard]] std::size_t size() const {
        return strides_[0] * (edges_.prompt_tokens.size() + 1);
    }

    /// The bucket of a shape: allocates nothing, three short searches.
    [[nodiscard]] std::size_t bucket(StepShape shape) const {
        std::size_t index = strides_[0] * place(edges_.prompt_tokens, shape.prompt_tokens);
        if (shape.sequences == 0) return index;
        index += strides_[1] * place(edges_.sequences, shape.sequences);
        const std::size_t context = place(edges_.context_tokens, shape.context_tokens);
        return index + (context == 0 ? 0 : context - 1);
    }

    /// Whether the corner of the shape's bucket is no smaller than the shape.
    [[nodiscard]] bool covered(StepShape shape) const {
        return shape.prompt_tokens <= edges_.prompt_tokens.back() &&
               shape.sequences <= edges_.sequences.back() &&
               (shape.sequences == 0 || shape.context_tokens <= edges_.context_tokens.back());
    }

    /// What kernels and phases are keyed by: even where there is time, odd where it is short.
    [[nodiscard]] Variant variant(StepShape shape, bool urgent) const {
        return {static_cast<std::uint32_t>(2 * bucket(shape) + (urgent ? 1 : 0))};
    }

    /// The largest shape of a bucket.
    [[nodiscard]] StepShape corner(std::size_t bucket) const {
        const std::size_t prompt = bucket / strides_[0];
        const std::size_t sequences = bucket % strides_[0] / strides_[1];
        const std::size_t context = bucket % strides_[1];
        return {prompt == 0 ? 0 : edges_.prompt_tokens[prompt - 1],
                sequences == 0 ? 0 : edges_.sequences[sequences - 1],
                sequences == 0 ? 0 : edges_.context_tokens[context]};
    }

private:
    static void check(const std::vector<std::uint32_t>& edges, const char* what) {
        const auto rises = [](std::uint32_t a, std::uint32_t b) { return b <= a; };
        if (!edges.empty() && edges.front() > 0 &&
            std::adjacent_find(edges.begin(), edges.end(), rises) == edges.end())
            return;
        throw Error{Errc::invalid_input,
                    {"sort steps into buckets", what, "", "give positive edges that ascend"}};
    }

    /// 0 for zero, else one more than the index of the edge.
    static std::size_t place(const std::vector<std::uint32_t>& edges, std::uint32_t value) {
        if (value == 0) return 0;
        const auto edge = std::lower_bound(edges.begin(), std::prev(edges.end()), value);
        return static_cast<std::size_t>(edge - edges.begin()) + 1;
    }

    Edges edges_;
    std::size_t strides_[2]{};
};

/// Which steps an engine did, counted by bucket, and how long its phases lasted. Record it at the
/// top clock, for some minutes of ordinary load. Not thread-safe.
class StepLoad {
public:
    explicit StepLoad(StepBuckets buckets)
        : buckets_{std::move(buckets)}, steps_(buckets_.size()), tokens_(buckets_.size()) {}

    /// A step and how long it took; an idle shape ends the phase.
    void add(StepShape shape, Seconds took) {
        const bool prompts = shape.prompt_tokens > 0;
        const bool idle = phase_of(shape) == Phase::idle;
        if (idle || before_ != (prompts ? 1 : 0)) before_ = -1;
        if (idle) return;
        Runs& runs = prompts ? with_prompts_ : decode_;
        if (before_ < 0) ++runs.count;
        runs.total += took;
        before_ = prompts ? 1 : 0;
        ++steps_[buckets_.bucket(shape)];
        tokens_[buckets_.bucket(shape)] += shape.sequences;
    }

    /// What another board did; both sort into the same buckets.
    void add(const StepLoad& other) {
        for (std::size_t bucket = 0; bucket < steps_.size(); ++bucket) {
            steps_[bucket] += other.steps_[bucket];
            tokens_[bucket] += other.tokens_[bucket];
        }
        with_prompts_.add(other.with_prompts_);
        decode_.add(other.decode_);
    }

    [[nodiscard]] const StepBuckets& buckets() const { return buckets_; }
    /// Steps of a bucket, and tokens that followed another token in them.
    [[nodiscard]] double steps(std::size_t bucket) const { return steps_[bucket]; }
    [[nodiscard]] double tokens(std::size_t bucket) const { return tokens_[bucket]; }
    /// Mean length of a row of steps with prompts, and of one without; 0 where none was seen.
    [[nodiscard]] Seconds prompt_phase() const { return with_prompts_.mean(); }
    [[nodiscard]] Seconds decode_phase() const { return decode_.mean(); }

private:
    struct Runs {
        double count = 0;
        Seconds total{0};
        void add(const Runs& other) {
            count += other.count;
            total += other.total;
        }
        [[nodiscard]] Seconds mean() const { return count == 0 ? Seconds{0} : total / count; }
    };

    StepBuckets buckets_;
    std::vector<double> steps_;
    std::vector<double> tokens_;
    Runs with_prompts_;
    Runs decode_;
    int before_ = -1;
};

}  // namespace kdvfs::inline v0_3::serve
