// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/tune/rank_messages.hpp>
#include <kdvfs/detail/tune/sweep_design.hpp>
#include <kdvfs/detail/tune/sweep_file.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// The measurements of a profile as blocks, each at one clock. Those at the baseline have odd
/// numbers, as stages of a sweep have.
/// @param most_samples of a clock
inline std::vector<RankBlock> blocks_of(const Profile& profile, std::size_t most_samples) {
    std::map<std::tuple<ClockPoint, std::uint32_t, std::uint32_t>, RankBlock> blocks;
    for (ProfileRow& row : rows_of(profile)) {
        RankBlock& block = blocks[{row.clock, row.block.id, row.block.id > 0 ? 0 : row.sample}];
        block.clock = row.clock;
        block.rows.push_back(std::move(row));
    }
    std::vector<RankBlock> taken;
    std::map<ClockPoint, std::size_t> samples;
    for (auto& [key, block] : blocks) {
        if (++samples[block.clock] > most_samples) continue;
        const std::uint64_t pairs = taken.size() + 1;
        block.stage = 2 * pairs - (block.rows.front().is_baseline ? 1 : 0);
        taken.push_back(std::move(block));
    }
    return taken;
}

/// What the ranks of a job have measured in the same blocks, each at a clock of its own, as one
/// profile. Pure.
///
/// - Ranks share a kernel where it takes about as long on them at the baseline; else it is another
///   kernel for each, whatever its name.
/// - Boards differ: a kernel's cost is taken against that of the same rank at the baseline, times
///   the mean of all ranks at the baseline.
/// - A rank that is early waits in a kernel of its collective, which takes the longer the higher
///   the rank's clock is. No work does, so such kernels are found. Of their time and energy, only
///   the share of the rank that waited least counts.
class RankProfiles {
public:
    /// @param design knows the clock points
    RankProfiles(std::string gpu, SweepDesign design)
        : gpu_{std::move(gpu)}, design_{std::move(design)} {}

    /// What a rank has measured. Stages come in pairs: an odd one at the baseline, then the even
    /// one at other clocks.
    void add(std::uint32_t rank, RankBlock block) {
        if (block.rows.empty()) return;
        stages_[block.stage].insert_or_assign(rank, std::move(block));
    }

    /// What runs before have measured of a rank's program, on this board or on others: costs are
    /// taken against those at the baseline, which this rank has measured in `live`.
    void add_stored(std::uint32_t rank, std::vector<RankBlock> stored, const RankBlock& live) {
        Means before;
        for (const RankBlock& block : stored)
            for (const ProfileRow& row : block.rows)
                if (block.stage % 2 == 1) before[row.key].add(row.cost);
        std::map<KernelKey, Cost> now;
        for (const ProfileRow& row : live.rows) now[row.key] = row.cost;
        for (RankBlock& block : stored) {
            block.stage += behind_all_stages;
            block.iteration = live.iteration;
            std::erase_if(block.rows, [&](const ProfileRow& row) {
                return !before.contains(row.key) || !now.contains(row.key);
            });
            double was = 0;
            double is = 0;
            for (ProfileRow& row : block.rows) {
                const double energy = now[row.key].energy.count / before[row.key].energy;
                was += row.count * row.cost.energy.count;
                row.cost.time *= now[row.key].time.count() / before[row.key].time;
                row.cost.energy = row.cost.energy * energy;
                row.energy_sd = row.energy_sd * energy;
                is += row.count * row.cost.energy.count;
            }
            for (ProfileRow& row : block.rows) {
                row.block.energy = row.block.energy * (is / was);
                row.block.energy_sd = row.block.energy_sd * (is / was);
            }
            add(rank, std::move(block));
        }
    }

    /// All kernels of the job: those of one name that ranks do not share are numbered.
    [[nodiscard]] Profile job() const {
        return merged([](const KernelKey& key, std::uint32_t shared) -> std::optional<KernelKey> {
            if (shared == 0) return key;
            return KernelKey{std::to_string(shared) + '|' + key.name, key.variant};
        });
    }
    /// The kernels of one rank, by what all know that share them.
    [[nodiscard]] Profile of_rank(std::uint32_t rank) const {
        const Sharing sharing = this->sharing();
        return merged([&](const KernelKey& key, std::uint32_t shared) -> std::optional<KernelKey> {
            const auto own = sharing.find({key, rank});
            return own != sharing.end() && own->second == shared ? std::optional{key}
                                                                 : std::nullopt;
        });
    }
    /// Whether two ranks share all kernels.
    [[nodiscard]] bool are_equal(std::uint32_t a, std::uint32_t b) const {
        const Sharing sharing = this->sharing();
        const auto of = [&](std::uint32_t rank) {
            std::map<KernelKey, std::uint32_t> kernels;
            for (const auto& [of_rank, shared] : sharing)
                if (of_rank.second == rank) kernels.emplace(of_rank.first, shared);
            return kernels;
        };
        return of(a) == of(b);
    }

