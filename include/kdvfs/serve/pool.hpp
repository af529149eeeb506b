// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/serve/pool_search.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// Requests of one kind: how many come, how fast they must be served, and what was measured for
/// them. A class may spill over into another that asks for at least as much of an instance.
struct ServiceClass {
    std::string name{};
    double load = 0;  ///< requests a second
    Seconds first_token{0};
    Seconds gap{0};
    std::vector<InstancePoint> profile{};
    std::optional<std::size_t> overflow_pool{};  ///< index of the next larger class
};

/// The instances of one pool.
struct PoolPlan {
    std::vector<InstanceGroup> groups{};  ///< by ascending parallelism
    std::uint32_t gpus = 0;
    Watts power{0};
};

/// A pool of a cluster: which class it is made for, and all classes it serves.
struct ClusterPool {
    std::size_t owner = 0;
    std::vector<std::size_t> serves{};
    PoolPlan plan{};
};
/// The pools of all GPUs.
struct ClusterPlan {
    std::vector<ClusterPool> pools{};  ///< those that have a load, by owner
    std::uint32_t gpus = 0;            ///< that have instances
    Watts power{0};                    ///< of the instances and of the idle GPUs
    std::string refused{};             ///< why there is no plan; empty where there is one
};

/// Pools of least power for classes that share `gpus` GPUs: a class has its pool, or spills over
/// into that of the next larger class, with all that spilled into it; such a pool is planned by the
/// larger class's profile under the strictest targets of those it serves. Exact: every way of
/// spilling, every division of the GPUs. Of equal power, the way that spills less.
/// @throws Error (invalid_input) where numbers make no sense, spilling goes in a circle, or there
///     are more than 16 classes
KDVFS_INLINE ClusterPlan plan_cluster(std::span<const ServiceClass> classes, std::uint32_t gpus,
                                      Watts idle_gpu = {0});

/// Names and successors of the nine classes of DynamoLLM: short, medium and long prompts (cuts at
/// 256 and 1024 tokens) and answers (100 and 350). A class spills into the one with longer answers,
/// that with the longest into the one with longer prompts.
KDVFS_INLINE std::vector<ServiceClass> nine_classes();

/// Which of the nine classes a request belongs to.
constexpr std::size_t class_of(std::uint32_t prompt_tokens, std::uint32_t answer_tokens) {
    const std::size_t prompt = prompt_tokens < 256 ? 0 : prompt_tokens < 1024 ? 1 : 2;
    const std::size_t answer = answer_tokens < 100 ? 0 : answer_tokens < 350 ? 1 : 2;
    return 3 * prompt + answer;
}

}  // namespace kdvfs::inline v0_3::serve

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/serve/pool.hpp>
#endif
