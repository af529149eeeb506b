#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""python3 docs/draw_run.py run.csv docs/run.svg: draws the energy that one simulated run saved, hour by hour.

The file is what build/test/tests/self_tuning/self_tuning_beds saving 1 4 1 run.csv writes.
"""

import csv
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 300, 64, 16, 44, 40


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    hours = [float(row["passed_s"]) / 3600 for row in rows]
    series = {name: [float(row[name]) / 1000 for row in rows] for name in ("saved_j", "saved_low_j", "saved_high_j", "true_j")}
    most = max(max(series["saved_high_j"]), max(series["true_j"])) * 1.05
    least = min(0.0, min(series["saved_low_j"]), min(series["true_j"]))

    def x(hour):
        return LEFT + (WIDTH - LEFT - RIGHT) * hour / hours[-1]

    def y(kilojoules):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (kilojoules - least) / (most - least)

    def points(name, order=1):
        return " ".join(f"{x(h):.1f},{y(v):.1f}" for h, v in list(zip(hours, series[name]))[::order])

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12" role="img">',
        "<title>Energy saved over one simulated run that tunes itself, from nothing</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-weight="bold">Energy saved by one run, from nothing (simulated MI250X, bound 1 %)</text>',
        f'<text x="{LEFT}" y="34" fill="#555555">line: as the run says itself; band: its 95 % interval; dashed: against a twin '
        "as found</text>",
        f'<polygon points="{points("saved_low_j")} {points("saved_high_j", -1)}" fill="#27ae60" fill-opacity="0.25"/>',
        f'<polyline points="{points("saved_j")}" fill="none" stroke="#1e8449" stroke-width="1.6"/>',
        f'<polyline points="{points("true_j")}" fill="none" stroke="#333333" stroke-width="1" stroke-dasharray="4 3"/>',
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#333333"/>',
    ]
    for hour in range(int(hours[-1] + 0.5) + 1):
        lines.append(f'<text x="{x(min(hour, hours[-1])):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{hour}</text>')
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000) if most / step <= 6)
    for mark in range(0, int(most) + 1, step):
        lines.append(f'<text x="{LEFT - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark}</text>')
    lines.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">hours</text>')
    lines.append(f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2})">kJ</text>')
    lines.append("</svg>")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
