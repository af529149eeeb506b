// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/train/session.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

/// Pipelines on simulated GPUs, one a rank: what ranks say to one another carries the sender's
/// virtual time, and a receiver's stream waits until then.
namespace training {

using namespace kdvfs;
using namespace std::chrono_literals;

using Policies = PolicyRegistry<Default<KeepClock>>;

inline train::SessionOptions in_mode(tune::SessionMode mode) {
    train::SessionOptions options;
    options.mode = std::move(mode);
    return options;
}

/// What the operations of a stage compute: layers of a GPT, unevenly cut, so that the first stage
/// (with the embedding) and the last one (with the head) have more to do.
inline simulated::KernelModel work_of(const simulated::Board& board, std::uint32_t stage,
                                      std::uint32_t stages, train::Pass pass, double slower = 1) {
    const double layers = stage + 1 == stages ? 7.5 : stage == 0 ? 6.5 : 6;
    const double times = pass == train::Pass::backward ? 2 : 1;
    simulated::KernelModel model = simulated::roofline(
        board, {.matrix_flops = 1e12 * layers * times, .memory_bytes = 4e9 * layers * times},
        {.matrix = 0.62});
    // A board that is too hot, or shared, is slower at every clock.
    model.core_time *= slower;
    model.memory_time *= slower;
    model.core_energy = model.core_energy * slower;
    return model;
}

/// The core clocks of the curves: every 100 MHz of those that the board can be asked for.
inline std::vector<Megahertz> curve_clocks(const simulated::Board& board) {
    const auto& listed = board.clocks.core.listed;
    return simulated::clock_range(listed.front(), listed.back(), 100);
}

/// The pipeline with the curves that the board's own model gives.
/// @param waits_by_clock whether it says what waits draw by clock
inline train::Pipeline known_pipeline(const simulated::Board& board,
                                      const train::PipelineShape& shape,
                                      bool waits_by_clock = false) {
    train::CurveIndex curve_of;
    std::vector<train::Curve> curves;
    train::WaitingPower waiting;
    if (waits_by_clock) waiting.above = simulated::idle_power(board, {});
    for (const Megahertz core : curve_clocks(board))
        if (waits_by_clock)
            waiting.points.push_back({core, simulated::idle_power(board, {core, auto_clock})});
    const auto lowest = waiting.lowest();
    const Watts blocking = lowest ? lowest->power : simulated::idle_power(board, {});
    for (std::uint32_t s = 0; s < shape.stages; ++s)
        for (const train::Pass pass : {train::Pass::forward, train::Pass::backward}) {
            std::vector<train::CurvePoint> points;
            for (const Megahertz core : curve_clocks(board)) {
                const simulated::OperatingPoint at = simulated::operate(
                    board, work_of(board, s, shape.stages, pass), {core, auto_clock});
                points.push_back({{core, auto_clock}, at.time, at.power * at.time});
            }
            curve_of[{s, pass, 0}] = static_cast<std::uint32_t>(curves.size());
            curves.emplace_back("stage " + std::to_string(s), points, blocking);
        }
    train::Pipeline pipeline = train::make_pipeline(shape, curve_of, curves, blocking);
    pipeline.waiting = std::move(waiting);
    return pipeline;
}

/// Messages between ranks that are threads. `Channel` is anything that has these three.
class ThreadMail {
public:
    explicit ThreadMail(std::uint32_t ranks) : ranks_{ranks} {}

    struct Channel {
        ThreadMail* mail;
        std::uint32_t rank;

