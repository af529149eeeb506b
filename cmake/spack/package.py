# SPDX-License-Identifier: MIT
# Spack recipe for a working copy: copy this folder as packages/kdvfs into a Spack repository, then
#   spack dev-build --source-path WORKING_COPY kdvfs@main
from spack.package import *


class Kdvfs(CMakePackage):
    """Runs every GPU kernel at the clock where it wastes no energy, and proves it."""

    license("MIT")

    version("main", branch="main")

    variant("tools", default=True, description="Build the programs kdvfs and kdvfs-restore")
    variant("tune", default=True, description="Depend on what kdvfs::measure and kdvfs::tune need")
    variant("rocm", default=False, description="Depend on what kdvfs::rocm needs")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("cppgsl")  # Microsoft GSL
    depends_on("eigen@3.4:", when="+tune")
    depends_on("nlohmann-json@3.11:", when="+tune")
    depends_on("eigen@3.4:", when="+tools", type="build")
    depends_on("nlohmann-json@3.11:", when="+tools", type="build")
    depends_on("cli11@2.3:", when="+tools", type="build")
    depends_on("hip", when="+rocm")
    depends_on("rocm-smi-lib", when="+rocm")

    def cmake_args(self):
        return [
            self.define_from_variant("KDVFS_BUILD_TOOLS", "tools"),
            self.define("KDVFS_BUILD_TESTS", False),
            self.define("KDVFS_BUILD_BENCH", False),
        ]

    @run_after("install", when="+tools")
    def install_tools(self):
        with working_dir(self.build_directory):
            cmake("--install", ".", "--component", "tools")
