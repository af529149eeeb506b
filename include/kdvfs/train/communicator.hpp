// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// The ranks of one training run, one per GPU, which talk to one another: processes
/// (`mpi_communicator.hpp`) or threads (`RankThreads`). The contract:
/// - `rank()` and `size()` never change;
/// - all ranks call the rest in the same order; a rank calls from one thread at a time;
/// - `gather` gives rank 0 what every rank said, by rank, and the others nothing;
/// - `broadcast` gives every rank what rank 0 said;
/// - `begin_max` says some numbers and does not wait; `end_max` gives the largest that any rank
///   said, one by one. One is under way at a time, and all say equally many;
/// - a call that waits throws `Error` (timed_out) once the deadline has passed, with the ranks that
///   said nothing in it; every later call throws at once.
template <class C>
concept Communicator = requires(C& ranks, const C& known, std::string text,
                                std::span<const double> numbers, Duration deadline) {
    { known.rank() } -> std::same_as<std::uint32_t>;
    { known.size() } -> std::same_as<std::uint32_t>;
    { ranks.gather(text, deadline) } -> std::same_as<std::vector<std::string>>;
    { ranks.broadcast(text, deadline) } -> std::same_as<std::string>;
    { ranks.begin_max(numbers) } -> std::same_as<void>;
    { ranks.end_max(deadline) } -> std::same_as<std::vector<double>>;
};

/// A `Communicator` whose type is not known where it is used. See there for the functions.
class AnyCommunicator {
public:
    virtual ~AnyCommunicator() = default;
    [[nodiscard]] virtual std::uint32_t rank() const = 0;
    [[nodiscard]] virtual std::uint32_t size() const = 0;
    virtual std::vector<std::string> gather(std::string text, Duration deadline) = 0;
    virtual std::string broadcast(std::string text, Duration deadline) = 0;
    virtual void begin_max(std::span<const double> numbers) = 0;
    virtual std::vector<double> end_max(Duration deadline) = 0;
};
static_assert(Communicator<AnyCommunicator>);

/// A `Communicator` as `AnyCommunicator`.
template <Communicator C>
class CommunicatorOf : public AnyCommunicator {
public:
    /// @param ranks must outlive this
    explicit CommunicatorOf(C& ranks) : ranks_{&ranks} {}

    [[nodiscard]] std::uint32_t rank() const override { return ranks_->rank(); }
    [[nodiscard]] std::uint32_t size() const override { return ranks_->size(); }
    std::vector<std::string> gather(std::string text, Duration deadline) override {
        return ranks_->gather(std::move(text), deadline);
    }
    std::string broadcast(std::string text, Duration deadline) override {
        return ranks_->broadcast(std::move(text), deadline);
    }
    void begin_max(std::span<const double> numbers) override { ranks_->begin_max(numbers); }
    std::vector<double> end_max(Duration deadline) override { return ranks_->end_max(deadline); }

private:
    C* ranks_;
};

namespace detail {

/// "rank 3" or "ranks 3, 5".
inline std::string rank_names(std::span<const std::uint32_t> ranks) {
    std::string text = ranks.size() == 1 ? "rank" : "ranks";
    for (std::size_t i = 0; i < ranks.size(); ++i)
        text += (i == 0 ? " " : ", ") + std::to_string(ranks[i]);
    return text;
}

inline Error silent_ranks_error(std::span<const std::uint32_t> silent, Duration deadline) {
    const auto seconds = std::chrono::duration<double>{deadline}.count();
    return Error{Errc::timed_out,
                 {"agree with the other ranks",
                  silent.empty() ? std::string{"one of them"} : rank_names(silent),
                  "silent for " + std::to_string(seconds) + " s",
                  "see whether that process is stopped or stuck; clocks stay at auto meanwhile"}};
}

/// Where ranks take the maximum of numbers, and one has sent something else.
inline Error other_numbers_error(std::size_t received, std::size_t expected) {
    return Error{
        Errc::invalid_input,
        {"agree with the other ranks",
         std::to_string(received) + " bytes for " + std::to_string(expected) + " bytes of numbers",
         "a rank has sent something else",
         "start all ranks alike, with the same version of kdvfs"}};
}

}  // namespace detail

