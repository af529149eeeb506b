// SPDX-License-Identifier: MIT
#include "open_boards.hpp"

#include <kdvfs/error.hpp>
#include <kdvfs/nvidia_by_address.hpp>
#include <kdvfs/rocm_by_address.hpp>

namespace kdvfs::c_interface {

Gpu open_board(const std::string& vendor, const std::string& address, Use use,
               const GpuOptions& options) {
    const bool drive = use == Use::drive;
    if (vendor == "nvidia") {
        return drive ? nvidia::open(address, options) : nvidia::measure(address, options);
    }
    if (vendor == "amd") {
        return drive ? rocm::open(address, options) : rocm::measure(address, options);
    }
    throw Error{Errc::invalid_input,
                {.action = "open a GPU",
                 .object = address,
                 .vendor_words = "there is no vendor '" + vendor + "'",
                 .remedy = "use \"amd\", \"nvidia\" or kdvfs_open_simulated"}};
}

}  // namespace kdvfs::c_interface
