# SPDX-License-Identifier: MIT
"""Programs of frameworks that kdvfs was not made on, unmodified, on a real NVIDIA GPU.

    others.py all FOLDER [NAME...]   each program alone, then under `kdvfs run`; prints a table
    others.py NAME                   one program

Needs the command `kdvfs` (or KDVFS_COMMAND) and the framework of each program; a program that does not
start is listed as such. The GPU is loaded and read; its clocks, power limit and modes are never set.
The outside meter is NVML's energy counter, read by the program itself before its first and after its
last measured step. The table compares with it what kdvfs reports: mean power of an iteration, time of
an iteration in steps, and how much slower the program was.

    WARM_UP   seconds before, 20 by default;  MEASURED  seconds of measured steps, 16
"""
import ctypes
import glob
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

WARM_UP = float(os.environ.get("WARM_UP", "20"))  # s; by then kdvfs knows what its records cost
MEASURED = float(os.environ.get("MEASURED", "16"))


class Counter:
    """The board's joules since the driver was loaded."""

    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        assert self.nvml.nvmlInit_v2() == 0
        assert self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)) == 0

    def joules(self):
        millijoules = ctypes.c_ulonglong()
        assert self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(millijoules)) == 0
        return millijoules.value / 1000


class Watch:
    """Told of each step; says when to stop, and prints what was measured between."""

    def __init__(self, wait):
        self.wait, self.counter = wait, Counter()
        self.began, self.steps, self.first = time.time(), 0, None

    def step(self):
        now = time.time()
        if self.first is None and now - self.began > WARM_UP and self.steps >= 3:
            self.wait()
            self.first, self.steps = (time.time(), self.counter.joules()), -1
        self.steps += 1
        if self.first is None or now - self.first[0] < MEASURED:
            return True
        self.wait()
        print(json.dumps({"steps": self.steps, "seconds": time.time() - self.first[0],
                          "joules": self.counter.joules() - self.first[1]}), flush=True)
        return False


def repeat(step, wait):
    watch = Watch(wait)
    while watch.step():
        step()


def jax_transformer():
    """A step under jax.jit: XLA's own kernels and command buffers."""
    import jax
    import jax.numpy as jnp
    import optax
    keys = iter(jax.random.split(jax.random.key(1), 64))
    width, layers = 1536, 6

    def made(*shape):
        return jax.random.normal(next(keys), shape, jnp.bfloat16) * 0.02

    weights = [(made(width, 3 * width), made(width, width), made(width, 4 * width), made(4 * width, width))
               for _ in range(layers)]
    optimizer = optax.adamw(1e-4)
    state = optimizer.init(weights)
    x = made(8, 1024, width)

    def loss(weights):
        y = x
        for qkv, out, up, down in weights:
            q, k, v = (part.reshape(8, 1024, 12, 128) for part in jnp.split(y @ qkv, 3, -1))
            y = y + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(y.shape) @ out
            y = y + jax.nn.gelu(y @ up) @ down
        return jnp.mean(jnp.square(y.astype(jnp.float32)))

    @jax.jit
    def step(weights, state):
        gradient = jax.grad(loss)(weights)
        change, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state

    kept = [weights, state]

    def one():
        kept[:] = step(*kept)
        jax.block_until_ready(kept[0][0][0])

    repeat(one, lambda: jax.block_until_ready(kept))


def cupy_solver():
    """Conjugate gradients on a sparse matrix; the host reads the residual in each iteration."""
    import cupy
    import cupyx.scipy.sparse as sparse
    n = 160 ** 3
    matrix = sparse.diags([6.1, -1, -1, -1, -1, -1, -1], [0, 1, -1, 160, -160, 25600, -25600],
                          shape=(n, n), format="csr", dtype="float64")
    b = cupy.random.rand(n)
    x, r = cupy.zeros(n), b.copy()
    p, rr = r.copy(), float(r @ r)
    state = [x, r, p, rr]

    def step():
        x, r, p, rr = state
        q = matrix @ p
        alpha = rr / float(p @ q)
        x += alpha * p
        r -= alpha * q
        new = float(r @ r)
        state[2:] = [r + new / rr * p, new]
        if new < 1e-12:
            state[:] = [cupy.zeros(n), b.copy(), b.copy(), float(b @ b)]

    repeat(step, cupy.cuda.Device().synchronize)


