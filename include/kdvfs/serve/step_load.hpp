// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/serve/step.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace kdvfs::serve {

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

}  // namespace kdvfs::serve