/// The ranks of a process that drives several GPUs, a thread each. All of it is thread-safe; it
/// must outlive its ranks.
class RankThreads {
public:
    explicit RankThreads(std::uint32_t size) : size_{size} {}

    /// A communicator for one thread.
    class Rank {
    public:
        Rank(RankThreads& all, std::uint32_t rank) : all_{&all}, rank_{rank} {}

        [[nodiscard]] std::uint32_t rank() const { return rank_; }
        [[nodiscard]] std::uint32_t size() const { return all_->size_; }

        std::vector<std::string> gather(std::string text, Duration deadline) {
            const std::uint64_t turn = say(std::move(text));
            return rank_ == 0 ? all_->hear(turn, 0, size(), deadline) : std::vector<std::string>{};
        }
        std::string broadcast(std::string text, Duration deadline) {
            const std::uint64_t turn = say(rank_ == 0 ? std::move(text) : std::string{});
            return std::move(all_->hear(turn, 0, 1, deadline).front());
        }
        void begin_max(std::span<const double> numbers) {
            std::string bytes(numbers.size_bytes(), '\0');
            std::memcpy(bytes.data(), numbers.data(), bytes.size());
            max_turn_ = say(std::move(bytes));
        }
        std::vector<double> end_max(Duration deadline) {
            std::vector<double> largest;
            for (const std::string& bytes : all_->hear(max_turn_, 0, size(), deadline)) {
                std::vector<double> numbers(bytes.size() / sizeof(double));
                std::memcpy(numbers.data(), bytes.data(), bytes.size());
                if (largest.empty()) largest = numbers;
                if (numbers.size() != largest.size())
                    throw detail::other_numbers_error(bytes.size(),
                                                      largest.size() * sizeof(double));
                for (std::size_t i = 0; i < numbers.size(); ++i)
                    largest[i] = std::max(largest[i], numbers[i]);
            }
            return largest;
        }

    private:
        std::uint64_t say(std::string text) {
            all_->say(++turn_, rank_, std::move(text));
            return turn_;
        }

        RankThreads* all_;
        std::uint32_t rank_;
        std::uint64_t turn_ = 0;
        std::uint64_t max_turn_ = 0;
    };

    [[nodiscard]] Rank rank(std::uint32_t number) { return {*this, number}; }

private:
    /// What the ranks said in one call. Kept until nobody can ask for it any more.
    using Said = std::vector<std::optional<std::string>>;

    void say(std::uint64_t turn, std::uint32_t rank, std::string text) {
        const std::lock_guard lock{mutex_};
        Said& said = turns_[turn];
        said.resize(size_);
        said[rank] = std::move(text);
        // A rank that speaks in this turn has heard all it wanted of those two before.
        while (turns_.size() > 3 && everybody_spoke(std::next(turns_.begin(), 2)->second))
            turns_.erase(turns_.begin());
        sent_.notify_all();
    }

    static bool everybody_spoke(const Said& said) {
        return std::all_of(said.begin(), said.end(), [](const auto& text) { return text; });
    }

    std::vector<std::string> hear(std::uint64_t turn, std::uint32_t first, std::uint32_t end,
                                  Duration deadline) {
        std::unique_lock lock{mutex_};
        std::vector<std::uint32_t> silent;
        const bool acknowledged = !broken_ && sent_.wait_for(lock, deadline, [&] {
            silent.clear();
            const Said& said = turns_[turn];
            for (std::uint32_t r = first; r < end; ++r)
                if (!said[r]) silent.push_back(r);
            return silent.empty();
        });
        if (!acknowledged) {
            if (!broken_) broken_ = detail::silent_ranks_error(silent, deadline);
            throw Error{*broken_};
        }
        std::vector<std::string> texts;
        for (std::uint32_t r = first; r < end; ++r) texts.push_back(*turns_[turn][r]);
        return texts;
    }

    std::uint32_t size_;
    std::mutex mutex_;
    std::condition_variable sent_;
    std::map<std::uint64_t, Said> turns_;
    std::optional<Error> broken_;
};
static_assert(Communicator<RankThreads::Rank>);

}  // namespace kdvfs::inline v0_3::train
