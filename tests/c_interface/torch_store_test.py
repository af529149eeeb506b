# SPDX-License-Identifier: MIT
"""Ranks through the store of a real torch.distributed, by processes with the variables that torchrun sets.

`group`: after init_process_group; `agent`: on the store of torchrun's agent, which this program stands in for;
`dead`: a rank that ends is named. Skipped without PyTorch.
"""

import datetime
import os
import socket
import statistics
import subprocess
import sys
import time

try:
    import torch.distributed as distributed
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import kdvfs

SIZE = 4


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def parent(mode):
    port = free_port()
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(SIZE)}
    if mode == "agent":
        environment["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        kept = distributed.TCPStore("127.0.0.1", port, None, True)  # noqa: F841 - serves while it lives
    runs = [subprocess.Popen([sys.executable, __file__, mode], env={**environment, "RANK": str(rank)},
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(SIZE)]
    for rank, run in enumerate(runs):
        said = run.communicate(timeout=120)[0].strip()
        print(f"{mode} {rank}: {said}")
        assert run.returncode == 0, (mode, rank, said)
        assert mode != "dead" or rank == 2 or "rank 2 sent nothing" in said, said


def child(mode):
    rank = int(os.environ["RANK"])
    if mode != "agent":
        distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    ranks = kdvfs.Ranks(timeout=2 if mode == "dead" else 60)
    ranks.barrier()
    if mode == "dead":
        try:
            if rank != 2:
                ranks.all_gather(1)
        except kdvfs.Error as error:
            print(error, flush=True)
        time.sleep(1 if rank == 0 else 0)  # rank 0 has the store
        os._exit(0)
    plan, took = "x" * 100_000, []
    for step in range(20):
        begin = time.monotonic()
        got = ranks.gather([rank, step])
        assert got == ([[each, step] for each in range(SIZE)] if rank == 0 else None), got
        assert ranks.broadcast(plan if rank == 0 else None) == plan
        took.append(time.monotonic() - begin)
    ranks.barrier()
    print(f"gather and plan of 100 kB in {1e3 * statistics.median(took):.1f} ms", flush=True)
    time.sleep(0.5 if rank == 0 else 0)
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1])
    for each in ("group", "agent", "dead"):
        parent(each)
