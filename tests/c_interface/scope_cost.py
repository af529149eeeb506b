# SPDX-License-Identifier: MIT
"""What Python adds to a scope: beyond two bare ctypes calls in a `with`, in CPU time of the thread.

Prints a table; exit status 1 where a kind of scope adds more than 1 us, or allocates after the first.
The least of many interleaved rounds: other processes can only add to it.
"""

import ctypes
import sys
import time

import kdvfs
from kdvfs import _library

ROUNDS, TIMES, LIMIT_NS = 200, 200, 1000

gpu = kdvfs.open_simulated("h100", meter_every=1000000)
begin, end, handle = (
    _library.library.kdvfs_scope_begin,
    _library.library.kdvfs_scope_end,
    gpu._handle,
)


class Bare:
    __slots__ = ("memory",)

    def __init__(self):
        self.memory = ctypes.pointer(_library.ScopeMemory())

    def __enter__(self):
        begin(handle, 0, b"gemm", 0, self.memory)

    def __exit__(self, *_):
        end(self.memory)


def bare(times, made=Bare()):
    for _ in range(times):
        with made:
            pass


def kept(times, made=gpu.scope("gemm")):
    for _ in range(times):
        with made:
            pass


def by_name(times):
    for _ in range(times):
        with gpu.scope("gelu"):
            pass


def of_the_one_gpu(times):
    for _ in range(times):
        with kdvfs.scope("copy"):
            pass


def phase(times):
    for _ in range(times):
        with gpu.phase("forward"):
            pass


def main():
    kinds = (bare, kept, by_name, of_the_one_gpu, phase)
    least = dict.fromkeys(kinds, float("inf"))
    for _ in range(ROUNDS):
        for kind in kinds:
            start = time.thread_time_ns()
            kind(TIMES)
            least[kind] = min(least[kind], (time.thread_time_ns() - start) / TIMES)
            gpu.synchronize()
    failed = False
    print("scope            enter + leave  beyond bare  blocks of memory kept by 5000")
    for kind in kinds:
        before = sys.getallocatedblocks()
        kind(5000)
        blocks = sys.getallocatedblocks() - before
        beyond = least[kind] - least[bare]
        print(f"{kind.__name__:15} {least[kind]:10.0f} ns {beyond:9.0f} ns {blocks:6}")
        failed |= beyond > LIMIT_NS or blocks > 50
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
