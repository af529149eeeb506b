# SPDX-License-Identifier: MIT
"""Iterations of training frameworks, as iterations of kdvfs.

    trainer = lightning.pytorch.Trainer(callbacks=[kdvfs.callbacks.lightning(gpu)])
    trainer = transformers.Trainer(..., callbacks=[kdvfs.callbacks.transformers(gpu)])
    for batch in kdvfs.callbacks.iterations(gpu, loader):
        ...
    kdvfs.callbacks.timers(gpu, get_timers())    # Megatron, once it is initialized
    kdvfs.callbacks.operation_timers(session, get_timers())    # the same, of a pipeline
    kdvfs.callbacks.pipeline_stages(session, *schedule_stages)    # torch.distributed.pipelining, torchtitan

Each but the timers says `Gpu.next_iteration` where a training step begins. The frameworks are imported by
the call that needs them.
"""

import sys
from typing import Any, Callable, Dict, Iterable, Iterator, Tuple, TypeVar

from . import Gpu
from ._library import Error
from .pipeline import OpScope, PipelineSession

Item = TypeVar("Item")


def iterations(gpu: Gpu, items: Iterable[Item]) -> Iterator[Item]:
    """Yields each item, as an iteration: for a plain training loop over its batches."""
    for item in items:
        gpu.next_iteration()
        yield item


def lightning(gpu: Gpu) -> Any:
    """A callback for PyTorch Lightning. Validation steps are no iterations."""
    try:
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError:
            raise Error(2, "cannot make a callback: Lightning is missing; install lightning") from None

    class EnergyCallback(Callback):  # type: ignore[misc]
        def on_train_batch_start(self, *_: Any, **__: Any) -> None:
            gpu.next_iteration()

    return EnergyCallback()


