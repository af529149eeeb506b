#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Breaks the library in many places, one at a time, and runs the tests that should notice.

    python3 tests/mutation/mutate.py [--count 200] [--seed 1] [--rooms controller,restore]

Places are drawn at random, an equal share for each room; a mutant changes one operator or one constant.
Mutants that do not compile are drawn again. Work happens in a copy of the commit under
build/mutation, results go to build/mutation/results.csv; mutants that stand there are not repeated. A
mutant that no test notices either changes nothing that can be observed, or a test is missing.
Exit status 1 while less than 90 % of the mutants are killed.
"""

import argparse
import csv
import os
import pathlib
import random
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "mutation" / "tree"
RESULTS = ROOT / "build" / "mutation" / "results.csv"

# Each room: its headers, and the folders of tests that should notice a change there.
ROOMS = {
    "controller": (["include/kdvfs/detail/control/*.hpp"], ["core", "scope", "gpu", "follow", "simulated"]),
    "attribution": (["include/kdvfs/detail/measure/*.hpp"], ["measure", "report"]),
    "planner": (
        ["include/kdvfs/tune/*.hpp", "include/kdvfs/detail/tune/*.hpp", "include/kdvfs/detail/solve/*.hpp"],
        ["tune"],
    ),
    "restore": (["include/kdvfs/detail/restore/*.hpp"], ["restoring", "hostile_files"]),
}

# clang-format puts spaces around binary operators and none inside template brackets.
CHANGES = [
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" >= ", " > "),
    (r" == ", " != "),
    (r" != ", " == "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \* ", " / "),
    (r" / ", " * "),
    (r" \+= ", " -= "),
    (r"\+\+(?=\w)", "--"),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r"\breturn !", "return "),
    (r"\bif \(!", "if ("),
]
NUMBER = re.compile(r"(?<![\w.\"'])(\d+)(?![\w.\"'])")


def places(path):
    """Yields (line number, column, old text, new text) of each possible change in a file."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code = line.split("//")[0]
        if code.lstrip().startswith(("#", "template", "using", "static_assert", "*", "///")) or '"' in code:
            continue
        for pattern, new in CHANGES:
            for found in re.finditer(pattern, code):
                yield number, found.start(), found.group(), new
        for found in NUMBER.finditer(code):
            yield number, found.start(), found.group(), str(int(found.group()) + 1)


def draw(count, seed, rooms):
    """Returns the mutants to try for each room, in random order, more than are needed."""
    generator = random.Random(seed)
    drawn = []
    for room in rooms:
        candidates = []
        for pattern in ROOMS[room][0]:
            for path in sorted(COPY.glob(pattern)):
                name = str(path.relative_to(COPY))
                candidates += [(room, name, *place) for place in places(path)]
        generator.shuffle(candidates)
        drawn.append((room, candidates, -(-count // len(rooms))))
    return drawn


def run(command, seconds):
    """Runs a command; its whole process group ends with it. Returns the exit status, 124 where it hung."""
    with subprocess.Popen(command, cwd=COPY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return 124


def judge(room, timeout):
    """Builds and runs the tests of a room: killed, survived, or not compiled."""
    folders = ROOMS[room][1]
    targets = [f"tests/{folder}/all" for folder in folders]
    if run(["ninja", "-C", "build/test", "-j2", *targets], 3600) != 0:
        return "not compiled"
    for folder in folders:
        if run(["ctest", "--test-dir", f"build/test/tests/{folder}", "-j2", "-LE", "soak", "--timeout",
                str(timeout), "--stop-on-failure"], 20 * timeout) != 0:
            return "killed"
    return "survived"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="mutants to try, over all rooms")
    parser.add_argument("--seed", type=int, default=1, help="draws the places")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="rooms to break, with commas between")
    parser.add_argument("--timeout", type=int, default=120, help="seconds that a test may take")
    options = parser.parse_args()

    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    if not COPY.exists():
        COPY.parent.mkdir(parents=True, exist_ok=True)
        subprocess.check_call(["git", "worktree", "add", "--detach", str(COPY), commit], cwd=ROOT)
    subprocess.check_call(["git", "checkout", "--force", "--detach", "--quiet", commit], cwd=COPY)
    subprocess.check_call(["cmake", "--preset", "test"], cwd=COPY, stdout=subprocess.DEVNULL)

    results = []
    if RESULTS.exists():
        with RESULTS.open() as file:
            results = [row for row in csv.reader(file) if row and row[0] == commit]
    known = {tuple(row[1:6]): row[6] for row in results}
    rooms = options.rooms.split(",")
    for room in rooms:
        if judge(room, options.timeout) != "survived":
            sys.exit(f"the tests of {room} fail without a mutant: see build/mutation/tree")
    for room, candidates, wanted in draw(options.count, options.seed, rooms):
        done = 0
        for _, name, line, column, old, new in candidates:
            if done == wanted:
                break
            key = (room, name, str(line), str(column), f"{old.strip()} -> {new.strip()}")
            result = known.get(key)
            if result is None:
                path = COPY / name
                text = path.read_text()
                lines = text.splitlines(keepends=True)
                kept = lines[line - 1]
                lines[line - 1] = kept[:column] + new + kept[column + len(old):]
                path.write_text("".join(lines))
                try:
                    result = judge(room, options.timeout)
                finally:
                    path.write_text(text)
                with RESULTS.open("a") as file:
                    csv.writer(file).writerow([commit, *key, result])
                print(f"{result}: {name}:{line}: {key[4]}", flush=True)
                known[key] = result
            done += result != "not compiled"
    judged = [(key, result) for key, result in known.items() if result != "not compiled"]
    killed = sum(result == "killed" for _, result in judged)
    print(f"{killed} of {len(judged)} mutants killed, 0 tests failed out of {len(judged)}")
    for key, result in judged:
        if result == "survived":
            print(f"survived: {key[1]}:{key[2]}: {key[4]}")
    sys.exit(killed < 0.9 * len(judged))


if __name__ == "__main__":
    main()
