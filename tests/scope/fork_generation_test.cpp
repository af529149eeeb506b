// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/files.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

namespace kdvfs {
namespace {

/// What a child of a child sees, as this process's exit code.
int grandchild_generation() {
    const pid_t child = fork();
    if (child == 0) _exit(static_cast<int>(kdvfs::detail::fork_generation()));
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

TEST(ForkGeneration, GrowsInEachChildAndNotInTheParent) {
    const std::uint32_t own = kdvfs::detail::fork_generation();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const bool right = kdvfs::detail::fork_generation() == own + 1 &&
                           grandchild_generation() == static_cast<int>(own + 2) &&
                           kdvfs::detail::fork_generation() == own + 1;
        _exit(right ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(kdvfs::detail::fork_generation(), own);
}

}  // namespace
}  // namespace kdvfs
