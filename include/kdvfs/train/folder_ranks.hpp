// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/train/communicator.hpp>
#include <kdvfs/tune/plan_file.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// The ranks of a job without MPI: they exchange files in a folder that all of them see, such as
/// one on a shared file system. A `Communicator`; not thread-safe.
///
/// The files lie in `kdvfs-JOB`, which belongs to its user alone. A rank removes a file of its own
/// once all have read it; a few small ones are left at the end. A rank that gives up says so in the
/// file `failed`, so that all ranks name the same silent ones.
class FolderRanks {
public:
    /// @param job sets runs apart: letters, digits, '_', '-' and '.'; another for each run, such as
    ///        the scheduler's number of the job and of its restart
    /// @throws Error (invalid_input) for a rank or a job that is none, (refused) for a folder of
    ///         another user or one that others may write, (io)
    FolderRanks(const std::filesystem::path& folder, const std::string& job, std::uint32_t rank,
                std::uint32_t size);
    ~FolderRanks();
    FolderRanks(const FolderRanks&) = delete;
    FolderRanks& operator=(const FolderRanks&) = delete;

    [[nodiscard]] std::uint32_t rank() const { return rank_; }
    [[nodiscard]] std::uint32_t size() const { return size_; }

    std::vector<std::string> gather(std::string text, Duration deadline);

    std::string broadcast(const std::string& text, Duration deadline);

    void begin_max(std::span<const double> numbers);

    /// Waits for rank 0 alone, if all have begun before.
    std::vector<double> end_max(Duration deadline);

private:
    struct Own {
        std::uint64_t turn;
        std::filesystem::path file;
    };

    static std::vector<double> numbers_in(const std::string& bytes);

    void make_folder() const;

    [[nodiscard]] std::filesystem::path file(std::uint64_t turn, const std::string& who) const;

    /// Writes a file that readers see as a whole. It need not survive the machine.
    void write(const std::filesystem::path& target, const std::string& text) const;

    void post(std::uint64_t turn, const std::string& who, const std::string& text);

    void remove_first_noexcept() noexcept;

    /// On rank 0: what all ranks gave in this turn.
    std::vector<std::string> collect(std::uint64_t turn, std::string own, Duration deadline);

    /// What rank 0 gave in this turn, on all ranks.
    std::string answered(std::uint64_t turn, const std::string& text, Duration deadline);

    [[nodiscard]] bool is_posted(std::uint64_t turn, std::size_t rank) const;

    /// @returns false if `done` did not come true in time
    /// @throws Error where another rank has given up
    template <class Done>
    bool wait_until(Done done, Duration deadline) {
        const auto end = std::chrono::steady_clock::now() + deadline;
        auto pause = std::chrono::microseconds{200};
        while (!done()) {
            if (const auto failed = folder_ / "failed"; std::filesystem::exists(failed)) {
                broken_ = Error{Errc::timed_out,
                                {"agree with the other ranks", tune::read_trusted_file(failed),
                                 "another rank has given up waiting", remedy}};
                throw_if_broken();
            }
            if (std::chrono::steady_clock::now() >= end) return false;
            std::this_thread::sleep_for(pause);
            pause = std::min(2 * pause, std::chrono::microseconds{20'000});
        }
        return true;
    }

    [[noreturn]] void give_up(std::span<const std::uint32_t> silent, Duration deadline);

    void throw_if_broken() const;

    static constexpr const char* remedy =
        "see whether that process runs; clocks stay at auto meanwhile";

    std::filesystem::path folder_;
    std::uint32_t rank_;
    std::uint32_t size_;
    std::uint64_t turn_ = 0;
    std::uint64_t max_turn_ = 0;
    bool max_begun_ = false;
    std::string mine_;     ///< numbers of the maximum that has begun
    std::deque<Own> own_;  ///< files of this rank that somebody may have to read
    std::optional<Error> broken_;
};
static_assert(Communicator<FolderRanks>);

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/folder_ranks.hpp>
#endif
