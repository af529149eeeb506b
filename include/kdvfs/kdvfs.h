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
    uint32_t never_below_mhz; /* core clock that no request goes below; 0: none. A bound beyond the
                                 clocks that the device lists is the nearest of them */
    uint32_t never_above_mhz; /* core clock that no request goes above; 0: none. The same */
    int64_t
        switch_latency_ns;   /* of the clocks; 0: every scope switches; below 0, as by default: not
                                known, and scopes that would not pay at 150 ms are held back */
    uint32_t idle_clock_mhz; /* core clock while there is no work; 0: none. Only for programs whose
                                every launch is in a scope */
    int64_t idle_after_ns;   /* of no work, until it is asked for; 20 ms by default */
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
/* Opens a GPU by the number that the vendor's runtime gives it in this process
   (CUDA_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES renumber), with its streams: scopes and phases
   work. "nvidia" needs the driver alone, at run time: libcuda.so.1 compiles the marker kernel.
   "amd" needs libamdhip64, and libhiprtc to compile the marker kernel. */
kdvfs_status kdvfs_open_device(const char* vendor, int number, const kdvfs_options* options,
                               kdvfs_gpu** gpu);
/* The same to count its energy; no clock is ever set. */
kdvfs_status kdvfs_measure_device(const char* vendor, int number, const kdvfs_options* options,
                                  kdvfs_gpu** gpu);
/* Opens a simulated GPU: "mi300x", "mi250x", "mi210", "h100" or "rtx3080ti". Time is virtual and no
   joule is real. seed: of the counter's noise. */
kdvfs_status kdvfs_open_simulated(const char* preset, uint64_t seed, const kdvfs_options* options,
                                  kdvfs_gpu** gpu);
/* Puts the clocks back and closes the handle; waits for calls with it on other threads. Fails with
   KDVFS_INVALID_INPUT, and keeps the handle open, while scopes, requests, steps, pipeline sessions
   or power limits of it have not ended. With any other status it is closed: the status is that of
   the first error that nobody has asked for, or KDVFS_REFUSED where that one is
   KDVFS_INVALID_INPUT. Calls with a closed handle fail with KDVFS_INVALID_INPUT: some hundred bytes
   are kept for that. NULL is allowed. */
kdvfs_status kdvfs_close(kdvfs_gpu* gpu);
/* The same whatever has not ended, as at the end of a program whose other threads still run. Power
   limits are put back. Scopes have ended; the rest has no effect any more and is still to be
   ended. */
kdvfs_status kdvfs_force_close(kdvfs_gpu* gpu);

/* The first error behind the caller's back since the last call. */
kdvfs_status kdvfs_check(kdvfs_gpu* gpu);
/* 1 where clocks are never set; 0 otherwise. */
int kdvfs_measure_only(const kdvfs_gpu* gpu);
/* The core clocks that the device lists, ascending, in MHz: writes at most capacity of them (clocks
   may be NULL with capacity 0) and sets count to how many there are. */
kdvfs_status kdvfs_core_clocks(const kdvfs_gpu* gpu, uint32_t* clocks, size_t capacity,
                               size_t* count);
/* Scopes that begin from now on follow the plan in this JSON file, as `kdvfs plan` writes it: those
   that the plan does not name ask for nothing. Fails with KDVFS_INVALID_INPUT once a session has
   begun: KDVFS_MODE=follow:PLAN is its plan. */
kdvfs_status kdvfs_follow_plan(kdvfs_gpu* gpu, const char* file);

/* Begins a session, before the first scope: from then on the environment says what the program
   does. KDVFS_MODE is "off", "measure" (the default), "sweep:FILE" or "follow:PLAN"; `kdvfs tune`
   sets it for the programs that it starts. Needs kdvfs_next_iteration. Results of the program never
   change. */
kdvfs_status kdvfs_session_begin(kdvfs_gpu* gpu);
/* 0 while a sweep waits for more iterations; 1 otherwise. */
int kdvfs_session_done(const kdvfs_gpu* gpu);

