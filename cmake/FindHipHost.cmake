# SPDX-License-Identifier: MIT
# The HIP runtime for host code: HipHost::HipHost. HIP's own package wants hipcc (350 MB on Debian)
# even where a plain C++ compiler is all that is needed.
find_path(HipHost_INCLUDE_DIR hip/hip_runtime_api.h
          HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES include)
find_library(HipHost_LIBRARY amdhip64 HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES lib)
mark_as_advanced(HipHost_INCLUDE_DIR HipHost_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(HipHost REQUIRED_VARS HipHost_LIBRARY HipHost_INCLUDE_DIR)
if(HipHost_FOUND AND NOT TARGET HipHost::HipHost)
    add_library(HipHost::HipHost UNKNOWN IMPORTED)
    set_target_properties(HipHost::HipHost PROPERTIES
        IMPORTED_LOCATION ${HipHost_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${HipHost_INCLUDE_DIR}
        INTERFACE_COMPILE_DEFINITIONS __HIP_PLATFORM_AMD__)
endif()
