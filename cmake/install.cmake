# SPDX-License-Identifier: MIT
# The package, for find_package(kdvfs [COMPONENTS rocm nvidia measure tune mpi]), from an install tree
# and from this build tree.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_folder ${CMAKE_INSTALL_DATADIR}/cmake/kdvfs)
install(TARGETS kdvfs EXPORT kdvfs-targets FILE_SET HEADERS)
export(EXPORT kdvfs-targets NAMESPACE kdvfs:: FILE ${PROJECT_BINARY_DIR}/kdvfs-targets.cmake)
install(EXPORT kdvfs-targets NAMESPACE kdvfs:: DESTINATION ${package_folder})
foreach(component rocm nvidia measure tune mpi)
    install(TARGETS kdvfs_${component} EXPORT kdvfs-${component}-targets)
    export(EXPORT kdvfs-${component}-targets NAMESPACE kdvfs::
           FILE ${PROJECT_BINARY_DIR}/kdvfs-${component}-targets.cmake)
    install(EXPORT kdvfs-${component}-targets NAMESPACE kdvfs:: DESTINATION ${package_folder})
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kdvfs-config.cmake.in
    ${PROJECT_BINARY_DIR}/kdvfs-config.cmake INSTALL_DESTINATION ${package_folder}
    NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break its users.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kdvfs-config-version.cmake
    COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)

set(find_modules FindHipHost.cmake FindCudaHeaders.cmake)
foreach(module ${find_modules})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${module} ${PROJECT_BINARY_DIR}/${module} COPYONLY)
    install(FILES ${PROJECT_SOURCE_DIR}/cmake/${module} DESTINATION ${package_folder})
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/kdvfs-config.cmake
              ${PROJECT_BINARY_DIR}/kdvfs-config-version.cmake DESTINATION ${package_folder})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/kdvfs)
