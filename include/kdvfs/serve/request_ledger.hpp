// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step_energy.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
inline std::string to_csv_line(const RequestEnergy& request) {
    std::string id = request.id;
    if (id.find_first_of(",\"\n\r") != std::string::npos) {
        std::string quoted = "\"";
        for (const char c : id) quoted += c == '"' ? std::string{"\"\""} : std::string{c};
        id = quoted + '"';
    }
    return id + ',' + io::to_text(request.energy.count) + ',' + io::to_text(request.low().count) +
           ',' + io::to_text(request.high().count) + ',' + std::to_string(request.steps) + ',' +
           std::to_string(request.prompt_tokens) + ',' + std::to_string(request.answer_tokens);
}

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

    /// @param report called for each closed request, by `settle` or `close`
    explicit RequestLedger(const StepEnergyModel& model, Report report = {})
        : model_{model}, report_{std::move(report)} {}

    /// A request begins.
    /// @returns its number in `RequestWork`: that of a reported request is used again
    std::uint32_t open(std::string id) {
        std::uint32_t number = static_cast<std::uint32_t>(accounts_.size());
        if (free_.empty()) {
            accounts_.emplace_back();
        } else {
            number = free_.back();
            free_.pop_back();
        }
        accounts_[number] = {};
        accounts_[number].state = State::open;
        accounts_[number].request.id = std::move(id);
        return number;
    }

    /// A step has worked on these open requests.
    /// @throws Error (invalid_input) for a number that is no open request's, with nothing counted
    void step(std::span<const RequestWork> works) {
        for (const RequestWork& work : works)
            if (work.request >= accounts_.size() || accounts_[work.request].state != State::open)
                reject("request " + std::to_string(work.request), "it is not open",
                       "give numbers that open() returned");
        const SharedTerms shared{model_, works};
        for (const RequestWork& work : works) {
            Account& account = accounts_[work.request];
            if (account.steps == 0) waiting_.push_back(work.request);
            const double value = shared.of(work) + model_.own(work);
            account.value += value;
            value_ += value;
            ++account.steps;
            account.request.prompt_tokens += work.prompt_tokens;
            account.request.answer_tokens += work.answer_tokens;
        }
    }

    /// The steps since the last call took this much, without idle time: summed over all boards.
    /// Without steps, or where the model says they need nothing, it is unexplained.
    /// @param deviation its standard deviation; errors of different calls are independent
    /// @throws Error (invalid_input) for energies that are negative or no numbers
    void settle(Joules energy, Joules deviation = {}) {
        check(energy);
        check(deviation);
        const bool is_shared = value_ > 0;
        if (!is_shared) unexplained_ += energy;
        for (const std::uint32_t number : waiting_) {
            Account& account = accounts_[number];
            if (is_shared) {
                const double share = account.value / value_;
                account.request.energy += energy * share;
                account.variance += deviation.count * share * deviation.count * share;
            }
            account.request.steps += account.steps;
            account.value = 0;
            account.steps = 0;
            if (account.state == State::closing) finish(number);
        }
        if (is_shared) requests_ += energy;
        waiting_.clear();
        value_ = 0;
    }

    /// Energy between steps.
    void idle(Joules energy) {
        check(energy);
        idle_ += energy;
    }
    /// Measured energy of which it is not known what ran.
    void unexplained(Joules energy) {
        check(energy);
        unexplained_ += energy;
    }

    /// A request has ended, or was given up: what it used is reported when all of it is settled.
    /// @throws Error (invalid_input) for a number that is no open request's
    void close(std::uint32_t number) {
        if (number >= accounts_.size() || accounts_[number].state != State::open)
            reject("request " + std::to_string(number), "it is not open", "close each one once");
        accounts_[number].state = State::closing;
        if (accounts_[number].steps == 0) finish(number);
    }

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
                                    const std::string& remedy) {
        throw Error{Errc::invalid_input, {"share energy among requests", object, why, remedy}};
    }
    static void check(Joules energy) {
        if (energy.count >= 0 && std::isfinite(energy.count)) return;
        reject("an energy of " + std::to_string(energy.count) + " J", "it is negative or no number",
               "leave out stretches that were not measured");
    }

    void finish(std::uint32_t number) {
        Account& account = accounts_[number];
        account.state = State::free;
        account.request.deviation = {std::sqrt(account.variance)};
        const RequestEnergy done = std::move(account.request);
        free_.push_back(number);
        if (report_) report_(done);
    }

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

}  // namespace kdvfs::inline v0_3::serve
