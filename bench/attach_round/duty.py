# SPDX-License-Identifier: MIT
"""The power of one kernel in short runs between waits, from NVML's counter alone, without kdvfs.

The forwards of `others.py stage` run with waits of several lengths. Joules = power x kernel seconds +
idle x the rest, one equation for each length: least squares gives both powers. It is what a report of
kdvfs can be held against where a kernel draws more than the board's limit for some milliseconds.
The GPU is loaded and read; its clocks, power limit and modes are never set.
"""
import random
import time

import numpy
import torch

from others import Counter

SECONDS = 10  # of each length


def main():
    model = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192) for _ in range(8))).cuda().half()
    x = torch.randn(8192, 8192, device="cuda").half()
    counter, waits = Counter(), random.Random(1)
    rows = []
    with torch.inference_mode():
        for scale in (1, 1, 2, 4, 2, 4):
            busy, began, joules = [], time.time(), counter.joules()
            while time.time() - began < SECONDS:
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                model(x)
                end.record()
                torch.cuda.synchronize()
                busy.append(start.elapsed_time(end) / 1e3)
                time.sleep(scale * waits.uniform(0.005, 0.03))
            rows.append((sum(busy), time.time() - began, counter.joules() - joules))
            print("kernels %.3f s of %.3f s, %.1f J" % rows[-1], flush=True)
    rows = rows[1:]  # the first warms the board
    table = numpy.array(rows)
    system = numpy.stack([table[:, 0], table[:, 1] - table[:, 0]], 1)
    (kernel, idle), left, _, _ = numpy.linalg.lstsq(system, table[:, 2], rcond=None)
    print("kernel %.0f W, idle %.0f W, residual %.2f %%" % (
        kernel, idle, 100 * numpy.sqrt(left.sum() / len(rows)) / table[:, 2].mean()))


if __name__ == "__main__":
    main()
