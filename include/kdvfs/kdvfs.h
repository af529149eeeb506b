/* SPDX-License-Identifier: MIT */
#ifndef KDVFS_H
#define KDVFS_H

/**
 * @file
 * The C interface of libkdvfs (CMake: kdvfs::compiled): what other languages build on.
 *
 * Every function returns KDVFS_OK or an error code; `kdvfs_last_error` then has the text, for the
 * calling thread, until its next call. Handles are opaque. All functions are thread-safe. Strings
 * are UTF-8 and end with a zero byte. The interface grows; what is in it stays (KDVFS_C_VERSION).
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Grows with each addition; `kdvfs_c_version()` is that of the library that was loaded. */
#define KDVFS_C_VERSION 1

typedef enum kdvfs_status {
    KDVFS_OK = 0,
    KDVFS_INVALID_INPUT = 1,   /**< what the caller gave cannot be used */
    KDVFS_NOT_SUPPORTED = 2,   /**< the device or the library cannot do this */
    KDVFS_REFUSED = 3,         /**< the driver will not for this process */
    KDVFS_BUSY = 4,            /**< held by another owner */
    KDVFS_VANISHED = 5,        /**< the device is gone */
    KDVFS_EXTERNAL_CHANGE = 6, /**< somebody else changed what kdvfs had set */
    KDVFS_TIMED_OUT = 7,       /**< no answer within the deadline */
    KDVFS_IO = 8,              /**< reading or writing failed */
    KDVFS_UNEXPECTED = 9       /**< out of memory, or an error without a code */
} kdvfs_status;

typedef struct kdvfs_gpu kdvfs_gpu;         /**< an open GPU */
typedef struct kdvfs_scope kdvfs_scope;     /**< an entered scope */
typedef struct kdvfs_request kdvfs_request; /**< a request for a clock without a stream */

/** Flags of the opening functions. */
enum {
    KDVFS_MEASURE_ONLY = 1, /**< never set a clock */
    KDVFS_FALL_BACK = 2     /**< measure only where clocks cannot be set; else that is an error */
};

/** @returns the version of the C interface of the loaded library */
int kdvfs_c_version(void);
/** @returns for example "0.3.0" */
const char* kdvfs_version(void);
/** @returns the text of the calling thread's last error; "" after a call that succeeded */
const char* kdvfs_last_error(void);

/**
 * Opens a GPU of a driver by its PCI address, without HIP or CUDA in the process: clocks are
 * requested by `kdvfs_request_begin`, and the board's energy is counted; scopes need streams.
 * @param vendor  "amd" or "nvidia"
 * @param address for example "0000:c1:00.0"
 * @param flags   0, KDVFS_MEASURE_ONLY or KDVFS_FALL_BACK
 * @param gpu     receives the handle; close it with `kdvfs_close`
 */
kdvfs_status kdvfs_open_board(const char* vendor, const char* address, unsigned flags,
                              kdvfs_gpu** gpu);

/**
 * Opens a simulated GPU: virtual time, simulated energy. For tests and demonstrations.
 * @param board "mi210", "mi250x", "mi300x", "h100" or "rtx_3080_ti"
 */
kdvfs_status kdvfs_open_simulated(const char* board, unsigned flags, kdvfs_gpu** gpu);

/** Restores the clocks and closes the handle; null is allowed. Ends its scopes and requests first. */
kdvfs_status kdvfs_close(kdvfs_gpu* gpu);

/** @returns 1 where clocks are never set, 0 where they are, -1 for a null handle */
int kdvfs_measure_only(const kdvfs_gpu* gpu);

/**
 * Enters a scope: what is enqueued on the stream until `kdvfs_scope_end` runs at the requested clock
 * and is measured under this name.
 * @param stream   hipStream_t or cudaStream_t; null is the default stream
 * @param name     1 to 1024 printable ASCII characters without " and backslash
 * @param variant  which of the kernel's shapes runs; 0 where there is one
 * @param core_mhz highest core clock, in MHz; 0 requests nothing, so that the scope measures only
 */
kdvfs_status kdvfs_scope_begin(kdvfs_gpu* gpu, void* stream, const char* name, uint32_t variant,
                               uint32_t core_mhz, kdvfs_scope** scope);
/** Leaves a scope and frees it; null is allowed. */
kdvfs_status kdvfs_scope_end(kdvfs_scope* scope);

/** The same for a phase that encloses other scopes and requests nothing: forward, backward. */
kdvfs_status kdvfs_phase_begin(kdvfs_gpu* gpu, void* stream, const char* name,
                               kdvfs_scope** phase);

/** An iteration begins. One in 16 is metered. */
kdvfs_status kdvfs_next_iteration(kdvfs_gpu* gpu);

/**
 * Requests a clock from now until `kdvfs_request_end`, in the order of the host's calls.
 * @param core_mhz highest core clock, in MHz
 */
kdvfs_status kdvfs_request_begin(kdvfs_gpu* gpu, uint32_t core_mhz, kdvfs_request** request);
/** Ends a request and frees it; null is allowed. */
kdvfs_status kdvfs_request_end(kdvfs_request* request);

/**
 * The report as JSON (docs/report.md).
 * @param json receives a string; free it with `kdvfs_free`
 */
kdvfs_status kdvfs_report_json(kdvfs_gpu* gpu, char** json);
/** Frees a string that the library returned; null is allowed. */
void kdvfs_free(char* text);

/** Returns the first error that happened in the background since the last call, if any. */
kdvfs_status kdvfs_check(kdvfs_gpu* gpu);

/**
 * Enqueues simulated work on the default stream of a simulated GPU: a roofline of a kernel.
 * @param matrix_flops, vector_flops operations; @param memory_bytes traffic, both at least 0
 */
kdvfs_status kdvfs_simulated_launch(kdvfs_gpu* gpu, double matrix_flops, double vector_flops,
                                    double memory_bytes);
/** Lets virtual time pass until all simulated work is done. */
kdvfs_status kdvfs_simulated_synchronize(kdvfs_gpu* gpu);

#ifdef __cplusplus
}
#endif

#endif
