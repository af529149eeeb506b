// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/metrics.hpp>

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#if defined(KDVFS_HAS_HTTPLIB)
#include <httplib.h>

#include <sys/socket.h>
#endif

namespace cli {
namespace {

using nlohmann::json;

constexpr std::size_t most_kernels = 64;

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return text;
}

/// {name="value",...}, with what the format wants escaped.
std::string labels(const std::vector<std::pair<const char*, std::string>>& pairs) {
    std::string text;
    for (const auto& [name, value] : pairs) {
        text += text.empty() ? "{" : ",";
        text += std::string{name} + "=\"";
        for (const char c : value) {
            if (c == '\\' || c == '"') text += '\\';
            text += c == '\n' ? std::string{"\\n"} : std::string{c};
        }
        text += '"';
    }
    return text + '}';
}

/// A metric's lines: HELP and TYPE once, then its values.
class Metric {
public:
    Metric(std::string name, const char* type, const char* help) : name_{std::move(name)} {
        text_ = "# HELP " + name_ + ' ' + help + "\n# TYPE " + name_ + ' ' + type + '\n';
    }
    void add(const std::string& its_labels, double value) {
        text_ += name_ + its_labels + ' ' + number(value) + '\n';
        ++values_;
    }
    [[nodiscard]] std::string text() const { return values_ == 0 ? "" : text_; }

private:
    std::string name_;
    std::string text_;
    std::size_t values_ = 0;
};

/// What a kernel or range took on a board: of the process's report, or of the others together.
struct ThreadSlot {
    double seconds = 0;
    double launches = 0;
    detail::EnergySum energy{};
    void add(const json& row) {
        seconds += row.value("time_s", 0.0);
        launches += row.value("calls", 0.0);
        if (row.value("metered_calls", 0) > 0) energy.add(row["energy"]);
    }
    void add_runs(const json& level) {
        seconds += level.value("time_s", 0.0);
        launches += level.value("runs", 0.0);
        if (level.value("runs", 0) > 0) energy.add(level["energy"]);
    }
};

/// The ranges with most time; each sums up those in it, so that the others have no sum.
std::string range_text(const std::map<std::string, std::map<std::string, ThreadSlot>>& boards) {
    Metric energy{"kdvfs_range_energy_joules", "gauge", "Joules of the kernels in a range."};
    Metric half{"kdvfs_range_energy_half_width_joules", "gauge",
                "Half of the 95 % interval of kdvfs_range_energy_joules."};
    Metric seconds{"kdvfs_range_seconds_total", "counter",
                   "Time of the kernels in a range, metered."};
    Metric runs{"kdvfs_range_runs_total", "counter", "Runs of a range, metered."};
    for (const auto& [address, ranges] : boards) {
        std::vector<std::pair<const std::string*, const ThreadSlot*>> largest;
        for (const auto& [range, taken] : ranges) largest.emplace_back(&range, &taken);
        std::stable_sort(largest.begin(), largest.end(), [](const auto& a, const auto& b) {
            return a.second->seconds > b.second->seconds;
        });
        if (largest.size() > most_kernels) largest.resize(most_kernels);
        for (const auto& [range, taken] : largest) {
            const std::string its = labels({{"hw_id", address}, {"range", *range}});
            seconds.add(its, taken->seconds);
            runs.add(its, taken->launches);
            if (!taken->energy.resolved) continue;
            energy.add(its, taken->energy.joules);
            half.add(its, std::sqrt(taken->energy.variance));
        }
    }
    return energy.text() + half.text() + seconds.text() + runs.text();
}

}  // namespace

