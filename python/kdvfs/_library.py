# SPDX-License-Identifier: MIT
"""The C interface (include/kdvfs/kdvfs.h) through ctypes."""

import contextlib
import ctypes
import ctypes.util
import json
import os
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Any, List, Optional, Sequence, Type

C_VERSION = 1

open_gpus: List[Any] = []  # kdvfs.Gpu


class Error(RuntimeError):
    """What the library refused or could not do. `code` is one of the words of `Error.codes`."""

    codes = (
        "ok",
        "invalid_input",
        "not_supported",
        "refused",
        "busy",
        "vanished",
        "external_change",
        "timed_out",
        "io",
        "no_memory",
        "internal",
    )

    def __init__(self, status: int, text: str) -> None:
        self.code = self.codes[status] if 0 <= status < len(self.codes) else "unknown"
        super().__init__(text or self.code)
        self._status = status

    def __reduce__(self) -> Any:  # of two arguments: exceptions are pickled with one
        return type(self), (self._status, str(self))


class ScopeMemory(ctypes.Structure):
    """`kdvfs_scope`."""

    _fields_ = [("opaque", ctypes.c_uint64 * 8)]


class Options(ctypes.Structure):
    """`kdvfs_options`."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("measure_if_refused", ctypes.c_int),
        ("meter_every", ctypes.c_uint32),
        ("never_below_mhz", ctypes.c_uint32),
        ("never_above_mhz", ctypes.c_uint32),
        ("switch_latency_ns", ctypes.c_int64),
        ("idle_clock_mhz", ctypes.c_uint32),
        ("idle_after_ns", ctypes.c_int64),
    ]


class StepMemory(ctypes.Structure):
    """`kdvfs_step`."""

    _fields_ = [("opaque", ctypes.c_uint64 * 12)]


class RequestWorkOfCaller(ctypes.Structure):
    """`kdvfs_request_work`."""

    _fields_ = [
        ("request", ctypes.c_uint32),
        ("answer_tokens", ctypes.c_uint32),
        ("context_tokens", ctypes.c_uint32),
        ("prompt_tokens", ctypes.c_uint32),
        ("prompt_context", ctypes.c_uint32),
    ]


class ReportedRequest(ctypes.Structure):
    """`kdvfs_request_energy`."""

    _fields_ = [
        ("id", ctypes.c_char_p),
        ("joules", ctypes.c_double),
        ("low_joules", ctypes.c_double),
        ("high_joules", ctypes.c_double),
        ("steps", ctypes.c_uint64),
        ("prompt_tokens", ctypes.c_uint64),
        ("answer_tokens", ctypes.c_uint64),
    ]


RequestReport = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ReportedRequest))
_numbers = ctypes.POINTER(ctypes.c_double)
Combine = ctypes.CFUNCTYPE(None, ctypes.c_void_p, _numbers, _numbers)


class PowerLimitOptions(ctypes.Structure):
    """`kdvfs_power_limit_options`."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("step_w", ctypes.c_double),
        ("warmup_steps", ctypes.c_uint32),
        ("measured_steps", ctypes.c_uint32),
        ("goal", ctypes.c_int),
        ("parameter", ctypes.c_double),
        ("ranks", ctypes.c_uint32),
        ("combine", Combine),
        ("data", ctypes.c_void_p),
    ]


class SuggestedRun(ctypes.Structure):
    """`kdvfs_suggested_run`."""

    _fields_ = [
        ("id", ctypes.c_uint64),
        ("batch_size", ctypes.c_uint32),
        ("is_profiled", ctypes.c_int),
        ("power_limit_w", ctypes.c_double),
        ("epoch_cost", ctypes.c_double),
        ("most_cost", ctypes.c_double),
    ]


class OperationMemory(ctypes.Structure):
    """`kdvfs_operation`."""

    _fields_ = [("opaque", ctypes.c_uint64 * 20)]


# The text as a pointer: ctypes would end a c_char_p at its first zero.
Exchange = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double, ctypes.c_void_p
)


