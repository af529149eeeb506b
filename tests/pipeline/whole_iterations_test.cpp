// SPDX-License-Identifier: MIT
// Iterations with transfers, collectives, embedding and optimizer, and orders given as text,
// against a simulation that knows nothing of dependencies.
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/train/pipeline_shape.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/train/schedules.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::train {
namespace {

/// The (stage, chunk)s that a microbatch goes through, for each way through the model.
using Way = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

std::vector<Way> ways_of(const PipelineShape& shape) {
    const auto along = [&](std::uint32_t chunk, bool is_back, Way& way) {
        for (std::uint32_t k = 0; k < shape.stages; ++k)
            way.emplace_back(is_back ? shape.stages - 1 - k : k, chunk);
    };
    if (shape.placement == Placement::both_ends) {
        std::vector<Way> two(2);
        along(0, false, two[0]);
        along(1, true, two[1]);
        return two;
    }
    std::vector<Way> one(1);
    for (std::uint32_t c = 0; c < shape.chunks; ++c)
        along(c, shape.placement == Placement::v && c % 2 == 1, one[0]);
    return one;
}

/// Runs an iteration: every stage takes its operations in their order, as soon as what they need
/// has arrived. Gradients are reduced bucket by bucket, one after the other.
class IterationRun {
public:
    IterationRun(const Pipeline& pipeline, const PipelineShape& shape) : p_{pipeline}, s_{shape} {
        for (std::uint32_t i = 0; i < p_.operations.size(); ++i) {
            const Operation& o = p_.operations[i];
            if (o.pass == Pass::forward_backward) {
                at_[{o.stage, Pass::forward, o.chunk, o.microbatch}] = i;
                at_[{o.stage, Pass::backward, o.over_chunk, o.over_microbatch}] = i;
            } else {
                at_[{o.stage, o.pass, o.chunk, o.microbatch}] = i;
            }
        }
        ends_.resize(p_.operations.size());
    }

    double operator()() {
        for (bool moves = true; moves;) {
            moves = false;
            for (std::uint32_t i = 0; i < ends_.size(); ++i) {
                if (ends_[i]) continue;
                const auto begin = ready(i);
                if (!begin) continue;
                ends_[i] = *begin + lasts(i);
                moves = true;
            }
        }
        double last = 0;
        for (const auto& end : ends_) last = std::max(last, end.value());
        return last;
    }

private:
    using Key = std::tuple<std::uint32_t, Pass, std::uint32_t, std::uint32_t>;

    [[nodiscard]] double lasts(std::uint32_t i) const {
        return p_.curves[p_.operations[i].curve].points().front().time.count();
    }
    [[nodiscard]] std::optional<double> end_of(const Key& key) const {
        const auto found = at_.find(key);
        return found == at_.end() ? std::nullopt : ends_[found->second];
    }
    /// Of a backward that other stages wait for, split or not.
    [[nodiscard]] std::optional<double> gradient(std::uint32_t stage, std::uint32_t chunk,
                                                 std::uint32_t microbatch) const {
        const Key whole{stage, Pass::backward, chunk, microbatch};
        return at_.contains(whole) ? end_of(whole)
                                   : end_of({stage, Pass::backward_input, chunk, microbatch});
    }

    [[nodiscard]] std::optional<double> ready(std::uint32_t i) const {
        const Operation& o = p_.operations[i];
        std::optional<double> latest = 0;
        const auto need = [&](std::optional<double> at, double transfer = 0) {
            latest = at && latest ? std::optional{std::max(*latest, *at + transfer)} : std::nullopt;
        };
        if (i != p_.stage_begin[o.stage]) need(ends_[i - 1]);
        const bool overlaps = o.pass == Pass::forward_backward;
        if (o.pass == Pass::forward || overlaps) need_forward(o.stage, o.chunk, o.microbatch, need);
        if (o.pass == Pass::backward || o.pass == Pass::backward_input)
            need_backward(o.stage, o.chunk, o.microbatch, need);
        if (overlaps) need_backward(o.stage, o.over_chunk, o.over_microbatch, need);
        if (o.pass == Pass::backward_weight) need(gradient(o.stage, o.chunk, o.microbatch));
        if (o.pass == Pass::collective)  // of the first and the last stage together
            for (const std::uint32_t other : {0U, p_.stages - 1}) {
                const auto there = at_.find({other, Pass::collective, 0, 0});
                if (there != at_.end() && there->second != p_.stage_begin[other])
                    need(ends_[there->second - 1]);
            }
        const bool is_after = o.pass == Pass::collective || o.pass == Pass::optimizer;
        if (is_after && !s_.reduction.time.empty() && latest) need(reduced(o.stage));
        return latest;
    }

    template <class Need>
    void need_forward(std::uint32_t stage, std::uint32_t chunk, std::uint32_t microbatch,
                      const Need& need) const {
        for (const Way& way : ways_of(s_))
            for (std::size_t k = 1; k < way.size(); ++k)
                if (way[k] == std::pair{stage, chunk})
                    need(end_of({way[k - 1].first, Pass::forward, way[k - 1].second, microbatch}),
                         way[k - 1].first == stage ? 0 : s_.activations.count());
    }
    template <class Need>
    void need_backward(std::uint32_t stage, std::uint32_t chunk, std::uint32_t microbatch,
                       const Need& need) const {
        for (const Way& way : ways_of(s_))
            for (std::size_t k = 0; k < way.size(); ++k) {
                if (way[k] != std::pair{stage, chunk}) continue;
                if (k + 1 == way.size())
                    need(end_of({stage, Pass::forward, chunk, microbatch}));
                else
                    need(gradient(way[k + 1].first, way[k + 1].second, microbatch),
                         way[k + 1].first == stage ? 0 : s_.gradients.count());
            }
    }

    /// When the last bucket of a stage is reduced: buckets come evenly over each chunk's last
    /// backward.
    [[nodiscard]] double reduced(std::uint32_t stage) const {
        std::map<std::uint32_t, std::uint32_t> last;  // by chunk
        for (std::uint32_t i = p_.stage_begin[stage]; i < p_.stage_begin[stage + 1]; ++i) {
            const Operation& o = p_.operations[i];
            if (o.pass == Pass::backward || o.pass == Pass::backward_weight) last[o.chunk] = i;
            if (o.pass == Pass::forward_backward) last[o.over_chunk] = i;
        }
        const double buckets = s_.reduction.buckets;
        std::vector<double> come;
        for (const auto& [chunk, i] : last)
            for (std::uint32_t b = 1; b <= s_.reduction.buckets; ++b)
                come.push_back(ends_[i].value() - (1 - b / buckets) * lasts(i));
        std::sort(come.begin(), come.end());
        double free = 0;
        for (const double at : come)
            free = std::max(free, at) +
                   s_.reduction.time[stage].count() / (buckets * static_cast<double>(last.size()));
        return free;
    }

    const Pipeline& p_;
    const PipelineShape& s_;
    std::map<Key, std::uint32_t> at_;
    std::vector<std::optional<double>> ends_;
};

/// A pipeline whose operations take one time each, drawn from a range.
Pipeline constant_pipeline(const PipelineShape& shape, std::mt19937_64& random) {
    std::uniform_real_distribution<double> time{0.001, 0.02};
    std::vector<Curve> curves;
    CurveIndex index;
    for (std::uint32_t s = 0; s < shape.stages; ++s)
        for (std::uint32_t c = 0; c < shape.chunks; ++c)
            for (const Pass pass : all_passes) {
                index[{s, pass, c}] = static_cast<std::uint32_t>(curves.size());
                curves.emplace_back(
                    "one time",
                    std::vector<CurvePoint>{
                        {{Megahertz{1000}, auto_clock}, Seconds{time(random)}, Joules{1}}},
                    Watts{10}, Shape::constant);
            }
    return make_pipeline(shape, index, curves, Watts{10});
}

void add_parts(PipelineShape& shape, std::mt19937_64& random) {
    std::uniform_real_distribution<double> time{0, 0.02};
    shape.activations = Seconds{time(random)};
    shape.gradients = Seconds{time(random)};
    shape.before = {{Pass::embedding, {0}, false}};
    shape.after = {{Pass::collective, {0, shape.stages - 1}, true}, {Pass::optimizer, {}, false}};
    for (std::uint32_t s = 0; s < shape.stages; ++s)
        shape.reduction.time.emplace_back(3 * time(random));
    shape.reduction.buckets = static_cast<std::uint32_t>(1 + random() % 6);
}

TEST(WholeIterations, OfKnownSchedulesTakeAsLongAsASimulationOfThem) {
    std::mt19937_64 random{31};
    for (int k = 0; k < 400; ++k) {
        PipelineShape shape{static_cast<Schedule>(k % 4),
                            1 + static_cast<std::uint32_t>(random() % 5), 1,
                            1 + static_cast<std::uint32_t>(random() % 7)};
        if (shape.schedule == Schedule::interleaved_1f1b) {
            shape.chunks = 1 + static_cast<std::uint32_t>(random() % 3);
            shape.microbatches = shape.stages * (1 + static_cast<std::uint32_t>(random() % 3));
        }
        add_parts(shape, random);
        const Pipeline pipeline = constant_pipeline(shape, random);
        ASSERT_NEAR(Frontier{pipeline}.shortest().count(), IterationRun(pipeline, shape)(), 1e-7)
            << to_string(shape.schedule) << ", " << shape.stages << " stages, case " << k;
    }
}

/// An order without a deadlock: all stages run anything that they could, by chance, and forwards
/// over backwards where both could run.
std::string random_order(const PipelineShape& shape, bool splits, std::mt19937_64& random) {
    std::vector<std::string> lines(shape.stages);
    struct Task {
        std::size_t way, place;
        std::uint32_t microbatch;
        char pass;
    };
    const auto ways = ways_of(shape);
    std::vector<Task> ready;
    std::map<std::tuple<std::size_t, std::size_t, std::uint32_t>, bool> forwarded;
    for (std::size_t w = 0; w < ways.size(); ++w)
        for (std::uint32_t m = 0; m < shape.microbatches; ++m) ready.push_back({w, 0, m, 'F'});
    const auto stage_of = [&](const Task& t) { return ways[t.way][t.place].first; };
    const auto word = [&](const Task& t) {
        const std::uint32_t chunk = ways[t.way][t.place].second;
        return std::string(1, t.pass) + std::to_string(t.microbatch) +
               (chunk > 0 ? "." + std::to_string(chunk) : "");
    };
    const auto take = [&](std::size_t k) {
        const Task task = ready[k];
        ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(k));
        return task;
    };
    const auto finish = [&](const Task& t) {
        const bool is_last = t.place + 1 == ways[t.way].size();
        if (t.pass == 'F')
            ready.push_back(
                {t.way, is_last ? t.place : t.place + 1, t.microbatch, is_last ? 'B' : 'F'});
        if (t.pass == 'B' && t.place > 0) ready.push_back({t.way, t.place - 1, t.microbatch, 'B'});
        if (t.pass == 'B' && splits) ready.push_back({t.way, t.place, t.microbatch, 'W'});
    };
    while (!ready.empty()) {
        const Task task = take(random() % ready.size());
        std::optional<Task> beside;
        for (std::size_t k = 0; k < ready.size() && !beside && !splits && random() % 2 == 0; ++k)
            if (stage_of(ready[k]) == stage_of(task) &&
                ((ready[k].pass == 'F' && task.pass == 'B') ||
                 (ready[k].pass == 'B' && task.pass == 'F')))
                beside = take(k);
        lines[stage_of(task)] += " " + word(task) + (beside ? "+" + word(*beside) : "");
        finish(task);
        if (beside) finish(*beside);
    }
    std::string text;
    for (std::size_t s = 0; s < lines.size(); ++s)
        text += "stage " + std::to_string(s) + ":" + lines[s] + "\n";
    return text;
}

TEST(WholeIterations, OfOrdersAsTextTakeAsLongAsASimulationOfThem) {
    std::mt19937_64 random{32};
    for (int k = 0; k < 300; ++k) {
        PipelineShape drawn{Schedule::graph, 1 + static_cast<std::uint32_t>(random() % 4), 1,
                            1 + static_cast<std::uint32_t>(random() % 5)};
        drawn.placement = static_cast<Placement>(k % 3);
        drawn.chunks = drawn.placement == Placement::both_ends
                           ? 2
                           : 1 + static_cast<std::uint32_t>(random() % 3);
        const std::string text = random_order(drawn, k % 2 == 0, random);
        PipelineShape shape = parse_schedule(text);
        ASSERT_EQ(shape.stages, drawn.stages) << text;
        ASSERT_EQ(shape.chunks, drawn.chunks) << text;
        ASSERT_EQ(shape.microbatches, drawn.microbatches) << text;
        shape.placement = drawn.placement;
        add_parts(shape, random);
        const Pipeline pipeline = constant_pipeline(shape, random);
        ASSERT_NEAR(Frontier{pipeline}.shortest().count(), IterationRun(pipeline, shape)(), 1e-7)
            << "case " << k << "\n"
            << text;
    }
}

TEST(WholeIterations, TextOfAKnownScheduleIsThatSchedule) {
    const PipelineShape shape = parse_schedule(
        "0: F0, F1, f2, input0, Weight0, F3, I1, W1, I2, W2, I3, W3\n"
        "# the papers' B is the part that others wait for\n"
        "1: F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3\n"
        "2: F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3\n");
    const Pipeline read = unmeasured_pipeline(shape);
    const Pipeline known = unmeasured_pipeline({Schedule::zb_h1, 3, 1, 4});
    EXPECT_EQ(read.operations, known.operations);
    const auto pairs = [](const Pipeline& pipeline) {
        std::vector<std::pair<std::uint32_t, std::uint32_t>> all;
        for (const Dependency& d : pipeline.dependencies) all.emplace_back(d.first, d.then);
        std::sort(all.begin(), all.end());
        return all;
    };
    EXPECT_EQ(pairs(read), pairs(known));
    for (const char* wrong : {"F0 X1", "F0 B", "F0.x", "F0+F1", "", "F0+B0.", "F99999999999"})
        EXPECT_THROW((void)parse_schedule(wrong), Error) << wrong;
    for (const char* wrong : {"F0 F0 B0", "F0\nB0", "F0 F1\nF0 B0 B1"})
        EXPECT_THROW((void)unmeasured_pipeline(parse_schedule(wrong)), Error) << wrong;
}

TEST(WholeIterations, CollectivesTakeWhatTheirRingsTake) {
    // Step by step: every rank sends a part of the buffer to the next one.
    const Link link{1e9, Seconds{1e-5}};
    for (const std::uint32_t ranks : {1U, 2U, 3U, 8U, 64U}) {
        double once = 0;
        for (std::uint32_t step = 1; step < ranks; ++step) once += 1e-5 + 1e8 / ranks / 1e9;
        const auto time = [&](Collective kind) {
            return collective_time(kind, 1e8, ranks, link).count();
        };
        EXPECT_NEAR(time(Collective::all_gather), once, 1e-12);
        EXPECT_NEAR(time(Collective::reduce_scatter), once, 1e-12);
        EXPECT_NEAR(time(Collective::all_to_all), once, 1e-12);
        EXPECT_NEAR(time(Collective::all_reduce), 2 * once, 1e-12);
        EXPECT_NEAR(time(Collective::send), 0.10001, 1e-12);
    }
    EXPECT_THROW((void)collective_time(Collective::send, 1, 1, {}), Error);
    EXPECT_THROW((void)collective_time(Collective::all_reduce, 1, 0, link), Error);
    EXPECT_THROW((void)collective_time(Collective::all_reduce, -1, 2, link), Error);
}

nlohmann::json whole_case() {
    nlohmann::json json{{"format", "pipeline-case-1"},
                        {"schedule", "1f1b"},
                        {"stages", 2},
                        {"microbatches", 2},
                        {"blocking_power_w", 50.0},
                        {"links", {{"net", {{"bytes_per_s", 1e9}, {"latency_s", 0.001}}}}},
                        {"activations", {{"bytes", 9e6}, {"link", "net"}}},
                        {"gradients", {{"time_s", 0.02}}},
                        {"before", {{{"op", "embedding"}, {"stages", {0}}}}},
                        {"after", {{{"op", "Optimizer"}}}},
                        {"reduction", {{"time_s", 0.4}, {"buckets", 4}}}};
    for (int stage = 0; stage < 2; ++stage) {
        for (const char* op : {"forward", "backward"})
            json["profiles"].push_back({{"stage", stage},
                                        {"op", op},
                                        {"points", {{1400, 0.1, 30.0}, {1000, 0.15, 27.5}}}});
        json["profiles"].push_back(
            {{"stage", stage}, {"op", "optimizer"}, {"points", {{1400, 0.03, 5.0}}}});
    }
    json["profiles"].push_back(
        {{"stage", 0}, {"op", "embedding"}, {"points", {{1400, 0.05, 9.0}}}});
    return json;
}

TEST(WholeIterations, AreReadFromCases) {
    const PipelineCase read = parse_pipeline_case(whole_case().dump(), "whole");
    // 0.05 + F0 0.1 + 0.01 over the link, then F0 B0 F1 B1 of the last stage, 0.02, the first
    // stage's B1, what is left of its gradients (0.4 - 3/4 x 0.1), optimizer.
    const double shortest = 0.05 + 0.1 + 0.01 + 0.4 + 0.02 + 0.1 + 0.325 + 0.03;
    EXPECT_NEAR(Frontier{read.pipeline}.shortest().count(), shortest, 1e-8);
    const std::string text = to_case_text(read.pipeline, "whole");
    const Pipeline again = parse_pipeline_case(text, "again").pipeline;
    EXPECT_EQ(to_case_text(again, "whole"), text);
    EXPECT_NEAR(Frontier{again}.shortest().count(), shortest, 1e-8);
    EXPECT_EQ(again.operations.size(), read.pipeline.operations.size());
}

/// Within an operation: what is waited for adds time and energy, what is overlapped is a floor.
TEST(WholeIterations, CollectivesWithinOperationsChangeTheirCurves) {
    nlohmann::json json = whole_case();
    json["profiles"][0]["collectives"] = {
        {{"kind", "all-reduce"}, {"ranks", 4}, {"bytes", 4e6}, {"link", "net"}, {"power_w", 100}},
        {{"time_s", 0.08}, {"overlapped", true}},
        {{"time_s", 0.04}, {"overlapped", true}}};
    const Pipeline pipeline = parse_pipeline_case(json.dump(), "c").pipeline;
    const auto points = pipeline.curves[0].points();
    const double waited = 6 * (0.001 + 1e6 / 1e9);
    EXPECT_NEAR(points[0].time.count(), 0.12 + waited, 1e-9);
    EXPECT_NEAR(points[0].energy.count, 30 + 0.02 * 50 + waited * 100, 1e-9);
    EXPECT_NEAR(points[1].time.count(), 0.15 + waited, 1e-9);
    EXPECT_NEAR(points[1].energy.count, 27.5 + waited * 100, 1e-9);
}

TEST(WholeIterations, OrdersAndPlacesAreReadFromCases) {
    nlohmann::json json = whole_case();
    json["schedule"] = "graph";
    json.erase("microbatches");
    json["order"] = {"F0 F1.1+B0 B1.1", "F1.1 B1.1 F0 B0"};
    json["placement"] = "dual";
    json["profiles"].push_back({{"stage", 0},
                                {"op", "forward_backward"},
                                {"points", {{1400, 0.17, 55.0}, {1000, 0.25, 50.0}}}});
    for (auto& profile : json["profiles"]) profile.erase("chunk");
    json["order"] = {"F0 B0", "F0 B0"};
    json["placement"] = "loop";
    EXPECT_EQ(parse_pipeline_case(json.dump(), "c").pipeline.operations.size(), 7U);
    json["order"] = {"F0 F0.1 F1 B0.1 B0+F1.1 B1.1 B1", "F0.1 B0.1 F0 B0 F1.1 B1.1 F1 B1"};
    json["placement"] = "dual";
    const Pipeline dual = parse_pipeline_case(json.dump(), "c").pipeline;
    EXPECT_EQ(dual.operations.size(), 7U + 8U + 3U);
    const std::string text = to_case_text(dual, "dual");
    EXPECT_EQ(to_case_text(parse_pipeline_case(text, "dual").pipeline, "dual"), text);
}

TEST(WholeIterations, ThatMakeNoSenseAreRefused) {
    const auto refused = [](const char* field, const nlohmann::json& value) {
        nlohmann::json json = whole_case();
        json[field] = value;
        try {
            (void)parse_pipeline_case(json.dump(), "case.json");
        } catch (const Error& error) {
            return std::string{error.what()};
        }
        return std::string{"none"};
    };
    const auto names = [](const std::string& text, const std::string& words) {
        return text.find(words) != std::string::npos;
    };
    EXPECT_TRUE(names(refused("activations", {{"bytes", 1}, {"link", "other"}}), "link"));
    EXPECT_TRUE(names(refused("activations", {{"time_s", -1}}), "time_s"));
    EXPECT_TRUE(names(refused("gradients", 3), "gradients"));
    EXPECT_TRUE(names(refused("links", {{"net", {{"bytes_per_s", 0}}}}), "bandwidth"));
    EXPECT_TRUE(names(refused("after", {{{"op", "forward"}}}), "microbatches"));
    EXPECT_TRUE(names(refused("after", {{{"op", "optimizer"}}, {{"op", "optimizer"}}}), "twice"));
    EXPECT_TRUE(names(refused("after", {{{"op", "optimizer"}, {"stages", {7}}}}), "stage 7"));
    EXPECT_TRUE(names(refused("after", nlohmann::json::array()), "nothing waits"));
    EXPECT_TRUE(names(refused("reduction", {{"stages", {{{"time_s", 1}}}}}), "each stage"));
    EXPECT_TRUE(names(refused("order", {"F0 B0"}), "order"));
    EXPECT_TRUE(names(refused("placement", "w"), "placement"));
    EXPECT_TRUE(names(refused("placement", "v"), "loop"));
}

}  // namespace
}  // namespace kdvfs::train
