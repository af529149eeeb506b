// SPDX-License-Identifier: MIT
//
// The Python package on a virtual board, with doubles of libamdhip64 and libhiprtc in the process.
#include <tests/virtual_amdgpu/file_system.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace {

class Python : public virtual_amdgpu::FileSystemTest {
protected:
    static int run(const std::string& variables) {
        const std::string line =
            variables + " LD_PRELOAD=" KDVFS_HIP_DOUBLE " LD_LIBRARY_PATH=" KDVFS_COMPILER_FOLDER
                        " KDVFS_LIBRARY=" KDVFS_C_LIBRARY " PYTHONPATH=" KDVFS_SOURCES
                        "/python"
                        " PYTHONDONTWRITEBYTECODE=1 " KDVFS_PYTHON " " KDVFS_SOURCES
                        "/tests/c_interface/hip_test.py";
        return std::system(line.c_str());
    }
};

TEST_F(Python, OpensScopesByAMarkerKernelThatIsCompiledHere) { EXPECT_EQ(run(""), 0); }

TEST_F(Python, OpensScopesWithoutACompilerOfKernels) { EXPECT_EQ(run("HIPRTC_DOUBLE_FAILS=1"), 0); }

}  // namespace