/* Reports what the whole run took, in seconds and joules, to `kdvfs tune --counter program`;
   without it does nothing. Call it at the end. */
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

/* Serving: the steps of an engine with continuous batching (docs/serving.md). Steps of one engine
   are begun and ended by one thread. */

typedef struct kdvfs_steps kdvfs_steps; /* the steps of one engine on one GPU */

/* A step that has begun, in memory of the caller; as kdvfs_scope. */
typedef struct kdvfs_step {
    uint64_t opaque[12];
} kdvfs_step;

/* Counts and meters steps from now on. They run at the driver's default clocks until
 * kdvfs_steps_plan. */
kdvfs_status kdvfs_steps_begin(kdvfs_gpu* gpu, kdvfs_steps** steps);
/* Records how long a step took, in seconds, for the plan: some minutes of ordinary load at the
   default clocks. context_tokens: mean length of the sequences so far. */
kdvfs_status kdvfs_steps_observe(kdvfs_steps* steps, uint32_t prompt_tokens, uint32_t sequences,
                                 uint32_t context_tokens, double seconds);
/* Of the prompt tokens of steps that are recorded or begun from now on: the mean number of tokens
   of their prompt that earlier steps read, or a cache held; 0 at first. */
kdvfs_status kdvfs_steps_prompt_context(kdvfs_steps* steps, uint32_t tokens);
/* Plans the clock of each step from a step table (CSV) and the recorded load; steps follow the plan
   from now on. policy: "one_clock", "no_harm", "two_clocks" or "by_step"; gap_s: longest time
   between two tokens of a sequence; chunk_tokens: most prompt tokens of one step. */
kdvfs_status kdvfs_steps_plan(kdvfs_steps* steps, const char* table, const char* policy,
                              double gap_s, double switch_latency_s, uint32_t chunk_tokens);
/* The share of first tokens that plans made from now on may make late; 0.001 by default. */
kdvfs_status kdvfs_steps_late_first_tokens(kdvfs_steps* steps, double share);
/* Measures what the plan saves, from now on: blocks of block_s seconds by the plan and at the top
   clock, in pairs of random order. A plan that costs energy is no longer followed. The report has
   the change under "proof". Needs kdvfs_steps_energy; ends with the next kdvfs_steps_plan. */
kdvfs_status kdvfs_steps_prove(kdvfs_steps* steps, double block_s);
/* Tunes the clocks while the engine serves: warm_up_s seconds at the top clock, sweep_s seconds of
   blocks at each of `clocks` (MHz, ascending, `count` of them), then a plan as kdvfs_steps_plan
   makes it, proven as kdvfs_steps_prove does and left for the top clock where it costs energy or
   makes steps late. Needs kdvfs_steps_ran and kdvfs_steps_energy; ends with the next
   kdvfs_steps_plan. The report has "phase" ("sweep", "follow" or "top") and "because" under
   "tuning". */
kdvfs_status kdvfs_steps_tune(kdvfs_steps* steps, const uint32_t* clocks, size_t count,
                              const char* policy, double gap_s, double switch_latency_s,
                              uint32_t chunk_tokens, double warm_up_s, double sweep_s,
                              double block_s);
/* A step of an engine that is tuned has run, in seconds by the clock of kdvfs_steps_energy. Call it
   after kdvfs_step_end. */
kdvfs_status kdvfs_steps_ran(kdvfs_steps* steps, uint32_t prompt_tokens, uint32_t sequences,
                             uint32_t context_tokens, double begin_s, double end_s);
/* A sample of the board's energy counter and its time, both since any origin. Call it some times a
   second, between steps. */
kdvfs_status kdvfs_steps_energy(kdvfs_steps* steps, double joules, double seconds);
/* Begins a step that reads prompt_tokens and gives each of `sequences` one token. slack_s: how much
   later than at the top clock its tightest first token may come; INFINITY where none is due. */
