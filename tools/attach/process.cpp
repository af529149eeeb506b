// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/json_writer.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/io/text_stream.hpp>
#include <kdvfs/error.hpp>
#include <tools/attach/pipeline.hpp>
#include <tools/attach/process.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <thread>
#include <utility>

namespace attach {
namespace {

/// The command line, as the system shows it.
std::string command_line() {
    std::ifstream file{"/proc/self/cmdline", std::ios::binary};
    std::string text{std::istreambuf_iterator<char>{file}, {}};
    std::replace(text.begin(), text.end(), '\0', ' ');
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text.substr(0, 4096);
}

std::string host_name() {
    char name[256] = "";
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

/// The time of day, in seconds since 1970.
double now_s() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

/// The report is written, and GPUs are let go, before the objects of what is loaded by now end.
void end_at_exit() {
    std::atexit([] { Process::instance().end(); });
}

/// CPU time of this thread, s.
double thread_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

void run_beside(std::function<void()> work) noexcept {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread{std::move(work)}.detach();
    } catch (const std::exception&) {  // the program is not to suffer
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Process& Process::instance() {
    static auto& process = *new Process;
    return process;
}

Process::Process() : generation_{kdvfs::io::fork_generation()}, begin_s_{now_s()} {
    try {
        settings_ = Settings::from_environment();
        off_ = settings_.off;
    } catch (const std::exception& error) {
        give_up(error.what());
    }
    end_at_exit();
}

bool Process::runs() const noexcept {
    return !off_.load(std::memory_order_relaxed) && !ended_.load(std::memory_order_relaxed) &&
           kdvfs::io::fork_generation() == generation_;
}

Device& Process::add(std::unique_ptr<Device> device) {
    const std::lock_guard lock{mutex_};
    // Without it there is only the report at the end.
    if (!std::exchange(keeps_house_, true)) run_beside([this] { keep_house(); });
    if (meter_every_) device->meter_every(*meter_every_);
    if (stays_up_) device->stay_up();
    end_at_exit();  // the board's library was loaded just now
    return *devices_.emplace_back(std::move(device));
}

void Process::note(const std::string& text) noexcept {
    try {
        const std::lock_guard lock{mutex_};
        if (std::find(notes_.begin(), notes_.end(), text) != notes_.end()) return;
        notes_.push_back(text);
        if (!settings_.folder.empty()) return;
        const std::string line = "kdvfs: " + text + '\n';
        static_cast<void>(kdvfs::io::write_all(STDERR_FILENO, line));
    } catch (...) {  // a note is not worth the program
    }
}

void Process::note_again(std::string_view beginning, const std::string& text) {
    const std::lock_guard lock{mutex_};
    const auto before = std::find_if(notes_.begin(), notes_.end(), [&](const std::string& each) {
        return each.starts_with(beginning);
    });
    if (before == notes_.end()) {
        notes_.push_back(text);
    } else {
        *before = text;
    }
}

void Process::before_report(std::function<void(bool)> bring_in) {
    const std::lock_guard lock{mutex_};
    end_at_exit();  // so was the library that the records come from
    bring_in_.push_back(std::move(bring_in));
}

void Process::stay_up(const std::string& why) noexcept {
    stays_up_ = true;
    try {
        for (Device* device : devices()) device->stay_up();
        note(why);
    } catch (const std::exception& error) {
        note(error.what());
    }
}

void Process::give_up(const std::string& why) noexcept {
    if (off_.exchange(true)) return;
    // Launches are not looked at any more.
    if (settings_.drives_clocks()) stay_up("the clock stays up from here on");
    try {
        note("the program runs on without kdvfs: " + why);
    } catch (...) {  // no memory for a text
    }
}

void Process::range_begins(std::string_view name) {
    if (settings_.iteration.empty() || name != settings_.iteration) return;
    for (Device* device : devices()) {
        device->begin_iteration();
        if (device->pipeline() != nullptr) device->pipeline()->begin_iteration();
    }
}

void Process::meter_every(unsigned every) {
    const std::lock_guard lock{mutex_};
    meter_every_ = every;  // of GPUs that come later, too
    for (const auto& device : devices_) device->meter_every(every);
}

void Process::repeating(std::string_view kernel) {
    const std::lock_guard lock{repeating_};
    repeated_ = kernel;
    if (!repeated_.empty()) repeats_ = true;
    repeating_since_ = std::chrono::steady_clock::now();
    if (settings_.folder.empty()) return;
    if (!repeating_file_.is_open()) {
        const auto path = settings_.folder / ("repeating." + std::to_string(::getpid()));
        repeating_file_ = kdvfs::io::Descriptor{
            ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
        if (!repeating_file_.is_open()) {
            kdvfs::io::throw_file_error("open a file", path, errno);
        }
    }
    const int file = repeating_file_.get();
    if (::ftruncate(file, 0) != 0 || ::lseek(file, 0, SEEK_SET) != 0 ||
        kdvfs::io::write_all(file, repeated_) != 0) {
        kdvfs::io::throw_file_error("write a file", kdvfs::io::path_of(file), errno);
    }
}

void Process::repeating_failed() noexcept {
    const std::lock_guard lock{repeating_};
    repeated_.clear();
}

/// The kernel waits for something that will not come: the process cannot go on. The caller holds
/// the lock.
void Process::end_where_repeating_hangs() noexcept {
    if (repeated_.empty()) return;
    if (std::chrono::steady_clock::now() - repeating_since_ < settings_.patience) return;
    try {
        const std::string line = "kdvfs: kernel '" + repeated_ + "' hangs when it is repeated\n";
        static_cast<void>(kdvfs::io::write_all(STDERR_FILENO, line));
    } catch (const std::exception&) {  // no memory for a text
    }
    std::_Exit(EXIT_FAILURE);
}

void Process::keep_house() noexcept {
    using Clock = std::chrono::steady_clock;
    Clock::time_point due = Clock::now() + std::chrono::seconds{1};
    while (!ended_) {
        bool wanted = false;
        bool repeats = false;
        {
            std::unique_lock lock{repeating_};
            wanted_.wait_for(lock, std::chrono::seconds{1}, [this] { return records_wanted_; });
            wanted = std::exchange(records_wanted_, false) || repeated_.empty();
            // Between kernels that are repeated one after the other a report would delay the next.
            const bool rests =
                repeated_.empty() &&
                std::chrono::steady_clock::now() - repeating_since_ > std::chrono::seconds{1};
            repeats = repeats_ && !rests;
            if (ended_) break;
            end_where_repeating_hangs();
        }
        try {
            if (!repeats && Clock::now() >= due) {
                const double before = thread_seconds();
                write_report(false);
                // At most 1 % of a core, and each second where that is enough.
                const double pause = std::max(1.0, 100 * (thread_seconds() - before));
                due = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                         std::chrono::duration<double>{pause - 0.05});
            } else if (wanted) {
                bring_in_now();
            }
        } catch (const std::exception& error) {
            note(error.what());
        }
    }
    // CUPTI and the driver keep something of each thread that has called them, which goes with the
    // thread: once they have ended, such a thread must not end.
    while (true) ::pause();
}

/// Not once the process ends: the driver's libraries may be gone by then.
void Process::bring_in_now() {
    const std::lock_guard one_at_a_time{writing_};
    if (!ended_) bring_in(false);
}

void Process::want_records() {
    {
        const std::lock_guard lock{repeating_};
        records_wanted_ = true;
    }
    wanted_.notify_one();
}

void Process::bring_in(bool at_end) {
    std::vector<std::function<void(bool)>> calls;
    {
        const std::lock_guard lock{mutex_};
        calls = bring_in_;
    }
    for (const auto& call : calls) call(at_end);
}

std::vector<Device*> Process::devices() {
    const std::lock_guard lock{mutex_};
    std::vector<Device*> found;
    for (const auto& device : devices_) found.push_back(device.get());
    return found;
}

void Process::write_report(bool at_end) {
    const std::lock_guard one_at_a_time{writing_};
    if (!at_end && ended_) return;
    bring_in(at_end);
    const std::vector<Device*> devices = this->devices();
    std::vector<std::string> notes;
    {
        const std::lock_guard lock{mutex_};
        notes = notes_;
    }
    if (settings_.folder.empty()) {
        if (!at_end) return;
        kdvfs::io::TextStream text;
        for (Device* device : devices) text << device->report();
        static_cast<void>(kdvfs::io::write_all(STDERR_FILENO, text.str()));
        return;
    }
    std::string out;
    kdvfs::io::append_json(out, [&](kdvfs::io::JsonFields& fields) {
        const auto seconds = [](double time) {
            return kdvfs::io::JsonText{kdvfs::io::format_text("%.3f", time)};
        };
        fields("attached", 1)("pid", ::getpid())("host", host_name())("job", settings_.job);
        fields("begin_s", seconds(begin_s_))("end_s", seconds(now_s()));
        fields("command", command_line())("rank", settings_.launched.rank)("ended", at_end);
        std::vector<std::function<void(kdvfs::io::JsonFields&)>> each;
        for (Device* device : devices)
            each.emplace_back([=](auto& of_device) { device->write_fields(of_device, at_end); });
        fields("devices", each)("notes", notes);
    });
    kdvfs::io::write_file_atomically(
        settings_.folder / ("attached." + std::to_string(::getpid()) + ".json"), out + '\n');
}

void Process::end() noexcept {
    if (kdvfs::io::fork_generation() != generation_ || ended_.exchange(true)) return;
    try {
        bool any = false;
        {
            const std::lock_guard lock{mutex_};
            any = !devices_.empty() || !notes_.empty();
        }
        if (any) write_report(true);
    } catch (const std::exception& error) {
        note(error.what());
    }
    bool resolved = true;
    const auto attempt = [&](const auto& step) {
        try {
            step();
        } catch (const std::exception& error) {
            note(error.what());
            resolved = false;
        }
    };
    attempt([this] { write_records(); });
    attempt([this] {
        for (Device* device : devices()) device->close();
    });
    if (resolved) return;
    try {
        if (!settings_.folder.empty()) write_report(true);  // once more, with the note
    } catch (const std::exception&) {                       // it has been written once
    }
}

/// Of each device in a folder of its own, PID.NUMBER.
void Process::write_records() {
    if (settings_.record.empty()) return;
    std::size_t number = 0;
    for (Device* device : devices()) {
        device->write_record(settings_.record /
                             (std::to_string(::getpid()) + '.' + std::to_string(number++)));
    }
}

}  // namespace attach
