# SPDX-License-Identifier: MIT
"""Clocks that follow the steps of an engine with continuous batching.

    with kdvfs.Steps(gpu) as steps:
        while engine.has_work():
            with steps.step(prompt_tokens, sequences, context_tokens, slack=engine.slack()):
                engine.step()
        steps.rest()

Until `plan`, steps are counted and metered at the driver's default clocks.
"""

import contextlib
import ctypes
import math
import os
from operator import index
from types import TracebackType
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Type, Union

from . import Gpu, current_stream
from ._library import (
    Error,
    ReportedRequest,
    RequestReport,
    RequestWorkOfCaller,
    StepMemory,
    WithScope,
    are_counts,
    bytes_of,
    clocks_of,
    expect_ok,
    integer_of,
    json_of,
    path_of,
    text_of,
)
from ._library import library as _c

_step_begin = _c.kdvfs_step_begin


def _no_shape(*shape: Any) -> Error:
    return Error(
        1,
        "cannot use a step: of prompt_tokens, sequences and context_tokens, "
        f"{', '.join(map(repr, shape))}, one is no integer from 0 to {2**32 - 1}; give whole numbers, as "
        "round(mean_context)",
    )


def _no_time(slack: Any, stream: Any) -> Error:
    remedy = "give seconds, and a stream's handle"
    return Error(1, f"cannot begin a step: slack {slack!r} or stream {stream!r} is no number; {remedy}")


class StepScope(WithScope):
    """One step: what is enqueued until it is left runs at the plan's clock for its shape.

    Made by `Steps.step`, which gives the same object for each step.
    """

    __slots__ = ()
    _end = _c.kdvfs_step_end

    def __init__(self) -> None:
        super().__init__(StepMemory())

    def __enter__(self) -> "StepScope":
        if self._entered:
            raise Error(1, "cannot begin a step: the step before has not ended; leave it first")
        self._entered = True
        try:
            status = _step_begin(*self._arguments, self._pointer)
        except ctypes.ArgumentError:
            self._entered = False
            raise _no_time(self._arguments[5], self._arguments[1]) from None
        if status != 0:
            self._entered = False
            expect_ok(status)
        return self


def _chunk(tokens: int) -> int:
    return integer_of("chunk_tokens", tokens, 0, 2**32 - 1, "give the most prompt tokens of one step, such as 512")


