// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/plan_file.hpp>

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/coded_launches.hpp>
#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

namespace kdvfs::inline v0_3::tune {

namespace detail {

[[noreturn]] inline void distrust(const std::filesystem::path& path, const char* why,
                                  const char* remedy) {
    throw Error{Errc::invalid_input, {"read a plan", path.string(), why, remedy}};
}

inline nlohmann::ordered_json totals_json(const Plan& plan) {
    nlohmann::ordered_json json{
        {"aggregate", to_string(plan.aggregate)}, {"time_s", plan.expected.time.count()},
        {"energy_j", plan.expected.energy.count}, {"time_pct", plan.time_pct()},
        {"energy_pct", plan.energy_pct()},        {"gap_pct", plan.gap_pct}};
    if (plan.predicted_within) json["predicted_within_pct"] = *plan.predicted_within;
    return json;
}

inline nlohmann::ordered_json kernel_json(const PlannedKernel& kernel) {
    return {{"kernel", kernel.key.name},
            {"variant", kernel.key.variant.index},
            {"count", kernel.count},
            {"core_mhz", clock_json(kernel.clock.core)},
            {"mem_mhz", clock_json(kernel.clock.memory)},
            {"time_pct", time_percent(kernel.expected, kernel.baseline)},
            {"energy_pct", energy_percent(kernel.expected, kernel.baseline)},
            {"time_s", kernel.expected.time.count()},
            {"energy_j", kernel.expected.energy.count},
            {"baseline_time_s", kernel.baseline.time.count()},
            {"baseline_energy_j", kernel.baseline.energy.count}};
}

inline nlohmann::ordered_json plan_json(const Plan& plan) {
    nlohmann::ordered_json json{{"gpu", plan.gpu}, {"objective", plan.objective}};
    if (std::isfinite(plan.max_slowdown))
        json["max_slowdown_pct"] = 100 * plan.max_slowdown;
    else
        json["max_slowdown_pct"] = nullptr;
    if (std::isfinite(plan.launch_limit.count()))
        json["launch_limit_s"] = plan.launch_limit.count();
    json["baseline"] = {{"time_s", plan.baseline.time.count()},
                        {"energy_j", plan.baseline.energy.count},
                        {"core_mhz", clock_json(plan.baseline_clock.core)},
                        {"mem_mhz", clock_json(plan.baseline_clock.memory)}};
    json["plan"] = totals_json(plan);
    return json;
}

inline void add_kernels(nlohmann::ordered_json& json, const Plan& plan) {
    json["kernels"] = nlohmann::ordered_json::array();
    for (const PlannedKernel& kernel : plan.kernels) json["kernels"].push_back(kernel_json(kernel));
}

inline PlannedKernel read_kernel(const PlanFields& fields) {
    PlannedKernel kernel;
    kernel.key = {fields.text("kernel"), variant(fields.integer("variant", 0))};
    if (!is_kernel_name(kernel.key.name)) fields.fail("kernel", "is no kernel name");
    kernel.count = fields.integer("count", 1);
    if (kernel.count == 0) fields.fail("count", "is zero");
    kernel.clock = {fields.clock("core_mhz"), fields.clock("mem_mhz")};
    kernel.expected = fields.cost("time_s", "energy_j");
    kernel.baseline = fields.cost("baseline_time_s", "baseline_energy_j");
    if (const auto fault = find_fault(kernel.expected)) fields.fail("time_s, energy_j:", *fault);
    if (const auto fault = find_fault(kernel.baseline))
        fields.fail("baseline_time_s, baseline_energy_j:", *fault);
    return kernel;
}

/// What a plan file says of an iteration as a whole.
inline Plan read_promise(const PlanFields& root) {
    Plan plan;
    plan.gpu = root.text("gpu");
    if (!is_gpu_name(plan.gpu)) root.fail("gpu", "is no GPU's name");
    plan.objective = root.text("objective");
    if (!is_kernel_name(plan.objective)) root.fail("objective", "is no objective's name");
    if (!root.get("max_slowdown_pct").is_null())
        plan.max_slowdown = root.number("max_slowdown_pct", 0) / 100;
    if (root.has("launch_limit_s")) plan.launch_limit = Seconds{root.number("launch_limit_s", 0)};
    const PlanFields baseline = root.object("baseline");
    plan.baseline = baseline.cost("time_s", "energy_j");
    plan.baseline_clock = {baseline.clock("core_mhz"), baseline.clock("mem_mhz")};
    const PlanFields totals = root.object("plan");
    plan.expected = totals.cost("time_s", "energy_j");
    plan.gap_pct = totals.number("gap_pct", 0);
    if (totals.has("predicted_within_pct"))
        plan.predicted_within = totals.number("predicted_within_pct", 0);
    return plan;
}

inline nlohmann::ordered_json cost_json(const Cost& cost, const Cost& baseline) {
    return {{"time_s", cost.time.count()},
            {"energy_j", cost.energy.count},
            {"time_pct", time_percent(cost, baseline)},
            {"energy_pct", energy_percent(cost, baseline)}};
}

/// What tells one sequence from another: a hash of its launches' names.
inline std::string sequence_hash(const PlannedSequence& sequence) {
    std::string names;
    for (const std::uint32_t launch : sequence.launches)
        names += to_string(sequence.kernels[launch].key) + '\n';
    return kdvfs::detail::content_hash(names);
}

inline nlohmann::ordered_json sequence_json(const PlannedSequence& sequence) {
    const CodedLaunches coded = encode_launches(sequence.launches);
    nlohmann::ordered_json json{{"version", planned_sequence_version},
                                {"hash", sequence_hash(sequence)}};
    for (const PlannedSequence::Kernel& kernel : sequence.kernels) {
        nlohmann::ordered_json& fields = json["kernels"].emplace_back(
            nlohmann::ordered_json{{"kernel", kernel.key.name},
                                   {"variant", kernel.key.variant.index},
                                   {"time_s", Seconds{kernel.lasts}.count()}});
        if (!kernel.own.asks) continue;
        fields["core_mhz"] = clock_json(kernel.own.point.core);
        fields["mem_mhz"] = clock_json(kernel.own.point.memory);
    }
    for (const LaunchRun& run : coded.runs) json["runs"].push_back({run.times, run.length});
    json["launches"] = coded.launches;
    return json;
}

inline std::vector<std::uint32_t> read_numbers(const PlanFields& fields, const char* field) {
    const nlohmann::json& list = fields.get(field);
    if (!list.is_array()) fields.fail(field, "is no list");
    std::vector<std::uint32_t> numbers;
    for (const nlohmann::json& number : list) {
        if (!number.is_number_unsigned() ||
            number.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max())
            fields.fail(field, "has an entry that is no whole number in range");
        numbers.push_back(number.get<std::uint32_t>());
    }
    return numbers;
}

inline std::vector<LaunchRun> read_runs(const PlanFields& fields) {
    const nlohmann::json& list = fields.get("runs");
    if (!list.is_array()) fields.fail("runs", "is no list");
    std::vector<LaunchRun> runs;
    for (const nlohmann::json& pair : list) {
        if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
            !pair[1].is_number_unsigned() || pair[0].get<std::uint64_t>() > 0xffffffffU ||
            pair[1].get<std::uint64_t>() > 0xffffffffU)
            fields.fail("runs", "has an entry that is no pair of whole numbers");
        runs.push_back({pair[0].get<std::uint32_t>(), pair[1].get<std::uint32_t>()});
    }
    return runs;
}

/// The list of objects of a field.
template <class Read>
void read_list(const PlanFields& parent, const char* field, const std::string& file, Read read) {
    const nlohmann::json& list = parent.get(field);
    if (!list.is_array() || list.empty()) parent.fail(field, "is no list, or empty");
    for (std::size_t i = 0; i < list.size(); ++i)
        read(PlanFields{list[i], file, std::string{field} + '[' + std::to_string(i) + "]."});
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::string read_trusted_file(const std::filesystem::path& path) {
    constexpr off_t most_bytes = off_t{64} << 20;
    const kdvfs::detail::Descriptor file{
        ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
    if (file.get() < 0 && errno == ELOOP)
        detail::distrust(path, "it is a symbolic link", "give the file itself");
    if (file.get() < 0)
        throw Error{Errc::io,
                    {"open a plan", path.string(), std::strerror(errno),
                     "check its name; kdvfs plan --format json -o FILE writes one"}};
    struct stat status {};
    if (::fstat(file.get(), &status) != 0)
        kdvfs::detail::throw_file_error("look at a plan", path, errno);
    if (!S_ISREG(status.st_mode))
        detail::distrust(path, "it is no regular file", "give a plan file");
    if (status.st_uid != ::geteuid() && status.st_uid != 0)
        detail::distrust(path, "it belongs to another user", "copy it to a file of your own");
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        detail::distrust(path, "others may write to it", "chmod go-w it");
    if (status.st_size > most_bytes)
        detail::distrust(path, "it is larger than 64 MiB", "no plan is that large");
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    std::size_t filled = 0;
    while (filled < text.size()) {
        const ssize_t got = ::read(file.get(), text.data() + filled, text.size() - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) kdvfs::detail::throw_file_error("read a plan", path, errno);
        if (got == 0) break;
        filled += static_cast<std::size_t>(got);
    }
    text.resize(filled);
    return text;
}

KDVFS_INLINE std::shared_ptr<const PlanTable> to_plan_table(
    const Plan& plan, const DeviceInfo& device, const SupportedClocks& clocks,
    const std::function<bool(std::string_view kernel)>& is_obeyed) {
    const auto reject = [](const std::string& object, const std::string& why) {
        throw Error{Errc::invalid_input,
                    {"obey a plan", object, why, "make a plan from this program's own profile"}};
    };
    if (plan.gpu != gpu_name(device))
        reject(to_string(device), "the plan is for another GPU, " + plan.gpu);
    auto table = std::make_shared<PlanTable>();
    for (const PlannedKernel& kernel : plan.kernels) {
        if (!is_obeyed(kernel.key.name))
            reject(to_string(kernel.key), "no FromPlan policy is bound to this kernel");
        if (!supports(clocks, kernel.clock))
            reject(to_string(kernel.key),
                   to_string(device) + " does not list " + to_string(kernel.clock));
        const Duration lasts = std::chrono::round<Duration>(kernel.expected.time);
        table->set(kernel.key, {true, kernel.clock, lasts});
    }
    return table;
}

KDVFS_INLINE std::shared_ptr<const PlanTable> to_plan_table(PlannedSequence sequence,
                                                            const DeviceInfo& device,
                                                            const SupportedClocks& clocks) {
    const auto reject = [](const std::string& object, const std::string& why) {
        throw Error{Errc::invalid_input,
                    {"follow a plan", object, why, "make a plan from this program's own profile"}};
    };
    if (sequence.gpu != gpu_name(device))
        reject(to_string(device), "the plan is for another GPU, " + sequence.gpu);
    for (const PlannedSequence::Boundary& boundary : sequence.boundaries)
        if (!supports(clocks, boundary.clock))
            reject("launch " + std::to_string(boundary.before),
                   to_string(device) + " does not list " + to_string(boundary.clock));
    for (const PlannedSequence::Kernel& kernel : sequence.kernels)
        if (kernel.own.asks && !supports(clocks, kernel.own.point))
            reject(to_string(kernel.key),
                   to_string(device) + " does not list " + to_string(kernel.own.point));
    return kdvfs::to_plan_table(std::move(sequence));
}

KDVFS_INLINE std::shared_ptr<const PlanTable> plan_from_environment(
    const DeviceInfo& device, const SupportedClocks& clocks,
    const std::function<bool(std::string_view kernel)>& is_obeyed) {
    const std::string path{kdvfs::detail::environment("KDVFS_PLAN")};
    if (path.empty()) return nullptr;
    const std::string text = read_trusted_file(path);
    if (has_sequence(text, path)) return to_plan_table(parse_sequence(text, path), device, clocks);
    return to_plan_table(parse_plan(text, path), device, clocks, is_obeyed);
}

KDVFS_INLINE std::string to_json(const Plan& plan) {
    nlohmann::ordered_json json = detail::plan_json(plan);
    detail::add_kernels(json, plan);
    return json.dump(2) + '\n';
}

KDVFS_INLINE std::string to_json(const Plans& plans, Aggregate chosen) {
    nlohmann::ordered_json json = detail::plan_json(plans[chosen]);
    for (const Aggregate aggregate :
         {Aggregate::single, Aggregate::per_group, Aggregate::local, Aggregate::global})
        json[std::string{to_string(aggregate)}] = detail::totals_json(plans[aggregate]);
    json["best_static"] = detail::static_json(plans.single.kernels.front().clock,
                                              plans.single.expected, plans.single.baseline);
    detail::add_kernels(json, plans[chosen]);
    return json.dump(2) + '\n';
}

KDVFS_INLINE Plan parse_promise(std::string_view text, const std::string& file) {
    const nlohmann::json json = detail::parse_json(text, file);
    return detail::read_promise({json, file, ""});
}

KDVFS_INLINE Plan parse_plan(std::string_view text, const std::string& file) {
    const nlohmann::json json = detail::parse_json(text, file);
    const detail::PlanFields root{json, file, ""};
    Plan plan = detail::read_promise(root);
    const detail::PlanFields totals = root.object("plan");
    const auto aggregate = parse_aggregate(totals.text("aggregate"));
    if (!aggregate) totals.fail("aggregate", "is none of auto, single, per_group, local, global");
    plan.aggregate = *aggregate;

    const nlohmann::json& kernels = root.get("kernels");
    if (!kernels.is_array() || kernels.empty()) root.fail("kernels", "is no list, or empty");
    std::set<KernelKey> known;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        const detail::PlanFields fields{kernels[i], file, "kernels[" + std::to_string(i) + "]."};
        plan.kernels.push_back(detail::read_kernel(fields));
        if (!known.insert(plan.kernels.back().key).second) fields.fail("kernel", "is there twice");
    }
    return plan;
}

KDVFS_INLINE std::vector<std::pair<Aggregate, Cost>> parse_alternatives(std::string_view text,
                                                                        const std::string& file) {
    const nlohmann::json json = detail::parse_json(text, file);
    const detail::PlanFields root{json, file, ""};
    std::vector<std::pair<Aggregate, Cost>> alternatives;
    for (const Aggregate aggregate :
         {Aggregate::single, Aggregate::per_group, Aggregate::local, Aggregate::global}) {
        const std::string name{to_string(aggregate)};
        if (!json.contains(name)) continue;
        alternatives.emplace_back(aggregate, root.object(name.c_str()).cost("time_s", "energy_j"));
    }
    return alternatives;
}

KDVFS_INLINE std::string to_json(const SegmentPlan& plan) {
    nlohmann::ordered_json json{{"gpu", plan.gpu}, {"objective", plan.objective}};
    json["max_slowdown_pct"] = nullptr;
    if (std::isfinite(plan.max_slowdown)) json["max_slowdown_pct"] = 100 * plan.max_slowdown;
    json["baseline"] = {{"time_s", plan.baseline.time.count()},
                        {"energy_j", plan.baseline.energy.count},
                        {"core_mhz", detail::clock_json(plan.baseline_clock.core)},
                        {"mem_mhz", detail::clock_json(plan.baseline_clock.memory)}};
    json["plan"] = detail::cost_json(plan.expected, plan.baseline);
    json["plan"]["aggregate"] = "segments";
    json["plan"]["gap_pct"] = plan.gap_pct;
    json["without_latency"] = detail::cost_json(plan.without_latency, plan.baseline);
    json["single"] = detail::cost_json(plan.single, plan.baseline);
    json["single"]["core_mhz"] = detail::clock_json(plan.single_clock.core);
    json["single"]["mem_mhz"] = detail::clock_json(plan.single_clock.memory);
    json["best_static"] = detail::static_json(plan.single_clock, plan.single, plan.baseline);
    if (plan.predicted) json["predicted"] = true;
    if (!plan.reason.empty()) json["reason"] = plan.reason;
    if (!plan.level.empty()) json["level"] = plan.level;
    json["segments"] = nlohmann::ordered_json::array();
    for (const Segment& segment : plan.segments) {
        json["segments"].push_back({{"first", segment.first},
                                    {"last", segment.last},
                                    {"arrives_in", segment.arrives_in},
                                    {"lead_s", segment.lead.count()},
                                    {"core_mhz", detail::clock_json(segment.clock.core)},
                                    {"mem_mhz", detail::clock_json(segment.clock.memory)},
                                    {"time_s", segment.expected.time.count()},
                                    {"energy_j", segment.expected.energy.count}});
        if (segment.after) json["segments"].back()["after_s"] = segment.after->count();
    }
    if (!plan.sequence.profile_hash.empty()) json["profile_hash"] = plan.sequence.profile_hash;
    if (!plan.sequence.launches.empty()) json["sequence"] = detail::sequence_json(plan.sequence);
    return json.dump(2) + '\n';
}

KDVFS_INLINE bool has_sequence(std::string_view text, const std::string& file) {
    return detail::parse_json(text, file).contains("sequence");
}

KDVFS_INLINE PlannedSequence parse_sequence(std::string_view text, const std::string& file) {
    const nlohmann::json json = detail::parse_json(text, file);
    const detail::PlanFields root{json, file, ""};
    PlannedSequence sequence;
    sequence.gpu = root.text("gpu");
    if (!is_gpu_name(sequence.gpu)) root.fail("gpu", "is no GPU's name");
    if (json.contains("profile_hash")) sequence.profile_hash = root.text("profile_hash");
    const detail::PlanFields coded = root.object("sequence");
    if (coded.integer("version", 0) != planned_sequence_version)
        coded.fail("version", "is not " + std::to_string(planned_sequence_version) +
                                  ": the plan was written by another version of kdvfs");
    std::set<KernelKey> known;
    detail::read_list(coded, "kernels", file, [&](const detail::PlanFields& fields) {
        const KernelKey key{fields.text("kernel"), variant(fields.integer("variant", 0))};
        if (!is_kernel_name(key.name)) fields.fail("kernel", "is no kernel name");
        if (!known.insert(key).second) fields.fail("kernel", "is there twice");
        const double seconds = fields.number("time_s", 0);
        if (seconds > 1e6) fields.fail("time_s", "is out of range");
        ClockRequest own{.asks = fields.has("core_mhz")};
        if (own.asks) own.point = {fields.clock("core_mhz"), fields.clock("mem_mhz")};
        sequence.kernels.push_back({key, std::chrono::round<Duration>(Seconds{seconds}), own});
    });
    sequence.launches = kdvfs::detail::naming_file(file, [&] {
        return decode_launches(detail::read_runs(coded), detail::read_numbers(coded, "launches"));
    });
    for (const std::uint32_t launch : sequence.launches)
        if (launch >= sequence.kernels.size()) coded.fail("launches", "names no kernel");
    if (coded.text("hash") != detail::sequence_hash(sequence))
        coded.fail("hash", "is of another sequence: the file was changed by hand");
    detail::read_list(root, "segments", file, [&](const detail::PlanFields& fields) {
        const ClockPoint clock{fields.clock("core_mhz"), fields.clock("mem_mhz")};
        const std::size_t first = fields.integer("first", 0);
        if (first >= sequence.launches.size()) fields.fail("first", "is beyond the last launch");
        std::optional<Seconds> after;
        if (fields.has("after_s")) {
            after = Seconds{fields.number("after_s", 0)};
            if (*after > Seconds{1e6}) fields.fail("after_s", "is out of range");
        }
        if (!sequence.boundaries.empty()) {
            const PlannedSequence::Boundary& before = sequence.boundaries.back();
            if (first < before.before || (first == before.before && !before.after))
                fields.fail("first", "is not behind the segment before it");
        }
        sequence.boundaries.push_back({first, clock, detail::to_duration(after)});
    });
    return sequence;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
