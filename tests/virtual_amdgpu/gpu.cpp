// SPDX-License-Identifier: MIT
#include "gpu.hpp"

#include "metrics_image.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace virtual_amdgpu {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

constexpr std::chrono::milliseconds sample_period{1};

std::chrono::nanoseconds monotonic_now() {
    return std::chrono::steady_clock::now().time_since_epoch();
}

/// The numbers of a text, or nothing where there is anything else in it.
std::optional<std::vector<unsigned>> numbers(std::string_view text) {
    std::vector<unsigned> found;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end) {
        if (*at == ' ' || *at == '\n') {
            ++at;
            continue;
        }
        unsigned value = 0;
        const auto [next, error] = std::from_chars(at, end, value);
        if (error != std::errc{}) return std::nullopt;
        found.push_back(value);
        at = next;
    }
    return found;
}

std::string level_lines(const std::vector<unsigned>& clocks, unsigned current) {
    std::string text;
    for (std::size_t i = 0; i < clocks.size(); ++i) {
        text += std::to_string(i) + ": " + std::to_string(clocks[i]) + "Mhz ";
        text += clocks[i] == current ? "*\n" : "\n";
    }
    return text;
}

}  // namespace

Gpu::Gpu(Board board) : board_{std::move(board)}, now_{monotonic_now} {
    integrated_to_ = now_();
    reset();
}

void Gpu::reset() {
    const Lock lock{mutex_};
    const double cap = board_.secondary_die ? 0 : board_.power_cap_watts;
    settings_ = {"auto",
                 {board_.core_min, board_.core_max},
                 board_.memory.back(),
                 static_cast<std::uint64_t>(cap * 1e6)};
    custom_core_ = {};
    custom_memory_ = 0;
}

Settings Gpu::settings() const {
    const Lock lock{mutex_};
    return settings_;
}

void Gpu::spend_read_time() const {
    const Lock lock{mutex_};
    if (read_time_.count() > 0) std::this_thread::sleep_for(read_time_);
}

void Gpu::spend_write_time() const {
    const Lock lock{mutex_};
    if (write_time_.count() > 0) std::this_thread::sleep_for(write_time_);
}

void Gpu::set_access_time(Nanoseconds read, Nanoseconds write) {
    const Lock lock{mutex_};
    read_time_ = read;
    write_time_ = write;
}

void Gpu::set_core_levels_text(std::string text) {
    const Lock lock{mutex_};
    core_levels_text_ = std::move(text);
}

void Gpu::freeze_counter(bool frozen) {
    const Lock lock{mutex_};
    advance();
    frozen_ = frozen;
}

void Gpu::set_ailments(const Ailments& ailments) {
    const Lock lock{mutex_};
    advance();
    ailments_ = ailments;
}

void Gpu::set_time_source(std::function<Nanoseconds()> now) {
    const Lock lock{mutex_};
    advance();
    now_ = std::move(now);
    integrated_to_ = now_();
    sampled_at_ = integrated_to_;
    sampled_joules_ = joules_;
}

void Gpu::set_busy(double busy) {
    const Lock lock{mutex_};
    advance();
    busy_ = busy;
}

unsigned Gpu::clock_now(double busy) const {
    if (ailments_.stuck_clock && busy > 0) return board_.core_max;
    return busy > 0 ? settings_.core.max : settings_.core.min;
}

unsigned Gpu::running_clock() const {
    const Lock lock{mutex_};
    return clock_now(1);
}

// A third of the dynamic power goes with f, the rest with f^3, the voltage following the clock.
double Gpu::watts() const {
    const Lock lock{mutex_};
    const double relative = static_cast<double>(clock_now(busy_)) / board_.core_max;
    const double dynamic = board_.power_cap_watts * 0.95 - board_.idle_watts;
    const double wanted =
        board_.idle_watts + dynamic * busy_ * (relative + 2 * std::pow(relative, 3)) / 3;
    const double most =
        board_.points.empty() ? board_.power_cap_watts : 1.0 * board_.points[settings_.point];
    return std::min(wanted, most);
}

void Gpu::advance() {
    const auto now = now_();
    if (now <= integrated_to_) return;
    const auto joules_until = [&](Nanoseconds time) {
        return joules_ + watts() * std::chrono::duration<double>(time - integrated_to_).count();
    };
    const auto sample = now - now % (sample_period * (ailments_.slow_counter ? 50 : 1));
    if (sample > integrated_to_ && !frozen_) {
        sampled_joules_ = joules_until(sample);
        sampled_at_ = sample;
    }
    joules_ = joules_until(now);
    integrated_to_ = now;
}

