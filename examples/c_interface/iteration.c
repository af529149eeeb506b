/* SPDX-License-Identifier: MIT */
/* Ten iterations of two kernels on a simulated GPU, with the second at a lower clock. */
#include <kdvfs/kdvfs.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_ok(kdvfs_status status) {
    if (status == KDVFS_OK) return;
    fprintf(stderr, "%s: %s\n", kdvfs_status_text(status), kdvfs_last_error());
    exit(1);
}

/* The number behind a key in the report's row of a kernel. A program with a JSON library uses it. */
static double number_in_row(const char* json, const char* kernel, const char* key) {
    const char* row = strstr(json, kernel);
    const char* found = row == NULL ? NULL : strstr(row, key);
    return found == NULL ? -1 : strtod(found + strlen(key), NULL);
}

int main(void) {
    kdvfs_gpu* gpu = NULL;
    kdvfs_options options;
    kdvfs_scope phase, scope;
    void* stream = NULL;
    char* json = NULL;
    uint32_t clocks[4096];
    size_t count = 0;
    double seconds = 0, joules = 0;
    int i;

    kdvfs_options_init(&options);
    options.meter_every = 1;
    expect_ok(kdvfs_open_simulated("mi300x", 1, &options, &gpu));
    expect_ok(kdvfs_simulated_stream(gpu, &stream));
    expect_ok(kdvfs_core_clocks(gpu, clocks, 4096, &count));

    for (i = 0; i < 10; ++i) {
        expect_ok(kdvfs_next_iteration(gpu));
        expect_ok(kdvfs_phase_begin(gpu, stream, "forward", &phase));
        expect_ok(kdvfs_scope_begin(gpu, stream, "gemm", 0, &scope));
        expect_ok(kdvfs_simulated_launch(gpu, stream, 4e13, 0, 1e9));
        expect_ok(kdvfs_scope_end(&scope));
        expect_ok(kdvfs_scope_begin_at(gpu, stream, "copy", 0, clocks[count / 2], 0, &scope));
        expect_ok(kdvfs_simulated_launch(gpu, stream, 0, 0, 2e11));
        expect_ok(kdvfs_scope_end(&scope));
        expect_ok(kdvfs_scope_end(&phase));
        expect_ok(kdvfs_simulated_synchronize(gpu));
    }
    expect_ok(kdvfs_check(gpu));
    expect_ok(kdvfs_simulated_totals(gpu, &seconds, &joules));
    expect_ok(kdvfs_report_json(gpu, &json));
    printf("simulated MI300X: %.4f s, %.1f J in all\n", seconds, joules);
    printf("gemm: %.0f calls, %.1f J\n", number_in_row(json, "\"gemm\"", "\"calls\":"),
           number_in_row(json, "\"gemm\"", "\"joules\":"));
    printf("copy: %.0f calls, %.1f J\n", number_in_row(json, "\"copy\"", "\"calls\":"),
           number_in_row(json, "\"copy\"", "\"joules\":"));
    kdvfs_free(json);
    expect_ok(kdvfs_close(gpu));
    return 0;
}
