# SPDX-License-Identifier: MIT
"""What `beside.sh` found. `beside.py FOLDER`, with a log and a folder of reports for each part."""
import glob
import json
import os
import statistics
import sys

folder = sys.argv[1]


def printed(part):
    """The JSON line that a part's program printed, and its words of the first profile."""
    try:
        with open(os.path.join(folder, part + ".log")) as file:
            lines = file.readlines()
    except OSError:
        return {}, ""
    found = [line for line in lines if line.startswith("{")]
    return (json.loads(found[-1]) if found else {},
            " ".join(line.strip() for line in lines if line.startswith("profiled first")))


def reports(part):
    for path in glob.glob(os.path.join(folder, part, "attached.*.json")):
        with open(path) as file:
            process = json.load(file)
        if process["devices"] or process["notes"]:
            yield process


def joules(energy):
    if energy["status"] != "resolved":
        return energy["status"]
    return "%.1f +- %.1f J" % (energy["joules"], energy["half_width_95"])


def show_report(part, most):
    for process in reports(part):
        for note in process["notes"]:
            print("  note:", note)
        for device in process["devices"]:
            report = device["report"]
            for note in report.get("notes", []):
                print("  device:", note)
            rows = sorted(report["rows"], key=lambda row: -row["time_s"])
            print("  %d launches, %d kinds; metered calls %d of %d; kernel time %.3f s" % (
                device["launches"], len(rows), sum(row["metered_calls"] for row in rows),
                sum(row["calls"] for row in rows), sum(row["time_s"] for row in rows)))
            for row in rows[:most]:
                print("    %-72s %6d calls %9.4f s  %s" % (
                    row["kernel"][:72], row["calls"], row["counted_time_s"], joules(row["energy"])))


def pairs(rounds, mode):
    """Relative step time of a mode against bare (-1), a value for each round."""
    values = []
    for blocks in rounds:
        times = {}
        for block in blocks:
            times.setdefault(block[0], []).append(block[1])
        values.append(statistics.mean(times[mode]) / statistics.mean(times[-1]) - 1)
    return values


def main():
    plain, _ = printed("plain")
    alone, _ = printed("profiled_alone")
    if plain:
        print("plain: %.3f ms a step, %s, torch %s" % (
            plain["ms_per_step"], plain["device"], plain["torch"]))
    # Two runs without kdvfs must agree before a third can be compared with them.
    reproducible = bool(plain) and bool(alone) and plain["losses"] == alone["losses"]
    if not reproducible:
        print("losses: two runs without kdvfs differ, so none are compared")
    for part in ("profiled_alone", "profiled", "profiled_first"):
        result, first = printed(part)
        if not result:
            continue
        print("%s: torch.profiler has %d kernels (alone %d); ms a step before, beside, after: %s" % (
            part, result["profiled_kernels"], alone.get("profiled_kernels", 0),
            ", ".join("%.3f" % value for value in result["ms_per_step"])), first)
        if "kernel_launches" in result:
            print("  kernel launches that kdvfs saw while it had records: %d, records %d" % (
                result["kernel_launches"], result["kernel_records"]))
        if part != "profiled_alone" and reproducible:
            print("  losses as alone:", result["losses"] == alone["losses"])
        show_report(part, 6)
    for part, most in (("graph", 14), ("compiled", 14)):
        result, _ = printed(part)
        if result:
            print("%s: %.3f ms a step" % (part, result["ms_per_step"]))
        show_report(part, most)
    toggled, _ = printed("toggled")
    for mode in (0, 1, 16):
        if "toggled" not in toggled:
            break
        values = pairs(toggled["toggled"], mode)
        if len(values) < 3:
            continue
        print("attached, %s: step time %+.3f +- %.3f %% against bare (%d rounds)" % (
            {0: "callbacks alone", 1: "always metered", 16: "metered 1 in 16"}[mode],
            100 * statistics.mean(values),
            196 * statistics.stdev(values) / len(values) ** 0.5, len(values)))


main()
