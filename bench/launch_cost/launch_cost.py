#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What attaching costs the launches of a program, beside a profiler that throws its records away.

usage: launch_cost.py KDVFS LAUNCH_COST EMPTY_TOOL CUPTI NVML [--seconds S] [--rounds N] [--kinds K,K...]

KDVFS_ATTACH names another attach library than the one beside KDVFS: that of the preset `test` is built at -Og.

On doubles of CUDA's driver, CUPTI and NVML. Each round runs the program alone, with the empty tool and
attached to, in random order; medians over the rounds are printed. The first launch, which opens the GPU, is
beside the other figures.
First table: launches a second, 200 every 20 ms, by the number of kinds of kernels, and how long after the end of
its work the program ends. Second: CPU time of the launching thread for a launch, as fast as it can.
"""
import argparse
import os
import random
import statistics
import subprocess
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name in ('kdvfs', 'program', 'empty_tool', 'cupti', 'nvml'):
    parser.add_argument(name)
parser.add_argument('--seconds', type=float, default=8)
parser.add_argument('--rounds', type=int, default=5)
parser.add_argument('--kinds', default='10,60,250,1000')
arguments = parser.parse_args()
folder = tempfile.TemporaryDirectory()
base = dict(os.environ, KDVFS_CUPTI=arguments.cupti, KDVFS_NVML=arguments.nvml, KDVFS_RECORDS=folder.name,
            LD_LIBRARY_PATH=os.path.dirname(arguments.cupti) + ':' + os.environ.get('LD_LIBRARY_PATH', ''))


def run(way, words, options=()):
    """Launches a second, ns each, seconds of CPU of other threads, seconds from the end of the work to that of all,
    seconds of the first launch."""
    command, environment = [arguments.program] + words, dict(base)
    if way == 'empty':
        environment.update(CUDA_INJECTION64_PATH=arguments.empty_tool, NVTX_INJECTION64_PATH=arguments.empty_tool)
    elif way == 'attached':
        report = os.path.join(folder.name, 'report.json')
        command = [arguments.kdvfs, 'run', *options, '--report', report, '--'] + command
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    ended = time.time()
    rate, each, others, work_ended, first = (float(word) for word in result.stdout.split()[:5])
    return rate, each, others, ended - work_ended, first


def compare(words, options=()):
    """Medians of each way's figures over the rounds."""
    rows = {way: [] for way in ('alone', 'empty', 'attached')}
    for _ in range(arguments.rounds):
        for way in random.sample(sorted(rows), len(rows)):
            rows[way].append(run(way, words, options))
    return {way: [statistics.median(column) for column in zip(*each)] for way, each in rows.items()}


seconds = str(arguments.seconds)
print('| kinds | launches a second: empty tool | attached | difference, % | ends after its work, s | CPU of other threads, % of a core | first launch, ms |')
print('|---|---|---|---|---|---|---|')
for kinds in filter(None, arguments.kinds.split(',')):
    found = compare([seconds, kinds, 'gap=20000'])
    empty, attached = found['empty'], found['attached']
    print('| %s | %.0f | %.0f | %+.2f | %.2f | %.1f | %.0f |' %
          (kinds, empty[0], attached[0], 100 * (attached[0] / empty[0] - 1), attached[3],
           100 * attached[2] / arguments.seconds, 1e3 * attached[4]), flush=True)
print()
print('| as fast as it can, 60 kinds | alone, ns | empty tool | attached | beyond the empty tool |')
print('|---|---|---|---|---|')
for name, words, options in (('plain', [], ()), ('4 ranges around 200 launches', ['ranges=4'], ()),
                             ('8 grids of each kind', ['grids=8'], ()),
                             ('--match', [], ('--match', 'kernel1.*'))):
    found = compare([seconds, '60'] + words, options)
    alone, empty, attached = (found[way][1] for way in ('alone', 'empty', 'attached'))
    print('| %s | %.0f | %.0f | %.0f | %+.0f |' % (name, alone, empty, attached, attached - empty), flush=True)
