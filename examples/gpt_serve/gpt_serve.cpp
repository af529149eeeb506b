// SPDX-License-Identifier: MIT
// Generates text with a small GPT on bytes: a cache of keys and values, prefill and decode,
// continuous batching, each step in a scope that gives it a clock.
//   gpt_serve [--sequences N] [--context N] [--width N] [--heads N] [--layers N] [--chunk N]
//             [--windows N] [--seconds S]   steady windows: joules per token, latencies
//   gpt_serve --sweep STEPS.csv ...         measures a step table while serving, for --seconds
//   gpt_serve --table STEPS.csv ...         steps follow a plan from a step table
//   gpt_serve --prove ...                   measures what the plan saves while serving
//   gpt_serve --overhead ...                tokens a second with and without scopes
//   gpt_serve --check                       compares with the double-precision host reference
// Built by nvcc or hipcc it runs on the GPU:
//   nvcc -std=c++20 -x cu -arch=native -I include -I examples gpt_serve.cpp board.cpp -o gpt_serve
//   hipcc -std=c++20 -x hip --offload-arch=gfx90a -I include -I examples -c gpt_serve.cpp
//   g++ -std=c++20 -D__HIP_PLATFORM_AMD__ -I include -I examples gpt_serve.o board.cpp -lamdhip64
//       -lrocm_smi64 -o gpt_serve      (one line with the one before)
// Built by a plain C++ compiler its bytes come from the same kernels, run thread by thread on the
// host, and its times and joules from a simulated H100.
#include "batcher.hpp"
#include "board.hpp"
#include "generator.hpp"
#include "host_generation.hpp"

#include <gpt_train/byte_text.hpp>
#include <gpt_train/initial_parameters.hpp>
#include <gpt_train/portable_gpu.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/serve/steady_state.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/serve/step_proof.hpp>
#include <kdvfs/serve/step_scope.hpp>
#include <kdvfs/serve/step_sweep.hpp>
#include <kdvfs/serve/step_table.hpp>
#if defined(__CUDACC__)
#include <kdvfs/cuda_markers.hpp>
#elif defined(__HIPCC__)
#include <kdvfs/hip_markers.hpp>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace kdvfs;
using kdvfs::serve::StepPlan;

struct Options {
    gpt::ModelShape shape{.batch = 32, .sequence = 512, .width = 1024, .heads = 16, .layers = 12};
    int chunk = 256;
    int windows = 2;
    double seconds = 0;  ///< 0: not given
    std::string table;
    std::string sweep;
    bool prove = false;
    bool overhead = false;
    bool check = false;
};

[[noreturn]] void reject(std::string_view option) {
    throw Error{
        Errc::invalid_input,
        {"read the option", std::string{option}, "",
         "options are --sequences --context --width --heads --layers --chunk --windows "
         "--seconds, each with a number above 0, --sweep FILE, --table FILE, --prove, --overhead "
         "and --check"}};
}

Options parse(int count, char** arguments) {
    Options options;
    if (gpt::gpu::on_host) {
        options.shape = {.batch = 3, .sequence = 24, .width = 16, .heads = 2, .layers = 1};
        options.chunk = 8;
    }
    const std::map<std::string_view, int*> numbers{
        {"--sequences", &options.shape.batch}, {"--context", &options.shape.sequence},
        {"--width", &options.shape.width},     {"--heads", &options.shape.heads},
        {"--layers", &options.shape.layers},   {"--chunk", &options.chunk},
        {"--windows", &options.windows}};
    for (int i = 1; i < count; ++i) {
        const std::string_view name = arguments[i];
        if (name == "--check") {
            options.check = true;
        } else if (name == "--prove") {
            options.prove = true;
        } else if (name == "--overhead") {
            options.overhead = true;
        } else if (i + 1 == count) {
            reject(name);
        } else if (name == "--table") {
            options.table = arguments[++i];
        } else if (name == "--sweep") {
            options.sweep = arguments[++i];
        } else if (name == "--seconds") {
            options.seconds = std::atof(arguments[++i]);
            if (!(options.seconds > 0)) reject(name);
        } else if (const auto number = numbers.find(name); number != numbers.end()) {
            *number->second = std::atoi(arguments[++i]);
            if (*number->second < 1) reject(name);
        } else {
            reject(name);
        }
    }
    // Simulated seconds pass quickly where no bytes are computed.
    if (options.seconds == 0)
        options.seconds = options.prove                                  ? 300
                          : !gpt::gpu::on_host || !options.sweep.empty() ? 60
                                                                         : 0.5;
    return options;
}

