// SPDX-License-Identifier: MIT
#pragma once

#include <bench/serving/clock_policies.hpp>
#include <bench/serving/requests.hpp>
#include <bench/serving/serving_board.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// What an engine with continuous batching can hold.
struct EngineLimits {
    std::uint32_t chunk_tokens = 512;   ///< most prompt tokens of one step
    std::uint32_t max_sequences = 128;  ///< in one step
    /// Keys and values that fit: what 48 GB leave beside 15.2 GB of weights, 57 kB a token.
    std::uint64_t cache_tokens = 490'000;
};

/// What latencies are judged by.
struct LatencyTargets {
    Seconds gap{0.1};           ///< between two tokens of a sequence
    Seconds first_token{0.25};  ///< at least this much is allowed
    double first_token_factor =
        5;  ///< or this many times what the prompt takes alone at the top clock
};

/// Counts of durations in bins of 0.1 ms up to 20 s, for percentiles.
class LatencyHistogram {
public:
    void add(Seconds time, std::uint64_t count = 1) {
        const double place = std::clamp(time.count() / width, 0.0, static_cast<double>(bins - 1));
        const auto bin = static_cast<std::size_t>(place);
        if (bin >= counts_.size()) counts_.resize(bin + 1);
        counts_[bin] += count;
        total_ += count;
    }
    void add(const LatencyHistogram& other) {
        if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size());
        for (std::size_t b = 0; b < other.counts_.size(); ++b) counts_[b] += other.counts_[b];
        total_ += other.total_;
    }
    /// The upper edge of the bin that holds this share, infinite beyond 20 s; 0 without any.
    [[nodiscard]] Seconds quantile(double share) const {
        const double wanted = share * static_cast<double>(total_);
        double seen = 0;
        for (std::size_t b = 0; b < counts_.size(); ++b) {
            seen += static_cast<double>(counts_[b]);
            if (seen < wanted) continue;
            if (b + 1 == bins) return Seconds{std::numeric_limits<double>::infinity()};
            return Seconds{static_cast<double>(b + 1) * width};
        }
        return Seconds{0};
    }

private:
    static constexpr double width = 1e-4;
    static constexpr std::size_t bins = 200'000;
    std::vector<std::uint64_t> counts_;
    std::uint64_t total_ = 0;
};

/// What engines did.
struct ServingCounts {
    Joules energy{0};
    std::uint64_t requests = 0;
    std::uint64_t first_tokens_in_time = 0;
    std::uint64_t requests_kept = 0;  ///< first token in time, and the mean gap within its target
    std::uint64_t tokens = 0;         ///< of all answers
    std::uint64_t gaps = 0;           ///< tokens that followed another
    std::uint64_t gaps_kept = 0;
    std::uint64_t steps = 0;
    std::uint64_t switches = 0;
    LatencyHistogram first_token{};
    LatencyHistogram gap{};

    ServingCounts& operator+=(const ServingCounts& other) {
        energy += other.energy;
        requests += other.requests;
        first_tokens_in_time += other.first_tokens_in_time;
        requests_kept += other.requests_kept;
        tokens += other.tokens;
        gaps += other.gaps;
        gaps_kept += other.gaps_kept;
        steps += other.steps;
        switches += other.switches;
        first_token.add(other.first_token);
        gap.add(other.gap);
        return *this;
    }
    /// Percent of the first tokens that came in time; 100 without any.
    [[nodiscard]] double first_tokens_pct() const {
        return percent(first_tokens_in_time, requests);
    }
    /// Percent of the requests within both their targets.
    [[nodiscard]] double requests_pct() const { return percent(requests_kept, requests); }
    /// Percent of the other tokens that came within the gap; 100 without any.
    [[nodiscard]] double gaps_pct() const { return percent(gaps_kept, gaps); }

private:
    static double percent(std::uint64_t part, std::uint64_t all) {
        return all == 0 ? 100 : 100 * static_cast<double>(part) / static_cast<double>(all);
    }
};

/// How long a first token may take: a prompt alone on a board at the top clock sets the measure.
template <StepCosts Costs>
Seconds allowed_first_token(const Costs& costs, const Request& request, const EngineLimits& limits,
                            const LatencyTargets& targets) {
    Seconds alone{0};
    std::uint32_t left = request.prompt_tokens;
    const auto add = [&](std::uint32_t tokens) {
        const auto cost =
            costs.cost({tokens, 0, 0, request.prompt_tokens - left}, costs.clocks().back());
        if (cost) alone += cost->time;
    };
    for (; left > limits.chunk_tokens; left -= limits.chunk_tokens) add(limits.chunk_tokens);
    add(left);
    return std::max(targets.first_token, alone * targets.first_token_factor);
}

