// SPDX-License-Identifier: MIT
#include "open_boards.hpp"

#include <kdvfs/error.hpp>
#include <kdvfs/nvidia.hpp>
#include <kdvfs/rocm.hpp>

namespace kdvfs::c_interface {
namespace {

[[noreturn]] void reject_vendor(const std::string& vendor, const std::string& object) {
    throw Error{Errc::invalid_input,
                {.action = "open a GPU",
                 .object = object,
                 .vendor_words = "there is no vendor '" + vendor + "'",
                 .remedy = "use \"amd\", \"nvidia\" or kdvfs_open_simulated"}};
}

}  // namespace

Gpu open_board(const std::string& vendor, const std::string& address, Use use,
               const GpuOptions& options) {
    const bool drive = use == Use::drive;
    if (vendor == "nvidia") {
        return drive ? nvidia::open(address, options) : nvidia::measure(address, options);
    }
    if (vendor == "amd") {
        return drive ? rocm::open(address, options) : rocm::measure(address, options);
    }
    reject_vendor(vendor, address);
}

Gpu open_number(const std::string& vendor, int number, Use use, const GpuOptions& options) {
    const bool drive = use == Use::drive;
    if (vendor == "nvidia") {
        return drive ? nvidia::open(number, options) : nvidia::measure(number, options);
    }
    if (vendor == "amd") {
        return drive ? rocm::open(number, options) : rocm::measure(number, options);
    }
    reject_vendor(vendor, "device " + std::to_string(number));
}

}  // namespace kdvfs::c_interface