double Gpu::joules() {
    const Lock lock{mutex_};
    advance();
    return joules_;
}

std::string Gpu::performance_level() const {
    const Lock lock{mutex_};
    return settings_.level + "\n";
}

std::string Gpu::core_levels() const {
    const Lock lock{mutex_};
    if (!core_levels_text_.empty()) return core_levels_text_;
    const auto [min, max] = settings_.core;
    if (!board_.levels.empty()) return level_lines(board_.levels, clock_now(busy_));
    if (board_.deep_sleep_line && busy_ == 0) {
        return "S: 19Mhz *\n" + level_lines({min, max}, 0);
    }
    const unsigned current = clock_now(busy_);
    if (current > min && current < max) return level_lines({min, current, max}, current);
    return level_lines({min, max}, current);
}

std::string Gpu::memory_levels() const {
    const Lock lock{mutex_};
    return level_lines(board_.memory, settings_.memory_max);
}

std::string Gpu::overdrive_table() const {
    const Lock lock{mutex_};
    const auto [min, max] = settings_.core;
    if (!board_.overdrive_headings)
        return "GFXCLK:\n" + core_levels() + "MCLK:\n" + memory_levels();
    const auto pair = [](unsigned low, unsigned high) {
        return "0: " + std::to_string(low) + "Mhz\n1: " + std::to_string(high) + "Mhz\n";
    };
    return "OD_SCLK:\n" + pair(min, max) + "OD_MCLK:\n" +
           pair(board_.memory.front(), settings_.memory_max);
}

std::string Gpu::metrics() {
    const Lock lock{mutex_};
    advance();
    MetricsSample sample;
    sample.watts = board_.secondary_die ? 0 : watts();
    sample.joules = board_.secondary_die ? 0 : sampled_joules_;
    if (second_die_ != nullptr) {
        sample.joules += second_die_->sampled_joules();
        sample.watts += second_die_->watts();
    }
    if (ailments_.inflated_counter) sample.joules *= 1.5;
    if (ailments_.coarse_counter) sample.joules = std::floor(sample.joules);
    sample.sampled_at = sampled_at_;
    sample.read_at = now_();
    sample.core_mhz = clock_now(busy_);
    if (ailments_.unknown_metrics) return AttributeTable{}.image().replace(3, 1, 1, '\x0a');
    if (board_.metrics_content == 9) return self_describing_image(sample, board_.counts_energy);
    return metrics_image(board_.metrics_content, sample);
}

double Gpu::sampled_joules() {
    const Lock lock{mutex_};
    advance();
    return sampled_joules_;
}

void Gpu::count_for(Gpu& second_die) {
    const Lock lock{mutex_};
    second_die_ = &second_die;
}

std::string Gpu::average_power() const {
    const Lock lock{mutex_};
    const double shown = board_.secondary_die ? 0 : watts();
    return std::to_string(static_cast<std::uint64_t>(shown * 1e6)) + "\n";
}

std::string Gpu::power_cap() const {
    const Lock lock{mutex_};
    return std::to_string(settings_.power_cap_microwatts) + "\n";
}

std::string Gpu::active_point() const {
    const Lock lock{mutex_};
    return std::to_string(settings_.point) + "\n";
}

int Gpu::write_active_point(std::string_view text) {
    const Lock lock{mutex_};
    advance();
    const auto point = numbers(text);
    if (!point || point->size() != 1 || point->front() >= board_.points.size()) return EINVAL;
    if (!ailments_.deaf) settings_.point = point->front();
    return 0;
}

