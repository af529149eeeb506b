# SPDX-License-Identifier: MIT
"""Sets the GPU clock for each kernel and measures the energy that this saves.

    import kdvfs

    gpu = kdvfs.open("0000:c1:00.0")            # or kdvfs.simulated("mi300x")
    for batch in batches:
        gpu.next_iteration()
        with gpu.phase("forward", stream):
            with gpu.scope("attention", stream, core_mhz=1300):
                attention(...)
    print(gpu.report()["totals"])

`stream` is the integer handle of a HIP or CUDA stream, for PyTorch
`torch.cuda.current_stream().cuda_stream`; 0 is the default stream. Built on the C interface of
libkdvfs by ctypes, which releases the GIL during each call. Thread-safe.
"""

from __future__ import annotations

import ctypes
import io
import json
from types import TracebackType
from typing import Any, Optional, Type

from ._library import KdvfsError, check, library

__all__ = ["Gpu", "KdvfsError", "Request", "Scope", "open", "simulated", "version"]

_MEASURE_ONLY = 1
_FALL_BACK = 2


def version() -> str:
    """Returns the version of the loaded libkdvfs, for example "0.3.0"."""
    return library().kdvfs_version().decode()


class Scope:
    """A scope or phase of a stream, entered by `with` and left at its end."""

    __slots__ = ("_begin", "_handle")

    def __init__(self, begin: Any) -> None:
        self._begin = begin
        self._handle = ctypes.c_void_p()

    def __enter__(self) -> "Scope":
        check(self._begin(ctypes.byref(self._handle)))
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        code = library().kdvfs_scope_end(self._handle)
        self._handle = ctypes.c_void_p()
        if error is None:
            check(code)


class Request:
    """A request for a clock, in the order of the host's calls, for the time of a `with` block."""

    __slots__ = ("_gpu", "_core_mhz", "_handle")

    def __init__(self, gpu: "Gpu", core_mhz: int) -> None:
        self._gpu = gpu
        self._core_mhz = core_mhz
        self._handle = ctypes.c_void_p()

    def __enter__(self) -> "Request":
        check(library().kdvfs_request_begin(self._gpu._handle, self._core_mhz, ctypes.byref(self._handle)))
        return self

    def __exit__(self, *_: object) -> None:
        check(library().kdvfs_request_end(self._handle))


class Gpu:
    """An open GPU. Its clocks are restored by `close`, at the end of a `with` block, or when the
    process ends. Make one with `kdvfs.open` or `kdvfs.simulated`."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._handle: Optional[ctypes.c_void_p] = handle

    def scope(self, name: str, stream: int = 0, core_mhz: int = 0, variant: int = 0) -> Scope:
        """Returns a scope for `with`: what is enqueued on the stream in it runs at `core_mhz` at most
        and is measured under its name.

        Args:
            name: 1 to 1024 printable ASCII characters without `"` and backslash.
            stream: integer handle of the stream; 0 is the default stream.
            core_mhz: highest core clock in MHz; 0 requests nothing and only measures.
            variant: which of the kernel's shapes runs.
        """
        encoded = name.encode()
        return Scope(
            lambda out: library().kdvfs_scope_begin(self._open(), stream or None, encoded, variant, core_mhz, out)
        )

    def phase(self, name: str, stream: int = 0) -> Scope:
        """Returns a scope that encloses others and requests nothing: forward, backward."""
        encoded = name.encode()
        return Scope(lambda out: library().kdvfs_phase_begin(self._open(), stream or None, encoded, out))

    def request(self, core_mhz: int) -> Request:
        """Returns a request for a core clock in MHz, for `with`."""
        return Request(self, core_mhz)

    def next_iteration(self) -> None:
        """An iteration begins; one in 16 is metered."""
        check(library().kdvfs_next_iteration(self._open()))

    def report(self) -> "dict[str, Any]":
        """Returns the report (docs/report.md): "rows" by kernel, "levels" by phase, "totals"."""
        text = ctypes.c_void_p()
        check(library().kdvfs_report_json(self._open(), ctypes.byref(text)))
        try:
            return json.loads(ctypes.string_at(text).decode())
        finally:
            library().kdvfs_free(text)

    def dataframe(self) -> Any:
        """Returns the report's rows as a pandas DataFrame. Needs pandas."""
        import pandas  # imported here: the package works without it

        return pandas.json_normalize(self.report()["rows"])

    @property
    def measure_only(self) -> bool:
        """Whether clocks are never set."""
        return library().kdvfs_measure_only(self._open()) == 1

    def check(self) -> None:
        """Raises the first error that happened in the background since the last call."""
        check(library().kdvfs_check(self._open()))

    def launch_simulated(self, matrix_flops: float = 0, vector_flops: float = 0, memory_bytes: float = 0) -> None:
        """Enqueues simulated work on the default stream. For simulated GPUs only."""
        check(library().kdvfs_simulated_launch(self._open(), matrix_flops, vector_flops, memory_bytes))

    def synchronize_simulated(self) -> None:
        """Lets virtual time pass until all simulated work is done."""
        check(library().kdvfs_simulated_synchronize(self._open()))

    def close(self) -> None:
        """Restores the clocks. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            check(library().kdvfs_close(handle))

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise KdvfsError(1, "cannot use a GPU: it is closed; open it again")
        return self._handle

    def __enter__(self) -> "Gpu":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # noqa: BLE001  an interpreter that is ending has no library any more
            pass


def open(address: str, vendor: str = "", measure_only: bool = False, fall_back: bool = False) -> Gpu:
    """Opens a GPU by its PCI address.

    Args:
        address: for example "0000:c1:00.0".
        vendor: "amd" or "nvidia"; by default read from the driver.
        measure_only: never set a clock.
        fall_back: measure only where clocks cannot be set; by default that is an error.
    """
    handle = ctypes.c_void_p()
    flags = (_MEASURE_ONLY if measure_only else 0) | (_FALL_BACK if fall_back else 0)
    made_by = vendor or _vendor_of(address)
    check(library().kdvfs_open_board(made_by.encode(), address.encode(), flags, ctypes.byref(handle)))
    return Gpu(handle)


def simulated(board: str = "mi300x") -> Gpu:
    """Opens a simulated GPU: virtual time, simulated energy.

    Args:
        board: "mi210", "mi250x", "mi300x", "h100" or "rtx_3080_ti".
    """
    handle = ctypes.c_void_p()
    check(library().kdvfs_open_simulated(board.encode(), 0, ctypes.byref(handle)))
    return Gpu(handle)


def _vendor_of(address: str) -> str:
    try:
        with io.open(f"/sys/bus/pci/devices/{address}/vendor", encoding="ascii") as file:
            number = file.read().strip()
    except (OSError, ValueError):
        number = ""
    names = {"0x1002": "amd", "0x10de": "nvidia"}
    if number not in names:
        raise KdvfsError(1, f"cannot open a GPU: {address}: no AMD or NVIDIA board has this PCI address; see lspci")
    return names[number]
