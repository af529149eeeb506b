# SPDX-License-Identifier: MIT
# cmake -DINCLUDE=folder -DTOOLS="folder;folder" -P layering.cmake
# What a device may implement is a named concept with a contract: no header of INCLUDE looks for a
# function by a requires-expression on the spot. What is installed (TOOLS) takes nothing from the
# demo.
file(GLOB_RECURSE headers ${INCLUDE}/kdvfs/*.hpp)
if(NOT headers)
    message(FATAL_ERROR "no headers in ${INCLUDE}")
endif()
set(found "")
foreach(header ${headers})
    file(STRINGS ${header} lines REGEX "if constexpr \\(requires|requires requires")
    if(lines)
        list(APPEND found "${header}: ${lines}")
    endif()
endforeach()
foreach(tool ${TOOLS})
    file(GLOB_RECURSE sources ${tool}/*.?pp)
    foreach(source ${sources})
        file(STRINGS ${source} lines REGEX "#include <examples/gpt3_iteration/")
        if(lines)
            list(APPEND found "${source}: ${lines}")
        endif()
    endforeach()
endforeach()
if(found)
    list(JOIN found "\n" found)
    message(FATAL_ERROR "hooks without a concept, or tools that include the demo:\n${found}")
endif()
