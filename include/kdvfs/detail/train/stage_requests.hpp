// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/units.hpp>

#include <vector>

namespace kdvfs::inline v0_3::train {

/// The clock of a stage between two operations.
struct StageWait {
    ClockPoint clock{};
    /// So long it is requested, from the end of the operation before on, or from the begin of the
    /// iteration; then the next operation's is. 0: that is requested at once.
    Seconds lasts{};
};

/// The clocks that one stage requests in an iteration.
struct StageRequests {
    std::vector<PlannedClocks> operations{};          ///< of this stage, as they run
    std::vector<std::vector<ClockChange>> changes{};  ///< within these (`make_kernel_plan`)
    std::vector<StageWait> waits{};                   ///< before each of these
};

}  // namespace kdvfs::inline v0_3::train
