# SPDX-License-Identifier: MIT
"""Clocks that follow the steps of an engine with continuous batching.

    steps = kdvfs.Steps(gpu)
    while engine.has_work():
        with steps.step(prompt_tokens, sequences, context_tokens, slack=engine.slack()):
            engine.step()
    steps.rest()

Until `plan`, steps are counted and metered at the driver's default clocks.
"""

import ctypes
import math
import os
from typing import Any, Dict, Optional, Union

from . import Gpu, current_stream
from ._library import Error, StepMemory, WithScope, expect_ok, json_of, path_of
from ._library import library as _c

_step_begin = _c.kdvfs_step_begin


def _no_shape(shape: Any) -> Error:
    return Error(
        1,
        "cannot begin a step: of prompt_tokens, sequences and context_tokens, "
        f"{', '.join(map(repr, shape))}, one is no integer from 0; give whole numbers, as round(mean_context)",
    )


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
        try:
            status = _step_begin(*self._arguments, self._pointer)
        except ctypes.ArgumentError:
            raise _no_shape(self._arguments[2:5]) from None
        if status != 0:
            expect_ok(status)
        self._entered = True
        return self


class Steps:
    """The steps of one engine on one GPU. One thread calls it."""

    def __init__(self, gpu: Gpu) -> None:
        self._handle = ctypes.c_void_p()
        expect_ok(_c.kdvfs_steps_begin(gpu._handle, ctypes.byref(self._handle)))
        self._scope = StepScope()

    def step(
        self,
        prompt_tokens: int = 0,
        sequences: int = 0,
        context_tokens: int = 0,
        slack: float = math.inf,
        stream: Optional[int] = None,
    ) -> StepScope:
        """A step that reads `prompt_tokens` and gives each of `sequences` one token.

        `context_tokens` is the mean length of the sequences so far; `slack` says by how many seconds the
        step's tightest first token may come later than at the top clock, infinity where none is due.
        """
        scope = self._scope
        if scope._entered:
            raise Error(1, "cannot begin a step: the step before has not ended; leave it first")
        if prompt_tokens < 0 or sequences < 0 or context_tokens < 0:
            raise _no_shape((prompt_tokens, sequences, context_tokens))
        if stream is None:
            stream = current_stream()
        scope._arguments = (self._handle, stream, prompt_tokens, sequences, context_tokens, slack)
        return scope

    def observe(self, prompt_tokens: int, sequences: int, context_tokens: int, seconds: float) -> None:
        """Records how long a step took, for `plan`: some minutes of ordinary load at default clocks."""
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
    ) -> None:
        """Plans the clock of each step from a step table (CSV, docs/serving.md) and the recorded load.

        `policy` is "one_clock", "no_harm", "two_clocks" or "by_step"; `gap` is the longest time between two
        tokens of a sequence and `switch_latency` that of the GPU, in seconds; `chunk_tokens` is the most
        prompt tokens of one step. Steps follow the plan from now on.
        """
        expect_ok(
            _c.kdvfs_steps_plan(
                self._handle, path_of("a step table", table), policy.encode(), gap, switch_latency, chunk_tokens
            )
        )

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

    def __enter__(self) -> "Steps":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
