// SPDX-License-Identifier: MIT
//
// Serving in virtual time: what clocks alone save on a trace of requests, policy by policy, against
// the top clock. Simulated throughout, unless --table has measured steps; without --trace the
// requests are synthetic.
//   --trace  CSV with columns arrival_s,prompt_tokens,answer_tokens (seconds since the beginning),
//            or dms,in,out (milliseconds since the request before). The first request is the
//            beginning, whatever its time.
//   --table  CSV with columns phase,batch,context,core_mhz,time_s,energy_j (see
//            kdvfs/serve/step_table.hpp); --write-table shows one.
// Plans are made from the first ten minutes at the top clock.
#include <bench/serving/clock_policies.hpp>
#include <bench/serving/led_pool.hpp>
#include <bench/serving/pools.hpp>
#include <bench/serving/requests.hpp>
#include <bench/serving/roofline_board.hpp>
#include <bench/serving/serving_engine.hpp>
#include <bench/serving/synthetic_requests.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/serve/step_sweep.hpp>
#include <kdvfs/serve/step_table.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kdvfs;
using namespace kdvfs::serve;

constexpr Seconds observed{600};

struct Options {
    std::string trace;
    std::string table;
    std::string policy = "all";
    std::string switch_latency = "6ms";
    std::string gap = "100ms";
    std::string write_table;
    std::string write_trace;
    std::string format = "table";
    std::uint32_t clock = 0;
    std::size_t boards = 4;
    std::uint64_t seed = 1;
    bool pools = false;
    bool led = false;
    std::string start = "120s";
    double late = 0.01;
    double late_first_tokens = 0.001;
};

struct Row {
    std::string name;
    ServingCounts counts;
    std::string remark;
    double cpu_seconds = 0;
};

/// "6ms", "10us", "0.2s".
Seconds parse_time(const std::string& option, const std::string& text) {
    const std::size_t unit = text.find_first_not_of("0123456789.");
    const auto number = kdvfs::detail::parse_number<double>(text.substr(0, unit));
    const std::string name = unit == std::string::npos ? "" : text.substr(unit);
    const double scale = name == "s" ? 1 : name == "ms" ? 1e-3 : name == "us" ? 1e-6 : 0;
    if (number && scale != 0) return Seconds{*number * scale};
    throw Error{Errc::invalid_input,
                {"read the option " + option, '"' + text + '"', "", "give a time such as 6ms"}};
}

/// The policies of one trace on one kind of board, whose steps cost what `Costs` says.
template <StepCosts Costs>
class Bench {
public:
    Bench(const Costs& costs, const StepTable& table, std::vector<Request> requests,
          const Options& options)
        : costs_{costs}, table_{table}, requests_{std::move(requests)} {
        cluster_.boards = options.boards;
        cluster_.switch_latency = parse_time("--switch-latency", options.switch_latency);
        cluster_.targets.gap = parse_time("--gap", options.gap);
        late_first_tokens_ = options.late_first_tokens;
        const StepShape most = table.largest();
        cluster_.limits.chunk_tokens = std::min(cluster_.limits.chunk_tokens, most.prompt_tokens);
        cluster_.limits.max_sequences = std::min(cluster_.limits.max_sequences, most.sequences);
    }

    Row fixed(Megahertz clock) {
        return timed("fixed " + to_string(clock),
                     [&] { return std::make_unique<FixedClock>(clock); });
    }
    Row loop() {
        return timed("loop5s", [&] {
            return std::make_unique<EpochLoop>(table_, cluster_.targets.gap,
                                               cluster_.limits.chunk_tokens);
        });
    }
    Row planned(const std::string& name, StepPolicy policy) {
        return planned(name, policy, table_, load());
    }
    /// Plans from what a sweep measured while it served the first half hour, each board for itself.
    std::vector<Row> swept() {
        StepSweepOptions options;
        options.clocks = table_.clocks();
        options.gap = cluster_.targets.gap;
        options.switch_latency = cluster_.switch_latency;
        const auto end =
            std::find_if(requests_.begin(), requests_.end(),
                         [](const Request& request) { return request.arrival >= swept_for; });
        const std::vector<Request> beginning{requests_.begin(), end};
        std::deque<StepSweep> sweeps;
        const ServingCounts counts = serve_trace(costs_, beginning, cluster_, [&] {
            sweeps.emplace_back(options);
            return std::make_unique<SweepingClocks>(sweeps.back());
        });
        const ServingCounts base = serve_trace(costs_, beginning, cluster_, [&] {
            return std::make_unique<FixedClock>(table_.clocks().back());
        });
        StepSweep all = sweeps.front();
        for (std::size_t b = 1; b < sweeps.size(); ++b) all.add(sweeps[b]);
        const StepTable table{all.rows()};
        std::vector<Row> rows{planned("swept no_harm", StepPolicy::no_harm, table, all.load()),
                              planned("swept by_step", StepPolicy::by_step, table, all.load())};
        char remark[160];
        std::snprintf(remark, sizeof remark,
                      "while sweeping, %.0f min: energy %+.2f %%, first tokens %+.3f points, gaps "
                      "kept %.3f %%",
                      swept_for.count() / 60, 100 * (counts.energy / base.energy - 1),
                      counts.first_tokens_pct() - base.first_tokens_pct(), counts.gaps_pct());
        rows.back().remark += (rows.back().remark.empty() ? "" : "; ") + std::string{remark};
        return rows;
    }

private:
    static constexpr Seconds swept_for{1800};

