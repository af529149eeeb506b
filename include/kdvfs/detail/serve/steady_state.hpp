// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/serve/steady_state.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace kdvfs::inline v0_3::serve {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE double relative_deviation(std::span<const double> trials) {
    if (trials.size() < 2) return 0;
    const auto count = static_cast<double>(trials.size());
    const double mean = std::accumulate(trials.begin(), trials.end(), 0.0) / count;
    double squares = 0;
    for (const double trial : trials) squares += (trial - mean) * (trial - mean);
    return std::sqrt(squares / (count - 1)) / std::abs(mean);
}

KDVFS_INLINE SteadyState::SteadyState(SteadyOptions options) : options_{options} {
    if (options.batch == 0 || options.requests < 2 * std::uint64_t{options.batch} + 2)
        throw Error{Errc::invalid_input,
                    {"watch a steady state",
                     std::to_string(options.requests) + " requests in batches of " +
                         std::to_string(options.batch),
                     "the batch is never full for long", "send many batches of requests"}};
}

KDVFS_INLINE void SteadyState::step(const EngineStep& step) {
    advance(step.end);
    first_tokens_ += step.first_tokens;
    if (is_open()) {
        tokens_ += step.decoded + step.first_tokens;
        request_time_ += step.took * step.in_batch;
        if (step.decoded > 0) gaps_.emplace_back(step.gap, step.decoded);
        marks_.push_back({step.end, tokens_});
    }
    if (!begin_ && first_tokens_ >= options_.batch) {
        begin_ = step.end;
        marks_.push_back({step.end, 0});
    }
}

KDVFS_INLINE void SteadyState::finished(Seconds time, std::uint32_t answer_tokens) {
    advance(time);
    ++finished_;
    answer_tokens_ += answer_tokens;
    if (options_.answer_limit > 0 && answer_tokens >= options_.answer_limit) ++at_limit_;
    if (is_open() && finished_ >= options_.requests - options_.batch - 1) end_ = time;
}

KDVFS_INLINE void SteadyState::energy(Seconds time, Joules reading) {
    if (!readings_.empty() && time < readings_.back().first) fail("the energy's time goes back");
    if (!readings_.empty() && reading < readings_.back().second) fail("the energy goes back");
    if (!readings_.empty() && time == readings_.back().first) return;
    readings_.emplace_back(time, reading);
}

KDVFS_INLINE SteadyReport SteadyState::report() const {
    SteadyReport report;
    if (!begin_ || !end_) {
        report.refused =
            begin_ ? "the batch was still full at the end" : "the batch was never full";
        return report;
    }
    report.begin = *begin_;
    report.end = *end_;
    fill(report);
    if (report.refused.empty()) report.refused = why_not(report);
    return report;
}

KDVFS_INLINE void SteadyState::fail(const char* why) {
    throw Error{Errc::invalid_input,
                {"watch a steady state", "", why, "report what happens in its order"}};
}

KDVFS_INLINE void SteadyState::advance(Seconds time) {
    if (time < now_) fail("time goes back");
    now_ = time;
}

KDVFS_INLINE void SteadyState::fill(SteadyReport& report) const {
    const double length = (report.end - report.begin).count();
    report.tokens = tokens_;
    report.mean_batch = length > 0 ? request_time_.count() / length : 0;
    report.mean_answer = answer_tokens_ / finished_;
    report.gap = percentiles();
    if (length > 0) report.tokens_per_second = tokens_ / length;
    const auto first = energy_at(report.begin), last = energy_at(report.end);
    if (!first || !last || tokens_ == 0 || length <= 0) {
        report.refused = "energy was not read from before the window until after it";
        return;
    }
    report.energy = Joules{*last - *first};
    report.power = Watts{report.energy.count / length};
    fill_energy_per_token(report);
}

KDVFS_INLINE void SteadyState::fill_energy_per_token(SteadyReport& report) const {
    Parts energies{}, tokens{}, ratios{};
    for (std::size_t p = 0; p < parts; ++p) {
        const auto at = [&](std::size_t part) {
            return report.begin + (report.end - report.begin) * (static_cast<double>(part) / parts);
        };
        energies[p] = *energy_at(at(p + 1)) - *energy_at(at(p));
        tokens[p] = tokens_at(at(p + 1)) - tokens_at(at(p));
        ratios[p] = tokens[p] > 0 ? energies[p] / tokens[p] : 0;
    }
    const double each = report.energy.count / report.tokens;
    double squares = 0;
    for (std::size_t p = 0; p < parts; ++p) squares += std::pow(energies[p] - each * tokens[p], 2);
    // The usual error of a ratio of sums.
    const double half = student_95 * std::sqrt(squares * parts / (parts - 1)) / report.tokens;
    report.joules_per_token = {each, each - half, each + half};
    report.joules_per_request = {each * report.mean_answer, (each - half) * report.mean_answer,
                                 (each + half) * report.mean_answer};
    report.deviation = relative_deviation(ratios);
    report.drift = drift_of(energies);
}

