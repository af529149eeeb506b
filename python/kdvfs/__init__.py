# SPDX-License-Identifier: MIT
"""Measures the energy of GPU work by name, and runs it at the clocks of a plan.

    gpu = kdvfs.open_simulated("mi300x")
    with gpu.scope("attention"):
        ...

Streams are integer handles, such as `torch.cuda.current_stream().cuda_stream`; 0 is the default
stream, and no stream means PyTorch's current one. Clocks are in MHz; 0 leaves a clock to the board. The library is called without the GIL.
Without torch, nothing but Python's standard library is needed.
"""

import atexit
import contextlib
import ctypes
import os
import re
import sys
from types import TracebackType
from typing import Any, Dict, List, Optional, Set, Tuple, Type, Union

from ._library import Error, Options, ScopeMemory, WithScope, expect_ok, integer_of, json_of, number_of, path_of
from . import _library
from ._library import library as _c

__all__ = ["Error", "Gpu", "Request", "Scope", "SimulatedGpu"]
# Not `open`: `from kdvfs import *` would take the place of Python's own.
__all__ += ["current_stream", "measure", "open_simulated", "phase", "report_cost"]
__all__ += ["scope", "version", "worth"]


_modules = sys.modules
_refcount = sys.getrefcount


def _references_if_free() -> int:
    """What `_refcount` gives in `Gpu.scope` for a scope that nobody holds: the dictionary and `made`, and before
    Python 3.14 the call's argument."""
    kept: Dict[int, Any] = {0: object()}
    made = kept.get(0)
    return min(3, _refcount(made))  # a debugger may hold more


_free = _references_if_free()


def current_stream() -> int:
    """PyTorch's current stream, where torch has been imported and has a GPU in use; else 0."""
    torch = _modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    inner = torch._C  # what torch.cuda.current_stream() calls, without the object that it makes
    try:
        return int(inner._cuda_getCurrentRawStream(inner._cuda_getDevice()))
    except AttributeError:
        return int(torch.cuda.current_stream().cuda_stream)


class Scope(WithScope):
    """Work enqueued between enter and leave is counted under one name. Made by `Gpu.scope`.

    A scope object can be entered again after it was left; not twice at once.
    """

    __slots__ = ("_begin",)
    _end = _c.kdvfs_scope_end

    def __init__(self, gpu: "Gpu", begin: Any, *arguments: Any) -> None:
        super().__init__(ScopeMemory())
        self._begin = begin
        # Converted once: ctypes then has nothing to convert, and nothing to allocate, in a call.
        kinds = begin.argtypes[1:-1]
        converted = (kind(value) for kind, value in zip(kinds, arguments))
        self._arguments = (gpu._handle, *converted, self._pointer)

    def __enter__(self) -> "Scope":
        if self._entered:
            raise Error(1, "cannot enter a scope: it has been entered; make a second one")
        self._entered = True
        status = self._begin(*self._arguments)
        if status != 0:
            self._entered = False
            expect_ok(status)
        return self


