# SPDX-License-Identifier: MIT
"""Iterations of training frameworks, as iterations of kdvfs.

    trainer = lightning.pytorch.Trainer(callbacks=[kdvfs.callbacks.lightning(gpu)])
    trainer = transformers.Trainer(..., callbacks=[kdvfs.callbacks.transformers(gpu)])
    for batch in kdvfs.callbacks.iterations(gpu, loader):
        ...

Each says `Gpu.next_iteration` where a training step begins. The frameworks are imported by the call
that needs them.
"""

from typing import Any, Iterable, Iterator, TypeVar

from . import Gpu
from ._library import Error

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