/// Parts of the text to go on from. Prompt and answer fill a third to all of a sequence.
class Requests {
public:
    explicit Requests(const gpt::ModelShape& shape) : shape_{shape} {}

    gpt::GenerationRequest next() {
        const auto within = [&](int least, int most) {
            return least + static_cast<int>(random_() % static_cast<unsigned>(most - least + 1));
        };
        gpt::GenerationRequest request;
        request.seed = ++made_;
        const int half = std::max(1, shape_.sequence / 2);
        const int prompt = within(std::max(1, half / 3), half);
        const auto text = gpt::training_text;
        const std::size_t from = random_() % text.size();
        for (int i = 0; i < prompt; ++i)
            request.prompt.push_back(static_cast<unsigned char>(
                text[(from + static_cast<std::size_t>(i)) % text.size()]));
        request.answer_tokens = within(std::max(1, half / 3), half);
        return request;
    }
    [[nodiscard]] double mean_answer() const { return shape_.sequence / 3.0; }

private:
    gpt::ModelShape shape_;
    std::mt19937 random_{1};
    int made_ = 0;
};

/// The engine: batches, runs, samples.
class Engine {
public:
    /// @param board what it runs on; null where only its bytes matter
    /// @param computes whether bytes are computed, or all are zero
    Engine(const gpt::ModelShape& shape, int chunk, gpt::Board* board,
           const std::vector<float>& parameters, bool computes = true)
        : board_{board},
          computes_{computes},
          batcher_{shape, chunk},
          generator_{shape, parameters, gpt::Batcher::most_rows(shape, chunk), temperature,
                     gpt::gpu::Stream{}} {}

    static constexpr float temperature = 0.8F;

    gpt::Batcher& batcher() { return batcher_; }

    /// Chooses the tokens of the next step. @returns its shape
    serve::StepShape choose() {
        if (tokens_ == nullptr) tokens_ = &batcher_.next();
        return batcher_.shape();
    }

    /// One step, in a scope of `gpu`; bare where there is none.
    /// @param by_plan whether its clock is the plan's
    gpt::StepEvents step(const serve::PlannedGpu* gpu, serve::StepLoad* load = nullptr,
                         bool by_plan = true) {
        const serve::StepShape shape = choose();
        const gpt::StepTokens& tokens = *std::exchange(tokens_, nullptr);
        const Seconds began = board_ != nullptr ? board_->now() : Seconds{0};
        {
            // All requests are sent at once: their first tokens are due at no time.
            std::optional<serve::StepScope> scope;
            if (gpu != nullptr && by_plan)
                static_cast<void>(scope.emplace(*gpu, board_->stream(), shape));
            else if (gpu != nullptr)
                static_cast<void>(scope.emplace(*gpu, board_->stream(), shape,
                                                gpu->plan().clock_table().at_top(shape)));
            if (computes_) generator_.launch(tokens);
            if (board_ != nullptr) board_->enqueue(shape);
        }
        const std::vector<int> bytes =
            computes_ ? generator_.read(tokens) : std::vector<int>(tokens.sampled.size(), 0);
        if (board_ != nullptr) board_->wait();
        if (load != nullptr) load->add(shape, board_->now() - began);
        return batcher_.take(bytes);
    }

private:
    gpt::Board* board_;
    bool computes_;
    const gpt::StepTokens* tokens_ = nullptr;  ///< chosen, not yet run
    gpt::Batcher batcher_;
    gpt::Generator generator_;
};

