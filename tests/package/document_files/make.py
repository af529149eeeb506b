# SPDX-License-Identifier: MIT
"""Files that the commands of the documents read, from the simulated GPU. `kdvfs` is found in the PATH."""

import json
import pathlib
import shutil
import subprocess

import kdvfs


def run(*arguments, ends_with=(0,)):
    done = subprocess.run(["kdvfs", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode not in ends_with:
        raise SystemExit(f"kdvfs {' '.join(arguments)} ended with {done.returncode}")


rows = ["gpu,kernel,core_mhz,mem_mhz,time_s,energy_j,count"]
for name, compute, memory, count in (("gemm", 4e-3, 1e-3, 24), ("bwd_softmax_36", 2e-4, 1.6e-3, 24), ("bwd_gelu_23", 1e-4, 5e-4, 24)):
    for core in (1700, 1400, 1100, 800):
        time = compute * 1700 / core + memory
        watts = 90 + 250 * (core / 1700) ** 2.5
        rows.append(f"simulated AMD Instinct MI210,{name},{core},auto,{time:.6g},{time * watts:.6g},{count}")
pathlib.Path("profile.csv").write_text("\n".join(rows) + "\n")
run("plan", "profile.csv", "--max-slowdown", "1%", "--format", "json", "-o", "plan.json")
cost = 'test -n "$KDVFS_PLAN" && j=90 || j=100; printf "time_s,energy_j\\n1,$j\\n" > "$KDVFS_COST"'
run("validate", "plan.json", "--format", "json", "-o", "kept.json", "--counter", "program", "--", "sh", "-c", cost,
    ends_with=(0, 3, 4, 5))
for name in ("report", "run", "before", "after"):
    with kdvfs.open_simulated("h100", meter_every=1, switch_latency=0) as gpu:
        for _ in range(50):
            gpu.next_iteration()
            with gpu.scope("attention"):
                gpu.launch(matrix_flops=4e13, memory_bytes=1e9)
        gpu.synchronize()
        pathlib.Path(name + ".json").write_text(json.dumps(gpu.report()))
pathlib.Path("kdvfs_tune").mkdir()
shutil.copy("profile.csv", "kdvfs_tune/profile.csv")
points = [[1400, 0.1, 30], [1000, 0.13, 25]]
pathlib.Path("case.json").write_text(json.dumps({
    "format": "pipeline-case-1", "schedule": "1f1b", "stages": 2, "microbatches": 4, "blocking_power_w": 50,
    "profiles": [{"stage": stage, "op": op, "points": points} for stage in range(2) for op in ("forward", "backward")],
}))