class Request:
    """A standing request for clocks, without a stream. The highest request wins."""

    def __init__(self, gpu: "Gpu", core_mhz: int = 0, memory_mhz: int = 0) -> None:
        self._gpu = gpu
        self._handle = ctypes.c_void_p()
        expect_ok(
            _c.kdvfs_request_begin(
                gpu._handle, *_clocks(core_mhz, memory_mhz), ctypes.byref(self._handle)
            )
        )
        gpu._begun.add(self)

    def change(self, core_mhz: int = 0, memory_mhz: int = 0) -> None:
        """Asks for other clocks from now on."""
        if not self._handle:
            raise Error(1, "cannot change a request: it has ended; make another")
        expect_ok(_c.kdvfs_request_change(self._handle, *_clocks(core_mhz, memory_mhz)))

    def close(self) -> None:
        """Ends the request. A second call does nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        self._gpu._begun.discard(self)
        _c.kdvfs_request_end(handle)

    _abandon = close

    def __enter__(self) -> "Request":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _text(name: str) -> bytes:
    if not isinstance(name, str):
        raise Error(1, f"cannot make a scope: its name is {name!r}; give text, as in scope('gemm')")
    if "\0" in name:
        raise Error(1, f"cannot make a scope: its name {name!r} has a null character; use printable ASCII")
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise Error(1, f"cannot make a scope: its name {name!r} is no valid text; use printable ASCII") from None


def _clocks(core_mhz: int, memory_mhz: int) -> Tuple[int, int]:
    remedy = "give MHz, one of `core_clocks()`, or 0 to leave the clock to the board"
    return (
        integer_of("a core clock", core_mhz, 0, 1000000, remedy),
        integer_of("a memory clock", memory_mhz, 0, 1000000, remedy),
    )


def _handle_of(stream: int) -> int:
    remedy = "give its handle, such as torch.cuda.current_stream().cuda_stream"
    return integer_of("a stream", stream, 0, 2**64 - 1, remedy)


# Of the library's module: importlib.reload must not forget what is open.
_open_gpus: List["Gpu"] = _library.open_gpus


def _only_gpu(call: str) -> "Gpu":
    if len(_open_gpus) == 1:
        return _open_gpus[0]
    number = len(_open_gpus) or "no"
    raise Error(
        1,
        f"cannot choose a GPU for `{call}`: {number} GPUs are open; "
        + ("open one first" if not _open_gpus else f"call `{call}` of one of them"),
    )


def scope(name: str, stream: Optional[int] = None, variant: int = 0) -> Scope:
    """`Gpu.scope` of the one GPU that this process has open."""
    return _only_gpu("scope").scope(name, stream, variant)


def phase(name: str, stream: Optional[int] = None) -> Scope:
    """`Gpu.phase` of the one GPU that this process has open."""
    return _only_gpu("phase").phase(name, stream)


range = phase  # NVTX's word for it: `torch.cuda.nvtx.range` becomes `kdvfs.range`. Not in `__all__`, as `open`


def worth(power_limit_w: Optional[float] = None) -> Dict[str, Any]:
    """`Gpu.worth` of the one GPU that this process has open."""
    return _only_gpu("worth").worth(power_limit_w)


class Gpu:
    """An open GPU. Its clocks are put back by `close`, or at the end of a `with` block."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle
        self._process = os.getpid()
        self._scopes: Dict[Any, Scope] = {}
        self._begun: Set[Any] = set()  # requests, steps, pipeline sessions and power limits
        _open_gpus.append(self)

    def scope(
        self,
        name: str,
        stream: Optional[int] = None,
        variant: int = 0,
        core_mhz: Optional[int] = None,
        memory_mhz: int = 0,
    ) -> Scope:
        """A scope at the plan's clock or, where `core_mhz` is given, at that clock.

        `name` has 1 to 1024 printable ASCII characters without quotes and backslashes. Each name
        is kept until the GPU is closed: it must not carry a number that grows. Without `stream`,
        the scope is on the stream that is current when it is made (`current_stream`). `memory_mhz`
        needs `core_mhz`.
        """
        if stream is None:
            stream = 0 if "torch" not in _modules else current_stream()
        key = (name, stream, variant, core_mhz, memory_mhz)
        made = self._scopes.get(key)
        # One that nobody else holds is free; if it has been entered, an interrupt came before its end.
        if made is not None and _refcount(made) <= _free:
            if made._entered:
                made._abandon()
            return made
        where = (_handle_of(stream), _text(name))
        variant = integer_of("a variant", variant, 0, 2**32 - 1, "number the shapes of a kernel from 0")
        if core_mhz is None and memory_mhz != 0:
            raise Error(
                1,
                f"cannot make a scope: it has memory_mhz={memory_mhz!r} and follows the plan's clocks; "
                "give core_mhz, too, or 0 there to leave the core's clock to the board",
            )
        if core_mhz is None:
            made = Scope(self, _c.kdvfs_scope_begin, *where, variant)
        else:
            clocks = _clocks(core_mhz, memory_mhz)
            made = Scope(self, _c.kdvfs_scope_begin_at, *where, variant, *clocks)
        self._scopes[key] = made
        return made

    def phase(self, name: str, stream: Optional[int] = None) -> Scope:
        """A scope that encloses others, such as "forward"; it asks for no clock."""
        if stream is None:
            stream = 0 if "torch" not in _modules else current_stream()
        key = (name, stream)
        made = self._scopes.get(key)
        if made is None or _refcount(made) > _free:
            where = (_handle_of(stream), _text(name))
            made = self._scopes[key] = Scope(self, _c.kdvfs_phase_begin, *where)
        elif made._entered:
            made._abandon()
        return made

    def request(self, core_mhz: int = 0, memory_mhz: int = 0) -> Request:
        """Asks for clocks until the request is closed."""
        return Request(self, core_mhz, memory_mhz)

    def next_iteration(self) -> None:
        """Says where an iteration begins; one of `meter_every`, drawn, is metered."""
        expect_ok(_c.kdvfs_next_iteration(self._handle))

    def follow_plan(self, file: Union[str, "os.PathLike[str]"]) -> None:
        """Scopes entered from now on follow this plan, as `kdvfs plan` writes it.

        Fails once a session has begun: `KDVFS_MODE=follow:PLAN` is its plan.
        """
        expect_ok(_c.kdvfs_follow_plan(self._handle, path_of("a plan", file)))

    def begin_session(self) -> None:
        """Lets the environment say what the program does; call it before the first scope.

        `KDVFS_MODE` is "off", "measure" (the default), "sweep:FILE" or "follow:PLAN"; `kdvfs tune
        -- python train.py` sets it. Needs `next_iteration`. Under torchrun, mpirun or srun each rank has files of
        its own: `profile.csv` is `profile.rank2.csv` for rank 2.
        """
        expect_ok(_c.kdvfs_session_begin(self._handle))

    @property
    def session_done(self) -> bool:
        """Whether no sweep waits for more iterations."""
        return _c.kdvfs_session_done(self._handle) == 1

    def report(self) -> Dict[str, Any]:
        """Calls, times, joules and clocks by name: the keys are those of docs/report.md."""
        return json_of(_c.kdvfs_report_json, self._handle)

    def worth(self, power_limit_w: Optional[float] = None) -> Dict[str, Any]:
        """What clocks could save, from what this GPU has counted while none was set: as
        `kdvfs worth --format json`.

        The ranges are in percent of the energy, "high_pct" is None where no range can be given.
        `power_limit_w` is the board's; without it the data sheet's.
        """
        if power_limit_w is not None:
            number_of("power_limit_w", power_limit_w, 1, 1e6, "give watts, as nvidia-smi or rocm-smi say")
        return json_of(_c.kdvfs_worth_json, self._handle, power_limit_w or 0)

    def frame(self) -> Any:
        """The report's rows as a pandas DataFrame, one kernel a line. Needs pandas.

        Columns: kernel, variant, calls, time_s, energy_j and half_width_95_j (both NaN where the
        energy is unresolved), core_mhz (the mean clock by the markers).
        """
        try:
            import pandas
        except ImportError:
            raise Error(2, "cannot make a DataFrame: pandas is missing; install it, or use report()") from None

        return pandas.DataFrame(
            [
                {
                    "kernel": row["kernel"],
                    "variant": row["variant"],
                    "calls": row["calls"],
                    "time_s": row["time_s"],
                    "energy_j": row["energy"]["joules"],
                    "half_width_95_j": row["energy"]["half_width_95"],
                    "core_mhz": row["measured_core_mhz"],
                }
                for row in self.report()["rows"]
            ]
        ).astype({"energy_j": float, "half_width_95_j": float})

    def core_clocks(self) -> List[int]:
        """The core clocks that the device lists, ascending."""
        count = ctypes.c_size_t()
        expect_ok(_c.kdvfs_core_clocks(self._handle, None, 0, ctypes.byref(count)))
        clocks = (ctypes.c_uint32 * count.value)()
        expect_ok(
            _c.kdvfs_core_clocks(self._handle, clocks, count.value, ctypes.byref(count))
        )
        return list(clocks)

    @property
    def measure_only(self) -> bool:
        """Whether clocks are never set."""
        return _c.kdvfs_measure_only(self._handle) == 1

    def check(self) -> None:
        """Raises the first error that happened since the last call."""
        expect_ok(_c.kdvfs_check(self._handle))

    def close(self) -> None:
        """Puts the clocks back. A second call does nothing.

        Fails, and leaves the GPU open, while scopes, requests, steps, pipeline sessions or power limits have not
        ended. A `with` block that they outlive ends them, closes the GPU, and raises that error: what comes
        after the block would run without them. Calls of other threads are waited for.
        """
        self._close_by(_c.kdvfs_close)

    def _close_by(self, function: Any) -> None:
        # In place: scopes that were made share it. First: an interrupt must not leave a handle that was closed.
        handle, self._handle.value = self._handle.value, None
        status = function(handle)
        if status == 1:  # something has not ended: the handle is kept
            self._handle.value = handle
        else:
            self._scopes.clear()
            self._begun.clear()
            if self in _open_gpus:
                _open_gpus.remove(self)
        expect_ok(status)

    def _close_whatever_is_open(self) -> None:
        """Other threads may be in calls and scopes: these end with the GPU, and nothing that they use is freed."""
        self._close_by(_c.kdvfs_force_close)

    def __enter__(self) -> "Gpu":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self.close()
        except Error:
            if self._handle:
                begun = list(self._begun)
                with contextlib.suppress(Error):
                    self._close_whatever_is_open()
                for each in begun:
                    each._abandon()
            if error is None:
                raise


