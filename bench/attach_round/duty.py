# SPDX-License-Identifier: MIT
"""The power of runs of kernels between waits, from NVML's counter alone, without kdvfs.

The forwards of `others.py stage`, half of one, several at once and those with their backward run between
waits of several lengths. Joules = power x kernel seconds + idle x the rest, one equation for each length:
least squares gives both powers. It is what a report of kdvfs can be held against where a kernel draws
more than the board's limit for some milliseconds. A board that goes on drawing power behind a run would
give shorter runs a higher power.
The GPU is loaded and read; its clocks, power limit and modes are never set.
"""
import random
import time

import numpy
import torch

from others import Counter

SECONDS = 5  # of each length
SCALES = (1, 1, 2, 4, 8, 4, 2, 8, 1)  # of waits; the first warms the board


def power_of(run):
    """Seconds of one run, its power, the idle power, by how much an equation is missed at most."""
    counter, waits = Counter(), random.Random(1)
    rows = []
    for scale in SCALES:
        busy, began, joules = [], time.time(), counter.joules()
        while time.time() - began < SECONDS:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            busy.append(start.elapsed_time(end) / 1e3)
            time.sleep(scale * waits.uniform(0.01, 0.03))
        rows.append((sum(busy), time.time() - began, counter.joules() - joules, len(busy)))
    table = numpy.array(rows[1:])
    system = numpy.stack([table[:, 0], table[:, 1] - table[:, 0]], 1)
    (watts, idle), _, _, _ = numpy.linalg.lstsq(system, table[:, 2], rcond=None)
    missed = numpy.abs(system @ (watts, idle) / table[:, 2] - 1).max()
    return table[:, 0].sum() / table[:, 3].sum(), watts, idle, missed


def main():
    model = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192) for _ in range(8))).cuda().half()
    half = model[:4]
    x = torch.randn(8192, 8192, device="cuda").half()

    @torch.inference_mode()
    def forwards(count):
        for _ in range(count):
            model(x)

    @torch.inference_mode()
    def half_a_forward():
        half(x)

    def with_backward():
        model(x).float().square().mean().backward()
        model.zero_grad()

    for name, run in (("half a forward", half_a_forward), ("a forward", lambda: forwards(1)),
                      ("two forwards", lambda: forwards(2)), ("four forwards", lambda: forwards(4)),
                      ("forward and backward", with_backward)):
        seconds, watts, idle, missed = power_of(run)
        print("%s: %.2f ms, %.0f W = %.2f J, idle %.0f W, residual at most %.1f %%" % (
            name, 1e3 * seconds, watts, watts * seconds, idle, 100 * missed), flush=True)


if __name__ == "__main__":
    main()
