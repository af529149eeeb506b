// SPDX-License-Identifier: MIT
//
// The C interface of engines with continuous batching (kdvfs.h).
#include "c_handles.hpp"

#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/serve/step_proof.hpp>
#include <kdvfs/serve/step_scope.hpp>
#include <kdvfs/serve/step_table.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>
#include <utility>

namespace {

using namespace kdvfs::c_interface;
namespace serve = kdvfs::serve;

/// What lies in a `kdvfs_step`.
struct OpenStep {
    static constexpr std::uint64_t is_open = 0x6b64766673746570;  // "kdvfstep"

    /// @param by slack, or a decision
    template <class By>
    OpenStep(kdvfs_steps& its, const serve::PlannedGpu& gpu, kdvfs::StreamRef stream,
             serve::StepShape shape, const By& by)
        : steps{&its}, scope{gpu, stream, shape, by} {}

    std::uint64_t mark = is_open;
    kdvfs_steps* steps;
    serve::StepScope scope;
};
static_assert(sizeof(OpenStep) <= sizeof(kdvfs_step));
static_assert(alignof(OpenStep) <= alignof(kdvfs_step));

serve::StepPolicy policy_of(const std::string& name) {
    if (name == "one_clock") return serve::StepPolicy::one_clock;
    if (name == "no_harm") return serve::StepPolicy::no_harm;
    if (name == "two_clocks") return serve::StepPolicy::two_clocks;
    if (name == "by_step") return serve::StepPolicy::by_step;
    reject("plan the clocks of steps", "'" + name + "'", "there is no such policy",
           "use one_clock, no_harm, two_clocks or by_step");
}

kdvfs::Seconds block_of(double seconds) {
    if (!(seconds >= 1 && seconds <= 86400))
        reject("prove a plan", "blocks of " + std::to_string(seconds) + " s",
               "they are shorter than a second, or longer than a day",
               "give a time longer than most requests, such as 30");
    return kdvfs::Seconds{seconds};
}

/// Of `StepRun::Phase`, in its order.
constexpr const char* run_phases[] = {"sweep", "follow", "top"};

nlohmann::ordered_json json_of(const serve::StepProof* proof) {
    if (proof == nullptr || !proof->change()) return nullptr;
    return {{"change_pct", proof->change()->mean},
            {"low_pct", proof->change()->low},
            {"high_pct", proof->change()->high},
            {"is_followed", !proof->is_broken()}};
}

}  // namespace

struct kdvfs_steps {
    explicit kdvfs_steps(kdvfs_gpu& its)
        : gpu{its}, planned{std::in_place, *its.gpu, serve::own_clock_plan(buckets)} {}

    kdvfs_gpu& gpu;
    serve::StepBuckets buckets{};
    serve::StepLoad load{buckets};
    double late_first_tokens = serve::StepTargets{}.late_first_tokens;
    std::optional<serve::PlannedGpu> planned;
    std::optional<serve::StepProof> proof;
    std::optional<serve::StepRun> run;
    kdvfs::Seconds now{0};  ///< the latest time that the run was given
    std::uint32_t prompt_context = 0;
    bool by_plan = true;
    std::atomic<std::uint64_t> users{0};  // steps that have not ended

    /// @throws Error (invalid_input) while a step has not ended, or for no policy
    [[nodiscard]] serve::StepTargets targets(const char* policy, double gap_s,
                                             double switch_latency_s,
                                             std::uint32_t chunk_tokens) const {
        if (users.load() != 0)
            reject("plan the clocks of steps", "a step", "it has not ended", "end it first");
        serve::StepTargets targets;
        targets.policy = policy_of(&given(policy, "the policy"));
        targets.gap = kdvfs::Seconds{gap_s};
        targets.switch_latency = kdvfs::Seconds{switch_latency_s};
        targets.chunk_tokens = chunk_tokens;
        targets.late_first_tokens = late_first_tokens;
        return targets;
    }
    [[nodiscard]] serve::StepShape shape(std::uint32_t prompt_tokens, std::uint32_t sequences,
                                         std::uint32_t context_tokens) const {
        return {prompt_tokens, sequences, context_tokens, prompt_context};
    }
};

