// SPDX-License-Identifier: MIT
#include <kdvfs/clock.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/version.hpp>

#include <gsl/gsl>

#include <cstdio>

#if defined(COMPONENT_compiled) || defined(COMPONENT_compiled_static)
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#elif defined(COMPONENT_rocm) || defined(COMPONENT_nvidia)
#include <dlfcn.h>
#elif defined(COMPONENT_measure)
#include <Eigen/Core>
#elif defined(COMPONENT_mpi)
#include <mpi.h>
#elif defined(COMPONENT_tune)
#include <Eigen/Core>
#include <nlohmann/json_fwd.hpp>
#endif

struct Gelu : kdvfs::Kernel<"gelu"> {};

// One symbol of each library that the component links.
static bool component_is_whole() {
#if defined(COMPONENT_compiled) || defined(COMPONENT_compiled_static)
    kdvfs::simulated::Device device{kdvfs::simulated::mi300x()};
    return kdvfs::simulated::open(device).info().simulated;
#elif defined(COMPONENT_rocm) || defined(COMPONENT_nvidia)
    return dlopen("libthere_is_no_such_library.so", RTLD_LAZY) == nullptr;
#elif defined(COMPONENT_measure)
    return Eigen::Vector2d{3, 4}.norm() == 5;
#elif defined(COMPONENT_mpi)
    int version = 0;
    int minor_version = 0;
    return MPI_Get_version(&version, &minor_version) == MPI_SUCCESS && version >= 3;
#elif defined(COMPONENT_tune)
    return Eigen::Vector2d{3, 4}.norm() == 5 && sizeof(nlohmann::json*) == sizeof(void*);
#else
    return true;
#endif
}

int main() {
    using namespace kdvfs::literals;
    const kdvfs::ClockPoint point{1100_MHz};
    std::printf("kdvfs %d.%d.%d: %s\n", KDVFS_VERSION_MAJOR, KDVFS_VERSION_MINOR,
                KDVFS_VERSION_PATCH, to_string(point).c_str());
    const bool works = Gelu::name == "gelu" && component_is_whole();
    return works ? 0 : 1;
}