int Gpu::write_performance_level(std::string_view text) {
    static constexpr std::array<std::string_view, 10> levels{"low",
                                                             "high",
                                                             "auto",
                                                             "manual",
                                                             "profile_exit",
                                                             "profile_standard",
                                                             "profile_peak",
                                                             "profile_min_sclk",
                                                             "profile_min_mclk",
                                                             "perf_determinism"};
    const Lock lock{mutex_};
    advance();
    if (text.ends_with('\n')) text.remove_suffix(1);
    if (std::find(levels.begin(), levels.end(), text) == levels.end()) return EINVAL;
    const bool common = text == "auto" || text == "manual";
    const bool clings = ailments_.clinging != 0 && settings_.core.max == ailments_.clinging;
    if (clings && text == "auto") return EINVAL;
    if (text == "perf_determinism" && !board_.determinism) return EOPNOTSUPP;
    if (board_.overdrive_headings && !common && text != "perf_determinism") return EOPNOTSUPP;
    if (settings_.level == "perf_determinism" && text != "perf_determinism") {
        settings_.core = {board_.core_min, board_.core_max};  // DisableDeterminism
    }
    const auto [min, max] = Limits{board_.core_min, board_.core_max};
    if (text == "auto" && !board_.table_stays) {
        settings_.core = {min, max};
        settings_.memory_max = board_.memory.back();
    } else if (text == "high" || text == "profile_peak" || text == "profile_standard") {
        settings_.core = {max, max};
    } else if (text == "low" || text == "profile_min_sclk") {
        settings_.core = {min, min};
    } else if (text == "profile_min_mclk") {
        settings_.core = {min, max};
    }
    settings_.level = text;
    return 0;
}

int Gpu::write_core_levels(std::string_view text) {
    const Lock lock{mutex_};
    advance();
    const auto levels = numbers(text);
    if (!levels || levels->empty()) return EINVAL;
    if (!board_.level_mask || settings_.level != "manual") return EINVAL;
    const auto [low, high] = std::minmax_element(levels->begin(), levels->end());
    const std::vector<unsigned> clocks =
        board_.levels.empty() ? std::vector{board_.core_min, board_.core_max} : board_.levels;
    if (*high >= clocks.size()) return EINVAL;
    settings_.core = {clocks[*low], clocks[*high]};
    return 0;
}

int Gpu::write_overdrive(std::string_view text) {
    const Lock lock{mutex_};
    advance();
    if (text.empty() || text.size() > 127) return EINVAL;
    if (settings_.level != "manual" && settings_.level != "perf_determinism") return EINVAL;
    const auto arguments = numbers(text.substr(1));
    if (!arguments) return EINVAL;
    const char command = text.front();
    if (command == 'c') return arguments->empty() ? commit() : EINVAL;
    if (command == 'r') return set_core_limits({board_.core_min, board_.core_max});
    if ((command != 's' && command != 'm') || arguments->size() != 2) return EINVAL;
    return edit(command, (*arguments)[0], (*arguments)[1]);
}

int Gpu::edit(char table, unsigned index, unsigned clock) {
    if (index > 1) return EINVAL;
    if (table == 'm') {
        if (!board_.memory_cap || index == 0 || clock > board_.memory.back()) return EINVAL;
        custom_memory_ = clock;
        memory_edited_ = true;
        return 0;
    }
    const Limits present = settings_.core;
    if (index == 0) {
        if (clock < board_.core_min) return EINVAL;
        if (board_.range_checked_at_each_write && clock >= present.max) return EINVAL;
        custom_core_.min = clock;
    } else {
        if (clock > board_.core_max) return EINVAL;
        if (board_.range_checked_at_each_write && clock <= present.min) return EINVAL;
        custom_core_.max = clock;
    }
    return 0;
}

int Gpu::commit() {
    if (custom_core_.min == 0) custom_core_.min = settings_.core.min;
    if (custom_core_.max == 0) custom_core_.max = settings_.core.max;
    if (const int error = set_core_limits(custom_core_)) return error;
    if (custom_memory_ != 0 && settings_.level == "manual") {
        settings_.memory_max = custom_memory_;
        const bool is_cap = memory_edited_ && custom_memory_ < board_.memory.back();
        if (is_cap && (board_.memory_resets_core || ailments_.mixes_domains)) {
            settings_.core = {board_.core_min, board_.core_max};
        }
        memory_edited_ = false;
    }
    return 0;
}

int Gpu::set_core_limits(Limits wanted) {
    if (ailments_.deaf) return 0;
    if (settings_.level == "manual") {
        if (wanted.min >= wanted.max) return EINVAL;
        settings_.core = wanted;
        return 0;
    }
    if (wanted.max < board_.core_min || wanted.max > board_.core_max) return EINVAL;
    settings_.core = {board_.core_min, wanted.max};
    return 0;
}

int Gpu::write_power_cap(std::string_view text) {
    const Lock lock{mutex_};
    advance();
    std::uint64_t microwatts = 0;
    const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), microwatts);
    if (error != std::errc{} || next == text.data()) return EINVAL;
    if (static_cast<double>(microwatts) > board_.power_cap_watts * 1e6) return EINVAL;
    settings_.power_cap_microwatts = microwatts;
    return 0;
}

}  // namespace virtual_amdgpu
