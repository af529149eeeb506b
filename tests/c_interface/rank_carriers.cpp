// SPDX-License-Identifier: MIT
//
//   rank_carriers sockets|files|threads RANKS [DEADLINE_S [MOST_MS]]
//
// Ranks of a pipeline receive a plan through the C interface: processes by the caller's functions
// over Unix sockets (`sockets`), processes by files in a folder (`files`), or threads of a
// simulated job (`threads`). Prints how long that takes and how long the carrier takes for the same
// texts alone, which may be MOST_MS less (100). Then a rank is slow, is stopped, or is killed: a
// slow one is waited for, the others are named to all before the deadline. Boards are simulated.
#include <tests/c_interface/rank_carriers.hpp>

#include <kdvfs/kdvfs.h>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace rank_carriers;

double thread_cpu() {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// A rank.

struct Call {
    bool gathers = false;
    std::size_t length = 0;
};

struct Given {
    Carrier* carrier = nullptr;
    std::vector<Call> calls{};
    double answered = 0;     ///< when the last call returned
    double longest_gap = 0;  ///< between two calls: rank 0 plans
};

kdvfs_status pass_on(const Answer& answer, kdvfs_received* received) {
    if (answer.status != KDVFS_OK) {
        kdvfs_receive_error(received, answer.reason.c_str());
        return answer.status;
    }
    for (std::size_t r = 0; r < answer.texts.size(); ++r)
        kdvfs_receive(received, static_cast<std::uint32_t>(r), answer.texts[r].data(),
                      answer.texts[r].size());
    return KDVFS_OK;
}
kdvfs_status gather(void* data, const char* text, std::size_t length, double seconds,
                    kdvfs_received* received) {
    auto& given = *static_cast<Given*>(data);
    given.calls.push_back({true, length});
    const kdvfs_status status = pass_on(given.carrier->gather({text, length}, seconds), received);
    given.answered = now();
    return status;
}
kdvfs_status broadcast(void* data, const char* text, std::size_t length, double seconds,
                       kdvfs_received* received) {
    auto& given = *static_cast<Given*>(data);
    given.longest_gap = std::max(given.longest_gap, now() - given.answered);
    Answer answer = given.carrier->broadcast({text == nullptr ? "" : text, length}, seconds);
    given.calls.push_back({false, answer.texts.empty() ? 0 : answer.texts.front().size()});
    given.answered = now();
    return pass_on(answer, received);
}

/// What a rank did, in memory that all processes share.
struct Done {
    double entered = 0;
    double left = 0;
    double planned = 0;  ///< how long rank 0 took to plan, where the carrier is of this program
    double cpu = 0;
    double longest = 0;  ///< call
    kdvfs_status status = KDVFS_OK;
    char text[400]{};
};

enum class Fault { none, slow, stopped, killed };

struct Job {
    std::uint32_t ranks = 0;
    double deadline = 0;
    std::string file;    ///< of the swept pipeline
    std::string folder;  ///< where ranks exchange files; empty: by functions
    std::string name;    ///< of the run in that folder
    std::string mode;
    Fault fault = Fault::none;
    std::uint32_t victim = 0;
    double moment = 0;  ///< at which the victim is killed
    std::uint32_t iterations = 0;
    pthread_barrier_t* barrier = nullptr;  ///< all ranks and the parent
    Done* done = nullptr;

    void arrive() const { pthread_barrier_wait(barrier); }
};

constexpr std::uint32_t microbatches = 4;

/// The operations of an iteration, in the order of GPipe.
kdvfs_status run_operations(kdvfs_gpu* gpu, kdvfs_pipeline* pipeline, bool works) {
    for (const int pass : {KDVFS_FORWARD, KDVFS_BACKWARD})
        for (std::uint32_t m = 0; m < microbatches; ++m) {
            kdvfs_operation operation;
            kdvfs_status status = kdvfs_operation_begin(pipeline, nullptr, pass, 0, m, &operation);
            if (status == KDVFS_OK && works)
                status = kdvfs_simulated_launch(gpu, nullptr, 6e12 * (1 + pass), 0, 2.4e10);
            if (status == KDVFS_OK) status = kdvfs_operation_end(&operation);
            if (status == KDVFS_OK && works) status = kdvfs_simulated_synchronize(gpu);
            if (status != KDVFS_OK) return status;
        }
    return KDVFS_OK;
}

void keep_error(Done& done, kdvfs_status status) {
    done.status = status;
    std::snprintf(done.text, sizeof done.text, "%s", status == KDVFS_OK ? "" : kdvfs_last_error());
}

/// Begins a session and runs iterations, or until a plan of a sweep is followed.
void run_rank(const Job& job, std::uint32_t rank, Carrier* carrier, std::vector<Call>* calls) {
    Done& done = job.done[rank];
    done = {};
    kdvfs_gpu* gpu = nullptr;
    if (kdvfs_open_simulated("mi250x", rank + 1, nullptr, &gpu) != KDVFS_OK) {
        keep_error(done, KDVFS_INTERNAL);
        return;
    }
    Given given{carrier};
    const kdvfs_ranks ranks{sizeof(kdvfs_ranks), rank, job.ranks, gather, broadcast, &given};
    kdvfs_pipeline_options options;
    kdvfs_pipeline_options_init(&options);
    options.schedule = KDVFS_GPIPE;
    options.stages = 2;
    options.microbatches = microbatches;
    options.mode = job.mode.c_str();
    options.switch_latency_s = 0;
    options.silence_s = job.deadline;
    options.planning_s = std::max(job.deadline, 10.0);
    if (job.folder.empty()) {
        options.ranks = &ranks;
    } else {
        options.folder = job.folder.c_str();
        options.job = job.name.c_str();
        options.rank = rank;
        options.rank_count = job.ranks;
    }
    const bool is_victim = rank == job.victim && job.fault != Fault::none;
    job.arrive();
    if (is_victim && job.fault == Fault::stopped) raise(SIGSTOP);
    if (is_victim && job.fault == Fault::slow) sleep_s(0.5 * job.deadline);
    kdvfs_pipeline* pipeline = nullptr;
    const double cpu = thread_cpu();
    done.entered = now();
    kdvfs_status status = kdvfs_pipeline_begin(gpu, &options, &pipeline);
    done.left = now();
    done.longest = done.left - done.entered;
    done.cpu = thread_cpu() - cpu;
    done.planned = given.longest_gap;
    const bool sweeps = job.mode.starts_with("sweep");
    for (std::uint32_t i = 0; i < job.iterations && status == KDVFS_OK; ++i) {
        if (is_victim && job.fault == Fault::slow) sleep_s(0.2 * job.deadline);
        const double begin = now();
        status = kdvfs_pipeline_next_iteration(pipeline);
        done.longest = std::max(done.longest, now() - begin);
        const std::string_view phase = kdvfs_pipeline_phase(pipeline);
        if (phase == "alone" || (sweeps && phase == "following")) break;
        if (status == KDVFS_OK) status = run_operations(gpu, pipeline, sweeps);
    }
    if (status == KDVFS_OK) status = kdvfs_pipeline_check(pipeline);
    keep_error(done, status);
    kdvfs_pipeline_end(pipeline);
    kdvfs_close(gpu);
    if (calls != nullptr) *calls = given.calls;
}

/// The same texts without kdvfs.
void replay(const Job& job, std::uint32_t rank, Carrier& carrier, const std::vector<Call>& calls) {
    Done& done = job.done[rank];
    done = {};
    job.arrive();
    done.entered = now();
    for (const Call& call : calls) {
        const std::string text(call.length, 'x');
        const Answer answer = call.gathers ? carrier.gather(text, job.deadline)
                                           : carrier.broadcast(rank == 0 ? text : "", job.deadline);
        if (answer.status != KDVFS_OK) done.status = answer.status;
    }
    done.left = now();
}

// A job.

template <class T>
T* shared(std::size_t count) {
    void* memory =
        mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    return ::new (memory) T[count]();
}

enum class Kind { sockets, files, threads };

class Bed {
public:
    Bed(Kind kind, std::uint32_t ranks, double deadline, std::string folder)
        : kind_{kind}, folder_{std::move(folder)}, random_{std::random_device{}()} {
        job_.ranks = ranks;
        job_.deadline = deadline;
        job_.done = shared<Done>(std::max(ranks, 2U));
        job_.barrier = shared<pthread_barrier_t>(1);
        job_.file = folder_ + "/case.json";
    }

    /// Two ranks sweep the pipeline, and two follow it: what they send is kept.
    bool prepare() {
        bool good = true;
        as_two_threads([&] {
            job_.mode = "sweep:" + job_.file;
            job_.iterations = 3000;
            run(nullptr);
            good = all_went_well("sweeping");
            job_.mode = "follow:" + job_.file;
            job_.iterations = 0;
            if (good) run(&calls_);
            good = good && all_went_well("following");
        });
        return good;
    }

    /// @returns seconds beyond the carrier's own
    double exchange(int rounds) {
        std::vector<double> with, without, planning, receiving;
        for (int i = 0; i < rounds; ++i) {
            const double reference = kind_ == Kind::files ? planning_of_two() : 0;
            run(nullptr);
            if (!all_went_well("exchanging")) return 1e9;
            planning.push_back(std::max(job_.done[0].planned, reference));
            with.push_back(span() - planning.back());
            double most = 0;
            for (std::uint32_t r = 1; r < job_.ranks; ++r) most = std::max(most, job_.done[r].cpu);
            receiving.push_back(most);
            run_alone();
            if (!all_went_well("the carrier alone")) return 1e9;
            without.push_back(span());
        }
        std::size_t bytes = 0;
        for (const Call& call : calls_) bytes += call.length;
        std::printf(
            "%zu bytes: %.1f ms, and %.1f ms in which rank 0 plans; the carrier alone %.1f ms; "
            "CPU of another rank %.2f ms at most (medians of %d)\n",
            bytes, 1e3 * median(with), 1e3 * median(planning), 1e3 * median(without),
            1e3 * median(receiving), rounds);
        return median(with) - median(without);
    }

    /// Whether all ranks did what they must, in time.
    bool survives(Fault fault, const char* name) {
        job_.fault = fault;
        job_.iterations = fault == Fault::slow ? 3 : 100000;
        job_.victim = 1 + static_cast<std::uint32_t>(random_()) % (job_.ranks - 1);
        job_.moment = std::uniform_real_distribution{0.0, 0.2}(random_);
        run(nullptr);
        double longest = 0;
        bool good = true;
        const std::string victim = "rank " + std::to_string(job_.victim);
        for (std::uint32_t r = 0; r < job_.ranks; ++r) {
            if (r == job_.victim && fault != Fault::slow) continue;
            const Done& done = job_.done[r];
            longest = std::max(longest, done.longest);
            const bool named = r != 0 && kind_ != Kind::files
                                   ? done.status != KDVFS_OK  // rank 0 has ended for them
                                   : std::strstr(done.text, victim.c_str()) != nullptr;
            if (fault == Fault::slow ? done.status == KDVFS_OK : named) continue;
            if (good) std::printf("rank %u: status %d: %s\n", r, done.status, done.text);
            good = false;
        }
        const double limit = 1.1 * job_.deadline + 1;
        std::printf("%s %s: longest call %.2f s of %.2f s\n", victim.c_str(), name, longest,
                    job_.deadline);
        job_.fault = Fault::none;
        job_.iterations = 0;
        return good && longest < limit;
    }

private:
    template <class Work>
    void as_two_threads(const Work& work) {
        const std::uint32_t ranks = std::exchange(job_.ranks, 2);
        const double deadline = std::exchange(job_.deadline, 60);
        const Kind kind = std::exchange(kind_, Kind::threads);
        work();
        job_.ranks = ranks;
        job_.deadline = deadline;
        kind_ = kind;
    }
    double planning_of_two() {
        as_two_threads([&] { run(nullptr); });
        return job_.done[0].planned;
    }
    static double median(std::vector<double> values) {
        std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                         values.end());
        return values[values.size() / 2];
    }
    [[nodiscard]] double span() const {
        double begin = 1e300;
        double end = 0;
        for (std::uint32_t r = 0; r < job_.ranks; ++r) {
            begin = std::min(begin, job_.done[r].entered);
            end = std::max(end, job_.done[r].left);
        }
        return end - begin;
    }
    bool all_went_well(const char* what) const {
        for (std::uint32_t r = 0; r < job_.ranks; ++r)
            if (job_.done[r].status != KDVFS_OK) {
                std::printf("%s, rank %u: %s\n", what, r, job_.done[r].text);
                return false;
            }
        return true;
    }
    void run(std::vector<Call>* calls) {
        job_.folder = kind_ == Kind::files ? folder_ : "";
        job_.name = "run";
        start([&](std::uint32_t rank, Carrier* carrier) {
            run_rank(job_, rank, carrier, rank == 0 ? calls : nullptr);
        });
    }
    void run_alone() {
        const std::string folder = folder_ + "/alone" + std::to_string(++runs_);
        std::filesystem::create_directory(folder);
        start([&](std::uint32_t rank, Carrier* carrier) {
            PlainFiles files{folder, rank, job_.ranks};
            replay(job_, rank, carrier == nullptr ? files : *carrier, calls_);
        });
    }
    void start(const std::function<void(std::uint32_t, Carrier*)>& work) {
        const bool lacks_one =
            kind_ == Kind::threads && (job_.fault == Fault::stopped || job_.fault == Fault::killed);
        pthread_barrierattr_t among_processes;
        pthread_barrierattr_init(&among_processes);
        pthread_barrierattr_setpshared(&among_processes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(job_.barrier, &among_processes, job_.ranks + (lacks_one ? 0 : 1));
        if (kind_ == Kind::threads) return start_threads(work);
        std::vector<Sockets> sockets(job_.ranks);
        for (std::uint32_t r = 1; kind_ == Kind::sockets && r < job_.ranks; ++r) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) std::abort();
            sockets[0].ends.push_back(pair[0]);
            sockets[r].ends.push_back(pair[1]);
        }
        std::vector<pid_t> processes;
        for (std::uint32_t r = 0; r < job_.ranks; ++r) {
            const pid_t process = fork();
            if (process == 0) {
                for (std::uint32_t other = 0; other < job_.ranks; ++other)
                    for (const int end : other == r ? std::vector<int>{} : sockets[other].ends)
                        close(end);
                {
                    SocketStar star{r, sockets[r]};
                    work(r, kind_ == Kind::sockets ? &star : nullptr);
                }
                _exit(0);
            }
            processes.push_back(process);
        }
        for (const Sockets& each : sockets)
            for (const int end : each.ends) close(end);
        job_.arrive();
        if (job_.fault == Fault::killed) {
            sleep_s(job_.moment);
            kill(processes[job_.victim], SIGKILL);
        }
        for (std::uint32_t r = 0; r < job_.ranks; ++r)
            if (r != job_.victim || job_.fault != Fault::stopped) waitpid(processes[r], nullptr, 0);
        if (job_.fault == Fault::stopped) {
            kill(processes[job_.victim], SIGKILL);
            waitpid(processes[job_.victim], nullptr, 0);
        }
    }
    void start_threads(const std::function<void(std::uint32_t, Carrier*)>& work) {
        Threads all{job_.ranks};
        std::vector<std::thread> threads;
        for (std::uint32_t r = 0; r < job_.ranks; ++r) {
            if (r == job_.victim && (job_.fault == Fault::stopped || job_.fault == Fault::killed)) {
                continue;  // it sends nothing
            }
            threads.emplace_back([&, r] {
                OneThread carrier{all, r};
                work(r, &carrier);
            });
        }
        job_.arrive();
        for (std::thread& thread : threads) thread.join();
    }

    Kind kind_;
    Job job_;
    std::string folder_;
    std::mt19937 random_;
    std::vector<Call> calls_;
    int runs_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
    const std::string_view kind = count > 2 ? arguments[1] : "";
    if (kind != "sockets" && kind != "files" && kind != "threads") {
        std::fprintf(stderr,
                     "usage: rank_carriers sockets|files|threads RANKS [DEADLINE_S [MOST_MS]]\n");
        return 2;
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    char folder[] = "/tmp/kdvfs-ranks-XXXXXX";
    if (mkdtemp(folder) == nullptr) return 1;
    Bed bed{kind == "sockets" ? Kind::sockets
            : kind == "files" ? Kind::files
                              : Kind::threads,
            static_cast<std::uint32_t>(std::atoi(arguments[2])),
            count > 3 ? std::atof(arguments[3]) : 1, folder};
    bool good = bed.prepare();
    if (good) {
        const double beyond = bed.exchange(5);
        std::printf("%s ranks by %s: %.1f ms beyond the carrier's own (simulated boards)\n",
                    arguments[2], arguments[1], 1e3 * beyond);
        good = 1e3 * beyond < (count > 4 ? std::atof(arguments[4]) : 100);
        good = bed.survives(Fault::slow, "slow") && good;
        good = bed.survives(Fault::stopped, "stopped") && good;
        good = bed.survives(Fault::killed, "killed") && good;
    }
    std::filesystem::remove_all(folder);
    std::printf(good ? "good\n" : "FAILED\n");
    return good ? 0 : 1;
}
