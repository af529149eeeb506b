// SPDX-License-Identifier: MIT
#include <kdvfs/detail/serve/pool_json.hpp>
#include <kdvfs/serve/pool.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::serve {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

class Random {
public:
    explicit Random(std::uint64_t seed) : engine_{seed} {}
    double operator()(double low, double high) {
        return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
    }
    std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>((*this)(0, end)); }

private:
    std::mt19937_64 engine_;
};

std::vector<InstancePoint> random_profile(Random& random, std::uint32_t clocks) {
    std::vector<InstancePoint> profile;
    for (const std::uint32_t parallelism : {2U, 4U, 8U}) {
        for (std::uint32_t clock = 1; clock <= clocks; ++clock) {
            const double f = clock / static_cast<double>(clocks);
            InstancePoint point;
            point.parallelism = parallelism;
            point.clock = {800 + 100 * clock};
            point.load = parallelism * (0.3 + f) * random(0.7, 1.1);
            point.power = {parallelism * (120 + 300 * f * f) * random(0.9, 1.1)};
            point.first_token = Seconds{random(0.1, 0.6)};
            point.gap = Seconds{random(0.02, 0.12)};
            profile.push_back(point);
        }
    }
    return profile;
}

/// Least power over idle for every number of GPUs, by trying all counts of all points.
std::vector<double> by_brute_force(const std::vector<InstancePoint>& points, double load,
                                   std::uint32_t gpus, double idle) {
    std::vector<double> best(gpus + 1, infinity);
    const auto try_kinds = [&](const auto& self, std::uint32_t parallelism, double left,
                               std::uint32_t used, double watts) -> void {
        if (left <= 1e-9 * load) best[used] = std::min(best[used], watts);
        if (parallelism > 8) return;
        self(self, parallelism * 2, left, used, watts);
        for (const InstancePoint& point : points) {
            if (point.parallelism != parallelism) continue;
            for (std::uint32_t n = 1; used + n * parallelism <= gpus; ++n)
                self(self, parallelism * 2, left - n * point.load, used + n * parallelism,
                     watts + n * (point.power.count - idle * parallelism));
        }
    };
    try_kinds(try_kinds, 2, load, 0, 0);
    for (std::uint32_t g = 1; g <= gpus; ++g) best[g] = std::min(best[g], best[g - 1]);
    return best;
}

double brute_force_cluster(const std::vector<ServiceClass>& classes, std::uint32_t gpus,
                           double idle) {
    double least = infinity;
    for (std::uint32_t way = 0; way < 1U << classes.size(); ++way) {
        std::vector<double> total(gpus + 1, 0);
        bool possible = true;
        for (std::size_t c = 0; c < classes.size(); ++c)
            if ((way >> c & 1U) && !classes[c].overflow_pool) possible = false;
        if (!possible) continue;
        std::vector<std::vector<std::size_t>> members(classes.size());
        for (std::size_t c = 0; c < classes.size(); ++c) {
            std::size_t owner = c;
            while (way >> owner & 1U) owner = *classes[owner].overflow_pool;
            if (classes[c].load > 0) members[owner].push_back(c);
        }
        for (std::size_t owner = 0; owner < classes.size(); ++owner) {
            if (members[owner].empty()) continue;
            double load = 0, first_token = infinity, gap = infinity;
            for (const std::size_t c : members[owner]) {
                load += classes[c].load;
                first_token = std::min(first_token, classes[c].first_token.count());
                gap = std::min(gap, classes[c].gap.count());
            }
            std::vector<InstancePoint> points;
            for (const InstancePoint& point : classes[owner].profile)
                if (point.first_token.count() <= first_token && point.gap.count() <= gap)
                    points.push_back(point);
            const auto pool = by_brute_force(points, load, gpus, idle);
            std::vector<double> sum(gpus + 1, infinity);
            for (std::uint32_t a = 0; a <= gpus; ++a)
                for (std::uint32_t b = 0; a + b <= gpus; ++b)
                    sum[a + b] = std::min(sum[a + b], total[a] + pool[b]);
            total = sum;
        }
        least = std::min(least, total[gpus]);
    }
    return least + idle * gpus;
}