def transformers(gpu: Gpu) -> Any:
    """A callback for the Trainer of Hugging Face's transformers. An iteration is a whole step, with
    all its gradient accumulation."""
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise Error(2, "cannot make a callback: transformers is missing; install transformers") from None

    class EnergyCallback(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            gpu.next_iteration()

    return EnergyCallback()


# What Megatron's schedules time around the operations of a pipeline, and its training loop around a step.
MEGATRON_SCOPES = ("forward-compute", "backward-compute", "optimizer")


class _ScopeTimer:
    """A framework's timer, with a scope around what it times. A copy is the same object: scopes hold pointers."""

    _inner: Any

    def __init__(self, timer: Any, scope: Any) -> None:
        self._inner, self._scope = timer, scope

    def start(self, *arguments: Any, **options: Any) -> Any:
        started = self._inner.start(*arguments, **options)
        self._scope.__enter__()
        return started

    def stop(self, *arguments: Any, **options: Any) -> Any:
        self._scope.__exit__(None, None, None)
        return self._inner.stop(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        # copy and pickle ask for methods before `_inner` is set.
        if name == "_inner" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __copy__(self) -> "_ScopeTimer":
        return self

    def __deepcopy__(self, _: Any) -> "_ScopeTimer":
        return self


def _open_scopes(timers: Any, names: Tuple[str, ...], scope_of: Callable[[str], Any]) -> Any:
    """Extends the class of this one object, so that all who hold it get timers with scopes."""
    kind = type(timers)
    made: Dict[str, _ScopeTimer] = {}

    def timer_of(self: Any, name: str, *arguments: Any, **options: Any) -> Any:
        timer = kind.__call__(self, name, *arguments, **options)
        if name not in names:
            return timer
        while isinstance(timer, _ScopeTimer):  # of an earlier call, which may be of a GPU that is closed
            timer = timer._inner
        # A timer that is not logged is one dummy for all names: the scope goes by the name.
        its = made.get(name)
        if its is None or its._inner is not timer:
            its = made[name] = _ScopeTimer(timer, scope_of(name))
        return its

    same = {"__copy__": lambda self: self, "__deepcopy__": lambda self, _: self}
    try:
        if not callable(timers):
            raise TypeError
        timers.__class__ = type(kind)(kind.__name__, (kind,), {"__slots__": (), "__call__": timer_of, **same})
    except TypeError:
        raise Error(
            1, f"cannot open scopes by timers: {timers!r} is no Timers object; give Megatron's, that of get_timers()"
        ) from None
    return timers


def timers(gpu: Gpu, timers: Any, names: Tuple[str, ...] = MEGATRON_SCOPES) -> Any:
    """Timers that open a scope around what they time, for codes with timers of Megatron's kind: `timers(name)`
    returns one with `start` and `stop`.

    They are the same object, changed in place: Megatron takes its timers anew from `get_timers()` in each step and
    after each evaluation. Call it once Megatron is initialized, such as in `model_provider`; a later call for a name
    replaces its scope. The work of one name must be on one stream, the one that is current when its timer starts
    first.
    """
    return _open_scopes(timers, names, gpu.scope)


# The operations of a pipeline, as Megatron's schedules time them.
MEGATRON_OPERATIONS = {"forward-compute": "forward", "backward-compute": "backward"}


class _NextOperation:
    """The next microbatch of a pass, as a scope: a schedule runs those of one pass in order."""

    def __init__(self, session: PipelineSession, kind: str) -> None:
        self._session, self._kind = session, kind
        self._iteration, self._microbatch = -1, 0
        self._scope: OpScope

    def __enter__(self) -> None:
        if self._iteration != self._session._iteration:
            self._iteration, self._microbatch = self._session._iteration, 0
        self._scope = self._session.operation(self._kind, self._microbatch).__enter__()
        self._microbatch += 1

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)


def operation_timers(
    session: PipelineSession, timers: Any, operations: Dict[str, str] = MEGATRON_OPERATIONS
) -> Any:
    """Timers that open an operation scope of a pipeline around what they time, changed in place as by `timers`.
    `operations` has the pass by the timer's name.

    Microbatches are counted from `PipelineSession.next_iteration` on, so the pipeline must have one chunk a stage.
    """
    if session._chunks != 1:
        raise Error(
            1,
            f"cannot count the operations of {session._chunks} chunks by timers: their order is not known; "
            "open an OpScope for each in the schedule",
        )
    return _open_scopes(timers, tuple(operations), lambda name: _NextOperation(session, operations[name]))


def pipeline_stages(session: PipelineSession, *stages: Any) -> None:
    """Opens an operation scope around each forward and backward of `torch.distributed.pipelining`'s stages, those of
    this rank in the order of their chunks.

    The methods that the schedule calls for a microbatch are replaced in these objects. In "zb_h1" a backward comes in
    two parts, as the schedule asks for them. What runs without a backward is no operation: the schedule's `eval`.
    """
    if len(stages) != session._chunks:
        raise Error(
            1,
            f"cannot open operation scopes for {len(stages)} stages: the session has {session._chunks} chunks on each "
            "rank; give this rank's stages, in the order of their chunks",
        )
    for chunk, stage in enumerate(stages):
        for name in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"):
            run = getattr(stage, name, None)
            if not callable(run):
                raise Error(
                    1,
                    f"cannot open operation scopes: {stage!r} has no {name}; give stages of "
                    "torch.distributed.pipelining, PyTorch 2.5 or later",
                )
            setattr(stage, name, _in_operation(session, stage, name, run, chunk))


def _trains(stage: Any) -> bool:
    """Whether what the stage runs now is part of a training step: a schedule's `eval` clears `has_backward`."""
    torch = sys.modules.get("torch")
    return getattr(stage, "has_backward", True) and (torch is None or torch.is_grad_enabled())


def _in_operation(session: PipelineSession, stage: Any, name: str, run: Any, chunk: int) -> Any:
    def run_in_scope(microbatch: int, *arguments: Any, **options: Any) -> Any:
        if not _trains(stage):
            return run(microbatch, *arguments, **options)
        # Of backward_one_chunk(microbatch, loss, full_backward): without the weights' part, which comes on its own.
        whole = options.get("full_backward", arguments[1] if len(arguments) > 1 else True)
        kind = {
            "forward_one_chunk": "forward",
            "backward_one_chunk": "backward" if whole else "backward_input",
            "backward_weight_one_chunk": "backward_weight",
        }[name]
        with session.operation(kind, microbatch, chunk):
            return run(microbatch, *arguments, **options)

    return run_in_scope