        void send(std::uint32_t to, std::uint32_t tag, TimePoint time) {
            const std::lock_guard lock{mail->mutex_};
            mail->box_[{rank, to, tag}].push_back(time);
            mail->came_.notify_all();
        }
        TimePoint receive(std::uint32_t from, std::uint32_t tag) {
            std::unique_lock lock{mail->mutex_};
            auto& box = mail->box_[{from, rank, tag}];
            if (!mail->came_.wait_for(lock, 60s, [&] { return !box.empty(); }))
                throw Error{Errc::timed_out,
                            {"receive a message", "rank " + std::to_string(from),
                             "it has sent none for 60 s", "see why it has stopped"}};
            const TimePoint time = box.front();
            box.erase(box.begin());
            return time;
        }
        /// The latest of what all ranks say.
        TimePoint latest(TimePoint mine) {
            constexpr std::uint32_t barrier = ~0U;
            for (std::uint32_t r = 0; r < mail->ranks_; ++r) send(r, barrier, mine);
            for (std::uint32_t r = 0; r < mail->ranks_; ++r)
                mine = std::max(mine, receive(r, barrier));
            return mine;
        }
    };
    [[nodiscard]] Channel channel(std::uint32_t rank) { return {this, rank}; }

private:
    friend struct Channel;
    std::uint32_t ranks_;
    std::mutex mutex_;
    std::condition_variable came_;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::vector<TimePoint>> box_;
};

inline simulated::DeviceOptions with_latency(Duration latency) {
    simulated::DeviceOptions options;
    options.clock_switch = simulated::uniform_switch(latency, latency / 10);
    return options;
}

/// One rank's GPU, and what it runs.
class Stage {
public:
    Stage(const train::Pipeline& pipeline, std::uint32_t stage, std::uint32_t first_rank,
          std::uint32_t rank_step, Duration latency,
          const simulated::Board& board = simulated::mi250x())
        : pipeline_{&pipeline},
          stage_{stage},
          first_rank_{first_rank},
          rank_step_{rank_step},
          device_{board, with_latency(latency)},
          stream_{device_.create_stream()},
          gpu_{simulated::open(device_).with<Policies>()} {
        for (const train::Dependency& d : pipeline.dependencies) {
            const train::Operation& first = pipeline.operations[d.first];
            const train::Operation& then = pipeline.operations[d.then];
            if (first.stage == then.stage) continue;
            if (then.stage == stage_)
                awaited_.emplace(d.then, std::pair{rank_of(first.stage), d.first});
            if (first.stage == stage_) resolved_.emplace(d.first, rank_of(then.stage));
        }
    }

    [[nodiscard]] const BoundGpu<Policies>& gpu() const { return gpu_; }
    [[nodiscard]] simulated::Device& device() { return device_; }

    /// Every kernel takes so much longer from now on.
    void slow_down(double factor) { slower_ = factor; }

    /// Runs one iteration, at whose end all ranks wait for one another.
    /// @returns how long it took
    template <class Session, class Channel>
    Seconds run(Session& session, Channel& channel) {
        const TimePoint begin = device_.now();
        session.next_iteration();
        for (std::uint32_t i = pipeline_->stage_begin[stage_];
             i < pipeline_->stage_begin[stage_ + 1]; ++i) {
            const train::Operation& operation = pipeline_->operations[i];
            const auto [from, to] = awaited_.equal_range(i);
            for (auto it = from; it != to; ++it)
                wait_until(channel.receive(it->second.first, it->second.second));
            if (operation.pass == train::Pass::forward)
                compute<train::Forward>(session, operation);
            else
                compute<train::Backward>(session, operation);
            device_.synchronize(stream_);  // for the message's virtual time, not for the clocks
            const auto [first, last] = resolved_.equal_range(i);
            for (auto it = first; it != last; ++it) channel.send(it->second, i, device_.now());
        }
        const TimePoint end = channel.latest(device_.now());
        device_.advance(end - device_.now());
        return end - begin;
    }

private:
    template <class Op, class Session>
    void compute(Session& session, const train::Operation& operation) {
        const train::OpScope<Op> scope{session, stream_, operation.chunk, operation.microbatch};
        device_.launch(
            stream_, work_of(device_.board(), stage_, pipeline_->stages, operation.pass, slower_));
    }

    void wait_until(TimePoint arrives) {
        const std::uint32_t number = ++arrivals_;
        device_.schedule(arrives, [this, number] { arrived_ = std::max(arrived_, number); });
        device_.put_wait(stream_, &arrived_, number);
    }

    [[nodiscard]] std::uint32_t rank_of(std::uint32_t stage) const {
        return first_rank_ + stage * rank_step_;
    }

    const train::Pipeline* pipeline_;
    std::uint32_t stage_;
    std::uint32_t first_rank_;
    std::uint32_t rank_step_;
    simulated::Device device_;
    simulated::Stream* stream_;
    BoundGpu<Policies> gpu_;
    double slower_ = 1;
    std::uint32_t arrivals_ = 0;
    std::uint32_t arrived_ = 0;
    std::multimap<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> awaited_;
    std::multimap<std::uint32_t, std::uint32_t> resolved_;
};

}  // namespace training
