// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/kdvfs.hpp>

#include <optional>

namespace per_thread {

using namespace kdvfs::literals;

struct Low : kdvfs::Kernel<"low"> {};
struct High : kdvfs::Kernel<"high"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"low", kdvfs::CapClock<1100_MHz>>,
                                       kdvfs::Bind<"high", kdvfs::AutoClock>>;

/// A scope on the default stream, as a file says it that has one per thread.
class Token {
public:
    Token(const kdvfs::BoundGpu<Policies>& gpu, bool low);

private:
    std::optional<kdvfs::FrequencyScope<Low>> low_;
    std::optional<kdvfs::FrequencyScope<High>> high_;
};

kdvfs::StreamRef null_stream();

}  // namespace per_thread
