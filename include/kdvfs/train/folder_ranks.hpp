// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/train/communicator.hpp>

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
/// The files lie in `kdvfs-JOB`, which belongs to its user alone. Rank 0 gives each run a random
/// name and removes what an earlier run of the same job has left; the others take only answers that
/// contain a random token of their own. A rank removes a file once all have read it; a few small
/// ones are left at the end. A rank that gives up writes the file `failed`, so that all ranks name
/// the same silent ones.
class FolderRanks {
public:
    /// @param job sets runs at the same time apart: letters, digits, '_', '-' and '.', such as the
    ///        scheduler's number of the job
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

    /// @throws Error where another rank has sent something else than this one's numbers
    void check_size(const std::string& received);

    void make_folder() const;

    /// Once: agrees with the other ranks on the name of the run. Takes its time off `deadline`.
    void join(Duration& deadline);

    void begin_run(Duration deadline);

    /// The name that is found first may be that of an earlier run.
    void find_run(Duration deadline);

    [[nodiscard]] bool has_token(const std::string& text) const;

    static std::string random_name();

    static std::string read_if_there(const std::filesystem::path& path);

    [[nodiscard]] std::filesystem::path file(std::uint64_t turn, const std::string& who) const;
    [[nodiscard]] std::filesystem::path failed_file() const { return folder_ / (run_ + "-failed"); }

    /// Writes a file that readers see as a whole. It need not survive the machine.
    void write(const std::filesystem::path& target, const std::string& text) const;

    void post(std::uint64_t turn, const std::string& who, const std::string& text);

    void post_maximum();

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
            if (const std::string failed = read_if_there(failed_file());
                is_joined_ || rank_ == 0 ? !failed.empty() : has_token(failed)) {
                broken_ = Error{Errc::timed_out,
                                {"agree with the other ranks", failed.substr(0, failed.find('\n')),
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
    bool is_joined_ = false;
    std::string run_;      ///< begins the names of its files
    std::string token_;    ///< of this process
    std::string mine_;     ///< numbers of the maximum that has begun
    std::deque<Own> own_;  ///< files of this rank that somebody may have to read
    std::optional<Error> broken_;
};
static_assert(Communicator<FolderRanks>);

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/folder_ranks.hpp>
#endif
