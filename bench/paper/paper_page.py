#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""python3 bench/paper/paper_page.py build/demo/demo/summary.json docs/paper.md: what of arXiv 2601.08539 the demo reproduces.

With --check instead of the second argument, nothing is written: docs/paper.md must say what the file says; exit status 1
where it does not.
"""

import json
import pathlib
import sys

PAGE = pathlib.Path(__file__).parent.parent.parent / "docs" / "paper.md"

# (what, where it is published, published time and energy in % against auto, path in summary.json or why there is none)
PUBLISHED = [
    ("kernels, no time lost, local", "Table 1", -1.78, -11.54, "local.waste"),
    ("kernels, no time lost, global", "Table 1", 0.00, -15.64, "global.waste"),
    ("kernels, EDP, local", "Table 1", 10.03, -27.34, "local.edp"),
    ("kernels, EDP, global", "Table 1", 10.28, -27.52, "global.edp"),
    ("passes, no time lost", "Figures 3, 4", -0.10, -2.07, "pass.waste"),
    ("passes, EDP", "Figures 3, 4", 10.21, -25.42, "pass.edp"),
    ("kdvfs' planner on the published kernels", "Table 1", 0.00, -15.64, "published.points.waste"),
    ("kdvfs' planner on the published passes, no time lost", "Figures 3, 4", -0.10, -2.07, "published.passes.waste"),
    ("kdvfs' planner on the published passes, EDP", "Figures 3, 4", 10.21, -25.42, "published.passes.edp"),
    ("the global plan, measured again in 100 pairs", "text", 0.60, -14.60, "global.waste"),
    ("data parallel, batch 8, same clocks", "text", 0.5, -14.2, "paper.batch.8"),
    ("data parallel, batch 1, same clocks", "text", 3.0, -15.3, "paper.batch.1"),
    ("tensor parallel, 4 GPUs, same clocks", "text", 2.1, -16.6, "paper.tensor_parallel.4"),
    ("tensor parallel, 8 GPUs, same clocks", "text", 2.7, -17.3, "paper.tensor_parallel.8"),
    ("tensor parallel, 16 GPUs, same clocks", "text", 6.5, -16.2, "paper.tensor_parallel.16"),
    ("RTX A4000, no time lost", "text", None, -9.56, "no kernel of that board is published"),
    ("RTX A4000, EDP", "text", 2.33, -8.28, "no kernel of that board is published"),
]


def verdict(error):
    """yes within one point of time and of energy, partly within five, else no."""
    worst = max(abs(value) for value in error)
    return "yes" if worst <= 1 else "partly" if worst <= 5 else "no"


def at(summary, path):
    for key in path.split("."):
        summary = summary[key]
    return summary["time_pct"], summary["energy_pct"]


def row(summary, entry):
    what, where, time, energy, path = entry
    published = f"{energy:+.2f}" if time is None else f"{time:+.2f}, {energy:+.2f}"
    if " " in path:
        return f"| {what} | {where} | {published} | | | no: {path} |"
    ours = at(summary, path)
    error = (ours[0] - time, ours[1] - energy)
    return (
        f"| {what} | {where} | {published} | {ours[0] + 0.0:+.2f}, {ours[1]:+.2f} | "
        f"{error[0] + 0.0:+.2f}, {error[1]:+.2f} | {verdict(error)} |"
    )


def rms_row(what, where, errors):
    error = (errors["rms_time_pct"], errors["rms_energy_pct"])
    return f"| {what} | {where} | | | {error[0]:.2f}, {error[1]:.2f} rms | {verdict(error)} |"


def figure_rows(summary):
    passes = summary["paper"]["passes"]
    fast, all_points = passes["fast_memory"], passes["all"]
    yield rms_row(f"passes at {fast['points']} clock points, memory at 5001 MHz and more", "Figures 3, 4", fast)
    yield rms_row(f"passes at all {all_points['points']} clock points", "Figures 3, 4", all_points)
    yield rms_row("kernels at auto, best, least and most", "Figure 5", summary["fit"])


def pair(effect):
    return f"{effect['time_pct'] + 0.0:+.2f}, {effect['energy_pct']:+.2f}"


def frontier_rows(summary):
    for point in summary["paper"]["frontier"]:
        yield f"| {point['bound_pct']:g} % | {pair(point['local'])} | {pair(point['global'])} |"


def size_rows(summary):
    for what, key in (("batch", "batch"), ("tensor parallel", "tensor_parallel")):
        for size, effect in summary["paper"][key].items():
            yield f"| {what} {size} | {pair(effect)} |"


def page(summary):
    lines = [
        "# What of the paper is reproduced",
        "",
        "Time and energy of a GPT-3-XL iteration on an RTX 3080 Ti, % against auto, as published (arXiv 2601.08539) and as",
        "the demo prints: simulated, on a board fitted to the paper's Table 1, except where its planner runs on the published",
        "numbers themselves. Errors are points of time and of energy. *Yes*: both within 1 point; *partly*: within 5.",
        "`bench/paper/paper_page.py` writes this page from the demo's `summary.json`.",
        "",
        "| what | published in | published | kdvfs | error | reproduced |",
        "|---|---|---|---|---|---|",
        *(row(summary, entry) for entry in PUBLISHED),
        *figure_rows(summary),
        "",
        "Table 1 is what the board is fitted to: its rows show that the planner and the board agree with the paper, not that",
        "the board foretells anything. The passes are not fitted. They contradict the sum of the published kernels.",
        "[fit.md](fit.md) has the errors at points that were not fitted. What was measured again there is simulated here. Other",
        "sizes are a prediction from shapes (`examples/gpt3_xl/carried_kernels.hpp`), with the clocks of batch 40. 3 % was wanted",
        "of the passes. Figure 2 is drawn for any profile by `kdvfs report`: energy wasted, kernel by kernel.",
        "",
        "Plans by the slowdown allowed, each kernel within it (local) or their sum (global). The published curve (Figure 6) is",
        "kept for acceptance:",
        "",
        "| slowdown up to | local | global |",
        "|---|---|---|",
        *frontier_rows(summary),
        "",
        "The clocks of the global plan at other sizes (Figures 7, 8), against auto at that size:",
        "",
        "| size | time, energy |",
        "|---|---|",
        *size_rows(summary),
        "",
    ]
    return "\n".join(lines)


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    text = page(json.loads(pathlib.Path(arguments[0]).read_text()))
    if arguments[1] != "--check":
        pathlib.Path(arguments[1]).write_text(text)
    elif PAGE.read_text() != text:
        sys.exit(f"{PAGE} is not what {arguments[0]} says: write it anew with {__file__}")


if __name__ == "__main__":
    main(sys.argv[1:])
