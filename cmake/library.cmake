# SPDX-License-Identifier: MIT
# The library: kdvfs::kdvfs has all headers and needs GSL only; a component is what its headers need
# on top. A component's dependency is optional here: who links the component must have it.
list(PREPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/cmake)
if(NOT PROJECT_IS_TOP_LEVEL)
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # the including project links them, too
endif()
find_package(Microsoft.GSL REQUIRED)
find_package(Eigen3 QUIET NO_MODULE)
find_package(nlohmann_json QUIET)
find_package(HipHost QUIET)
find_package(CudaHeaders QUIET)
find_package(MPI QUIET COMPONENTS CXX)

# kdvfs_library(NAME TARGET [LINKS target...]): kdvfs::NAME, exported on its own, so that a client
# that does not ask for it never meets its dependencies.
function(kdvfs_library name target)
    cmake_parse_arguments(arg "" "" "LINKS" ${ARGN})
    add_library(${target} INTERFACE)
    add_library(kdvfs::${name} ALIAS ${target})
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
    target_link_libraries(${target} INTERFACE ${arg_LINKS})
endfunction()

# The headers are found, not listed: with a header-only library a forgotten entry shows only in the
# installed package, and every header in the folder is meant to be there.
file(GLOB_RECURSE kdvfs_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/kdvfs/*.hpp
     ${PROJECT_SOURCE_DIR}/include/kdvfs/kdvfs.h)

kdvfs_library(kdvfs kdvfs LINKS Microsoft.GSL::GSL)
target_compile_features(kdvfs INTERFACE cxx_std_20)
target_sources(kdvfs INTERFACE FILE_SET HEADERS
               BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${kdvfs_headers})

# The vendors' libraries are looked for at run time; what is found here serves the program.
kdvfs_library(rocm kdvfs_rocm LINKS kdvfs::kdvfs ${CMAKE_DL_LIBS}
              $<TARGET_NAME_IF_EXISTS:HipHost::HipHost>)
kdvfs_library(nvidia kdvfs_nvidia LINKS kdvfs::kdvfs ${CMAKE_DL_LIBS}
              $<TARGET_NAME_IF_EXISTS:CudaHeaders::CudaHeaders>)
kdvfs_library(measure kdvfs_measure LINKS kdvfs::kdvfs Eigen3::Eigen)
kdvfs_library(tune kdvfs_tune LINKS kdvfs::measure nlohmann_json::nlohmann_json)
# The C functions alone: MPI's C++ ones are gone from the standard.
kdvfs_library(mpi kdvfs_mpi LINKS kdvfs::tune MPI::MPI_CXX)
target_compile_definitions(kdvfs_mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
