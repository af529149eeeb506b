// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/serve/step_energy.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// What one request has used.
struct RequestEnergy {
    std::string id;
    Joules energy{};
    Joules deviation{};  ///< standard deviation of that, from those of the measured energies
    std::uint64_t steps = 0;
    std::uint64_t prompt_tokens = 0;  ///< computed
    std::uint64_t answer_tokens = 0;

    /// The ends of its 95 % interval.
    [[nodiscard]] Joules low() const { return energy - deviation * 1.96; }
    [[nodiscard]] Joules high() const { return energy + deviation * 1.96; }
};

/// The header of `to_csv_line`.
constexpr std::string_view request_energy_columns =
    "id,energy_j,energy_low_j,energy_high_j,steps,prompt_tokens,answer_tokens";

/// A line of a CSV file, without its end. Ids are quoted where they have to be.
KDVFS_INLINE std::string to_csv_line(const RequestEnergy& request);

/// Shares the measured energy of an engine's steps among its requests: each has its Shapley value
/// in the `StepEnergyModel`, scaled so that all of a measured stretch sum to what was measured.
///
///     const auto request = ledger.open("chat-17");
///     ledger.step(works);                        // for each step
///     ledger.settle(energy, deviation);          // for each measured stretch: a step, or several
///     ledger.idle(joules);                       // between steps: never spread
///     ledger.close(request);                     // reported once its last stretch is settled
///
/// Requests + idle + unexplained is what was measured, to rounding. Costs some nanoseconds for each
/// request of a step, and allocates nothing there once its lists have grown. Not thread-safe.
class RequestLedger {
public:
    using Report = std::function<void(const RequestEnergy&)>;

    /// @param report called for each closed request, by `settle` or `close`; it may use the ledger
    explicit RequestLedger(const StepEnergyModel& model, Report report = {});

    /// A request begins.
    /// @returns its number in `RequestWork`: that of a reported request is used again
    std::uint32_t open(std::string id);

    /// A step has worked on these open requests.
    /// @throws Error (invalid_input) for a number that is no open request's, with nothing counted
    void step(std::span<const RequestWork> works);

    /// The steps since the last call took this much, without idle time: summed over all boards.
    /// Without steps, or where the model says they need nothing, it is unexplained.
    /// @param deviation its standard deviation; errors of different calls are independent
    /// @throws Error (invalid_input) for energies that are negative or no numbers
    void settle(Joules energy, Joules deviation = {});

    /// Energy between steps.
    void idle(Joules energy);
    /// Measured energy of which it is not known what ran.
    void unexplained(Joules energy);

    /// A request has ended, or was given up: what it used is reported when all of it is settled.
    /// @throws Error (invalid_input) for a number that is no open request's
    void close(std::uint32_t number);

    /// All that was settled on requests, closed or not.
    [[nodiscard]] Joules requests() const { return requests_; }
    [[nodiscard]] Joules idle() const { return idle_; }
    [[nodiscard]] Joules unexplained() const { return unexplained_; }
    /// What was measured.
    [[nodiscard]] Joules total() const { return requests_ + idle_ + unexplained_; }

private:
    enum class State { free, open, closing };
    struct Account {
        double value = 0;  ///< of steps that are not settled, joules
        double variance = 0;
        std::uint64_t steps = 0;  ///< that are not settled
        State state = State::free;
        RequestEnergy request{};
    };

    [[noreturn]] static void reject(const std::string& object, const std::string& why,
                                    const std::string& remedy);
    static void check(Joules energy);

    void finish(std::uint32_t number);

    StepEnergyModel model_;
    Report report_;
    std::vector<Account> accounts_;
    std::vector<std::uint32_t> free_;
    std::vector<std::uint32_t> waiting_;  ///< with steps that are not settled
    double value_ = 0;                    ///< of all steps that are not settled, joules
    Joules requests_{};
    Joules idle_{};
    Joules unexplained_{};
};

/// Histograms of reported requests, for Prometheus. Not thread-safe.
class RequestHistograms {
public:
    void add(const RequestEnergy& request);

    /// Prometheus' text format: `kdvfs_request_energy_joules` of requests,
    /// `kdvfs_request_answer_token_energy_joules` of requests with an answer, and
    /// `kdvfs_serving_energy_joules_total` of the ledger, by `part`: requests, idle, unexplained.
    /// @param labels of all lines, such as `model="qwen"`
    [[nodiscard]] std::string to_prometheus(const RequestLedger& ledger,
                                            const std::string& labels = {}) const;

private:
    /// Upper ends of buckets: 1, 2, 5, 10, ..., from `first` joules, six decades.
    struct Histogram {
        static constexpr std::size_t buckets = 19;

        double first;
        std::array<std::uint64_t, buckets + 1> counts{};
        double sum = 0;

        [[nodiscard]] double end(std::size_t bucket) const;
        void add(double joules);
    };

    Histogram requests_{0.1};
    Histogram tokens_{0.001};
};

}  // namespace kdvfs::inline v0_3::serve

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/serve/request_ledger.hpp>
#endif