kdvfs_status kdvfs_step_begin(kdvfs_steps* steps, void* stream, uint32_t prompt_tokens,
                              uint32_t sequences, uint32_t context_tokens, double slack_s,
                              kdvfs_step* step);
/* Ends a step; its clock stays until the next step asks for another. Ending one twice does nothing.
 */
kdvfs_status kdvfs_step_end(kdvfs_step* step);
/* The engine has nothing to do: the plan's clock of an idle board, in stream order. */
kdvfs_status kdvfs_steps_rest(kdvfs_steps* steps, void* stream);
/* Steps, tokens and energy per token by phase, as JSON, to be freed by kdvfs_free. */
kdvfs_status kdvfs_steps_report_json(kdvfs_steps* steps, char** json);
/* Fails with KDVFS_INVALID_INPUT, and keeps the handle, while a step has not ended. NULL is
 * allowed. */
kdvfs_status kdvfs_steps_end(kdvfs_steps* steps);

/* Serving: shares the energy of steps among their requests (docs/serving.md). One thread calls it.
 */

typedef struct kdvfs_requests kdvfs_requests; /* the requests of one engine */

/* What one step does for one request. */
typedef struct kdvfs_request_work {
    uint32_t request;        /* its number, by kdvfs_request_open */
    uint32_t answer_tokens;  /* generated */
    uint32_t context_tokens; /* keys and values that are read for these, cached included */
    uint32_t prompt_tokens;  /* computed: those found in a cache are not */
    uint32_t prompt_context; /* mean number of tokens that these attend to */
} kdvfs_request_work;

/* What one request has used. */
typedef struct kdvfs_request_energy {
    const char* id;
    double joules;
    double low_joules; /* ends of the 95 % interval */
    double high_joules;
    uint64_t steps;
    uint64_t prompt_tokens; /* computed */
    uint64_t answer_tokens;
} kdvfs_request_energy;

/* report: called for each closed request once its last steps are settled; may be NULL. */
kdvfs_status kdvfs_requests_begin(void (*report)(void* data, const kdvfs_request_energy* request),
                                  void* data, kdvfs_requests** requests);
/* A step whose energy was measured by itself, summed over all boards. Energies are shared by the
   model that is fitted to these steps; the first kdvfs_request_open ends the fit. */
kdvfs_status kdvfs_requests_fit(kdvfs_requests* requests, const kdvfs_request_work* works,
                                size_t count, double joules);
kdvfs_status kdvfs_request_open(kdvfs_requests* requests, const char* id, uint32_t* number);
kdvfs_status kdvfs_requests_step(kdvfs_requests* requests, const kdvfs_request_work* works,
                                 size_t count);
/* The steps since the last call took this much, without idle time. deviation: its standard
   deviation, in joules. */
kdvfs_status kdvfs_requests_settle(kdvfs_requests* requests, double joules, double deviation);
/* Energy between steps: never divided among requests. */
kdvfs_status kdvfs_requests_idle(kdvfs_requests* requests, double joules);
kdvfs_status kdvfs_request_close(kdvfs_requests* requests, uint32_t number);
/* Histograms of the reported requests in Prometheus' text format, to be freed by kdvfs_free.
   labels: of all lines, such as model="qwen"; may be NULL. */
kdvfs_status kdvfs_requests_prometheus(kdvfs_requests* requests, const char* labels, char** text);
/* NULL is allowed. */
void kdvfs_requests_end(kdvfs_requests* requests);

/* Training: the power limit of a board, found while training goes on (docs/training.md). */

typedef struct kdvfs_power_limit kdvfs_power_limit;

enum kdvfs_power_limit_goal {
    KDVFS_LEAST_ENERGY = 0,
    KDVFS_LEAST_TIME = 1,
    KDVFS_LEAST_COST = 2,      /* parameter * energy + (1 - parameter) * highest limit * time */
    KDVFS_BOUNDED_SLOWDOWN = 3 /* the lowest limit slower than the highest by at most parameter */
};

