# SPDX-License-Identifier: MIT
# cmake -DSOURCE_DIR=folder -DWORK=folder -DPRESET=name -DCOMPILER=path -DFLAGS=... -P preset_flags.cmake
# Compiles a small program of the examples with the compiler and the flags of one preset, and with the
# project's warnings as errors: a preset that cannot build is seen before somebody needs it.
cmake_minimum_required(VERSION 3.25)
file(READ ${SOURCE_DIR}/CMakePresets.json presets)
string(JSON count LENGTH "${presets}" configurePresets)
math(EXPR last "${count} - 1")
foreach(index RANGE ${last})
    string(JSON name GET "${presets}" configurePresets ${index} name)
    if(name STREQUAL PRESET)
        string(JSON variables GET "${presets}" configurePresets ${index} cacheVariables)
    endif()
endforeach()
if(NOT variables)
    message(FATAL_ERROR "there is no preset ${PRESET}")
endif()
string(JSON compiler ERROR_VARIABLE none GET "${variables}" CMAKE_CXX_COMPILER)
if(none)
    set(compiler ${COMPILER})
endif()
string(JSON preset_flags GET "${variables}" CMAKE_CXX_FLAGS)
separate_arguments(preset_flags)
file(MAKE_DIRECTORY ${WORK})
execute_process(COMMAND ${compiler} ${FLAGS} ${preset_flags} -c ${SOURCE_DIR}/examples/ladder/07_plan_from_profile.cpp
                        -o ${WORK}/${PRESET}.o
                OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE status)
if(status)
    message(FATAL_ERROR "the preset ${PRESET} cannot build:\n${out}")
endif()
