/* SPDX-License-Identifier: MIT
 * An NVML that refuses to set anything, as it does where a user has no rights, and passes all that
 * reads on to the real one: this library depends on a copy of it (self_tuning.sh). Each refusal is
 * a line in the file that REFUSED_LOG names. */
#include <stdio.h>
#include <stdlib.h>

static int refuse(const char* function) {
    const char* path = getenv("REFUSED_LOG");
    FILE* log = path ? fopen(path, "a") : 0;
    if (log) {
        fprintf(log, "%s\n", function);
        fclose(log);
    }
    return 4; /* NVML_ERROR_NO_PERMISSION (nvml.h, nvmlReturn_t) */
}

/* What is refused. Arguments are not read, so the list of them may be empty. */
#define REFUSES(function) \
    int function() { return refuse(#function); }

REFUSES(nvmlDeviceSetGpuLockedClocks)
REFUSES(nvmlDeviceResetGpuLockedClocks)
REFUSES(nvmlDeviceSetMemoryLockedClocks)
REFUSES(nvmlDeviceResetMemoryLockedClocks)
REFUSES(nvmlDeviceSetApplicationsClocks)
REFUSES(nvmlDeviceResetApplicationsClocks)
REFUSES(nvmlDeviceSetPowerManagementLimit)
REFUSES(nvmlDeviceSetPersistenceMode)
REFUSES(nvmlDeviceSetComputeMode)
REFUSES(nvmlDeviceSetMigMode)
REFUSES(nvmlDeviceSetEccMode)
REFUSES(nvmlDeviceSetGpcClkVfOffset)
REFUSES(nvmlDeviceSetMemClkVfOffset)
REFUSES(nvmlDeviceSetClockOffsets)
REFUSES(nvmlDeviceSetAutoBoostedClocksEnabled)
REFUSES(nvmlDeviceSetDefaultAutoBoostedClocksEnabled)
REFUSES(nvmlDeviceSetPowerManagementLimit_v2)