class RanksOfCaller(ctypes.Structure):
    """`kdvfs_ranks`."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("rank", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("gather", Exchange),
        ("broadcast", Exchange),
        ("data", ctypes.c_void_p),
    ]


class PipelineOptions(ctypes.Structure):
    """`kdvfs_pipeline_options`."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("schedule", ctypes.c_int),
        ("stages", ctypes.c_uint32),
        ("chunks", ctypes.c_uint32),
        ("microbatches", ctypes.c_uint32),
        ("stage", ctypes.c_int64),
        ("copy", ctypes.c_int64),
        ("mode", ctypes.c_char_p),
        ("slowdown", ctypes.c_double),
        ("two_clocks", ctypes.c_int),
        ("switch_latency_s", ctypes.c_double),
        ("samples", ctypes.c_uint32),
        ("core_mhz", ctypes.POINTER(ctypes.c_uint32)),
        ("core_count", ctypes.c_size_t),
        ("silence_s", ctypes.c_double),
        ("planning_s", ctypes.c_double),
        ("ranks", ctypes.POINTER(RanksOfCaller)),
        ("folder", ctypes.c_char_p),
        ("job", ctypes.c_char_p),
        ("rank", ctypes.c_uint32),
        ("rank_count", ctypes.c_uint32),
    ]


def _find() -> str:
    named = os.environ.get("KDVFS_LIBRARY")
    if named:
        return named
    beside = sorted(Path(__file__).parent.glob("libkdvfs_c.so*"))
    if beside:
        return str(beside[0])
    found = ctypes.util.find_library("kdvfs_c")
    if found:
        return found
    raise ImportError(
        "cannot find libkdvfs_c: install it, or set KDVFS_LIBRARY to the path of libkdvfs_c.so"
    )