extern "C" {

kdvfs_status kdvfs_steps_begin(kdvfs_gpu* gpu, kdvfs_steps** steps) {
    return guarded([&] {
        given(steps, "where the steps go") = nullptr;
        BeginningCall call{gpu};
        *steps = new kdvfs_steps{*gpu};
        call.has_begun();
    });
}

kdvfs_status kdvfs_steps_observe(kdvfs_steps* steps, uint32_t prompt_tokens, uint32_t sequences,
                                 uint32_t context_tokens, double seconds) {
    return guarded([&] {
        if (!(seconds > 0))
            reject("record a step", std::to_string(seconds) + " s", "it is no positive time",
                   "give how long the step took");
        kdvfs_steps& its = given(steps, "the steps");
        its.load.add(its.shape(prompt_tokens, sequences, context_tokens), kdvfs::Seconds{seconds});
    });
}

kdvfs_status kdvfs_steps_prompt_context(kdvfs_steps* steps, uint32_t tokens) {
    return guarded([&] { given(steps, "the steps").prompt_context = tokens; });
}

kdvfs_status kdvfs_steps_plan(kdvfs_steps* steps, const char* table, const char* policy,
                              double gap_s, double switch_latency_s, uint32_t chunk_tokens) {
    return guarded([&] {
        kdvfs_steps& its = given(steps, "the steps");
        const auto targets = its.targets(policy, gap_s, switch_latency_s, chunk_tokens);
        const auto costs =
            serve::read_step_table(std::filesystem::path{&given(table, "the table")});
        serve::PlannedGpu planned{*its.gpu.gpu, serve::make_step_plan(costs, its.load, targets)};
        its.planned.emplace(std::move(planned));
        its.proof.reset();
        its.run.reset();
        its.by_plan = true;
    });
}

kdvfs_status kdvfs_steps_tune(kdvfs_steps* steps, const uint32_t* clocks, size_t count,
                              const char* policy, double gap_s, double switch_latency_s,
                              uint32_t chunk_tokens, double warm_up_s, double sweep_s,
                              double block_s) {
    return guarded([&] {
        kdvfs_steps& its = given(steps, "the steps");
        serve::StepRunOptions options;
        options.targets = its.targets(policy, gap_s, switch_latency_s, chunk_tokens);
        if (count > 0) static_cast<void>(given(clocks, "the clocks"));
        for (size_t i = 0; i < count; ++i) options.sweep.clocks.push_back({clocks[i]});
        options.sweep.gap = options.targets.gap;
        options.sweep.switch_latency = options.targets.switch_latency;
        options.sweep.warm_up = kdvfs::Seconds{warm_up_s};
        options.sweeping = kdvfs::Seconds{sweep_s};
        options.proof_block = block_of(block_s);
        its.run.emplace(options);
        its.planned.emplace(*its.gpu.gpu, serve::own_clock_plan(its.run->buckets()));
        its.proof.reset();
    });
}

kdvfs_status kdvfs_steps_ran(kdvfs_steps* steps, uint32_t prompt_tokens, uint32_t sequences,
                             uint32_t context_tokens, double begin_s, double end_s) {
    return guarded([&] {
        kdvfs_steps& its = given(steps, "the steps");
        if (!its.run)
            reject("tune the clocks of steps", "a step", "no tuning has begun",
                   "call kdvfs_steps_tune first");
        if (!(begin_s < end_s && std::abs(begin_s) < 1e9 && std::abs(end_s) < 1e9))
            reject("tune the clocks of steps", "a step", "its end is not behind its beginning",
                   "give seconds since any origin");
        its.now = kdvfs::Seconds{end_s};
        its.run->ran(its.shape(prompt_tokens, sequences, context_tokens), kdvfs::Seconds{begin_s},
                     its.now);
    });
}

kdvfs_status kdvfs_steps_late_first_tokens(kdvfs_steps* steps, double share) {
    return guarded([&] { given(steps, "the steps").late_first_tokens = share; });
}

kdvfs_status kdvfs_steps_prove(kdvfs_steps* steps, double block_s) {
    return guarded([&] {
        kdvfs_steps& its = given(steps, "the steps");
        if (its.run)
            reject("prove a plan", "steps that are tuned", "tuning proves its plan itself",
                   "read it from the report");
        its.proof.emplace(block_of(block_s));
    });
}

kdvfs_status kdvfs_steps_energy(kdvfs_steps* steps, double joules, double seconds) {
    return guarded([&] {
        kdvfs_steps& its = given(steps, "the steps");
        if (!its.proof && !its.run)
            reject("prove a plan", "a sample of the energy", "no proof has begun",
                   "call kdvfs_steps_prove first");
        if (!std::isfinite(joules) || !(std::abs(seconds) < 1e9))
            reject("prove a plan", "a sample of the energy",
                   "its energy or its time is not a valid number",
                   "give joules and seconds since any origin");
        if (its.run) {
            its.now = kdvfs::Seconds{seconds};
            return its.run->energy(its.now, {joules});
        }
        its.proof->energy(kdvfs::Seconds{seconds}, {joules});
        its.by_plan = its.proof->by_plan(kdvfs::Seconds{seconds});
    });
}

kdvfs_status kdvfs_step_begin(kdvfs_steps* steps, void* stream, uint32_t prompt_tokens,
                              uint32_t sequences, uint32_t context_tokens, double slack_s,
                              kdvfs_step* step) {
    return guarded([&] {
        kdvfs_steps& its = given(steps, "the steps");
        static_cast<void>(given(step, "the step"));
        const serve::StepShape shape = its.shape(prompt_tokens, sequences, context_tokens);
        const kdvfs::StreamRef in = stream_of(its.gpu, stream);
        if (its.run)
            ::new (step) OpenStep{its, *its.planned, in, shape,
                                  its.run->decide(its.now, shape, kdvfs::Seconds{slack_s})};
        else if (its.by_plan)
            ::new (step) OpenStep{its, *its.planned, in, shape, kdvfs::Seconds{slack_s}};
        else
            ::new (step) OpenStep{its, *its.planned, in, shape,
                                  its.planned->plan().clock_table().at_top(shape)};
        its.users.fetch_add(1, std::memory_order_relaxed);
    });
}

kdvfs_status kdvfs_step_end(kdvfs_step* step) {
    return guarded([&] {
        auto& ending = *reinterpret_cast<OpenStep*>(&given(step, "the step"));
        if (std::exchange(step->opaque[0], 0) != OpenStep::is_open) return;
        const struct Ended {
            OpenStep& step;
            ~Ended() {
                kdvfs_steps& steps = *step.steps;
                step.~OpenStep();
                steps.users.fetch_sub(1);
            }
        } ended{ending};
        ending.scope.close();
    });
}

kdvfs_status kdvfs_steps_rest(kdvfs_steps* steps, void* stream) {
    return guarded([&] {
        kdvfs_steps& its = given(steps, "the steps");
        if (its.run) return its.run->idled(its.now);
        if (its.by_plan) its.planned->rest(stream_of(its.gpu, stream));
    });
}

kdvfs_status kdvfs_steps_report_json(kdvfs_steps* steps, char** json) {
    return guarded([&] {
        given(json, "where the report goes") = nullptr;
        const kdvfs_steps& its = given(steps, "the steps");
        const bool has_run_plan = its.run && its.run->plan();
        const serve::StepPlan& plan = has_run_plan ? *its.run->plan() : its.planned->plan();
        nlohmann::ordered_json tuning;
        if (its.run)
            tuning = {{"phase", run_phases[static_cast<std::size_t>(its.run->phase())]},
                      {"because", its.run->reason()}};
        const serve::StepProof* const proof = its.run     ? &its.run->proof()
                                              : its.proof ? &*its.proof
                                                          : nullptr;
        nlohmann::ordered_json text{{"one_clock_because", plan.reason()},
                                    {"idle_core_mhz", plan.idle_clock().count},
                                    {"proof", json_of(proof)},
                                    {"tuning", tuning},
                                    {"phases", nlohmann::ordered_json::array()}};
        for (const serve::PhaseReport& phase : its.planned->phases(its.gpu.gpu->report())) {
            nlohmann::ordered_json row{{"phase", to_string(phase.phase)},
                                       {"steps", phase.steps},
                                       {"urgent_steps", phase.urgent_steps},
                                       {"prompt_tokens", phase.prompt_tokens},
                                       {"tokens", phase.tokens},
                                       {"joules_per_token", nullptr},
                                       {"half_width_95", nullptr},
                                       {"resolved_share", phase.resolved_share}};
            if (phase.joules_per_token) {
                row["joules_per_token"] = *phase.joules_per_token;
                row["half_width_95"] = phase.half_width;
            }
            text["phases"].push_back(std::move(row));
        }
        *json = copy_of(text.dump());
    });
}

kdvfs_status kdvfs_steps_end(kdvfs_steps* steps) {
    if (steps == nullptr) return KDVFS_OK;
    return guarded([&] {
        if (steps->users.load() != 0)
            reject("end the steps of an engine", "a step", "it has not ended", "end it first");
        kdvfs_gpu& gpu = steps->gpu;
        delete steps;
        gpu.users.leave(Users::begun);
    });
}

}  // extern "C"
