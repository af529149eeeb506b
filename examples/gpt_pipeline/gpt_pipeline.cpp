// SPDX-License-Identifier: MIT
// Trains the GPT of ../gpt_train as a pipeline over MPI, a stage on each rank, 1F1B. Every
// operation is in a scope of kdvfs, which gives it the clock that the pipeline's plan has for it.
//   mpirun -n 4 gpt_pipeline [--steps N] [--microbatches N] [--batch N] [--sequence N] [--width N]
//                            [--heads N] [--layers N] [--bare]
// KDVFS_MODE says what the scopes do: measure (default), sweep:FILE, follow:FILE, off. `--bare` is
// without kdvfs. Losses are the same to the last bit for any number of stages.
// Each rank uses the first GPU that it sees: let mpirun set CUDA_VISIBLE_DEVICES or
// HIP_VISIBLE_DEVICES. Activations go through pinned host memory and MPI, not through NCCL or RCCL.
// pipeline_stage.cpp alone has kernels; MPI and kdvfs's sessions are here, for a host compiler:
//   nvcc -std=c++20 -x cu -arch=native -DOMPI_SKIP_MPICXX -I include -I EIGEN -I MPI
//       pipeline_stage.cpp gpt_pipeline.cpp ../gpt_train/open_gpu.cpp -lmpi -ldl -o gpt_pipeline
//   hipcc -std=c++20 -x hip --offload-arch=gfx90a -I include -c pipeline_stage.cpp
//   mpicxx -std=c++20 -D__HIP_PLATFORM_AMD__ -I include -I EIGEN pipeline_stage.o gpt_pipeline.cpp
//       ../gpt_train/open_gpu.cpp -lamdhip64 -ldl -o gpt_pipeline
// Built by a plain C++ compiler kernels run on the host, and clocks are those of simulated GPUs in
// virtual time.
#include "pipeline_stage.hpp"
#include "stage_gpu.hpp"

#include <kdvfs/error.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/train/mpi_communicator.hpp>
#include <kdvfs/train/session.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using Session = kdvfs::train::Session<gpt::PipelinePolicies, kdvfs::mpi::Communicator>;

struct Options {
    gpt::ModelShape shape{};
    int steps = 20;
    int microbatches = 8;
    bool bare = false;
};

Options parse(int count, char** words) {
    Options options;
    if (gpt::StageGpu::is_simulated) {
        options.shape = {.batch = 1, .sequence = 8, .width = 16, .heads = 2, .layers = 4};
        options.steps = 4;
        options.microbatches = 4;
    }
    for (int i = 1; i < count; ++i) {
        const std::string_view name = words[i];
        if (name == "--bare") {
            options.bare = true;
            continue;
        }
        int* value = name == "--steps"          ? &options.steps
                     : name == "--microbatches" ? &options.microbatches
                     : name == "--batch"        ? &options.shape.batch
                     : name == "--sequence"     ? &options.shape.sequence
                     : name == "--width"        ? &options.shape.width
                     : name == "--heads"        ? &options.shape.heads
                     : name == "--layers"       ? &options.shape.layers
                                                : nullptr;
        if (value == nullptr || i + 1 == count)
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"read the option", std::string{name}, "",
                                "options are --steps --microbatches --batch --sequence --width "
                                "--heads --layers, each with a number, and --bare"}};
        *value = std::atoi(words[++i]);
    }
    return options;
}

/// Activations and gradients between neighbours, through pinned host memory: what is sent stays
/// until MPI has taken it, then its memory is used again.
class Mail {
public:
    explicit Mail(gpt::PipelineStage& stage) : stage_{stage} {}

