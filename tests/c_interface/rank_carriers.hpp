// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/kdvfs.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

/// What jobs send their own messages over, as small as it can be.
namespace rank_carriers {

using Clock = std::chrono::steady_clock;

inline double now() {
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}
inline void sleep_s(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::max(seconds, 0.0)));
}
struct Answer {
    kdvfs_status status = KDVFS_OK;
    std::string reason{};
    std::vector<std::string> texts{};
};
inline Answer silent(std::uint32_t rank) {
    return {KDVFS_TIMED_OUT, "rank " + std::to_string(rank) + " sent nothing", {}};
}
inline Answer ended(std::uint32_t rank) {
    return {KDVFS_IO, "rank " + std::to_string(rank) + " has ended", {}};
}

/// What a job has for its own messages.
class Carrier {
public:
    virtual ~Carrier() = default;
    virtual Answer gather(std::string_view text, double seconds) = 0;
    virtual Answer broadcast(std::string_view text, double seconds) = 0;
};

// Sockets: rank 0 has one to each rank.

struct Sockets {
    std::vector<int> ends;  // on rank 0: those of ranks 1 and on; elsewhere the one to rank 0
};

inline bool transfer(int socket, void* data, std::size_t length, double until, bool sends,
                     bool* ended) {
    auto* at = static_cast<char*>(data);
    while (length > 0) {
        pollfd ready{socket, static_cast<short>(sends ? POLLOUT : POLLIN), 0};
        const double left = until - now();
        if (left <= 0 || poll(&ready, 1, static_cast<int>(1e3 * left) + 1) == 0) return false;
        const ssize_t moved = sends ? send(socket, at, length, MSG_NOSIGNAL | MSG_DONTWAIT)
                                    : recv(socket, at, length, MSG_DONTWAIT);
        if (moved < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        *ended = moved <= 0;
        if (*ended) return false;
        at += moved;
        length -= static_cast<std::size_t>(moved);
    }
    return true;
}

class SocketStar final : public Carrier {
public:
    SocketStar(std::uint32_t rank, Sockets sockets) : rank_{rank}, sockets_{std::move(sockets)} {}
    ~SocketStar() override { close_all(); }
    Answer gather(std::string_view text, double seconds) override {
        const double until = now() + seconds;
        if (rank_ != 0) return write_to(0, text, until);
        Answer answer{.texts = {std::string{text}}};
        for (std::uint32_t r = 1; r <= sockets_.ends.size() && answer.status == KDVFS_OK; ++r)
            read_from(r, until, answer);
        if (answer.status != KDVFS_OK) close_all();  // the others need not wait, either
        return answer;
    }
    Answer broadcast(std::string_view text, double seconds) override {
        const double until = now() + seconds;
        Answer answer;
        if (rank_ != 0) {
            read_from(0, until, answer);
            return answer;
        }
        answer.texts = {std::string{text}};
        for (std::uint32_t r = 1; r <= sockets_.ends.size(); ++r)
            if (Answer failed = write_to(r, text, until); failed.status != KDVFS_OK) return failed;
        return answer;
    }

private:
    [[nodiscard]] int end_to(std::uint32_t rank) const {
        return sockets_.ends.empty() ? -1 : sockets_.ends[rank_ == 0 ? rank - 1 : 0];
    }
    Answer write_to(std::uint32_t rank, std::string_view text, double until) {
        std::uint64_t length = text.size();
        bool gone = false;
        std::string copy{text};
        if (transfer(end_to(rank), &length, sizeof length, until, true, &gone) &&
            transfer(end_to(rank), copy.data(), copy.size(), until, true, &gone))
            return {};
        return gone ? ended(rank) : silent(rank);
    }
    void read_from(std::uint32_t rank, double until, Answer& answer) {
        std::uint64_t length = 0;
        bool gone = false;
        std::string text;
        bool whole = transfer(end_to(rank), &length, sizeof length, until, false, &gone);
        if (whole) {
            text.resize(length);
            whole = transfer(end_to(rank), text.data(), length, until, false, &gone);
        }
        if (whole)
            answer.texts.push_back(std::move(text));
        else
            answer = gone ? ended(rank) : silent(rank);
    }
    void close_all() {
        for (const int end : std::exchange(sockets_.ends, {})) close(end);
    }

    std::uint32_t rank_;
    Sockets sockets_;
};

/// Plain files, looked for once in 0.2 ms: the least that files can do.
class PlainFiles final : public Carrier {
public:
    PlainFiles(std::filesystem::path folder, std::uint32_t rank, std::uint32_t ranks)
        : folder_{std::move(folder)}, rank_{rank}, ranks_{ranks} {}
    Answer gather(std::string_view text, double seconds) override {
        ++turn_;
        put(rank_, text);
        Answer answer;
        if (rank_ != 0) return answer;
        const double until = now() + seconds;
        for (std::uint32_t r = 0; r < ranks_ && answer.status == KDVFS_OK; ++r)
            get(r, until, answer);
        return answer;
    }
    Answer broadcast(std::string_view text, double seconds) override {
        ++turn_;
        if (rank_ == 0) put(0, text);
        Answer answer;
        get(0, now() + seconds, answer);
        return answer;
    }

private:
    [[nodiscard]] std::filesystem::path file(std::uint32_t rank) const {
        return folder_ / (std::to_string(turn_) + "-" + std::to_string(rank));
    }
    void put(std::uint32_t rank, std::string_view text) const {
        const std::filesystem::path hidden = file(rank).string() + "~";
        std::ofstream{hidden} << text;
        std::filesystem::rename(hidden, file(rank));
    }
    void get(std::uint32_t rank, double until, Answer& answer) const {
        while (!std::filesystem::exists(file(rank))) {
            if (now() > until) {
                answer = silent(rank);
                return;
            }
            sleep_s(2e-4);
        }
        std::ifstream stream{file(rank)};
        answer.texts.emplace_back(std::istreambuf_iterator<char>{stream},
                                  std::istreambuf_iterator<char>{});
    }

    std::filesystem::path folder_;
    std::uint32_t rank_;
    std::uint32_t ranks_;
    std::uint64_t turn_ = 0;
};

/// A simulated job: texts go from thread to thread.
class Threads {
public:
    explicit Threads(std::uint32_t ranks) : boxes_(ranks) {}

    void put(std::uint32_t to, std::uint32_t from, std::string_view text) {
        const std::lock_guard lock{boxes_[to].mutex};
        boxes_[to].texts.emplace_back(from, text);
        boxes_[to].came.notify_one();
    }
    /// The next text of each of `count` ranks from `first`.
    Answer take(std::uint32_t at, std::uint32_t first, std::uint32_t count, double seconds) {
        Box& box = boxes_[at];
        std::vector<const std::string*> found(count);
        std::unique_lock lock{box.mutex};
        const auto all_there = [&] {
            std::fill(found.begin(), found.end(), nullptr);
            for (const auto& [from, text] : box.texts)
                if (from - first < count && found[from - first] == nullptr)
                    found[from - first] = &text;
            return std::find(found.begin(), found.end(), nullptr) == found.end();
        };
        Answer answer;
        if (!box.came.wait_for(lock, std::chrono::duration<double>(seconds), all_there)) {
            const auto missing = std::find(found.begin(), found.end(), nullptr);
            return silent(first + static_cast<std::uint32_t>(missing - found.begin()));
        }
        for (const std::string* text : found) answer.texts.push_back(*text);
        std::vector<bool> taken(count);
        std::erase_if(box.texts, [&](const auto& each) {
            const std::uint32_t index = each.first - first;
            if (index >= count || taken[index]) return false;
            taken[index] = true;
            return true;
        });
        return answer;
    }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(boxes_.size()); }

private:
    struct Box {
        std::mutex mutex;
        std::condition_variable came;
        std::deque<std::pair<std::uint32_t, std::string>> texts;
    };
    std::deque<Box> boxes_;
};

class OneThread final : public Carrier {
public:
    OneThread(Threads& all, std::uint32_t rank) : all_{all}, rank_{rank} {}
    Answer gather(std::string_view text, double seconds) override {
        if (rank_ != 0) {
            all_.put(0, rank_, text);
            return {};
        }
        Answer answer = all_.take(0, 1, all_.size() - 1, seconds);
        answer.texts.emplace(answer.texts.begin(), text);
        return answer;
    }
    Answer broadcast(std::string_view text, double seconds) override {
        if (rank_ != 0) return all_.take(rank_, 0, 1, seconds);
        for (std::uint32_t r = 1; r < all_.size(); ++r) all_.put(r, 0, text);
        return {.texts = {std::string{text}}};
    }

private:
    Threads& all_;
    std::uint32_t rank_;
};

}  // namespace rank_carriers
