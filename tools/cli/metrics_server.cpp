// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/metrics.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_clients = 64;
constexpr int backlog = 1024;  // connections that wait to be accepted: a burst must not be dropped
constexpr std::size_t most_request_bytes = 4096;
constexpr auto client_deadline = std::chrono::seconds{2};
constexpr auto text_age = std::chrono::milliseconds{500};  // how long a scrape's text is reused

class Descriptor {
public:
    explicit Descriptor(int number) : number_{number} {}
    Descriptor(Descriptor&& from) noexcept : number_{std::exchange(from.number_, -1)} {}
    Descriptor& operator=(Descriptor&&) = delete;
    ~Descriptor() {
        if (number_ >= 0) ::close(number_);
    }
    [[nodiscard]] int get() const { return number_; }

private:
    int number_;
};

[[noreturn]] void refuse(kdvfs::Errc code, const std::string& place, const char* why,
                         const char* remedy) {
    throw kdvfs::Error{code, {"serve metrics", place, why, remedy}};
}

sockaddr_in address_of(const std::string& place) {
    const std::size_t colon = place.rfind(':');
    const std::string host = colon == std::string::npos ? "127.0.0.1" : place.substr(0, colon);
    const std::string_view port =
        std::string_view{place}.substr(colon == std::string::npos ? 0 : colon + 1);
    std::uint16_t number = 0;
    const char* const end = port.data() + port.size();
    const auto read = std::from_chars(port.data(), end, number);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(number);
    if (read.ec != std::errc{} || read.ptr != end) {
        refuse(kdvfs::Errc::invalid_input, place, "the port is not a number from 0 to 65535",
               "give a port such as 9400");
    }
    const std::string numeric = host == "localhost" ? "127.0.0.1" : host;
    if (::inet_pton(AF_INET, numeric.c_str(), &address.sin_addr) != 1) {
        refuse(kdvfs::Errc::invalid_input, place, "the address is not an IPv4 address",
               "give one such as 127.0.0.1 or 0.0.0.0");
    }
    return address;
}

std::string answer_with(std::string_view status, std::string_view text) {
    return "HTTP/1.1 " + std::string{status} +
           "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close"
           "\r\nContent-Length: " +
           std::to_string(text.size()) + "\r\n\r\n" + std::string{text};
}

/// One connection: first its request is read, then its answer is written.
struct Client {
    Descriptor socket;
    Clock::time_point deadline;
    std::string request{};
    std::string answer{};
    std::size_t written = 0;

    [[nodiscard]] bool answering() const { return !answer.empty(); }
};

}  // namespace

class MetricsServer::Loop {
public:
    Loop(const std::string& place, std::filesystem::path folder, MetricLabels labels)
        : folder_{std::move(folder)},
          labels_{std::move(labels)},
          listener_{::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)},
          stop_{::eventfd(0, EFD_CLOEXEC)} {
        sockaddr_in address = address_of(place);
        const int yes = 1;
        ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        socklen_t size = sizeof address;
        auto* const generic = reinterpret_cast<sockaddr*>(&address);
        if (::bind(listener_.get(), generic, size) != 0 ||
            ::listen(listener_.get(), backlog) != 0 ||
            ::getsockname(listener_.get(), generic, &size) != 0) {
            refuse(kdvfs::Errc::busy, place, std::strerror(errno), "give another port");
        }
        char host[INET_ADDRSTRLEN] = "";
        ::inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
        url_ = "http://" + std::string{host} + ':' + std::to_string(ntohs(address.sin_port)) +
               "/metrics";
        // Signals are for the thread that waits for the program.
        sigset_t all;
        sigset_t before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        thread_ = std::thread{[this] { serve(); }};
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    ~Loop() {
        const std::uint64_t one = 1;
        while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
        }
        thread_.join();
    }
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    [[nodiscard]] const std::string& url() const { return url_; }

private:
    void serve() {
        std::vector<pollfd> waits;
        for (;;) {
            waits.assign({{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
            for (const Client& client : clients_) {
                const short event = client.answering() ? POLLOUT : POLLIN;
                waits.push_back({client.socket.get(), event, 0});
            }
            ::poll(waits.data(), waits.size(), clients_.empty() ? -1 : 100);
            if (waits[0].revents != 0) return;
            std::size_t at = 2;
            for (auto client = clients_.begin(); client != clients_.end(); ++at) {
                const bool done = waits[at].revents != 0 ? advance(*client) : false;
                const bool late = Clock::now() >= client->deadline;
                client = done || late ? clients_.erase(client) : std::next(client);
            }
            if (waits[1].revents != 0) accept_clients();
        }
    }

    void accept_clients() {
        for (std::size_t i = 0; i < most_clients; ++i) {
            Descriptor socket{
                ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
            if (socket.get() < 0) return;
            if (clients_.size() >= most_clients) clients_.pop_front();
            clients_.push_back({std::move(socket), Clock::now() + client_deadline});
        }
    }

    /// @returns whether the connection is to be closed
    bool advance(Client& client) {
        return client.answering() ? write_some(client) : read_some(client);
    }

    bool read_some(Client& client) {
        char bytes[1024];
        const ssize_t got = ::recv(client.socket.get(), bytes, sizeof bytes, 0);
        if (got < 0) return errno != EAGAIN && errno != EINTR;
        if (got == 0) return true;
        client.request.append(bytes, static_cast<std::size_t>(got));
        const bool whole = client.request.find("\r\n\r\n") != std::string::npos;
        if (!whole && client.request.size() < most_request_bytes) return false;
        client.answer = whole ? answer_to(client.request)
                              : answer_with("431 Request Header Fields Too Large", "");
        return write_some(client);
    }

    static bool write_some(Client& client) {
        const std::string_view left = std::string_view{client.answer}.substr(client.written);
        const ssize_t sent =
            ::send(client.socket.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) return errno != EAGAIN && errno != EINTR;
        client.written += static_cast<std::size_t>(sent);
        return client.written == client.answer.size();
    }

    std::string answer_to(std::string_view request) {
        if (!request.starts_with("GET ")) return answer_with("405 Method Not Allowed", "");
        const std::string_view target = request.substr(4, request.find(' ', 4) - 4);
        if (target.substr(0, target.find('?')) != "/metrics") {
            return answer_with("404 Not Found", "metrics are at /metrics\n");
        }
        const auto now = Clock::now();
        if (!text_ || now - made_ > text_age) {
            text_ = prometheus_text(read_attached_reports(folder_), labels_);
            made_ = now;
        }
        return answer_with("200 OK", *text_);
    }

    std::filesystem::path folder_;
    MetricLabels labels_;
    Descriptor listener_;
    Descriptor stop_;
    std::string url_;
    std::list<Client> clients_;
    std::optional<std::string> text_;
    Clock::time_point made_;
    std::thread thread_;
};

MetricsServer::MetricsServer(const std::string& place, std::filesystem::path folder,
                             MetricLabels labels)
    : loop_{std::make_unique<Loop>(place, std::move(folder), std::move(labels))} {}
MetricsServer::~MetricsServer() = default;

const std::string& MetricsServer::url() const { return loop_->url(); }

}  // namespace cli