    /// The kernels in which ranks wait for each other.
    [[nodiscard]] std::vector<KernelKey> waits() const {
        std::vector<KernelKey> keys;
        for (const auto& [key, waits] : waiting_kernels())
            if (waits) keys.push_back(key);
        return keys;
    }
    /// How much longer each rank could take at the baseline until the others wait for it, as a
    /// fraction of its own time; by rank, of those that explore.
    [[nodiscard]] std::map<std::uint32_t, double> slack() const {
        const auto waits = waiting_kernels();
        std::map<std::uint32_t, double> sums;
        std::map<std::uint32_t, int> counts;
        for (const auto& [stage, blocks] : stages_) {
            if (stage % 2 == 0) continue;
            for (const auto& [rank, block] : blocks) {
                double waited = 0;
                for (const ProfileRow& row : block.rows)
                    if (waits.at(row.key))
                        waited += row.count * (row.cost.time.count() - least(blocks, row.key));
                sums[rank] += waited / (block.iteration.count() - waited);
                ++counts[rank];
            }
        }
        for (auto& [rank, sum] : sums) sum /= counts[rank];
        return sums;
    }

private:
    using Blocks = std::map<std::uint32_t, RankBlock>;  // by rank
    using Waits = std::map<KernelKey, bool>;
    struct Mean {
        double time = 0;
        double energy = 0;
        double count = 0;

        void add(const Cost& cost) {
            ++count;
            time += (cost.time.count() - time) / count;
            energy += (cost.energy.count - energy) / count;
        }
    };
    using Means = std::map<KernelKey, Mean>;
    static constexpr std::uint64_t behind_all_stages = std::uint64_t{1} << 40U;
    /// By kernel and rank, the number of the ranks that share it: 0 for the first of a name.
    using Sharing = std::map<std::pair<KernelKey, std::uint32_t>, std::uint32_t>;

    [[nodiscard]] Sharing sharing() const {
        std::map<KernelKey, std::vector<std::pair<double, std::uint32_t>>> times;
        for (const auto& [rank, means] : baselines())
            for (const auto& [key, mean] : means) times[key].emplace_back(mean.time, rank);
        const Waits waits = waiting_kernels();
        constexpr double alike = 1.05;
        Sharing sharing;
        for (auto& [key, of_ranks] : times) {
            std::sort(of_ranks.begin(), of_ranks.end());
            std::uint32_t number = 0;
            for (std::size_t i = 0; i < of_ranks.size(); ++i) {
                if (i > 0 && !waits.at(key) && of_ranks[i].first > alike * of_ranks[i - 1].first)
                    ++number;
                sharing[{key, of_ranks[i].second}] = number;
            }
        }
        return sharing;
    }

    static double least(const Blocks& blocks, const KernelKey& key) {
        double least = std::numeric_limits<double>::infinity();
        for (const auto& [rank, block] : blocks)
            for (const ProfileRow& row : block.rows)
                if (row.key == key) least = std::min(least, row.cost.time.count());
        return least;
    }

    /// Each rank's costs at the baseline, as measured.
    [[nodiscard]] std::map<std::uint32_t, Means> baselines() const {
        std::map<std::uint32_t, Means> means;
        for (const auto& [stage, blocks] : stages_)
            for (const auto& [rank, block] : blocks)
                for (const ProfileRow& row : block.rows)
                    if (stage % 2 == 1) means[rank][row.key].add(row.cost);
        return means;
    }

