// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/folder_ranks.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/units.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

namespace kdvfs::inline v0_3::train {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE FolderRanks::FolderRanks(const std::filesystem::path& folder, const std::string& job,
                                      std::uint32_t rank, std::uint32_t size)
    : folder_{folder / ("kdvfs-" + job)}, rank_{rank}, size_{size} {
    if (rank >= size)
        throw Error{Errc::invalid_input,
                    {"number the ranks of a job",
                     "rank " + std::to_string(rank) + " of " + std::to_string(size),
                     "there is no such rank", "give a rank from 0, less than their number"}};
    const bool is_name = !job.empty() && job.size() <= 100 && job.front() != '.' &&
                         std::all_of(job.begin(), job.end(), [](unsigned char c) {
                             return c == '_' || c == '-' || c == '.' || (c >= '0' && c <= '9') ||
                                    (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
                         });
    if (!is_name)
        throw Error{Errc::invalid_input,
                    {"name a job", "'" + job + "'", "it is no name for a folder",
                     "use 1 to 100 letters, digits, '_', '-' and '.'"}};
    make_folder();
}

KDVFS_INLINE FolderRanks::~FolderRanks() {
    if (rank_ == 0) return;  // others may have to read what it sent last
    while (!own_.empty()) remove_first_noexcept();
}

KDVFS_INLINE std::vector<std::string> FolderRanks::gather(std::string text, Duration deadline) {
    join(deadline);
    ++turn_;
    if (rank_ == 0) return collect(turn_, std::move(text), deadline);
    post(turn_, std::to_string(rank_), text);
    return {};
}

KDVFS_INLINE std::string FolderRanks::broadcast(const std::string& text, Duration deadline) {
    join(deadline);
    return answered(++turn_, text, deadline);
}

KDVFS_INLINE void FolderRanks::begin_max(std::span<const double> numbers) {
    throw_if_broken();
    mine_.assign(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
    max_turn_ = ++turn_;
    max_begun_ = true;
    if (is_joined_) post_maximum();
}

KDVFS_INLINE std::vector<double> FolderRanks::end_max(Duration deadline) {
    if (!is_joined_) {
        join(deadline);
        post_maximum();
    }
    throw_if_broken();
    max_begun_ = false;
    std::vector<double> largest = numbers_in(mine_);
    if (rank_ == 0) {
        for (const std::string& text : collect(max_turn_, mine_, deadline)) {
            check_size(text);
            const std::vector<double> numbers = numbers_in(text);
            for (std::size_t i = 0; i < largest.size(); ++i)
                largest[i] = std::max(largest[i], numbers[i]);
        }
    }
    std::string bytes(reinterpret_cast<const char*>(largest.data()),
                      largest.size() * sizeof(double));
    const std::string answer = answered(max_turn_, bytes, deadline);
    check_size(answer);
    return numbers_in(answer);
}

KDVFS_INLINE void FolderRanks::check_size(const std::string& received) {
    if (received.size() == mine_.size()) return;
    broken_ = detail::other_numbers_error(received.size(), mine_.size());
    try {
        write(failed_file(), "ranks that differ");
    } catch (const Error&) {  // each rank has its own deadline
    }
    throw_if_broken();
}

KDVFS_INLINE std::vector<double> FolderRanks::numbers_in(const std::string& bytes) {
    std::vector<double> numbers(bytes.size() / sizeof(double));
    std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
    return numbers;
}

KDVFS_INLINE void FolderRanks::make_folder() const {
    std::error_code failed;
    std::filesystem::create_directories(folder_.parent_path(), failed);
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
        throw Error{Errc::io,
                    {"make a folder for the ranks", folder_.string(), std::strerror(errno),
                     "give a folder that all ranks can write"}};
    struct stat status {};
    if (::lstat(folder_.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
        status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return;
    throw Error{Errc::refused,
                {"exchange files with the other ranks", folder_.string(),
                 "it is another user's, or others may write it",
                 "remove it, or give a folder of your own"}};
}

KDVFS_INLINE void FolderRanks::join(Duration& deadline) {
    throw_if_broken();
    if (is_joined_) return;
    const auto begin = std::chrono::steady_clock::now();
    token_ = random_name();
    rank_ == 0 ? begin_run(deadline) : find_run(deadline);
    is_joined_ = true;
    deadline -= std::chrono::steady_clock::now() - begin;
}

KDVFS_INLINE void FolderRanks::begin_run(Duration deadline) {
    run_ = token_;
    write(folder_ / "run", run_);
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator{folder_, ignored})
        if (const std::string name = entry.path().filename();
            name != "run" && !name.starts_with('.') && !name.starts_with(run_))
            std::filesystem::remove(entry.path(), ignored);
    std::string tokens;
    for (const std::string& token : collect(0, token_, deadline)) tokens += token + '\n';
    post(0, "answer", tokens);
}

KDVFS_INLINE void FolderRanks::find_run(Duration deadline) {
    const auto is_found = [&] {
        const std::string run = read_if_there(folder_ / "run");
        if (!run.empty() && run != run_) {
            run_ = run;
            post(0, std::to_string(rank_), token_);
        }
        return has_token(read_if_there(file(0, "answer")));
    };
    if (!wait_until(is_found, deadline + deadline / 10)) give_up({{0}}, deadline);
}

KDVFS_INLINE bool FolderRanks::has_token(const std::string& text) const {
    return text.find(token_) != std::string::npos;
}

KDVFS_INLINE std::string FolderRanks::random_name() {
    std::random_device random;
    return kdvfs::io::format_text("%08x%08x", random(), random());
}

KDVFS_INLINE std::string FolderRanks::read_if_there(const std::filesystem::path& path) {
    try {
        return std::filesystem::exists(path) ? tune::read_trusted_file(path) : std::string{};
    } catch (const Error&) {
        return {};  // removed meanwhile
    }
}

KDVFS_INLINE std::filesystem::path FolderRanks::file(std::uint64_t turn,
                                                     const std::string& who) const {
    return folder_ / (run_ + '-' + std::to_string(turn) + '-' + who);
}

KDVFS_INLINE void FolderRanks::write(const std::filesystem::path& target,
                                     const std::string& text) const {
    const std::filesystem::path hidden =
        folder_ / ("." + target.filename().string() + "." + std::to_string(rank_));
    const kdvfs::io::Descriptor file{
        ::open(hidden.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600)};
    int error = file.is_open() ? kdvfs::io::write_all(file.get(), text) : errno;
    if (error == 0 && ::rename(hidden.c_str(), target.c_str()) != 0) error = errno;
    if (error != 0) kdvfs::io::throw_file_error("write for the other ranks", target, error);
}

KDVFS_INLINE void FolderRanks::post(std::uint64_t turn, const std::string& who,
                                    const std::string& text) {
    write(file(turn, who), text);
    own_.push_back({turn, file(turn, who)});
}

KDVFS_INLINE void FolderRanks::post_maximum() {
    if (rank_ != 0) post(max_turn_, std::to_string(rank_), mine_);
}

KDVFS_INLINE void FolderRanks::remove_first_noexcept() noexcept {
    std::error_code ignored;
    std::filesystem::remove(own_.front().file, ignored);
    own_.pop_front();
}

KDVFS_INLINE std::vector<std::string> FolderRanks::collect(std::uint64_t turn, std::string own,
                                                           Duration deadline) {
    std::vector<std::string> texts{std::move(own)};
    const auto is_there = [&] {
        while (texts.size() < size_ && is_posted(turn, texts.size()))
            texts.push_back(tune::read_trusted_file(file(turn, std::to_string(texts.size()))));
        return texts.size() == size_;
    };
    if (!wait_until(is_there, deadline)) {
        std::vector<std::uint32_t> silent;
        for (std::uint32_t r = 1; r < size_; ++r)
            if (!is_posted(turn, r)) silent.push_back(r);
        give_up(silent, deadline);
    }
    // Who has posted in this turn has read what was sent in those before.
    while (!own_.empty() && own_.front().turn < turn) remove_first_noexcept();
    return texts;
}

KDVFS_INLINE std::string FolderRanks::answered(std::uint64_t turn, const std::string& text,
                                               Duration deadline) {
    if (rank_ == 0) {
        if (size_ > 1) post(turn, "answer", text);
        return text;
    }
    const std::filesystem::path answer = file(turn, "answer");
    // Rank 0 may wait for another rank meanwhile: its word comes first.
    if (!wait_until([&] { return std::filesystem::exists(answer); }, deadline + deadline / 10))
        give_up({{0}}, deadline);
    std::string received = tune::read_trusted_file(answer);
    // Rank 0 has read all that it was sent up to this turn, but for a maximum under way.
    while (!own_.empty() && own_.front().turn <= turn &&
           !(max_begun_ && own_.front().turn == max_turn_))
        remove_first_noexcept();
    return received;
}

KDVFS_INLINE bool FolderRanks::is_posted(std::uint64_t turn, std::size_t rank) const {
    return std::filesystem::exists(file(turn, std::to_string(rank)));
}

KDVFS_INLINE void FolderRanks::give_up(std::span<const std::uint32_t> silent, Duration deadline) {
    broken_ = detail::silent_ranks_error(silent, deadline);
    try {
        std::string text = detail::rank_names(silent);
        for (std::uint32_t r = 1; r < size_ && rank_ == 0 && !is_joined_; ++r)
            text += '\n' + read_if_there(file(0, std::to_string(r)));
        write(failed_file(), text);
    } catch (const Error&) {  // each rank has its own deadline
    }
    throw Error{*broken_};
}

KDVFS_INLINE void FolderRanks::throw_if_broken() const {
    if (broken_) throw Error{*broken_};
}

#endif

}  // namespace kdvfs::inline v0_3::train
