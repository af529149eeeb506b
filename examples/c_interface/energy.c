/* SPDX-License-Identifier: MIT */
/* A training loop in C on a simulated MI210: two kernels, a clock for one of them, a report. */
#include <kdvfs/kdvfs.h>

#include <stdio.h>
#include <stdlib.h>

static void check(kdvfs_status status) {
    if (status == KDVFS_OK) return;
    fprintf(stderr, "energy: %s\n", kdvfs_last_error());
    exit(1);
}

static void run(kdvfs_gpu* gpu, const char* name, unsigned core_mhz, double flops, double bytes) {
    kdvfs_scope* scope = NULL;
    check(kdvfs_scope_begin(gpu, NULL, name, 0, core_mhz, &scope));
    check(kdvfs_simulated_launch(gpu, flops, 0, bytes));
    check(kdvfs_scope_end(scope));
}

int main(void) {
    kdvfs_gpu* gpu = NULL;
    check(kdvfs_open_simulated("mi210", 0, &gpu));
    for (int step = 0; step < 64; ++step) {
        check(kdvfs_next_iteration(gpu));
        kdvfs_scope* phase = NULL;
        check(kdvfs_phase_begin(gpu, NULL, "forward", &phase));
        run(gpu, "gemm", 0, 4e12, 2e8);       /* 0: no clock is requested, only measured */
        run(gpu, "layernorm", 1100, 0, 4e10); /* bound by memory: 1100 MHz are enough */
        check(kdvfs_scope_end(phase));
        check(kdvfs_simulated_synchronize(gpu));
    }
    char* report = NULL;
    check(kdvfs_report_json(gpu, &report));
    puts(report);
    kdvfs_free(report);
    check(kdvfs_check(gpu));
    check(kdvfs_close(gpu));
    return 0;
}