/// A plan does what it says.
void expect_sound(const std::vector<ServiceClass>& classes, const ClusterPlan& plan,
                  std::uint32_t gpus, double idle) {
    double watts = 0;
    std::uint32_t used = 0;
    std::vector<int> served(classes.size());
    for (const ClusterPool& pool : plan.pools) {
        double capacity = 0, load = 0;
        for (const std::size_t c : pool.serves) {
            load += classes[c].load;
            ++served[c];
        }
        for (const InstanceGroup& group : pool.plan.groups) {
            capacity += group.count * group.point.load;
            watts += group.count * group.point.power.count;
            used += group.count * group.point.parallelism;
            for (const std::size_t c : pool.serves) {
                EXPECT_LE(group.point.first_token, classes[c].first_token);
                EXPECT_LE(group.point.gap, classes[c].gap);
            }
        }
        EXPECT_GE(capacity, load * (1 - 1e-8));
    }
    for (std::size_t c = 0; c < classes.size(); ++c)
        EXPECT_EQ(served[c], classes[c].load > 0 ? 1 : 0);
    EXPECT_EQ(plan.gpus, used);
    EXPECT_LE(used, gpus);
    EXPECT_NEAR(plan.power.count, watts + idle * (gpus - used), 1e-6);
}

constexpr std::uint64_t cases = 1000;

TEST(PlanCluster, OfOneClassIsWhatBruteForceFindsOrRefused) {
    std::uint64_t feasible = 0;
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
        Random random{seed};
        ServiceClass service;
        service.name = "all";
        service.first_token = Seconds{random(0.25, 0.6)};
        service.gap = Seconds{random(0.03, 0.12)};
        const auto profile = random_profile(random, 1 + random.below(5));
        const std::uint32_t gpus = random.below(25);
        const double load = random(0, 25), idle = seed % 2 ? 60 : 0;
        std::vector<InstancePoint> points;
        for (const InstancePoint& point : profile)
            if (point.first_token <= service.first_token && point.gap <= service.gap)
                points.push_back(point);
        const double truth = by_brute_force(points, load, gpus, idle).back() + idle * gpus;
        service.load = load;
        service.profile = profile;
        const ClusterPlan plan = plan_cluster({&service, 1}, gpus, {idle});
        ASSERT_EQ(plan.refused.empty(), std::isfinite(truth)) << seed << ' ' << plan.refused;
        if (!plan.refused.empty()) continue;
        ASSERT_NEAR(plan.power.count, truth, 1e-6) << seed;
        ++feasible;
    }
    std::cout << "plan_cluster of one class: " << cases << " random cases, " << feasible
              << " as by brute force, " << cases - feasible << " refused, as there\n";
    EXPECT_GT(feasible, cases / 4);
    EXPECT_LT(feasible, cases);
}

TEST(PlanCluster, IsWhatBruteForceFindsOrRefused) {
    std::uint64_t feasible = 0, spilling = 0;
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
        Random random{1000 + seed};
        std::vector<ServiceClass> classes(1 + random.below(4));
        for (std::size_t c = 0; c < classes.size(); ++c) {
            classes[c].name = "class" + std::to_string(c);
            classes[c].load = random.below(5) == 0 ? 0 : random(0, 6);
            classes[c].first_token = Seconds{random(0.25, 0.6)};
            classes[c].gap = Seconds{random(0.06, 0.12)};
            classes[c].profile = random_profile(random, 1 + random.below(3));
            if (c + 1 < classes.size() && random.below(4) != 0) classes[c].overflow_pool = c + 1;
        }
        const std::uint32_t gpus = 2 + random.below(19);
        const double idle = seed % 2 ? 60 : 0;
        const double truth = brute_force_cluster(classes, gpus, idle);
        const ClusterPlan plan = plan_cluster(classes, gpus, {idle});
        ASSERT_EQ(plan.refused.empty(), std::isfinite(truth)) << seed << ' ' << plan.refused;
        if (!plan.refused.empty()) continue;
        ASSERT_NEAR(plan.power.count, truth, 1e-6) << seed;
        expect_sound(classes, plan, gpus, idle);
        ++feasible;
        for (const ClusterPool& pool : plan.pools) spilling += pool.serves.size() > 1;
    }
    std::cout << "plan_cluster: " << cases << " random cases, " << feasible
              << " as by brute force, " << cases - feasible << " refused, as there\n";
    EXPECT_GT(feasible, cases / 4);
    EXPECT_LT(feasible, cases);
    EXPECT_GT(spilling, 0U);
}