def _load() -> ctypes.CDLL:
    path = _find()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"cannot load libkdvfs_c: {error}; set KDVFS_LIBRARY to the path of libkdvfs_c.so, or unset it"
        ) from None
    text, pointer, u32 = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint32
    to_pointer, scope = ctypes.POINTER(pointer), ctypes.POINTER(ScopeMemory)
    options, number = ctypes.POINTER(Options), ctypes.c_double
    signatures = {
        "kdvfs_open": [text, text, options, to_pointer],
        "kdvfs_measure": [text, text, options, to_pointer],
        "kdvfs_open_device": [text, ctypes.c_int, options, to_pointer],
        "kdvfs_measure_device": [text, ctypes.c_int, options, to_pointer],
        "kdvfs_open_simulated": [text, ctypes.c_uint64, options, to_pointer],
        "kdvfs_close": [pointer],
        "kdvfs_force_close": [pointer],
        "kdvfs_check": [pointer],
        "kdvfs_measure_only": [pointer],
        "kdvfs_core_clocks": [
            pointer,
            ctypes.POINTER(u32),
            ctypes.c_size_t,
            ctypes.POINTER(ctypes.c_size_t),
        ],
        "kdvfs_follow_plan": [pointer, text],
        "kdvfs_session_begin": [pointer],
        "kdvfs_session_done": [pointer],
        "kdvfs_report_cost": [number, number],
        "kdvfs_scope_begin": [pointer, pointer, text, u32, scope],
        "kdvfs_scope_begin_at": [pointer, pointer, text, u32, u32, u32, scope],
        "kdvfs_phase_begin": [pointer, pointer, text, scope],
        "kdvfs_scope_end": [scope],
        "kdvfs_next_iteration": [pointer],
        "kdvfs_request_begin": [pointer, u32, u32, to_pointer],
        "kdvfs_request_change": [pointer, u32, u32],
        "kdvfs_report_json": [pointer, to_pointer],
        "kdvfs_worth_json": [pointer, number, to_pointer],
        "kdvfs_simulated_stream": [pointer, to_pointer],
        "kdvfs_simulated_launch": [pointer, pointer, number, number, number],
        "kdvfs_simulated_synchronize": [pointer],
        "kdvfs_simulated_totals": [pointer, ctypes.POINTER(number), ctypes.POINTER(number)],
    }
    operation = ctypes.POINTER(OperationMemory)
    works = ctypes.POINTER(RequestWorkOfCaller)
    u64, step, limit = ctypes.c_uint64, ctypes.POINTER(StepMemory), ctypes.POINTER(PowerLimitOptions)
    signatures.update(
        {
            "kdvfs_steps_begin": [pointer, to_pointer],
            "kdvfs_steps_observe": [pointer, u32, u32, u32, number],
            "kdvfs_steps_prompt_context": [pointer, u32],
            "kdvfs_steps_plan": [pointer, text, text, number, number, u32],
            "kdvfs_steps_late_first_tokens": [pointer, number],
            "kdvfs_steps_prove": [pointer, number],
            "kdvfs_steps_tune": [
                pointer, ctypes.POINTER(ctypes.c_uint32), ctypes.c_size_t, text, number, number, u32,
                number, number, number,
            ],
            "kdvfs_steps_ran": [pointer, u32, u32, u32, number, number],
            "kdvfs_steps_energy": [pointer, number, number],
            "kdvfs_requests_begin": [RequestReport, pointer, to_pointer],
            "kdvfs_requests_fit": [pointer, works, ctypes.c_size_t, number],
            "kdvfs_request_open": [pointer, text, ctypes.POINTER(u32)],
            "kdvfs_requests_step": [pointer, works, ctypes.c_size_t],
            "kdvfs_requests_settle": [pointer, number, number],
            "kdvfs_requests_idle": [pointer, number],
            "kdvfs_request_close": [pointer, u32],
            "kdvfs_requests_prometheus": [pointer, text, to_pointer],
            "kdvfs_step_begin": [pointer, pointer, u32, u32, u32, number, step],
            "kdvfs_step_end": [step],
            "kdvfs_steps_rest": [pointer, pointer],
            "kdvfs_steps_report_json": [pointer, to_pointer],
            "kdvfs_steps_end": [pointer],
            "kdvfs_power_limit_begin": [pointer, limit, to_pointer],
            "kdvfs_power_limit_step": [pointer, number, number],
            "kdvfs_power_limit_end_epoch": [pointer],
            "kdvfs_power_limit_done": [pointer],
            "kdvfs_power_limit_epoch_cost": [pointer, u64, _numbers],
            "kdvfs_power_limit_end": [pointer],
            "kdvfs_batch_sizes_open": [
                text, text, ctypes.POINTER(u32), ctypes.c_size_t, u32, u64, to_pointer
            ],
            "kdvfs_batch_size_suggest": [pointer, ctypes.POINTER(SuggestedRun)],
            "kdvfs_batch_size_profiled": [pointer, u64, number, number, _numbers],
            "kdvfs_batch_size_observe": [pointer, u64, ctypes.c_int, number, number],
            "kdvfs_batch_size_best": [pointer, ctypes.POINTER(u32)],
            "kdvfs_pipeline_begin": [pointer, ctypes.POINTER(PipelineOptions), to_pointer],
            "kdvfs_pipeline_next_iteration": [pointer],
            "kdvfs_operation_begin": [pointer, pointer, ctypes.c_int, u32, u32, operation],
            "kdvfs_operation_reached": [operation, number],
            "kdvfs_operation_end": [operation],
            "kdvfs_pipeline_plan_json": [pointer, to_pointer],
            "kdvfs_pipeline_straggler": [pointer, u32, number],
            "kdvfs_pipeline_check": [pointer],
            "kdvfs_pipeline_end": [pointer],
        }
    )
    if not hasattr(library, "kdvfs_c_version"):
        raise ImportError(
            f"cannot use {path}: it is not libkdvfs_c; set KDVFS_LIBRARY to the path of libkdvfs_c.so"
        )
    for name, arguments in signatures.items():
        getattr(library, name).argtypes = arguments
        getattr(library, name).restype = ctypes.c_int
    for name in ("kdvfs_last_error", "kdvfs_version"):
        getattr(library, name).restype = text
    library.kdvfs_options_init.argtypes = [options]
    library.kdvfs_options_init.restype = None
    library.kdvfs_request_end.argtypes = [pointer]
    library.kdvfs_request_end.restype = None
    library.kdvfs_free.argtypes = [pointer]
    library.kdvfs_free.restype = None
    library.kdvfs_power_limit_options_init.argtypes = [limit]
    library.kdvfs_power_limit_options_init.restype = None
    library.kdvfs_power_limit_best.argtypes = [pointer]
    library.kdvfs_power_limit_best.restype = number
    library.kdvfs_pipeline_options_init.argtypes = [ctypes.POINTER(PipelineOptions)]
    library.kdvfs_pipeline_options_init.restype = None
    library.kdvfs_receive.argtypes = [pointer, u32, text, ctypes.c_size_t]
    library.kdvfs_receive.restype = None
    library.kdvfs_receive_error.argtypes = [pointer, text]
    library.kdvfs_receive_error.restype = None
    library.kdvfs_pipeline_phase.argtypes = [pointer]
    library.kdvfs_pipeline_phase.restype = text
    library.kdvfs_batch_sizes_close.argtypes = [pointer]
    library.kdvfs_batch_sizes_close.restype = None
    library.kdvfs_requests_end.argtypes = [pointer]
    library.kdvfs_requests_end.restype = None
    if library.kdvfs_c_version() != C_VERSION:
        raise ImportError(
            f"libkdvfs_c has interface version {library.kdvfs_c_version()}, this package needs "
            f"{C_VERSION}: install the library and the package of one release"
        )
    return library


