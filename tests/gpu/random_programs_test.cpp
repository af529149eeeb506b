// SPDX-License-Identifier: MIT
#include <tests/gpu/rig.hpp>

#include <array>
#include <deque>
#include <memory>
#include <random>
#include <variant>

namespace {

using namespace rig;

using AnyScope = std::variant<std::monostate, FrequencyScope<Slow>, FrequencyScope<Middle>,
                              FrequencyScope<Free>, FrequencyScope<Kept>>;

struct Outcome {
    measure::Report report;
    std::uint64_t entered = 0;
    TimePoint ended{};
    Joules energy{};
    ClockState left{};
};

/// A program that is drawn: streams, nesting, order of leaving, graphs, latencies, the gate, busy
/// devices, iterations.
class Program {
public:
    explicit Program(unsigned seed) : random_{seed}, device_{simulated::mi210(), options(seed)} {
        GpuOptions options = gpu_options();
        options.meter_every = 1 + pick(3);
        options.listen_every = Duration{pick(2) * 50'000};
        options.controller.lower_after = Duration{pick(3) * 300'000};
        if (pick(2) == 0) options.switch_latency = Duration{pick(3) * 500'000};
        gpu_ = std::make_unique<BoundGpu<Policies>>(
            simulated::open(device_, options).with<Policies>());
        for (unsigned i = 0; i < 1 + pick(3); ++i) streams_.push_back(device_.create_stream());
        open_.resize(streams_.size());
        if (pick(4) == 0)
            device_.faults().inject(simulated::Call::apply, simulated::Fault::busy, 3, 5);
        if (pick(4) == 0) {
            device_.faults().inject(simulated::Call::apply, simulated::Fault::refused, 20);
        }
    }

    Outcome run() {
        for (int step = 0; step < 600; ++step) act(pick(static_cast<unsigned>(streams_.size())));
        for (auto& scopes : open_) scopes.clear();
        device_.synchronize();
        device_.advance(10ms);
        Outcome outcome{gpu_->report(), entered_, device_.now(), device_.true_energy(), {}};
        try {
            gpu_->close();
        } catch (const Error&) {  // a refusal that was drawn
        }
        device_.faults().clear();
        outcome.left = device_.read_clock_state();
        return outcome;
    }

private:
    static simulated::DeviceOptions options(unsigned seed) {
        simulated::DeviceOptions drawn = device_options();
        drawn.seed = seed;
        drawn.clock_switch =
            simulated::uniform_switch(Duration{(seed % 4) * 200'000}, Duration{(seed % 4) * 20'000},
                                      Duration{(seed % 3) * 30'000});
        return drawn;
    }

    unsigned pick(unsigned below) { return static_cast<unsigned>(random_() % below); }

    void act(unsigned track) {
        simulated::Stream* stream = streams_[track];
        auto& scopes = open_[track];
        switch (pick(10)) {
            case 0:
            case 1:
            case 2: enter(scopes, stream); break;
            case 3:
            case 4:
                if (!scopes.empty())
                    scopes.erase(scopes.begin() + pick(static_cast<unsigned>(scopes.size())));
                break;
            case 5: replay(stream); break;
            case 6:
                if (pick(8) == 0) gpu_->next_iteration();
                break;
            case 7:
                if (pick(8) == 0) device_.synchronize();
                if (pick(8) == 0) gpu_->rearm();
                break;
            default: device_.launch(stream, work(0.05 * (1 + pick(20))));
        }
    }

    void enter(std::deque<std::unique_ptr<AnyScope>>& scopes, simulated::Stream* stream) {
        auto& scope = *scopes.emplace_back(std::make_unique<AnyScope>());
        ++entered_;
        switch (pick(4)) {
            case 0: scope.emplace<FrequencyScope<Slow>>(*gpu_, stream); break;
            case 1: scope.emplace<FrequencyScope<Middle>>(*gpu_, stream); break;
            case 2: scope.emplace<FrequencyScope<Free>>(*gpu_, stream); break;
            default: scope.emplace<FrequencyScope<Kept>>(*gpu_, stream); break;
        }
    }

    void replay(simulated::Stream* stream) {
        if (graphs_.size() < 2) {
            device_.begin_capture(stream);
            std::deque<std::unique_ptr<AnyScope>> scopes;
            for (unsigned i = 0; i < 1 + pick(3); ++i) {
                enter(scopes, stream);
                device_.launch(stream, work(0.1));
            }
            scopes.clear();
            graphs_.push_back(device_.end_capture(stream));
        }
        device_.launch(stream, graphs_[pick(static_cast<unsigned>(graphs_.size()))]);
    }

    std::mt19937 random_;
    simulated::Device device_;
    std::unique_ptr<BoundGpu<Policies>> gpu_;
    std::vector<simulated::Stream*> streams_;
    std::vector<simulated::Graph> graphs_;
    std::vector<std::deque<std::unique_ptr<AnyScope>>> open_;
    std::uint64_t entered_ = 0;
};

class RandomPrograms : public testing::TestWithParam<unsigned> {};

TEST_P(RandomPrograms, EndEachScopeInExactlyOneCountAndPutTheClocksBack) {
    const Outcome outcome = Program{GetParam()}.run();
    const auto& counts = outcome.report.scopes;
    EXPECT_EQ(counts.scopes, outcome.entered);
    EXPECT_EQ(sum(counts), outcome.entered)
        << "switches " << counts.switches << " stream " << counts.stream_redundant << " device "
        << counts.device_redundant << " gate " << counts.not_worth_it << " refused "
        << counts.refused << " kept " << counts.kept << " captured " << counts.captured;
    for (const std::uint64_t count : {counts.switches, counts.device_redundant, counts.refused}) {
        EXPECT_LE(count, outcome.entered) << "wrapped below zero";
    }
    EXPECT_EQ(outcome.left, ClockState{});
    const auto& totals = outcome.report.totals;
    EXPECT_NEAR(totals.together.joules.count + totals.unexplained.count, totals.counter.count,
                1e-9);
    EXPECT_NEAR(totals.counter.count + totals.outside.count, outcome.energy.count,
                0.05 * outcome.energy.count + 1);
}

TEST_P(RandomPrograms, AreTheSameEachTime) {
    const Outcome first = Program{GetParam()}.run();
    const Outcome second = Program{GetParam()}.run();
    EXPECT_EQ(first.ended, second.ended);
    EXPECT_EQ(first.energy, second.energy);
    EXPECT_EQ(first.report.scopes.switches, second.report.scopes.switches);
    EXPECT_EQ(first.report.totals.counter, second.report.totals.counter);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, testing::Range(1U, 61U));

}  // namespace
