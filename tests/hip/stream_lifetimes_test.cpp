// SPDX-License-Identifier: MIT
//
// Streams that come and go under a GPU object. On the double of libamdhip64.
#include <kdvfs/kdvfs.hpp>

#include <tests/hip_double/gpu_on_double.hpp>
#include <tests/hip_double/hip_double.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace kdvfs {
namespace {

using namespace std::chrono_literals;
using namespace kdvfs::literals;

struct Low : Kernel<"low"> {};
struct High : Kernel<"high"> {};
using Policies = PolicyRegistry<Bind<"low", CapClock<900_MHz>>, Bind<"high", CapClock<1500_MHz>>>;

class StreamLifetimes : public testing::Test {
protected:
    void SetUp() override {
        hip_double::reset({"0000:c1:00.0"});
        gpu_ = std::make_unique<BoundGpu<Policies>>(hip_double::open(board_).with<Policies>());
    }

    static hipStream_t create() {
        hipStream_t stream = nullptr;
        EXPECT_EQ(hipStreamCreate(&stream), hipSuccess);
        return stream;
    }

    /// A new stream with the handle of one that was destroyed.
    static hipStream_t create_again(hipStream_t gone) {
        std::vector<hipStream_t> others;
        hipStream_t stream = create();
        while (stream != gone && others.size() < 1000) {
            others.push_back(stream);
            stream = create();
        }
        for (hipStream_t other : others) EXPECT_EQ(hipStreamDestroy(other), hipSuccess);
        return stream;
    }

    bool comes_to(Megahertz core) {
        for (int i = 0; i < 2000; ++i) {
            if (board_->state().cap.core == core) return true;
            std::this_thread::sleep_for(1ms);
        }
        return false;
    }

    std::shared_ptr<prompt::Board> board_ = std::make_shared<prompt::Board>();
    std::unique_ptr<BoundGpu<Policies>> gpu_;
};

TEST_F(StreamLifetimes, AHandleThatIsUsedAgainIsALaneLikeAnyOther) {
    hipStream_t stream = create();
    for (int life = 0; life < 5; ++life) {
        {
            FrequencyScope<Low> scope{*gpu_, stream};
            EXPECT_TRUE(comes_to(900_MHz)) << life;
        }
        EXPECT_TRUE(comes_to(auto_clock)) << life;
        ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
        const hipStream_t again = create_again(stream);
        if (again != stream) GTEST_SKIP() << "no stream has got the old one's address";
        stream = again;
    }
    ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
    gpu_->check();
}

TEST_F(StreamLifetimes, AHandleUsedAgainOwesNothingToAScopeThatOutlivedTheFirst) {
    hipStream_t stream = create();
    auto outlives = std::make_unique<FrequencyScope<Low>>(*gpu_, stream);
    ASSERT_TRUE(comes_to(900_MHz));
    ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
    outlives.reset();
    EXPECT_TRUE(comes_to(auto_clock)) << "a vote for nobody";
    EXPECT_THROW(gpu_->check(), Error);
    const hipStream_t again = create_again(stream);
    {
        FrequencyScope<High> scope{*gpu_, again};
        EXPECT_TRUE(comes_to(1500_MHz));
    }
    EXPECT_TRUE(comes_to(auto_clock));
    gpu_->check();
    ASSERT_EQ(hipStreamDestroy(again), hipSuccess);
}

TEST_F(StreamLifetimes, AScopeMayBeLeftOnTheStreamThatHasTakenItsHandle) {
    hipStream_t stream = create();
    auto outlives = std::make_unique<FrequencyScope<Low>>(*gpu_, stream);
    ASSERT_TRUE(comes_to(900_MHz));
    ASSERT_EQ(hipStreamDestroy(stream), hipSuccess);
    const hipStream_t again = create_again(stream);
    if (again != stream) {
        outlives.reset();
        static_cast<void>(hipStreamDestroy(again));
        GTEST_SKIP() << "no stream has got the old one's address";
    }
    outlives.reset();
    EXPECT_TRUE(comes_to(auto_clock));
    gpu_->check();
    ASSERT_EQ(hipStreamDestroy(again), hipSuccess);
}

TEST_F(StreamLifetimes, DefaultStreamsPerThreadVoteEachForItself) {
    auto low = std::make_unique<FrequencyScope<Low>>(*gpu_, hipStreamPerThread);
    ASSERT_TRUE(comes_to(900_MHz));
    std::thread{[&] {
        FrequencyScope<High> high{*gpu_, hipStreamPerThread};
        EXPECT_TRUE(comes_to(1500_MHz));
    }}.join();
    EXPECT_TRUE(comes_to(900_MHz)) << "the other thread's vote has outlived its scope";
    low.reset();
    EXPECT_TRUE(comes_to(auto_clock));
    gpu_->check();
}

}  // namespace
}  // namespace kdvfs
