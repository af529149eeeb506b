# SPDX-License-Identifier: MIT
"""Loads libkdvfs and declares its C interface (kdvfs/kdvfs.h)."""

from __future__ import annotations

import ctypes
import os
import pathlib

_VERSION = 1  # KDVFS_C_VERSION that this package was written for

_POINTER = ctypes.c_void_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
_FUNCTIONS = {
    "kdvfs_open_board": (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint, _OUT),
    "kdvfs_open_simulated": (ctypes.c_char_p, ctypes.c_uint, _OUT),
    "kdvfs_close": (_POINTER,),
    "kdvfs_measure_only": (_POINTER,),
    "kdvfs_scope_begin": (_POINTER, _POINTER, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32, _OUT),
    "kdvfs_scope_end": (_POINTER,),
    "kdvfs_phase_begin": (_POINTER, _POINTER, ctypes.c_char_p, _OUT),
    "kdvfs_next_iteration": (_POINTER,),
    "kdvfs_request_begin": (_POINTER, ctypes.c_uint32, _OUT),
    "kdvfs_request_end": (_POINTER,),
    "kdvfs_report_json": (_POINTER, _OUT),
    "kdvfs_check": (_POINTER,),
    "kdvfs_simulated_launch": (_POINTER, ctypes.c_double, ctypes.c_double, ctypes.c_double),
    "kdvfs_simulated_synchronize": (_POINTER,),
}


class KdvfsError(RuntimeError):
    """An error of kdvfs: what was tried, on what, the vendor's words, and what to do.

    Attributes:
        code: ``kdvfs_status`` of kdvfs/kdvfs.h, for example 4 where another process owns the GPU.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def _candidates() -> list[str]:
    named = os.environ.get("KDVFS_LIBRARY")
    if named:
        return [named]
    folder = pathlib.Path(__file__).parent
    return [str(path) for path in sorted(folder.glob("libkdvfs.so*"))] + ["libkdvfs.so.0.3", "libkdvfs.so"]


def _load() -> ctypes.CDLL:
    problems = []
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)
        except OSError as problem:
            problems.append(f"{name}: {problem}")
            continue
        library.kdvfs_c_version.restype = ctypes.c_int
        found = library.kdvfs_c_version()
        if found < _VERSION:
            problems.append(f"{name}: its C interface has version {found}, this package needs {_VERSION}")
            continue
        library.kdvfs_last_error.restype = ctypes.c_char_p
        library.kdvfs_version.restype = ctypes.c_char_p
        library.kdvfs_free.argtypes = (_POINTER,)
        library.kdvfs_free.restype = None
        for function, arguments in _FUNCTIONS.items():
            getattr(library, function).argtypes = arguments
            getattr(library, function).restype = ctypes.c_int
        return library
    raise KdvfsError(
        2, "cannot load libkdvfs: " + "; ".join(problems) + "; name the file in KDVFS_LIBRARY, or install kdvfs"
    )


_library: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    """Returns the loaded library. Raises KdvfsError where there is none."""
    global _library
    if _library is None:
        _library = _load()
    return _library


def check(code: int) -> None:
    """Raises KdvfsError unless `code` is 0."""
    if code != 0:
        raise KdvfsError(code, library().kdvfs_last_error().decode())
