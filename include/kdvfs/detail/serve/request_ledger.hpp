// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/serve/request_ledger.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace kdvfs::inline v0_3::serve {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::string to_csv_line(const RequestEnergy& request) {
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

KDVFS_INLINE RequestLedger::RequestLedger(const StepEnergyModel& model, Report report)
    : model_{model}, report_{std::move(report)} {}

KDVFS_INLINE std::uint32_t RequestLedger::open(std::string id) {
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

KDVFS_INLINE void RequestLedger::step(std::span<const RequestWork> works) {
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

KDVFS_INLINE void RequestLedger::settle(Joules energy, Joules deviation) {
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

KDVFS_INLINE void RequestLedger::idle(Joules energy) {
    check(energy);
    idle_ += energy;
}

KDVFS_INLINE void RequestLedger::unexplained(Joules energy) {
    check(energy);
    unexplained_ += energy;
}

KDVFS_INLINE void RequestLedger::close(std::uint32_t number) {
    if (number >= accounts_.size() || accounts_[number].state != State::open)
        reject("request " + std::to_string(number), "it is not open", "close each one once");
    accounts_[number].state = State::closing;
    if (accounts_[number].steps == 0) finish(number);
}

KDVFS_INLINE void RequestLedger::reject(const std::string& object, const std::string& why,
                                        const std::string& remedy) {
    throw Error{Errc::invalid_input, {"share energy among requests", object, why, remedy}};
}

KDVFS_INLINE void RequestLedger::check(Joules energy) {
    if (energy.count >= 0 && std::isfinite(energy.count)) return;
    reject("an energy of " + std::to_string(energy.count) + " J", "it is negative or no number",
           "leave out stretches that were not measured");
}

KDVFS_INLINE void RequestLedger::finish(std::uint32_t number) {
    Account& account = accounts_[number];
    account.state = State::free;
    account.request.deviation = {std::sqrt(account.variance)};
    const RequestEnergy done = std::move(account.request);
    free_.push_back(number);
    if (report_) report_(done);
}

#endif

}  // namespace kdvfs::inline v0_3::serve
