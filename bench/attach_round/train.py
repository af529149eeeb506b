# SPDX-License-Identifier: MIT
"""A GPT training step in PyTorch, as anybody would write it: 8 layers of 2048, batch 8 x 1024, bf16.

It knows nothing of kdvfs but for --toggle, which compares: then the attached library's metering is
switched between blocks of steps, and the GPU's time and core cycles of each block are kept.
"""
import argparse
import ctypes
import json
import os
import sys
import time

if "--deterministic" in sys.argv:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as functional
from torch import nn

import transformer


class Names:
    """Ranges, where they are asked for."""

    def __init__(self, kinds):
        self.kinds = kinds

    def __call__(self, kind, name):
        if kind not in self.kinds:
            return _Nothing()
        return torch.cuda.nvtx.range(name)


class _Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class NamedLayer(transformer.Layer):
    def __init__(self, width, heads, names):
        super().__init__(width, heads)
        self.names = names

    def forward(self, x):
        with self.names("layers", "attention"):
            q, k, v = self.queries_keys_values(x)
            mixed = functional.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
            x = self.add_attention(x, mixed)
        with self.names("layers", "mlp"):
            return self.add_mlp(x)


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, length, names):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(NamedLayer(width, heads, names) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--ranges", default="", help="of: step,phases,layers")
    parser.add_argument("--graph", action="store_true", help="the step as one CUDA graph")
    parser.add_argument("--compile", action="store_true",
                        help='the model by torch.compile(mode="reduce-overhead")')
    parser.add_argument("--profile", default="", choices=["", "within", "first"],
                        help="torch.profiler in the middle third of the steps; first: also before "
                             "CUDA is initialised")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--toggle", type=float, default=0,
                        help="seconds of rounds there and back through the ways of metering")
    parser.add_argument("--modes", default="-1,0,16,1", help="of kdvfs_attach_meter; bare first")
    parser.add_argument("--block", type=int, default=8, help="steps of a block")
    parser.add_argument("--bitwise", action="store_true",
                        help="the same training three times: twice bare, once metered")
    parser.add_argument("--out", default="")
    options = parser.parse_args()

    if options.deterministic:
        torch.use_deterministic_algorithms(True)
    names = Names(options.ranges.split(","))
    if options.profile == "first":  # before CUDA, and so before the attached library
        profiled_first = Profile()
        torch.randn(64, 64, device="cuda") @ torch.randn(64, 64, device="cuda")
        print("profiled first: %d kernels" % profiled_first.stop())
    library = None
    if os.environ.get("CUDA_INJECTION64_PATH"):
        library = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])
    if options.bitwise:
        losses = []
        torch.zeros(1, device="cuda")
        for metering in (-1, -1, 1):
            if library.kdvfs_attach_meter(metering) != 0:
                sys.exit("kdvfs_attach_meter(%d) failed" % metering)
            losses.append(train(options, names, None)["losses"])
        print(json.dumps({"bare_runs_equal": losses[0] == losses[1],
                          "attached_equals_bare": losses[2] == losses[0],
                          "losses": losses[0]}))
        return
    result = train(options, names, library)
    if library is not None:
        launches, records = ctypes.c_uint64(), ctypes.c_uint64()
        library.kdvfs_attach_counts(ctypes.byref(launches), ctypes.byref(records))
        result["kernel_launches"], result["kernel_records"] = launches.value, records.value
    text = json.dumps(result)
    if options.out:
        with open(options.out, "w") as file:
            file.write(text)
    else:
        print(text)


class Profile:
    """torch.profiler, as its users start it."""

    def __init__(self):
        self.profiler = torch.profiler.profile(activities=[
            torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA])
        self.profiler.start()

    def stop(self):
        """How many kernels it has."""
        torch.cuda.synchronize()
        self.profiler.stop()
        cuda = torch.autograd.DeviceType.CUDA
        return sum(event.device_type == cuda and not event.name.startswith(("Memcpy", "Memset"))
                   for event in self.profiler.events())