    /// Within a block, by how much of a percent a kernel's time grows where the clocks let work
    /// take a percent longer: from 0 to 1 for work, below 0 where a rank waits.
    [[nodiscard]] Waits waiting_kernels() const {
        struct Slope {
            double products = 0;
            double squares = 0;
        };
        std::map<KernelKey, Slope> slopes;
        const auto base = baselines();
        for (const auto& [stage, blocks] : stages_) {
            std::map<KernelKey, std::vector<std::pair<double, double>>> points;
            for (const auto& [rank, block] : blocks) {
                const double slower = std::log(design_.longest_factor(block.clock));
                for (const ProfileRow& row : block.rows) {
                    slopes.try_emplace(row.key);
                    if (stage % 2 == 1 || !base.contains(rank)) continue;
                    const auto before = base.at(rank).find(row.key);
                    if (before == base.at(rank).end()) continue;
                    points[row.key].emplace_back(
                        slower, std::log(row.cost.time.count() / before->second.time));
                }
            }
            for (const auto& [key, of_ranks] : points) {
                double x = 0;
                double y = 0;
                for (const auto& [slower, longer] : of_ranks) {
                    x += slower / static_cast<double>(of_ranks.size());
                    y += longer / static_cast<double>(of_ranks.size());
                }
                for (const auto& [slower, longer] : of_ranks) {
                    slopes[key].products += (slower - x) * (longer - y);
                    slopes[key].squares += (slower - x) * (slower - x);
                }
            }
        }
        constexpr double least_squares = 0.02;  // clocks that differ by a tenth, of a few ranks
        constexpr double surely_below = -0.1;
        Waits waits;
        for (const auto& [key, slope] : slopes)
            waits[key] =
                slope.squares > least_squares && slope.products / slope.squares < surely_below;
        return waits;
    }

    /// @param name_of a kernel that ranks of a number share: its name in the profile; nothing: it
    ///                is left out
    template <class NameOf>
    [[nodiscard]] Profile merged(NameOf name_of) const {
        Profile merged{gpu_};
        const auto own = baselines();
        const Waits waits = waiting_kernels();
        const Sharing sharing = this->sharing();
        std::map<std::pair<KernelKey, std::uint32_t>, Mean> means;  // of those that share a kernel
        for (const auto& [stage, blocks] : stages_)
            for (const auto& [rank, block] : blocks)
                for (const ProfileRow& row : block.rows)
                    if (stage % 2 == 1)
                        means[{row.key, sharing.at({row.key, rank})}].add(
                            without_waiting(row, blocks, waits));
        std::map<std::pair<KernelKey, ClockPoint>, std::uint32_t> samples;
        std::map<KernelKey, std::uint32_t> counts;
        for (const auto& [stage, blocks] : stages_) {
            for (const auto& [rank, block] : blocks) {
                if (!own.contains(rank)) continue;
                std::vector<ProfileRow> rows;
                double before = 0;  // energy of an iteration, as measured and as it is here
                double after = 0;
                for (ProfileRow row : block.rows) {
                    const auto baseline = own.at(rank).find(row.key);
                    if (baseline == own.at(rank).end()) continue;
                    const std::uint32_t shared = sharing.at({row.key, rank});
                    const auto name = name_of(row.key, shared);
                    if (!name) continue;
                    const Mean& mean = means.at({row.key, shared});
                    const double measured = row.cost.energy.count;
                    before += row.count * measured;
                    row.cost = without_waiting(row, blocks, waits);
                    if (!waits.at(row.key)) {
                        row.cost.time *= mean.time / baseline->second.time;
                        row.cost.energy = row.cost.energy * (mean.energy / baseline->second.energy);
                    }
                    row.energy_sd = row.energy_sd * (row.cost.energy.count / measured);
                    row.key = *name;
                    row.count = counts.try_emplace(row.key, row.count).first->second;
                    after += row.count * row.cost.energy.count;
                    row.sample = samples[{row.key, row.clock}]++;
                    row.is_baseline = row.clock == design_.baseline();
                    rows.push_back(std::move(row));
                }
                add_rows(merged, rows, after / before);
            }
        }
        return merged;
    }
    /// @param energy of the block as the rows have it, against that measured
    static void add_rows(Profile& merged, std::vector<ProfileRow>& rows, double energy) {
        const auto id = static_cast<std::uint32_t>(merged.blocks().size()) + 1;
        for (ProfileRow& row : rows) {
            if (row.block.id > 0)
                row.block = {id, row.block.energy * energy, row.block.energy_sd * energy};
            static_cast<void>(merged.try_add(row));
        }
    }
    static Cost without_waiting(const ProfileRow& row, const Blocks& blocks, const Waits& waits) {
        if (!waits.at(row.key)) return row.cost;
        return row.cost * (least(blocks, row.key) / row.cost.time.count());
    }

    std::string gpu_;
    SweepDesign design_;
    std::map<std::uint64_t, Blocks> stages_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
