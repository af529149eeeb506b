/* SPDX-License-Identifier: MIT */
#ifndef KDVFS_KDVFS_H
#define KDVFS_KDVFS_H

/* The C interface of kdvfs, for C, Fortran (iso_c_binding), Python (ctypes) and others. Functions
   are added, never changed, while KDVFS_C_VERSION stays; link libkdvfs_c.

   Each function that can fail returns a kdvfs_status; kdvfs_last_error() says in words what failed
   and what to do about it. Functions are thread-safe, except those of one simulated GPU, which one
   thread must call. Text is UTF-8; names of scopes are 1 to 1024 printable ASCII characters without
   quotes and backslashes. Clocks are in MHz; 0 leaves a clock to the board. Streams are hipStream_t
   or cudaStream_t as void*; NULL is the default stream. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KDVFS_C_VERSION 1

/* What went wrong. Passed as int, so that every language agrees on its size. */
enum kdvfs_status_code {
    KDVFS_OK = 0,
    KDVFS_INVALID_INPUT = 1,   /* an argument or a call that makes no sense */
    KDVFS_NOT_SUPPORTED = 2,   /* the device or driver cannot do this at all */
    KDVFS_REFUSED = 3,         /* the device or driver does not allow it to this process */
    KDVFS_BUSY = 4,            /* held by another owner, or worth a retry */
    KDVFS_VANISHED = 5,        /* the device is gone */
    KDVFS_EXTERNAL_CHANGE = 6, /* somebody else changed what kdvfs had set */
    KDVFS_TIMED_OUT = 7,       /* no answer within the deadline */
    KDVFS_IO = 8,              /* reading or writing failed */
    KDVFS_NO_MEMORY = 9,
    KDVFS_INTERNAL = 10 /* a defect of kdvfs */
};
typedef int kdvfs_status;

typedef struct kdvfs_gpu kdvfs_gpu;         /* an open GPU */
typedef struct kdvfs_request kdvfs_request; /* a standing request for clocks */

/* A scope that has begun, in memory of the caller. It needs no initialisation before
   kdvfs_scope_begin and must not be copied between begin and end. */
typedef struct kdvfs_scope {
    uint64_t opaque[8];
} kdvfs_scope;

/* How to open a GPU. Set by kdvfs_options_init before fields are changed. */
typedef struct kdvfs_options {
    size_t size;              /* of this structure: tells versions apart */
    int measure_if_refused;   /* measure where clocks cannot be set, instead of failing */
    uint32_t meter_every;     /* meter one of so many iterations; 1 meters all; 16 by default */
    uint32_t never_below_mhz; /* core clock that no request goes below; 0: none */
    uint32_t never_above_mhz; /* core clock that no request goes above; 0: none */
} kdvfs_options;

/* Version of this interface in the library, and of the library ("0.3.0"). */
int kdvfs_c_version(void);
const char* kdvfs_version(void);
/* "refused"; never NULL. */
const char* kdvfs_status_text(kdvfs_status status);
/* What the calling thread's last failed call said: valid until its next failure; never NULL. */
const char* kdvfs_last_error(void);
/* Frees a text that a function of this interface returned. NULL is allowed. */
void kdvfs_free(char* text);

void kdvfs_options_init(kdvfs_options* options);

/* Opens a GPU to set its clocks and count its energy. vendor: "amd" or "nvidia"; address: PCI
   ("0000:c1:00.0"); options: NULL for the defaults. The handle has no streams until a module of
   the process opens the same GPU by its HIP or CUDA number; requests without a stream work at once.
   Needs the right to set clocks. */
kdvfs_status kdvfs_open(const char* vendor, const char* address, const kdvfs_options* options,
                        kdvfs_gpu** gpu);
/* Opens a GPU to count its energy; no clock is ever set. */
kdvfs_status kdvfs_measure(const char* vendor, const char* address, const kdvfs_options* options,
                           kdvfs_gpu** gpu);
/* Opens a GPU by the number that the vendor's runtime gives it in this process (CUDA_VISIBLE_DEVICES
   renumbers), with its streams: scopes and phases work. "nvidia" needs the driver alone, at run time:
   libcuda.so.1 compiles the marker kernel. "amd" answers KDVFS_NOT_SUPPORTED. */
kdvfs_status kdvfs_open_device(const char* vendor, int number, const kdvfs_options* options,
                               kdvfs_gpu** gpu);
/* The same to count its energy; no clock is ever set. */
kdvfs_status kdvfs_measure_device(const char* vendor, int number, const kdvfs_options* options,
                                  kdvfs_gpu** gpu);
/* Opens a simulated GPU: "mi300x", "mi250x", "mi210", "h100" or "rtx3080ti". Time is virtual and no
   joule is real. seed: of the counter's noise. */
