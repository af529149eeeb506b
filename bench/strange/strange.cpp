// SPDX-License-Identifier: MIT
//
// A training program on the simulated MI250X whose iterations are not alike, for `kdvfs tune`:
//
//     strange WAY [STEPS]         runs it
//     strange WAY STEPS bound PCT prints the energy that no plan can exceed saving, in percent, for
//                                 runs slower by at most PCT: each launch at any clock, no latency
//     strange WAY STEPS oracle PCT prints what an oracle saves, in percent, who knows the places of
//     an
//                                 iteration and what launches there cost, but not what a run draws
//
// WAY: moe mutate accumulate lengths two_streams idle startup branch, and after2 and after4:
// launches take 2 or 4 % longer where the one before ran at another clock. Environment: SEED draws
// the sizes of its kernels and what varies, LATENCY_MS is that of a clock switch.
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/session.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <kdvfs/tune/validation.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace simulated = kdvfs::simulated;
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::AutoClock>>>;

struct Gemm : kdvfs::Kernel<"gemm"> {};
struct Attention : kdvfs::Kernel<"attention"> {};
struct Softmax : kdvfs::Kernel<"softmax"> {};
struct Update : kdvfs::Kernel<"update"> {};
struct Expert : kdvfs::Kernel<"expert"> {};
struct Copy : kdvfs::Kernel<"copy"> {};
enum Name { gemm, attention, softmax, update, expert, copy };

double environment(const char* name, double otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atof(text);
}

simulated::KernelModel scaled(simulated::KernelModel model, double size) {
    model.core_time *= size;
    model.memory_time *= size;
    model.core_energy = model.core_energy * size;
    model.memory_energy = model.memory_energy * size;
    return model;
}

/// What the program does: launches of a part of a kernel, and rests.
class Program {
public:
    using Launch = std::function<void(Name, const simulated::KernelModel&)>;
    using Rest = std::function<void(std::chrono::milliseconds)>;

    Program(std::string way, const simulated::Board& board, std::uint64_t seed)
        : way_{std::move(way)}, random_{seed} {
        const auto size = [&] { return std::exp(uniform(-0.7, 0.7)); };
        kernels_ = {roofline(board, {.matrix_flops = 1.2e14 * size()}),
                    roofline(board, {.matrix_flops = 1e13 * size(), .memory_bytes = 5e9}),
                    roofline(board, {.memory_bytes = 5e11 * size()}),
                    roofline(board, {.vector_flops = 1e11, .memory_bytes = 3e11 * size()}),
                    roofline(board, {.matrix_flops = 1.2e14 * size()}),
                    roofline(board, {.memory_bytes = 2e11 * size()})};
        rare_ = static_cast<int>(uniform(5, 25));
        edits_ = uniform(0.01, 0.1);
        idle_ = std::chrono::milliseconds{static_cast<int>(uniform(100, 1200))};
    }

