// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/train/rank_link.hpp>
#include <kdvfs/tune/session.hpp>

#include <cstddef>
#include <string>
#include <utility>

/// This process of a job of several ranks, as launchers number it in the environment.
struct LaunchedRank {
    std::string rank{};
    std::size_t ranks = 1;
    bool has_peers = false;  ///< there are other ranks: files of sweeps and plans are its own

    /// Of torchrun, Open MPI, PMI and Slurm: the first that has a rank.
    [[nodiscard]] static LaunchedRank from_environment() {
        using kdvfs::io::environment;
        using Names = std::pair<const char*, const char*>;
        for (const auto& [rank, size] :
             {Names{"RANK", "WORLD_SIZE"}, Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
              Names{"PMI_RANK", "PMI_SIZE"}, Names{"SLURM_PROCID", "SLURM_NTASKS"}}) {
            const std::string number{environment(rank)};
            const std::string ranks{environment(size)};
            if (!number.empty())
                return {number, kdvfs::io::parse_number<std::size_t>(ranks).value_or(1),
                        !ranks.empty() && ranks != "1"};
        }
        return {};
    }
    /// The mode with files of its own: two sweeps must not write one file. A run that tunes itself
    /// is linked to the other ranks by the folder that `KDVFS_RANKS` names, which is of this run
    /// alone.
    /// @throws kdvfs::Error as `kdvfs::train::link_by_folder`
    [[nodiscard]] kdvfs::tune::SessionMode of(const kdvfs::tune::SessionMode& mode) const {
        const auto number = kdvfs::io::parse_number<std::uint32_t>(rank);
        if (!has_peers || !number) return mode;
        kdvfs::tune::SessionMode own = mode.of_rank(*number);
        const std::string folder{kdvfs::io::environment("KDVFS_RANKS")};
        if (own.kind == kdvfs::tune::SessionMode::Kind::tune && !folder.empty())
            own.link =
                kdvfs::train::link_by_folder(folder, *number, static_cast<std::uint32_t>(ranks));
        return own;
    }
};
