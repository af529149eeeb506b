// SPDX-License-Identifier: MIT
//
// Every access of every call, failing with every errno, through sysfs and through the real ROCm
// SMI: each case must end in an `Error` and, once the fault is gone, in the state found before.
#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/device/amd/clocks.hpp>

#include <tests/amdgpu/by_library.hpp>
#include <tests/virtual_amdgpu/interpose.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace kdvfs::device {
namespace {

using namespace kdvfs::literals;
using virtual_amdgpu::Access;
using virtual_amdgpu::Fault;
using virtual_amdgpu::Machine;
using virtual_amdgpu::Mounted;

struct Case {
    std::string device;
    std::string call;
    Fault fault;
};

std::string to_string(Access access) {
    switch (access) {
        case Access::open: return "open";
        case Access::read: return "read";
        case Access::write: return "write";
    }
    return "?";
}

std::string to_string(const Case& tried) {
    return tried.device + " " + tried.call + ": " + to_string(tried.fault.access) + " number " +
           std::to_string(tried.fault.skip + 1) + " of " + tried.fault.file + " fails with " +
           strerrorname_np(tried.fault.error) + (tried.fault.times < 0 ? " from then on" : " once");
}

struct Tally {
    unsigned tried = 0;
    unsigned met = 0;       ///< the fault was run into
    unsigned survived = 0;  ///< met, and the call still did its work
    unsigned errors = 0;    ///< met, and an Error said so
    unsigned left_changed = 0;
};

constexpr ClockPoint requested_cap{1087_MHz, auto_clock};  // an MI100's level, in an MI210's range
constexpr ClockPoint another_cap{962_MHz, auto_clock};     // as well

/// The calls of the contract, as a controller makes them.
template <class Device>
void make_call(Device& device, const std::string& call, const ClockState& found) {
    if (call == "read") {
        static_cast<void>(device.read_clock_state());
    } else if (call == "cap") {
        device.apply(requested_cap);
        if (device.read_clock_state().cap != requested_cap) throw Error{Errc::refused, {}};
    } else if (call == "free") {
        device.apply({});
    } else if (call == "restore") {
        device.restore(found);
    } else {
        device.probe();
    }
}

template <class Device>
void try_case(Machine& machine, const Case& tried, const ClockState& found, Tally& tally) {
    auto& board = machine.gpu(0);
    board.reset();
    board.write_performance_level(found.mode);
    if (found.mode == "manual") {
        board.write_overdrive("s 0 800");
        board.write_overdrive("s 1 1300");
        board.write_overdrive("c");
    }
    const auto before = board.settings();
    machine.clear_writes();
    Device device{amd::find_cards().front()};
    const ClockState saved = device.read_clock_state();
    if (tried.call == "restore" || tried.call == "free") device.apply(another_cap);
    ++tally.tried;
    machine.inject(tried.fault);
    bool failed = false;
    try {
        make_call(device, tried.call, saved);
    } catch (const Error& error) {
        failed = true;
        EXPECT_FALSE(error.text().action.empty() && error.code() != Errc::refused);
    }
    if (machine.faults_met() > 0) {
        ++tally.met;
        ++(failed ? tally.errors : tally.survived);
        const bool may_survive = tried.call == "probe" || tried.fault.error == EINTR;
        EXPECT_TRUE(failed || may_survive) << to_string(tried) << ": nobody noticed";
    } else {
        EXPECT_FALSE(failed) << to_string(tried);
    }
    machine.clear_faults();
    const auto outcome =
        kdvfs::detail::execute(device, {.kind = kdvfs::detail::ClockCommand::Kind::restore,
                                        .history = {.initial = saved, .uncertain = true}});
    EXPECT_FALSE(outcome.error) << to_string(tried) << "\n" << outcome.error->what();
    if (board.settings() != before) ++tally.left_changed;
    EXPECT_EQ(board.settings(), before) << to_string(tried);
}

/// @param states to be found in; the last one's limits are set by the table
template <class Device>
Tally try_all(const std::string& device, const virtual_amdgpu::Board& board,
              const std::vector<ClockState>& states) {
    const int errors[] = {EACCES, EPERM,  ENOENT,     EINVAL, EIO,
                          EBUSY,  ENODEV, EOPNOTSUPP, EROFS,  EINTR};
    Tally tally;
    Machine machine{{board}};
    const Mounted mounted{machine};
    const auto session = rocm_smi::Session::open();  // one for all cases, for speed alone
    for (const ClockState& found : states) {
        for (const char* call : {"read", "cap", "free", "restore", "probe"}) {
            for (const Access access : {Access::open, Access::read, Access::write}) {
                for (const char* file :
                     {"power_dpm_force_performance_level", "pp_od_clk_voltage", "pp_dpm_sclk"}) {
                    for (const int skip : {0, 1, 2}) {
                        for (const int error : errors) {
                            // libstdc++, under ROCm SMI, tries again for as long as EINTR lasts.
                            const int times = error == EINTR ? 1 : (skip == 0 ? -1 : 1);
                            try_case<Device>(machine,
                                             {device, call, {access, file, error, skip, times}},
                                             found, tally);
                        }
                    }
                }
            }
        }
    }
    return tally;
}

void print(const char* device, const Tally& tally) {
    std::printf(
        "%s: %u cases of (call, access, file, turn, errno, state found) tried; %u ran into the "
        "fault: %u ended in an Error, %u did their work all the same; %u left the board changed\n",
        device, tally.tried, tally.met, tally.errors, tally.survived, tally.left_changed);
}

const std::vector<ClockState> with_limits{
    {}, {{1300_MHz, auto_clock}, {800_MHz, auto_clock}, "manual"}};
const std::vector<ClockState> without_limits{{}, {{}, {}, "high"}};

TEST(FaultMatrix, Sysfs) {
    const Tally tally = try_all<AmdgpuSysfs>("sysfs", virtual_amdgpu::mi210(), with_limits);
    print("sysfs", tally);
    EXPECT_GT(tally.met, 300u);
    EXPECT_EQ(tally.left_changed, 0u);
}

TEST(FaultMatrix, RocmSmi) {
    const Tally tally = try_all<RocmSmi>("rocm_smi", virtual_amdgpu::mi210(), with_limits);
    print("rocm_smi", tally);
    EXPECT_GT(tally.met, 300u);
    EXPECT_EQ(tally.left_changed, 0u);
}

TEST(FaultMatrix, SysfsByLevelMask) {
    const Tally tally =
        try_all<AmdgpuSysfs>("sysfs, level mask", virtual_amdgpu::mi100(), without_limits);
    print("sysfs, level mask", tally);
    EXPECT_GT(tally.met, 150u);
    EXPECT_EQ(tally.left_changed, 0u);
}

TEST(FaultMatrix, RocmSmiByLevelMask) {
    const Tally tally =
        try_all<RocmSmi>("rocm_smi, level mask", virtual_amdgpu::mi100(), without_limits);
    print("rocm_smi, level mask", tally);
    EXPECT_GT(tally.met, 150u);
    EXPECT_EQ(tally.left_changed, 0u);
}

}  // namespace
}  // namespace kdvfs::device