/* Set by kdvfs_power_limit_options_init before fields are changed. */
typedef struct kdvfs_power_limit_options {
    size_t size;
    double step_w;           /* between two limits, in watts */
    uint32_t warmup_steps;   /* under a new limit before it is measured */
    uint32_t measured_steps; /* in a window */
    int goal;                /* kdvfs_power_limit_goal */
    double parameter;        /* of the goal: eta from 0 to 1, or 0.05 for 5 % */
    uint32_t ranks;          /* GPUs whose energies a window sums */
    /* At the end of a window, on every rank: replaces this rank's energy in joules by the sum over
       all ranks, and its time in seconds by the longest. NULL for one rank. */
    void (*combine)(void* data, double* joules, double* seconds);
    void* data; /* of combine */
} kdvfs_power_limit_options;

void kdvfs_power_limit_options_init(kdvfs_power_limit_options* options);
/* Begins the search on an open GPU. Sets limits from now on: needs the right to do so. options:
   NULL for the defaults. */
kdvfs_status kdvfs_power_limit_begin(kdvfs_gpu* gpu, const kdvfs_power_limit_options* options,
                                     kdvfs_power_limit** limit);
/* Call before each training step, with the board's energy counter and the time, both since any
 * origin. */
kdvfs_status kdvfs_power_limit_step(kdvfs_power_limit* limit, double joules, double seconds);
/* Call at the end of each epoch: what comes between epochs is not measured. */
kdvfs_status kdvfs_power_limit_end_epoch(kdvfs_power_limit* limit);
/* 1 where the best limit has been found and is kept. */
int kdvfs_power_limit_done(const kdvfs_power_limit* limit);
/* The best limit of those measured so far, in watts; 0 where none is. */
double kdvfs_power_limit_best(const kdvfs_power_limit* limit);
/* What an epoch of so many steps costs at the best limit, in the sense of the goal. */
kdvfs_status kdvfs_power_limit_epoch_cost(const kdvfs_power_limit* limit, uint64_t steps,
                                          double* cost);
/* Puts the limit back that was found. The handle is gone whatever is returned. NULL is allowed. */
kdvfs_status kdvfs_power_limit_end(kdvfs_power_limit* limit);

/* Training: the batch size of a job that recurs, learned over its runs and kept in a file that
   processes share. Thread-safe. */

typedef struct kdvfs_batch_sizes kdvfs_batch_sizes;

/* A run of the job, as suggested. */
typedef struct kdvfs_suggested_run {
    uint64_t id;
    uint32_t batch_size;
    int is_profiled;      /* 0: find the power limit in the first epoch */
    double power_limit_w; /* the best one known; 0: none */
    double epoch_cost;    /* at that limit; 0 where not profiled */
    double most_cost;     /* stop the run when its cost reaches this; may be INFINITY */
} kdvfs_suggested_run;

enum kdvfs_run_end {
    KDVFS_RUN_REACHED = 0, /* the target */
    KDVFS_RUN_STOPPED = 1, /* at its most_cost */
    KDVFS_RUN_FAILED = 2,  /* out of epochs or of memory, or diverged */
    KDVFS_RUN_LOST = 3     /* killed for a reason of its own */
};

/* sizes: those that may be tried; usual: one of them, tried first. file: made where there is none,
   refused where it is another job's. */
kdvfs_status kdvfs_batch_sizes_open(const char* file, const char* job, const uint32_t* sizes,
                                    size_t count, uint32_t usual, uint64_t seed,
                                    kdvfs_batch_sizes** opened);
kdvfs_status kdvfs_batch_size_suggest(kdvfs_batch_sizes* sizes, kdvfs_suggested_run* run);
/* Reports what an epoch costs at the run's size. power_limit_w: 0 where none was searched for.
   most_cost: the cost at which to stop; 0: stop now, another size is known to be better. */
kdvfs_status kdvfs_batch_size_profiled(kdvfs_batch_sizes* sizes, uint64_t run, double power_limit_w,
                                       double epoch_cost, double* most_cost);