    Row planned(const std::string& name, StepPolicy policy, const StepTable& table,
                const StepLoad& steps) {
        const StepPlan plan =
            make_step_plan(table, steps,
                           {policy, cluster_.targets.gap, 0.999, cluster_.switch_latency,
                            cluster_.limits.chunk_tokens, late_first_tokens_});
        Row row = timed(name, [&] { return std::make_unique<PlannedClocks>(plan); });
        if (!plan.reason().empty())
            row.remark = "one clock, " + to_string(plan.idle_clock()) + ": " + plan.reason();
        return row;
    }

    template <class MakePolicy>
    Row timed(std::string name, MakePolicy make_policy) {
        const std::clock_t begin = std::clock();
        Row row{std::move(name), serve_trace(costs_, requests_, cluster_, make_policy), "", 0};
        row.cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        return row;
    }

    /// The steps of the first minutes at the top clock.
    const StepLoad& load() {
        if (load_) return *load_;
        load_.emplace(StepBuckets{});
        const auto end =
            std::find_if(requests_.begin(), requests_.end(),
                         [](const Request& request) { return request.arrival >= observed; });
        const std::vector<Request> beginning{requests_.begin(), end};
        serve_trace(
            costs_, beginning, cluster_,
            [&] { return std::make_unique<FixedClock>(table_.clocks().back()); }, &*load_);
        return *load_;
    }

    const Costs& costs_;
    const StepTable& table_;
    std::vector<Request> requests_;
    ClusterOptions cluster_;
    double late_first_tokens_ = 0;
    std::optional<StepLoad> load_;
};

/// A trace whose times count from its first request.
std::vector<Request> trace_of(const std::string& file) {
    std::vector<Request> requests = read_requests(std::filesystem::path{file});
    const Seconds begin = requests.front().arrival;
    for (Request& request : requests) request.arrival -= begin;
    return requests;
}

/// @throws Error (invalid_input) for a clock that no policy would use
void check_clock(const StepTable& table, const Options& options) {
    if (options.clock == 0) return;
    const auto reject = [&](const char* why, const std::string& remedy) {
        throw Error{Errc::invalid_input,
                    {"serve at a fixed clock", to_string(Megahertz{options.clock}), why, remedy}};
    };
    if (options.policy != "all" && options.policy != "fixed")
        reject("another policy is asked for", "give --policy fixed");
    std::string clocks;
    for (const Megahertz clock : table.clocks()) {
        if (clock.count == options.clock) return;
        clocks += (clocks.empty() ? "" : ", ") + to_string(clock);
    }
    reject("the table does not have it", "it has " + clocks);
}

template <StepCosts Costs>
std::vector<Row> run_policies(Bench<Costs>& bench, const StepTable& table, const Options& options) {
    std::vector<Row> rows{bench.fixed(table.clocks().back())};
    const auto wanted = [&](const char* name) {
        return options.policy == "all" || options.policy == name;
    };
    if (wanted("fixed"))
        for (const Megahertz clock : table.clocks())
            if (clock != table.clocks().back() &&
                (options.clock == 0 || options.clock == clock.count))
                rows.push_back(bench.fixed(clock));
    if (wanted("loop5s")) rows.push_back(bench.loop());
    for (const auto& [name, policy] :
         {std::pair{"one_clock", StepPolicy::one_clock}, std::pair{"no_harm", StepPolicy::no_harm},
          std::pair{"two_clocks", StepPolicy::two_clocks},
          std::pair{"by_step", StepPolicy::by_step}})
        if (wanted(name)) rows.push_back(bench.planned(name, policy));
    // A sweep knows auto by no ratio to other clocks.
    if (wanted("swept") && table.clocks().back() != auto_clock)
        for (Row& row : bench.swept()) rows.push_back(std::move(row));
    return rows;
}

/// A latency; histograms end at 20 s.
std::string in_ms(Seconds time) {
    if (std::isinf(time.count())) return "> 20 s";
    char text[32];
    std::snprintf(text, sizeof text, "%.1f ms", time.count() * 1e3);
    return text;
}

