// SPDX-License-Identifier: MIT
// Damaged files of every kind that kdvfs reads: read rightly, or rejected by a kdvfs::Error that
// names the file, its line or field, and a remedy, and nothing else.
#include <bench/serving/requests.hpp>
#include <kdvfs/detail/serve/pool_json.hpp>
#include <kdvfs/detail/train/batch_size_file.hpp>
#include <kdvfs/detail/tune/session_status.hpp>
#include <kdvfs/serve/recommend.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/switch_costs.hpp>
#include <kdvfs/tune/validation.hpp>
#include <tools/cli/report/inputs.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace kdvfs {
namespace {

const std::string file = "hostile.txt";

/// A kind of file: a sound one, and what reads it; `file` is what errors must call it.
struct Kind {
    const char* name;
    bool lines;  ///< errors name one, else a field is enough
    std::string sound;
    std::function<void(const std::string& text)> read;
};

template <class Read>
auto stream_of(Read read) {
    return [read](const std::string& text) {
        std::istringstream input{text};
        read(input);
    };
}

const std::string sound_sweep =
    "gpu,kernel,variant,group,core_mhz,mem_mhz,time_s,energy_j,is_baseline,count,sample,"
    "energy_sd_j,block,block_energy_j,block_energy_sd_j\r\n"
    "\"g, 1\",gemm,0,fw,auto,auto,1,10,1,2,0,0.1,1,40,0.01\r\n"
    "\"g, 1\",gemm,0,fw,1100,5001,1.5e-3,7,0,2,0,,,,\r\n"
    "\"g, 1\",\"sort<int,2>\",1,bw,-1,-1,2,20,1,1,0,0.2,1,40,0.01\r\n";

tune::Profile sound_profile() {
    std::istringstream input{sound_sweep};
    return tune::read_profile(input, file);
}

std::string sound_segments() {
    const tune::CostTable table = tune::mean_costs(sound_profile());
    return to_json(tune::plan_segments(table, std::vector<std::size_t>{0, 0, 1, 0},
                                       tune::uniform_switch_costs(Seconds{0.01}),
                                       tune::strict_waste()));
}

std::string sound_batch_sizes() {
    const auto path =
        std::filesystem::temp_directory_path() / ("kdvfs_hostile_" + std::to_string(::getpid()));
    std::filesystem::remove(path);
    train::BatchSizeFile sizes{path, "job", {.sizes = {16, 32}, .usual = 32}};
    const auto run = sizes.suggest();
    sizes.observe(run.id, {.epochs = 2, .cost = 3});
    std::ostringstream text;
    text << std::ifstream{path}.rdbuf();
    std::filesystem::remove(path);
    return text.str();
}

/// Readers of paths get the text as a file.
const std::filesystem::path& written(const std::string& text) {
    static const std::filesystem::path path = [] {
        const auto folder = std::filesystem::temp_directory_path() /
                            ("kdvfs_hostile_files_" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder);
        return folder / file;
    }();
    std::ofstream{path, std::ios::binary | std::ios::trunc} << text;
    return path;
}

/// As `kdvfs report` takes a file, whatever it holds.
void read_for_report(const std::string& text) {
    static_cast<void>(cli::report::read_inputs({written(text).string()}));
}

const char* const sound_case = R"({"format": "pipeline-case-1", "name": "two stages",
 "schedule": "1f1b", "stages": 2, "chunks": 1, "microbatches": 3, "blocking_power_w": 90,
 "profiles": [
 {"stage": 0, "op": "forward", "points": [[1700, 0.02, 9.0], [1400, 0.023, 7.5]]},
 {"stage": 0, "op": "backward", "points": [[1700, 0.04, 18.0], [1400, 0.046, 15]]},
 {"stage": 1, "op": "forward", "points": [[1700, 0.02, 9.0], [1400, 0.023, 7.5]]},
 {"stage": 1, "op": "backward", "points": [[1700, 0.04, 18.0], [1400, 0.046, 15]]}]})";

