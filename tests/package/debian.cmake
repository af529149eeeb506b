# SPDX-License-Identifier: MIT
# Makes the Debian packages of the build PROJECT, installs them by dpkg into a root that holds
# nothing else, and uses them from there: the programs run, and CLIENT builds against the headers.
file(REMOVE_RECURSE ${FOLDER})
set(root ${FOLDER}/root)
file(MAKE_DIRECTORY ${root}/var/lib/dpkg/updates ${root}/var/lib/dpkg/info)
file(WRITE ${root}/var/lib/dpkg/status "")
execute_process(COMMAND ${CMAKE_COMMAND} --build ${PROJECT} --target kdvfs_cli kdvfs-restore
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_CPACK_COMMAND} -G DEB -B ${FOLDER}/packages
                WORKING_DIRECTORY ${PROJECT} COMMAND_ERROR_IS_FATAL ANY)
file(GLOB packages ${FOLDER}/packages/*.deb)
foreach(name libkdvfs-dev_${VERSION}_all kdvfs-tools_${VERSION}_)
    if(NOT packages MATCHES "/${name}[^/]*[.]deb")
        message(FATAL_ERROR "${name}*.deb is not among ${packages}")
    endif()
endforeach()
# What they depend on is not in the bare root: the machine's own libraries stand for it.
execute_process(COMMAND dpkg --root=${root} --force-depends --force-not-root --install ${packages}
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS ${root}/usr/bin/kdvfs-restore)
    message(FATAL_ERROR "kdvfs-tools has no kdvfs-restore")
endif()
execute_process(COMMAND ${root}/usr/bin/kdvfs --version OUTPUT_VARIABLE said
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT said MATCHES "^kdvfs ${VERSION}")
    message(FATAL_ERROR "the installed kdvfs calls itself ${said}")
endif()
foreach(component "" tune)
    execute_process(COMMAND ${CMAKE_COMMAND} -DCLIENT=${CLIENT} -DBUILD=${FOLDER}/client${component}
                            -DGENERATOR=${GENERATOR} -DCOMPILER=${COMPILER}
                            "-DOPTIONS=-DCMAKE_PREFIX_PATH=${root}/usr;-DCOMPONENT=${component}"
                            -P ${CMAKE_CURRENT_LIST_DIR}/client_test.cmake
                    COMMAND_ERROR_IS_FATAL ANY)
endforeach()