@atexit.register
def _close_what_is_open() -> None:
    """A program may end without `close`. A session writes its files then, and clocks are put back at once."""
    for gpu in list(_open_gpus):
        if gpu._process != os.getpid():  # a forked child: the GPU is its parent's
            continue
        try:
            gpu._close_whatever_is_open()
        except Error as error:
            print(f"kdvfs: {error}", file=sys.stderr)


class SimulatedGpu(Gpu):
    """A GPU in virtual time, with no real joule in it. One thread must call it."""

    def stream(self) -> int:
        """Makes a stream, which lives as long as the GPU."""
        made = ctypes.c_void_p()
        expect_ok(_c.kdvfs_simulated_stream(self._handle, ctypes.byref(made)))
        return made.value or 0

    def launch(
        self,
        stream: int = 0,
        matrix_flops: float = 0,
        vector_flops: float = 0,
        memory_bytes: float = 0,
    ) -> None:
        """Enqueues a kernel that does so much work."""
        try:
            status = _c.kdvfs_simulated_launch(
                self._handle, stream, matrix_flops, vector_flops, memory_bytes
            )
        except ctypes.ArgumentError:
            raise Error(
                1,
                f"cannot launch a simulated kernel: of {stream!r}, {matrix_flops!r}, {vector_flops!r} and "
                f"{memory_bytes!r} one is no number; give a stream's handle, FLOPs and bytes",
            ) from None
        expect_ok(status)

    def synchronize(self) -> None:
        """Lets virtual time pass until all streams are done."""
        expect_ok(_c.kdvfs_simulated_synchronize(self._handle))

    def totals(self) -> Tuple[float, float]:
        """Virtual time in seconds, and the joules that the board has drawn."""
        seconds, joules = ctypes.c_double(), ctypes.c_double()
        expect_ok(
            _c.kdvfs_simulated_totals(
                self._handle, ctypes.byref(seconds), ctypes.byref(joules)
            )
        )
        return seconds.value, joules.value


