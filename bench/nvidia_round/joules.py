#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The table of joules.sh: joules.py FOLDER, with a folder a run in it."""
import json
import pathlib
import statistics
import sys


def told(energy):
    return energy["status"] == "resolved"


def name_of(row):
    return row["kernel"] + (f"#{row['variant']}" if row["variant"] else "")


def level_name(level):
    return "iteration" if level["level"] == "iteration" else level["kernel"]


def half_width(energy):
    return 100 * energy["half_width_95"] / energy["joules"]


def describe(name, report):
    enclosing = {level["kernel"] for level in report["levels"]}
    rows = [row for row in report["rows"] if row["kernel"] not in enclosing]
    time = sum(row["counted_time_s"] for row in rows) or 1
    resolved = [row for row in rows if told(row["energy"])]
    share = 100 * sum(row["counted_time_s"] for row in resolved) / time
    totals = report["totals"]
    fit = report["fit"]
    print(f"{name}: {len(resolved)} of {len(rows)} kernels told, {share:.1f} % of kernel time; "
          f"unexplained {totals['unexplained_j']:.0f} +- {totals['unexplained_half_width_j']:.0f} "
          f"of {totals['counter_j']:.0f} J; {fit['rows']} rows, correlation "
          f"{fit['autocorrelation']:.2f}; repeated x {fit['repeated_scale']:.3f}, spread "
          f"{100 * fit['repeated_spread']:.1f} %; from {fit['source']}, rows off by "
          f"{fit['scatter_w']:.1f} W")
    for note in report["notes"]:
        if "joules are" in note or "repeated" in note or "power" in note:
            print(f"    note: {note}")
    long_ones = [row for row in rows if row["counted_time_s"] > 0.03 * time]
    narrow = [row for row in long_ones if told(row["energy"]) and half_width(row["energy"]) <= 15]
    print(f"    wanted 95 %: told {share:.1f} % of kernel time; wanted within 15 %: "
          f"{len(narrow)} of {len(long_ones)} kernels of more than 3 % of the time")
    for row in long_ones:
        width = f"+- {half_width(row['energy']):.1f} %" if told(row["energy"]) else "not told"
        print(f"    {name_of(row):22} {100 * row['counted_time_s'] / time:5.1f} % of the time, {width}")
    for level in report["levels"]:
        energy = level["energy_per_run"]
        if told(energy):
            print(f"    level {level_name(level):16} {energy['joules']:10.3f} J +- "
                  f"{energy['half_width_95']:.3f} ({half_width(energy):.2f} %)")
        else:
            print(f"    level {level_name(level):16} not told")
    phases = {level_name(level): level["energy_per_run"] for level in report["levels"]}
    parts = [phases[key] for key in ("forward", "backward", "optimizer") if key in phases]
    if "iteration" in phases and len(parts) == 3 and all(map(told, parts)):
        whole = phases["iteration"]
        print(f"    phases sum to {sum(part['joules'] for part in parts):.3f} J of the iteration's "
              f"{whole['joules']:.3f} J; the rest is between them")


def compare(first, second, reports):
    if first not in reports or second not in reports:
        return
    a, b = reports[first], reports[second]
    watts = lambda row: row["energy"]["joules"] / row["counted_time_s"]
    other = {name_of(row): row for row in b["rows"]}
    apart = []
    for row in a["rows"]:
        twin = other.get(name_of(row))
        if twin and told(row["energy"]) and told(twin["energy"]):
            apart.append((100 * abs(watts(row) / watts(twin) - 1), name_of(row)))
    if apart:
        print(f"{first}, {second}: kernels told in both {len(apart)}, apart "
              f"{statistics.median(apart)[0] if len(apart) % 2 else sorted(apart)[len(apart) // 2][0]:.2f} % "
              f"(median), {max(apart)[0]:.2f} % (worst: {max(apart)[1]})")
    levels = {level_name(level): level["energy_per_run"] for level in b["levels"]}
    for level in a["levels"]:
        twin = levels.get(level_name(level))
        mine = level["energy_per_run"]
        if twin and told(twin) and told(mine):
            print(f"    {level_name(level)}: {100 * (mine['joules'] / twin['joules'] - 1):+.2f} % apart")


def predict(source, target, reports):
    """The target's counter from the source's joules a call and its idle power."""
    if source not in reports or target not in reports:
        return
    a, b = reports[source], reports[target]
    idle = a["totals"]["idle"]
    if not told(idle):
        print(f"{target} from {source}: idle is not told, nothing is predicted")
        return
    power = {}
    for row in a["rows"]:
        if told(row["energy"]):
            power[name_of(row)] = (row["energy"]["joules"] / row["counted_time_s"],
                                   row["time_s"] / max(row["metered_calls"], 1))
    mean = a["totals"]["kernels"]["joules"] / (
        a["totals"]["counted_time_s"] - a["totals"]["idle_time_s"])
    joules = b["totals"]["idle_time_s"] * idle["joules"] / a["totals"]["idle_time_s"]
    untold = 0
    for row in b["rows"]:
        calls = row["metered_calls"] * row["counted_time_s"] / (row["time_s"] or 1)
        watts, seconds = power.get(name_of(row), (mean, row["time_s"] / max(row["metered_calls"], 1)))
        untold += 0 if name_of(row) in power else row["counted_time_s"]
        joules += watts * seconds * calls
    counter = b["totals"]["counter_j"]
    print(f"{target} from {source}: predicted {joules:.0f} J, counter {counter:.0f} J, "
          f"{100 * (joules / counter - 1):+.2f} %; {untold:.2f} s at the kernels' mean power")


def main():
    reports = {}
    for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        if (folder / "report.json").is_file():
            reports[folder.name] = json.loads((folder / "report.json").read_text())
    for name, report in reports.items():
        describe(name, report)
    compare("always_1", "always_2", reports)
    compare("repeated_1", "repeated_2", reports)
    compare("repeated_1", "always_1", reports)
    for target in ("forward_only", "two_microbatches"):
        predict("repeated_1", target, reports)
        predict("always_1", target, reports)


if __name__ == "__main__":
    main()
