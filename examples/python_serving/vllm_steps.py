# SPDX-License-Identifier: MIT
"""A step scope around each step of vLLM, as a plugin that changes no file of vLLM.

Install this file with the entry point `kdvfs_steps = "vllm_steps:register"` in the group `vllm.general_plugins`: vLLM
calls it in each worker process. The environment says what it does:

    KDVFS_STEPS_REPORT=steps.%p.json vllm serve MODEL             # measures; %p is the process
    KDVFS_STEPS_TABLE=steps.csv vllm serve MODEL                  # sets clocks after 2000 steps; needs the rights

A step table is a CSV that docs/serving.md describes. Tried on doubles of vLLM's model runner and its scheduler's
output (the V1 engine), on no vLLM yet.
"""

import atexit
import functools
import json
import os
import time
from typing import Any, Callable, Optional, Tuple

import kdvfs


def shape_of(scheduled: Any) -> Tuple[int, int, int, int]:
    """Prompt tokens, sequences that get a token, their mean context, and what was read before the prompt tokens."""
    counts = scheduled.num_scheduled_tokens
    cached = scheduled.scheduled_cached_reqs
    outputs = getattr(cached, "num_output_tokens", None)  # younger versions have it
    decoding, context, before = 0, 0, 0
    prompt_tokens = sum(counts.values())
    for index, (request, computed) in enumerate(zip(cached.req_ids, cached.num_computed_tokens)):
        answers = counts[request] == 1 if outputs is None else outputs[index] > 0
        if answers:
            decoding += 1
            context += computed
            prompt_tokens -= counts[request]  # with the tokens that it speculates on
        else:
            before += counts[request] * computed
    for new in getattr(scheduled, "scheduled_new_reqs", ()):  # their prefix may be in the cache
        before += counts[new.req_id] * new.num_computed_tokens
    mean = round(context / decoding) if decoding else 0
    return prompt_tokens, decoding, mean, round(before / prompt_tokens) if prompt_tokens else 0


class StepHook:
    """Follows the steps of one model runner: one process, one GPU."""

    def __init__(self, gpu: kdvfs.Gpu, table: Optional[str], plan_after: int = 2000) -> None:
        self._gpu, self._table, self._plan_after = gpu, table, plan_after
        self._steps = kdvfs.Steps(gpu)
        self._last: Optional[Tuple[Tuple[int, int, int, int], float]] = None
        self._seen = 0

    def step(self, scheduled: Any, run: Callable[[], Any]) -> Any:
        """Runs a step of the engine, within its scope."""
        shape = shape_of(scheduled)
        if shape[0] + shape[1] == 0:  # nothing to do: vLLM only tells of requests that have ended
            self._last = None
            return run()
        self._observe(shape)
        self._gpu.next_iteration()
        with self._steps.step(*shape[:3], prompt_context=shape[3]):
            return run()

    def _observe(self, shape: Tuple[int, int, int, int]) -> None:
        """The engine waits for the tokens of a step: it takes until the next begins."""
        now = time.monotonic()
        if self._table is not None and self._seen < self._plan_after:
            if self._last is not None and 0 < now - self._last[1] < 1:
                last, began = self._last
                self._steps.observe(*last[:3], now - began, last[3])
            self._seen += 1
            if self._seen == self._plan_after:
                self._steps.plan(self._table)
        self._last = shape, now

    def report(self) -> Any:
        return self._steps.report()

    def close(self) -> None:
        self._steps.close()
        self._gpu.close()


def hook_runner(runner: Any, open_gpu: Callable[[], kdvfs.Gpu], table: Optional[str], report: Optional[str]) -> None:
    """Puts the hook around `execute_model` of a class of model runners. The GPU is opened by its first step."""
    original = runner.execute_model
    hooks = {}

    def end(hook: StepHook) -> None:
        if report is not None:
            with open(report.replace("%p", str(os.getpid())), "w") as file:
                json.dump(hook.report(), file)
        hook.close()

    @functools.wraps(original)
    def execute_model(self: Any, scheduled: Any, *arguments: Any, **options: Any) -> Any:
        hook = hooks.get(id(self))
        if hook is None:
            hook = hooks[id(self)] = StepHook(open_gpu(), table)
            atexit.register(end, hook)
        return hook.step(scheduled, lambda: original(self, scheduled, *arguments, **options))

    runner.execute_model = execute_model


def register() -> None:
    """What vLLM calls."""
    import torch
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    table = os.environ.get("KDVFS_STEPS_TABLE")

    def open_gpu() -> kdvfs.Gpu:
        device = torch.cuda.current_device()
        return kdvfs.open("nvidia", device) if table else kdvfs.measure("nvidia", device)

    hook_runner(GPUModelRunner, open_gpu, table, os.environ.get("KDVFS_STEPS_REPORT"))