/* Reports how a run ended: kdvfs_run_end, the epochs that it finished, the cost of the whole run.
 */
kdvfs_status kdvfs_batch_size_observe(kdvfs_batch_sizes* sizes, uint64_t run, int end,
                                      double epochs, double cost);
/* The size of least expected cost among those that have reached the target; 0: none has. */
kdvfs_status kdvfs_batch_size_best(kdvfs_batch_sizes* sizes, uint32_t* size);
void kdvfs_batch_sizes_close(kdvfs_batch_sizes* sizes);

/* Training: the operations of a pipeline-parallel run, each at the clock that the plan of the whole
   pipeline has for it (docs/training.md). Each rank has one GPU and one session. Sessions of
   several ranks exchange texts: in files, or by functions of the caller over what the job has. */

typedef struct kdvfs_received kdvfs_received; /* where a function of the caller puts texts */
/* Takes a text of a rank, in kdvfs_ranks.gather and .broadcast. */
void kdvfs_receive(kdvfs_received* received, uint32_t rank, const char* text, size_t length);
/* Takes the reason for which a function of the caller fails. */
void kdvfs_receive_error(kdvfs_received* received, const char* reason);

/* The ranks of a job, as the caller reaches them. All ranks call in the same order, on the thread
   that calls kdvfs. A function that cannot end within timeout_s returns KDVFS_TIMED_OUT; each
   returns KDVFS_OK or what went wrong, and is not called again after an error. */
typedef struct kdvfs_ranks {
    size_t size;    /* of this structure */
    uint32_t rank;  /* of this process, from 0 */
    uint32_t count; /* of all ranks */
    /* Sends this rank's text to rank 0. On rank 0 calls kdvfs_receive once for each rank, its own
       included. */
    kdvfs_status (*gather)(void* data, const char* text, size_t length, double timeout_s,
                           kdvfs_received* received);
    /* Sends rank 0's text to all ranks; others give NULL. Calls kdvfs_receive once on each rank. */
    kdvfs_status (*broadcast)(void* data, const char* text, size_t length, double timeout_s,
                              kdvfs_received* received);
    void* data; /* of both functions */
} kdvfs_ranks;

enum kdvfs_schedule {
    KDVFS_GPIPE = 0,
    KDVFS_1F1B = 1,
    KDVFS_INTERLEAVED_1F1B = 2, /* Megatron-LM */
    KDVFS_ZB_H1 = 3
};

enum kdvfs_pass {
    KDVFS_FORWARD = 0,
    KDVFS_BACKWARD = 1,
    KDVFS_BACKWARD_INPUT = 2, /* zb_h1 has backwards in two parts */
    KDVFS_BACKWARD_WEIGHT = 3
};

/* Set by kdvfs_pipeline_options_init before fields are changed. */
typedef struct kdvfs_pipeline_options {
    size_t size;
    int schedule;             /* kdvfs_schedule */
    uint32_t stages;          /* divide the number of ranks */
    uint32_t chunks;          /* of the model on each stage; more than 1 when interleaved only */
    uint32_t microbatches;    /* of an iteration */
    int64_t stage;            /* of this rank; below 0: ranks of one stage are neighbours */
    int64_t copy;             /* of the pipeline, that this rank belongs to; below 0: the same */
    const char* mode;         /* as KDVFS_MODE, which NULL reads: "measure", "sweep:FILE" or "off";
                                 "follow:FILE" follows the file of a sweep */
    double slowdown;          /* that a plan may have: 0.05 is 5 % */
    int two_clocks;           /* an operation may have two; needs kdvfs_operation_reached */
    double switch_latency_s;  /* of the clocks; below 0: what kdvfs measure-latency has kept */
    uint32_t samples;         /* of a sweep, for each clock */
    const uint32_t* core_mhz; /* to sweep; NULL: up to 12 of the device's, spread evenly */
    size_t core_count;        /* of core_mhz */
    double silence_s;         /* after which a rank that sends nothing is given up */
    double planning_s;        /* for which ranks wait while rank 0 plans, once */
    const kdvfs_ranks* ranks; /* NULL: files in `folder` */
    const char* folder;       /* that all ranks see; NULL: one rank */
    const char* job;          /* sets runs in `folder` at the same time apart */
    uint32_t rank;            /* where ranks exchange files: of this process, and of all */
    uint32_t rank_count;
} kdvfs_pipeline_options;

