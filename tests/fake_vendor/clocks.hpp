// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <tests/fake_vendor/driver.hpp>
#include <tests/fake_vendor/readings.hpp>

#include <string>
#include <utility>

namespace acme {

/// An Acme board's core clock, set by its cap. Acme's integers stay in here.
class Clocks {
public:
    explicit Clocks(std::string board) : readings_{std::move(board)} {}

    [[nodiscard]] const kdvfs::DeviceInfo& info() const { return readings_.info(); }
    [[nodiscard]] const kdvfs::SupportedClocks& supported_clocks() const {
        return readings_.supported_clocks();
    }

    [[nodiscard]] kdvfs::ClockState read_clock_state() const {
        unsigned cap = 0;
        check("read the core cap", acme_driver::get_core_cap(readings_.board(), &cap));
        return state_of(cap);
    }
    void apply(kdvfs::ClockPoint point) { write(point.core); }
    void restore(const kdvfs::ClockState& state) { write(state.cap.core); }

    /// The same write as `restore`, by a shell: see `RestoreScript`.
    [[nodiscard]] kdvfs::RestoreScript restore_script() const {
        return {.kind = "acme",
                .functions = restore_functions,
                .arguments = {readings_.board() + "/core_cap"}};
    }

private:
    // Words: the file with the board's cap.
    static constexpr const char* restore_functions = R"sh(
cap=$1

see() { IFS= read -r seen < "$cap"; }

holds() { [ "$seen" = "$held_core" ]; }

is_back() { [ "$seen" = "$found_core" ]; }

put_back() { echo "$found_core" > "$cap"; }
)sh";

    /// Acme says 0 where there is no cap.
    static kdvfs::ClockState state_of(unsigned cap) {
        kdvfs::ClockState state;
        state.cap.core = cap == 0 ? kdvfs::auto_clock : kdvfs::Megahertz{cap};
        state.mode = cap == 0 ? "auto" : "capped";
        return state;
    }

    void write(kdvfs::Megahertz cap) {
        check("set the core cap",
              acme_driver::set_core_cap(readings_.board(),
                                        cap == kdvfs::auto_clock ? 0U : cap.count));
    }

    void check(std::string action, acme_driver::Status status) const {
        if (status == acme_driver::success) return;
        throw kdvfs::Error{kdvfs::Errc::refused,
                           {.action = std::move(action),
                            .object = to_string(info()),
                            .vendor_words = acme_driver::words_of(status),
                            .remedy = "see whether an administrator has locked the board"}};
    }

    Readings readings_;
};

static_assert(kdvfs::Restorable<Clocks>);
static_assert(!kdvfs::ProbedControl<Clocks>, "there is one way to set clocks, and it is known");
static_assert(!kdvfs::AdoptingControl<Clocks>, "all that is held can be read back");

}  // namespace acme