library = _load()


# Words of the C interface, as Python has them.
_PYTHON_WORDS = (
    ("kdvfs_simulated_stream, or use the default stream, NULL", "gpu.stream(), or use the default stream, 0"),
    (
        "the GPU: it is NULL (invalid input); pass a valid pointer",
        "the GPU: it has been closed (invalid input); make the call before close(), or open it again",
    ),
    ("make the call before kdvfs_close, or", "make the call before close(), or"),
)


def expect_ok(status: int) -> None:
    """Raises `Error` for every status but success."""
    if status != 0:
        text = library.kdvfs_last_error().decode(errors="replace")  # a path may be no UTF-8
        for words, instead in _PYTHON_WORDS:
            text = text.replace(words, instead)
        raise Error(status, text)


class WithScope:
    """What a scope of a `with` block is begun from, and its end. `_end` is the C function that ends it: a scope
    that never began, or has ended, too.

    An interrupt may come between any two lines. `_entered` is set before a scope begins, and cleared behind its
    end, so that the memory of one that is open is neither used again nor freed.
    """

    __slots__ = ("_memory", "_pointer", "_arguments", "_entered")
    _end: Any

    def __init__(self, memory: ctypes.Structure) -> None:
        self._memory = memory
        self._pointer = ctypes.pointer(memory)
        self._arguments: Any = ()
        self._entered = False

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        status = self._end(self._pointer)
        self._entered = False
        if status != 0 and error is None:
            expect_ok(status)

    def _abandon(self) -> None:
        self._end(self._pointer)
        self._entered = False

    def __del__(self) -> None:
        if getattr(self, "_entered", False):  # an interrupt may have come before it was set
            self._end(self._pointer)


def text_of(function: Any, *arguments: Any) -> str:
    """What a function of the library gives as text."""
    text = ctypes.c_void_p()
    expect_ok(function(*arguments, ctypes.byref(text)))
    try:
        return ctypes.string_at(text).decode()
    finally:
        library.kdvfs_free(text)


def json_of(function: Any, *arguments: Any) -> Any:
    """What a function of the library gives as JSON."""
    return json.loads(text_of(function, *arguments))


def path_of(what: str, file: Any) -> bytes:
    """A path as the library takes it."""
    with contextlib.suppress(TypeError, UnicodeEncodeError):
        path = os.fsencode(file)
        if b"\0" not in path:  # C would end it there
            return path
    raise Error(1, f"cannot open {what}: {file!r} is no path; give the file's name")


def bytes_of(what: str, text: Any) -> bytes:
    """A text as the library takes it."""
    if isinstance(text, str) and "\0" not in text:
        with contextlib.suppress(UnicodeEncodeError):
            return text.encode()
    raise Error(1, f"cannot use {what}: {text!r} is no text without null characters; give a name")


def integer_of(what: str, value: Any, least: int, most: int, remedy: str) -> int:
    """An integer within bounds, of any integer type, such as numpy's. ctypes would wrap one that is too large."""
    with contextlib.suppress(TypeError):
        number = index(value)
        if least <= number <= most and not isinstance(value, bool):
            return number
    raise Error(1, f"cannot use {what}: {value!r} is no integer from {least} to {most}; {remedy}")


def clocks_of(core_mhz: Sequence[Any]) -> Any:
    """Core clocks as the library takes several."""
    remedy = "give MHz, some of `core_clocks()`"
    mhz = [integer_of("a core clock", each, 1, 1000000, remedy) for each in core_mhz]
    return (ctypes.c_uint32 * len(mhz))(*mhz)


def are_counts(*values: Any) -> bool:
    """Whether all are integers from 0 to 2**32 - 1. If so, the bitwise or of all is one, too."""
    bits = 0
    try:
        for value in values:
            bits |= index(value)
    except TypeError:
        return False
    return 0 <= bits < 2**32


def number_of(what: str, value: Any, least: float, most: float, remedy: str) -> float:
    """A number within bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise Error(1, f"cannot use {what}: {value!r} is no number from {least:g} to {most:g}; {remedy}")
    return value