std::vector<Kind> kinds() {
    using namespace tune;
    const std::string plan =
        to_json(make_plans(mean_costs(sound_profile()), strict_waste()), Aggregate::global);
    const Validation found{10, 0, -12, {0.2, 0.05, 0.4}, {-11.9, -12.2, -11.8}, 1};
    return {
        {"profile", true, sound_sweep, stream_of([](auto& input) {
             const CostTable table = mean_costs(read_profile(input, file));
             make_plan(table, strict_waste(), Aggregate::global);
         })},
        {"launches", true,
         "variant,kernel,gap_s,depth\n0,outer,0.001,0\n1,sort,0,1\n0,gemm#2,1e-3,1\n",
         stream_of([](auto& input) { read_launches(input, file); })},
        {"switch_latencies", true,
         "from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s,transition_s\n"
         "auto,auto,1100,auto,0.006,0.001\n1100,auto,auto,auto,0.004,\n",
         stream_of([](auto& input) { read_switch_costs(input, file); })},
        {"plan", false, plan,
         [](const std::string& text) {
             parse_plan(text, file);
             parse_alternatives(text, file);
             parse_promise(text, file);
         }},
        {"segments", false, sound_segments(),
         [](const std::string& text) {
             if (!has_sequence(text, file)) return;
             parse_sequence(text, file);
             parse_promise(text, file);
         }},
        {"validation", false, to_json(found, "g"),
         [](const std::string& text) { parse_validation(text, file); }},
        {"session_status", false,
         to_json(SessionStatus{.gpu = "g",
                               .iterations = 12,
                               .grid_points = 3,
                               .sample_period = std::chrono::milliseconds{10},
                               .sweep = SweepProgress{.points_measured = 2, .points = 3}}),
         [](const std::string& text) { parse_session_status(text, file); }},
        {"cost", true, "time_s,energy_j\n1.5,20\n",
         stream_of([](auto& input) { read_cost(input, file); })},
        {"step_table", true,
         "phase,batch,context,core_mhz,time_s,energy_j\n"
         "prefill,1,256,1500,0.02,5\nprefill,1,512,1500,0.04,9\n"
         "decode,1,256,1500,0.01,2\ndecode,8,256,1500,0.012,3\nidle,0,0,1500,1,60\n",
         stream_of([](auto& input) { serve::read_step_table(input, file); })},
        {"requests", true, "arrival_s,prompt_tokens,answer_tokens\n0.5,100,20\n0.7,300,1\n",
         stream_of([](auto& input) { serve::read_requests(input, file); })},
        {"configurations", true,
         "task,model,gpu,gpus,batch,itl_p50_ms,joules_per_token\n"
         "chat,org/a,H100,1,8,10,5\nchat,org/a,B200,2,16,20,2.5\n",
         stream_of([](auto& input) {
             const serve::ConfigurationTable table{input, file};
             serve::frontier(table, {.model = "org/a", .bounds = {{"itl_p50_ms", 50}}});
         })},
        {"pools", false,
         R"({"gpus": 8, "idle_gpu_w": 60, "classes": [
 {"name": "short", "load_rps": 3, "first_token_ms": 300, "gap_ms": 50, "overflow_pool": "long",
  "profile": [{"parallelism": 1, "core_mhz": 1500, "load_rps": 2, "power_w": 300,
               "first_token_ms": 100, "gap_ms": 20}]},
 {"name": "long", "load_rps": 1, "first_token_ms": 900, "gap_ms": 50,
  "profile": [{"parallelism": 2, "core_mhz": -1, "load_rps": 2, "power_w": 500,
               "first_token_ms": 100, "gap_ms": 20}]}]})",
         [](const std::string& text) { serve::parse_cluster_question(text, file); }},
        {"pipeline_case", false, sound_case,
         [](const std::string& text) { train::parse_pipeline_case(text, file); }},
        {"batch_sizes", false, sound_batch_sizes(),
         [](const std::string& text) {
             train::BatchSizeFile{written(text), "job", {.sizes = {16, 32}, .usual = 32}};
         }},
        {"report", false,
         R"({"device": {"name": "g"}, "rows": [{"kernel": "gemm", "variant": 1,
 "counted_time_s": 0.5, "energy": {"status": "resolved", "joules": 100, "half_width_95": 2}},
 {"kernel": "copy", "energy": {"status": "unresolved"}}]})",
         read_for_report},
        {"trace", false,
         R"({"otherData": {"device": "g"}, "traceEvents": [
 {"ph": "C", "name": "power W", "ts": 1, "args": {"value": 300}},
 {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 2, "dur": 5, "tid": 1,
  "args": {"held_mhz": 1500}}]})",
         read_for_report},
        {"switch_table", false,
         R"({"device": "g", "simulated": true, "pairs": [
 {"from": {"core_mhz": 0, "memory_mhz": 0}, "to": {"core_mhz": 900, "memory_mhz": 0},
  "switching_s": 0.006}]})",
         read_for_report},
        {"power_profile", false,
         R"({"profiles": [{"name": "gemm", "setting": "steady",
 "points": [[1, 200], [2, 210]], "curve": [[1, 200, 3], [2, 205, null]]}]})",
         read_for_report},
        {"pipeline_plan", false,
         R"({"case": "two stages", "plan": {"time_s": 1, "total_j": 100}, "operations": [
 {"stage": 0, "op": "forward", "chunk": 0, "microbatch": 0, "start_s": 0, "duration_s": 0.1,
  "clock_mhz": [1500]}]})",
         read_for_report},
        {"plan_for_report", false, plan, read_for_report},
        {"case_for_report", false, sound_case, read_for_report},
    };
}

