// SPDX-License-Identifier: MIT
//
// The C interface of power limits and batch sizes (kdvfs.h).
#include "c_handles.hpp"

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/train/batch_size_file.hpp>
#include <kdvfs/detail/train/owned_power_limit.hpp>
#include <kdvfs/train/batch_size.hpp>
#include <kdvfs/train/power_limit.hpp>

#include <utility>

namespace {

using namespace kdvfs::c_interface;
namespace train = kdvfs::train;

std::shared_ptr<train::BoardPowerLimit> limit_of(kdvfs_gpu& gpu) {
    if (gpu.simulated)
        return std::make_shared<train::GuardedPowerLimit<kdvfs::simulated::Device>>(*gpu.simulated);
    const kdvfs::DeviceInfo& info = gpu.gpu->info();
    if (info.architecture.starts_with("sm_")) {
        using Device = kdvfs::device::NvmlPowerLimit;
        return std::make_shared<train::OwnedBoardPowerLimit<Device>>(info.address);
    }
    namespace amd = kdvfs::device::amd;
    using Device = amd::SysfsPowerLimit;
    const auto address = kdvfs::io::parse_pci_address(info.address);
    if (!address)
        reject("find the power limit", info.address, "it is no PCI address", "open the GPU by one");
    return std::make_shared<train::OwnedBoardPowerLimit<Device>>(amd::find_card(*address));
}

/// Puts the limit back when the GPU is closed before it has ended.
void end_with(kdvfs_gpu& gpu, const std::shared_ptr<train::BoardPowerLimit>& limit) {
    const std::lock_guard lock{gpu.adding_limits};
    std::erase_if(gpu.limits, [](const auto& each) { return each.expired(); });
    gpu.limits.push_back(limit);
}

train::LimitChoice choice_of(const kdvfs_power_limit_options& options) {
    switch (options.goal) {
        case KDVFS_LEAST_ENERGY: return train::LimitChoice::energy();
        case KDVFS_LEAST_TIME: return train::LimitChoice::time();
        case KDVFS_LEAST_COST: return train::LimitChoice::cost(options.parameter);
        case KDVFS_BOUNDED_SLOWDOWN: return train::LimitChoice::bounded_slowdown(options.parameter);
        default: break;
    }
    reject("search for a power limit", "goal " + std::to_string(options.goal),
           "there is no such goal",
           "use KDVFS_LEAST_ENERGY, KDVFS_LEAST_TIME, KDVFS_LEAST_COST or KDVFS_BOUNDED_SLOWDOWN");
}

train::RunEnd end_of(int end) {
    if (end < KDVFS_RUN_REACHED || end > KDVFS_RUN_LOST)
        reject("take a run's outcome", std::to_string(end), "there is no such end",
               "use KDVFS_RUN_REACHED, _STOPPED, _FAILED or _LOST");
    return static_cast<train::RunEnd>(end);
}

}  // namespace

struct kdvfs_power_limit {
    kdvfs_gpu* gpu;
    std::shared_ptr<train::BoardPowerLimit> board;
    train::PowerLimit search;
    kdvfs_power_limit_options options;

    void set(std::optional<kdvfs::Watts> limit) {
        if (!limit) return;
        const Call call{gpu};
        board->set(*limit);
    }
};

struct kdvfs_batch_sizes {
    train::BatchSizeFile file;
};