def _options(
    meter_every: Optional[int],
    never_below_mhz: int,
    never_above_mhz: int,
    switch_latency: Optional[float],
    measure: bool,
    idle_clock_mhz: int = 0,
) -> Options:
    options = Options()
    _c.kdvfs_options_init(ctypes.byref(options))
    if meter_every is not None:
        remedy = "1 meters every iteration, 16 one in 16"
        options.meter_every = integer_of("meter_every", meter_every, 0, 2**32 - 1, remedy)
    options.never_below_mhz, options.never_above_mhz = _clocks(never_below_mhz, never_above_mhz)
    if switch_latency is not None:
        remedy = "give seconds, such as 0.006; 0 lets every scope switch, None says that it is not known"
        options.switch_latency_ns = round(number_of("switch_latency", switch_latency, 0, 3600, remedy) * 1e9)
    remedy = "core clock in MHz without work, 0 for none"
    options.idle_clock_mhz = integer_of("idle_clock_mhz", idle_clock_mhz, 0, 1000000, remedy)
    options.measure_if_refused = int(measure)
    return options


def _opened(
    by_number: Any, by_address: Any, vendor: str, device: Union[int, str], options: Options
) -> Gpu:
    handle = ctypes.c_void_p()
    if vendor not in ("amd", "nvidia"):
        raise Error(
            1,
            f"cannot open a GPU: there is no vendor {vendor!r}; use 'amd' or 'nvidia', or "
            "kdvfs.open_simulated('h100')",
        )
    remedy = "give the runtime's number, such as torch.cuda.current_device(), or a PCI address as '0000:c1:00.0'"
    if isinstance(device, str):
        if not re.fullmatch(r"([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", device):
            raise Error(1, f"cannot open a GPU: {device!r} is no PCI address; {remedy}")
    else:
        device = integer_of("a device", device, 0, 2**31 - 1, remedy)
    begin, where = (
        (by_number, device) if isinstance(device, int) else (by_address, device.encode())
    )
    expect_ok(begin(vendor.encode(), where, ctypes.byref(options), ctypes.byref(handle)))
    return Gpu(handle)


