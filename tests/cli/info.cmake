# SPDX-License-Identifier: MIT
# kdvfs info on a double of NVML: it tells of the board, sets nothing and makes nothing.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# Of this test's own, where they are looked into.
set(ENV{KDVFS_RECORDS} ${FOLDER}/records)
set(ENV{NVML_DOUBLE_LOG} ${FOLDER}/writes)
set(machine /run/kdvfs/0000:1b:00.0)
if(EXISTS ${machine})
    set(was_there TRUE)
endif()

set(ENV{KDVFS_NVML} ${NVML_DOUBLE})
expect(0 "Double of an NVIDIA GPU .0000:1b:00.0., sm_90
  mechanism  NVML locked clocks, driver 580.95.05
  core       210 to 1980 MHz, 5 clocks
  memory     405 to 2619 MHz, 2 clocks
  energy     counter, power meter, log of power samples
  now        core 1980 MHz, memory 2619 MHz
  may set    [a-z]+[ :][^\n]*CAP_SYS_ADMIN[^\n]*
  record in  [^\n]*
  held by    nobody
sim:" info)

# A driver that cannot lock the memory clock, and none at all.
set(ENV{KDVFS_NVML} ${NVML_DOUBLE_OLD})
expect(0 "memory     cannot be set" info)
set(ENV{KDVFS_NVML} ${FOLDER}/absent.so)
expect(0 "no NVIDIA GPU found: [^\n]*absent.so[^\n]*No such file" info)

if(EXISTS ${FOLDER}/writes OR EXISTS ${FOLDER}/records)
    message(FATAL_ERROR "kdvfs info has set or made something")
endif()
if(EXISTS ${machine} AND NOT was_there)
    message(FATAL_ERROR "kdvfs info has made ${machine}")
endif()