extern "C" {

void kdvfs_power_limit_options_init(kdvfs_power_limit_options* options) {
    if (options == nullptr) return;
    const train::PowerLimitOptions defaults;
    *options = {};
    options->size = sizeof(kdvfs_power_limit_options);
    options->step_w = defaults.step.count;
    options->warmup_steps = static_cast<uint32_t>(defaults.warmup_steps);
    options->measured_steps = static_cast<uint32_t>(defaults.measured_steps);
    options->goal = KDVFS_LEAST_COST;
    options->parameter = defaults.choice.parameter;
    options->ranks = static_cast<uint32_t>(defaults.ranks);
}

kdvfs_status kdvfs_power_limit_begin(kdvfs_gpu* gpu, const kdvfs_power_limit_options* options,
                                     kdvfs_power_limit** limit) {
    return guarded([&] {
        given(limit, "where the power limit goes") = nullptr;
        BeginningCall call{gpu};
        kdvfs_power_limit_options used;
        kdvfs_power_limit_options_init(&used);
        if (options != nullptr) {
            if (options->size != sizeof used)
                reject("search for a power limit", "the options",
                       "their size is not that of this version",
                       "call kdvfs_power_limit_options_init first");
            used = *options;
        }
        if (used.ranks > 1 && used.combine == nullptr)
            reject("search for a power limit", std::to_string(used.ranks) + " ranks",
                   "combine is NULL",
                   "give a function that sums energies and takes the longest time of all ranks");
        auto board = limit_of(*gpu);
        train::PowerLimit search{board->range(),
                                 {.step = {used.step_w},
                                  .warmup_steps = used.warmup_steps,
                                  .measured_steps = used.measured_steps,
                                  .choice = choice_of(used),
                                  .ranks = used.ranks}};
        end_with(*gpu, board);
        *limit = new kdvfs_power_limit{gpu, std::move(board), std::move(search), used};
        call.has_begun();
    });
}

kdvfs_status kdvfs_power_limit_step(kdvfs_power_limit* limit, double joules, double seconds) {
    return guarded([&] {
        kdvfs_power_limit& its = given(limit, "the power limit");
        const auto all_ranks = [&](train::RankWindow own) {
            if (its.options.combine != nullptr) {
                double energy = own.energy.count;
                double time = own.time.count();
                its.options.combine(its.options.data, &energy, &time);
                own = {{energy}, kdvfs::Seconds{time}};
            }
            return own;
        };
        its.set(its.search.begin_step({{joules}, kdvfs::Seconds{seconds}}, all_ranks));
    });
}

kdvfs_status kdvfs_power_limit_end_epoch(kdvfs_power_limit* limit) {
    return guarded([&] {
        kdvfs_power_limit& its = given(limit, "the power limit");
        its.set(its.search.end_epoch());
    });
}

int kdvfs_power_limit_done(const kdvfs_power_limit* limit) {
    return limit != nullptr && limit->search.is_done() ? 1 : 0;
}

double kdvfs_power_limit_best(const kdvfs_power_limit* limit) {
    if (limit == nullptr) return 0;
    const auto best = limit->search.best();
    return best ? best->count : 0;
}

kdvfs_status kdvfs_power_limit_epoch_cost(const kdvfs_power_limit* limit, uint64_t steps,
                                          double* cost) {
    return guarded([&] {
        const kdvfs_power_limit& its = given(limit, "the power limit");
        if (!its.search.best())
            reject("report what an epoch costs", "the power limit",
                   "no limit has been measured yet",
                   "call kdvfs_power_limit_step before more training steps");
        given(cost, "where the cost goes") = its.search.epoch_cost(steps);
    });
}

kdvfs_status kdvfs_power_limit_end(kdvfs_power_limit* limit) {
    if (limit == nullptr) return KDVFS_OK;
    return guarded([&] {
        const bool is_open = limit->gpu->users.enter(Users::call);  // else it has been put back
        const struct Ended {
            kdvfs_power_limit* limit;
            std::uint64_t leaves;
            ~Ended() {
                kdvfs_gpu& gpu = *limit->gpu;
                delete limit;
                gpu.users.leave(leaves);
            }
        } ended{limit, is_open ? Users::call + Users::begun : Users::begun};
        if (is_open) limit->board->close();
    });
}

kdvfs_status kdvfs_batch_sizes_open(const char* file, const char* job, const uint32_t* sizes,
                                    size_t count, uint32_t usual, uint64_t seed,
                                    kdvfs_batch_sizes** opened) {
    return guarded([&] {
        given(opened, "where the batch sizes go") = nullptr;
        train::BatchSizeOptions options;
        const uint32_t* const first = &given(sizes, "the sizes");
        options.sizes.assign(first, first + count);
        options.usual = usual;
        options.seed = seed;
        *opened = new kdvfs_batch_sizes{
            {&given(file, "the file"), &given(job, "the job"), std::move(options)}};
    });
}

kdvfs_status kdvfs_batch_size_suggest(kdvfs_batch_sizes* sizes, kdvfs_suggested_run* run) {
    return guarded([&] {
        kdvfs_suggested_run& out = given(run, "where the run goes");
        const train::SuggestedRun found = given(sizes, "the batch sizes").file.suggest();
        out = {};
        out.id = found.id;
        out.batch_size = found.batch_size;
        out.is_profiled = found.profile ? 1 : 0;
        out.power_limit_w = found.profile && found.profile->limit ? found.profile->limit->count : 0;
        out.epoch_cost = found.profile ? found.profile->cost : 0;
        out.most_cost = found.most_cost;
    });
}

kdvfs_status kdvfs_batch_size_profiled(kdvfs_batch_sizes* sizes, uint64_t run, double power_limit_w,
                                       double epoch_cost, double* most_cost) {
    return guarded([&] {
        double& out = given(most_cost, "where the cost goes");
        train::EpochProfile profile{std::nullopt, epoch_cost};
        if (power_limit_w != 0) profile.limit = kdvfs::Watts{power_limit_w};
        out = given(sizes, "the batch sizes").file.profiled(run, profile);
    });
}

kdvfs_status kdvfs_batch_size_observe(kdvfs_batch_sizes* sizes, uint64_t run, int end,
                                      double epochs, double cost) {
    return guarded([&] {
        given(sizes, "the batch sizes").file.observe(run, {end_of(end), epochs, cost});
    });
}

kdvfs_status kdvfs_batch_size_best(kdvfs_batch_sizes* sizes, uint32_t* size) {
    return guarded([&] {
        given(size, "where the size goes") =
            given(sizes, "the batch sizes").file.read().best_known().value_or(0);
    });
}

void kdvfs_batch_sizes_close(kdvfs_batch_sizes* sizes) { delete sizes; }

}  // extern "C"
