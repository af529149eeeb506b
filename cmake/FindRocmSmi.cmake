# SPDX-License-Identifier: MIT
# ROCm SMI for tests and benchmarks: RocmSmi::RocmSmi. Debian's rocm_smi package files name a library and a folder that do
# not exist, and upstream's target has no namespace.
find_path(RocmSmi_INCLUDE_DIR rocm_smi/rocm_smi.h
          HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES include)
find_library(RocmSmi_LIBRARY rocm_smi64 HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES lib)
mark_as_advanced(RocmSmi_INCLUDE_DIR RocmSmi_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RocmSmi REQUIRED_VARS RocmSmi_LIBRARY RocmSmi_INCLUDE_DIR)
if(RocmSmi_FOUND AND NOT TARGET RocmSmi::RocmSmi)
    add_library(RocmSmi::RocmSmi UNKNOWN IMPORTED)
    set_target_properties(RocmSmi::RocmSmi PROPERTIES
        IMPORTED_LOCATION ${RocmSmi_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${RocmSmi_INCLUDE_DIR})
endif()