std::vector<ServiceClass> nine_random_classes(std::uint64_t seed, double load) {
    Random random{seed};
    auto classes = nine_classes();
    for (ServiceClass& service : classes) {
        service.load = random(0, load);
        service.first_token = Seconds{0.55};
        service.gap = Seconds{0.11};
        service.profile = random_profile(random, 10);
    }
    return classes;
}

/// 9 classes x parallelism 2, 4, 8 x 10 clocks; some clusters have room, some hardly any.
TEST(PlanCluster, NineClassesInMilliseconds) {
    std::vector<double> milliseconds;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const auto classes = nine_random_classes(seed, 4.0 * static_cast<double>(1 + seed % 5));
        const std::clock_t begin = std::clock();
        const ClusterPlan plan = plan_cluster(classes, 96, {70});
        milliseconds.push_back(1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
        if (plan.refused.empty()) expect_sound(classes, plan, 96, 70);
    }
    std::sort(milliseconds.begin(), milliseconds.end());
    std::cout << "plan_cluster, 9 classes: CPU ms: median " << milliseconds[10] << ", worst "
              << milliseconds.back() << '\n';
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(milliseconds.back(), 20);
#endif
}

TEST(PlanCluster, SaysWhyThereIsNone) {
    auto classes = nine_random_classes(1, 100);
    EXPECT_NE(plan_cluster(classes, 8).refused.find("GPUs, and there are 8"), std::string::npos);
    for (ServiceClass& service : classes) service.gap = Seconds{0.001};
    EXPECT_EQ(plan_cluster(classes, 1000).refused,
              "a class has no measured point that keeps its targets");
}

/// Instances without end are neither counted round the corner nor told as a number of GPUs.
TEST(PlanCluster, MoreInstancesThanThereCanBeAreRefused) {
    std::vector<ServiceClass> classes(1);
    InstancePoint& point = classes[0].profile.emplace_back();
    point.power = {1e9};
    classes[0].load = 4295;
    point.load = 1;
    point.parallelism = 1'000'000;  // 32704 GPUs more than 32 bits count
    EXPECT_EQ(plan_cluster(classes, 1'000'000).refused,
              "the loads need 4295000000 GPUs, and there are 1000000");
    point.parallelism = 1;
    for (const auto& [load, of_point] : {std::pair{1e9, 1.0}, std::pair{1.0, 0.0}}) {
        classes[0].load = load;
        point.load = of_point;
        EXPECT_NE(plan_cluster(classes, 8).refused.find("a million instances"), std::string::npos)
            << plan_cluster(classes, 8).refused;
    }
    // Where a class must spill over, what it spills into decides.
    classes.push_back(classes[0]);
    classes[1].profile[0].load = 2;
    classes[0].overflow_pool = 1;
    EXPECT_EQ(plan_cluster(classes, 8).gpus, 1U);
}

/// Of plans that draw the same, the one of fewer GPUs, and of less spilling over.
TEST(PlanCluster, TiesGoToFewerGpusAndLessSpilling) {
    std::vector<ServiceClass> classes(2);
    classes[0].load = classes[1].load = 1;
    for (ServiceClass& service : classes)
        for (const std::uint32_t parallelism : {4U, 2U}) {
            InstancePoint& point = service.profile.emplace_back();
            point.parallelism = parallelism;
            point.load = 1;
            point.power = {100};
        }
    classes[0].overflow_pool = 1;
    const ClusterPlan plan = plan_cluster(classes, 16);
    EXPECT_EQ(plan.pools.size(), 2U);
    EXPECT_EQ(plan.gpus, 4U);
}

