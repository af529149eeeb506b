// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/frontier.hpp>

#include <kdvfs/detail/train/curve.hpp>
#include <kdvfs/detail/train/network.hpp>
#include <kdvfs/detail/train/parametric_flow.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/pipeline.hpp>

#include <cmath>
#include <string>

namespace kdvfs::inline v0_3::train {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE Frontier::Frontier(Pipeline pipeline, FrontierOptions options) {
    if (!(options.max_gap >= 0))
        throw Error{Errc::invalid_input,
                    {"plan a pipeline", "the frontier's largest gap",
                     std::to_string(options.max_gap), "give 0 for exact, or such as 0.001"}};
    auto model = std::make_shared<Model>(std::move(pipeline));
    std::int64_t unit = first_unit(*model, options.max_gap);
    while (!model->solve(unit, options)) unit = unit < 2000 ? 1 : unit * 3 / 5;
    model_ = std::move(model);
}

KDVFS_INLINE Joules Frontier::effective(Seconds length) const {
    const std::int64_t time = nanoseconds(length);
    const std::vector<Corner>& all = corners();
    const auto after = std::lower_bound(
        all.begin(), all.end(), time,
        [](const Corner& corner, std::int64_t t) { return corner.nanoseconds < t; });
    if (after == all.begin()) return to_joules(after->effective);
    const Corner& left = *(after - 1);
    const double part = static_cast<double>(time - left.nanoseconds) /
                        static_cast<double>(after->nanoseconds - left.nanoseconds);
    return to_joules(left.effective) +
           (to_joules(after->effective) - to_joules(left.effective)) * part;
}

KDVFS_INLINE Joules Frontier::total(Seconds length) const {
    return effective(length) + pipeline().blocking_energy(length);
}

KDVFS_INLINE Seconds Frontier::answer(Seconds straggler) const {
    return std::clamp(straggler, shortest(), frugal());
}

KDVFS_INLINE Timing Frontier::timing(Seconds length) const {
    return model_->timing(nanoseconds(length));
}

KDVFS_INLINE std::int64_t Frontier::first_unit(const Model& model, double max_gap) {
    std::int64_t steepest = 1;
    for (const Curve& curve : model.pipeline.curves)
        if (!curve.hull().saving.empty())
            steepest = std::max(steepest, curve.hull().saving.front());
    const double unit = 0.4 * static_cast<double>(steepest) * std::sqrt(max_gap);
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(unit, 1e12)));
}

KDVFS_INLINE std::int64_t Frontier::nanoseconds(Seconds length) const {
    const double time = length.count() * 1e9;
    const Corner& first = corners().front();
    if (!(time >= static_cast<double>(first.nanoseconds) - 0.5))
        throw Error{Errc::invalid_input,
                    {"plan a pipeline", "an iteration of " + std::to_string(length.count()) + " s",
                     "the shortest possible takes " + std::to_string(shortest().count()) + " s",
                     "give a longer time"}};
    if (time >= static_cast<double>(corners().back().nanoseconds))
        return corners().back().nanoseconds;
    return std::max(first.nanoseconds, static_cast<std::int64_t>(std::llround(time)));
}

#endif

}  // namespace kdvfs::inline v0_3::train