    void begin(const Rest& rest) const {
        if (way_ == "startup") rest(std::chrono::milliseconds{20000});
    }
    void step(int number, const Launch& launch, const Rest& rest) {
        const auto part = [&](Name name, double size) {
            launch(name, scaled(kernels_[name], size));
        };
        if (way_ == "moe") {
            for (int layer = 0; layer < 6; ++layer) {
                part(attention, 1);
                part(softmax, 0.3);
                const int experts = 1 + static_cast<int>(random_() % 4);
                for (int i = 0; i < experts; ++i)
                    part(expert, 0.15 * static_cast<double>(1 + random_() % 8) / experts);
            }
            part(update, 1);
        } else if (way_ == "mutate") {
            const auto edited = [&](Name name, double size) {
                const double drawn = uniform(0, 1);
                if (drawn < edits_ / 3) return;
                part(name, size);
                if (drawn < 2 * edits_ / 3)
                    part(name, size);
                else if (drawn < edits_)
                    part(copy, 0.05);
            };
            for (int layer = 0; layer < 12; ++layer) {
                edited(gemm, 0.05);
                edited(attention, 0.5);
                edited(softmax, 0.05);
            }
            for (int layer = 0; layer < 12; ++layer) {
                edited(softmax, 0.1);
                edited(gemm, 0.1);
            }
            part(update, 2);
        } else if (way_ == "accumulate") {
            part(gemm, 1);
            part(softmax, 0.2);
            if (number % 8 == 7) part(update, 8);
        } else if (way_ == "lengths") {
            const auto length = static_cast<double>(1 + random_() % 16);
            for (int layer = 0; layer < 4; ++layer) {
                part(gemm, 0.04 * length);
                part(softmax, 0.0025 * length * length);
            }
            part(update, 1);
        } else {
            part(gemm, 1);
            part(softmax, 1);
            part(update, 1);
            if (way_ == "branch" && number % rare_ == rare_ - 1)
                for (int i = 0; i < 3; ++i) part(attention, 10);
            if (way_ == "branch" && number % 7 == 6) part(copy, 1);
            if (way_ == "two_streams") part(copy, 1);
            if (way_ == "idle") rest(idle_);
        }
    }
    /// By how much a launch takes longer after one at another clock.
    [[nodiscard]] double longer_after_switch() const {
        return way_ == "after2" ? 1.02 : way_ == "after4" ? 1.04 : 1;
    }
    [[nodiscard]] bool is_beside(Name name) const { return way_ == "two_streams" && name == copy; }

private:
    double uniform(double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random_);
    }

    std::string way_;
    std::mt19937_64 random_;
    std::array<simulated::KernelModel, 6> kernels_{};
    int rare_ = 20;
    double edits_ = 0;
    std::chrono::milliseconds idle_{};
};

void run(Program program, const simulated::Board& board, int steps) {
    simulated::DeviceOptions options;
    options.seed = static_cast<std::uint64_t>(environment("SEED", 1));
    options.clock_switch = simulated::uniform_switch(
        std::chrono::microseconds{std::lround(1e3 * environment("LATENCY_MS", 10))});
    simulated::Device device{board, options};
    const kdvfs::Gpu gpu = simulated::open(device);
    const auto began = device.now();
    const auto before = device.true_energy();
    {
        const kdvfs::tune::Session<Policies> session{gpu};
        simulated::Stream* stream = device.create_stream();
        simulated::Stream* beside = device.create_stream();
        const auto rest = [&](std::chrono::milliseconds time) {
            device.synchronize(stream);
            device.advance(time);
        };
        std::optional<kdvfs::Megahertz> last;
        const auto after_switch = [&](const simulated::KernelModel& model) {
            if (program.longer_after_switch() == 1) return model;
            device.synchronize(stream);
            const kdvfs::Megahertz now = device.effective_clocks().core;
            const bool switched = last.value_or(now) != now;
            last = now;
            return switched ? scaled(model, program.longer_after_switch()) : model;
        };
        const auto launch = [&](Name name, const simulated::KernelModel& model) {
            simulated::Stream* on = program.is_beside(name) ? beside : stream;
            const auto work = [&] { device.launch(on, after_switch(model)); };
            switch (name) {
                case gemm: kdvfs::launch<Gemm>(session, on, work); break;
                case attention: kdvfs::launch<Attention>(session, on, work); break;
                case softmax: kdvfs::launch<Softmax>(session, on, work); break;
                case update: kdvfs::launch<Update>(session, on, work); break;
                case expert: kdvfs::launch<Expert>(session, on, work); break;
                case copy: kdvfs::launch<Copy>(session, on, work); break;
            }
        };
        program.begin(rest);
        for (int step = 0; step < steps; ++step) {
            session.next_iteration();
            program.step(step, launch, rest);
            device.synchronize(stream);
            device.synchronize(beside);
        }
    }
    const kdvfs::tune::Cost cost{device.now() - began, device.true_energy() - before};
    gpu.close();
    kdvfs::tune::report_cost(cost);
    std::cout << cost.time.count() << " s " << cost.energy.count << " J, simulated\n";
}