void print_table(const std::vector<Row>& rows) {
    const ServingCounts& base = rows.front().counts;
    std::printf("%llu requests, %llu tokens; changes are against the first row\n",
                static_cast<unsigned long long>(base.requests),
                static_cast<unsigned long long>(base.tokens));
    std::printf("%-15s %8s %8s %9s %8s %9s %9s %9s %9s %9s %6s\n", "policy", "energy %", "J/token",
                "first tok", "points", "requests", "gaps kept", "first p99", "gap p99.9",
                "switches", "CPU s");
    for (const Row& row : rows) {
        const ServingCounts& counts = row.counts;
        std::printf(
            "%-15s %+8.2f %8.4f %7.3f %% %+8.3f %7.3f %% %7.3f %% %9s %9s %9llu %6.2f\n",
            row.name.c_str(), 100 * (counts.energy / base.energy - 1),
            counts.energy.count / static_cast<double>(std::max<std::uint64_t>(counts.tokens, 1)),
            counts.first_tokens_pct(), counts.first_tokens_pct() - base.first_tokens_pct(),
            counts.requests_pct(), counts.gaps_pct(),
            in_ms(counts.first_token.quantile(0.99)).c_str(),
            in_ms(counts.gap.quantile(0.999)).c_str(),
            static_cast<unsigned long long>(counts.switches), row.cpu_seconds);
        if (!row.remark.empty()) std::printf("    %s\n", row.remark.c_str());
    }
}

void print_csv(const std::vector<Row>& rows) {
    const ServingCounts& base = rows.front().counts;
    std::printf(
        "policy,energy_j,energy_pct,joules_per_token,first_tokens_in_time_pct,gaps_kept_pct,"
        "first_token_p99_s,gap_p999_s,switches,cpu_s,remark\n");
    for (const Row& row : rows) {
        const ServingCounts& counts = row.counts;
        std::printf(
            "%s,%.6g,%.4f,%.6g,%.4f,%.4f,%.4g,%.4g,%llu,%.3g,%s\n", row.name.c_str(),
            counts.energy.count, 100 * (counts.energy / base.energy - 1),
            counts.energy.count / static_cast<double>(std::max<std::uint64_t>(counts.tokens, 1)),
            counts.first_tokens_pct(), counts.gaps_pct(), counts.first_token.quantile(0.99).count(),
            counts.gap.quantile(0.999).count(), static_cast<unsigned long long>(counts.switches),
            row.cpu_seconds, kdvfs::detail::csv_field(row.remark).c_str());
    }
}

std::string trace_csv(const std::vector<Request>& requests) {
    std::string text = "arrival_s,prompt_tokens,answer_tokens\n";
    for (const Request& request : requests)
        text += kdvfs::detail::to_text(request.arrival.count()) + ',' +
                std::to_string(request.prompt_tokens) + ',' +
                std::to_string(request.answer_tokens) + '\n';
    return text;
}

/// One pool of all boards at the top clock, and what pools add, freedom by freedom.
std::vector<Row> run_pools(const std::vector<Request>& requests, const Options& options) {
    const LatencyTargets targets{parse_time("--gap", options.gap)};
    ClusterOptions single;
    single.boards = options.boards;
    single.targets = targets;
    const RooflineBoard board;
    std::vector<Row> rows{
        {"single pool",
         serve_trace(board, requests, single,
                     [&] { return std::make_unique<FixedClock>(board.clocks().back()); }),
         "", 0}};
    const auto classes = pools::measured_classes(requests, targets);
    for (const pools::Freedom& freedom : {pools::Freedom{"pools", false, false, false},
                                          {"instances", false, false, true},
                                          {"parallelism", true, false, false},
                                          {"clocks", false, true, false},
                                          {"all", true, true, true}}) {
        const std::clock_t begin = std::clock();
        pools::PooledCluster cluster{classes, options.boards, freedom, targets};
        Row row{freedom.name, cluster.serve(requests), "", 0};
        row.cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        char remark[80];
        std::snprintf(remark, sizeof remark, "%.1f boards in use on average, %zu epochs overloaded",
                      cluster.mean_boards(), cluster.overloaded());
        row.remark = remark;
        rows.push_back(std::move(row));
    }
    return rows;
}

