# SPDX-License-Identifier: MIT
"""What a launch costs the host: alone, with CUPTI's callbacks, with its records, and under kdvfs.

    python3 host_cost.py                                    # CUPTI alone
    kdvfs run --report x.json -- python3 host_cost.py       # kdvfs, its metering switched

A program of small kernels, so that the host is what it waits for. Blocks of 400 launches, the ways
in another order in each round; prints the median time of a launch and the median difference to the
block without anything in the same round, in microseconds.
"""
import ctypes
import glob
import os
import random
import statistics
import sys
import time

import torch

ROUNDS, LAUNCHES = 60, 400


def cupti_file():
    import nvidia
    for folder in nvidia.__path__:
        found = glob.glob(os.path.join(folder, "**", "libcupti.so.1[0-9]"), recursive=True)
        if found:
            return found[0]
    return "libcupti.so.13"


class Cupti:
    """Ways of using CUPTI that do nothing with what it tells."""

    wanted_type = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t),
                                   ctypes.POINTER(ctypes.c_size_t))
    done_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t,
                                 ctypes.c_size_t)

    def __init__(self):
        self.library = ctypes.CDLL(cupti_file())
        self.buffers = [ctypes.create_string_buffer(1 << 20) for _ in range(256)]
        self.next = 0

        def wanted(buffer, size, most):
            buffer[0] = ctypes.addressof(self.buffers[self.next % len(self.buffers)])
            size[0], most[0] = 1 << 20, 0
            self.next += 1

        self.kept = self.wanted_type(wanted), self.done_type(lambda *_: None)
        subscriber = ctypes.c_void_p()
        nothing = ctypes.CDLL(None).getpagesize  # a function that looks at no argument
        assert self.library.cuptiSubscribe(ctypes.byref(subscriber), nothing, None) == 0
        self.subscriber = subscriber
        assert self.library.cuptiActivityRegisterCallbacks(*self.kept) == 0

    def callbacks(self, on):
        for call in (307, 652):  # cuLaunchKernel, cuLaunchKernelEx
            self.library.cuptiEnableCallback(int(on), self.subscriber, 1, call)

    def records(self, on):
        for kind in (10, 1, 2):
            (self.library.cuptiActivityEnable if on else self.library.cuptiActivityDisable)(kind)

    def ways(self):
        return {
            "nothing": lambda: (self.callbacks(False), self.records(False)),
            "callbacks": lambda: (self.callbacks(True), self.records(False)),
            "records": lambda: (self.callbacks(False), self.records(True)),
            "callbacks and records": lambda: (self.callbacks(True), self.records(True)),
        }


def ways():
    try:
        meter = ctypes.CDLL(os.environ.get("CUDA_INJECTION64_PATH", "-")).kdvfs_attach_meter
    except (OSError, AttributeError):
        return Cupti().ways()
    return {"nothing": lambda: meter(-1), "callbacks alone": lambda: meter(0),
            "1 iteration in 16": lambda: meter(16), "all iterations": lambda: meter(1)}


def main():
    x = torch.zeros(64, device="cuda")
    y = torch.ones(64, device="cuda")
    for _ in range(3000):
        torch.add(x, y, out=x)
        torch.mul(x, y, out=x)
    torch.cuda.synchronize()
    times = {}
    names = ways()
    for _ in range(ROUNDS):
        order = list(names)
        random.shuffle(order)
        for name in order:
            torch.cuda.synchronize()
            names[name]()
            time.sleep(0.005)
            for timed in (False, True):
                began = time.perf_counter()
                for _ in range(LAUNCHES // 2):
                    torch.add(x, y, out=x)
                    torch.mul(x, y, out=x)
                ended = time.perf_counter()
                torch.cuda.synchronize()
                if timed:
                    times.setdefault(name, []).append((ended - began) / LAUNCHES * 1e6)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "processors", os.cpu_count())
    for name, values in times.items():
        more = [value - bare for value, bare in zip(values, times["nothing"])]
        print("%-24s %7.2f us a launch, %+6.2f" % (name, statistics.median(values), statistics.median(more)))
    sys.stdout.flush()


main()