def profiled_thirds(options, run, losses):
    """Steps before, beside and after torch.profiler: ms a step of each third, and its kernels."""
    thirds, kernels = [], 0
    for third in range(3):
        profile = Profile() if third == 1 else None
        began = time.perf_counter()
        for _ in range(options.steps // 3):
            losses.append(run().detach().clone())
        torch.cuda.synchronize()
        thirds.append(1e3 * (time.perf_counter() - began) / (options.steps // 3))
        if profile is not None:
            kernels = profile.stop()
        time.sleep(2.5)  # what the attached library notices, it notices within a second
    return thirds, kernels


def toggle(options, library, run):
    """Rounds of blocks: [mode, seconds a step, core cycles a step or null], and of single steps that
    an idle GPU waits for: [mode, seconds until all is enqueued]."""
    place = Place()
    place.mark()

    def switch(mode):
        torch.cuda.synchronize()
        if library.kdvfs_attach_meter(mode) != 0:
            sys.exit("kdvfs_attach_meter(%d) failed" % mode)
        run()

    def block(mode):
        switch(mode)
        begin = place.mark()  # behind the first step: the host is ahead, as in training
        for _ in range(options.block):
            run()
        end = place.mark()
        torch.cuda.synchronize()
        return [mode, *place.between(begin, end, options.block)]

    def issue(mode):
        switch(mode)
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        return [mode, time.perf_counter() - began]

    def rounds_of(measure, seconds):
        # There and back, so that a steady drift meets all alike, beginning elsewhere each time.
        rounds = []
        modes = [int(mode) for mode in options.modes.split(",")]
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            first = len(rounds) % len(modes)
            order = modes[first:] + modes[:first]
            rounds.append([measure(mode) for mode in order + order[::-1]])
        return rounds

    for mode in options.modes.split(","):  # what only the first of each has to do
        block(int(mode))
    return rounds_of(block, options.toggle), rounds_of(issue, options.toggle / 10)


class Place:
    """Places in the stream: when the GPU gets there, and how many core cycles it has counted."""

    def __init__(self):
        self.kernel = None
        try:
            import cycles
            self.kernel = cycles.store
            self.kernel[(1,)](torch.zeros(2, dtype=torch.int64, device="cuda"), num_warps=1)
            torch.cuda.synchronize()
        except Exception as error:  # times alone, then
            print("no core cycles: %r" % error, file=sys.stderr)

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        counted = torch.zeros(2, dtype=torch.int64, device="cuda")
        event.record()
        if self.kernel is not None:
            self.kernel[(1,)](counted, num_warps=1)
        return event, counted

    def between(self, begin, end, steps):
        """Seconds and core cycles a step; null where another multiprocessor counted."""
        seconds = begin[0].elapsed_time(end[0]) * 1e-3 / steps
        first, last = begin[1].tolist(), end[1].tolist()
        if self.kernel is None or first[1] != last[1]:
            return seconds, None
        return seconds, (last[0] - first[0]) / steps


def train(options, names, library):
    torch.manual_seed(1)
    model = Gpt(options.layers, options.width, options.width // 128, options.vocabulary,
                options.length, names).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=not options.deterministic,
                                  capturable=options.graph)
    text = torch.randint(options.vocabulary, (options.batch, options.length + 1), device="cuda")
    if options.compile:
        model = torch.compile(model, mode="reduce-overhead")

    def step():
        if options.compile:
            torch.compiler.cudagraph_mark_step_begin()
        with names("step", "step"):
            with names("phases", "forward"):
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    logits = model(text[:, :-1])
                    loss = functional.cross_entropy(
                        logits.reshape(-1, options.vocabulary).float(), text[:, 1:].reshape(-1))
            with names("phases", "backward"):
                loss.backward()
            with names("phases", "optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=not options.graph)
        return loss

    run = step
    if options.graph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = step()

        def run():
            graph.replay()
            return kept

    losses = []
    for _ in range(5):
        losses.append(run().detach().clone())
    torch.cuda.synchronize()
    result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}

    if options.profile:
        result["ms_per_step"], result["profiled_kernels"] = profiled_thirds(options, run, losses)
        result["losses"] = [loss.item() for loss in losses]
    elif options.toggle:
        result["block"] = options.block
        result["toggled"], result["issued"] = toggle(options, library, run)
        if library.kdvfs_attach_meter(1) != 0:
            sys.exit("kdvfs_attach_meter(1) failed")
    else:
        began = time.perf_counter()
        for _ in range(options.steps):
            losses.append(run().detach().clone())
        torch.cuda.synchronize()
        result["ms_per_step"] = 1e3 * (time.perf_counter() - began) / options.steps
        result["losses"] = [loss.item() for loss in losses]
    return result


main()
