// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/train/rank_link.hpp>
#include <kdvfs/tune/session.hpp>

#include <cstddef>
#include <string>

/// This process of a job of several ranks, as launchers number it in the environment.
struct LaunchedRank {
    std::string rank{};
    std::size_t ranks = 1;
    bool has_peers = false;     ///< there are other ranks: files of sweeps and plans are its own
    bool all_are_here = false;  ///< the launcher says that all ranks run on this host

    /// Of torchrun, Open MPI, PMI and Slurm: the first that has a rank.
    [[nodiscard]] static LaunchedRank from_environment() {
        using kdvfs::io::environment;
        struct Names {
            const char* rank;
            const char* size;
            const char* local_size;
        };
        for (const Names& names :
             {Names{"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
              Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
              Names{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
              Names{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"}}) {
            const std::string number{environment(names.rank)};
            const std::string ranks{environment(names.size)};
            if (!number.empty())
                return {number, kdvfs::io::parse_number<std::size_t>(ranks).value_or(1),
                        !ranks.empty() && ranks != "1", environment(names.local_size) == ranks};
        }
        return {};
    }
    /// The mode with files of its own: two sweeps must not write one file. A run that tunes itself
    /// is linked to the other ranks by the folder that `KDVFS_RANKS` names, or, where all run on
    /// this host, by the one that `kdvfs run --save` has made for them (`KDVFS_LOCAL_RANKS`).
    /// @throws kdvfs::Error as `kdvfs::train::link_by_folder`
    [[nodiscard]] kdvfs::tune::SessionMode of(const kdvfs::tune::SessionMode& mode) const {
        const auto number = kdvfs::io::parse_number<std::uint32_t>(rank);
        if (!has_peers || !number) return mode;
        kdvfs::tune::SessionMode own = mode.of_rank(*number);
        std::string folder{kdvfs::io::environment("KDVFS_RANKS")};
        if (folder.empty() && all_are_here) folder = kdvfs::io::environment("KDVFS_LOCAL_RANKS");
        if (own.kind == kdvfs::tune::SessionMode::Kind::tune && !folder.empty())
            own.link =
                kdvfs::train::link_by_folder(folder, *number, static_cast<std::uint32_t>(ranks));
        return own;
    }
};