/// The dual of the choice of a clock for each launch under one limit on time: no plan saves more.
/// While the board rests it draws the least that any clock lets it.
double energy_bound(Program program, const simulated::Board& board, int steps, double slowdown) {
    std::vector<kdvfs::ClockPoint> clocks = kdvfs::tune::clock_grid(board.clocks);
    clocks.insert(clocks.begin(), kdvfs::ClockPoint{});
    std::vector<std::vector<simulated::OperatingPoint>> launches;
    double rested = 0;
    const auto launch = [&](Name name, const simulated::KernelModel& model) {
        if (program.is_beside(name)) return;  // runs beside the others: taken to cost no time
        auto& points = launches.emplace_back();
        for (const kdvfs::ClockPoint clock : clocks)
            points.push_back(simulated::operate(board, model, clock));
    };
    const auto rest = [&](std::chrono::milliseconds time) {
        rested += kdvfs::Seconds{time}.count();
    };
    program.begin(rest);
    for (int step = 0; step < steps; ++step) program.step(step, launch, rest);
    double time = rested;
    double energy = rested * idle_power(board, {}).count;
    double least_idle = idle_power(board, {}).count;
    for (const kdvfs::ClockPoint clock : clocks)
        least_idle = std::min(least_idle, idle_power(board, clock).count);
    for (const auto& points : launches) {
        time += points.front().time.count();
        energy += (points.front().power * points.front().time).count;
    }
    const double limit = time * (1 + slowdown);
    const auto dual = [&](double price) {
        double sum = rested * (least_idle + price) - price * limit;
        for (const auto& points : launches) {
            double least = INFINITY;
            for (const auto& point : points)
                least =
                    std::min(least, (point.power * point.time).count + price * point.time.count());
            sum += least;
        }
        return sum;
    };
    double low = 0;
    double high = 1e5;
    for (int i = 0; i < 100; ++i) {
        const double a = low + (high - low) / 3;
        const double b = high - (high - low) / 3;
        (dual(a) < dual(b) ? low : high) = dual(a) < dual(b) ? a : b;
    }
    return 100 * (dual(0.5 * (low + high)) / energy - 1);
}

/// A program as a list of launches, each with its place in the iteration (the how-manieth of its
/// name) and its cost at every clock; rests have no cost.
struct Recorded {
    struct Step {
        std::size_t place = 0;
        std::vector<simulated::OperatingPoint> at{};
        double rest = 0;  ///< seconds
    };
    std::vector<kdvfs::ClockPoint> clocks;
    std::vector<double> idle;  ///< watts by clock
    std::vector<Step> steps;
    std::size_t places = 0;

    Recorded(Program program, const simulated::Board& board, int iterations)
        : clocks{kdvfs::tune::clock_grid(board.clocks)} {
        clocks.insert(clocks.begin(), kdvfs::ClockPoint{});
        for (const kdvfs::ClockPoint clock : clocks) idle.push_back(idle_power(board, clock).count);
        std::map<std::pair<Name, int>, std::size_t> known;
        std::map<Name, int> met;
        const auto launch = [&](Name name, const simulated::KernelModel& model) {
            if (program.is_beside(name)) return;
            Step& step = steps.emplace_back();
            step.place = known.try_emplace({name, met[name]++}, known.size()).first->second;
            for (const kdvfs::ClockPoint clock : clocks)
                step.at.push_back(simulated::operate(board, model, clock));
        };
        const auto rest = [&](std::chrono::milliseconds time) {
            steps.push_back({0, {}, kdvfs::Seconds{time}.count()});
        };
        program.begin(rest);
        for (int i = 0; i < iterations; ++i) {
            met.clear();
            program.step(i, launch, rest);
        }
        places = known.size();
    }

    /// The clock of each place that is best at a price of time, if switching took none.
    [[nodiscard]] std::vector<std::size_t> without_latency(double price) const {
        std::vector<std::vector<double>> costs(places, std::vector<double>(clocks.size()));
        for (const Step& step : steps)
            for (std::size_t clock = 0; clock < step.at.size(); ++clock)
                costs[step.place][clock] +=
                    (step.at[clock].power.count + price) * step.at[clock].time.count();
        std::vector<std::size_t> best;
        for (const auto& each : costs)
            best.push_back(static_cast<std::size_t>(std::min_element(each.begin(), each.end()) -
                                                    each.begin()));
        return best;
    }

