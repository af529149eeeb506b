# SPDX-License-Identifier: MIT
"""What a round says, in the terms of its table. `summary.py OUTPUT_FOLDER`"""
import glob
import json
import math
import os
import statistics
import sys

out = sys.argv[1]


def printed(part):
    """The JSON line that a part's program printed; nothing where it printed none."""
    try:
        with open(os.path.join(out, part + ".log")) as file:
            lines = [line for line in file if line.startswith("{")]
    except OSError:
        return None
    return json.loads(lines[-1]) if lines else None


def device(part):
    for path in glob.glob(os.path.join(out, part, "attached.*.json")):
        with open(path) as file:
            process = json.load(file)
        for note in process["notes"]:
            print("  note:", note)
        if process["devices"]:
            return process["devices"][0]
    return None


def show(energy):
    if energy["status"] != "resolved":
        return energy["status"]
    return "%.2f +- %.2f J" % (energy["joules"], energy["half_width_95"])


def overhead(part):
    result = printed(part)
    if not result or "toggled" not in result:
        print(part, "printed nothing")
        return
    blocks = result["toggled"]
    # Each block against the bare one of its round: drift over the run meets both alike.
    rounds = [dict(blocks[i:i + 4]) for i in range(0, len(blocks), 4)]
    print("%s: bare step %.3f ms" % (part, 1e3 * statistics.median(r[-1] for r in rounds)))
    for mode, name in ((0, "attached, not metering"), (16, "metered 1 in 16"), (1, "always")):
        change = [100 * (r[mode] / r[-1] - 1) for r in rounds if mode in r and -1 in r]
        if len(change) < 2:
            continue
        mean = statistics.mean(change)
        half = 2.1 * statistics.stdev(change) / math.sqrt(len(change))
        print("  %-24s %+.3f %% +- %.3f (95 %%, %d pairs), median %+.3f %%" % (
            name, mean, half, len(change), statistics.median(change)))
    print("  kernels launched %s, records %s" % (
        result.get("kernel_launches"), result.get("kernel_records")))


def totals(part):
    found = device(part)
    if not found:
        print(part, "has no report")
        return None
    report = found["report"]
    its = report["totals"]
    print("%s: launches %d, scopes %d, iterations %s" % (
        part, found["launches"], report["scopes"]["scopes"], json.dumps(found["iterations"])))
    print("  counter %.1f J = kernels %s, idle %s, unexplained %.2f +- %.2f J" % (
        its["counter_j"], show(its["kernels"]), show(its["idle"]), its["unexplained_j"],
        its["unexplained_half_width_j"]))
    calls = sum(row["calls"] for row in report["rows"])
    metered = sum(row["metered_calls"] for row in report["rows"])
    print("  calls %d, with known times %d" % (calls, metered))
    for note in report["notes"]:
        print("  note:", note)
    result = printed(part)
    if result:
        for key in ("ms_per_step", "kernel_launches", "kernel_records"):
            print("  %s %s" % (key, result.get(key)))
    return report


def rows(report, most=12):
    for row in sorted(report["rows"], key=lambda row: -row["time_s"])[:most]:
        print("  %8d x %9.4f ms %-28s %s#%d" % (
            row["calls"], 1e3 * row["time_s"] / max(row["metered_calls"], 1), show(row["energy"]),
            row["kernel"][:80], row["variant"]))
    for group in report["groups"]:
        print("  group of %d%s: %s" % (len(group["kernels"]),
                                       " with idle" if group["with_idle"] else "",
                                       show(group["energy"])))


overhead("toggled")
overhead("graph")
kernels = totals("kernels")
if kernels:
    rows(kernels)
pair = [totals("phases_1"), totals("phases_2")]
for report in pair:
    if report:
        rows(report)
if all(pair):
    for name in sorted({row["kernel"] for row in pair[0]["rows"]}):
        joules = []
        for report in pair:
            for row in report["rows"]:
                if row["kernel"] == name and row["energy"]["status"] == "resolved":
                    joules.append(row["energy"]["joules"] / row["metered_calls"])
        if len(joules) == 2:
            print("  %s: %.3f and %.3f J a call, %+.2f %%" % (
                name, joules[0], joules[1], 100 * (joules[1] / joules[0] - 1)))
layers = totals("layers")
if layers:
    rows(layers)
text = totals("generation")
if text:
    rows(text)
    tokens = printed("generation")
    for row in text["rows"]:
        for run in ("first", "second"):
            for kind in ("prefill", "decode"):
                if ("%s of the %s run" % (kind, run)) in row["kernel"] and tokens and \
                        row["energy"]["status"] == "resolved":
                    count = tokens[run][kind + "_tokens"]
                    print("  %s, %s run: %.5f J a token +- %.1f %%" % (
                        kind, run, row["energy"]["joules"] / count,
                        100 * row["energy"]["half_width_95"] / row["energy"]["joules"]))
losses = printed("losses")
if losses:
    print("losses: two bare runs equal %s, attached equals bare %s" % (
        losses["bare_runs_equal"], losses["attached_equals_bare"]))
