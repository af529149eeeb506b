// SPDX-License-Identifier: MIT
//
// Boards that somebody has limited before: requests stay within what was found and allowed.
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/gpu/open.hpp>

#include <tests/scope/requests_on_device.hpp>
#include <tests/virtual_amdgpu/interpose.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

namespace kdvfs::device {
namespace {

using virtual_amdgpu::Machine;
using virtual_amdgpu::Mounted;
using virtual_amdgpu::Settings;

/// A board, and what somebody wrote into its driver's files.
struct FoundBoard {
    virtual_amdgpu::Board board;
    std::string level;
    std::vector<std::string> edits{};
};

std::vector<FoundBoard> found_boards() {
    std::vector<FoundBoard> all;
    for (const char* level : {"auto", "low", "high", "profile_standard", "profile_peak"}) {
        all.push_back({virtual_amdgpu::mi210(), level});
        all.push_back({virtual_amdgpu::mi100(), level});
    }
    all.push_back({virtual_amdgpu::mi210(), "perf_determinism", {"s 1 1000", "c"}});
    all.push_back({virtual_amdgpu::mi300x(), "auto"});
    all.push_back({virtual_amdgpu::mi300x(), "manual", {"m 1 1100", "c"}});
    all.push_back({virtual_amdgpu::mi300x(), "manual", {"m 1 1000", "c"}});  // no level
    all.push_back({virtual_amdgpu::mi300x(), "manual", {"s 0 900", "s 1 1500", "m 1 1200", "c"}});
    for (const auto& [low, high] : {std::pair{"500", "1600"}, {"800", "1300"}, {"1400", "1700"}}) {
        const std::vector<std::string> edits{std::string{"s 0 "} + low, std::string{"s 1 "} + high,
                                             "c"};
        all.push_back({virtual_amdgpu::mi210(), "manual", edits});
        all.push_back({virtual_amdgpu::mi210(), "manual", edits});
        all.back().board.range_checked_at_each_write = true;
    }
    return all;
}

/// What a board holds behind each write of its settings.
class EachWrite {
public:
    explicit EachWrite(Machine& machine) : machine_{machine} { machine.clear_writes(); }
    /// @param check called with the settings behind each write since the last look
    template <class Check>
    void look(Check check) {
        for (const auto& write : machine_.writes()) check(write.after, write.text);
        machine_.clear_writes();
    }

private:
    Machine& machine_;
};

std::string named(const FoundBoard& found, const ControllerOptions& limits) {
    std::string text = found.board.product + " at " + found.level;
    for (const std::string& edit : found.edits) text += ", " + edit;
    return text + "; never below " + to_string(limits.never_below) + ", above " +
           to_string(limits.never_above) + (limits.may_leave_found_limits ? ", may leave" : "");
}

/// One lowering and one restore: level, both ends, the memory's limit where there is one, commit;
/// the same again, or level `auto`. A list of levels: `manual`, again with the list, and the level
/// found.
std::size_t writes_of_opening(const FoundBoard& found) {
    if (!found.board.core_range) return 4;
    const std::size_t of_a_range = found.board.memory_cap ? 5 : 4;
    return of_a_range + (found.level == "manual" ? of_a_range : found.level == "auto" ? 1 : 3);
}

void expect_held(const Settings& now, const Settings& before,
                 const std::optional<RequestsOnDevice<AmdgpuSysfs>::Held>& wanted,
                 const virtual_amdgpu::Board& board) {
    if (!wanted) {
        EXPECT_EQ(now, before);
        return;
    }
    EXPECT_EQ(now.core.max, std::min<std::uint64_t>(wanted->core, board.core_max));
    EXPECT_EQ(now.memory_max, std::min<std::uint64_t>(wanted->memory, board.memory.back()));
}

TEST(FoundLimits, HoldWhateverIsRequested) {
    unsigned seed = 0;
    int requests = 0;
    for (const FoundBoard& found : found_boards()) {
        for (const ControllerOptions& limits : random_limits()) {
            SCOPED_TRACE(named(found, limits));
            Machine machine{{found.board}};
            const Mounted mounted{machine};
            ASSERT_EQ(machine.gpu(0).write_performance_level(found.level), 0);
            for (const std::string& edit : found.edits)
                ASSERT_EQ(machine.gpu(0).write_overdrive(edit), 0);
            const Settings before = machine.gpu(0).settings();
            EachWrite writes{machine};
            AmdgpuSysfs gpu{io::PciAddress{0, 0xc1, 0, 0}};
            const auto stay_within = [&](const Settings& now, const std::string& text) {
                EXPECT_LE(now.core.max, before.core.max) << text;
                EXPECT_LE(now.memory_max, before.memory_max) << text;
                if (found.level == "manual") {
                    EXPECT_GE(now.core.min, before.core.min) << text;
                }
            };
            gpu.probe();
            EXPECT_LE(machine.writes().size(), writes_of_opening(found));
            writes.look(stay_within);
            EXPECT_EQ(machine.gpu(0).settings(), before);
            RequestsOnDevice<AmdgpuSysfs> streams{gpu, limits, ++seed};
            for (int i = 0; i < random_requests() && !testing::Test::HasFailure(); ++i) {
                streams.step();
                ++requests;
                ASSERT_TRUE(streams.armed()) << streams.take_error()->what();
                expect_held(machine.gpu(0).settings(), before, streams.wanted(), found.board);
                if (!limits.may_leave_found_limits) writes.look(stay_within);
            }
            streams.end();
            EXPECT_EQ(machine.gpu(0).settings(), before);
            if (testing::Test::HasFailure()) return;
        }
    }
    std::printf("%d random requests stayed within what was found and allowed\n", requests);
}

}  // namespace
}  // namespace kdvfs::device
