// SPDX-License-Identifier: MIT
//
// `Ordering::acked`: the stream waits until its clock is set.
#include "rig.hpp"

#include <kdvfs/detail/gpu/clock_arbiter.hpp>

namespace rig {
namespace {

using simulated::Call;
using simulated::Fault;

GpuOptions acked(Duration deadline = 100ms) {
    GpuOptions options = gpu_options();
    options.ordering = Ordering::acked;
    options.ack_deadline = deadline;
    return options;
}

/// A simulated MI210 whose every clock call takes 2 ms, and then holds at once.
class Acked : public testing::Test {
protected:
    static simulated::DeviceOptions slow_calls() {
        auto options = device_options();
        options.clock_switch = simulated::uniform_switch(0ns, 0ns, 2ms);
        return options;
    }
    void probe(simulated::Stream* on) {
        device.call_back(on, [this] { probed.push_back(device.effective_clocks()); });
    }

    simulated::Device device{simulated::mi210(), slow_calls()};
    simulated::Stream* stream = device.create_stream();
    std::vector<ClockPoint> probed;
};

TEST_F(Acked, WorkBeginsAtItsClockAndWhatFollowsAtIts) {
    for (const bool waits : {false, true}) {
        probed.clear();
        const auto gpu = simulated::open(device, waits ? acked() : gpu_options()).with<Policies>();
        const auto began = device.now();
        for (int i = 0; i < 3; ++i) {
            FrequencyScope<Slow> scope{gpu, stream};
            probe(stream);
            {
                FrequencyScope<Middle> inner{gpu, stream};
                probe(stream);
            }
            probe(stream);
        }
        probe(stream);
        device.synchronize(stream);
        const std::vector<ClockPoint> at_once{slow, middle, slow,   slow, middle,
                                              slow, slow,   middle, slow, as_found};
        EXPECT_EQ(probed == at_once, waits) << "streams that do not wait run ahead of the clock";
        if (waits) {
            EXPECT_GE(device.now() - began, 3 * 3 * 2ms);
        }
        device.advance(1s);
        gpu.check();
        gpu.close();
    }
}

TEST_F(Acked, IsRefusedInACapture) {
    const auto gpu = simulated::open(device, acked()).with<Policies>();
    device.begin_capture(stream);
    EXPECT_THROW(FrequencyScope<Slow> refused(gpu, stream), Error);
    static_cast<void>(device.end_capture(stream));
    { FrequencyScope<Slow> live{gpu, stream}; }
    device.synchronize(stream);
    gpu.check();
    gpu.close();
}

TEST_F(Acked, IsForOneStreamAtATime) {
    simulated::Stream* const other = device.create_stream();
    const auto gpu = simulated::open(device, acked()).with<Policies>();
    {
        FrequencyScope<Slow> scope{gpu, stream};
        EXPECT_THROW(FrequencyScope<Middle> refused(gpu, other), Error);
    }
    EXPECT_THROW(FrequencyScope<Middle> refused(gpu, other), Error) << "its last wait is still out";
    device.synchronize(stream);
    { FrequencyScope<Middle> scope{gpu, other}; }
    device.synchronize(other);
    gpu.check();
    gpu.close();
}

TEST_F(Acked, AStreamGoesOnAfterTheDeadlineAndTheUserIsTold) {
    const auto gpu = simulated::open(device, acked(1ms)).with<Policies>();
    const auto began = device.now();
    { FrequencyScope<Slow> scope{gpu, stream}; }
    device.synchronize(stream);
    EXPECT_LT(device.now() - began, 8ms);
    try {
        gpu.check();
        FAIL() << "nobody noticed";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::timed_out);
    }
    gpu.close();
}

TEST_F(Acked, ARefusedClockIsAnAnswer) {
    const auto gpu = simulated::open(device, acked(10s)).with<Policies>();
    device.faults().inject(Call::apply, Fault::refused);
    const auto began = device.now();
    { FrequencyScope<Slow> scope{gpu, stream}; }
    device.synchronize(stream);
    EXPECT_LT(device.now() - began, 1s);
    EXPECT_THROW(gpu.check(), Error);
    gpu.close();
}

TEST_F(Acked, NoStreamWaitsForAGpuThatIsClosed) {
    const auto gpu = simulated::open(device, acked(10s)).with<Policies>();
    {
        FrequencyScope<Slow> scope{gpu, stream};
        gpu.close();
    }
    device.synchronize(stream);  // throws where it waits for ever
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

/// A last look of the control loop comes after the GPU was closed.
TEST(Acknowledgements, LetNoStreamWaitAgainOnceReleased) {
    std::uint32_t word = 0;
    kdvfs::detail::Acknowledgements acknowledgements{&word, 1s};
    acknowledgements.answer();
    EXPECT_EQ(word, 1U);
    acknowledgements.release();
    acknowledgements.answer();
    EXPECT_GT(word, 0x7ffffffeU);
}

}  // namespace
}  // namespace rig