// ---- steady windows ----

/// Serves until a window of full batches is over.
serve::SteadyReport serve_window(const Options& options, gpt::Board& board,
                                 const serve::PlannedGpu& gpu, Requests& requests,
                                 double tokens_per_second, serve::StepLoad* load) {
    serve::SteadyOptions steady_options;
    steady_options.batch = static_cast<std::uint32_t>(options.shape.batch);
    const double needed = 1.1 * tokens_per_second * options.seconds / requests.mean_answer();
    steady_options.requests = 3 * steady_options.batch + 2 + static_cast<std::uint32_t>(needed);
    steady_options.shortest_window = Seconds{std::min(30.0, options.seconds / 2)};
    serve::SteadyState steady{steady_options};
    Engine engine{options.shape, options.chunk, &board, gpt::initial_parameters(options.shape, 1)};
    for (std::uint32_t i = 0; i < steady_options.requests; ++i)
        engine.batcher().submit(requests.next());
    Seconds read_at{-1}, last{board.now()};
    const auto read_energy = [&] {
        const EnergyReading reading = board.read_energy();
        read_at = board.now();
        if (reading.status == ReadingStatus::ok)
            steady.energy(Seconds{reading.sampled_at.time_since_epoch()}, reading.joules);
    };
    // Seldom on a long window: a read of some boards takes milliseconds.
    const Seconds period{std::min(1.0, options.seconds / 50)};
    read_energy();
    while (!engine.batcher().idle()) {
        const Seconds began = board.now();
        gpt::StepEvents events = engine.step(&gpu, load);
        const Seconds now = board.now();
        // Who got a token got the last one in the step before.
        const Seconds gap = now - std::exchange(last, now);
        steady.step({now, now - began, events.in_batch, events.decoded, gap, events.first_tokens});
        for (const gpt::Generated& done : events.finished)
            steady.finished(now, static_cast<std::uint32_t>(done.answer.size()));
        if (now - read_at >= period) read_energy();
    }
    board.let_pass(Seconds{0.3});  // until the counter has a sample from behind the window
    read_energy();
    return steady.report();
}

/// Tokens a second of a full batch, by a short run.
double measure_rate(const Options& options, gpt::Board& board, Requests& requests,
                    const serve::PlannedGpu* gpu, int steps) {
    Engine engine{options.shape, options.chunk, &board, gpt::initial_parameters(options.shape, 1)};
    const auto keep_full = [&] {
        while (engine.batcher().waiting() < static_cast<std::size_t>(options.shape.batch))
            engine.batcher().submit(requests.next());
    };
    const auto run = [&](int count) {
        double tokens = 0;
        for (int i = 0; i < count; ++i) {
            keep_full();
            const gpt::StepEvents events = engine.step(gpu);
            tokens += events.decoded + events.first_tokens;
        }
        return tokens;
    };
    run(2 * options.shape.batch);  // until the batch is full, and warm
    const Seconds began = board.now();
    const double tokens = run(steps);
    return tokens / (board.now() - began).count();
}

void print(const char* name, const serve::SteadyReport& report) {
    if (!report.refused.empty()) std::printf("%s: refused, %s\n", name, report.refused.c_str());
    std::printf(
        "%s: %.1f s, %.0f tokens, %.1f tokens/s, %.1f W, batch %.2f; %.5g J/token (%.5g to %.5g), "
        "%.4g J/request; token gap p50 %.3g ms, p99 %.3g ms\n",
        name, (report.end - report.begin).count(), report.tokens, report.tokens_per_second,
        report.power.count, report.mean_batch, report.joules_per_token.value,
        report.joules_per_token.low, report.joules_per_token.high, report.joules_per_request.value,
        report.gap.p50.count() * 1e3, report.gap.p99.count() * 1e3);
}

