// SPDX-License-Identifier: MIT
#pragma once

#include <tests/self_tuning/self_tuning_bed.hpp>

#include <kdvfs/tune/session.hpp>

#include <time.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Jobs of several simulated boards that wait for each other at the end of every iteration, and
/// tune themselves together. In virtual time, one rank after the other.
namespace self_tuning_bed {

/// Carries texts between simulated ranks, each after the same time.
class SlowMail {
public:
    explicit SlowMail(Seconds delay) : delay_{delay} {}

    void send(double now, std::uint32_t from, std::string text) {
        letters_.push_back({now + delay_.count(), from, std::move(text)});
    }
    [[nodiscard]] std::vector<std::pair<std::uint32_t, std::string>> take(double now) {
        std::vector<std::pair<std::uint32_t, std::string>> taken;
        while (!letters_.empty() && letters_.front().at <= now) {
            taken.emplace_back(letters_.front().from, std::move(letters_.front().text));
            letters_.pop_front();
        }
        return taken;
    }

private:
    struct Letter {
        double at;
        std::uint32_t from;
        std::string text;
    };
    Seconds delay_;
    std::deque<Letter> letters_;
};

/// What all ranks share.
struct Post {
    std::vector<SlowMail> to;         ///< each rank
    std::vector<double> now{};        ///< of each rank
    std::vector<std::size_t> sent{};  ///< bytes, by each rank
    std::uint32_t silent = 0;         ///< so many of the last ranks
    std::size_t plans = 0;            ///< that rank 0 has announced
};

class SimulatedLink final : public tune::RankLink {
public:
    SimulatedLink(Post& post, std::uint32_t rank) : post_{&post}, rank_{rank} {}
    [[nodiscard]] std::uint32_t rank() const override { return rank_; }
    [[nodiscard]] std::uint32_t size() const override {
        return static_cast<std::uint32_t>(post_->to.size());
    }
    void report(std::string text) override {
        if (rank_ + post_->silent >= size() && text.starts_with("block ")) return;
        post_->sent[rank_] += text.size();
        post_->to[0].send(post_->now[rank_], rank_, std::move(text));
    }
    [[nodiscard]] std::vector<std::pair<std::uint32_t, std::string>> take_reports() override {
        return post_->to[rank_].take(post_->now[rank_]);
    }
    void announce(std::string text) override {
        post_->plans += text.starts_with("plan ") ? 1 : 0;
        for (std::uint32_t r = 1; r < size(); ++r) post_->to[r].send(post_->now[rank_], 0, text);
    }
    [[nodiscard]] std::vector<std::string> take_announcements() override {
        std::vector<std::string> texts;
        for (auto& [from, text] : post_->to[rank_].take(post_->now[rank_]))
            texts.push_back(std::move(text));
        return texts;
    }

private:
    Post* post_;
    std::uint32_t rank_;
};

/// A job of equal programs on boards that differ a little.
class RankBed {
public:
    struct Options {
        std::uint32_t ranks = 8;
        Duration latency = std::chrono::milliseconds{10};
        Seconds message{0.5};  ///< until a text arrives
        double spread = 0.01;  ///< of boards' times and energies, standard deviation
        double straggler = 1;  ///< factor of the last rank's times
        std::optional<simulated::Board> last{};  ///< rank's board, where it is another one
        bool last_refuses = false;               ///< to have its clocks set
        std::uint32_t silent = 0;  ///< so many of the last ranks' measurements get lost
        bool together = true;      ///< else each rank learns by itself
        std::uint64_t seed = 1;
        double max_slowdown = 0.01;
        bool until_plan = false;  ///< end when rank 0 follows a plan
    };
    struct Course {
        std::vector<double> passed;        ///< seconds at each iteration's end
        std::vector<double> energy;        ///< joules of all ranks
        std::vector<std::size_t> lowered;  ///< ranks at other clocks than as found
        double planned = -1;               ///< when rank 0 first followed a plan
        std::vector<std::pair<tune::RunPhase, double>> phases;  ///< of rank 0, and when each began
        std::vector<double> leading;        ///< processor seconds of rank 0 between iterations
        std::vector<double> entering;       ///< likewise, in which its scopes begin
        double obeying = 0;                 ///< of all other ranks, in all iterations
        std::vector<tune::Saving> savings;  ///< by rank, at the end
        std::vector<std::size_t> sent;      ///< bytes, by rank
        std::size_t plans = 0;              ///< that rank 0 has announced
    };

    RankBed(simulated::Board board, const Options& options)
        : board_{std::move(board)}, options_{options} {}

    [[nodiscard]] Course run(const Program& program, tune::SessionMode::Kind mode,
                             std::size_t iterations, Seconds longest,
                             const Change& change = {}) const {
        Post post{std::vector<SlowMail>(options_.ranks, SlowMail{options_.message}),
                  std::vector<double>(options_.ranks), std::vector<std::size_t>(options_.ranks),
                  options_.silent};
        std::vector<std::unique_ptr<Rank>> ranks;
        for (std::uint32_t r = 0; r < options_.ranks; ++r)
            ranks.push_back(std::make_unique<Rank>(
                r + 1 == options_.ranks ? options_.last.value_or(board_) : board_, options_, mode,
                post, r));
        Course course;
        std::mt19937_64 random{options_.seed * 104729 + 1};
        for (std::size_t i = 0; i < iterations; ++i) {
            const double now = Seconds{ranks[0]->device.now() - ranks[0]->began}.count();
            if (now >= longest.count()) break;
            iterate(i < change.at ? program : change.to, ranks, post, random, options_.together,
                    course);
            double energy = 0;
            std::size_t lowered = 0;
            for (const auto& rank : ranks) {
                energy += (rank->device.true_energy() - rank->before).count;
                lowered += rank->device.effective_clocks() != ClockPoint{} ? 1 : 0;
            }
            course.passed.push_back(Seconds{ranks[0]->device.now() - ranks[0]->began}.count());
            course.energy.push_back(energy);
            course.lowered.push_back(lowered);
            const auto saving = ranks[0]->session.saving();
            if (saving && (course.phases.empty() || course.phases.back().first != saving->phase))
                course.phases.emplace_back(saving->phase, course.passed.back());
            if (course.planned < 0 && saving && saving->phase == tune::RunPhase::follow)
                course.planned = course.passed.back();
            if (options_.until_plan && course.planned >= 0) break;
        }
        for (const auto& rank : ranks)
            if (const auto saving = rank->session.saving()) course.savings.push_back(*saving);
        course.sent = post.sent;
        course.plans = post.plans;
        return course;
    }

private:
    using Policies = PolicyRegistry<Default<AutoClock>>;

