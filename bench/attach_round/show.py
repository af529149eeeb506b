# SPDX-License-Identifier: MIT
"""Prints what an attached process reported: sums, rows by time, notes."""
import json
import sys

for path in sys.argv[1:]:
    with open(path) as file:
        process = json.load(file)
    print("==", path, process["command"][:100], "ended" if process["ended"] else "NOT ENDED")
    for device in process["devices"]:
        report = device["report"]
        print("launches", device["launches"], "iterations", device["iterations"])
        print("totals", json.dumps(report.get("totals")))
        fit = dict(report.get("fit") or report.get("attribution") or {})
        fit.pop("covariance", None)
        print("fit", json.dumps(fit))
        print("scopes", json.dumps(report.get("scopes")))
        rows = sorted(report["kernels"] if "kernels" in report else report["rows"],
                      key=lambda row: -row["time_s"])
        for row in rows[:24]:
            energy = row["energy"]
            joules = ("%.3f +- %.3f J" % (energy["joules"], energy["half_width_95"])
                      if energy["status"] == "resolved" else energy["status"])
            print("%8d %8d %10.6f s  %-24s %s#%d" % (
                row["calls"], row["metered_calls"], row["counted_time_s"], joules, row["kernel"][:90],
                row["variant"]))
        for group in report.get("groups", []):
            print("group of", len(group["kernels"]), "idle" if group["with_idle"] else "",
                  json.dumps(group["energy"]))
        for note in report.get("notes", []):
            print("note:", note)
    for note in process["notes"]:
        print("process note:", note)
