// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/units.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Energy per token in a steady state, by the method of the ML.ENERGY Benchmark (NeurIPS'25): all
/// requests are sent at once, and only the time in which the batch is full counts.
namespace kdvfs::inline v0_3::serve {

/// A value and the interval that holds the truth in 95 of 100 windows.
struct Interval {
    double value = 0;
    double low = 0;
    double high = 0;
};

/// Standard deviation over mean; 0 for fewer than two values. The check of zeus.profile with a
/// relative threshold: trials of one thing are thermally steady where this is below about 0.01.
KDVFS_INLINE double relative_deviation(std::span<const double> trials);

/// What a steady state must be like to count.
struct SteadyOptions {
    std::uint32_t batch = 1;         ///< requests that run together
    std::uint32_t requests = 0;      ///< that are sent
    std::uint32_t answer_limit = 0;  ///< at which answers are cut off; 0 for none
    Seconds shortest_window{30};
    double least_mean_batch = 0.95;  ///< of `batch`
    double most_at_limit = 0.05;     ///< of the answers
    double most_drift = 0.01;        ///< of power from the window's begin to its end, relative
    double most_uncertainty = 0.02;  ///< half the interval of joules per token, relative
};

/// What a step of an engine did.
struct EngineStep {
    Seconds end{0};
    Seconds took{0};
    std::uint32_t in_batch = 0;      ///< requests that were being served
    std::uint32_t decoded = 0;       ///< of them got one more token
    Seconds gap{0};                  ///< since their last one
    std::uint32_t first_tokens = 0;  ///< requests that got their first
};

/// The percentiles of the time between two tokens of a request.
struct GapPercentiles {
    Seconds p50{0};
    Seconds p90{0};
    Seconds p95{0};
    Seconds p99{0};
};

/// `refused` says why the figures do not count, and is empty where they do. Refused figures are
/// there as far as they are known.
struct SteadyReport {
    std::string refused{};
    Seconds begin{0};
    Seconds end{0};
    double tokens = 0;
    Joules energy{0};
    Interval joules_per_token{};
    Interval joules_per_request{};
    double tokens_per_second = 0;
    Watts power{0};
    double mean_batch = 0;
    double mean_answer = 0;  ///< tokens
    GapPercentiles gap{};
    double deviation = 0;  ///< of joules per token between ten parts of the window, relative
    double drift = 0;      ///< of power from begin to end, relative; 0 where it may be chance
};

/// Watches an engine and finds the window in which the batch is full: it opens when as many
/// requests as a batch has have sent their first token, and closes when the requests left, one
/// aside, are no more than a batch. Feed it in order of time. Not thread-safe.
class SteadyState {
public:
    /// @throws Error (invalid_input) where so few requests leave no window
    explicit SteadyState(SteadyOptions options);

    /// A step that ended.
    void step(const EngineStep& step);

    /// A request that ended.
    void finished(Seconds time, std::uint32_t answer_tokens);

    /// A reading of an energy counter; what it shows between two readings is taken for a line.
    void energy(Seconds time, Joules reading);

    [[nodiscard]] bool is_open() const { return begin_ && !end_; }
    [[nodiscard]] bool is_closed() const { return end_.has_value(); }

    /// Feed energy until the window's end is past before asking.
    [[nodiscard]] SteadyReport report() const;

private:
    static constexpr std::size_t parts = 10;
    static constexpr double student_95 = 2.262157;  ///< of parts - 1 degrees of freedom

    struct Mark {
        Seconds time;
        double tokens;
    };
    static constexpr double student_95_line = 2.306004;  ///< of parts - 2
    using Parts = std::array<double, parts>;

    [[noreturn]] static void fail(const char* why);

    void advance(Seconds time);

    void fill(SteadyReport& report) const;

    void fill_energy_per_token(SteadyReport& report) const;

    /// The rise of a line through the parts, over their mean; 0 where it is not beyond the
    /// scatter. A board that warms up draws more for the same work.
    static double drift_of(const Parts& energies);

    [[nodiscard]] std::string why_not(const SteadyReport& report) const;

    [[nodiscard]] std::optional<double> energy_at(Seconds time) const;

    /// Within a step tokens are taken to come evenly.
    [[nodiscard]] double tokens_at(Seconds time) const;

    /// A percentile is the least gap that so many of the tokens did not exceed.
    [[nodiscard]] GapPercentiles percentiles() const;

    SteadyOptions options_;
    Seconds now_{0};
    std::uint64_t first_tokens_ = 0;
    double finished_ = 0;
    double answer_tokens_ = 0;
    double at_limit_ = 0;
    std::optional<Seconds> begin_;
    std::optional<Seconds> end_;
    double tokens_ = 0;  ///< in the window
    Seconds request_time_{0};
    std::vector<Mark> marks_;
    std::vector<std::pair<Seconds, std::uint32_t>> gaps_;
    std::vector<std::pair<Seconds, Joules>> readings_;
};

/// What was served, for a row that `recommend` reads beside those of the ML.ENERGY Benchmark.
struct ServedConfiguration {
    std::string task{};
    std::string model{};
    std::string gpu{};
    std::uint32_t gpus = 1;
};

/// The header of such rows, in the words of the ML.ENERGY Benchmark.
KDVFS_INLINE std::string steady_csv_header();

/// A report as such a row. @throws Error (invalid_input) for refused figures, with the reason
KDVFS_INLINE std::string to_csv_row(const ServedConfiguration& served, const SteadyReport& report);

}  // namespace kdvfs::inline v0_3::serve

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/serve/steady_state.hpp>
#endif
