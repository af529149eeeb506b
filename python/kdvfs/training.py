# SPDX-License-Identifier: MIT
"""The power limit and the batch size of a training job (docs/training.md).

    with kdvfs.PowerLimit(gpu, goal="energy") as limit:
        for batch in loader:
            limit.step(joules(), time.monotonic())
            train(batch)
        limit.end_epoch()
"""

import contextlib
import ctypes
import math
import os
from typing import Any, Callable, NamedTuple, Optional, Sequence, Tuple, Union

from . import Gpu
from ._library import Combine, Error, PowerLimitOptions, SuggestedRun
from ._library import bytes_of, expect_ok, integer_of, number_of, path_of
from ._library import library as _c
from .ranks import Ranks

_GOALS = ("energy", "time", "cost", "bounded_slowdown")
_ENDS = ("reached", "stopped", "failed", "lost")


def _index(what: str, word: str, words: Sequence[str]) -> int:
    if word not in words:
        raise Error(1, f"cannot use {what} {word!r}: there is none of this name; use {', '.join(words)}")
    return words.index(word)


class PowerLimit:
    """Finds the best power limit of a board while training goes on, and sets it.

    All ranks of one training run call it in step. The limit that was found is put back by `close`.
    """

    def __init__(
        self,
        gpu: Gpu,
        goal: str = "cost",
        parameter: Optional[float] = None,
        step_w: Optional[float] = None,
        warmup_steps: Optional[int] = None,
        measured_steps: Optional[int] = None,
        ranks: Union[int, Ranks] = 1,
        combine: Optional[Callable[[float, float], Tuple[float, float]]] = None,
    ) -> None:
        """`goal` is "energy", "time", "cost" (parameter: eta, 0.5) or "bounded_slowdown" (0.05: 5 %).

        With several ranks, give a `Ranks`; or their number, and `combine(joules, seconds)`, which returns the sum
        of all ranks' joules and the longest of their times, as an all-reduce does.
        """
        if isinstance(ranks, Ranks):
            ranks, combine = ranks.size, combine or (ranks.combine if ranks.size > 1 else None)
        ranks = integer_of("ranks", ranks, 1, 2**32 - 1, "give their number, or a kdvfs.Ranks()")
        if ranks > 1 and combine is None:
            raise Error(1, f"cannot search on {ranks} ranks: they have no `combine`; give ranks=kdvfs.Ranks()")
        options = PowerLimitOptions()
        _c.kdvfs_power_limit_options_init(ctypes.byref(options))
        options.goal = _index("the goal", goal, _GOALS)
        if goal == "bounded_slowdown" and parameter is None:
            raise Error(1, "cannot bound a slowdown: no parameter is given; give 0.05 for 5 %")
        remedy = "give watts, a share or a number of steps"
        for name, value, least in (("parameter", parameter, -math.inf), ("step_w", step_w, 0)):
            if value is not None:  # the library knows the goal's bounds
                setattr(options, name, number_of(name, value, least, 1e9, remedy))
        for name, steps in (("warmup_steps", warmup_steps), ("measured_steps", measured_steps)):
            if steps is not None:
                setattr(options, name, integer_of(name, steps, 0, 10**9, remedy))
        options.ranks = ranks
        self._error: Optional[BaseException] = None
        if combine is not None:
            options.combine = self._combine = Combine(self._called_back(combine))
        self._handle = ctypes.c_void_p()
        expect_ok(
            _c.kdvfs_power_limit_begin(
                gpu._handle, ctypes.byref(options), ctypes.byref(self._handle)
            )
        )
        self._gpu = gpu
        gpu._begun.add(self)

    def _called_back(self, combine: Callable[[float, float], Tuple[float, float]]) -> Any:
        def call(_: Any, joules: Any, seconds: Any) -> None:
            try:
                answer = combine(joules[0], seconds[0])
                try:
                    joules[0], seconds[0] = answer
                except (TypeError, ValueError):
                    text = f"cannot combine ranks: `combine` returned {answer!r}; return (joules, seconds)"
                    raise Error(1, text) from None
            except BaseException as error:  # C code cannot carry it: `step` raises it
                self._error = error
                joules[0] = seconds[0] = float("nan")

        return call

    def step(self, joules: float, seconds: float) -> None:
        """Call before each training step, with the board's energy counter and the time since any origin."""
        status = _c.kdvfs_power_limit_step(self._handle, joules, seconds)
        error, self._error = self._error, None
        if error is not None:
            raise error
        expect_ok(status)

    def end_epoch(self) -> None:
        """Call at the end of each epoch: what comes between epochs is not measured."""
        expect_ok(_c.kdvfs_power_limit_end_epoch(self._handle))

    @property
    def done(self) -> bool:
        """Whether the best limit has been found and is kept."""
        return _c.kdvfs_power_limit_done(self._handle) == 1

    @property
    def best(self) -> Optional[float]:
        """The best limit of those measured so far, in watts."""
        return _c.kdvfs_power_limit_best(self._handle) or None

    def epoch_cost(self, steps: int) -> float:
        """What an epoch of so many steps costs at the best limit, in the sense of the goal."""
        steps = integer_of("steps", steps, 0, 2**64 - 1, "give how many steps an epoch has")
        cost = ctypes.c_double()
        expect_ok(_c.kdvfs_power_limit_epoch_cost(self._handle, steps, ctypes.byref(cost)))
        return cost.value

    def close(self) -> None:
        """Puts the limit back that was found. A second call does nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        self._gpu._begun.discard(self)
        expect_ok(_c.kdvfs_power_limit_end(handle))

    def _abandon(self) -> None:
        with contextlib.suppress(Error):
            self.close()

    def __enter__(self) -> "PowerLimit":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Run(NamedTuple):
    """A run of the job, as `BatchSize.suggest` gives it."""

    id: int
    batch_size: int
    power_limit_w: Optional[float]  # the best one known
    epoch_cost: Optional[float]  # None: find the power limit in the first epoch, then call `profiled`
    most_cost: float  # stop the run when its cost reaches this


def _expect_run(run: Any) -> None:
    if not isinstance(run, Run):
        raise Error(1, f"cannot report a run: {run!r} is none; give what suggest() returned")


class BatchSize:
    """Learns the best batch size of a job that recurs, in a file that its processes share."""

    def __init__(
        self,
        file: Union[str, "os.PathLike[str]"],
        job: str,
        sizes: Sequence[int],
        usual: int,
        seed: int = 1,
    ) -> None:
        """`sizes` may be tried; `usual` is one of them, tried first. `job` names the job and the GPU."""
        for size in (*sizes, usual):
            integer_of("a batch size", size, 1, 2**32 - 1, "give integers above 0")
        seed = integer_of("a seed", seed, 0, 2**64 - 1, "any number will do")
        numbers = (ctypes.c_uint32 * len(sizes))(*sizes)
        self._handle = ctypes.c_void_p()
        expect_ok(
            _c.kdvfs_batch_sizes_open(
                path_of("a file of batch sizes", file),
                bytes_of("a job", job),
                numbers,
                len(sizes),
                usual,
                seed,
                ctypes.byref(self._handle),
            )
        )

    def suggest(self) -> Run:
        """The next run."""
        run = SuggestedRun()
        expect_ok(_c.kdvfs_batch_size_suggest(self._handle, ctypes.byref(run)))
        return Run(
            run.id,
            run.batch_size,
            run.power_limit_w or None,
            run.epoch_cost if run.is_profiled else None,
            run.most_cost,
        )

    def profiled(self, run: Run, epoch_cost: float, power_limit_w: Optional[float] = None) -> float:
        """Reports what an epoch costs. Returns the cost at which to stop; 0: stop now."""
        _expect_run(run)
        number_of("epoch_cost", epoch_cost, 0, math.inf, "give what an epoch costs, in any unit")
        most = ctypes.c_double()
        expect_ok(
            _c.kdvfs_batch_size_profiled(
                self._handle, run.id, power_limit_w or 0, epoch_cost, ctypes.byref(most)
            )
        )
        return most.value

    def observe(self, run: Run, end: str, epochs: float, cost: float) -> None:
        """Reports how a run ended: "reached", "stopped", "failed" or "lost"."""
        _expect_run(run)
        number = _index("the end", end, _ENDS)
        number_of("epochs", epochs, 0, math.inf, "give how many epochs the run took")
        number_of("cost", cost, 0, math.inf, "give what the run cost, in the unit of epoch_cost")
        expect_ok(_c.kdvfs_batch_size_observe(self._handle, run.id, number, epochs, cost))

    @property
    def best(self) -> Optional[int]:
        """The size of least expected cost among those that have reached the target."""
        size = ctypes.c_uint32()
        expect_ok(_c.kdvfs_batch_size_best(self._handle, ctypes.byref(size)))
        return size.value or None

    def close(self) -> None:
        """Forgets the handle, not the file. A second call does nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        _c.kdvfs_batch_sizes_close(handle)
