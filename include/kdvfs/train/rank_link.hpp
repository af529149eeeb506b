// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/train/communicator.hpp>
#include <kdvfs/train/folder_ranks.hpp>
#include <kdvfs/tune/rank_link.hpp>
#include <kdvfs/units.hpp>

#include <pthread.h>
#include <signal.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {
namespace detail {

/// Texts as one: each behind its length.
inline std::string pack(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += std::to_string(text.size()) + ' ' + text;
    return all;
}
/// @throws Error (invalid_input) where `all` is not what `pack` gives
inline std::vector<std::string> unpack(std::string_view all) {
    std::vector<std::string> texts;
    while (!all.empty()) {
        std::size_t length = 0;
        const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), length);
        const auto head = static_cast<std::size_t>(end - all.data()) + 1;
        if (error != std::errc{} || head > all.size() || length > all.size() - head)
            throw Error{Errc::invalid_input,
                        {"read what another rank sent",
                         "a text of " + std::to_string(all.size()) + " bytes", "it was cut short",
                         "see whether its folder is full"}};
        texts.emplace_back(all.substr(head, length));
        all.remove_prefix(head + length);
    }
    return texts;
}

}  // namespace detail

/// Links the ranks of a job over a `Communicator` that nothing else uses: a thread exchanges what
/// ranks have to say once in `period`. It waits for slow ranks there, up to `deadline`; the program
/// never does. With MPI that thread needs `MPI_THREAD_MULTIPLE`.
template <Communicator C>
class CommunicatorLink final : public tune::RankLink {
public:
    /// @param period from one exchange to the next: 0 stands for a second, and 5 ms more a rank
    /// @param deadline after which the link is given up, and every rank runs as found
    explicit CommunicatorLink(std::unique_ptr<C> ranks, Duration period = Duration{0},
                              Duration deadline = std::chrono::minutes{10})
        : exchange_{std::make_shared<Exchange>(std::move(ranks), period, deadline)} {
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        thread_ = std::thread{[exchange = exchange_] { exchange->run(); }};
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    /// Ends the exchange on all ranks. Does not wait for ranks that are stuck: the thread ends by
    /// itself then, with its deadline.
    ~CommunicatorLink() override {
        constexpr std::chrono::seconds patience{5};
        if (exchange_->stop(patience))
            thread_.join();
        else
            thread_.detach();
    }
    CommunicatorLink(const CommunicatorLink&) = delete;
    CommunicatorLink& operator=(const CommunicatorLink&) = delete;

    [[nodiscard]] std::uint32_t rank() const override { return exchange_->rank; }
    [[nodiscard]] std::uint32_t size() const override { return exchange_->size; }
    [[nodiscard]] bool works() const override {
        const std::lock_guard lock{exchange_->mutex};
        return !exchange_->ended;
    }
    void report(std::string text) override {
        const std::lock_guard lock{exchange_->mutex};
        exchange_->reports.push_back(std::move(text));
    }
    [[nodiscard]] std::vector<std::pair<std::uint32_t, std::string>> take_reports() override {
        const std::lock_guard lock{exchange_->mutex};
        return std::exchange(exchange_->reported, {});
    }
    void announce(std::string text) override {
        const std::lock_guard lock{exchange_->mutex};
        exchange_->announcements.push_back(std::move(text));
    }
    [[nodiscard]] std::vector<std::string> take_announcements() override {
        const std::lock_guard lock{exchange_->mutex};
        return std::exchange(exchange_->announced, {});
    }

private:
    using Texts = std::vector<std::string>;

    /// What the thread and the link share.
    struct Exchange {
        Exchange(std::unique_ptr<C> communicator, Duration from_one_to_next, Duration longest)
            : ranks{std::move(communicator)},
              rank{ranks->rank()},
              size{ranks->size()},
              period{from_one_to_next > Duration{0}
                         ? from_one_to_next
                         : std::chrono::seconds{1} + size * Duration{std::chrono::milliseconds{5}}},
              deadline{longest} {}

        void run() {
            try {
                while (once()) {
                }
            } catch (const std::exception& error) {
                std::fprintf(stderr, "kdvfs: %s\n", error.what());
            }
            const std::lock_guard lock{mutex};
            ended = true;
            changed.notify_all();
        }
        /// @returns whether it has ended
        bool stop(Duration patience) {
            std::unique_lock lock{mutex};
            stopped = true;
            changed.notify_all();
            return changed.wait_for(lock, patience, [&] { return ended; });
        }

        std::unique_ptr<C> ranks;  // the thread's
        const std::uint32_t rank;
        const std::uint32_t size;
        const Duration period;
        const Duration deadline;
        std::mutex mutex;
        std::condition_variable changed;
        Texts reports;
        std::vector<std::pair<std::uint32_t, std::string>> reported;
        Texts announcements;
        Texts announced;
        bool stopped = false;
        bool ended = false;

    private:
        /// @returns whether there is a next time: not once a rank ends
        bool once() {
            Texts own;
            bool ends = false;
            {
                std::unique_lock lock{mutex};
                changed.wait_for(lock, period, [&] { return stopped; });
                own = std::exchange(reports, {});
                ends = stopped;
            }
            own.emplace_back(ends ? "end" : "");
            std::uint32_t from = 0;
            for (const std::string& all : ranks->gather(detail::pack(own), deadline)) {
                Texts texts = detail::unpack(all);
                ends = take_end(texts) || ends;
                const std::lock_guard lock{mutex};
                for (std::string& text : texts) reported.emplace_back(from, std::move(text));
                ++from;
            }
            Texts answer;
            if (rank == 0) {
                const std::lock_guard lock{mutex};
                answer = std::exchange(announcements, {});
                answer.emplace_back(ends ? "end" : "");
            }
            Texts texts = detail::unpack(ranks->broadcast(detail::pack(answer), deadline));
            ends = take_end(texts);
            const std::lock_guard lock{mutex};
            if (rank != 0)
                for (std::string& text : texts) announced.push_back(std::move(text));
            return !ends;
        }
        /// Takes off the last text, which says whether the sender ends.
        static bool take_end(Texts& texts) {
            const bool ends = texts.empty() || texts.back() == "end";
            if (!texts.empty()) texts.pop_back();
            return ends;
        }
    };

    std::shared_ptr<Exchange> exchange_;
    std::thread thread_;
};

/// Links the ranks of a job by files.
/// @param folder that all ranks see, of this run alone
/// @throws Error as `FolderRanks`
inline std::shared_ptr<tune::RankLink> link_by_folder(const std::filesystem::path& folder,
                                                      std::uint32_t rank, std::uint32_t size) {
    return std::make_shared<CommunicatorLink<FolderRanks>>(
        std::make_unique<FolderRanks>(folder, "tuning", rank, size));
}

}  // namespace kdvfs::inline v0_3::train
