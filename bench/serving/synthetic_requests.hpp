// SPDX-License-Identifier: MIT
#pragma once

#include <bench/serving/requests.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace kdvfs::inline v0_3::serve {
namespace detail {

/// The quantile function of a count, drawn as a line between these shares.
inline constexpr std::array<double, 27> quantile_shares{
    0,  .01, .02, .03, .05, .08, .1, .15, .2,  .25, .3,  .35,  .4, .45,
    .5, .6,  .7,  .75, .8,  .85, .9, .92, .95, .98, .99, .999, 1};
using Quantiles = std::array<double, quantile_shares.size()>;

inline std::uint32_t draw(const Quantiles& quantiles, double share) {
    const auto upper = std::upper_bound(quantile_shares.begin(), quantile_shares.end() - 1, share);
    const auto index = static_cast<std::size_t>(upper - quantile_shares.begin());
    const double above = (share - quantile_shares[index - 1]) /
                         (quantile_shares[index] - quantile_shares[index - 1]);
    return static_cast<std::uint32_t>(
        std::lround(quantiles[index - 1] * (1 - above) + quantiles[index] * above));
}

// Statistics of the conversations of the Azure LLM inference trace 2023 (Azure Public Dataset,
// CC-BY 4.0; Patel et al., Splitwise, ISCA 2024): requests a second in each five minutes, quantiles
// of the prompts, and of the answers to prompts below 256 tokens, below 1024, and longer.
inline constexpr std::array<double, 12> requests_per_second{4.82, 4.74, 5.19, 5.20, 6.28, 7.46,
                                                            7.43, 6.13, 5.67, 4.75, 4.32, 3.82};
inline constexpr Quantiles prompt_quantiles{2,    29,   91,   161,  181,  201,  207,  372,  387,
                                            396,  403,  414,  703,  984,  1020, 1071, 1130, 1189,
                                            1315, 1877, 2735, 4073, 4083, 4098, 4142, 6212, 14050};
inline constexpr std::array<Quantiles, 3> answer_quantiles{
    Quantiles{11,  12,  12,  12,  14,  16,  52,  70,  83,  95,  107, 118,  130, 140,
              153, 163, 179, 183, 194, 211, 217, 217, 217, 244, 274, 1000, 1000},
    Quantiles{7,  18,  18,  40,  52,  60,  64,  74,  80,  84,  88,  90,  93, 96,
              99, 107, 125, 143, 375, 395, 407, 414, 428, 475, 550, 649, 921},
    Quantiles{15,  29,  34,  36,  41,  46,  49,  58,  71,  83,  98,  119, 146, 190,
              375, 394, 401, 410, 415, 426, 440, 451, 506, 592, 636, 958, 1000}};

}  // namespace detail

/// Synthetic requests with the statistics of an hour of Azure's conversations (rate by five
/// minutes, prompts, answers given the prompt); not the trace itself. Repeats after an hour.
/// The same seed gives the same requests.
inline std::vector<Request> synthetic_conversations(Seconds duration, std::uint64_t seed) {
    std::mt19937_64 random{seed};
    // Own arithmetic: what the distributions of <random> draw differs between libraries.
    const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    std::vector<Request> requests;
    double time = 0;
    while (true) {
        const auto part = static_cast<std::size_t>(time / 300) % detail::requests_per_second.size();
        time += -std::log1p(-uniform()) / detail::requests_per_second[part];
        if (time >= duration.count()) return requests;
        const std::uint32_t prompt = detail::draw(detail::prompt_quantiles, uniform());
        const std::size_t kind = prompt < 256 ? 0 : prompt < 1024 ? 1 : 2;
        requests.push_back(
            {Seconds{time}, prompt, detail::draw(detail::answer_quantiles[kind], uniform())});
    }
}

/// Synthetic requests of the shape of code completion: long prompts (median 1469 tokens), short
/// answers (median 13), in bursts of 20 s at six times the rate of the minute between them. Medians
/// of the code requests of the Azure LLM inference trace 2023 (Patel et al., Splitwise, ISCA 2024);
/// the spreads are assumed. The same seed gives the same requests.
inline std::vector<Request> synthetic_code(Seconds duration, double per_second,
                                           std::uint64_t seed) {
    std::mt19937_64 random{seed};
    const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
    const auto exponential = [&] { return -std::log(uniform()); };
    const auto spread = [&](double median, double sigma, double least, double most) {
        const double normal =
            std::sqrt(2 * exponential()) * std::cos(6.283185307179586 * uniform());
        return static_cast<std::uint32_t>(
            std::lround(std::clamp(median * std::exp(sigma * normal), least, most)));
    };
    std::vector<Request> requests;
    double time = 0;
    double until = 0;
    for (bool burst = true;;) {
        if (time >= until) {
            burst = !burst;
            until = time + exponential() * (burst ? 20 : 60);
        }
        time += exponential() / (per_second * (burst ? 3 : 0.5));
        if (time >= duration.count()) return requests;
        const std::uint32_t prompt = spread(1469, 0.9, 3, 7400);
        requests.push_back({Seconds{time}, prompt, spread(13, 1, 2, 400)});
    }
}

}  // namespace kdvfs::inline v0_3::serve
