// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/train/curve.hpp>
#include <kdvfs/detail/train/pipeline.hpp>
#include <kdvfs/detail/train/stage_scopes.hpp>
#include <kdvfs/detail/tune/sweep_block.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// What one rank has measured of its stage.
struct RankCurves {
    struct Point {
        Pass pass = Pass::forward;
        std::uint32_t chunk = 0;
        Megahertz core{};
        Seconds time{};
        Joules energy{};
        std::uint32_t samples = 1;
    };

    std::uint32_t stage = 0;
    std::vector<Point> points{};
    Seconds blocked{};        ///< how long the GPU waited in measured blocks
    Joules blocked_energy{};  ///< and what it used meanwhile

    /// Adds a block: its operations, and the time between them.
    void add(const tune::MeasuredBlock& block,
             const std::map<KernelId, StageScopes::Kernel>& kernels) {
        blocked += block.idle_time;
        blocked_energy += block.idle;
        for (const tune::BlockKernel& found : block.kernels) {
            const auto kernel = kernels.find(found.kernel);
            if (kernel == kernels.end()) continue;
            add({kernel->second.pass, kernel->second.chunk, block.block.clock.core,
                 found.launch.time, found.launch.energy, 1});
        }
    }
    /// Adds an operation that has run as found.
    void add_found(const StageScopes::Kernel& kernel, Seconds time) {
        add({kernel.pass, kernel.chunk, auto_clock, time, {}, 1});
    }

private:
    /// Blocks at one clock count alike.
    void add(const Point& point) {
        for (Point& known : points) {
            if (std::tie(known.pass, known.chunk, known.core) !=
                std::tie(point.pass, point.chunk, point.core))
                continue;
            const double weight = 1.0 / ++known.samples;
            known.time += (point.time - known.time) * weight;
            known.energy += (point.energy - known.energy) * weight;
            return;
        }
        points.push_back(point);
    }
};

inline std::string to_text(const RankCurves& curves) {
    nlohmann::json points = nlohmann::json::array();
    for (const RankCurves::Point& point : curves.points)
        points.push_back({static_cast<int>(point.pass), point.chunk, point.core.count,
                          point.time.count(), point.energy.count});
    return nlohmann::json{{"stage", curves.stage},
                          {"blocked_s", curves.blocked.count()},
                          {"blocked_j", curves.blocked_energy.count},
                          {"points", std::move(points)}}
        .dump();
}

/// @throws Error (invalid_input) for a text that `to_text` did not write
inline RankCurves parse_rank_curves(std::string_view text) {
    RankCurves curves;
    try {
        const nlohmann::json json = nlohmann::json::parse(text.begin(), text.end());
        curves.stage = json.at("stage").get<std::uint32_t>();
        curves.blocked = Seconds{json.at("blocked_s").get<double>()};
        curves.blocked_energy = {json.at("blocked_j").get<double>()};
        for (const nlohmann::json& row : json.at("points"))
            curves.points.push_back({static_cast<Pass>(row.at(0).get<int>()),
                                     row.at(1).get<std::uint32_t>(),
                                     {row.at(2).get<std::uint32_t>()},
                                     Seconds{row.at(3).get<double>()},
                                     {row.at(4).get<double>()},
                                     1});
    } catch (const nlohmann::json::exception& error) {
        detail::reject_pipeline("the curves of a rank", error.what(),
                                "let all ranks run the same version of kdvfs");
    }
    return curves;
}

