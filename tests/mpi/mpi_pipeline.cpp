// SPDX-License-Identifier: MIT
//
// One rank of a pipeline of simulated GPUs, for mpirun; every joule and second is simulated.
//   mpi_pipeline follow [MILLISECONDS...]  saving that is left at these switching latencies
//   mpi_pipeline straggle [FACTOR...]      two copies of a pipeline, of which one gets slower
//   mpi_pipeline silent                    a rank that stops talking
//   mpi_pipeline dead FOLDER               a rank that is killed, with a board of files for each
//   mpi_pipeline shape STAGES              a world of another size
// What must hold is checked; a rank that sees it broken says so and ends the run.
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/train/mpi_communicator.hpp>

#include <tests/restoring/file_board.hpp>
#include <tests/training/simulated_pipeline.hpp>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace training;
using MpiSession = train::Session<Policies, mpi::Communicator>;

int own_rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

void require(bool holds, const std::string& what) {
    if (holds) return;
    std::fprintf(stderr, "rank %d: WRONG: %s\n", own_rank(), what.c_str());
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/// Messages of MPI that carry virtual time.
struct Channel {
    static_assert(sizeof(Duration::rep) == sizeof(long long));

    void send(std::uint32_t to, std::uint32_t tag, TimePoint time) const {
        const long long count = time.time_since_epoch().count();
        MPI_Send(&count, 1, MPI_LONG_LONG, static_cast<int>(to), static_cast<int>(tag),
                 MPI_COMM_WORLD);
    }
    [[nodiscard]] TimePoint receive(std::uint32_t from, std::uint32_t tag) const {
        long long count = 0;
        MPI_Recv(&count, 1, MPI_LONG_LONG, static_cast<int>(from), static_cast<int>(tag),
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return TimePoint{Duration{count}};
    }
    [[nodiscard]] TimePoint latest(TimePoint mine) const {
        const long long own = mine.time_since_epoch().count();
        long long last = 0;
        MPI_Allreduce(&own, &last, 1, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
        return TimePoint{Duration{last}};
    }
};

double sum_of_all(double mine) {
    double sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

struct Iteration {
    double seconds = 0;
    double joules = 0;  ///< of all ranks
};

Iteration mean_of(int count, Stage& stage, MpiSession& session) {
    Channel channel;
    Iteration mean;
    const Joules before = stage.device().true_energy();
    for (int i = 0; i < count; ++i) mean.seconds += stage.run(session, channel).count() / count;
    mean.joules = sum_of_all((stage.device().true_energy() - before).count / count);
    return mean;
}

/// Of so many stages, and twice as many microbatches.
train::Pipeline pipeline_of(std::uint32_t stages) {
    return known_pipeline(simulated::mi250x(),
                          {train::Schedule::one_f_one_b, stages, 1, 2 * stages});
}

void follow(mpi::Communicator& ranks, const std::vector<double>& latencies) {
    const train::Pipeline pipeline = pipeline_of(ranks.size());
    Seconds shortest{};
    double at_once = 0;
    if (ranks.rank() == 0) {
        const train::Frontier frontier{pipeline};
        shortest = frontier.shortest();
        at_once = train::make_plan(frontier, shortest, train::Clocks::one).total.count;
    }
    for (const double latency : latencies) {
        Stage stage{pipeline, ranks.rank(), 0, 1, Duration{std::llround(latency * 1e6)}};
        Iteration found;
        {
            MpiSession session{stage.gpu(), ranks, pipeline,
                               in_mode({tune::SessionMode::Kind::measure, {}})};
            found = mean_of(2, stage, session);
        }
        train::SessionOptions options;
        options.plan.switching = {Seconds{latency * 1e-3}, Seconds{latency * 1e-4}};
        MpiSession session{stage.gpu(), ranks, pipeline, options};
        mean_of(1, stage, session);
        const Iteration live = mean_of(3, stage, session);
        session.check();
        const train::StagePlan& plan = session.first_plan();
        const double saved = 1 - live.joules / found.joules;
        const double without = 1 - at_once / found.joules;
        if (ranks.rank() != 0) continue;
        const double time = live.seconds / plan.time.count() - 1;
        const double energy = live.joules / plan.total.count - 1;
        std::printf(
            "simulated, %u ranks, 1F1B of %u stages and %u microbatches, switching latency %4.1f "
            "ms: as found %.4f s, %.1f J; plan %.4f s, %.2f %% saved (%.2f %% if clocks came at "
            "once); live time %+.3f %%, energy %+.3f %% of the plan, %.2f %% saved\n",
            ranks.size(), pipeline.stages, pipeline.microbatches, latency, found.seconds,
            found.joules, plan.time.count(), 100 * (1 - plan.total.count / found.joules),
            100 * without, 100 * time, 100 * energy, 100 * saved);
        require(plan.time / shortest < 1.005, "the plan is slower than the pipeline can be");
        require(std::abs(time) < 0.005, "the time is off the plan");
        require(std::abs(energy) < 0.01, "the energy is off the plan");
        require(without > 0.02 && saved >= (latency <= 1 ? 0.9 : 0.5) * without,
                "too little of the saving is left");
    }
}

void straggle(mpi::Communicator& ranks, const std::vector<double>& factors) {
    constexpr std::uint32_t copies = 2;
    const train::Pipeline pipeline = pipeline_of(ranks.size() / copies);
    const std::uint32_t copy = ranks.rank() % copies;
    constexpr int most_iterations = 5000;  // until rank 0 has planned
    for (const double factor : factors) {
        Stage stage{pipeline, ranks.rank() / copies, copy, copies, std::chrono::milliseconds{1}};
        MpiSession session{stage.gpu(), ranks, pipeline};
        Channel channel;
        for (int i = 0; i < 4; ++i) stage.run(session, channel);
        require(!session.answers_straggler(), "nothing is slow yet");
        // Every stage of the second copy: a rack that is too hot.
        stage.slow_down(copy == 1 ? factor : 1);
        stage.run(session, channel);
        const double alone = stage.run(session, channel).count();
        int iterations = 0;
        while (!session.answers_straggler() && ++iterations < most_iterations)
            stage.run(session, channel);
        require(iterations < most_iterations, "the straggler was not answered");
        stage.run(session, channel);
        const double answered = stage.run(session, channel).count();
        const double planned = session.plan().time / session.first_plan().time;
        if (ranks.rank() == 0)
            std::printf(
                "simulated, a copy slower by %.2f: iterations of %.4f s, answered %.4f s; the "
                "other copy is planned for %.3f T\n",
                factor, alone, answered, planned);
        require(answered <= 1.001 * alone, "the answer makes iterations longer");
        if (copy == 0)
            require(planned > std::min(factor, 1.15) - 0.02 && planned <= factor,
                    "the other copy does not take the time that there is");
        stage.slow_down(1);
        for (int i = 0; i < 3; ++i) stage.run(session, channel);
        require(!session.answers_straggler(), "the copies did not come back");
        session.check();
    }
}

void silent(mpi::Communicator& ranks) {
    const train::Pipeline pipeline = pipeline_of(ranks.size() / 2);
    Stage stage{pipeline, ranks.rank() / 2, ranks.rank() % 2, 2, Duration{0}};
    train::SessionOptions options;
    options.silence = std::chrono::seconds{2};
    Channel channel;
    {
        MpiSession session{stage.gpu(), ranks, pipeline, options};
        for (int i = 0; i < 3; ++i) stage.run(session, channel);
        if (ranks.rank() == 5) {
            std::this_thread::sleep_for(std::chrono::seconds{8});
        } else {
            session.next_iteration();
            session.next_iteration();
            require(session.phase() == train::SessionPhase::alone, "the silence was not noticed");
            std::string said;
            try {
                session.check();
            } catch (const Error& error) {
                said = error.what();
            }
            require(said.find("rank 5: silent for 2") != std::string::npos, "it said: " + said);
            stage.device().advance(std::chrono::milliseconds{1});
            require(stage.device().effective_clocks() == ClockPoint{}, "clocks are not at auto");
            if (ranks.rank() == 0) std::printf("%s\n", said.c_str());
        }
    }
    std::fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    std::_Exit(0);  // the collective that was given up can never end
}

/// Holds a board of files at a low clock until the run is over, and says in FOLDER where it is.
void dead(mpi::Communicator& ranks, const std::string& folder) {
    const TemporaryFolder files;
    FileBoard board{files};
    kdvfs::detail::OwnedClocks<FileBoard> clocks{
        board, kdvfs::detail::RestorePlace::in_own(files.at("own"), board.info().address)};
    clocks.apply({Megahertz{900}, auto_clock});
    require(board.level() == "manual", "the clock is not low");
    std::ofstream{folder + "/rank" + std::to_string(ranks.rank())} << files.path() << '\n';
    MPI_Barrier(MPI_COMM_WORLD);
    if (ranks.rank() == 3) std::raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::seconds{60});
}

/// More stages than ranks, or so many that they do not divide them.
void shape(mpi::Communicator& ranks, std::uint32_t stages) {
    const train::Pipeline pipeline = pipeline_of(stages);
    Stage stage{pipeline, 0, 0, 1, Duration{0}};
    std::string said;
    try {
        MpiSession{stage.gpu(), ranks, pipeline};
    } catch (const Error& error) {
        said = error.what();
    }
    require(
        said.find(std::to_string(stages) + " stages do not divide the ranks") != std::string::npos,
        "it said: " + said);
}

std::vector<double> numbers(int count, char** words, std::vector<double> otherwise) {
    if (count <= 2) return otherwise;
    otherwise.clear();
    for (int i = 2; i < count; ++i) otherwise.push_back(std::atof(words[i]));
    return otherwise;
}

}  // namespace

int main(int count, char** words) {
    MPI_Init(&count, &words);
    try {
        mpi::Communicator ranks{MPI_COMM_WORLD};
        const std::string what = count > 1 ? words[1] : "";
        if (what == "follow")
            follow(ranks, numbers(count, words, {1}));
        else if (what == "straggle")
            straggle(ranks, numbers(count, words, {1.2}));
        else if (what == "silent")
            silent(ranks);
        else if (what == "dead" && count > 2)
            dead(ranks, words[2]);
        else if (what == "shape" && count > 2)
            shape(ranks, static_cast<std::uint32_t>(std::atoi(words[2])));
        else
            require(false, "no such run: " + what);
    } catch (const std::exception& error) {
        require(false, error.what());
    }
    MPI_Finalize();
    return 0;
}
