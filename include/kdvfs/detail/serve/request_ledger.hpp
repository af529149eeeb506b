// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/serve/request_ledger.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
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
    auto number = static_cast<std::uint32_t>(accounts_.size());
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
    (is_shared ? requests_ : unexplained_) += energy;
    std::vector<std::uint32_t> closing;
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
        if (account.state == State::closing) closing.push_back(number);
    }
    waiting_.clear();
    value_ = 0;
    // Last: reports may open requests and count steps.
    for (const std::uint32_t number : closing) finish(number);
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

KDVFS_INLINE double RequestHistograms::Histogram::end(std::size_t bucket) const {
    constexpr std::array<double, 3> steps{1, 2, 5};
    return first * steps[bucket % 3] * std::pow(10.0, static_cast<int>(bucket / 3));
}

KDVFS_INLINE void RequestHistograms::Histogram::add(double joules) {
    std::size_t bucket = 0;
    while (bucket < buckets && joules > end(bucket)) ++bucket;
    ++counts[bucket];
    sum += joules;
}

KDVFS_INLINE void RequestHistograms::add(const RequestEnergy& request) {
    requests_.add(request.energy.count);
    if (request.answer_tokens > 0)
        tokens_.add(request.energy.count / static_cast<double>(request.answer_tokens));
}

KDVFS_INLINE std::string RequestHistograms::to_prometheus(const RequestLedger& ledger,
                                                          const std::string& labels) const {
    std::string text;
    const auto line = [&](const std::string& name, const std::string& own, double value) {
        const std::string all = labels + (labels.empty() || own.empty() ? "" : ",") + own;
        text += name + (all.empty() ? "" : '{' + all + '}') + ' ' + io::to_text(value) + '\n';
    };
    const auto histogram = [&](const std::string& name, const char* help, const Histogram& of) {
        text += "# HELP " + name + ' ' + help + "\n# TYPE " + name + " histogram\n";
        std::uint64_t count = 0;
        for (std::size_t b = 0; b <= Histogram::buckets; ++b) {
            count += of.counts[b];
            const std::string end = b == Histogram::buckets ? "+Inf" : io::to_text(of.end(b));
            line(name + "_bucket", "le=\"" + end + '"', static_cast<double>(count));
        }
        line(name + "_sum", "", of.sum);
        line(name + "_count", "", static_cast<double>(count));
    };
    histogram("kdvfs_request_energy_joules", "Energy of a request", requests_);
    histogram("kdvfs_request_answer_token_energy_joules",
              "Energy of a request by token of its answer", tokens_);
    const std::string total = "kdvfs_serving_energy_joules_total";
    text += "# HELP " + total + " Measured energy\n# TYPE " + total + " counter\n";
    line(total, "part=\"requests\"", ledger.requests().count);
    line(total, "part=\"idle\"", ledger.idle().count);
    line(total, "part=\"unexplained\"", ledger.unexplained().count);
    return text;
}

#endif

}  // namespace kdvfs::inline v0_3::serve
