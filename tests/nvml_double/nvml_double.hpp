// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The inside of a double of libnvidia-ml: one board, whose state tests read and spoil. It is a
/// shared library of its own, loaded by path like the real one; `nvml_double()` hands out its
/// state.
namespace nvml_double {

/// From which call on a function fails, with which code, and whether it acts all the same.
struct Fault {
    int code = 0;
    bool acts_all_the_same = false;
    int spared_calls = 0;  ///< so many calls succeed first
};

struct PowerSample {
    std::uint64_t time_us = 0;
    unsigned milliwatts = 0;
};

/// A process with a compute context.
struct Process {
    unsigned id = 0;
    unsigned use = 0;  ///< of the cores, per cent; since when is the caller's
};

/// The lowest and highest clock in MHz that are allowed, or none: a test looks while another
/// thread sets it.
class ClockLock {
public:
    using Range = std::optional<std::pair<unsigned, unsigned>>;

    ClockLock() = default;
    ClockLock(const ClockLock& other) : word_{other.word_.load()} {}
    ClockLock& operator=(const ClockLock& other) { return *this = Range{other}; }
    ClockLock& operator=(const Range& range) {
        word_ = range ? std::uint64_t{range->first} << 32U | range->second : none;
        return *this;
    }
    ClockLock& operator=(const std::pair<unsigned, unsigned>& range) {
        return *this = Range{range};
    }
    void reset() { word_ = none; }

    operator Range() const {
        const std::uint64_t word = word_;
        if (word == none) return std::nullopt;
        return std::pair{static_cast<unsigned>(word >> 32U), static_cast<unsigned>(word)};
    }
    explicit operator bool() const { return word_ != none; }
    Range operator->() const { return *this; }
    friend bool operator==(const ClockLock& lock, const Range& range) {
        return Range{lock} == range;
    }

private:
    static constexpr std::uint64_t none = ~std::uint64_t{0};
    std::atomic<std::uint64_t> word_{none};
};

struct Board {
    std::string address = "0000:1b:00.0";
    std::string name = "Double of an NVIDIA GPU";
    std::string driver = "580.95.05";
    std::map<unsigned, std::vector<unsigned>> core_clocks_by_memory = {
        {2619, {1980, 1500, 1000, 210}}, {405, {420, 210}}};
    ClockLock core_lock;
    ClockLock memory_lock;
    unsigned wished_core = 1980;  ///< what the board would run at without a lock
    unsigned wished_memory = 2619;
    std::uint64_t limit_reasons = 0;
    std::uint64_t millijoules = 0;
    /// Called before the counter or the power is read: a board counts on whatever becomes of the
    /// threads that stand for it.
    void (*before_read)() = nullptr;
    unsigned milliwatts = 0;
    unsigned power_limit = 700'000;  ///< milliwatts
    std::vector<PowerSample> samples;
    std::optional<std::vector<Process>> processes;  ///< none: this one, at work
    std::uint32_t power_profiles = 0;  ///< the first 32 that it knows, as bits; 0: it knows none
    std::uint32_t requested_profiles = 0;
    std::uint32_t enforced_profiles = 0;

    std::map<std::string, Fault> faults;  ///< by the function's name
    std::vector<std::string> writes;      ///< every setting call, refused ones too, in order
    int starts = 0;                       ///< nvmlInit_v2 less nvmlShutdown
};

}  // namespace nvml_double

extern "C" nvml_double::Board* nvml_double_board();
