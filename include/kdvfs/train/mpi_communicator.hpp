// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/train/communicator.hpp>
#include <kdvfs/units.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// The ranks of an MPI program as a `train::Communicator`. Needs the component `kdvfs::mpi`.
namespace kdvfs::inline v0_3::mpi {

/// Talks on duplicates of the program's communicator, so that no message of the program is mixed
/// up with one of kdvfs. Waits by asking every 100 us, and not at all where the answer is there. A
/// collective that did not end in time is given up, and the ranks call the roll: those that do not
/// answer within as long again are named. Not thread-safe; make it after `MPI_Init` and let it go
/// before `MPI_Finalize`, on all ranks.
///
/// Of a rank that dies `mpirun` learns, ends the others and says which it was; the watchdogs of all
/// ranks put their clocks back then.
class Communicator {
public:
    /// @throws Error (invalid_input) before `MPI_Init` and after `MPI_Finalize`, (io) with MPI's
    ///         words
    explicit Communicator(MPI_Comm ranks) {
        int begun = 0;
        int ended = 0;
        MPI_Initialized(&begun);
        MPI_Finalized(&ended);
        if (begun == 0 || ended != 0)
            throw Error{
                Errc::invalid_input,
                {"talk to the other ranks", "MPI",
                 ended != 0 ? "MPI_Finalize has been called" : "MPI_Init has not been called",
                 "begin the session between the two"}};
        check(MPI_Comm_dup(ranks, &ranks_), "duplicate the communicator");
        check(MPI_Comm_dup(ranks, &roll_), "duplicate the communicator");
        MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(roll_, MPI_ERRORS_RETURN);
        int number = 0;
        check(MPI_Comm_rank(ranks_, &number), "ask for the rank");
        rank_ = static_cast<std::uint32_t>(number);
        check(MPI_Comm_size(ranks_, &number), "ask for the ranks");
        size_ = static_cast<std::uint32_t>(number);
    }
    ~Communicator() {
        int ended = 0;
        MPI_Finalized(&ended);
        // Freeing is collective: where a rank is silent it would wait for it.
        if (ended != 0 || broken_) return;
        if (maximum_) wait_for_maximum_noexcept();
        MPI_Comm_free(&ranks_);
        MPI_Comm_free(&roll_);
    }
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    [[nodiscard]] std::uint32_t rank() const { return rank_; }
    [[nodiscard]] std::uint32_t size() const { return size_; }

    std::vector<std::string> gather(const std::string& text, Duration deadline) {
        throw_if_broken();
        auto all = std::make_unique<Allgather>(text, rank_ == 0 ? size_ : 0);
        Pending pending{MPI_REQUEST_NULL};
        check(MPI_Igather(&all->length, 1, MPI_INT, all->lengths.data(), 1, MPI_INT, 0, ranks_,
                          &pending.request),
              "gather");
        wait(pending, deadline, all);
        if (rank_ == 0) {
            all->begins.resize(size_);
            std::exclusive_scan(all->lengths.begin(), all->lengths.end(), all->begins.begin(), 0);
            all->bytes.resize(static_cast<std::size_t>(all->begins.back() + all->lengths.back()));
        }
        check(MPI_Igatherv(all->text.data(), all->length, MPI_CHAR, all->bytes.data(),
                           all->lengths.data(), all->begins.data(), MPI_CHAR, 0, ranks_,
                           &pending.request),
              "gather");
        wait(pending, deadline, all);
        std::vector<std::string> texts;
        for (std::size_t r = 0; r < all->begins.size(); ++r)
            texts.push_back(all->bytes.substr(static_cast<std::size_t>(all->begins[r]),
                                              static_cast<std::size_t>(all->lengths[r])));
        return texts;
    }

    std::string broadcast(const std::string& text, Duration deadline) {
        throw_if_broken();
        auto all = std::make_unique<Allgather>(text, 0);
        Pending pending{MPI_REQUEST_NULL};
        check(MPI_Ibcast(&all->length, 1, MPI_INT, 0, ranks_, &pending.request), "broadcast");
        wait(pending, deadline, all);
        all->text.resize(static_cast<std::size_t>(all->length));
        check(MPI_Ibcast(all->text.data(), all->length, MPI_CHAR, 0, ranks_, &pending.request),
              "broadcast");
        wait(pending, deadline, all);
        return std::move(all->text);
    }

    void begin_max(std::span<const double> numbers) {
        throw_if_broken();
        maximum_ = std::make_unique<Maximum>();
        maximum_->mine.assign(numbers.begin(), numbers.end());
        maximum_->largest.resize(numbers.size());
        check(MPI_Iallreduce(maximum_->mine.data(), maximum_->largest.data(),
                             static_cast<int>(numbers.size()), MPI_DOUBLE, MPI_MAX, ranks_,
                             &maximum_->pending.request),
              "find a maximum");
    }

