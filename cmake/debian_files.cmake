# SPDX-License-Identifier: MIT
# Run by cpack on the files of each package before it packs them: what Debian wants compressed, and the
# changelog and licence that each package of Debian has.
file(GLOB pages ${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/man/man1/*.1)
set(names libkdvfs-dev dev kdvfs-tools tools)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # or SOURCE_DATE_EPOCH
while(names)
    list(POP_FRONT names package component)
    set(folder ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr/share/doc/${package})
    if(IS_DIRECTORY ${CPACK_TEMPORARY_DIRECTORY}/${component})
        file(WRITE ${folder}/changelog
             "${package} (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n"
             "  * What users notice is in CHANGELOG.md, in the sources.\n\n"
             " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
        file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/../LICENSE ${folder}/copyright)
        list(APPEND pages ${folder}/changelog)
    endif()
endwhile()
execute_process(COMMAND gzip -9nf ${pages} COMMAND_ERROR_IS_FATAL ANY)
