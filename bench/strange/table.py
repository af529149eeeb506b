#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `kdvfs tune` makes of programs whose iterations are not alike (strange.cpp), at a bound of 2 %.

usage: table.py KDVFS STRANGE [SEEDS [LATENCIES_MS [WAYS]]]
Prints for each way and latency: how often runs by the plan kept the bound, how often `kdvfs tune` says "kept" (else, mostly,
that there is nothing to gain), after how many plans at most, how far promises of energy were off, and what was saved of the
most that any plan could save (each launch at any clock, without latency: more than an oracle can), and of what an oracle
saves who knows the places of an iteration and what launches there cost, but not what a run draws.
"""
import json
import os
import subprocess
import sys
import tempfile

kdvfs, strange = sys.argv[1:3]
seeds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
latencies = sys.argv[4].split(',') if len(sys.argv) > 4 else ['1', '10', '50']
ways = sys.argv[5].split(',') if len(sys.argv) > 5 else [
    'moe', 'mutate', 'accumulate', 'lengths', 'two_streams', 'idle', 'startup', 'branch', 'after2', 'after4']
STEPS, BOUND = '150', 2.0


def run(arguments, environment):
    """@returns seconds and joules of a run, by the simulation's own account."""
    words = subprocess.run([strange] + arguments, env=environment, capture_output=True, text=True,
                           check=True).stdout.split()
    return float(words[0]), float(words[2])


def tune(way, latency, seed, folder):
    """@returns status, rounds of plans, what was promised, what a run by the plan really took, the most to be saved, and the oracle's."""
    environment = dict(os.environ, SEED=str(seed), LATENCY_MS=latency)
    words = [kdvfs, 'tune', '--max-slowdown', '%g%%' % BOUND, '--switch-latency', latency + 'ms', '-o', folder,
             '--', strange, way, STEPS]
    said = subprocess.run(words, env=environment, capture_output=True, text=True)
    status = said.returncode
    rounds = 1 + said.stderr.count('; planned again with ')
    most, oracle = (float(subprocess.run([strange, way, STEPS, who, '%g' % BOUND], env=environment, capture_output=True,
                                         text=True, check=True).stdout) for who in ('bound', 'oracle'))
    kept = os.path.join(folder, 'kept.json')
    if status == 5 or not os.path.exists(kept):
        return status, rounds, None, (0.0, 0.0), most, oracle
    promised = json.load(open(kept))['promised']['energy_pct']
    found = run([way, STEPS], environment)
    plan = run([way, STEPS], dict(environment, KDVFS_MODE='follow:' + os.path.join(folder, 'plan.json')))
    return status, rounds, promised, [100 * (a / b - 1) for a, b in zip(plan, found)], most, oracle


def table():
    total = [0, 0, 0.0, 0.0, 0.0, []]
    print('simulated MI250X, %d programs a row, bound %g %%' % (seeds, BOUND))
    print('%-12s %7s %8s %8s %6s %10s %12s %10s %10s %10s' % ('way', 'latency', 'in bound', 'kept', 'rounds', 'off, worst',
                                                         'time, worst', 'saved', 'of most', 'of oracle'))
    for way in ways:
        for latency in latencies:
            inside, kept, most_rounds, off, slow, saved, most, known = 0, 0, 0, [], [], 0.0, 0.0, 0.0
            for seed in range(1, seeds + 1):
                with tempfile.TemporaryDirectory() as folder:
                    status, rounds, promised, (time, energy), bound, oracle = tune(way, latency, seed, folder)
                most += bound
                known += oracle
                kept += status == 0
                most_rounds = max(most_rounds, rounds)
                if promised is None:  # nothing was followed
                    inside += status == 5
                    continue
                inside += time <= BOUND + 0.1
                off.append(abs(promised - energy))
                slow.append(time)
                saved += energy
            print('%-12s %4s ms %5d/%-2d %5d/%-2d %6d %10.2f %+12.2f %+10.2f %8.0f %% %8.0f %%' % (
                way, latency, inside, seeds, kept, seeds, most_rounds, max(off, default=0), max(slow, default=0), saved / seeds,
                100 * saved / most, 100 * saved / known if known else 100))
            sys.stdout.flush()
            for i, value in enumerate((inside, seeds, saved, most, known)):
                total[i] += value
            total[5] += off
    total[5].sort()
    print('all: bound kept in %d of %d; promises off by at most 0.3 points in %d of %d; %.0f %% of the most, %.0f %% of the oracle' % (
        total[0], total[1], sum(value <= 0.3 for value in total[5]), len(total[5]), 100 * total[2] / total[3],
        100 * total[2] / total[4]))


table()