/// The shapes of this engine's steps.
serve::StepBuckets::Edges shapes_of(const Options& options) {
    const auto powers = [](int most) {
        std::vector<std::uint32_t> edges;
        for (std::uint32_t edge = 1; edge < static_cast<std::uint32_t>(most); edge *= 2)
            edges.push_back(edge);
        edges.push_back(static_cast<std::uint32_t>(most));
        return edges;
    };
    return {powers(options.chunk), powers(options.shape.batch), powers(options.shape.sequence)};
}

bool serve_windows(const Options& options) {
    gpt::Board board;
    const serve::StepBuckets buckets{shapes_of(options)};
    Requests requests{options.shape};
    serve::StepLoad load{buckets};
    bool good = true;
    std::vector<double> joules;
    const auto run = [&](const serve::PlannedGpu& gpu, const std::string& name) {
        const int steps = gpt::gpu::on_host ? 20 : 1000;
        const double rate = measure_rate(options, board, requests, &gpu, steps);
        for (int w = 1; w <= options.windows; ++w) {
            const auto report = serve_window(options, board, gpu, requests, rate, &load);
            print((name + ", window " + std::to_string(w)).c_str(), report);
            good = good && report.refused.empty();
            joules.push_back(report.joules_per_token.value);
        }
    };
    {
        const serve::PlannedGpu own{board.gpu(), serve::own_clock_plan(buckets)};
        run(own, "the board's own clock");
        for (const serve::PhaseReport& phase : own.phases(own.report()))
            std::printf("  %s\n", to_string(phase).c_str());
    }
    const auto [least, most] = std::minmax_element(joules.begin(), joules.end());
    if (joules.size() > 1)
        std::printf("joules per token differ by %.2f %% between windows\n",
                    100 * (*most / *least - 1));
    std::optional<serve::StepTable> table =
        options.table.empty()
            ? board.known_costs(shapes_of(options))
            : std::optional{serve::read_step_table(std::filesystem::path{options.table})};
    if (table) {
        serve::StepTargets targets;
        targets.chunk_tokens = static_cast<std::uint32_t>(options.chunk);
        targets.policy = serve::StepPolicy::by_step;
        StepPlan plan = serve::make_step_plan(*table, load, targets);
        std::printf("plan: decode at %s%s%s\n", to_string(plan.idle_clock()).c_str(),
                    plan.reason().empty() ? "" : ", one clock: ", plan.reason().c_str());
        const double own = joules.front();
        joules.clear();
        const serve::PlannedGpu planned{board.gpu(), std::move(plan)};
        run(planned, "by the plan");
        if (own > 0)
            std::printf("the plan saves %.1f %% of the joules per token\n",
                        100 * (1 - joules.front() / own));
    }
    if (!gpt::gpu::on_host) gpt::print_report(board.gpu());
    board.gpu().check();
    return good;
}

// ---- what a plan saves, measured while it is followed ----

