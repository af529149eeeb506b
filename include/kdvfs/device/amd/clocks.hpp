// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/amd/rocm_smi.hpp>
#include <kdvfs/device/amd/sysfs.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

namespace kdvfs::device::amd {

/// Sets clocks by ROCm SMI where the process is root and the library's probe is clean, else by the
/// driver's files; `info` says which, and why.
class Clocks {
public:
    explicit Clocks(const Card& card) : files_{card}, info_{files_.info()} {}

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const {
        return library_ ? library_->supported_clocks() : files_.supported_clocks();
    }
    [[nodiscard]] ClockState read_clock_state() const {
        return library_ ? library_->read_clock_state() : files_.read_clock_state();
    }
    void apply(ClockPoint point) { library_ ? library_->apply(point) : files_.apply(point); }
    void restore(const ClockState& state) {
        library_ ? library_->restore(state) : files_.restore(state);
    }
    void adopt(const std::optional<ClockState>& written) {
        library_ ? library_->adopt(written) : files_.adopt(written);
    }
    [[nodiscard]] RestoreScript restore_script() const {
        return library_ ? library_->restore_script() : files_.restore_script();
    }

    /// Chooses the way, by trying.
    /// @throws Error where none works
    void probe() {
        const std::string refusal = ::geteuid() == 0 ? try_library() : "not root";
        if (!library_) files_.probe();
        info_ = library_ ? library_->info() : files_.info();
        if (!library_) info_.mechanism += " (rocm_smi: " + refusal + ")";
    }

private:
    /// @returns why the library cannot be used; empty where it can
    std::string try_library() {
        try {
            library_ = std::make_unique<RocmSmi>(files_.card());
            library_->probe();
            return {};
        } catch (const Error& error) {
            library_.reset();
            return error.text().vendor_words;
        }
    }

    AmdgpuSysfs files_;
    std::unique_ptr<RocmSmi> library_;
    DeviceInfo info_;
};

}  // namespace kdvfs::device::amd
