# SPDX-License-Identifier: MIT
# CUDA's headers without its compiler and libraries: CudaHeaders::CudaHeaders.
find_path(CudaHeaders_INCLUDE_DIR cuda_runtime_api.h
          HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
mark_as_advanced(CudaHeaders_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaHeaders REQUIRED_VARS CudaHeaders_INCLUDE_DIR)
if(CudaHeaders_FOUND AND NOT TARGET CudaHeaders::CudaHeaders)
    add_library(CudaHeaders::CudaHeaders INTERFACE IMPORTED)
    set_target_properties(CudaHeaders::CudaHeaders PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES ${CudaHeaders_INCLUDE_DIR})
endif()