bool prove_plan(const Options& options) {
    gpt::Board board;
    const auto shapes = shapes_of(options);
    const std::optional<serve::StepTable> table =
        options.table.empty()
            ? board.known_costs(shapes)
            : std::optional{serve::read_step_table(std::filesystem::path{options.table})};
    if (!table) reject("--prove, which needs --table FILE");
    Requests requests{options.shape};
    // As in a sweep: energies do not depend on the bytes.
    Engine engine{options.shape, options.chunk, &board, gpt::initial_parameters(options.shape, 1),
                  !gpt::gpu::on_host};
    const auto serve_until = [&](Seconds end, auto&& step) {
        while (board.now() < end) {
            while (engine.batcher().waiting() < 2) engine.batcher().submit(requests.next());
            step();
        }
    };
    serve::StepLoad load{serve::StepBuckets{shapes}};
    const serve::PlannedGpu own{board.gpu(), serve::own_clock_plan(load.buckets())};
    serve_until(board.now() + Seconds{options.seconds / 10}, [&] { engine.step(&own, &load); });
    serve::StepTargets targets;
    targets.chunk_tokens = static_cast<std::uint32_t>(options.chunk);
    targets.policy = serve::StepPolicy::by_step;
    const serve::PlannedGpu planned{board.gpu(), serve::make_step_plan(*table, load, targets)};
    serve::StepProof proof{Seconds{std::clamp(options.seconds / 50, 1.0, 30.0)}};
    Seconds read_at{-1};
    serve_until(board.now() + Seconds{options.seconds}, [&] {
        engine.step(&planned, nullptr, proof.by_plan(board.now()));
        if (board.now() - read_at < Seconds{0.1}) return;
        read_at = board.now();
        const EnergyReading reading = board.read_energy();
        if (reading.status == ReadingStatus::ok)
            proof.energy(Seconds{reading.sampled_at.time_since_epoch()}, reading.joules);
    });
    board.gpu().check();
    const auto change = proof.change();
    if (change)
        std::printf("the plan changes the power by %+.2f %% (%+.2f to %+.2f, 95 %%)\n",
                    change->mean, change->low, change->high);
    else
        std::printf("too few blocks: serve for longer, with --seconds\n");
    return change.has_value();
}

// ---- a step table from the engine itself ----

/// Six clocks from under half of the highest to it.
std::vector<Megahertz> clocks_to_sweep(const SupportedClocks& clocks) {
    const auto& listed = clocks.core.listed;
    std::vector<Megahertz> chosen;
    if (listed.empty()) return chosen;
    for (const double share : {0.45, 0.6, 0.75, 0.85, 0.93, 1.0}) {
        const Megahertz wanted{static_cast<std::uint32_t>(share * listed.back().count)};
        const Megahertz clock = *std::lower_bound(listed.begin(), listed.end() - 1, wanted);
        if (chosen.empty() || chosen.back() < clock) chosen.push_back(clock);
    }
    return chosen;
}

/// Keeps the batch full while clocks are tried, then writes what steps cost.
bool sweep_steps(const Options& options) {
    gpt::Board board;
    if (board.gpu().measure_only())
        throw Error{Errc::not_supported,
                    {"sweep the steps", to_string(board.gpu().info()), "it is only measured",
                     "sweep on a GPU whose clocks may be set"}};
    serve::StepSweepOptions sweep_options;
    sweep_options.clocks = clocks_to_sweep(board.gpu().supported_clocks());
    sweep_options.warm_up = Seconds{options.seconds / 6};
    sweep_options.block = Seconds{std::min(4.0, options.seconds / 30)};
    sweep_options.settle = sweep_options.block * 0.1;
    sweep_options.grid = shapes_of(options);
    serve::StepSweep sweep{sweep_options};
    Requests requests{options.shape};
    // A simulated GPU's times and joules do not depend on the bytes, which the host computes
    // slowly.
    Engine engine{options.shape, options.chunk, &board, gpt::initial_parameters(options.shape, 1),
                  !gpt::gpu::on_host};
    StandingRequest request = board.gpu().request(sweep_options.clocks.back());
    std::uint64_t steps = 0;
    Seconds read_at{-1};
    for (const Seconds end = board.now() + Seconds{options.seconds}; board.now() < end; ++steps) {
        while (engine.batcher().waiting() < 2) engine.batcher().submit(requests.next());
        const serve::StepShape shape = engine.choose();
        const Seconds began = board.now();
        request.change(sweep.clock_for(began, shape));
        engine.step(nullptr);
        sweep.ran(shape, began, board.now());
        if (board.now() - read_at < Seconds{0.05}) continue;
        read_at = board.now();
        const EnergyReading reading = board.read_energy();
        if (reading.status == ReadingStatus::ok)
            sweep.energy(Seconds{reading.sampled_at.time_since_epoch()}, reading.joules);
    }
    for (std::size_t c = 0; c < sweep_options.clocks.size(); ++c)
        std::printf("%s: %.0f steps\n", to_string(sweep_options.clocks[c]).c_str(),
                    sweep.steps_at(c));
    const std::vector<serve::StepRow> rows = sweep.rows();
    if (std::ofstream file{options.sweep}; !(file << serve::to_csv(rows)).flush())
        throw Error{Errc::io, {"write the step table", options.sweep, "", "check its folder"}};
    std::printf("%zu rows from %llu steps in %s\n", rows.size(),
                static_cast<unsigned long long>(steps), options.sweep.c_str());
    board.gpu().check();
    return !rows.empty();
}

