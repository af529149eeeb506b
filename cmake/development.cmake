# SPDX-License-Identifier: MIT
# What tests, examples and benchmarks share.
find_package(Eigen3 REQUIRED NO_MODULE)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
find_package(Python3 3.9 QUIET COMPONENTS Interpreter)  # once: each time costs a second
find_package(RocmSmi QUIET)  # the library needs it at run time at most; tests and benchmarks do more
enable_testing()

if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    find_program(CCACHE ccache)
    mark_as_advanced(CCACHE)
    if(CCACHE)
        set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
    endif()
endif()

# Warnings are for those who build kdvfs, never for those who use it. The presets of those who change
# it make errors of them: another compiler may warn of what is right.
add_library(kdvfs_warnings INTERFACE)
set(kdvfs_warning_options -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
# g++ 12 takes a member of std::regex for uninitialized under AddressSanitizer (GCC bug 105562).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_FLAGS MATCHES "-fsanitize=[a-z,]*address")
    list(APPEND kdvfs_warning_options -Wno-maybe-uninitialized)
endif()
target_compile_options(kdvfs_warnings INTERFACE $<BUILD_INTERFACE:${kdvfs_warning_options}>)

# The compilers that headers and what must not compile are tried with: the oldest of each that is
# supported, where it is installed.
find_program(KDVFS_GXX NAMES g++-12 g++)
find_program(KDVFS_CLANGXX NAMES clang++-14 clang++)
mark_as_advanced(KDVFS_GXX KDVFS_CLANGXX)
set(kdvfs_compilers ${KDVFS_GXX} ${KDVFS_CLANGXX})
list(FILTER kdvfs_compilers EXCLUDE REGEX NOTFOUND)

set(KDVFS_TOOLS_OPTIONS "" CACHE STRING
    "Compiler options of the programs that are installed: a quick build gives them their own -O2")
# CI has little time: benchmarks that no test runs, and headers alone but those at the top.
option(KDVFS_SHORT_BUILD "Leave what only the soak needs to the target soak_programs")
if(KDVFS_SHORT_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # g++ collects no garbage below 1 GiB: 6 to 10 % less time, a quarter more memory.
    add_compile_options(--param=ggc-min-heapsize=1048576)
    # Two hundred programs are linked, each in two thirds of the time.
    find_program(KDVFS_GOLD ld.gold)
    mark_as_advanced(KDVFS_GOLD)
    if(KDVFS_GOLD)
        add_link_options(-fuse-ld=gold)
    endif()
endif()
# A whole build takes half the time when what a program's files share is compiled once; for work on
# one of them, or to see whether each includes what it needs, they are compiled one by one.
option(KDVFS_TEST_UNITY "Compile the files of a program of tests or tools together")
option(KDVFS_LINK_COMPILED "Let tests, examples and tools link the compiled form")
add_custom_target(soak_programs)