/// The fewest boards that are always on, and pools that take time and power to start.
std::vector<Row> run_led(const std::vector<Request>& requests, const Options& options) {
    std::map<std::uint32_t, led_pool::Kind> kinds;
    for (const std::uint32_t boards : {1U, 2U}) kinds.emplace(boards, led_pool::Kind{boards});
    PoolControlOptions physics;
    physics.start = parse_time("--start", options.start);
    physics.late = options.late;
    const auto profile = led_pool::measure_pools(kinds, 8, 2000);
    const led_pool::Comparison made = led_pool::compare(kinds, profile, requests, physics);
    std::vector<Row> rows;
    const auto add = [&](const std::string& name, const led_pool::PoolRun& run) {
        char remark[80];
        std::snprintf(remark, sizeof remark, "%.2f boards on average, %zu starts",
                      run.board_seconds / run.end.count(), run.starts);
        rows.push_back({name, run.counts, remark, 0});
    };
    add("always on", made.baseline);
    add("step plan", made.constant);
    add("led", made.led);
    add("future known", made.known);
    return rows;
}

void run(const Options& options) {
    const RooflineBoard board;
    const StepTable table = options.table.empty()
                                ? StepTable{sample_steps(board)}
                                : read_step_table(std::filesystem::path{options.table});
    check_clock(table, options);
    std::vector<Request> requests = options.trace.empty()
                                        ? synthetic_conversations(Seconds{3600}, options.seed)
                                        : trace_of(options.trace);
    if (!options.write_table.empty())
        kdvfs::detail::write_file_atomically(options.write_table, to_csv(sample_steps(board)));
    if (!options.write_trace.empty())
        kdvfs::detail::write_file_atomically(options.write_trace, trace_csv(requests));
    const bool csv = options.format == "csv";
    if (!csv)
        std::printf(
            "%s on %zu simulated boards, %s; %s\n",
            options.trace.empty() ? "A synthetic hour of conversations" : options.trace.c_str(),
            options.boards,
            options.table.empty() ? "by a roofline of Qwen2.5-7B on 350 W"
                                  : ("by the steps of " + options.table).c_str(),
            table.range().c_str());
    std::vector<Row> rows;
    if (options.led) {
        rows = run_led(requests, options);
    } else if (options.pools) {
        rows = run_pools(requests, options);
    } else if (options.table.empty()) {
        Bench<RooflineBoard> bench{board, table, std::move(requests), options};
        rows = run_policies(bench, table, options);
    } else {
        Bench<StepTable> bench{table, table, std::move(requests), options};
        rows = run_policies(bench, table, options);
    }
    csv ? print_csv(rows) : print_table(rows);
}

}  // namespace

int main(int argc, char** argv) try {
    Options options;
    CLI::App app{"What clocks save while serving a trace, in virtual time."};
    app.add_option("--trace", options.trace, "CSV of requests; else a synthetic hour");
    app.add_option("--table", options.table, "CSV of measured steps; else the built-in board");
    app.add_option("--boards", options.boards, "Boards")
        ->check(CLI::Range(1, 100'000))
        ->capture_default_str();
    app.add_option("--policy", options.policy, "Beside the top clock")
        ->check(CLI::IsMember(
            {"all", "fixed", "loop5s", "one_clock", "no_harm", "two_clocks", "by_step", "swept"}))
        ->capture_default_str();
    app.add_option("--clock", options.clock, "MHz of the policy fixed; else each of the table");
    app.add_option("--switch-latency", options.switch_latency, "Such as 6ms")
        ->capture_default_str();
    app.add_option("--gap", options.gap, "Target between two tokens")->capture_default_str();
    app.add_option("--seed", options.seed, "Of the synthetic hour")->capture_default_str();
    auto* pools = app.add_flag(
        "--pools", options.pools,
        "Instead: pools by class, planned every 5 minutes, as DynamoLLM and its baselines");
    // They are the built-in board's, and their clocks change with their instances.
    for (const char* option : {"--table", "--policy", "--clock", "--switch-latency"})
        pools->excludes(option);
    auto* led = app.add_flag("--led", options.led,
                             "Instead: a pool whose instances take time and power to start")
                    ->excludes(pools);
    for (const char* option : {"--table", "--policy", "--clock", "--switch-latency", "--boards"})
        led->excludes(option);
    app.add_option("--start", options.start, "Of an instance, with --led")->capture_default_str();
    app.add_option("--late-first", options.late_first_tokens,
                   "Share of first tokens that a plan may make late")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    app.add_option("--late", options.late, "Share of first tokens that may be late, with --led")
        ->check(CLI::Range(0.0001, 0.5))
        ->capture_default_str();
    app.add_option("--write-table", options.write_table, "File for the built-in board's steps");
    app.add_option("--write-trace", options.write_trace, "File for the requests");
    app.add_option("--format", options.format, "Output")
        ->check(CLI::IsMember({"table", "csv"}))
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    run(options);
    return 0;
} catch (const kdvfs::Error& error) {
    std::cerr << "serving: " << error.what() << '\n';
    return 1;
}