kdvfs_status kdvfs_open_simulated(const char* preset, uint64_t seed, const kdvfs_options* options,
                                  kdvfs_gpu** gpu);
/* Puts the clocks back and frees the handle. Fails with KDVFS_INVALID_INPUT, and keeps the handle,
   while scopes or requests of it have not ended. Otherwise the handle is gone whatever is returned,
   which is the first error that nobody has asked for. NULL is allowed. */
kdvfs_status kdvfs_close(kdvfs_gpu* gpu);

/* The first error behind the caller's back since the last call. */
kdvfs_status kdvfs_check(kdvfs_gpu* gpu);
/* 1 where clocks are never set; 0 otherwise. */
int kdvfs_measure_only(const kdvfs_gpu* gpu);
/* The core clocks that the device lists, ascending, in MHz: writes at most capacity of them (clocks
   may be NULL with capacity 0) and sets count to how many there are. */
kdvfs_status kdvfs_core_clocks(const kdvfs_gpu* gpu, uint32_t* clocks, size_t capacity,
                               size_t* count);
/* Scopes that begin from now on follow the plan in this JSON file, as `kdvfs plan` writes it: those
   that the plan does not name ask for nothing. */
kdvfs_status kdvfs_follow_plan(kdvfs_gpu* gpu, const char* file);

/* Begins a session, before the first scope: from then on the environment says what the program does.
   KDVFS_MODE is "off", "measure" (the default), "sweep:FILE" or "follow:PLAN"; `kdvfs tune` sets it for
   the programs that it starts. Needs kdvfs_next_iteration. Results of the program never change. */
kdvfs_status kdvfs_session_begin(kdvfs_gpu* gpu);
/* 0 while a sweep waits for more iterations; 1 otherwise. */
int kdvfs_session_done(const kdvfs_gpu* gpu);

/* Reports what the whole run took, in seconds and joules, to `kdvfs tune --counter program`; without it
   does nothing. Call it at the end. */
kdvfs_status kdvfs_report_cost(double seconds, double joules);

/* Begins a scope: until kdvfs_scope_end, work enqueued on the stream is counted under this name and
   runs at the plan's clock, if a plan is followed. */
kdvfs_status kdvfs_scope_begin(kdvfs_gpu* gpu, void* stream, const char* name, uint32_t variant,
                               kdvfs_scope* scope);
/* The same, at a clock that the call asks for; 0 leaves it to the board. */
kdvfs_status kdvfs_scope_begin_at(kdvfs_gpu* gpu, void* stream, const char* name, uint32_t variant,
                                  uint32_t core_mhz, uint32_t memory_mhz, kdvfs_scope* scope);
/* Begins a phase, which encloses scopes ("forward"), asks for no clock and ends as a scope does. */
kdvfs_status kdvfs_phase_begin(kdvfs_gpu* gpu, void* stream, const char* name, kdvfs_scope* scope);
/* Ends a scope or phase, on any thread. The scope has ended whatever is returned; ending one twice
   does nothing. */
kdvfs_status kdvfs_scope_end(kdvfs_scope* scope);

/* Says where an iteration begins. */
kdvfs_status kdvfs_next_iteration(kdvfs_gpu* gpu);

/* Asks for clocks from now until kdvfs_request_end, without a stream. The highest request wins. */
kdvfs_status kdvfs_request_begin(kdvfs_gpu* gpu, uint32_t core_mhz, uint32_t memory_mhz,
                                 kdvfs_request** request);
kdvfs_status kdvfs_request_change(kdvfs_request* request, uint32_t core_mhz, uint32_t memory_mhz);
/* NULL is allowed. */
void kdvfs_request_end(kdvfs_request* request);

/* The report as JSON (docs/report.md names its keys), to be freed by kdvfs_free. */
kdvfs_status kdvfs_report_json(kdvfs_gpu* gpu, char** json);

/* What only simulated GPUs can do; others answer KDVFS_NOT_SUPPORTED. */

/* Makes a stream, which lives as long as the GPU. */
kdvfs_status kdvfs_simulated_stream(kdvfs_gpu* gpu, void** stream);
/* Enqueues a kernel that computes so many FLOPs on the matrix units (16 bit) and the vector units
   (32 bit) and moves so many bytes of memory. */
kdvfs_status kdvfs_simulated_launch(kdvfs_gpu* gpu, void* stream, double matrix_flops,
                                    double vector_flops, double memory_bytes);
/* Lets virtual time pass until all streams are done. */
kdvfs_status kdvfs_simulated_synchronize(kdvfs_gpu* gpu);
/* Virtual time in seconds, and the energy in joules that the board has really drawn since it was
   made. Either pointer may be NULL. */
kdvfs_status kdvfs_simulated_totals(kdvfs_gpu* gpu, double* seconds, double* joules);

#ifdef __cplusplus
}
#endif

#endif
