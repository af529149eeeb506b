// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// What one step of an engine does for one request.
struct RequestWork {
    std::uint32_t request = 0;         ///< the `RequestLedger`'s number for it
    std::uint32_t answer_tokens = 0;   ///< generated: 1 in a decode step, more with speculation
    std::uint32_t context_tokens = 0;  ///< keys and values that are read for these, cached included
    std::uint32_t prompt_tokens = 0;   ///< computed: those found in a cache are not
    std::uint32_t prompt_context = 0;  ///< mean number of tokens that these attend to

    /// Whether a chunk of the request's prompt is computed.
    [[nodiscard]] bool has_chunk() const { return prompt_tokens > 0; }
};

/// The energy of a step by what it does: the game in which its requests are the players.
/// Of a set S of requests that run together it is
///     v(S) = a + p [a chunk is in S] + sum over S (b answer tokens + c context tokens
///            + d prompt tokens + e prompt tokens x their context),
/// and v of no request is 0. Energies of a step are not additive, as weights are read once for all:
/// a and p. A request's Shapley value (Shapley, 1953) is its mean contribution over all orders in
/// which requests may join. For this game it is closed: a over the number of requests, p over those
/// with a chunk, and the request's own terms.
struct StepEnergyModel {
    Joules step{};            ///< a
    Joules chunks{};          ///< p
    Joules answer_token{};    ///< b
    Joules context_token{};   ///< c
    Joules prompt_token{};    ///< d
    Joules prompt_context{};  ///< e

    /// A request's own terms.
    [[nodiscard]] double own(const RequestWork& work) const {
        const double prompt = work.prompt_tokens;
        return answer_token.count * work.answer_tokens + context_token.count * work.context_tokens +
               prompt * (prompt_token.count + prompt_context.count * work.prompt_context);
    }
    /// The energy of a step of these requests.
    [[nodiscard]] Joules energy(std::span<const RequestWork> works) const {
        double sum = works.empty() ? 0 : step.count;
        bool has_chunk = false;
        for (const RequestWork& work : works) {
            sum += own(work);
            has_chunk = has_chunk || work.has_chunk();
        }
        return {sum + (has_chunk ? chunks.count : 0)};
    }
};

/// A request's part of what a step costs whichever requests it has.
struct SharedTerms {
    double each = 0;        ///< of every request, joules
    double with_chunk = 0;  ///< in addition, of those with a chunk

    SharedTerms(const StepEnergyModel& model, std::span<const RequestWork> works) {
        std::size_t with = 0;
        for (const RequestWork& work : works) with += work.has_chunk() ? 1 : 0;
        if (!works.empty()) each = model.step.count / static_cast<double>(works.size());
        if (with > 0) with_chunk = model.chunks.count / static_cast<double>(with);
    }
    [[nodiscard]] double of(const RequestWork& work) const {
        return each + (work.has_chunk() ? with_chunk : 0);
    }
};

/// The Shapley value of each request of a step.
inline std::vector<Joules> shapley_values(const StepEnergyModel& model,
                                          std::span<const RequestWork> works) {
    const SharedTerms shared{model, works};
    std::vector<Joules> values;
    for (const RequestWork& work : works) values.push_back({shared.of(work) + model.own(work)});
    return values;
}

/// Fits the model to steps whose energy was measured: least squares of relative errors, with
/// coefficients that are zero or more. Not thread-safe.
class StepEnergyFit {
public:
    /// @param energy of the step, summed over all boards that share it
    /// @throws Error (invalid_input) for a step without requests, or an energy that is not positive
    void add(std::span<const RequestWork> works, Joules energy) {
        if (works.empty() || !(energy.count > 0) || !std::isfinite(energy.count))
            throw Error{Errc::invalid_input,
                        {"fit the energy of steps", "a step of " + std::to_string(works.size()),
                         "it has no requests, or its energy is not a positive number",
                         "leave out steps that were not measured"}};
        std::array<double, terms> row{1};
        for (const RequestWork& work : works) {
            const double prompt = work.prompt_tokens;
            if (work.has_chunk()) row[1] = 1;
            row[2] += work.answer_tokens;
            row[3] += work.context_tokens;
            row[4] += prompt;
            row[5] += prompt * work.prompt_context;
        }
        for (double& term : row) term /= energy.count;
        sums_.add_outer(row, 1);
        for (std::size_t t = 0; t < terms; ++t) right_[t] += row[t];
        ++steps_;
    }

    [[nodiscard]] std::size_t steps() const { return steps_; }

    /// The best of all sets of terms whose coefficients come out as zero or more: exact, as there
    /// are 64 sets only.
    /// @throws Error (invalid_input) before the first step
    [[nodiscard]] StepEnergyModel model() const {
        if (steps_ == 0)
            throw Error{Errc::invalid_input,
                        {"fit the energy of steps", "none", "there are no steps", "add some"}};
        std::array<double, terms> best{};
        double most = -1;
        for (unsigned set = 1; set < 1U << terms; ++set) {
            std::array<double, terms> found{};
            const double explained = solve(set, found);
            if (explained <= most) continue;
            most = explained;
            best = found;
        }
        return {{best[0]}, {best[1]}, {best[2]}, {best[3]}, {best[4]}, {best[5]}};
    }

private:
    static constexpr std::size_t terms = 6;

    /// @param set of terms, a bit each; the others are zero
    /// @returns by how much the sum of squares falls; -1 where a coefficient is negative, or a term
    ///          never occurred
    double solve(unsigned set, std::array<double, terms>& found) const {
        std::vector<std::size_t> used;
        for (std::size_t t = 0; t < terms; ++t)
            if ((set >> t & 1U) != 0) used.push_back(t);
        std::vector<double> scale;
        for (const std::size_t t : used) {
            if (!(sums_(t, t) > 0)) return -1;
            scale.push_back(1 / std::sqrt(sums_(t, t)));
        }
        measure::SymmetricMatrix matrix{used.size()};
        std::vector<double> right;
        for (std::size_t i = 0; i < used.size(); ++i) {
            for (std::size_t j = 0; j <= i; ++j)
                matrix(i, j) = sums_(used[i], used[j]) * scale[i] * scale[j];
            matrix(i, i) += 1e-12;  // terms that always occur together share
            right.push_back(right_[used[i]] * scale[i]);
        }
        const std::vector<double> values = measure::Cholesky{matrix}.solve(right);
        double explained = 0;
        for (std::size_t i = 0; i < used.size(); ++i) {
            if (!(values[i] >= 0)) return -1;
            found[used[i]] = values[i] * scale[i];
            explained += values[i] * right[i];
        }
        return explained;
    }

    measure::SymmetricMatrix sums_{terms};
    std::array<double, terms> right_{};
    std::size_t steps_ = 0;
};

}  // namespace kdvfs::inline v0_3::serve