/// The curves of all ranks as those of the pipeline's stages. Ranks of one stage (data- and
/// tensor-parallel) wait for one another: their times are the longest, their energies the sum.
/// Only clocks that all of a stage's ranks have measured count.
/// @param order the pipeline that the program runs; its curves do not matter
/// @throws Error (invalid_input) for operations with fewer than two such clocks, and as `Curve`
inline Pipeline measured_pipeline(Pipeline order, std::span<const RankCurves> ranks) {
    struct Sum {
        std::size_t ranks = 0;
        Seconds time{};
        Joules energy{};
    };
    std::map<std::tuple<std::uint32_t, Pass, std::uint32_t>, std::map<Megahertz, Sum>> sums;
    std::vector<std::size_t> of_stage(order.stages, 0);
    Seconds blocked{};
    Joules blocked_energy{};
    for (const RankCurves& rank : ranks) {
        if (rank.stage >= order.stages)
            detail::reject_pipeline("a rank of stage " + std::to_string(rank.stage),
                                    "the pipeline has " + std::to_string(order.stages) + " stages",
                                    "start as many ranks as the pipeline has stages");
        ++of_stage[rank.stage];
        blocked += rank.blocked;
        blocked_energy += rank.blocked_energy;
        for (const RankCurves::Point& point : rank.points) {
            Sum& sum = sums[{rank.stage, point.pass, point.chunk}][point.core];
            ++sum.ranks;
            sum.time = std::max(sum.time, point.time);
            sum.energy += point.energy;
        }
    }
    // Between operations a GPU draws the same whether a pipeline has much or little such time.
    const Watts each = blocked > Seconds{0} ? blocked_energy / blocked : Watts{};
    order.blocking_power = Watts{std::max(each.count, 0.0) * static_cast<double>(ranks.size()) /
                                 static_cast<double>(order.stages)};
    order.curves.clear();
    std::map<std::tuple<std::uint32_t, Pass, std::uint32_t>, std::uint32_t> index;
    for (Operation& operation : order.operations) {
        const std::tuple key{operation.stage, operation.pass, operation.chunk};
        const auto [at, is_new] =
            index.try_emplace(key, static_cast<std::uint32_t>(order.curves.size()));
        operation.curve = at->second;
        if (!is_new) continue;
        std::vector<CurvePoint> points;
        for (const auto& [core, sum] : sums[key])
            if (sum.ranks == of_stage[operation.stage])
                points.push_back({{core, auto_clock}, sum.time, sum.energy});
        order.curves.emplace_back(
            "stage " + std::to_string(operation.stage) + ", " +
                std::string{to_string(operation.pass)} +
                (order.chunks > 1 ? ", chunk " + std::to_string(operation.chunk) : std::string{}),
            std::move(points), order.blocking_power);
    }
    return order;
}

/// How far what operations take as found is from what a case says of its highest clock: the largest
/// share of its time. Nothing where it is another program's: over 5 %, below it more where the
/// board has higher clocks.
/// @param found `RankCurves::add_found` of all ranks
inline std::optional<double> distance_to_case(const Pipeline& measured,
                                              std::span<const RankCurves> found,
                                              Megahertz highest) {
    std::map<std::tuple<std::uint32_t, Pass, std::uint32_t>, Seconds> longest;
    for (const RankCurves& rank : found)
        for (const RankCurves::Point& point : rank.points) {
            Seconds& time = longest[{rank.stage, point.pass, point.chunk}];
            time = std::max(time, point.time);
        }
    constexpr double tolerance = 0.05;  // as that of stored profiles of kernels
    double distance = 0;
    for (const Operation& operation : measured.operations) {
        const auto& points = measured.curves[operation.curve].points();
        const CurvePoint& top = *std::max_element(
            points.begin(), points.end(),
            [](const CurvePoint& a, const CurvePoint& b) { return a.clock.core < b.clock.core; });
        const double faster = std::max(1.0, 1.0 * highest.count / top.clock.core.count);
        const auto time = longest.find({operation.stage, operation.pass, operation.chunk});
        if (time == longest.end()) return std::nullopt;
        const double ratio = time->second / top.time;
        if (ratio > 1 + tolerance || ratio * faster < 1 - tolerance) return std::nullopt;
        distance = std::max(distance, std::abs(ratio - 1));
    }
    return distance;
}

}  // namespace kdvfs::inline v0_3::train