// ---- what scopes cost ----

bool compare_overhead(const Options& options) {
    gpt::Board board;
    const serve::PlannedGpu gpu{board.gpu(),
                                serve::own_clock_plan(serve::StepBuckets{shapes_of(options)})};
    constexpr int rounds = 9;
    const int steps = gpt::gpu::on_host ? 20 : 200;
    std::vector<double> ratios;
    for (int round = 0; round < rounds; ++round) {
        // The same requests for both, in turns that change their order.
        double rates[2]{};
        for (int turn = 0; turn < 2; ++turn) {
            const int scoped = (round + turn) % 2;
            Requests requests{options.shape};
            rates[scoped] =
                measure_rate(options, board, requests, scoped == 1 ? &gpu : nullptr, steps);
        }
        ratios.push_back(rates[1] / rates[0]);
        std::printf("round %d: %.1f tokens/s bare, %.1f in scopes, %+.3f %%\n", round, rates[0],
                    rates[1], 100 * (ratios.back() - 1));
    }
    std::sort(ratios.begin(), ratios.end());
    const double cost = 100 * (1 - ratios[rounds / 2]);
    std::printf("step scopes cost %.3f %% of tokens a second (median of %d rounds)\n", cost,
                rounds);
    return cost < 0.5;
}

// ---- the same bytes as the reference ----

bool check_bytes() {
    const gpt::ModelShape shape{.batch = 3, .sequence = 28, .width = 24, .heads = 3, .layers = 2};
    constexpr int chunk = 7;
    // Weights far larger than the first ones of a training, so that they and not the noise decide.
    std::vector<float> parameters = gpt::initial_parameters(shape, 1);
    for (float& parameter : parameters) parameter *= 8;
    Engine engine{shape, chunk, nullptr, parameters};
    Requests requests{shape};
    std::vector<gpt::Generated> answers;
    for (int i = 0; i < 8; ++i) engine.batcher().submit(requests.next());
    while (!engine.batcher().idle())
        for (gpt::Generated& done : engine.step(nullptr).finished)
            answers.push_back(std::move(done));
    const std::vector<double> reference{parameters.begin(), parameters.end()};
    std::size_t bytes = 0, wrong = 0;
    for (const gpt::Generated& done : answers) {
        const std::vector<int> expected =
            gpt::host::generate(shape, reference, done.request, double{Engine::temperature});
        bytes += expected.size();
        for (std::size_t i = 0; i < expected.size(); ++i) wrong += done.answer[i] != expected[i];
    }
    std::printf("%zu bytes of %zu requests, %zu other than the host reference's\n", bytes,
                answers.size(), wrong);
    return answers.size() == 8 && wrong == 0;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        const Options options = parse(count, arguments);
        std::printf("gpt_serve on %s\n",
                    gpt::gpu::on_host
                        ? "host kernels, with the times and joules of a simulated H100"
                        : gpt::gpu::device_name().c_str());
        const bool good = options.check            ? check_bytes()
                          : options.overhead       ? compare_overhead(options)
                          : !options.sweep.empty() ? sweep_steps(options)
                          : options.prove          ? prove_plan(options)
                                                   : serve_windows(options);
        if (!good && options.check) std::printf("WRONG\n");
        return good ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "gpt_serve: %s\n", error.what());
        return 2;
    }
}
