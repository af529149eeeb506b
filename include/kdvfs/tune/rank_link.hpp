// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// How the ranks of a job, one per GPU, exchange texts while they work, so that runs that tune
/// themselves learn together (`SessionMode::link`). No call waits for another rank. Called by the
/// thread that calls `Session::next_iteration`.
class RankLink {
public:
    virtual ~RankLink() = default;
    [[nodiscard]] virtual std::uint32_t rank() const = 0;
    [[nodiscard]] virtual std::uint32_t size() const = 0;
    /// Whether texts still arrive. Where they do not, all ranks run as found from then on.
    [[nodiscard]] virtual bool works() const { return true; }
    /// Sends a text to rank 0. Texts of a rank arrive in order, each as a whole, at any time.
    virtual void report(std::string text) = 0;
    /// On rank 0: what ranks have reported and was not taken yet, with their numbers.
    [[nodiscard]] virtual std::vector<std::pair<std::uint32_t, std::string>> take_reports() = 0;
    /// On rank 0: sends a text to all other ranks.
    virtual void announce(std::string text) = 0;
    /// On other ranks: what rank 0 has announced and was not taken yet, in order.
    [[nodiscard]] virtual std::vector<std::string> take_announcements() = 0;
};

}  // namespace kdvfs::inline v0_3::tune
