// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <tools/attach/device.hpp>
#include <tools/attach/settings.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attach {

/// Runs something on a thread of its own, which takes none of the program's signals; not at all
/// where no thread can be had.
void run_beside(std::function<void()> work) noexcept;

/// This process as one that is attached: what it is told, its GPUs, what could not be done, and
/// its report, which is written when the process ends, and every second where there is a folder for
/// it. Never destroyed: launches may come until the very end. Thread-safe.
class Process {
public:
    static Process& instance();

    [[nodiscard]] const Settings& settings() const { return settings_; }

    /// Whether launches are to be looked at: not after the end, not in a forked child, and not
    /// where attaching is off.
    [[nodiscard]] bool runs() const noexcept;

    /// Takes a GPU in. Valid until the process ends.
    Device& add(std::unique_ptr<Device> device);

    /// What a reader of the report must know; each text is kept once, and where no report is
    /// written to a folder it is said at once, on standard error.
    void note(const std::string& text) noexcept;
    /// The same for what grows: the note that begins so is replaced.
    void note_again(std::string_view beginning, const std::string& text);

    /// Called before each report, to bring in what is still on its way; at the end with true.
    void before_report(std::function<void(bool at_end)> bring_in);
    /// Somebody waits for what is on its way: it is brought in soon, on another thread.
    void want_records();

    /// There may be work that no launch was seen of: clocks for the time without work are given up.
    void stay_up(const std::string& why) noexcept;

    /// Attaching has failed for good: the program runs plain from here on.
    void give_up(const std::string& why) noexcept;

    /// A range of this name begins; an iteration, where the settings say so.
    void range_begins(std::string_view name);

    /// A kernel is repeated from here on; an empty name: none is any more. While kernels are
    /// repeated one after the other no report is written: it takes tens of milliseconds, in which a
    /// kernel that is repeated waits. A process that does not live to say so leaves the name
    /// behind, in `repeating.PID` in its folder; one that says nothing for longer than the
    /// settings' patience is ended.
    void repeating(std::string_view kernel);
    /// Repeating it has failed: its name stays where it is, and the process may go on.
    void repeating_failed() noexcept;

    /// For programs that compare: meters one iteration in so many, 0 none.
    void meter_every(unsigned every);

    /// Writes the last report and lets the GPUs go. Called at the end of the process.
    void end() noexcept;

private:
    Process();

    [[noreturn]] void keep_house() noexcept;
    void bring_in(bool at_end);
    void bring_in_now();
    [[nodiscard]] std::vector<Device*> devices();
    void write_records();
    void end_where_repeating_hangs() noexcept;
    void write_report(bool at_end);

    Settings settings_;
    const std::uint32_t generation_;
    const double begin_s_;  ///< in seconds since 1970
    std::atomic<bool> off_{false};
    std::atomic<bool> ended_{false};
    std::atomic<bool> stays_up_{false};

    std::mutex mutex_;
    std::deque<std::unique_ptr<Device>> devices_;
    std::vector<std::string> notes_;
    std::vector<std::function<void(bool)>> bring_in_;
    bool keeps_house_ = false;
    std::optional<unsigned> meter_every_;
    std::mutex writing_;

    std::mutex repeating_;
    kdvfs::io::Descriptor repeating_file_;
    std::string repeated_;
    bool repeats_ = false;  // some kernel has been repeated
    bool records_wanted_ = false;
    std::condition_variable wanted_;
    std::chrono::steady_clock::time_point repeating_since_{};
};

}  // namespace attach
