// SPDX-License-Identifier: MIT
#include <tests/simulated/board.hpp>

#include <optional>
#include <string>
#include <tuple>

namespace {

using namespace simulated_device;

constexpr Call every_call[] = {Call::apply,     Call::read_clock_state, Call::restore,
                               Call::track_key, Call::put_marker,       Call::make_cell};
constexpr Fault every_fault[] = {Fault::refused, Fault::half_done, Fault::busy, Fault::vanished,
                                 Fault::silent_refusal};

void make(Device& device, Call call) {
    switch (call) {
        case Call::apply: device.apply(half); break;
        case Call::read_clock_state: static_cast<void>(device.read_clock_state()); break;
        case Call::restore: device.restore({.cap = half, .floor = {}, .mode = "manual"}); break;
        case Call::read_energy: static_cast<void>(device.read_energy()); break;
        case Call::track_key: static_cast<void>(device.track_key(nullptr)); break;
        case Call::put_marker: device.put_marker(nullptr, {}); break;
        case Call::make_cell: static_cast<void>(device.make_cell()); break;
    }
}

std::optional<Error> error_of(Device& device, Call call) {
    try {
        make(device, call);
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

class EveryFault : public testing::TestWithParam<std::tuple<Call, Fault>> {};

TEST_P(EveryFault, StrikesItsCallByCount) {
    const auto [call, fault] = GetParam();
    Device device{mi210(), at_once()};
    device.faults().inject(call, fault, 1, 2);
    EXPECT_FALSE(error_of(device, call)) << "too early";
    device.reset_to_defaults();
    const bool setter = call == Call::apply || call == Call::restore;
    for (int i = 0; i < 2; ++i) {
        const auto error = error_of(device, call);
        if (setter && fault == Fault::silent_refusal) {
            EXPECT_FALSE(error);
        } else {
            ASSERT_TRUE(error);
            EXPECT_EQ(error->code(), errc_of(fault));
            EXPECT_NE(error->text().vendor_words.find("simulated fault"), std::string::npos);
        }
        if (fault == Fault::vanished) {
            for (const Call later : every_call) {
                EXPECT_EQ(error_of(device, later)->code(), Errc::vanished);
            }
            EXPECT_EQ(device.read_energy().status, ReadingStatus::absent);
            return;
        }
        if (call == Call::read_clock_state) continue;
        const ClockState state = device.read_clock_state();
        EXPECT_EQ(state.cap, ClockPoint{}) << "changed all the same";
        EXPECT_EQ(state.mode, setter && fault == Fault::half_done ? "manual" : "auto");
    }
    EXPECT_FALSE(error_of(device, call)) << "struck more often than told";
}

INSTANTIATE_TEST_SUITE_P(AtEveryCall, EveryFault,
                         testing::Combine(testing::ValuesIn(every_call),
                                          testing::ValuesIn(every_fault)));

TEST(CounterReads, FailWithAStatusAndWithoutANumber) {
    for (const Fault fault : every_fault) {
        Device device{mi210(), at_once()};
        device.faults().inject(Call::read_energy, fault);
        const EnergyReading reading = device.read_energy();
        EXPECT_EQ(reading.status,
                  fault == Fault::vanished ? ReadingStatus::absent : ReadingStatus::failed);
        EXPECT_EQ(reading.joules, Joules{});
    }
}

TEST(FaultPlans, OfOneCallCountTogether) {
    FaultPlan plan;
    plan.inject(Call::apply, Fault::busy, 1);
    plan.inject(Call::apply, Fault::refused, 2, FaultPlan::always);
    EXPECT_EQ(plan.strike(Call::restore), std::nullopt);
    EXPECT_EQ(plan.strike(Call::apply), std::nullopt);
    EXPECT_EQ(plan.strike(Call::apply), Fault::busy);
    EXPECT_EQ(plan.strike(Call::apply), std::nullopt);  // the second good call of the other
    EXPECT_EQ(plan.strike(Call::apply), Fault::refused);
    EXPECT_EQ(plan.strike(Call::apply), Fault::refused);
    plan.clear();
    EXPECT_EQ(plan.strike(Call::apply), std::nullopt);
}

}  // namespace
