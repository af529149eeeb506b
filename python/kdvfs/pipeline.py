# SPDX-License-Identifier: MIT
"""Sessions of pipeline-parallel runs: each operation runs at the clock of the whole pipeline's plan.

    with kdvfs.PipelineSession(gpu, ranks, schedule="1f1b", stages=8, microbatches=32) as session:
        for batch in loader:
            session.next_iteration()
            ...                                    # in the schedule's order
            with session.forward(microbatch):
                loss = model(part)
"""

import contextlib
import ctypes
from operator import index
from types import TracebackType
from typing import Any, Dict, Optional, Sequence, Type

from . import Gpu, current_stream
from ._library import Error, Exchange, OperationMemory, PipelineOptions, RanksOfCaller, WithScope
from ._library import clocks_of, expect_ok, integer_of, json_of, number_of, path_of
from ._library import library as _c
from .ranks import Ranks
from .training import _index

_operation_begin = _c.kdvfs_operation_begin

SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "zb_h1")
PASSES = ("forward", "backward", "backward_input", "backward_weight")


class OpScope(WithScope):
    """One operation: what is enqueued until it is left runs at the plan's clock for it.

    Made by `PipelineSession.forward` and its like, which give one object for all operations: they run one
    after another.
    """

    __slots__ = ()
    _end = _c.kdvfs_operation_end

    def __init__(self) -> None:
        super().__init__(OperationMemory())

    def __enter__(self) -> "OpScope":
        if self._entered:
            raise Error(1, "cannot begin an operation: the one before has not ended; leave it first")
        self._entered = True
        try:
            status = _operation_begin(*self._arguments, self._pointer)
        except ctypes.ArgumentError:
            self._entered = False
            raise _no_operation(self._arguments[4], self._arguments[3]) from None
        if status != 0:
            self._entered = False
            expect_ok(status)
        return self

    def reached(self, share: float) -> None:
        """This share of the operation, 0 to 1, has been enqueued: where it has two clocks, the second is
        requested once its share is reached."""
        number_of("a share of an operation", share, 0, 1, "give 0.5 where half of its kernels have been launched")
        if not self._entered:
            raise Error(1, "cannot say how far an operation is: it has not begun; call it in the `with` block")
        expect_ok(_c.kdvfs_operation_reached(self._pointer, share))


def _no_operation(microbatch: Any, chunk: Any) -> Error:
    return Error(
        1,
        f"cannot begin an operation: microbatch {microbatch!r} or chunk {chunk!r} is no integer from 0; "
        "number the microbatches of an iteration from 0",
    )


def _shape(name: str, value: Any) -> int:
    return integer_of(name, value, 1, 2**32 - 1, f"give the pipeline's {name}")