class Steps:
    """The steps of one engine on one GPU. One thread calls it."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._handle = ctypes.c_void_p()
        expect_ok(_c.kdvfs_steps_begin(gpu._handle, ctypes.byref(self._handle)))
        self._scope = StepScope()
        gpu._begun.add(self)
        self._prompt_context = 0

    def step(
        self,
        prompt_tokens: int = 0,
        sequences: int = 0,
        context_tokens: int = 0,
        slack: float = math.inf,
        stream: Optional[int] = None,
        prompt_context: int = 0,
    ) -> StepScope:
        """A step that reads `prompt_tokens` and gives each of `sequences` one token.

        `context_tokens` is the mean length of the sequences so far, `prompt_context` the mean number of
        tokens of their prompt that were read or cached before these prompt tokens; `slack` says by how many seconds the
        step's tightest first token may come later than at the top clock, infinity where none is due.
        """
        scope = self._scope
        if scope._entered:
            raise Error(1, "cannot begin a step: the step before has not ended; leave it first")
        try:  # as `are_counts`, without a call
            bits = index(prompt_tokens) | index(sequences) | index(context_tokens)
        except TypeError:
            bits = -1
        if not 0 <= bits < 2**32:
            raise _no_shape(prompt_tokens, sequences, context_tokens)
        if prompt_context != self._prompt_context:
            self._read_before(prompt_context)
        if stream is None:
            stream = current_stream()
        scope._arguments = (self._handle, stream, prompt_tokens, sequences, context_tokens, slack)
        return scope

    def _read_before(self, tokens: int) -> None:
        tokens = integer_of("prompt_context", tokens, 0, 2**32 - 1, "give a mean number of tokens, rounded")
        expect_ok(_c.kdvfs_steps_prompt_context(self._handle, tokens))
        self._prompt_context = tokens

    def _expect_shape(self, prompt_tokens: int, sequences: int, context_tokens: int, prompt_context: int) -> None:
        if not are_counts(prompt_tokens, sequences, context_tokens):
            raise _no_shape(prompt_tokens, sequences, context_tokens)
        if prompt_context != self._prompt_context:
            self._read_before(prompt_context)

    def observe(
        self, prompt_tokens: int, sequences: int, context_tokens: int, seconds: float, prompt_context: int = 0
    ) -> None:
        """Records how long a step took, for `plan`: some minutes of ordinary load at default clocks."""
        self._expect_shape(prompt_tokens, sequences, context_tokens, prompt_context)
        expect_ok(
            _c.kdvfs_steps_observe(self._handle, prompt_tokens, sequences, context_tokens, seconds)
        )

    def plan(
        self,
        table: Union[str, "os.PathLike[str]"],
        policy: str = "no_harm",
        gap: float = 0.1,
        switch_latency: float = 0.006,
        chunk_tokens: int = 512,
        late_first_tokens: float = 0.001,
    ) -> None:
        """Plans the clock of each step from a step table (CSV, docs/serving.md) and the recorded load.

        `policy` is "one_clock", "no_harm", "two_clocks" or "by_step"; `gap` is the longest time between two
        tokens of a sequence and `switch_latency` that of the GPU, in seconds; `chunk_tokens` is the most
        prompt tokens of one step; `late_first_tokens` is the share of first tokens that the plan may make
        late. Steps follow the plan from now on.
        """
        chunk_tokens = _chunk(chunk_tokens)
        expect_ok(_c.kdvfs_steps_late_first_tokens(self._handle, late_first_tokens))
        expect_ok(
            _c.kdvfs_steps_plan(
                self._handle, path_of("a step table", table), policy.encode(), gap, switch_latency, chunk_tokens
            )
        )

    def prove(self, block: float = 30.0) -> None:
        """Measures what the plan saves: blocks of so many seconds by the plan and at the top clock.

        The blocks are in pairs of random order; a plan that costs energy is no longer followed. Needs `energy`;
        ends with the next `plan`. `report()["proof"]` has the change in percent and its 95 % interval.
        """
        expect_ok(_c.kdvfs_steps_prove(self._handle, block))

    def tune(
        self,
        clocks: Sequence[int],
        policy: str = "no_harm",
        gap: float = 0.1,
        switch_latency: float = 0.006,
        chunk_tokens: int = 512,
        late_first_tokens: float = 0.001,
        warm_up: float = 300.0,
        sweep: float = 1800.0,
        block: float = 30.0,
    ) -> None:
        """Sweeps, plans and proves while the engine serves, with `ran` and `energy`.

        `warm_up` seconds run at the top clock, then each of `clocks` (MHz, ascending) is measured for `sweep`
        seconds in all, in blocks. The plan is made as by `plan` and proven as by `prove`; it is left for the top
        clock where it costs energy or makes steps late. `report()["tuning"]` has the phase, and why there is no
        plan any more.
        """
        chunk_tokens = _chunk(chunk_tokens)
        mhz = clocks_of(clocks)
        expect_ok(_c.kdvfs_steps_late_first_tokens(self._handle, late_first_tokens))
        expect_ok(
            _c.kdvfs_steps_tune(
                self._handle, mhz, len(mhz), policy.encode(), gap, switch_latency, chunk_tokens, warm_up, sweep, block
            )
        )

    def ran(
        self, prompt_tokens: int, sequences: int, context_tokens: int, begin: float, end: float,
        prompt_context: int = 0,
    ) -> None:
        """A step of an engine that is tuned has run, between two times by the clock of `energy`."""
        self._expect_shape(prompt_tokens, sequences, context_tokens, prompt_context)
        expect_ok(_c.kdvfs_steps_ran(self._handle, prompt_tokens, sequences, context_tokens, begin, end))

    def energy(self, joules: float, seconds: float) -> None:
        """A sample of the board's energy counter and its time, since any origin: some times a second, between steps."""
        expect_ok(_c.kdvfs_steps_energy(self._handle, joules, seconds))

    def rest(self, stream: Optional[int] = None) -> None:
        """The engine has nothing to do: the plan's clock of an idle board, in stream order."""
        expect_ok(
            _c.kdvfs_steps_rest(self._handle, current_stream() if stream is None else stream)
        )

    def report(self) -> Dict[str, Any]:
        """Steps, tokens and joules per token (None where unresolved) by phase."""
        return json_of(_c.kdvfs_steps_report_json, self._handle)

    def close(self) -> None:
        """Ends the steps and what they requested. A second call does nothing."""
        expect_ok(_c.kdvfs_steps_end(self._handle))
        self._handle.value = None
        self._gpu._begun.discard(self)

    def _abandon(self) -> None:
        self._scope._abandon()
        with contextlib.suppress(Error):
            self.close()

    def __enter__(self) -> "Steps":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if error is not None:
            self._scope._abandon()
        self.close()


