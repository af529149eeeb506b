// SPDX-License-Identifier: MIT
// Damaged files of every kind: read rightly, or rejected by a kdvfs::Error, and nothing else.
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/plan_json.hpp>
#include <kdvfs/tune/profile_csv.hpp>
#include <kdvfs/tune/sequence_csv.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <sstream>
#include <string>

namespace kdvfs::tune {
namespace {

const std::string sound_sweep =
    "gpu,kernel,variant,group,core_mhz,mem_mhz,time_s,energy_j,is_baseline,count,sample\r\n"
    "\"g, 1\",gemm,0,fw,auto,auto,1,10,1,2,0\r\n"
    "\"g, 1\",gemm,0,fw,1100,5001,1.5e-3,7,0,2,0\r\n"
    "\"g, 1\",\"sort<int,2>\",1,bw,-1,-1,2,20,1,1,0\r\n";

const std::string sound_sequence = "variant,kernel\n0,gemm\n1,sort\n";
const std::string sound_switches =
    "from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s,transition_s\n"
    "auto,auto,1100,auto,0.006,0.001\n1100,auto,auto,auto,0.004,\n";

std::string damaged(const std::string& text, std::mt19937_64& random) {
    static const std::string bytes = "0123456789,,\"\"\n\r-.eE+#;<>{}[]:\\/\0\xff nainf";
    std::string result = text;
    for (std::uint64_t change = random() % 4 + 1; change > 0 && !result.empty(); --change) {
        const std::size_t at = random() % result.size();
        switch (random() % 4) {
            case 0: result[at] = bytes[random() % bytes.size()]; break;
            case 1: result.erase(at, random() % 8 + 1); break;
            case 2: result.insert(at, 1, bytes[random() % bytes.size()]); break;
            default: result.insert(at, result.substr(random() % result.size(), random() % 40));
        }
    }
    return result;
}

template <class Read>
void damage(const std::string& sound, Read read, int rounds) {
    ASSERT_NO_THROW(read(sound));
    std::mt19937_64 random{1};
    int rejected = 0;
    for (int round = 0; round < rounds; ++round) {
        const std::string text = damaged(sound, random);
        try {
            read(text);
        } catch (const Error& error) {
            ++rejected;
            ASSERT_EQ(error.code(), Errc::invalid_input) << text;
            ASSERT_NE(error.text().object.find("file"), std::string::npos) << error.what();
        } catch (const std::exception& error) {
            FAIL() << error.what() << "\n" << text;
        }
    }
    EXPECT_GT(rejected, rounds / 4);
    EXPECT_LT(rejected, rounds);
}

TEST(HostileFiles, Sweeps) {
    damage(
        sound_sweep,
        [](const std::string& text) {
            std::istringstream input{text};
            const CostTable table = mean_costs(read_profile(input, "file"));
            make_plan(table, strict_waste(), Aggregate::global);
        },
        5'000);
}

TEST(HostileFiles, Sequences) {
    damage(
        sound_sequence,
        [](const std::string& text) {
            std::istringstream input{text};
            read_sequence(input, "file");
        },
        5'000);
}

TEST(HostileFiles, Switches) {
    damage(
        sound_switches,
        [](const std::string& text) {
            std::istringstream input{text};
            read_switch_costs(input, "file");
        },
        5'000);
}

TEST(HostileFiles, Plans) {
    std::istringstream input{sound_sweep};
    const CostTable table = mean_costs(read_profile(input, "file"));
    damage(
        to_json(make_plans(table, strict_waste()), Aggregate::global),
        [](const std::string& text) {
            const Plan plan = parse_plan(text, "file");
            parse_alternatives(text, "file");
        },
        3'000);
}

TEST(Sequences, AreReadInOrder) {
    std::istringstream input{sound_sequence};
    const auto launches = read_sequence(input, "file");
    ASSERT_EQ(launches.size(), 2U);
    EXPECT_EQ(launches[1], (KernelKey{"sort", variant(1)}));
}

TEST(Switches, PairsThatWereNotMeasuredGetTheLongest) {
    std::istringstream input{sound_switches};
    const SwitchCosts costs = read_switch_costs(input, "file");
    EXPECT_EQ(costs.delay({{1100}, auto_clock}, {}).latency.count(), 0.004);
    EXPECT_EQ(costs.delay({{900}, auto_clock}, {}).latency.count(), 0.006);
    EXPECT_EQ(costs.delay({}, {{1100}, auto_clock}).transition.count(), 0.001);
}

}  // namespace
}  // namespace kdvfs::tune