class PipelineSession:
    """One rank of a pipeline-parallel run. All ranks make the same calls; one thread makes them.

    Without a plan operations are metered, and the clocks stay as found. `mode`, or `KDVFS_MODE`, says what it
    does: "sweep:FILE" measures every operation at every clock, plans, and goes on with the plan; "follow:FILE"
    follows such a file; "measure" is the default, "off" does nothing.
    """

    def __init__(
        self,
        gpu: Gpu,
        ranks: Optional[Ranks] = None,
        *,
        stages: int,
        microbatches: int,
        schedule: str = "1f1b",
        chunks: int = 1,
        stage: Optional[int] = None,
        copy: Optional[int] = None,
        mode: Optional[str] = None,
        slowdown: float = 0.0,
        two_clocks: bool = False,
        switch_latency: Optional[float] = None,
        samples: int = 1,
        core_mhz: Sequence[int] = (),
        silence: Optional[float] = None,
        planning: float = 600.0,
    ) -> None:
        """`schedule` is "gpipe", "1f1b", "interleaved_1f1b" (with `chunks` on each stage) or "zb_h1".

        By default neighbouring ranks share a stage; `stage` and `copy` (of the pipeline) say otherwise. `slowdown` is
        what a plan may cost in time: 0.05 is 5 %. `switch_latency`, in seconds, is by default what
        `kdvfs measure-latency` has kept. A sweep takes `samples` of each clock in `core_mhz`, or of up to 12. A rank
        that is silent for `silence` seconds, by default the timeout of `ranks`, is given up: see `check`.
        """
        options = PipelineOptions()
        _c.kdvfs_pipeline_options_init(ctypes.byref(options))
        options.schedule = _index("the schedule", schedule, SCHEDULES)
        options.stages = _shape("stages", stages)
        options.microbatches = _shape("microbatches", microbatches)
        options.chunks = _shape("chunks", chunks)
        options.samples = _shape("samples", samples)
        for name, value in (("stage", stage), ("copy", copy)):
            if value is not None:
                remedy = "number them from 0, or leave it out where neighbouring ranks share a stage"
                setattr(options, name, integer_of(name, value, 0, 2**32 - 1, remedy))
        options.slowdown = number_of("slowdown", slowdown, 0, 100, "0.05 allows iterations to take 5 % longer")
        options.two_clocks = int(two_clocks)
        if switch_latency is not None:
            remedy = "give seconds, such as 0.006; None takes what kdvfs measure-latency has kept"
            options.switch_latency_s = number_of("switch_latency", switch_latency, 0, 3600, remedy)
        if mode is not None:
            options.mode = path_of("the file of a mode", mode)
        options.core_mhz, options.core_count = clocks_of(core_mhz), len(core_mhz)
        if silence is None:
            silence = ranks._timeout if ranks is not None else options.silence_s
        options.silence_s = number_of("silence", silence, 0, 1e7, "give seconds, such as 30")
        options.planning_s = number_of("planning", planning, 0, 1e7, "give seconds, such as 600")
        self._error: Optional[BaseException] = None
        self._ranks = ranks
        self._chunks, self._iteration = chunks, 0
        if ranks is not None:
            calls = RanksOfCaller(ctypes.sizeof(RanksOfCaller), ranks.rank, ranks.size)
            calls.gather = self._gather = Exchange(self._called_back(self._gather_on))
            calls.broadcast = self._broadcast = Exchange(self._called_back(self._broadcast_on))
            options.ranks = ctypes.pointer(calls)
        self._scope = OpScope()
        self._handle = ctypes.c_void_p()
        status = _c.kdvfs_pipeline_begin(gpu._handle, ctypes.byref(options), ctypes.byref(self._handle))
        self._raise_error_of_ranks()
        expect_ok(status)
        self._gpu = gpu
        gpu._begun.add(self)

    def _gather_on(self, text: str, seconds: float) -> Dict[int, str]:
        assert self._ranks is not None
        return dict(enumerate(self._ranks._exchange("gather", text, seconds) or ()))

    def _broadcast_on(self, text: Optional[str], seconds: float) -> Dict[int, str]:
        assert self._ranks is not None
        return {0: self._ranks._exchange("broadcast", text, seconds)}

    def _called_back(self, exchange: Any) -> Any:
        def call(_: Any, text: Any, length: int, seconds: float, received: Any) -> int:
            try:
                # Bytes as the characters of their numbers: JSON knows no bytes.
                sent = None if text is None else ctypes.string_at(text, length).decode("latin-1")
                for rank, each in exchange(sent, seconds).items():
                    data = each.encode("latin-1")
                    _c.kdvfs_receive(received, rank, data, len(data))
                return 0
            except BaseException as error:  # C code cannot carry it: the caller raises it
                self._error = error
                _c.kdvfs_receive_error(received, str(error).encode())
                return Error.codes.index(error.code) if isinstance(error, Error) else 8

        return call

    def _raise_error_of_ranks(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def next_iteration(self) -> None:
        """Call before each iteration, outside operations."""
        status = _c.kdvfs_pipeline_next_iteration(self._handle)
        # Errors are for `check`; Ctrl-C in an exchange is not.
        if self._error is not None and not isinstance(self._error, Exception):
            self._raise_error_of_ranks()
        expect_ok(status)
        self._iteration += 1

    def _operation(self, number: int, microbatch: int, chunk: int, stream: Optional[int]) -> OpScope:
        scope = self._scope
        if scope._entered:
            raise Error(1, "cannot begin an operation: the one before has not ended; leave it first")
        try:
            bits = index(microbatch) | index(chunk)
        except TypeError:
            bits = -1
        if not 0 <= bits < 2**32:
            raise _no_operation(microbatch, chunk)
        if stream is None:
            stream = current_stream()
        scope._arguments = (self._handle, stream, number, chunk, microbatch)
        return scope

    def forward(self, microbatch: int, chunk: int = 0, stream: Optional[int] = None) -> OpScope:
        """The forward of a microbatch through a chunk of the model, on PyTorch's current stream by default."""
        return self._operation(0, microbatch, chunk, stream)

    def backward(self, microbatch: int, chunk: int = 0, stream: Optional[int] = None) -> OpScope:
        """Its backward."""
        return self._operation(1, microbatch, chunk, stream)

    def backward_input(self, microbatch: int, chunk: int = 0, stream: Optional[int] = None) -> OpScope:
        """The part of its backward that the stage before waits for, in "zb_h1"."""
        return self._operation(2, microbatch, chunk, stream)

    def backward_weight(self, microbatch: int, chunk: int = 0, stream: Optional[int] = None) -> OpScope:
        """The other part, of the weights, in "zb_h1"."""
        return self._operation(3, microbatch, chunk, stream)

    def operation(self, kind: str, microbatch: int, chunk: int = 0, stream: Optional[int] = None) -> OpScope:
        """An operation by the name of its pass, such as "forward"."""
        return self._operation(_index("the pass", kind, PASSES), microbatch, chunk, stream)

    @property
    def phase(self) -> str:
        """"off", "measuring", "warming up", "sweeping", "following", or "alone" after an error."""
        text = _c.kdvfs_pipeline_phase(self._handle)
        return text.decode()

    def plan(self) -> Dict[str, Any]:
        """This rank's operations with their clocks ("operations", empty before a plan), and an iteration's time
        and energy as promised ("time_s", "energy_j")."""
        return json_of(_c.kdvfs_pipeline_plan_json, self._handle)

    def straggler(self, rank: int, iteration: float) -> None:
        """The copy of the pipeline that `rank` belongs to takes so many seconds for an iteration; 0: no longer."""
        rank = integer_of("a rank", rank, 0, 2**32 - 1, "number ranks from 0")
        number_of("iteration", iteration, 0, 1e9, "give the seconds of its iterations, or 0")
        expect_ok(_c.kdvfs_pipeline_straggler(self._handle, rank, iteration))

    def check(self) -> None:
        """Raises what has ended the following of a plan, such as a silent rank, once."""
        status = _c.kdvfs_pipeline_check(self._handle)
        self._raise_error_of_ranks()
        expect_ok(status)

    def close(self) -> None:
        """Ends the session. A second call does nothing."""
        expect_ok(_c.kdvfs_pipeline_end(self._handle))
        self._handle.value = None
        self._gpu._begun.discard(self)

    def _abandon(self) -> None:
        self._scope._abandon()
        with contextlib.suppress(Error):
            self.close()

    def __enter__(self) -> "PipelineSession":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            if error is None:
                self.check()
            else:
                self._scope._abandon()
        finally:
            self.close()
