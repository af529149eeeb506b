# SPDX-License-Identifier: MIT
"""waits_lp.py [FOLDER]

What a low clock in waits saves of GPT-3 175B at its shortest time (print_waits in
pipeline_frontier), by a linear program that shares no line with kdvfs: each operation of 1F1B has a
start and a time on the lower hull of its measured points, and waits draw one power. Needs CBC
(Debian: coinor-cbc).
"""
import json
import os
import subprocess
import sys
import tempfile


def lower_hull(points):
    """Of (time, energy): convex, up to the least energy."""
    hull = []
    for t, e in sorted(points):
        while hull and t == hull[-1][0] and e <= hull[-1][1]:
            hull.pop()
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (t - hull[-2][0]) >= (
            e - hull[-2][1]
        ) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        if not hull or e < hull[-1][1]:
            hull.append((t, e))
    return hull


def stage_order(stage, stages, microbatches):
    warm_up = min(stages - 1 - stage, microbatches)
    order = [("forward", m) for m in range(warm_up)]
    for m in range(warm_up, microbatches):
        order += [("forward", m), ("backward", m - warm_up)]
    return order + [("backward", m) for m in range(microbatches - warm_up, microbatches)]


def operations(stages, microbatches):
    """In an order in which each comes behind what it waits for."""
    before, done, found = {}, set(), []
    for s in range(stages):
        last = None
        for kind, m in stage_order(s, stages, microbatches):
            waits = [last] if last else []
            if kind == "forward" and s > 0:
                waits.append((s - 1, "forward", m))
            if kind == "backward":
                waits.append((s + 1, "backward", m) if s + 1 < stages else (s, "forward", m))
            last = (s, kind, m)
            before[last] = waits
    while len(done) < len(before):
        for op, waits in before.items():
            if op not in done and all(w in done for w in waits):
                done.add(op)
                found.append((op, waits))
    return found


def least_energy(points, stages, microbatches, watts):
    """Of all stages, at the shortest time; watts while one waits."""
    curves = {
        key: lower_hull([(t, e - watts * t) for t, e in its]) for key, its in points.items()
    }
    ops = operations(stages, microbatches)
    ends = {}
    for op, waits in ops:
        ends[op] = max([ends[w] for w in waits], default=0) + curves[op[:2]][0][0]
    time = max(ends.values())
    names = {op: f"s{i}" for i, (op, _) in enumerate(ops)}
    constant = stages * watts * time
    objective, rows, bounds = [], [], []
    length = {}
    for i, (op, _) in enumerate(ops):
        curve = curves[op[:2]]
        constant += curve[0][1]
        length[op] = []
        for j in range(1, len(curve)):
            step = curve[j][0] - curve[j - 1][0]
            objective.append(f"{(curve[j][1] - curve[j - 1][1]) / step:+.12g} x{i}_{j}")
            bounds.append(f"0 <= x{i}_{j} <= {step:.12g}")
            length[op].append(f"x{i}_{j}")
    for op, waits in ops:
        for w in waits:
            taken = "".join(f" - {x}" for x in length[w])
            rows.append(f"{names[op]} - {names[w]}{taken} >= {curves[w[:2]][0][0]:.12g}")
        taken = "".join(f" + {x}" for x in length[op])
        rows.append(f"{names[op]}{taken} <= {time * (1 + 1e-9) - curves[op[:2]][0][0]:.12g}")
    with tempfile.TemporaryDirectory() as folder:
        model, answer = os.path.join(folder, "waits.lp"), os.path.join(folder, "answer")
        with open(model, "w") as out:
            out.write("Minimize\n obj: " + "\n ".join(objective) + "\nSubject To\n")
            out.writelines(f" r{i}: {row}\n" for i, row in enumerate(rows))
            out.write("Bounds\n " + "\n ".join(bounds) + "\nEnd\n")
        subprocess.run(
            ["cbc", model, "solve", "solu", answer], check=True, stdout=subprocess.DEVNULL
        )
        with open(answer) as lines:
            head = lines.readline().split()
    assert head[0] == "Optimal", head
    return time, constant + float(head[-1])


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "../shared/data/perseus"
    with open(os.path.join(folder, "gpt3_175b_a100.json")) as file:
        case = json.load(file)
    points = {
        (p["stage"], p["op"]): [(t, e) for _, t, e in p["points"]] for p in case["profiles"]
    }
    for microbatches in (12, 24, 48, 96):
        time, before = least_energy(points, case["stages"], microbatches, case["blocking_power_w"])
        _, after = least_energy(points, case["stages"], microbatches, 61)
        print(
            f"GPT-3 175B, {microbatches} microbatches, {time:.4f} s: {before:.2f} J, waits at 61 W "
            f"{100 * (after / before - 1):+.3f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
