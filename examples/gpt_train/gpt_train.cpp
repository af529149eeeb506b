// SPDX-License-Identifier: MIT
// Trains a small GPT on bytes. Each kernel runs under a name that kdvfs can give a clock to.
//   gpt_train [--steps N] [--batch N] [--sequence N] [--width N] [--heads N] [--layers N]
//   gpt_train --bare ...     without kdvfs
//   gpt_train --metered N    meter 1 iteration in N (16)
//   gpt_train --repeat       after 10 s repeat each kernel in place: from then on it trains garbage
//   gpt_train --out FOLDER   write report.json there; --record: what it was made of, too
//   gpt_train --forward-only | --microbatches N    other mixes of the same kernels
//   gpt_train --check        compares a step with the double-precision host reference
// Built by nvcc or hipcc it runs on the GPU:
//   nvcc -std=c++20 -x cu -arch=native -I include gpt_train.cpp open_gpu.cpp -o gpt_train
//   hipcc -std=c++20 -x hip --offload-arch=gfx90a -I include -c gpt_train.cpp
//   g++ -std=c++20 -D__HIP_PLATFORM_AMD__ -I include gpt_train.o open_gpu.cpp -lamdhip64 -ldl
//       -o gpt_train      (one line with the one before)
// Built by a plain C++ compiler it runs the same kernels thread by thread on the host, which is
// for checking and slow.
#include "frequency_scopes.hpp"
#include "gradient_check.hpp"
#include "open_gpu.hpp"
#include "training_step.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <string_view>

namespace {

struct Options {
    gpt::ModelShape shape;
    int steps = 50;
    bool check = false;
    bool bare = gpt::gpu::on_host;
    bool repeat = false;
    bool record = false;
    bool forward_only = false;
    int metered = 16;
    int microbatches = 1;
    std::string out{};
};

Options parse(int count, char** arguments) {
    Options options;
    if (gpt::gpu::on_host) {
        options = {.shape = {.batch = 2, .sequence = 8, .width = 16, .heads = 2, .layers = 1},
                   .steps = 8};
    }
    for (int i = 1; i < count; ++i) {
        const std::string_view name = arguments[i];
        if (name == "--check") {
            options.check = true;
            continue;
        }
        if (name == "--bare") {
            options.bare = true;
            continue;
        }
        bool* flag = name == "--repeat"         ? &options.repeat
                     : name == "--record"       ? &options.record
                     : name == "--forward-only" ? &options.forward_only
                                                : nullptr;
        if (flag != nullptr) {
            *flag = true;
            continue;
        }
        if (name == "--out" && i + 1 < count) {
            options.out = arguments[++i];
            continue;
        }
        int* value = name == "--steps"          ? &options.steps
                     : name == "--batch"        ? &options.shape.batch
                     : name == "--sequence"     ? &options.shape.sequence
                     : name == "--width"        ? &options.shape.width
                     : name == "--heads"        ? &options.shape.heads
                     : name == "--layers"       ? &options.shape.layers
                     : name == "--metered"      ? &options.metered
                     : name == "--microbatches" ? &options.microbatches
                                                : nullptr;
        if (value == nullptr || i + 1 == count) {
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"read the option", std::string{name}, "",
                                "options are --steps --batch --sequence --width --heads --layers "
                                "--metered --microbatches, each with a number, --out FOLDER, "
                                "--bare --check --repeat --record and --forward-only"}};
        }
        *value = std::atoi(arguments[++i]);
    }
    return options;
}

/// Returns whether the device agrees with the reference to single precision.
bool check_step() {
    constexpr gpt::ModelShape shape{
        .batch = 3, .sequence = 40, .width = 48, .heads = 3, .layers = 2};
    const gpt::GradientCheck check = gpt::check_gradient(shape, {});
    std::printf(
        "relative difference from the double-precision reference on the host:\n"
        "loss %.1e, gradient %.1e, parameter update %.1e\n",
        check.loss_difference, check.gradient_difference, check.parameter_difference);
    return check.loss_difference < 1e-5 && check.gradient_difference < 1e-4 &&
           check.parameter_difference < 1e-4;
}

/// Returns whether the loss went down. Calls `next_iteration` after each step.
template <class Scopes, class NextIteration>
bool train(const Options& options, Scopes scopes, NextIteration next_iteration) {
    const gpt::gpu::Stream stream{};
    gpt::TrainingStep step{options.shape, gpt::initial_parameters(options.shape, 1), scopes,
                           stream};
    std::mt19937 random{1};
    double first_loss = 0;
    double loss = 0;
    for (int i = 1; i <= options.steps; ++i) {
        const auto start = std::chrono::steady_clock::now();
        for (int micro = 0; micro < options.microbatches; ++micro) {
            const gpt::Batch batch = gpt::random_batch(options.shape, gpt::training_text, random);
            step.load(batch);
            scopes.template phase<gpt::Forward>(stream, [&] { step.forward(); });
            if (options.forward_only) continue;
            scopes.template phase<gpt::Backward>(stream, [&] { step.backward(); });
        }
        if (!options.forward_only) {
            scopes.template phase<gpt::Update>(stream, [&] { step.update(gpt::AdamW{}); });
        }
        loss = step.read_loss();
        next_iteration();
        const std::chrono::duration<double, std::milli> time =
            std::chrono::steady_clock::now() - start;
        if (i == 1) first_loss = loss;
        if (i == 1 || i % 10 == 0 || i == options.steps) {
            std::printf("step %4d  loss %.4f  %.2f ms\n", i, loss, time.count());
        }
    }
    return loss < first_loss;
}

bool train(const Options& options) {
    if (options.bare) return train(options, gpt::BareLaunches{}, [] {});
#if defined(__CUDACC__) || defined(__HIPCC__)
    kdvfs::GpuOptions wanted;
    wanted.meter_every = static_cast<unsigned>(std::max(options.metered, 1));
    wanted.repeat.on = options.repeat;
    const auto gpu = gpt::open_gpu(wanted).with<gpt::Policies>();
    if (options.record) gpt::keep_record(gpu);
    const bool good =
        train(options, gpt::FrequencyScopes<decltype(gpu)>{gpu}, [&] { gpu.next_iteration(); });
    gpt::print_report(gpu, options.out);
    return good || options.repeat || options.forward_only;
#else
    throw kdvfs::Error{
        kdvfs::Errc::not_supported,
        {"train under scopes", "the host", "", "build with nvcc or hipcc, or train --bare"}};
#endif
}

}  // namespace

int main(int count, char** arguments) {
    try {
        const Options options = parse(count, arguments);
        std::printf("gpt_train on %s\n", gpt::gpu::device_name().c_str());
        const bool good = options.check ? check_step() : train(options);
        if (!good) std::printf("%s\n", options.check ? "WRONG" : "the loss did not go down");
        return good ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "gpt_train: %s\n", error.what());
        return 2;
    }
}
