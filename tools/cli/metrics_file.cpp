// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <tools/cli/attached_reports.hpp>
#include <tools/cli/metrics.hpp>

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <exception>
#include <iostream>
#include <system_error>
#include <utility>

namespace cli {

MetricsFile::MetricsFile(std::filesystem::path file, std::filesystem::path folder,
                         MetricLabels labels)
    : file_{std::move(file)}, folder_{std::move(folder)}, labels_{std::move(labels)} {
    if (file_.extension() != ".prom") {
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"write metrics", file_.string(),
                            "node_exporter reads files that end in .prom", "call it .prom"}};
    }
    write();
    // Signals are for the thread that waits for the program.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread{[this] { keep_writing(); }};
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

MetricsFile::~MetricsFile() {
    {
        const std::lock_guard lock{mutex_};
        ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
}

void MetricsFile::write() const {
    kdvfs::io::write_file_atomically(file_,
                                     prometheus_text(read_attached_reports(folder_), labels_));
}

void MetricsFile::keep_writing() noexcept {
    constexpr std::chrono::seconds every{5};
    bool complained = false;
    std::unique_lock lock{mutex_};
    while (!changed_.wait_for(lock, every, [this] { return ends_; })) {
        try {
            write();
        } catch (const std::exception& error) {  // the program goes on
            if (!std::exchange(complained, true)) std::cerr << "kdvfs: " << error.what() << '\n';
        }
    }
}

}  // namespace cli
