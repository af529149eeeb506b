#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""python3 docs/draw_savings.py build/demo/demo/summary.json docs/savings.svg: draws what the demo saved.

With --check instead of the second argument, nothing is written: the picture and the tables of README.md and
docs/fit.md must say what the file says; exit status 1 where they do not.
"""

import json
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).parent
BOUND = 1  # percent of time, of the picture
LEFT, TOP, ROW, BAR, SCALE = 150, 66, 46, 15, 20  # pixels; SCALE: of one percent


def short(name):
    """"RTX 3080 Ti" of "NVIDIA GeForce RTX 3080 Ti (simulated)"."""
    name = re.sub(r"\s*\(simulated\)", "", name)
    return re.sub(r"^(NVIDIA|AMD)( GeForce| Instinct)? ", "", name)


def by_board(summary):
    """{board: {bound: row}}, in the demo's order."""
    boards = {}
    for row in summary["boards"]:
        boards.setdefault(short(row["name"]), {})[round(row["bound_pct"])] = row
    return boards


def saved(percent):
    return max(0.0, -percent)


def bar(x, y, percent, colour):
    width = saved(percent) * SCALE
    return (
        f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>'
        f'<text x="{x + width + 5:.1f}" y="{y + 12}">{saved(percent):.1f}</text>'
    )


def whisker(y, low, high):
    left, right, middle = LEFT + low * SCALE, LEFT + high * SCALE, y + BAR + 4
    return (
        f'<path d="M{left:.1f} {middle}H{right:.1f}M{left:.1f} {middle - 3}v6M{right:.1f} {middle - 3}v6" '
        'stroke="#c0392b" stroke-width="1.5" fill="none"/>'
    )


def draw(summary):
    boards = by_board(summary)
    width, height = LEFT + 22 * SCALE, TOP + ROW * len(boards) + 14
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12" role="img">',
        f"<title>Energy saved on simulated boards at +{BOUND} % time</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="20" font-size="14" font-weight="bold">Energy saved at +{BOUND} % time, % of driver '
        "default clocks (SIMULATED)</text>",
        '<text x="12" y="36">One GPT-3-XL training iteration, switching latency 0</text>',
        '<rect x="12" y="44" width="12" height="10" fill="#9aa5b1"/><text x="28" y="53">best static clock</text>',
        '<rect x="140" y="44" width="12" height="10" fill="#1f77b4"/><text x="156" y="53">clock per kernel</text>',
        '<path d="M270 49h24M270 46v6M294 46v6" stroke="#c0392b" stroke-width="1.5" fill="none"/>'
        '<text x="300" y="53">range over the assumptions</text>',
    ]
    for number, (name, bounds) in enumerate(boards.items()):
        row, y = bounds[BOUND], TOP + ROW * number
        lines.append(f'<text x="12" y="{y + 20}">{name}</text>')
        lines.append(bar(LEFT, y, row["best_static_pct"], "#9aa5b1"))
        lines.append(bar(LEFT, y + BAR + 2, row["kernels_pct"], "#1f77b4"))
        if "assumption" in row:
            range_ = sorted(saved(row["assumption"][f"kernels_pct_{end}"]) for end in ("least", "most"))
            lines.append(whisker(y + BAR + 2, *range_))
    return "\n".join(lines) + "\n</svg>\n"


def percentages(bounds, key):
    """"0.0 / 1.0 / 5.8", as the table of docs/fit.md has it."""
    return " / ".join(f"{saved(bounds[bound][key]):.1f}" for bound in sorted(bounds))


def faults(summary):
    boards = by_board(summary)
    fit, readme = (FOLDER / "fit.md").read_text(), (FOLDER.parent / "README.md").read_text()
    if (FOLDER / "savings.svg").read_text() != draw(summary):
        yield "docs/savings.svg is of another run: draw it again"
    for name, bounds in boards.items():
        row = f'| {name} | {percentages(bounds, "best_static_pct")} | {percentages(bounds, "kernels_pct")} |'
        if row not in fit:
            yield f"docs/fit.md lacks the row: {row}"
    others = [bounds[BOUND] for bounds in boards.values() if "assumption" in bounds[BOUND]]
    others.sort(key=lambda row: row["kernels_pct"])
    for key in ("kernels_pct", "best_static_pct"):
        figures = ", ".join(f"{saved(row[key]):.1f}" for row in others) + " %"
        if figures not in readme:
            yield f"README.md lacks the figures: {figures}"
    fitted = next(bounds[0] for bounds in boards.values() if "error_pct" in bounds[0])
    if f'**{saved(fitted["kernels_pct"]):.1f} %** energy saved' not in readme:
        yield "README.md has another saving of the fitted board"
    for latency in ("0.001", "0.15"):
        run = next(run for run in summary["live_followed"] if run["switch_latency_s"] == float(latency))
        if f'{saved(run["energy_pct"]):.1f} %' not in readme:
            yield f'README.md lacks the saving at a switching latency of {latency} s: {run["energy_pct"]:.1f} %'


def main():
    summary = json.loads(pathlib.Path(sys.argv[1]).read_text())
    if sys.argv[2] == "--check":
        found = list(faults(summary))
        print("\n".join(found))
        return 1 if found else 0
    pathlib.Path(sys.argv[2]).write_text(draw(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