KDVFS_INLINE double SteadyState::drift_of(const Parts& energies) {
    const double mean = std::accumulate(energies.begin(), energies.end(), 0.0) / parts;
    double products = 0, squares = 0, rest = 0;
    const auto from_middle = [](std::size_t p) {
        return static_cast<double>(p) - 0.5 * (parts - 1);
    };
    for (std::size_t p = 0; p < parts; ++p) {
        products += from_middle(p) * (energies[p] - mean);
        squares += from_middle(p) * from_middle(p);
    }
    const double slope = products / squares;
    for (std::size_t p = 0; p < parts; ++p)
        rest += std::pow(energies[p] - mean - slope * from_middle(p), 2);
    const double error = std::sqrt(rest / (parts - 2) / squares);
    return std::abs(slope) > student_95_line * error ? slope * parts / mean : 0;
}

KDVFS_INLINE std::string SteadyState::why_not(const SteadyReport& report) const {
    const Seconds window = report.end - report.begin;
    if (window < options_.shortest_window)
        return kdvfs::io::format_text("too short: the batch was full for %.3g s, not %.3g s",
                                      window.count(), options_.shortest_window.count());
    if (report.mean_batch < options_.least_mean_batch * options_.batch)
        return kdvfs::io::format_text("the mean batch was %.4g of %.4g", report.mean_batch,
                                      static_cast<double>(options_.batch));
    const double at_limit = at_limit_ / finished_;
    if (at_limit > options_.most_at_limit)
        return kdvfs::io::format_text(
            "%.3g %% of the answers were cut off at the length limit, more than %.3g %%",
            100 * at_limit, 100 * options_.most_at_limit);
    if (!(std::abs(report.drift) <= options_.most_drift))
        return kdvfs::io::format_text(
            "unsteady: power drifts by %.3g %% within the window, more than %.3g %%: "
            "warm up longer",
            100 * report.drift, 100 * options_.most_drift);
    const double uncertainty = report.joules_per_token.high / report.joules_per_token.value - 1;
    if (!(uncertainty <= options_.most_uncertainty))
        return kdvfs::io::format_text(
            "too short: joules per token are known to %.3g %%, not %.3g %%: "
            "send more requests",
            100 * uncertainty, 100 * options_.most_uncertainty);
    return "";
}

KDVFS_INLINE std::optional<double> SteadyState::energy_at(Seconds time) const {
    const auto after = std::lower_bound(
        readings_.begin(), readings_.end(), time,
        [](const auto& reading, Seconds wanted) { return reading.first < wanted; });
    if (after == readings_.end()) return std::nullopt;
    if (after->first == time) return after->second.count;
    if (after == readings_.begin()) return std::nullopt;
    const auto before = std::prev(after);
    const double share = (time - before->first) / (after->first - before->first);
    return before->second.count + share * (after->second - before->second).count;
}

KDVFS_INLINE double SteadyState::tokens_at(Seconds time) const {
    const auto after =
        std::lower_bound(marks_.begin(), marks_.end(), time,
                         [](const Mark& mark, Seconds wanted) { return mark.time < wanted; });
    if (after == marks_.end()) return tokens_;
    if (after == marks_.begin()) return after->tokens;
    const auto before = std::prev(after);
    const double share = (time - before->time) / (after->time - before->time);
    return before->tokens + share * (after->tokens - before->tokens);
}

KDVFS_INLINE GapPercentiles SteadyState::percentiles() const {
    auto sorted = gaps_;
    std::sort(sorted.begin(), sorted.end());
    double all = 0;
    for (const auto& [gap, count] : sorted) all += count;
    const auto at = [&](double share) {
        double seen = 0;
        for (const auto& [gap, count] : sorted)
            if ((seen += count) >= share * all) return gap;
        return Seconds{0};
    };
    return {at(0.5), at(0.9), at(0.95), at(0.99)};
}

KDVFS_INLINE std::string steady_csv_header() {
    return "task,model,gpu,gpus,batch,output_len,itl_p50_ms,itl_p90_ms,itl_p95_ms,itl_p99_ms,"
           "tokens_per_s,watts,joules_per_token,joules_per_token_low,joules_per_token_high,"
           "joules_per_request\n";
}

KDVFS_INLINE std::string to_csv_row(const ServedConfiguration& served, const SteadyReport& report) {
    if (!report.refused.empty())
        throw Error{Errc::invalid_input,
                    {"write a steady state", served.model, report.refused, "measure again"}};
    std::string row = kdvfs::detail::csv_field(served.task) + ',' +
                      kdvfs::detail::csv_field(served.model) + ',' +
                      kdvfs::detail::csv_field(served.gpu) + ',' + std::to_string(served.gpus);
    const auto ms = [](Seconds time) { return time.count() * 1e3; };
    for (const double value :
         {report.mean_batch, report.mean_answer, ms(report.gap.p50), ms(report.gap.p90),
          ms(report.gap.p95), ms(report.gap.p99), report.tokens_per_second, report.power.count,
          report.joules_per_token.value, report.joules_per_token.low, report.joules_per_token.high,
          report.joules_per_request.value})
        row += ',' + kdvfs::detail::to_text(value);
    return row + '\n';
}

#endif

}  // namespace kdvfs::inline v0_3::serve
