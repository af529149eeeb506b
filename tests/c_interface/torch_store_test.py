# SPDX-License-Identifier: MIT
"""Ranks through the store of a real torch.distributed, by processes with the variables that torchrun sets.

`group`: after init_process_group; `agent`: on the store of torchrun's agent, which this program stands in for. Both
print how long a plan takes beyond the same bytes through the store alone. `killed`: a rank that is killed is named;
`slow`: a slow one is waited for. Skipped without PyTorch. KDVFS_SOAK=1: 8 processes, in all four ways.
"""

import datetime
import os
import signal
import socket
import statistics
import subprocess
import sys
import time

try:
    import torch.distributed as distributed
except ImportError as error:
    debians = "/usr/bin/python3"  # python3-torch is of Debian's Python alone
    if sys.executable != debians and os.path.exists(debians):
        os.execv(debians, [debians, *sys.argv])
    print(f"skipped: {error}")
    sys.exit(77)

import kdvfs

SOAK = "KDVFS_SOAK" in os.environ
SIZE = 8 if SOAK else 3
STEPS = 20
PLAN = "x" * 100_000


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def parent(mode):
    port = free_port()
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(SIZE),
                   "OMP_NUM_THREADS": "1"}
    if mode == "agent":
        environment["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        kept = distributed.TCPStore("127.0.0.1", port, None, True)  # noqa: F841 - serves while it lives
    runs = [subprocess.Popen([sys.executable, __file__, mode], env={**environment, "RANK": str(rank)},
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(SIZE)]
    for rank, run in enumerate(runs):
        said = run.communicate(timeout=120)[0].strip()
        print(f"{mode} {rank}: {said}")
        if mode == "killed" and rank == 2:
            assert run.returncode == -signal.SIGKILL, run.returncode
            continue
        assert run.returncode == 0, (mode, rank, said)
        assert mode != "killed" or "rank 2 sent nothing" in said, said


def with_kdvfs(ranks, step):
    got = ranks.gather([ranks.rank, step])
    assert got == ([[each, step] for each in range(SIZE)] if ranks.rank == 0 else None), got
    assert ranks.broadcast(PLAN if ranks.rank == 0 else None) == PLAN


def alone(store, rank, step):
    """What the store takes for the same: a value from each rank to rank 0, and the plan to all."""
    if rank != 0:
        store.set(f"alone/{step}/{rank}", f"[{rank}, {step}]")
    else:
        keys = [f"alone/{step}/{each}" for each in range(1, SIZE)]
        store.wait(keys, datetime.timedelta(seconds=60))
        for key in keys:
            store.get(key)
        store.set(f"alone/{step}/plan", PLAN)
    store.wait([f"alone/{step}/plan"], datetime.timedelta(seconds=60))
    assert len(store.get(f"alone/{step}/plan")) == len(PLAN)


def timed(work):
    took = []
    for step in range(STEPS):
        begin = time.monotonic()
        work(step)
        took.append(time.monotonic() - begin)
    return statistics.median(took)


def child(mode):
    rank = int(os.environ["RANK"])
    if mode != "agent":
        distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    deadline = {"killed": 2, "slow": 6}.get(mode, 60)
    ranks = kdvfs.Ranks(timeout=deadline)
    ranks.barrier()
    if mode == "killed":
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        begin = time.monotonic()
        try:
            ranks.all_gather(1)
        except kdvfs.Error as error:
            print(f"after {time.monotonic() - begin:.2f} s of {deadline}: {error}", flush=True)
        assert time.monotonic() - begin < 1.25 * deadline
    elif mode == "slow":
        time.sleep(2.5 if rank == 1 else 0)
        assert ranks.all_gather(rank) == list(range(SIZE))
        print("waited for rank 1", flush=True)
    else:
        took = timed(lambda step: with_kdvfs(ranks, step))
        ranks.barrier()
        own = timed(lambda step: alone(ranks._store, rank, step))
        print(f"gather and plan of 100 kB in {1e3 * took:.1f} ms, through the store alone in {1e3 * own:.1f} ms",
              flush=True)
        assert took - own < 0.1, (took, own)
        ranks.barrier()
    time.sleep(1 if rank == 0 else 0)  # rank 0 has the store
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1])
    for each in ("group", "agent", "killed", "slow") if SOAK else ("group", "killed"):
        parent(each)