/// A simulated engine with continuous batching on one board. Each step reads up to a chunk of
/// prompt tokens, first come first served, and gives every running sequence one token; the step
/// that ends a prompt gives its first token. A request is admitted when the cache holds its prompt
/// and its whole answer, so none is ever put back.
template <StepCosts Costs>
class ServingEngine {
public:
    /// Refers to `costs`, `policy` and, if there is one, `load`, which is told all steps.
    ServingEngine(const Costs& costs, ClockPolicy& policy, const EngineLimits& limits,
                  const LatencyTargets& targets, Seconds switch_latency, StepLoad* load = nullptr,
                  Seconds begin = Seconds{0})
        : costs_{costs},
          policy_{policy},
          limits_{limits},
          targets_{targets},
          load_{load},
          board_{costs, policy.when_idle(begin), switch_latency, begin} {}

    /// How much there is to do, for choosing a board: prompt tokens to read, and 8 for a sequence.
    [[nodiscard]] double load() const {
        return static_cast<double>(queued_tokens_) + 8.0 * static_cast<double>(sequences_.size());
    }
    [[nodiscard]] bool idle() const { return waiting_.empty() && sequences_.empty(); }
    [[nodiscard]] Seconds now() const { return board_.now(); }

    /// A request that arrives now or earlier; `advance` to its arrival first.
    /// @throws Error (invalid_input) for one that never fits into the cache
    void submit(const Request& request) {
        submit(request, allowed_first_token(costs_, request, limits_, targets_));
    }
    /// The same, its first token due after the time that is allowed.
    void submit(const Request& request, Seconds allowed) {
        if (cached(request) > limits_.cache_tokens)
            throw Error{Errc::invalid_input,
                        {"simulate a request", std::to_string(cached(request)) + " tokens",
                         "the cache holds " + std::to_string(limits_.cache_tokens), ""}};
        waiting_.push_back({request, request.prompt_tokens, request.arrival + allowed});
        queued_tokens_ += request.prompt_tokens;
    }

    /// Works until this time is reached or passed by the step in progress.
    void advance(Seconds time) {
        while (board_.now() < time) {
            if (!idle()) {
                step();
                continue;
            }
            if (load_) load_->add({}, Seconds{0});
            const Seconds begin = board_.now();
            board_.ask(policy_.when_idle(begin));
            board_.idle_until(time);
            policy_.observe({}, begin, board_.now(), board_.energy());
        }
    }

    /// Works until nothing is left.
    void drain() {
        while (!idle()) step();
    }

    [[nodiscard]] ServingCounts counts() const {
        ServingCounts counts = counts_;
        counts.energy = board_.energy();
        counts.switches = board_.switches();
        return counts;
    }

private:
    struct Waiting {
        Request request;
        std::uint32_t tokens_left;
        Seconds due;
    };
    struct Sequence {
        std::uint32_t context;
        std::uint32_t tokens_left;
        std::uint64_t cached;
        Seconds due;  ///< the last token, by the first one's target and the mean gap's; 0: missed
    };

    static std::uint64_t cached(const Request& request) {
        return std::uint64_t{request.prompt_tokens} + request.answer_tokens;
    }

    /// The prompt tokens that the next step reads, with the mean that was read of them before.
    [[nodiscard]] StepShape next_chunk() const {
        std::uint32_t chunk = 0;
        double read_before = 0;
        std::size_t places = limits_.max_sequences - sequences_.size();
        std::uint64_t cache = cache_used_;
        for (const Waiting& prompt : waiting_) {
            cache += cached(prompt.request);
            if (places == 0 || chunk == limits_.chunk_tokens || cache > limits_.cache_tokens) break;
            const std::uint32_t part = std::min(prompt.tokens_left, limits_.chunk_tokens - chunk);
            chunk += part;
            read_before += double{1} * part * (prompt.request.prompt_tokens - prompt.tokens_left);
            --places;
        }
        return {chunk, 0, 0, static_cast<std::uint32_t>(read_before / std::max(chunk, 1U))};
    }

    [[nodiscard]] Seconds slack(StepShape shape) const {
        const StepPlan* plan = policy_.slack_plan();
        if (!plan || shape.prompt_tokens == 0)
            return Seconds{std::numeric_limits<double>::infinity()};
        FirstTokenSlack slack{*plan, shape.sequences, shape.context_tokens};
        for (const Waiting& prompt : waiting_)
            slack.prompt(prompt.tokens_left, prompt.due - board_.now(),
                         prompt.request.prompt_tokens - prompt.tokens_left);
        return slack.value();
    }

    void step() {
        const auto running = static_cast<std::uint32_t>(sequences_.size());
        StepShape shape = next_chunk();
        shape.sequences = running;
        if (running > 0) shape.context_tokens = static_cast<std::uint32_t>(context_sum_ / running);
        board_.ask(policy_.for_step(board_.now(), shape, slack(shape)));
        const Seconds took = board_.run(shape);
        policy_.observe(shape, board_.now() - took, board_.now(), board_.energy());
        if (load_) load_->add(shape, took);
        count(running, took);
        give_tokens();
        read_prompts(shape.prompt_tokens);
    }

