# SPDX-License-Identifier: MIT
# A project of a user: configured, built and run against the installed package, against this build
# tree, and with kdvfs as a subproject; once with no component and once with each. A short build tries
# the build tree with no component and with the largest.
if(NOT KDVFS_INSTALL)
    return()
endif()
set(prefix ${CMAKE_CURRENT_BINARY_DIR}/prefix)
add_test(NAME package/install
         COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${prefix})
set_tests_properties(package/install PROPERTIES FIXTURES_SETUP installed LABELS package)

# kdvfs_client_test(NAME OPTION...): a run of client_test.cmake with these options for the client.
function(kdvfs_client_test name)
    add_test(NAME package/client_${name}
             COMMAND ${CMAKE_COMMAND} -DCLIENT=${CMAKE_CURRENT_SOURCE_DIR}/client
                     -DBUILD=${CMAKE_CURRENT_BINARY_DIR}/client_${name}
                     -DGENERATOR=${CMAKE_GENERATOR} -DCOMPILER=${CMAKE_CXX_COMPILER}
                     "-DOPTIONS=${ARGN}" -P ${CMAKE_CURRENT_SOURCE_DIR}/client_test.cmake)
    set_tests_properties(package/client_${name} PROPERTIES
                         FIXTURES_REQUIRED installed LABELS package)
endfunction()

set(all_dependencies Eigen3 nlohmann_json HipHost CudaHeaders MPI)
set(installed -DCMAKE_PREFIX_PATH=${prefix})
set(built -Dkdvfs_DIR=${PROJECT_BINARY_DIR})
set(without)
foreach(dependency ${all_dependencies})
    list(APPEND without -DCMAKE_DISABLE_FIND_PACKAGE_${dependency}=ON)
endforeach()

# With no component nothing but GSL is looked for.
kdvfs_client_test(installed ${installed} ${without})
kdvfs_client_test(built ${built} ${without})
kdvfs_client_test(subproject -DKDVFS_SUBPROJECT=${PROJECT_SOURCE_DIR} ${without})

set(needs_rocm)
set(needs_nvidia)
set(needs_measure Eigen3)
set(needs_tune Eigen3 nlohmann_json)
set(needs_mpi Eigen3 nlohmann_json MPI)
foreach(component rocm nvidia measure tune mpi)
    set(found TRUE)
    set(others ${all_dependencies})
    foreach(dependency ${needs_${component}})
        list(REMOVE_ITEM others ${dependency})
        if(NOT ${dependency}_FOUND)
            set(found FALSE)
        endif()
    endforeach()
    if(NOT found)
        message(STATUS "Not testing kdvfs::${component} in a client: no ${needs_${component}}")
        continue()
    endif()
    set(without_others)
    foreach(dependency ${others})
        list(APPEND without_others -DCMAKE_DISABLE_FIND_PACKAGE_${dependency}=ON)
    endforeach()
    kdvfs_client_test(installed_${component} ${installed} -DCOMPONENT=${component}
                      ${without_others})
    if(component STREQUAL tune OR NOT KDVFS_SHORT_BUILD)
        kdvfs_client_test(built_${component} ${built} -DCOMPONENT=${component} ${without_others})
    endif()
endforeach()

# The compiled form needs none of what it was built with.
if(TARGET kdvfs_compiled)
    foreach(component compiled compiled_static)
        kdvfs_client_test(installed_${component} ${installed} -DCOMPONENT=${component} ${without})
        if(NOT KDVFS_SHORT_BUILD)
            kdvfs_client_test(built_${component} ${built} -DCOMPONENT=${component} ${without})
        endif()
    endforeach()
endif()

# What is missing is said.
kdvfs_client_test(missing_dependency ${installed} -DCOMPONENT=tune ${without})
set_tests_properties(package/client_missing_dependency PROPERTIES
    PASS_REGULAR_EXPRESSION "kdvfs::tune needs[ \n]+nlohmann_json,[ \n]+not[ \n]+found")
kdvfs_client_test(unknown_component ${installed} -DCOMPONENT=toaster)
set_tests_properties(package/client_unknown_component PROPERTIES
    PASS_REGULAR_EXPRESSION "kdvfs has no[ \n]+component[ \n]+.toaster")

# The Debian packages, installed into a bare root and used from there: in the soak, since the
# programs are built for it (ctest -C soak -L soak).
find_program(dpkg dpkg)
if(dpkg AND TARGET kdvfs_cli)
    add_test(NAME package/debian CONFIGURATIONS soak
             COMMAND ${CMAKE_COMMAND} -DPROJECT=${PROJECT_BINARY_DIR}
                     -DFOLDER=${CMAKE_CURRENT_BINARY_DIR}/debian
                     -DCLIENT=${CMAKE_CURRENT_SOURCE_DIR}/client -DGENERATOR=${CMAKE_GENERATOR}
                     -DCOMPILER=${CMAKE_CXX_COMPILER} -DVERSION=${PROJECT_VERSION}
                     -P ${CMAKE_CURRENT_SOURCE_DIR}/debian.cmake)
    set_tests_properties(package/debian PROPERTIES LABELS "soak;package" TIMEOUT 1800)
endif()