    struct Rank {
        Rank(const simulated::Board& board, const Options& options, tune::SessionMode::Kind mode,
             Post& post, std::uint32_t number)
            : device{board, device_options(options, number)},
              gpu{open(device, options, number)},
              session{gpu, session_mode(options, mode, post, number), sweep_options(options)},
              stream{device.create_stream()},
              began{device.now()},
              before{device.true_energy()} {
            std::mt19937_64 random{options.seed * 1299709 + number};
            std::normal_distribution<double> differs{0, options.spread};
            time = std::exp(differs(random));
            energy = std::exp(2 * differs(random));
            if (number + 1 == options.ranks) time *= options.straggler;
        }
        static simulated::DeviceOptions device_options(const Options& options,
                                                       std::uint32_t number) {
            simulated::DeviceOptions device;
            device.seed = options.seed * 1000 + number;
            device.clock_switch = simulated::uniform_switch(options.latency);
            return device;
        }
        static Gpu open(simulated::Device& device, const Options& options, std::uint32_t number) {
            GpuOptions its;
            its.switch_latency = Duration{0};
            if (options.last_refuses && number + 1 == options.ranks) {
                device.faults().inject(simulated::Call::apply, simulated::Fault::refused, 0,
                                       simulated::FaultPlan::always);
                its.on_refused = OnRefused::measure_only;
            }
            return simulated::open(device, its);
        }
        static tune::SessionMode session_mode(const Options& options, tune::SessionMode::Kind kind,
                                              Post& post, std::uint32_t number) {
            tune::SessionMode mode{kind};
            if (options.together) mode.link = std::make_shared<SimulatedLink>(post, number);
            return mode;
        }
        static tune::SweepOptions sweep_options(const Options& options) {
            tune::SweepOptions sweep;
            sweep.objective = tune::relaxed_waste(options.max_slowdown);
            sweep.seed = options.seed;
            return sweep;
        }

        simulated::Device device;
        Gpu gpu;
        tune::Session<Policies> session;
        simulated::Stream* stream;
        TimePoint began;
        Joules before;
        double time = 1;    ///< of this board's kernels
        double energy = 1;  ///< likewise
    };

    static simulated::KernelModel scaled(simulated::KernelModel kernel, double time,
                                         double energy) {
        kernel.core_time *= time;
        kernel.memory_time *= time;
        kernel.core_energy = kernel.core_energy * energy;
        kernel.memory_energy = kernel.memory_energy * energy;
        return kernel;
    }

    static double processor_seconds() {
        timespec now{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
    }

    /// Work, then a collective in which the ranks that are early wait.
    static void iterate(const Program& program, std::vector<std::unique_ptr<Rank>>& ranks,
                        Post& post, std::mt19937_64& random, bool together, Course& course) {
        TimePoint last{};
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            Rank& rank = *ranks[r];
            post.now[r] = Seconds{rank.device.now() - rank.began}.count();
            const double before = processor_seconds();
            rank.session.next_iteration();
            const double taken = processor_seconds() - before;
            double entered = 0;
            if (r == 0)
                course.leading.push_back(taken);
            else
                course.obeying += taken;
            if (r == 0 || !together) wait_for_plan(rank.session);
            const double noise =
                std::exp(std::normal_distribution<double>{0, program.scatter / 2}(random));
            for (const std::size_t k : program.launches) {
                const std::string name = program.name(k);
                const double begins = r == 0 ? processor_seconds() : 0;
                const Scope scope{rank.session, rank.stream, name};
                if (r == 0) entered += processor_seconds() - begins;
                rank.device.launch(rank.stream, scaled(program.kernels[k], rank.time * noise,
                                                       rank.energy * rank.time * noise));
            }
            if (r == 0) course.entering.push_back(entered);
            rank.device.synchronize(rank.stream);
            last = std::max(last, rank.device.now());
        }
        constexpr Duration transfer = std::chrono::milliseconds{20};
        for (const auto& rank : ranks) {
            const Scope scope{rank->session, rank->stream, "all_reduce"};
            simulated::KernelModel collective;
            collective.fixed_time = Seconds{last + transfer - rank->device.now()};
            collective.core_energy = Watts{60} * collective.fixed_time;  // it spins
            rank->device.launch(rank->stream, collective);
        }
        for (const auto& rank : ranks) rank->device.synchronize(rank->stream);
    }
    static void wait_for_plan(const tune::Session<Policies>& session) {
        const auto saving = session.saving();
        if (saving && saving->phase == tune::RunPhase::plan)
            std::this_thread::sleep_for(std::chrono::milliseconds{300});
    }

    simulated::Board board_;
    Options options_;
};

}  // namespace self_tuning_bed
