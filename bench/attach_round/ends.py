# SPDX-License-Identifier: MIT
"""How programs end under `kdvfs run` on a real NVIDIA GPU, many times, by one or more attach libraries.

    ends.py SECONDS LIBRARY...    prints for each library and program how many runs ended by which status

Four programs of others.py run at a time, each for some seconds, with the libraries in turn. A run that
a signal ended, or whose last report is missing, prints the end of what it said. Needs the command
`kdvfs` (or KDVFS_COMMAND). The GPU is loaded and read; its clocks, power limit and modes are never set.
"""
import collections
import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

OTHERS = pathlib.Path(__file__).with_name("others.py")
PROGRAMS = ["stage", "threads", "graphs", "cupy_solver"]
COMMAND = os.environ.get("KDVFS_COMMAND", "kdvfs")


def run(library, program, seconds):
    """The exit status, `no report` where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        # The library's thread wakes up once a second: ends come at any moment of it.
        found = subprocess.run(
            [COMMAND, "run", "--report", folder + "/report.json", "--", sys.executable, str(OTHERS), program],
            env=os.environ | {"KDVFS_ATTACH": library, "WARM_UP": "1", "MEASURED": str(seconds)},
            capture_output=True, text=True, check=False)
        has_report = pathlib.Path(folder, "report.json").exists()
    if found.returncode != 0 or not has_report:
        print(f"{library} {program}: {found.returncode}\n{found.stderr[-600:]}", flush=True)
        return found.returncode or "no report"
    return 0


def main():
    until = time.time() + float(sys.argv[1])
    ends = collections.Counter()

    def repeat(number):
        randomly = random.Random(number)
        turn = number
        while time.time() < until:
            library = sys.argv[2 + turn % len(sys.argv[2:])]
            program = PROGRAMS[turn // len(sys.argv[2:]) % len(PROGRAMS)]
            ends[library, program, run(library, program, randomly.uniform(2, 4))] += 1
            turn += 1

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(repeat, range(4)))
    for (library, program, status), runs in sorted(ends.items(), key=str):
        print(f"{runs:4d} runs of {program} by {library} ended by {status}")


if __name__ == "__main__":
    main()
