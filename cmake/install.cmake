# SPDX-License-Identifier: MIT
# The package, for find_package(kdvfs [COMPONENTS rocm nvidia measure tune mpi]), from an install tree
# and from this build tree.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)  # the programs are the component `tools`

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

if(KDVFS_BUILD_COMPILED)
    set(kdvfs_exported_compiled kdvfs_compiled kdvfs_compiled_static)
    set(kdvfs_exported_compiled_rocm kdvfs_compiled_rocm)
    set(kdvfs_exported_compiled_nvidia kdvfs_compiled_nvidia)
    foreach(component compiled compiled_rocm compiled_nvidia)
        set(targets ${kdvfs_exported_${component}})
        list(GET targets 0 first)
        if(NOT TARGET ${first})
            continue()
        endif()
        install(TARGETS ${targets} EXPORT kdvfs-${component}-targets)
        export(EXPORT kdvfs-${component}-targets NAMESPACE kdvfs::
               FILE ${PROJECT_BINARY_DIR}/kdvfs-${component}-targets.cmake)
        install(EXPORT kdvfs-${component}-targets NAMESPACE kdvfs:: DESTINATION ${package_folder})
    endforeach()
endif()

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

# What the words of errors refer to.
if(KDVFS_BUILD_TOOLS)
    file(GLOB guides ${PROJECT_SOURCE_DIR}/docs/*.md)
    set(doc_folder ${CMAKE_INSTALL_DATADIR}/doc/kdvfs-tools)
    install(FILES ${guides} DESTINATION ${doc_folder}/docs EXCLUDE_FROM_ALL COMPONENT tools)
    install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${doc_folder} RENAME copyright
            EXCLUDE_FROM_ALL COMPONENT tools)
    install(FILES ${PROJECT_SOURCE_DIR}/tools/cli/assets/LICENSES.txt DESTINATION ${doc_folder}
            EXCLUDE_FROM_ALL COMPONENT tools)  # of the drawing library, which is in the command
endif()

# cpack -G DEB in the build folder: libkdvfs-dev, the headers and libkdvfs, and kdvfs-tools, the
# programs. What they depend on is named here: CPack's search for it needs `file` and dpkg-dev.
if(NOT CPACK_PACKAGE_CONTACT)  # who builds packages for others gives an address
    set(CPACK_PACKAGE_CONTACT "kdvfs developers <developers@kdvfs.invalid>")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL dev)
if(KDVFS_BUILD_TOOLS)
    list(APPEND CPACK_COMPONENTS_ALL tools)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian_files.cmake)
# What is compiled here may need as much as this machine has.
execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE glibc ERROR_QUIET)
string(REGEX MATCH "[0-9.]+" glibc "${glibc}")
string(REGEX MATCH "^[0-9]+" compiler "${CMAKE_CXX_COMPILER_VERSION}")
set(compiled_here "libc6 (>= ${glibc}), libgcc-s1, libstdc++6")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    string(APPEND compiled_here " (>= ${compiler})")
endif()

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libkdvfs-dev)
set(CPACK_COMPONENT_DEV_DESCRIPTION
    "C++20 headers and libkdvfs: a scope around the kernels of a GPU's stream asks\n for a clock, and reports say what each kernel's energy was.")
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS libmsgsl-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "libeigen3-dev, nlohmann-json3-dev, libamdhip64-dev, librocm-smi-dev")
if(TARGET kdvfs_compiled)
    string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", ${compiled_here}")
    file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
    file(WRITE ${PROJECT_BINARY_DIR}/debian/shlibs
         "libkdvfs ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} libkdvfs-dev (>= ${PROJECT_VERSION})\n")
    set(CPACK_DEBIAN_DEV_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/debian/triggers
                                               ${PROJECT_BINARY_DIR}/debian/shlibs)
else()  # headers alone
    set(CPACK_DEBIAN_DEV_PACKAGE_ARCHITECTURE all)
endif()

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME kdvfs-tools)
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
    "The command kdvfs: it attaches to programs that know nothing of it, reports the\n energy of their kernels, sweeps clocks and makes plans of them.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${compiled_here}")
if(kdvfs_old_glibc)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libc6 (>= 2.28)")
endif()
include(CPack)