def open(  # noqa: A001 - the library's own word
    vendor: str,
    device: Union[int, str] = 0,
    *,
    meter_every: Optional[int] = None,
    never_below_mhz: int = 0,
    never_above_mhz: int = 0,
    switch_latency: Optional[float] = None,
    measure_if_refused: bool = False,
    idle_clock_mhz: int = 0,
) -> Gpu:
    """Opens a GPU of a vendor ("amd", "nvidia") to set its clocks and count its energy.

    `device` is the number that the vendor's runtime gives it (`torch.cuda.current_device()`), or
    a PCI address ("0000:c1:00.0"). By number it has streams, hence scopes. By address it has none
    until a module of the process opens the same GPU by its number; requests work at once. Needs
    the right to set clocks.

    `switch_latency`, in seconds, is what `kdvfs measure-latency` found: scopes too short for it do
    not switch. With None it is not known, and scopes that would not pay at 150 ms are held back;
    with 0 every scope switches.

    `never_below_mhz` and `never_above_mhz` bound what scopes ask for. A bound beyond the clocks that
    the device lists is the nearest of them; between two, it is the next one inside.

    `idle_clock_mhz` is the core clock after 20 ms without work, until the next scope or iteration.
    Only for programs whose every launch is in a scope.
    """
    options = _options(
        meter_every,
        never_below_mhz,
        never_above_mhz,
        switch_latency,
        measure_if_refused,
        idle_clock_mhz,
    )
    return _opened(_c.kdvfs_open_device, _c.kdvfs_open, vendor, device, options)


def measure(
    vendor: str, device: Union[int, str] = 0, *, meter_every: Optional[int] = None
) -> Gpu:
    """Opens a GPU to count its energy, as `open` does; no clock is ever set."""
    options = _options(meter_every, 0, 0, None, True)
    return _opened(_c.kdvfs_measure_device, _c.kdvfs_measure, vendor, device, options)


def open_simulated(
    preset: str,
    *,
    seed: int = 1,
    meter_every: Optional[int] = None,
    never_below_mhz: int = 0,
    never_above_mhz: int = 0,
    switch_latency: Optional[float] = None,
    idle_clock_mhz: int = 0,
) -> SimulatedGpu:
    """Opens a simulated GPU: "mi300x", "mi250x", "mi210", "h100" or "rtx3080ti"."""
    options = _options(
        meter_every, never_below_mhz, never_above_mhz, switch_latency, False, idle_clock_mhz
    )
    handle = ctypes.c_void_p()
    if not isinstance(preset, str):
        raise Error(1, f"cannot open a simulated GPU: {preset!r} is no preset; use a name such as 'h100'")
    seed = integer_of("a seed", seed, 0, 2**64 - 1, "any number will do")
    expect_ok(
        _c.kdvfs_open_simulated(
            preset.encode(), seed, ctypes.byref(options), ctypes.byref(handle)
        )
    )
    return SimulatedGpu(handle)


def report_cost(seconds: float, joules: float) -> None:
    """Reports what the whole run took to `kdvfs tune --counter program`; else does nothing."""
    expect_ok(_c.kdvfs_report_cost(seconds, joules))


def version() -> str:
    """Of the library: "0.3.0"."""
    return _c.kdvfs_version().decode()


from . import callbacks  # noqa: E402 - they need what is above
from .ranks import FolderStore, Ranks  # noqa: E402
from .pipeline import OpScope, PipelineSession  # noqa: E402
from .serving import RequestEnergy, Requests, RequestWork, Steps, StepScope  # noqa: E402
from .training import BatchSize, PowerLimit, Run  # noqa: E402

__all__ += ["callbacks", "BatchSize", "FolderStore", "OpScope", "PipelineSession", "Ranks", "PowerLimit", "RequestEnergy", "Requests", "RequestWork", "Run", "StepScope", "Steps"]
