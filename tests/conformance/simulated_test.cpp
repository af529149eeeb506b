// SPDX-License-Identifier: MIT
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/device/simulated/presets.hpp>

#include <tests/conformance/stream_order.hpp>

namespace conformance {
namespace {

class SimulatedStreams {
public:
    static constexpr bool timestamps_in_graphs = true;

    kdvfs::simulated::Device& runtime() { return device_; }
    kdvfs::StreamRef create_stream() { return device_.create_stream(); }
    void work(kdvfs::StreamRef stream) {
        device_.launch(stream, {.core_time = kdvfs::Seconds{1e-4}});
    }
    void look(kdvfs::StreamRef stream, kdvfs::RequestCell* cell, std::size_t place) {
        work(stream);
        device_.call_back(stream, [=, this] { seen_.at(place) = cell->load(); });
    }
    kdvfs::RequestWord seen(std::size_t place) { return seen_.at(place); }
    auto capture(kdvfs::StreamRef stream, const std::function<void()>& record) {
        device_.begin_capture(stream);
        record();
        return device_.end_capture(stream);
    }
    void replay(kdvfs::StreamRef stream, const kdvfs::simulated::Graph& graph) {
        device_.launch(stream, graph);
    }

private:
    kdvfs::simulated::Device device_{kdvfs::simulated::mi210()};
    std::array<kdvfs::RequestWord, 1000> seen_{};
};

INSTANTIATE_TYPED_TEST_SUITE_P(Simulated, StreamOrder, SimulatedStreams);

}  // namespace
}  // namespace conformance
