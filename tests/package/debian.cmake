# SPDX-License-Identifier: MIT
# Makes the Debian packages of the build PROJECT, installs them by dpkg into a root that holds
# nothing else, and uses them from there: the programs run, and CLIENT builds against the headers.
# The tarball runs where it is unpacked.
file(REMOVE_RECURSE ${FOLDER})
set(root ${FOLDER}/root)
file(MAKE_DIRECTORY ${root}/var/lib/dpkg/updates ${root}/var/lib/dpkg/info)
file(WRITE ${root}/var/lib/dpkg/status "")
execute_process(COMMAND ${CMAKE_COMMAND} --build ${PROJECT} --target tools
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_CPACK_COMMAND} -G DEB -B ${FOLDER}/packages
                WORKING_DIRECTORY ${PROJECT} COMMAND_ERROR_IS_FATAL ANY)
file(GLOB packages ${FOLDER}/packages/*.deb)
foreach(name libkdvfs-dev_${VERSION}_ kdvfs-tools_${VERSION}_)
    if(NOT packages MATCHES "/${name}[^/]*[.]deb")
        message(FATAL_ERROR "${name}*.deb is not among ${packages}")
    endif()
endforeach()
find_program(lintian lintian)
if(lintian)
    execute_process(COMMAND ${lintian} --allow-root --fail-on error ${packages}
                    COMMAND_ERROR_IS_FATAL ANY)
else()
    message("lintian is not installed: what Debian asks of packages was not checked")
endif()
# What they depend on is not in the bare root: the machine's own libraries stand for it. There is no
# shell for ldconfig either, hence no --install.
execute_process(COMMAND dpkg --root=${root} --force-depends --force-not-root --unpack ${packages}
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS ${root}/usr/bin/kdvfs-restore)
    message(FATAL_ERROR "kdvfs-tools has no kdvfs-restore")
endif()
execute_process(COMMAND ${root}/usr/bin/kdvfs --version OUTPUT_VARIABLE said
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT said MATCHES "^kdvfs ${VERSION}")
    message(FATAL_ERROR "the installed kdvfs calls itself ${said}")
endif()
# The programs as their users have them, without the sources: in a folder of the user's own.
set(home ${FOLDER}/home)
set(programs ${root}/usr/bin)
file(MAKE_DIRECTORY ${home})
function(installed words)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env HOME=${home} XDG_DATA_HOME=${home}/data
                            ${programs}/kdvfs ${ARGN}
                    WORKING_DIRECTORY ${home} RESULT_VARIABLE result OUTPUT_VARIABLE output
                    ERROR_VARIABLE error)
    if(NOT result EQUAL 0 OR NOT "${output}${error}" MATCHES "${words}")
        message(FATAL_ERROR "the installed kdvfs ${ARGN} ended with ${result}, or did not say "
                            "\"${words}\":\n${output}${error}")
    endif()
endfunction()
installed("plan +Choose a clock.*validate" --help)
installed("sim:mi210" info)
file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/document_files/few.csv ${home}/sweep.csv)
installed("not in these figures" plan sweep.csv --max-slowdown 1% --format json -o plan.json)
installed("promised" validate --help)
installed("^$" report sweep.csv plan.json -o report.html)
installed("kept in .*simulated_AMD_Instinct_MI210.csv" measure-latency --device sim:mi210 --repeat 3
          --clocks 500,1700)
installed("no GPU work was seen" run -- true)
execute_process(COMMAND ${root}/usr/bin/kdvfs-restore --help OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
foreach(word sweeps.md report.md tuning.md)
    if(NOT EXISTS ${root}/usr/share/doc/kdvfs-tools/docs/${word})
        message(FATAL_ERROR "kdvfs-tools has no docs/${word}, which errors name")
    endif()
endforeach()
foreach(component "" tune)
    execute_process(COMMAND ${CMAKE_COMMAND} -DCLIENT=${CLIENT} -DBUILD=${FOLDER}/client${component}
                            -DGENERATOR=${GENERATOR} -DCOMPILER=${COMPILER}
                            "-DOPTIONS=-DCMAKE_PREFIX_PATH=${root}/usr;-DCOMPONENT=${component}"
                            -P ${CMAKE_CURRENT_LIST_DIR}/client_test.cmake
                    COMMAND_ERROR_IS_FATAL ANY)
endforeach()

execute_process(COMMAND ${CMAKE_COMMAND} --build ${PROJECT} --target tarball
                COMMAND_ERROR_IS_FATAL ANY)
file(GLOB tarball ${PROJECT}/kdvfs-${VERSION}-*.tar.gz)
execute_process(COMMAND ${CMAKE_COMMAND} -E tar xf ${tarball} WORKING_DIRECTORY ${FOLDER}
                COMMAND_ERROR_IS_FATAL ANY)
set(programs ${FOLDER}/kdvfs-${VERSION}/bin)
installed("sim:mi210" info)
installed("no GPU work was seen" run -- true)