    struct Sum {
        double time = 0;
        double energy = 0;
    };
    /// What it costs where each place asks for a clock, which comes a latency later.
    /// @param longer what a launch takes longer after one at another clock
    [[nodiscard]] Sum play(const std::vector<std::size_t>& policy, double latency,
                           double longer) const {
        Sum sum;
        std::size_t held = policy.front();
        std::size_t asked = held;
        std::size_t before = held;
        double comes = 0;
        const auto pass = [&](auto cost, double work) {  // seconds and watts at the clock held
            while (work > 0) {
                const auto [time, power] = cost(held);
                double share = work;
                if (asked != held) share = std::min(work, std::max(0.0, comes - sum.time) / time);
                sum.time += share * time;
                sum.energy += share * time * power;
                work -= share;
                if (asked != held && (work > 0 || sum.time >= comes)) held = asked;
            }
        };
        for (const Step& step : steps) {
            if (step.at.empty()) {
                pass([&](std::size_t clock) { return std::pair{step.rest, idle[clock]}; }, 1);
                continue;
            }
            if (policy[step.place] != asked) {
                asked = policy[step.place];
                comes = sum.time + latency;
            }
            const double work = held == std::exchange(before, held) ? 1 : longer;
            pass(
                [&](std::size_t clock) {
                    return std::pair{step.at[clock].time.count(), step.at[clock].power.count};
                },
                work);
        }
        return sum;
    }
};

/// A clock for each place of an iteration, made on twenty iterations by descending from each of a
/// few starts at each of a few prices of time, and judged on the whole run.
double oracle_saving(const Program& program, const simulated::Board& board, int steps,
                     double slowdown, double latency) {
    const Recorded few{program, board, 20};
    const Recorded run{program, board, steps};
    const double longer = program.longer_after_switch();
    const Recorded::Sum found = run.play(std::vector<std::size_t>(run.places, 0), latency, longer);
    double best = found.energy;
    const auto judge = [&](std::vector<std::size_t> policy) {
        policy.resize(run.places, policy.front());
        const Recorded::Sum sum = run.play(policy, latency, longer);
        if (sum.time <= found.time * (1 + slowdown)) best = std::min(best, sum.energy);
    };
    const double watts = found.energy / found.time;
    std::vector<std::size_t> last(few.places, 0);
    for (double price = 0.2 * watts; price < 8 * watts; price *= 1.1) {
        const auto score = [&](const std::vector<std::size_t>& policy) {
            const Recorded::Sum sum = few.play(policy, latency, longer);
            return sum.energy + price * sum.time;
        };
        std::vector<std::size_t> one(few.places, 0);
        for (std::size_t clock = 0; clock < few.clocks.size(); ++clock) {
            const std::vector<std::size_t> other(few.places, clock);
            judge(other);
            if (score(other) < score(one)) one = other;
        }
        for (std::vector<std::size_t> policy : {one, few.without_latency(price), last}) {
            double least = score(policy);
            for (bool better = true; std::exchange(better, false);)
                for (std::size_t from = 0; from < few.places; ++from)
                    for (std::size_t length = 1; from + length <= few.places; length *= 2)
                        for (std::size_t clock = 0; clock < few.clocks.size(); ++clock) {
                            std::vector<std::size_t> other = policy;
                            std::fill_n(other.begin() + static_cast<std::ptrdiff_t>(from), length,
                                        clock);
                            const double tried = score(other);
                            if (tried >= least - 1e-6 * std::abs(least)) continue;
                            least = tried;
                            policy = std::move(other);
                            better = true;
                        }
            judge(policy);
            if (score(policy) < score(last)) last = policy;
        }
    }
    return 100 * (best / found.energy - 1);
}

}  // namespace

int main(int argc, char** argv) try {
    const std::string way = argc > 1 ? argv[1] : "branch";
    const int steps = argc > 2 ? std::stoi(argv[2]) : 150;
    const simulated::Board board = simulated::mi250x();
    const Program program{way, board, static_cast<std::uint64_t>(environment("SEED", 1))};
    if (argc > 4 && std::string_view{argv[3]} == "bound")
        std::cout << energy_bound(program, board, steps, std::stod(argv[4]) / 100) << '\n';
    else if (argc > 4 && std::string_view{argv[3]} == "oracle")
        std::cout << oracle_saving(program, board, steps, std::stod(argv[4]) / 100,
                                   environment("LATENCY_MS", 10) / 1e3)
                  << '\n';
    else
        run(program, board, steps);
    return 0;
} catch (const std::exception& error) {
    std::cerr << "strange: " << error.what() << '\n';
    return 1;
}