class RequestWork(NamedTuple):
    """What one step does for one request."""

    request: int  # its number, by `Requests.open`
    answer_tokens: int = 0  # generated
    context_tokens: int = 0  # keys and values that are read for these, cached included
    prompt_tokens: int = 0  # computed: those found in a cache are not
    prompt_context: int = 0  # mean number of tokens that these attend to


class RequestEnergy(NamedTuple):
    """What one request has used. `low_joules` and `high_joules` are the ends of its 95 % interval."""

    id: str
    joules: float
    low_joules: float
    high_joules: float
    steps: int
    prompt_tokens: int
    answer_tokens: int


class Requests:
    """Shares the energy of an engine's steps among their requests (docs/serving.md). One thread calls it.

    First `fit` with steps that were measured one by one. Then `open` each request, `step` each step, `settle`
    what steps took, `idle` what was drawn between them, and `finish` each request.
    """

    def __init__(self, report: Optional[Callable[[RequestEnergy], None]] = None) -> None:
        """`report` is called for each finished request, once its last steps are settled."""
        self._error: Optional[BaseException] = None

        def call(_: Any, request: Any) -> None:
            try:
                if report is not None:
                    done = request[0]
                    fields = (getattr(done, name) for name, _ in ReportedRequest._fields_[1:])
                    report(RequestEnergy(done.id.decode(), *fields))
            except BaseException as error:  # it must not pass through C
                self._error = error

        self._report = RequestReport(call)
        self._handle = ctypes.c_void_p()
        expect_ok(_c.kdvfs_requests_begin(self._report, None, ctypes.byref(self._handle)))

    def fit(self, works: Sequence[RequestWork], joules: float) -> None:
        """A step whose energy was measured by itself. The first `open` ends the fit."""
        expect_ok(_c.kdvfs_requests_fit(self._handle, *self._works(works), joules))

    def open(self, id: str) -> int:
        """A request begins. Returns its number; that of a reported request is used again."""
        number = ctypes.c_uint32()
        expect_ok(_c.kdvfs_request_open(self._handle, bytes_of("a request's id", id), ctypes.byref(number)))
        return number.value

    def step(self, works: Sequence[RequestWork]) -> None:
        """A step has worked on these open requests."""
        expect_ok(_c.kdvfs_requests_step(self._handle, *self._works(works)))

    def settle(self, joules: float, deviation: float = 0.0) -> None:
        """The steps since the last call took this much, of that standard deviation, without idle time."""
        self._reporting(_c.kdvfs_requests_settle(self._handle, joules, deviation))

    def idle(self, joules: float) -> None:
        """Energy between steps: never divided among requests."""
        expect_ok(_c.kdvfs_requests_idle(self._handle, joules))

    def finish(self, request: int) -> None:
        """A request has ended, or was given up."""
        request = integer_of("a request", request, 0, 2**32 - 1, "give what open() returned")
        self._reporting(_c.kdvfs_request_close(self._handle, request))

    def prometheus(self, labels: str = "") -> str:
        """Histograms of the reported requests in Prometheus' text format. `labels`: of all lines, as `model="qwen"`."""
        return text_of(_c.kdvfs_requests_prometheus, self._handle, labels.encode())

    def close(self) -> None:
        """Ends it; open requests are not reported. A second call does nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        _c.kdvfs_requests_end(handle)

    def __enter__(self) -> "Requests":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _reporting(self, status: int) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
        expect_ok(status)

    @staticmethod
    def _works(works: Sequence[RequestWork]) -> Any:
        for work in works:
            if not are_counts(*work):
                wrong = f"of {work!r} one is no integer from 0 to {2**32 - 1}"
                raise Error(1, f"cannot share a step among requests: {wrong}; give whole numbers")
        return (RequestWorkOfCaller * len(works))(*works), len(works)