std::string prometheus_text(const std::vector<json>& processes) {
    using Kernel = std::pair<std::string, std::uint32_t>;
    std::map<std::string, std::map<Kernel, ThreadSlot>> boards;
    std::map<std::string, std::map<std::string, ThreadSlot>> ranges;  // by address and path
    std::map<std::string, std::pair<std::string, double>> counters;   // name and joules, by address
    for (const json& process : processes) {
        for (const json& device : process["devices"]) {
            const json& report = device["report"];
            const std::string address = report["device"].value("address", "");
            auto& kernels = boards[address];
            for (const json& row : report["rows"]) {
                kernels[{row.value("kernel", ""), row.value("variant", 0U)}].add(row);
            }
            for (const json& level : report.value("levels", json::array())) {
                if (level.value("level", "") == "scope") {
                    ranges[address][level.value("kernel", "")].add_runs(level);
                }
            }
            // Processes on one board see the same counter: the one that saw most of it counts.
            const json& totals = report["totals"];
            const double joules = totals.value("counter_j", 0.0) + totals.value("outside_j", 0.0);
            auto& [name, most] = counters[address];
            name = report["device"].value("name", "");
            most = std::max(most, joules);
        }
    }
    Metric processes_seen{"kdvfs_processes", "gauge", "Processes that have reported."};
    Metric board{"hw_energy_joules_total", "counter", "Joules by the board's energy counter."};
    Metric energy{"kdvfs_kernel_energy_joules", "gauge", "Joules of a kernel."};
    Metric half{"kdvfs_kernel_energy_half_width_joules", "gauge",
                "Half of the 95 % interval of kdvfs_kernel_energy_joules."};
    Metric seconds{"kdvfs_kernel_seconds_total", "counter", "Time of a kernel, metered."};
    Metric launches{"kdvfs_kernel_launches_total", "counter", "Launches of a kernel."};
    processes_seen.add("", static_cast<double>(processes.size()));
    for (const auto& [address, counter] : counters) {
        board.add(labels({{"hw_id", address}, {"hw_type", "gpu"}, {"hw_name", counter.first}}),
                  counter.second);
    }
    for (const auto& [address, kernels] : boards) {
        std::vector<std::pair<const Kernel*, ThreadSlot>> rows;
        for (const auto& [kernel, taken] : kernels) rows.emplace_back(&kernel, taken);
        std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
            return a.second.seconds > b.second.seconds;
        });
        ThreadSlot others;
        for (std::size_t i = most_kernels; i < rows.size(); ++i) {
            const ThreadSlot& each = rows[i].second;
            others.seconds += each.seconds;
            others.launches += each.launches;
            others.energy.add(each.energy);
        }
        const Kernel rest{"(others)", 0};
        if (rows.size() > most_kernels) {
            rows.resize(most_kernels);
            rows.emplace_back(&rest, others);
        }
        for (const auto& [kernel, taken] : rows) {
            const std::string its = labels({{"hw_id", address},
                                            {"kernel", kernel->first},
                                            {"variant", std::to_string(kernel->second)}});
            seconds.add(its, taken.seconds);
            launches.add(its, taken.launches);
            if (!taken.energy.resolved) continue;
            energy.add(its, taken.energy.joules);
            half.add(its, std::sqrt(taken.energy.variance));
        }
    }
    return processes_seen.text() + board.text() + energy.text() + half.text() + seconds.text() +
           launches.text() + range_text(ranges);
}

#if defined(KDVFS_HAS_HTTPLIB)

struct MetricsServer::Inside {
    httplib::Server server;
    std::string url;
    std::thread thread;
};

MetricsServer::MetricsServer(const std::string& place, std::filesystem::path folder)
    : inside_{std::make_unique<Inside>()} {
    const auto refuse = [&](kdvfs::Errc code, const char* why, const char* remedy) {
        throw kdvfs::Error{code, {"serve metrics", place, why, remedy}};
    };
    const std::size_t colon = place.rfind(':');
    const std::string address = colon == std::string::npos ? "127.0.0.1" : place.substr(0, colon);
    const std::string_view port =
        std::string_view{place}.substr(colon == std::string::npos ? 0 : colon + 1);
    int wanted = -1;
    const char* const end = port.data() + port.size();
    const auto read = std::from_chars(port.data(), end, wanted);
    if (read.ec != std::errc{} || read.ptr != end || wanted < 0 || wanted > 65535) {
        refuse(kdvfs::Errc::invalid_input, "this is no port", "give a number, 9400 say");
    }
    inside_->server.Get("/metrics", [folder = std::move(folder)](const httplib::Request&,
                                                                 httplib::Response& answer) {
        answer.set_content(prometheus_text(read_attached_reports(folder)),
                           "text/plain; version=0.0.4; charset=utf-8");
    });
    // Not with SO_REUSEPORT, as is usual there: two runs would share a port, and each would answer
    // for the other.
    inside_->server.set_socket_options([](auto socket) {
        const int yes = 1;
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    const int taken = wanted == 0 ? inside_->server.bind_to_any_port(address)
                      : inside_->server.bind_to_port(address, wanted) ? wanted
                                                                      : -1;
    if (taken < 0) {
        refuse(kdvfs::Errc::busy, "nothing can listen there", "give another port");
    }
    inside_->url = "http://" + address + ':' + std::to_string(taken) + "/metrics";
    // Signals are for the thread that waits for the program.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    inside_->thread = std::thread{[this] { inside_->server.listen_after_bind(); }};
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    while (!inside_->server.is_running()) std::this_thread::yield();
}

MetricsServer::~MetricsServer() {
    inside_->server.stop();
    inside_->thread.join();
}

#else

struct MetricsServer::Inside {
    std::string url;
};

MetricsServer::MetricsServer(const std::string& place, std::filesystem::path) {
    throw kdvfs::Error{kdvfs::Errc::not_supported,
                       {"serve metrics", place, "this command was built without cpp-httplib",
                        "build it where that is (Debian: libcpp-httplib-dev)"}};
}

MetricsServer::~MetricsServer() = default;

#endif

const std::string& MetricsServer::url() const { return inside_->url; }

}  // namespace cli