    void send(int to, int tag, const float* from, std::int64_t when) {
        Letter& letter = blank_letter();
        letter.when = when;
        stage_.copy_values(letter.values.get(), from);
        MPI_Isend(&letter.when, 1, MPI_INT64_T, to, 2 * tag, MPI_COMM_WORLD, &letter.requests[0]);
        MPI_Isend(letter.values.get(), count_, MPI_FLOAT, to, 2 * tag + 1, MPI_COMM_WORLD,
                  &letter.requests[1]);
    }
    /// @returns the sender's virtual time
    std::int64_t receive(int from, int tag, float* to) {
        std::int64_t when = 0;
        MPI_Recv(&when, 1, MPI_INT64_T, from, 2 * tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(received_.get(), count_, MPI_FLOAT, from, 2 * tag + 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        stage_.copy_values(to, received_.get());
        return when;
    }
    void wait_for_all() {
        for (Letter& letter : letters_) MPI_Waitall(2, letter.requests, MPI_STATUSES_IGNORE);
    }

private:
    struct Letter {
        gpt::PinnedValues values;
        std::int64_t when = 0;
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    };
    /// One that has been delivered, else a new one.
    Letter& blank_letter() {
        for (Letter& letter : letters_) {
            int done = 0;
            MPI_Testall(2, letter.requests, &done, MPI_STATUSES_IGNORE);
            if (done != 0) return letter;
        }
        return letters_.emplace_back(Letter{gpt::make_pinned_values(stage_.values())});
    }

    gpt::PipelineStage& stage_;
    int count_ = static_cast<int>(stage_.values());
    gpt::PinnedValues received_ = gpt::make_pinned_values(stage_.values());
    std::list<Letter> letters_;
};

class Training {
public:
    Training(const Options& options, int rank, int ranks)
        : options_{options},
          rank_{rank},
          ranks_{ranks},
          stage_{gpt::make_pipeline_stage(options.shape, rank, ranks, options.microbatches)} {}

    [[nodiscard]] gpt::StageGpu& gpu() { return gpu_; }

    /// @param session null: nothing of kdvfs
    /// @returns the mean loss of all microbatches, on every rank
    double step(Session* session, const kdvfs::train::Pipeline& order, std::mt19937& random) {
        std::vector<gpt::Batch> batches;
        for (int m = 0; m < options_.microbatches; ++m)
            batches.push_back(gpt::random_batch(options_.shape, gpt::training_text, random));
        double loss = 0;
        if (session != nullptr) session->next_iteration();
        const auto stage = static_cast<std::uint32_t>(rank_);
        for (auto i = order.stage_begin[stage]; i < order.stage_begin[stage + 1]; ++i) {
            const auto m = static_cast<int>(order.operations[i].microbatch);
            if (order.operations[i].pass == kdvfs::train::Pass::forward) {
                stage_->load(m, batches[static_cast<std::size_t>(m)]);
                if (!is_first()) gpu_.wait_until(mail_.receive(rank_ - 1, m, stage_->input(m)));
                run<kdvfs::train::Forward>(session, m, [&] { stage_->forward(m); });
                if (is_last())
                    loss += stage_->loss(m) / options_.microbatches;
                else
                    mail_.send(rank_ + 1, m, stage_->output(m), gpu_.end_of_work());
            } else {
                const int tag = options_.microbatches + m;
                if (!is_last()) gpu_.wait_until(mail_.receive(rank_ + 1, tag, stage_->gradient(m)));
                run<kdvfs::train::Backward>(session, m, [&] { stage_->backward(m); });
                if (!is_first())
                    mail_.send(rank_ - 1, tag, stage_->gradient(m), gpu_.end_of_work());
            }
        }
        mail_.wait_for_all();
        share_embedding();
        stage_->update(gpt::AdamW{});
        MPI_Bcast(&loss, 1, MPI_DOUBLE, ranks_ - 1, MPI_COMM_WORLD);
        end_together();
        return loss;
    }

private:
    [[nodiscard]] bool is_first() const { return rank_ == 0; }
    [[nodiscard]] bool is_last() const { return rank_ == ranks_ - 1; }

    template <class Op, class Work>
    void run(Session* session, int m, Work&& work) {
        std::optional<kdvfs::train::OpScope<Op>> scope;
        if (session != nullptr)
            scope.emplace(*session, gpu_.stream(), 0U, static_cast<std::uint32_t>(m));
        std::forward<Work>(work)();
        const double layers = (options_.shape.layers * (rank_ + 1) / ranks_ -
                               options_.shape.layers * rank_ / ranks_) +
                              (is_last() ? 0.5 : 0);
        gpu_.compute(Op::pass == kdvfs::train::Pass::forward ? layers : 2 * layers);
    }

    /// Between first and last stage, which have the same token embedding.
    void share_embedding() {
        if (ranks_ == 1 || !(is_first() || is_last())) return;
        const std::vector<float> mine = stage_->own_half();
        std::vector<float> theirs(mine.size());
        const int partner = is_first() ? ranks_ - 1 : 0;
        const int tag = 4 * options_.microbatches;
        MPI_Sendrecv(mine.data(), static_cast<int>(mine.size()), MPI_FLOAT, partner, tag,
                     theirs.data(), static_cast<int>(theirs.size()), MPI_FLOAT, partner, tag,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        stage_->set_other_half(theirs);
    }

    /// The next iteration begins on all ranks when the last one has ended this one.
    void end_together() {
        std::int64_t end = gpu_.end_of_work();
        MPI_Allreduce(MPI_IN_PLACE, &end, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
        gpu_.wait_until(end);
    }

    Options options_;
    int rank_;
    int ranks_;
    gpt::StageGpu gpu_;
    std::unique_ptr<gpt::PipelineStage> stage_;
    Mail mail_{*stage_};
};

/// Rank 0 prints for all: what ranks print by themselves mpirun mixes.
void print_in_order(const std::string& text, int rank, int ranks) {
    if (rank != 0) {
        MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        return;
    }
    std::cout << text;
    for (int other = 1; other < ranks; ++other) {
        MPI_Status status{};
        MPI_Probe(other, 0, MPI_COMM_WORLD, &status);
        int length = 0;
        MPI_Get_count(&status, MPI_CHAR, &length);
        std::string theirs(static_cast<std::size_t>(length), ' ');
        MPI_Recv(theirs.data(), length, MPI_CHAR, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        std::cout << theirs;
    }
}

void train(const Options& options, int rank, int ranks) {
    const kdvfs::train::PipelineShape shape{kdvfs::train::Schedule::one_f_one_b,
                                            static_cast<std::uint32_t>(ranks), 1,
                                            static_cast<std::uint32_t>(options.microbatches)};
    const kdvfs::train::Pipeline order = kdvfs::train::unmeasured_pipeline(shape);
    kdvfs::mpi::Communicator communicator{MPI_COMM_WORLD};
    Training training{options, rank, ranks};
    std::optional<Session> session;
    if (!options.bare) session.emplace(training.gpu().gpu(), communicator, shape);
    std::mt19937 random{1};
    for (int i = 1; i <= options.steps; ++i) {
        const auto start = std::chrono::steady_clock::now();
        const double loss = training.step(session ? &*session : nullptr, order, random);
        const std::chrono::duration<double, std::milli> time =
            std::chrono::steady_clock::now() - start;
        if (rank != 0) continue;
        const auto phase = session ? to_string(session->phase()) : std::string_view{"bare"};
        std::printf("step %4d  loss %.9f  %.2f ms  %.*s\n", i, loss, time.count(),
                    static_cast<int>(phase.size()), phase.data());
    }
    if (!session) return;
    session->check();
    std::ostringstream text;
    text << "stage " << rank << (gpt::StageGpu::is_simulated ? " (simulated)" : "") << '\n'
         << session->report();
    print_in_order(text.str(), rank, ranks);
}

}  // namespace

int main(int count, char** words) {
    MPI_Init(&count, &words);
    int rank = 0;
    int ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    try {
        train(parse(count, words), rank, ranks);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "gpt_pipeline, rank %d: %s\n", rank, error.what());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Finalize();
    return 0;
}
