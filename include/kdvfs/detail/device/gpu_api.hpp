// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>

#include <sys/mman.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3::device {

/// Whether a stream is being captured. `id` counts only while it is.
struct CaptureState {
    bool active = false;
    bool invalidated = false;  ///< by a call that the capture forbids
    std::uint64_t id = 0;
};

/// A vendor's runtime (HIP, CUDA) as thin static functions, each one call of the vendor's API that
/// returns the vendor's status and throws nothing. `GpuStreams` and `EventTimestamps` are written
/// once over it; what is not a plain call is in constants:
/// - `name`, `compiler`: "HIP", "hipcc", for errors;
/// - `records_writes`, `records_callbacks`: whether a capture records stream memory writes and host
///   functions, rather than running them at once;
/// - `waits_in_signal_memory`: whether a stream can only wait for words of `make_signal_memory`,
///   not for those of mapped host memory.
/// Functions with a contract of their own:
/// - `home(device)`: what `external` compares streams with; the device is current;
/// - `external(stream, device, home)`: why the stream is none of the device's, empty if it is; must
///   be legal while any stream is captured;
/// - `is_default(stream)`: whether the handle names a stream of every device;
/// - `make_device_memory`: zeroed, in the device's own memory;
/// - `call_back<function>(stream, data)`: lets a host thread call `function(data)` in stream order;
/// - `wall_clock_megahertz(device)`: of the clock that the marker kernel reads; a claim that
///   `GpuStreams` proves.
template <class Api>
concept GpuApi = requires(typename Api::Stream stream, typename Api::Event event,
                          typename Api::Status status, typename Api::CaptureMode mode,
                          typename Api::Home home, CaptureState capture, int device, void* memory,
                          std::uint32_t* word, std::size_t bytes, float milliseconds, char* text) {
    requires std::is_pointer_v<typename Api::Stream>;
    { Api::name } -> std::convertible_to<std::string_view>;
    { Api::compiler } -> std::convertible_to<std::string_view>;
    requires std::same_as<const bool, decltype(Api::records_writes)>;
    requires std::same_as<const bool, decltype(Api::records_callbacks)>;
    requires std::same_as<const bool, decltype(Api::waits_in_signal_memory)>;
    status = Api::success;
    status = Api::not_ready;
    status = Api::not_supported;
    status = Api::cannot_capture;
    status = Api::capture_invalidated;
    status = Api::out_of_memory;
    mode = Api::relaxed_capture;
    { Api::code_of(status) } -> std::same_as<Errc>;
    { Api::words_of(status) } -> std::convertible_to<std::string>;
    { Api::remedy_for(status) } -> std::convertible_to<std::string>;
    Api::forget_last_error();

    status = Api::get_device(&device);
    status = Api::set_device(device);
    status = Api::pci_address(text, device, device);
    { Api::wall_clock_megahertz(device) } -> std::same_as<double>;
    home = Api::home(device);
    { Api::external(stream, device, home) } -> std::same_as<std::string>;
    { Api::is_default(stream) } -> std::same_as<bool>;
    { Api::is_per_thread(stream) } -> std::same_as<bool>;

    status = Api::make_stream(&stream);
    status = Api::destroy_stream(stream);
    status = Api::synchronize(stream);
    status = Api::query_stream(stream);
    status = Api::capture_state(stream, capture);
    status = Api::exchange_capture_mode(&mode);

    status = Api::register_host_memory(memory, bytes);
    status = Api::device_address(&memory, memory);
    status = Api::make_device_memory(&memory, bytes);
    status = Api::make_signal_memory(&word);

    status = Api::write(stream, word, std::uint32_t{});
    status = Api::set(stream, word, std::uint32_t{});
    status = Api::wait(stream, word, std::uint32_t{});

    status = Api::make_event(&event);
    status = Api::record(event, stream);
    status = Api::query(event);
    status = Api::elapsed(&milliseconds, event, event);
};

template <class Api>
class GpuStreams;

/// @throws Error with the vendor's words unless `status` is success
template <GpuApi Api>
void check(typename Api::Status status, std::string action, std::string object) {
    if (status == Api::success) return;
    throw Error{
        Api::code_of(status),
        {std::move(action), std::move(object), Api::words_of(status), Api::remedy_for(status)}};
}

/// "HIP device 0", as errors name it.
template <GpuApi Api>
std::string device_name(int device) {
    return std::string{Api::name} + " device " + std::to_string(device);
}

/// "0000:c1:00.0". The vendor's number of a device depends on its environment variables
/// (HIP_VISIBLE_DEVICES and the like); the PCI address does not.
/// @throws Error if there is no such device
template <GpuApi Api>
std::string pci_address(int device) {
    std::array<char, 32> text{};
    check<Api>(Api::pci_address(text.data(), static_cast<int>(text.size()), device),
               "read the PCI address", device_name<Api>(device));
    return text.data();
}

/// Makes a device current, and the one before again.
/// The constructor throws Error if there is no such device.
template <GpuApi Api>
class [[nodiscard]] OnDevice {
public:
    explicit OnDevice(int device) {
        check<Api>(Api::get_device(&before_), "ask for the current device",
                   device_name<Api>(device));
        check<Api>(Api::set_device(device), "use the device", device_name<Api>(device));
    }
    ~OnDevice() { static_cast<void>(Api::set_device(before_)); }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

private:
    int before_ = 0;
};

/// Lets this thread make calls that a capture in the strict modes forbids, and that do not touch
/// the captured stream.
template <GpuApi Api>
class [[nodiscard]] RelaxedCapture {
public:
    RelaxedCapture() { static_cast<void>(Api::exchange_capture_mode(&mode_)); }
    ~RelaxedCapture() { static_cast<void>(Api::exchange_capture_mode(&mode_)); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

private:
    typename Api::CaptureMode mode_ = Api::relaxed_capture;
};

/// A stream of kdvfs's own, for proofs. The constructor throws Error.
template <GpuApi Api>
class [[nodiscard]] OwnStream {
public:
    explicit OwnStream(const std::string& object) {
        check<Api>(Api::make_stream(&stream_), "make a stream", object);
    }
    ~OwnStream() { static_cast<void>(Api::destroy_stream(stream_)); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;
    [[nodiscard]] typename Api::Stream get() const { return stream_; }

private:
    typename Api::Stream stream_{};
};

/// Host memory that the device writes, with its two addresses.
template <class T>
struct MappedArray {
    T* host = nullptr;
    T* device = nullptr;
};

/// Zeroed and never given back: markers that are still on their way may write it, and a listener
/// may read it, until the process ends, the runtime's own end included (so it is not the runtime's
/// memory). Shared rather than private, so that a fork leaves the device and the parent the same
/// pages.
/// @throws Error
template <GpuApi Api, class T>
MappedArray<T> map_for_ever(std::size_t count, const std::string& object) {
    const RelaxedCapture<Api> relaxed;
    const std::size_t bytes = count * sizeof(T);
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) check<Api>(Api::out_of_memory, "map host memory", object);
    check<Api>(Api::register_host_memory(memory, bytes), "register host memory", object);
    void* address = nullptr;
    check<Api>(Api::device_address(&address, memory), "find the device's address of host memory",
               object);
    return {static_cast<T*>(memory), static_cast<T*>(address)};
}

}  // namespace kdvfs::inline v0_3::device