def numba_heat():
    """A stencil in Numba, kernels of its own compiler through the driver's interface."""
    import math
    import numpy
    from numba import cuda

    @cuda.jit
    def heat(a, b):
        i, j = cuda.grid(2)
        if 0 < i < a.shape[0] - 1 and 0 < j < a.shape[1] - 1:
            b[i, j] = a[i, j] + 0.2 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1] - 4 * a[i, j])

    @cuda.jit
    def source(a):
        i, j = cuda.grid(2)
        if i < a.shape[0] and j < a.shape[1]:
            a[i, j] += 1e-3 * math.exp(math.sin(a[i, j])) * math.cos(i * 0.01)

    a = cuda.to_device(numpy.random.rand(8192, 8192))
    b = cuda.to_device(numpy.zeros((8192, 8192)))
    grid, block = (512, 512), (16, 16)

    def step():
        heat[grid, block](a, b)
        source[grid, block](b)
        heat[grid, block](b, a)
        cuda.synchronize()

    repeat(step, cuda.synchronize)


def torch_wait():
    import torch
    torch.cuda.synchronize()


def trainer():
    """Hugging Face's Trainer: accumulation of 4, an evaluation and a checkpoint now and then."""
    import torch
    import transformers
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=8, n_embd=1024, n_head=16))

    class Tokens(torch.utils.data.Dataset):
        def __len__(self):
            return 100000

        def __getitem__(self, i):
            tokens = torch.arange(512) * (i + 7) % 50000
            return {"input_ids": tokens, "labels": tokens}

    watch = Watch(torch_wait)

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, arguments, state, control, **_):
            control.should_training_stop = not watch.step()

    with tempfile.TemporaryDirectory() as folder:
        transformers.Trainer(
            model=model, train_dataset=Tokens(),
            eval_dataset=torch.utils.data.Subset(Tokens(), range(64)), callbacks=[Stop()],
            args=transformers.TrainingArguments(
                folder, per_device_train_batch_size=8, gradient_accumulation_steps=4, bf16=True,
                max_steps=100000, eval_strategy="steps", eval_steps=20, save_steps=60,
                save_total_limit=1, report_to=[], disable_tqdm=True, logging_steps=10000)).train()


def resnet():
    """timm's ResNet-50, autocast, batches copied by a second stream while the first computes."""
    import timm
    import torch
    model = timm.create_model("resnet50").cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    scaler = torch.amp.GradScaler()
    pinned = torch.randint(255, (128, 3, 224, 224), dtype=torch.uint8).pin_memory()
    labels = torch.randint(1000, (128,)).cuda()
    side = torch.cuda.Stream()
    following = []

    def fetch():
        with torch.cuda.stream(side):
            batch = pinned.cuda(non_blocking=True).float().div_(255)
            following[:] = [batch.to(memory_format=torch.channels_last)]

    def step():
        torch.cuda.current_stream().wait_stream(side)
        batch = following[0]
        batch.record_stream(torch.cuda.current_stream())
        fetch()
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    fetch()
    repeat(step, torch_wait)


def graphs():
    """torch_geometric: a graph of another size in each step."""
    import torch
    from torch_geometric.nn import GraphSAGE
    model = GraphSAGE(128, 512, 4, 128).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    generator = torch.Generator().manual_seed(1)

    def step():
        nodes = int(torch.randint(20000, 120000, (1,), generator=generator))
        edges = torch.randint(nodes, (2, nodes * 8), device="cuda")
        x = torch.randn(nodes, 128, device="cuda")
        optimizer.zero_grad()
        (model(x, edges) - x).square().mean().backward()
        optimizer.step()

    repeat(step, torch_wait)


def generate():
    """Hugging Face's generate(), prompts of random lengths, sampled."""
    import torch
    import transformers
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=8, hidden_size=2048, intermediate_size=5632, num_attention_heads=16,
        num_key_value_heads=16)).cuda().bfloat16().eval()
    generator = torch.Generator().manual_seed(1)

    def step():
        length = int(torch.randint(32, 512, (1,), generator=generator))
        prompt = torch.randint(32000, (16, length), device="cuda")
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=48,
                       min_new_tokens=48, do_sample=True, pad_token_id=0)

    repeat(step, torch_wait)


def threads():
    """Four threads of one process, each with its own stream and model: a server."""
    import torch
    models = [torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8))).cuda().half()
              for _ in range(4)]
    x = torch.randn(512, 4096, device="cuda").half()
    done = threading.Event()

    def serve(model):
        stream = torch.cuda.Stream()
        with torch.inference_mode(), torch.cuda.stream(stream):
            while not done.is_set():
                for _ in range(20):
                    model(x)
                stream.synchronize()

    others = [threading.Thread(target=serve, args=(model,)) for model in models[1:]]
    for thread in others:
        thread.start()

    def step():
        with torch.inference_mode():
            for _ in range(20):
                models[0](x)
        torch.cuda.current_stream().synchronize()

    repeat(step, torch_wait)
    done.set()
    for thread in others:
        thread.join()


