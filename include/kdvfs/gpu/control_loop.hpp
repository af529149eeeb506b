// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>

namespace kdvfs {

/// What drives a GPU object's controller and sampler: threads on real GPUs, the event loop of the
/// simulated one.
class ControlLoop {
public:
    virtual ~ControlLoop() = default;
    /// Something has changed that no marker will tell of.
    virtual void wake() noexcept = 0;
    /// Lets so much of the device's time pass: a thread sleeps, a simulation goes on.
    virtual void pass(Duration time) = 0;
    /// Carries out what the controller still wants, within a deadline of its own, and ends.
    virtual void finish() noexcept = 0;
};

}  // namespace kdvfs
