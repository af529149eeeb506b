// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs {

/// A device in the test's hand: does what it is told, and fails as it is told.
class BoardDouble {
public:
    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return clocks; }

    ClockState read_clock_state() {
        calls.emplace_back("read");
        fail(on_read);
        return state;
    }
    void apply(ClockPoint point) {
        calls.push_back("apply " + to_string(point));
        fail(on_apply);
        if (deaf) return;
        state.cap = point;
        state.mode = point.is_auto() ? "auto" : "capped";
        fail(after_apply);
    }
    void restore(const ClockState& to) {
        calls.push_back("restore " + to_string(to.cap));
        fail(on_restore);
        if (deaf_to_restore) return;
        state = to;
        fail(after_restore);
    }

    ClockState state{};
    SupportedClocks clocks{.core = {.listed = {500_MHz, 1000_MHz, 1500_MHz}}};
    std::vector<std::string> calls;
    bool deaf = false;             ///< accepts caps and does nothing
    bool deaf_to_restore = false;  ///< the same for restoring

    // Called where they are set: they may throw and may change `state`.
    std::function<void()> on_read;
    std::function<void()> on_apply;
    std::function<void()> after_apply;
    std::function<void()> on_restore;
    std::function<void()> after_restore;

private:
    static void fail(const std::function<void()>& how) {
        if (how) how();
    }

    DeviceInfo info_{.name = "Test Board", .address = "0000:03:00.0"};
};

static_assert(ClockControl<BoardDouble>);

/// What a driver says when it will not.
inline Error board_error(Errc code) {
    return Error{code, {.action = "set", .object = "board", .vendor_words = "STATUS_NO"}};
}

inline std::function<void()> throws(Errc code) {
    return [code] { throw board_error(code); };
}

}  // namespace kdvfs