TEST(PlanCluster, BadInputIsRefused) {
    auto classes = nine_random_classes(1, 1);
    classes[8].overflow_pool = 0;
    EXPECT_THROW(plan_cluster(classes, 8), Error);
    classes[8].overflow_pool = 99;
    EXPECT_THROW(plan_cluster(classes, 8), Error);
    classes[8].overflow_pool.reset();
    classes[3].load = -1;
    EXPECT_THROW(plan_cluster(classes, 8), Error);
    classes[3].load = 1;
    EXPECT_THROW(plan_cluster(classes, 8, {1000}), Error);
    EXPECT_THROW(plan_cluster(classes, 8, {-50}), Error);
    EXPECT_THROW(plan_cluster(classes, 8, {std::nan("")}), Error);
    classes[2].gap = Seconds{std::nan("")};
    EXPECT_THROW(plan_cluster(classes, 8), Error);
    EXPECT_THROW(plan_cluster({}, 8), Error);
}

TEST(PlanCluster, NothingToDoNeedsNothing) {
    auto classes = nine_random_classes(1, 0);
    const ClusterPlan plan = plan_cluster(classes, 8, {50});
    EXPECT_EQ(plan.refused, "");
    EXPECT_EQ(plan.gpus, 0U);
    EXPECT_EQ(plan.power, Watts{400});
}

TEST(NineClasses, CutsAndSuccessors) {
    const auto classes = nine_classes();
    EXPECT_EQ(classes[class_of(255, 99)].name, "SS");
    EXPECT_EQ(classes[class_of(256, 350)].name, "ML");
    EXPECT_EQ(classes[class_of(1024, 100)].name, "LM");
    EXPECT_EQ(classes[2].overflow_pool, 5U);
    EXPECT_EQ(classes[8].overflow_pool, std::nullopt);
}

constexpr const char* question_text = R"({"gpus": 8, "idle_gpu_w": 60, "classes": [
  {"name": "short", "load_rps": 1.5, "first_token_ms": 250, "gap_ms": 100, "overflow_pool": "long",
   "profile": [{"parallelism": 2, "core_mhz": 1200, "load_rps": 2, "power_w": 500,
                "first_token_ms": 200, "gap_ms": 50}]},
  {"name": "long", "load_rps": 0.4, "first_token_ms": 500, "gap_ms": 100,
   "profile": [{"parallelism": 4, "core_mhz": -1, "load_rps": 2, "power_w": 700,
                "first_token_ms": 240, "gap_ms": 60}]}]})";

TEST(PoolJson, InAndOut) {
    const ClusterQuestion question = parse_cluster_question(question_text, "pools.json");
    const ClusterPlan plan = plan_cluster(question.classes, question.gpus, question.idle_gpu);
    const auto json = nlohmann::json::parse(to_json(question, plan));
    // One pool of four GPUs and four idle ones beat one of two, one of four and two idle ones.
    EXPECT_EQ(json["feasible"], true);
    EXPECT_EQ(json["power_w"], 700 + 4 * 60);
    EXPECT_EQ(json["pools"].size(), 1U);
    EXPECT_EQ(json["pools"][0]["serves"], nlohmann::json({"short", "long"}));
    EXPECT_EQ(json["pools"][0]["instances"][0]["core_mhz"], -1);
    EXPECT_EQ(json["pools"][0]["instances"][0]["count"], 1);
}

TEST(PoolJson, BadInputNamesTheField) {
    const auto expect_words = [](std::string from, const std::string& to, const char* words) {
        std::string text = question_text;
        text.replace(text.find(from), from.size(), to);
        try {
            parse_cluster_question(text, "pools.json");
            ADD_FAILURE() << "accepted " << to;
        } catch (const Error& error) {
            EXPECT_NE(std::string{error.what()}.find(words), std::string::npos) << error.what();
        }
    };
    expect_words("\"gpus\": 8", "\"gpus\": 8.5", "gpus: it is no whole number");
    expect_words("\"load_rps\": 1.5", "\"rps\": 1.5", "classes[0].load_rps: it is missing");
    expect_words("\"overflow_pool\": \"long\"", "\"overflow_pool\": \"huge\"", "no class 'huge'");
    expect_words("\"name\": \"long\"", "\"name\": \"short\"", "twice");
    expect_words("\"power_w\": 500", "\"power_w\": \"much\"",
                 "profile[0].power_w: it is no number");
    expect_words("\"core_mhz\": 1200", "\"core_mhz\": 0", "profile[0].core_mhz: it is no clock");
    expect_words("{\"gpus\"", "\"gpus\"", "no JSON");
}

}  // namespace
}  // namespace kdvfs::serve