typedef struct kdvfs_pipeline kdvfs_pipeline; /* a session of a pipeline on one rank */

/* An operation that has begun, in memory of the caller; as kdvfs_scope. */
typedef struct kdvfs_operation {
    uint64_t opaque[20];
} kdvfs_operation;

void kdvfs_pipeline_options_init(kdvfs_pipeline_options* options);
/* Begins a session: all ranks call it. Fails on all of them where they disagree. */
kdvfs_status kdvfs_pipeline_begin(kdvfs_gpu* gpu, const kdvfs_pipeline_options* options,
                                  kdvfs_pipeline** pipeline);
/* Call before each iteration, outside operations. Fails with KDVFS_INVALID_INPUT where only some
   operations of the one before have been run. After one that ran none, clocks are as found until
   the next operation; the first time is said on stderr. Where another rank is silent, the session
   goes on without requests, and kdvfs_pipeline_check says so. */
kdvfs_status kdvfs_pipeline_next_iteration(kdvfs_pipeline* pipeline);
/* Begins an operation, on any thread. pass: kdvfs_pass. Fails with KDVFS_INVALID_INPUT where the
   schedule has another operation next, and names both. */
kdvfs_status kdvfs_operation_begin(kdvfs_pipeline* pipeline, void* stream, int pass, uint32_t chunk,
                                   uint32_t microbatch, kdvfs_operation* operation);
/* This share of the operation, 0 to 1, has been enqueued: where it has two clocks, the second is
   requested once its share is reached. */
kdvfs_status kdvfs_operation_reached(kdvfs_operation* operation, double share);
/* Ends an operation. Ending one twice does nothing. */
kdvfs_status kdvfs_operation_end(kdvfs_operation* operation);
/* "off", "measuring", "warming up", "sweeping", "following", or "alone" after an error; never NULL.
 */
const char* kdvfs_pipeline_phase(const kdvfs_pipeline* pipeline);
/* The clocks of this rank's operations that are followed, with time and energy of an iteration as
   the plan promises, as JSON, to be freed by kdvfs_free; "operations" is empty before a plan,
   "verdict" is "unresolved", "kept" or "broken". */
kdvfs_status kdvfs_pipeline_plan_json(const kdvfs_pipeline* pipeline, char** json);
/* The copy of the pipeline that `rank` belongs to is going to take so long for an iteration; 0: no
   longer. All ranks plan for it. */
kdvfs_status kdvfs_pipeline_straggler(kdvfs_pipeline* pipeline, uint32_t rank, double iteration_s);
/* The error that has ended the following of a plan, once; then as kdvfs_check. */
kdvfs_status kdvfs_pipeline_check(const kdvfs_pipeline* pipeline);
/* Fails with KDVFS_INVALID_INPUT, and keeps the handle, while an operation has not ended. NULL is
   allowed. */
kdvfs_status kdvfs_pipeline_end(kdvfs_pipeline* pipeline);

/* The report as JSON (docs/report.md names its keys), to be freed by kdvfs_free. */
kdvfs_status kdvfs_report_json(kdvfs_gpu* gpu, char** json);

/* What clocks could save, from a run in which none was set, as `kdvfs worth --format json` says, to
   be freed by kdvfs_free. power_limit_w: of the board; 0: as its data sheet says. Fails with
   KDVFS_INVALID_INPUT where clocks have been set or no limit is known. */
kdvfs_status kdvfs_worth_json(kdvfs_gpu* gpu, double power_limit_w, char** json);

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
