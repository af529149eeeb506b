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
    /// Mean number of tokens of their prompt that earlier steps read, or a cache held, over the
    /// prompt tokens of this step: attention reads these, too.
    std::uint32_t prompt_context = 0;

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
        std::vector<std::uint32_t> prompt_context{2048, 8192, 131072};
    };

    StepBuckets() : StepBuckets{Edges{}} {}
    /// @throws Error (invalid_input) where edges are missing, zero or do not ascend
    explicit StepBuckets(Edges edges) : edges_{std::move(edges)} {
        check(edges_.prompt_tokens, "prompt tokens");
        check(edges_.sequences, "sequences");
        check(edges_.context_tokens, "context tokens");
        check(edges_.prompt_context, "tokens read before");
        // Index 0 of the first two dimensions means none at all.
        strides_[1] = edges_.context_tokens.size();
        strides_[0] = strides_[1] * (edges_.sequences.size() + 1);
    }

    [[nodiscard]] const Edges& edges() const { return edges_; }
    /// How many buckets there are; the variants are twice as many.
    [[nodiscard]] std::size_t size() const {
        return strides_[0] * (edges_.prompt_tokens.size() * edges_.prompt_context.size() + 1);
    }

    /// The bucket of a shape: allocates nothing, four short searches.
    [[nodiscard]] std::size_t bucket(StepShape shape) const {
        std::size_t prompt = place(edges_.prompt_tokens, shape.prompt_tokens);
        if (prompt > 0 && shape.prompt_context > 0)
            prompt += edges_.prompt_tokens.size() *
                      (place(edges_.prompt_context, shape.prompt_context) - 1);
        std::size_t index = strides_[0] * prompt;
        if (shape.sequences == 0) return index;
        index += strides_[1] * place(edges_.sequences, shape.sequences);
        const std::size_t context = place(edges_.context_tokens, shape.context_tokens);
        return index + (context == 0 ? 0 : context - 1);
    }

    /// Whether the corner of the shape's bucket is no smaller than the shape.
    [[nodiscard]] bool covered(StepShape shape) const {
        return shape.prompt_tokens <= edges_.prompt_tokens.back() &&
               shape.sequences <= edges_.sequences.back() &&
               (shape.sequences == 0 || shape.context_tokens <= edges_.context_tokens.back()) &&
               (shape.prompt_tokens == 0 || shape.prompt_context <= edges_.prompt_context.back());
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
        const std::size_t prompts = edges_.prompt_tokens.size();
        return {prompt == 0 ? 0 : edges_.prompt_tokens[(prompt - 1) % prompts],
                sequences == 0 ? 0 : edges_.sequences[sequences - 1],
                sequences == 0 ? 0 : edges_.context_tokens[context],
                prompt == 0 ? 0 : edges_.prompt_context[(prompt - 1) / prompts]};
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

/// How much longer than the mean single steps take. Most vary by a share of their time, which is
/// the same at any clock; a step that takes a quarter longer has stalled, for a time that no clock
/// changes.
class StepSpread {
public:
    void add(Seconds took, Seconds mean) {
        ++steps_;
        const double longer = took / mean - 1;
        if (longer <= 0) return;
        if (longer < stalled)
            ++varied_[static_cast<std::size_t>(longer / stalled * bins)];
        else
            ++stalls_[std::min(static_cast<std::size_t>((took - mean) / stall_bin), bins - 1)];
    }
    void add(const StepSpread& other) {
        steps_ += other.steps_;
        for (std::size_t bin = 0; bin < bins; ++bin) {
            varied_[bin] += other.varied_[bin];
            stalls_[bin] += other.stalls_[bin];
        }
    }
    /// The share of steps of this mean time that take longer than `limit`, 0 to 1.
    [[nodiscard]] double share_beyond(Seconds limit, Seconds mean) const {
        if (mean > limit || steps_ == 0) return mean > limit ? 1 : 0;
        const auto above = [](const std::vector<double>& counts, double place) {
            double sum = 0;
            for (std::size_t bin = 0; bin < bins; ++bin)
                sum += counts[bin] * std::clamp(static_cast<double>(bin) + 1 - place, 0.0, 1.0);
            return sum;
        };
        return (above(varied_, (limit / mean - 1) / stalled * bins) +
                above(stalls_, (limit - mean) / stall_bin)) /
               steps_;
    }

private:
    static constexpr std::size_t bins = 64;
    static constexpr double stalled = 0.25;
    static constexpr Seconds stall_bin{0.004};

    std::vector<double> varied_ = std::vector<double>(bins);
    std::vector<double> stalls_ = std::vector<double>(bins);
    double steps_ = 0;
};

/// Which steps an engine did, counted by bucket, and how long its phases lasted. Record it at the
/// top clock, for some minutes of ordinary load. Not thread-safe.
class StepLoad {
public:
    explicit StepLoad(StepBuckets buckets)
        : buckets_{std::move(buckets)},
          steps_(buckets_.size()),
          tokens_(buckets_.size()),
          times_(buckets_.size()) {}

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
        const std::size_t bucket = buckets_.bucket(shape);
        // Prompts of one bucket differ too much for their steps' spread to be chance.
        if (!prompts && steps_[bucket] >= enough) spread_.add(took, mean_time(bucket));
        ++steps_[bucket];
        tokens_[bucket] += shape.sequences;
        times_[bucket] += took;
    }

    /// What another board did; both sort into the same buckets.
    void add(const StepLoad& other) {
        for (std::size_t bucket = 0; bucket < steps_.size(); ++bucket) {
            steps_[bucket] += other.steps_[bucket];
            tokens_[bucket] += other.tokens_[bucket];
            times_[bucket] += other.times_[bucket];
        }
        spread_.add(other.spread_);
        with_prompts_.add(other.with_prompts_);
        decode_.add(other.decode_);
    }

    [[nodiscard]] const StepBuckets& buckets() const { return buckets_; }
    /// Steps of a bucket, and tokens that followed another token in them.
    [[nodiscard]] double steps(std::size_t bucket) const { return steps_[bucket]; }
    [[nodiscard]] double tokens(std::size_t bucket) const { return tokens_[bucket]; }
    /// Of the bucket's steps. @pre steps(bucket) > 0
    [[nodiscard]] Seconds mean_time(std::size_t bucket) const {
        return times_[bucket] / steps_[bucket];
    }
    /// Of steps without prompts about their bucket's mean.
    [[nodiscard]] const StepSpread& spread() const { return spread_; }
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

    static constexpr double enough = 8;  ///< steps whose mean is one

    StepBuckets buckets_;
    std::vector<double> steps_;
    std::vector<double> tokens_;
    std::vector<Seconds> times_;
    StepSpread spread_;
    Runs with_prompts_;
    Runs decode_;
    int before_ = -1;
};

}  // namespace kdvfs::inline v0_3::serve
