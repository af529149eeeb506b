// SPDX-License-Identifier: MIT
#include <bench/serving/requests.hpp>
#include <kdvfs/detail/serve/pool_json.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/recommend.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <tests/fuzz/fuzz_target.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

namespace {

using namespace kdvfs;
using namespace kdvfs::serve;

void fuzz_trace(const std::string& text) {
    std::istringstream input{text};
    Seconds before{0};
    for (const Request& request : read_requests(input, "input")) {
        fuzzing::require(request.arrival >= before, "requests come in order");
        fuzzing::require(std::isfinite(request.arrival.count()), "times are finite");
        fuzzing::require(request.prompt_tokens > 0 && request.answer_tokens > 0,
                         "requests have tokens");
        before = request.arrival;
    }
}

/// What a table knows lies inside, and is a number.
void fuzz_step_table(const std::string& text) {
    std::istringstream input{text};
    const StepTable table = read_step_table(input, "input");
    const StepShape most = table.largest();
    for (const Megahertz clock : table.clocks()) {
        for (const StepShape shape : {StepShape{most.prompt_tokens, 0, 0},
                                      StepShape{0, most.sequences, most.context_tokens},
                                      StepShape{0, most.sequences / 2, most.context_tokens / 2}}) {
            const auto cost = table.cost(shape, clock);
            if (phase_of(shape) == Phase::idle || !cost) continue;
            fuzzing::require(cost->time.count() > 0 && cost->energy.count > 0,
                             "a step takes time and energy");
        }
        if (most.prompt_tokens < 0xffff'ffffU)
            fuzzing::require(!table.cost({most.prompt_tokens + 1, 0, 0}, clock),
                             "nothing is known outside");
    }
}

void fuzz_configurations(const std::string& text) {
    std::istringstream input{text};
    const ConfigurationTable table{input, "input"};
    Constraint constraint;
    constraint.energy = table.header().back();
    constraint.bounds = {{table.header().front(), 1}};
    const std::size_t energy = table.column(constraint.energy),
                      bound = table.column(table.header()[0]);
    const auto chosen = recommend(table, constraint);
    for (std::size_t row = 0; row < table.size(); ++row) {
        if (!(table.number(bound, row) <= 1) || std::isnan(table.number(energy, row))) continue;
        fuzzing::require(chosen.has_value(), "a row meets the target");
        fuzzing::require(table.number(energy, *chosen) <= table.number(energy, row),
                         "it has the least energy");
    }
}

/// Small questions get a plan that fits, or a reason.
void fuzz_pools(const std::string& text) {
    const ClusterQuestion question = parse_cluster_question(text, "input");
    if (question.gpus > 64 || question.classes.size() > 4) return;
    for (const ServiceClass& service : question.classes)
        if (service.profile.size() > 4) return;
    const ClusterPlan plan = plan_cluster(question.classes, question.gpus, question.idle_gpu);
    if (!plan.refused.empty()) return;
    std::uint64_t gpus = 0;
    for (const ClusterPool& pool : plan.pools) {
        double load = 0, carried = 0;
        for (const std::size_t served : pool.serves) load += question.classes[served].load;
        for (const InstanceGroup& group : pool.plan.groups) {
            carried += group.count * group.point.load;
            gpus += std::uint64_t{group.count} * group.point.parallelism;
        }
        fuzzing::require(carried >= load * (1 - 1e-8), "a plan carries its load");
    }
    fuzzing::require(gpus == plan.gpus && gpus <= question.gpus, "a plan fits");
}

}  // namespace

/// Whatever serving reads, by all of its readers.
void fuzzing::fuzz(const std::string& text) {
    for (auto* read : {fuzz_trace, fuzz_step_table, fuzz_configurations, fuzz_pools}) {
        try {
            read(text);
        } catch (const Error& error) {
            fuzzing::require(error.code() == Errc::invalid_input, "bad text is invalid input");
        }
    }
}