def stage():
    """A pipeline's stage: forwards and backwards of some milliseconds, and waits for neighbours."""
    import random
    import torch
    model = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192) for _ in range(8))).cuda().half()
    x = torch.randn(8192, 8192, device="cuda").half()
    waits = random.Random(1)

    def step():
        losses = []
        for _ in range(4):
            losses.append(model(x).float().square().mean())
            torch.cuda.synchronize()
            time.sleep(waits.uniform(0.005, 0.03))
        for loss in losses:
            loss.backward()
            torch.cuda.synchronize()
            time.sleep(waits.uniform(0.002, 0.02))
        model.zero_grad()

    repeat(step, torch_wait)


def trained_by(rank, port):
    import torch
    from torch import distributed
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.cuda.set_device(0)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(6))).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(8192, 2048, device="cuda")
    watch = Watch(torch_wait)
    more = torch.ones(1)
    while more.item():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        more.fill_(1.0 if rank or watch.step() else 0.0)
        distributed.broadcast(more, 0)


def two_ranks():
    """Two processes train on one GPU: neither may claim the board's joules."""
    import torch
    torch.multiprocessing.spawn(trained_by, args=(29517,), nprocs=2)


PROGRAMS = [jax_transformer, cupy_solver, numba_heat, trainer, resnet, graphs, generate, threads, stage,
            two_ranks]


def run(command, log):
    """What the program printed, or its last line."""
    with open(log, "w") as file:
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    with open(log) as file:
        lines = file.read().splitlines()
    for line in lines:
        if line.startswith('{"steps"') and status == 0:
            return json.loads(line)
    return "exit status %d: %s" % (status, lines[-1] if lines else "")


def iterations_of(folder, name):
    """One text for each process with a GPU, and its notes."""
    for path in sorted(glob.glob(os.path.join(folder, name + ".*json"))):
        with open(path) as file:
            text = json.load(file)
        for process in text.get("processes", [text]):
            for device in process.get("devices", []):
                yield device, process


def compare(folder, name):
    script = os.path.abspath(__file__)
    program = [sys.executable, script, name]
    alone = run(program, os.path.join(folder, name + ".alone.log"))
    under = run([os.environ.get("KDVFS_COMMAND", "kdvfs"), "run", "--report",
                 os.path.join(folder, name + ".%p.json"), "--"] + program,
                os.path.join(folder, name + ".log"))
    if isinstance(alone, str) or isinstance(under, str):
        print("%s: alone: %s; under kdvfs: %s" % (name, alone, under))
        return
    step = [result["seconds"] / result["steps"] for result in (alone, under)]
    print("%s: a step %.3f ms alone, %.3f ms under kdvfs (%+.2f %%); NVML %.1f W alone, %.1f W" % (
        name, step[0] * 1e3, step[1] * 1e3, 100 * (step[1] / step[0] - 1),
        alone["joules"] / alone["seconds"], under["joules"] / under["seconds"]))
    for device, process in iterations_of(folder, name):
        report = device["report"]
        rows = report["rows"]
        seconds = sum(row["time_s"] for row in rows)
        resolved = sum(row["time_s"] for row in rows if row["energy"]["status"] == "resolved")
        print("  %d launches, %d iterations, %d rows, kernels %.2f s, %.0f %% of it resolved; %s" % (
            device["launches"], device["iterations"]["count"], len(rows), seconds,
            100 * resolved / seconds if seconds else 0,
            "counter %.1f J, unexplained %.1f J" % (
                report["totals"]["counter_j"], report["totals"]["unexplained_j"])))
        for level in report.get("levels", []):
            each, runs = level["energy_per_run"], max(level["runs"], 1)
            time_s, label = level["time_s"] / runs, level.get("kernel") or level["level"]
            if each["status"] == "resolved" and time_s > 0:
                print("  level %s: %d x %.2f J +- %.2f in %.3f ms (%.2f steps), %.1f W" % (
                    label, runs, each["joules"], each["half_width_95"], time_s * 1e3,
                    time_s / step[1], each["joules"] / time_s))
            else:
                print("  level %s: %d x %.3f ms, %s" % (label, runs, time_s * 1e3, each["status"]))
        for row in sorted(rows, key=lambda row: -row["time_s"])[:5]:
            energy = row["energy"]
            print("    %-60s %7d calls %8.3f s  %s" % (
                row["kernel"][:60], row["calls"], row["counted_time_s"],
                "%.1f +- %.1f J, %.0f W" % (energy["joules"], energy["half_width_95"],
                                            energy["joules"] / row["counted_time_s"])
                if energy["status"] == "resolved" else energy["status"]))
        for note in report.get("notes", []) + process.get("notes", []):
            print("  note:", note[:300])


def main():
    by_name = {program.__name__: program for program in PROGRAMS}
    if len(sys.argv) == 2 and sys.argv[1] in by_name:
        by_name[sys.argv[1]]()
    elif len(sys.argv) > 2 and sys.argv[1] == "all":
        os.makedirs(sys.argv[2], exist_ok=True)
        for name in sys.argv[3:] or by_name:
            compare(sys.argv[2], name)
            sys.stdout.flush()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