    std::vector<double> end_max(Duration deadline) {
        throw_if_broken();
        wait(maximum_->pending, deadline, maximum_);
        return std::move(std::exchange(maximum_, nullptr)->largest);
    }

private:
    struct Pending {
        MPI_Request request = MPI_REQUEST_NULL;
    };
    /// What MPI reads and writes while a collective is under way.
    struct Allgather {
        Allgather(const std::string& said, std::size_t ranks)
            : text{said}, length{static_cast<int>(said.size())}, lengths(ranks) {}
        std::string text;
        int length;
        std::vector<int> lengths;
        std::vector<int> begins{};
        std::string bytes{};
    };
    struct Maximum {
        std::vector<double> mine;
        std::vector<double> largest;
        Pending pending{};
    };

    static void check(int result, const char* what) {
        if (result == MPI_SUCCESS) return;
        char words[MPI_MAX_ERROR_STRING] = {};
        int length = 0;
        MPI_Error_string(result, words, &length);
        throw Error{Errc::io,
                    {what, "the ranks of MPI", std::string(words, static_cast<std::size_t>(length)),
                     "see what mpirun says of the other ranks"}};
    }

    void throw_if_broken() const {
        if (broken_) throw Error{*broken_};
    }

    /// @returns false if `done` did not come true in time
    template <class Done>
    static bool wait_until(Done done, Duration deadline) {
        const auto end = std::chrono::steady_clock::now() + deadline;
        while (!done()) {
            if (std::chrono::steady_clock::now() >= end) return false;
            std::this_thread::sleep_for(std::chrono::microseconds{100});
        }
        return true;
    }

    static bool is_done(MPI_Request& request) {
        int done = 0;
        check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "ask for a message");
        return done != 0;
    }

    /// @param buffers of the collective: MPI may yet write to them if it is given up, and so they
    ///                stay
    template <class Buffers>
    void wait(Pending& pending, Duration deadline, std::unique_ptr<Buffers>& buffers) {
        if (wait_until([&] { return is_done(pending.request); }, deadline)) return;
        static_cast<void>(buffers.release());
        broken_ = train::detail::silent_ranks_error(check_ranks(deadline), deadline);
        throw Error{*broken_};
    }

    /// All that wait come here, since a collective that one rank is missing from ends nowhere or,
    /// as a gathering does, on those alone that only give.
    std::vector<std::uint32_t> check_ranks(Duration deadline) {
        static char here = 1;  // MPI may read it after this call
        std::vector<char> acknowledged(size_, 0);
        acknowledged[rank_] = 1;
        for (std::uint32_t r = 0; r < size_; ++r) {
            MPI_Request sent = MPI_REQUEST_NULL;
            if (r == rank_) continue;
            check(MPI_Isend(&here, 1, MPI_CHAR, static_cast<int>(r), 0, roll_, &sent), "call");
            MPI_Request_free(&sent);
        }
        const auto all_acknowledged = [&] {
            int is_there = 1;
            MPI_Status status{};
            while (is_there != 0) {
                check(MPI_Iprobe(MPI_ANY_SOURCE, 0, roll_, &is_there, &status), "listen");
                if (is_there == 0) break;
                char word = 0;
                check(MPI_Recv(&word, 1, MPI_CHAR, status.MPI_SOURCE, 0, roll_, MPI_STATUS_IGNORE),
                      "listen");
                acknowledged[static_cast<std::size_t>(status.MPI_SOURCE)] = 1;
            }
            return std::find(acknowledged.begin(), acknowledged.end(), 0) == acknowledged.end();
        };
        wait_until(all_acknowledged, deadline);
        std::vector<std::uint32_t> silent;
        for (std::uint32_t r = 0; r < size_; ++r)
            if (acknowledged[r] == 0) silent.push_back(r);
        return silent;
    }

    void wait_for_maximum_noexcept() noexcept {
        try {
            static_cast<void>(end_max(std::chrono::seconds{10}));
        } catch (const Error&) {  // the run is over
        }
    }

    MPI_Comm ranks_ = MPI_COMM_NULL;
    MPI_Comm roll_ = MPI_COMM_NULL;
    std::uint32_t rank_ = 0;
    std::uint32_t size_ = 1;
    std::unique_ptr<Maximum> maximum_;
    std::optional<Error> broken_;
};
static_assert(train::Communicator<Communicator>);

}  // namespace kdvfs::inline v0_3::mpi
