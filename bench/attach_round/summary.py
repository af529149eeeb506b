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


def student_95(freedom):
    """Student's t for 95 %, to 1 % from 3 degrees of freedom on (Cornish and Fisher's series)."""
    z = 1.959964
    return (z + (z ** 3 + z) / (4 * freedom) +
            (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * freedom ** 2) +
            (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / (384 * freedom ** 3))


def lag_one(values):
    """How a value follows the one before: their correlation, -1 to 1."""
    mean = statistics.mean(values)
    squares = sum((value - mean) ** 2 for value in values)
    return 0 if squares == 0 else sum(
        (a - mean) * (b - mean) for a, b in zip(values, values[1:])) / squares


def widened(values):
    """By how much the error of a mean grows where its values follow one another, as a series of
    first order would (and never shrinks)."""
    lag = min(max(lag_one(values), 0), 0.9)
    return math.sqrt((1 + lag) / (1 - lag))


def trimmed_mean(values, share=0.2):
    """The mean without the fifth at either end, and its 95 % interval (Yuen, Biometrika 61, 1974),
    widened where rounds follow one another: a block that something else held up counts as an
    end."""
    ordered = sorted(values)
    cut = int(share * len(ordered))
    kept = ordered[cut:len(ordered) - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    squares = (len(values) - 1) * statistics.variance(winsorized)
    error = math.sqrt(squares / (len(kept) * (len(kept) - 1)))
    return statistics.mean(kept), student_95(len(kept) - 1) * error * widened(values)


def at_equal(changes, by):
    """What a change is where `by` does not change: the line through both (least squares) at 0.
    @returns the change, its 95 % half-width, and the slope"""
    count = len(changes)
    mean, mean_by = statistics.mean(changes), statistics.mean(by)
    squares = sum((x - mean_by) ** 2 for x in by)
    slope = sum((x - mean_by) * (y - mean) for x, y in zip(by, changes)) / squares
    left = [y - mean - slope * (x - mean_by) for x, y in zip(by, changes)]
    variance = sum(each ** 2 for each in left) / (count - 2)
    error = math.sqrt(variance * (1 / count + mean_by ** 2 / squares))
    return mean - slope * mean_by, student_95(count - 2) * error * widened(left), slope


def changes_of(rounds, mode, value):
    """In percent against bare, of each round that has both, as logarithms: means over its blocks.
    A round in which a block has no value has none."""
    found = []
    for blocks in rounds:
        of = {}
        for block in blocks:
            of.setdefault(block[0], []).append(value(block))
        if any(None in values for values in of.values()):
            continue
        found.append(100 * (statistics.mean(map(math.log, of[mode])) -
                            statistics.mean(map(math.log, of[-1]))))
    return found


def overhead(part):
    result = printed(part)
    if not result or "toggled" not in result:
        print(part, "printed nothing")
        return
    rounds = result["toggled"]
    bare = [block[1] for blocks in rounds for block in blocks if block[0] == -1]
    print("%s: bare step %.3f ms, %d rounds, blocks of %d steps" % (
        part, 1e3 * statistics.median(bare), len(rounds), result["block"]))
    modes = {block[0] for block in rounds[0]}
    issued = {}
    for mode, seconds in [each for blocks in result["issued"] for each in blocks]:
        issued.setdefault(mode, []).append(1e6 * seconds)
    for mode, name in ((0, "attached, not metering"), (16, "metered 1 in 16"), (1, "always")):
        change = changes_of(rounds, mode, lambda block: block[1]) if mode in modes else []
        if len(change) < 5:
            continue
        trimmed, half = trimmed_mean(change)
        print("  %-24s %+.3f %% +- %.3f (95 %%, trimmed mean of %d rounds; mean %+.3f, a round's "
              "deviation %.3f, lag-1 correlation %+.2f)" % (
                  name, trimmed, half, len(change), statistics.mean(change),
                  statistics.stdev(change), lag_one(change)))
        counted = changes_of(rounds, mode, lambda block: block[2])
        if len(counted) == len(change):
            clock = [c - t for c, t in zip(counted, change)]
            equal, its, slope = at_equal(change, clock)
            print("  %-24s %+.3f %% +- %.3f at the same clock (the mode's clock %+.3f %% +- %.3f; "
                  "time follows the clock by %+.2f); core cycles %+.3f %% +- %.3f" % (
                      "", equal, its, *trimmed_mean(clock), slope, *trimmed_mean(counted)))
        if mode in issued and -1 in issued:
            print("  %-24s host time until a step is enqueued: %.1f us, bare %.1f us (medians of "
                  "%d)" % ("", statistics.median(issued[mode]), statistics.median(issued[-1]),
                           len(issued[mode])))
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
        its = row.get("repeated")
        print("  %8d x %9.4f ms %-28s %s#%d%s" % (
            row["calls"], 1e3 * row["time_s"] / max(row["metered_calls"], 1), show(row["energy"]),
            row["kernel"][:80], row["variant"],
            ", repeated %.0f W +- %.0f" % (its["power_w"], its["power_half_width_w"])
            if its else ""))
    for group in report["groups"]:
        print("  group of %d%s: %s" % (len(group["kernels"]),
                                       " with idle" if group["with_idle"] else "",
                                       show(group["energy"])))


def ranges(report):
    """The levels of a report, by name: the iteration and the ranges that the program names."""
    return {level["kernel"] or "iteration": level for level in report.get("levels", [])}


def show_ranges(report):
    for name, level in ranges(report).items():
        each = level["energy_per_run"]
        if each["status"] == "resolved":
            print("  %-28s %6d x %9.4f ms, %.4f J +- %.1f %%, %.0f W" % (
                name, level["runs"], 1e3 * level["time_s"] / level["runs"], each["joules"],
                100 * each["half_width_95"] / each["joules"],
                level["energy"]["joules"] / level["time_s"]))
        else:
            print("  %-28s %6d x, %s" % (name, level["runs"], each["status"]))


def compare_ranges(pair):
    """Two runs of the same work."""
    first, second = map(ranges, pair)
    for name in first:
        both = [each[name]["energy_per_run"] for each in (first, second) if name in each]
        if len(both) == 2 and all(each["status"] == "resolved" for each in both):
            a, b = (each["joules"] for each in both)
            print("  %s: %.3f and %.3f J a run, %+.2f %%" % (name, a, b, 100 * (b / a - 1)))


def time_of(row):
    """Seconds of a repeated launch."""
    return row["repeated"]["repeats_time_s"] / row["repeated"]["repeats"]


def twin(row, others):
    """The row of another run that is the same work. Where launches of one name and grid are told
    apart by their times, their variants are 64 apart in order of first sight, which may be another
    one in each run: then it is the one whose launches take most nearly as long."""
    same = [other for other in others if other["kernel"] == row["kernel"] and
            other["variant"] % 64 == row["variant"] % 64]
    repeated_ones = [other for other in same if "repeated" in other]
    if "repeated" in row and repeated_ones:
        return min(repeated_ones, key=lambda other: abs(math.log(time_of(other) / time_of(row))))
    return next((other for other in same if other["variant"] == row["variant"]), None)


def repeated(*parts):
    """The ten largest kernels by repeating in place, in two runs."""
    runs = []
    for part in parts:
        try:
            with open(os.path.join(out, part, "report.json")) as file:
                runs.append(json.load(file))
        except OSError:
            return
    largest = [row for row in runs[0]["rows"] if row["kernel"] != "other kernels"][:10]
    print("repeat: %s" % ", ".join("%d kernels repeated in %s" % (
        sum("repeated" in row for row in run["rows"]), part) for run, part in zip(runs, parts)))
    told = within = 0
    for row in largest:
        both = [row, twin(row, runs[1]["rows"])]
        text = ""
        joules = []
        for one in both:
            if one is None or "repeated" not in one:
                text += "  not repeated"
                continue
            its = one["repeated"]
            joules.append(its["power_w"] * time_of(one))
            text += "  %.1f W +- %.1f, %.4f J a call; in place %s" % (
                its["power_w"], its["power_half_width_w"], joules[-1], show(one["energy"]))
        if len(joules) == 2:
            told += 1
            within += abs(joules[1] / joules[0] - 1) <= 0.05
            text += "  %+.1f %%" % (100 * (joules[1] / joules[0] - 1))
        print("  %s#%d:%s" % (row["kernel"][:60], row["variant"], text))
    print("  told in both runs: %d of %d; joules a call within 5 %%: %d" % (
        told, len(largest), within))


def merged(part):
    """The one process's report behind what `kdvfs run --report` wrote; nothing where there is none."""
    try:
        with open(os.path.join(out, part, "report.json")) as file:
            process = json.load(file)["processes"][0]
    except (OSError, IndexError):
        return None
    report = process["devices"][0]["report"]
    print("%s: %s" % (part, "; ".join(process["notes"] + report["notes"])))
    return report


def fragile(part):
    """Whether a program outlived a kernel that does not survive being repeated."""
    try:
        with open(os.path.join(out, part, "report.json")) as file:
            report = json.load(file)
        with open(os.path.join(out, part + ".log")) as file:
            lines = [line.strip() for line in file if line.startswith(("kdvfs", "done"))]
    except OSError:
        return
    print("%s: %s" % (part, "; ".join(lines)))
    for row in report["rows"][:4]:
        print("  %d x %s%s" % (row["calls"], row["kernel"],
                               ", repeated" if "repeated" in row else ""))


overhead("toggled")
overhead("graph")
overhead("compiled")
kernels = totals("kernels")
if kernels:
    rows(kernels)
pair = [totals("phases_1"), totals("phases_2")]
for report in pair:
    if report:
        show_ranges(report)
if all(pair):
    compare_ranges(pair)
layers = totals("layers")
if layers:
    show_ranges(layers)
repeated("repeat_1", "repeat_2")
pair = [merged("layers_1"), merged("layers_2")]
for report in pair:
    if report:
        show_ranges(report)
        rows(report)
if all(pair):
    compare_ranges(pair)
text = totals("generation")
if text:
    show_ranges(text)
    tokens = printed("generation")
    each = {}
    for name, level in ranges(text).items():
        for run in ("first", "second"):
            for kind in ("prefill", "decode"):
                if ("%s of the %s run" % (kind, run)) in name and tokens and \
                        level["energy"]["status"] == "resolved":
                    joules = level["energy"]["joules"] / tokens[run][kind + "_tokens"]
                    each[kind, run] = joules
                    print("  %s, %s run: %.5f J a token +- %.1f %%" % (
                        kind, run, joules,
                        100 * level["energy"]["half_width_95"] / level["energy"]["joules"]))
    for kind in ("prefill", "decode"):
        if (kind, "first") in each and (kind, "second") in each:
            print("  %s: second run against first %+.2f %%" % (
                kind, 100 * (each[kind, "second"] / each[kind, "first"] - 1)))
for part in ("losses", "losses_graph", "losses_compiled"):
    losses = printed(part)
    if losses:
        print("%s: two bare runs equal %s, attached equals bare %s" % (
            part, losses["bare_runs_equal"], losses["attached_equals_bare"]))
fragile("fragile")
