// SPDX-License-Identifier: MIT
#include <kdvfs/registry.hpp>
#include <kdvfs/scope.hpp>

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace kdvfs {
namespace {

struct Gelu : Kernel<"gelu"> {};
struct Softmax : Kernel<"softmax"> {};

static_assert(!std::is_copy_constructible_v<FrequencyScope<Gelu>> &&
                  !std::is_move_constructible_v<FrequencyScope<Gelu>> &&
                  !std::is_copy_assignable_v<FrequencyScope<Gelu>> &&
                  !std::is_move_assignable_v<FrequencyScope<Gelu>>,
              "a scope stays where it was entered");
static_assert(std::is_nothrow_destructible_v<FrequencyScope<Gelu>>,
              "leaving by an exception must not end the program");

/// Writes down who enters and leaves.
class PortDouble final : public kdvfs::detail::ScopeSink {
public:
    kdvfs::detail::ScopeToken enter(StreamRef, const kdvfs::detail::ScopeKind& kind) override {
        if (refuses) throw std::runtime_error{"no marker"};
        kdvfs::detail::ScopeToken pass;
        pass.entry = ++entries_;
        pass.kind = &kind;
        log.push_back("enter " + std::to_string(pass.entry));
        return pass;
    }
    void leave(const kdvfs::detail::ScopeToken& pass) override {
        log.push_back("leave " + std::to_string(pass.entry));
        if (refuses) throw std::runtime_error{"no marker"};
    }
    void leave_noexcept(const kdvfs::detail::ScopeToken& pass) noexcept override {
        log.push_back("leave_noexcept " + std::to_string(pass.entry));
    }

    std::vector<std::string> log;
    bool refuses = false;

private:
    std::uint64_t entries_ = 0;
};

/// The view that `Gpu::with<Registry>()` gives, as scopes see it.
template <class Registry>
struct GpuDouble {
    template <NamedKernel K>
    static constexpr bool has_scope_for =
        Registry::metered || !Registry::template policy_of<K>::always_keeps;

    [[nodiscard]] kdvfs::detail::ScopeSink& scope_sink() const { return its_port; }
    template <NamedKernel K>
    const kdvfs::detail::ScopeKind& kind_of(Variant variant) const {
        asked.push_back(std::string{K::name} + '#' + std::to_string(variant.index));
        return kind;
    }

    PortDouble& its_port;
    kdvfs::detail::ScopeKind kind{};
    mutable std::vector<std::string> asked{};
};

using Log = std::vector<std::string>;
using Metered = GpuDouble<PolicyRegistry<Default<AutoClock>>>;
using Quiet = GpuDouble<PolicyRegistry<Bind<"gelu", KeepClock>, Default<AutoClock>, Unmetered>>;

class FrequencyScopeTest : public ::testing::Test {
protected:
    PortDouble port;
    Metered gpu{port};
    StreamRef stream{};
};

TEST_F(FrequencyScopeTest, EntersAndLeavesOnce) {
    {
        const FrequencyScope<Gelu> scope{gpu, stream, variant(2)};
        EXPECT_EQ(port.log, Log{"enter 1"});
    }
    EXPECT_EQ(port.log, (Log{"enter 1", "leave_noexcept 1"}));
    EXPECT_EQ(gpu.asked, Log{"gelu#2"});
}

TEST_F(FrequencyScopeTest, AnExceptionLeaves) {
    try {
        const FrequencyScope<Gelu> outer{gpu, stream};
        const FrequencyScope<Softmax> inner{gpu, stream};
        throw std::runtime_error{"in the scope"};
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(port.log, (Log{"enter 1", "enter 2", "leave_noexcept 2", "leave_noexcept 1"}));
}

TEST_F(FrequencyScopeTest, CloseIsTheThrowingTwinAndTheEnd) {
    {
        FrequencyScope<Gelu> scope{gpu, stream};
        scope.close();
        scope.close();
    }
    EXPECT_EQ(port.log, (Log{"enter 1", "leave 1"}));
    port.log.clear();
    {
        FrequencyScope<Gelu> scope{gpu, stream};
        port.refuses = true;
        EXPECT_THROW(scope.close(), std::runtime_error);
    }
    EXPECT_EQ(port.log, (Log{"enter 2", "leave 2"})) << "what could not be left is not left again";
}

TEST_F(FrequencyScopeTest, WhatWasNotEnteredIsNotLeft) {
    port.refuses = true;
    EXPECT_THROW(static_cast<void>(FrequencyScope<Gelu>{gpu, stream}), std::runtime_error);
    EXPECT_TRUE(port.log.empty());
}

TEST_F(FrequencyScopeTest, AKeptKernelOfAnUnmeteredRegistryTouchesNothing) {
    const Quiet quiet{port};
    {
        FrequencyScope<Gelu> scope{quiet, stream};
        scope.close();
    }
    EXPECT_TRUE(port.log.empty());
    EXPECT_TRUE(quiet.asked.empty());
    { const FrequencyScope<Softmax> scope{quiet, stream}; }
    EXPECT_EQ(port.log.size(), 2U) << "the others do";
}

TEST_F(FrequencyScopeTest, LaunchCallsInsideTheScopeAndReturnsWhatTheWorkReturns) {
    int value = 7;
    const int& reference = launch<Gelu>(gpu, stream, [&]() -> int& {
        port.log.emplace_back("work");
        return value;
    });
    EXPECT_EQ(&reference, &value) << "a reference stays one";
    EXPECT_EQ(port.log, (Log{"enter 1", "work", "leave_noexcept 1"}));
    launch<Softmax>(gpu, stream, variant(3), [] {});
    EXPECT_EQ(gpu.asked, (Log{"gelu#0", "softmax#3"}));
}

TEST_F(FrequencyScopeTest, LaunchLeavesWhateverTheWorkThrows) {
    EXPECT_THROW(launch<Gelu>(gpu, stream, [] { throw std::logic_error{"bad shape"}; }),
                 std::logic_error);
    EXPECT_EQ(port.log, (Log{"enter 1", "leave_noexcept 1"}));
}

}  // namespace
}  // namespace kdvfs
