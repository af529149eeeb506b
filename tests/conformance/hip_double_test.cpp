// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>

#include <tests/conformance/stream_order.hpp>
#include <tests/hip_double/hip_double.hpp>

#include <hip/hip_runtime_api.h>

#include <memory>

namespace conformance {
namespace {

using kdvfs::device::MarkerWay;

/// HIP's streams on the double of its library; markers go one of the ways that need no device code.
template <MarkerWay Way>
class HipDoubleStreams {
public:
    static constexpr bool timestamps_in_graphs = false;  // they are by events

    HipDoubleStreams() {
        hip_double::reset({"0000:c1:00.0"});
        hip_ = std::make_unique<kdvfs::device::Hip>(0, Way);
    }
    ~HipDoubleStreams() {
        for (const auto graph : graphs_) EXPECT_EQ(hipGraphExecDestroy(graph), hipSuccess);
        for (const auto stream : streams_) EXPECT_EQ(hipStreamDestroy(stream), hipSuccess);
    }
    HipDoubleStreams(const HipDoubleStreams&) = delete;
    HipDoubleStreams& operator=(const HipDoubleStreams&) = delete;

    kdvfs::device::Hip& runtime() { return *hip_; }
    kdvfs::StreamRef create_stream() {
        hipStream_t stream = nullptr;
        EXPECT_EQ(hipStreamCreate(&stream), hipSuccess);
        streams_.push_back(stream);
        return stream;
    }
    void work(kdvfs::StreamRef stream) {
        double megacycles = 1;  // 1 ms
        void* arguments[] = {&megacycles};
        EXPECT_EQ(hipLaunchKernel(nullptr, {}, {}, arguments, 0, stream.as<ihipStream_t>()),
                  hipSuccess);
    }
    void look(kdvfs::StreamRef stream, kdvfs::RequestCell* cell, std::size_t place) {
        looks_.at(place).cell = cell;
        const auto call = [](hipStream_t, hipError_t, void* data) {
            auto& look = *static_cast<Look*>(data);
            look.seen = look.cell->load();
        };
        EXPECT_EQ(hipStreamAddCallback(stream.as<ihipStream_t>(), call, &looks_.at(place), 0),
                  hipSuccess);
    }
    kdvfs::RequestWord seen(std::size_t place) { return looks_.at(place).seen; }
    hipGraphExec_t capture(kdvfs::StreamRef stream, const std::function<void()>& record) {
        auto* const handle = stream.as<ihipStream_t>();
        hipGraph_t graph = nullptr;
        hipGraphExec_t ready = nullptr;
        EXPECT_EQ(hipStreamBeginCapture(handle, hipStreamCaptureModeGlobal), hipSuccess);
        record();
        EXPECT_EQ(hipStreamEndCapture(handle, &graph), hipSuccess);
        EXPECT_EQ(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0), hipSuccess);
        EXPECT_EQ(hipGraphDestroy(graph), hipSuccess);
        graphs_.push_back(ready);
        return ready;
    }
    void replay(kdvfs::StreamRef stream, hipGraphExec_t graph) {
        EXPECT_EQ(hipGraphLaunch(graph, stream.as<ihipStream_t>()), hipSuccess);
    }

private:
    struct Look {
        kdvfs::RequestCell* cell = nullptr;
        kdvfs::RequestWord seen{};
    };

    std::unique_ptr<kdvfs::device::Hip> hip_;
    std::vector<hipStream_t> streams_;
    std::vector<hipGraphExec_t> graphs_;
    std::array<Look, 1000> looks_{};
};

using Ways =
    testing::Types<HipDoubleStreams<MarkerWay::stream_write>, HipDoubleStreams<MarkerWay::memset>>;
INSTANTIATE_TYPED_TEST_SUITE_P(HipDouble, StreamOrder, Ways);

}  // namespace
}  // namespace conformance