std::string damaged(const std::string& text, std::mt19937_64& random) {
    static const std::string bytes = "0123456789,,\"\"\n\r-.eE+#;<>{}[]:\\/\0\xff nainf";
    std::string result = text;
    for (std::uint64_t change = random() % 4 + 1; change > 0 && !result.empty(); --change) {
        const std::size_t at = random() % result.size();
        switch (random() % 5) {
            case 0: result[at] = bytes[random() % bytes.size()]; break;
            case 1: result.erase(at, random() % 8 + 1); break;
            case 2: result.insert(at, 1, bytes[random() % bytes.size()]); break;
            case 3: result.resize(at + (random() % 4 == 0 ? 0 : result.size() - at)); break;
            default: result.insert(at, result.substr(random() % result.size(), random() % 40));
        }
    }
    return result;
}

/// 10^6 inputs in the soak, over all kinds.
std::uint64_t rounds(std::size_t kinds) {
    return (std::getenv("KDVFS_SOAK") != nullptr ? 1'000'000 : 30'000) / kinds;
}

bool names_a_line(const std::string& text) {
    const std::size_t at = text.find(file + ':');
    return at != std::string::npos &&
           std::isdigit(static_cast<unsigned char>(text[at + file.size() + 1])) != 0;
}

TEST(HostileFiles, AreReadRightlyOrRejectedWithFileLineAndRemedy) {
    const std::vector<Kind> all = kinds();
    std::uint64_t inputs = 0;
    for (const Kind& kind : all) {
        SCOPED_TRACE(kind.name);
        ASSERT_NO_THROW(kind.read(kind.sound));
        std::mt19937_64 random{1};
        std::uint64_t rejected = 0;
        std::set<std::string> resolved;  // each kind of complaint once
        for (std::uint64_t round = 0; round < rounds(all.size()); ++round, ++inputs) {
            const std::string text = damaged(kind.sound, random);
            try {
                kind.read(text);
            } catch (const Error& error) {
                ++rejected;
                const ErrorText& why = error.text();
                if (error.code() == Errc::invalid_input && !why.remedy.empty() &&
                    std::string{error.what()}.find(file) != std::string::npos &&
                    (!kind.lines || names_a_line(error.what())))
                    continue;
                if (resolved.insert(why.action + why.remedy).second)
                    ADD_FAILURE() << error.what() << "\n" << text;
            } catch (const std::exception& error) {
                FAIL() << error.what() << "\n" << text;
            }
        }
        EXPECT_GT(rejected, rounds(all.size()) / 10);
        EXPECT_LT(rejected, rounds(all.size()));
    }
    std::printf("%llu damaged files of %zu kinds\n", static_cast<unsigned long long>(inputs),
                all.size());
}

}  // namespace
}  // namespace kdvfs
