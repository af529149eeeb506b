// SPDX-License-Identifier: MIT
//
// Default streams on two CUDA devices, by the driver's double: each context has one of its own, and
// a marker that is written from another device's ends all CUDA work of a process.
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>
#include <kdvfs/kdvfs.hpp>

#include <tests/thread_loop/open_on_doubles.hpp>

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <memory>
#include <thread>
#include <utility>

namespace kdvfs::device {
namespace {

struct Outer : Kernel<"outer"> {};
using Policies = PolicyRegistry<Bind<"outer", CapClock<Megahertz{1300}>>>;

int markers_of(int device) {
    void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY);
    void* const found =
        library == nullptr ? nullptr : ::dlsym(library, "cuda_driver_double_markers_of");
    return found == nullptr ? -1 : reinterpret_cast<int (*)(int)>(found)(device);
}

class CudaContexts : public testing::Test {
protected:
    void SetUp() override {
        static_cast<void>(offer_marker_kernel<CudaApi>(&CudaApi::launch_marker));
        first_ = std::make_unique<Cuda>(0);
        second_ = std::make_unique<Cuda>(1);
        ASSERT_GT(markers_of(0), 0) << "this needs the double";
        before_ = {markers_of(0), markers_of(1)};
    }
    [[nodiscard]] int new_markers(int device) const {
        return markers_of(device) - (device == 0 ? before_.first : before_.second);
    }

    std::unique_ptr<Cuda> first_;
    std::unique_ptr<Cuda> second_;
    std::pair<int, int> before_;
};

TEST_F(CudaContexts, AThreadWithoutOneUsesThatOfTheGpuNotOfTheOneOpenedLast) {
    const auto gpu = doubles::open_undriven(doubles::borrowed(*first_)).with<Policies>();
    std::thread{[&] { const FrequencyScope<Outer> scope{gpu, nullptr}; }}.join();
    EXPECT_EQ(new_markers(0), 2);
    EXPECT_EQ(new_markers(1), 0);
}

TEST_F(CudaContexts, AScopeIsNeitherEnteredNorLeftInThatOfAnotherDevice) {
    const auto gpu = doubles::open_undriven(doubles::borrowed(*first_)).with<Policies>();
    const OnDevice<CudaApi> first{0};
    FrequencyScope<Outer> scope{gpu, nullptr};
    EXPECT_EQ(new_markers(0), 1);
    const OnDevice<CudaApi> second{1};
    EXPECT_THROW(scope.close(), Error);
    EXPECT_THROW((FrequencyScope<Outer>{gpu, nullptr}), Error);
    EXPECT_EQ(new_markers(0), 1);
    EXPECT_EQ(new_markers(1), 0);
}

TEST_F(CudaContexts, AStreamOfItsOwnIsUsedWhateverIsCurrent) {
    const auto gpu = doubles::open_undriven(doubles::borrowed(*first_)).with<Policies>();
    CudaApi::Stream stream = nullptr;
    {
        const OnDevice<CudaApi> first{0};
        ASSERT_EQ(CudaApi::make_stream(&stream), CudaApi::success);
    }
    const OnDevice<CudaApi> second{1};
    FrequencyScope<Outer> scope{gpu, stream};
    EXPECT_NO_THROW(scope.close());
}

}  // namespace
}  // namespace kdvfs::device