    void count(std::uint32_t running, Seconds took) {
        ++counts_.steps;
        counts_.tokens += running;
        counts_.gaps += running;
        if (took <= targets_.gap) counts_.gaps_kept += running;
        if (running > 0) counts_.gap.add(took, running);
    }

    void give_tokens() {
        context_sum_ = 0;
        std::erase_if(sequences_, [&](Sequence& sequence) {
            ++sequence.context;
            if (--sequence.tokens_left == 0) {
                counts_.requests_kept += board_.now() <= sequence.due ? 1U : 0U;
                cache_used_ -= sequence.cached;
                return true;
            }
            context_sum_ += sequence.context;
            return false;
        });
    }

    void read_prompts(std::uint32_t tokens) {
        queued_tokens_ -= tokens;
        while (tokens > 0) {
            Waiting& prompt = waiting_.front();
            const std::uint32_t part = std::min(tokens, prompt.tokens_left);
            tokens -= part;
            prompt.tokens_left -= part;
            if (prompt.tokens_left > 0) return;
            begin_answer(prompt);
            waiting_.pop_front();
        }
    }

    void begin_answer(const Waiting& prompt) {
        ++counts_.requests;
        ++counts_.tokens;
        const bool in_time = board_.now() <= prompt.due;
        if (in_time) ++counts_.first_tokens_in_time;
        counts_.first_token.add(board_.now() - prompt.request.arrival);
        const std::uint32_t more = prompt.request.answer_tokens - 1;
        if (more == 0) {
            counts_.requests_kept += in_time ? 1U : 0U;
            return;
        }
        const std::uint32_t context = prompt.request.prompt_tokens + 1;
        const Seconds due = in_time ? board_.now() + targets_.gap * double{1} * more : Seconds{0};
        sequences_.push_back({context, more, cached(prompt.request), due});
        context_sum_ += context;
        cache_used_ += cached(prompt.request);
    }

    const Costs& costs_;
    ClockPolicy& policy_;
    EngineLimits limits_;
    LatencyTargets targets_;
    StepLoad* load_;
    ServingBoard<Costs> board_;
    std::deque<Waiting> waiting_;
    std::vector<Sequence> sequences_;
    std::uint64_t queued_tokens_ = 0;
    std::uint64_t context_sum_ = 0;
    std::uint64_t cache_used_ = 0;
    ServingCounts counts_;
};

/// Boards that serve together: a request goes to the one with the least to do.
struct ClusterOptions {
    std::size_t boards = 4;
    EngineLimits limits{};
    LatencyTargets targets{};
    Seconds switch_latency{0.006};
};

/// Serves a trace in virtual time: one engine a board, each with its own policy, until the last
/// answer has ended on all boards. `load`, if there is one, is told the steps of all boards.
/// @param costs_of of a board, by its number
/// @throws Error (invalid_input) without boards, or for steps of unknown cost
template <class CostsOf>
requires StepCosts<std::remove_cvref_t<std::invoke_result_t<CostsOf, std::size_t>>> ServingCounts
serve_trace(const CostsOf& costs_of, std::span<const Request> requests,
            const ClusterOptions& options,
            const std::function<std::unique_ptr<ClockPolicy>()>& make_policy,
            StepLoad* load = nullptr) {
    using Costs = std::remove_cvref_t<std::invoke_result_t<CostsOf, std::size_t>>;
    if (options.boards == 0)
        throw Error{Errc::invalid_input, {"serve a trace", "0 boards", "", "give at least one"}};
    std::vector<std::unique_ptr<ClockPolicy>> policies;
    std::deque<ServingEngine<Costs>> engines;
    std::vector<StepLoad> loads;
    for (std::size_t b = 0; b < options.boards && load; ++b) loads.emplace_back(load->buckets());
    for (std::size_t b = 0; b < options.boards; ++b) {
        policies.push_back(make_policy());
        engines.emplace_back(costs_of(b), *policies.back(), options.limits, options.targets,
                             options.switch_latency, load ? &loads[b] : nullptr);
    }
    for (const Request& request : requests) {
        for (auto& engine : engines) engine.advance(request.arrival);
        std::min_element(engines.begin(), engines.end(), [](const auto& a, const auto& b) {
            return a.load() < b.load();
        })->submit(request);
    }
    Seconds end{0};
    for (auto& engine : engines) {
        engine.drain();
        end = std::max(end, engine.now());
    }
    ServingCounts total;
    for (auto& engine : engines) {
        engine.advance(end);
        total += engine.counts();
    }
    if (load != nullptr)
        for (const StepLoad& part : loads) load->add(part);
    return total;
}
template <StepCosts Costs>
ServingCounts serve_trace(const Costs& costs, std::span<const Request> requests,
                          const ClusterOptions& options,
                          const std::function<std::unique_ptr<ClockPolicy>()>& make_policy,
                          StepLoad* load = nullptr) {
    return serve_trace([&](std::size_t) -> const Costs& { return costs; }, requests, options,
                       make_policy, load);
}

}  // namespace kdvfs::inline v0_3::serve
