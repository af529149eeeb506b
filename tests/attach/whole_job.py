#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""whole_job.py KDVFS LIBRARY CUPTI NVML PROGRAM RANKS KILLED

A job of RANKS processes on four made-up hosts (names by `unshare --uts`), each with a board of its own, either
side round: `mpirun kdvfs run` and `kdvfs run mpirun`. KILLED of them, drawn at random, are killed: the program, or
`kdvfs run` around it. All others must have their report, and the sum that `kdvfs merge` prints must be what the boards
have counted, which the double of CUDA's driver says by itself. Exit status 77: cannot be tried here.
"""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

kdvfs, library, cupti, nvml, program = sys.argv[1:6]
ranks, killed = int(sys.argv[6]), int(sys.argv[7])
hosts = 4
seed = int(os.environ.get('WHOLE_JOB_SEED', time.time_ns() % 1_000_000))
random.seed(seed)
folder = tempfile.mkdtemp(prefix='whole_job_')

if shutil.which('mpirun') is None or subprocess.run(['unshare', '--uts', 'true']).returncode != 0:
    print('no mpirun, or host names cannot be made up here')
    sys.exit(77)

# A rank on its host. What it becomes has the number that it leaves behind.
with open(f'{folder}/rank.sh', 'w') as file:
    file.write(f'''#!/bin/sh
rank=$OMPI_COMM_WORLD_RANK
export CUDA_DOUBLE_ADDRESS=$(printf '0000:%02x:00.0' $((16 + rank / {hosts})))
export CUDA_DOUBLE_COUNTER={folder}/$ROUND/counter.$rank
echo $$ >{folder}/$ROUND/pid.$rank
exec unshare --uts sh -c "hostname node$((rank % {hosts})); exec \\"\\$@\\"" rank "$@"
''')
os.chmod(f'{folder}/rank.sh', 0o755)

environment = dict(os.environ, KDVFS_ATTACH=library, KDVFS_CUPTI=cupti, KDVFS_NVML=nvml,
                   KDVFS_RECORDS=f'{folder}/records', OMPI_ALLOW_RUN_AS_ROOT='1',
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
# Ranks that are killed do not end the others.
mpirun = ['mpirun', '--oversubscribe', '--mca', 'orte_abort_on_non_zero_status', '0',
          '--mca', 'orte_enable_recovery', '1', '-n', str(ranks), f'{folder}/rank.sh']
iterations = '600'  # five seconds
least = 0.99
wrong = []


def check(fine, words):
    if not fine:
        wrong.append(words)


def processes_below(pid):
    found, todo = [], [pid]
    while todo:
        at = todo.pop()
        try:
            with open(f'/proc/{at}/task/{at}/children') as file:
                children = [int(each) for each in file.read().split()]
        except OSError:
            continue
        found += children
        todo += children
    return found


def executable(pid):
    try:
        return os.readlink(f'/proc/{pid}/exe')
    except OSError:
        return ''


def counter(round_, rank):
    """Joules of a board: in all, and from its first work to its last."""
    with open(f'{folder}/{round_}/counter.{rank}', 'rb') as file:
        now, first, last = struct.unpack('3d', file.read(24))
    return now, last - first


def works(round_, rank):
    try:
        return counter(round_, rank)[1] > 0
    except (OSError, struct.error):
        return False


def wait_for(condition, seconds=120):
    end = time.time() + seconds
    while not condition():
        if time.time() > end:
            return False
        time.sleep(0.05)
    return True


def run(round_, words):
    os.mkdir(f'{folder}/{round_}')
    job = subprocess.Popen(words, env=dict(environment, ROUND=round_), stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True, start_new_session=True)
    begun = wait_for(lambda: all(works(round_, rank) for rank in range(ranks)))
    check(begun, f'{round_}: not all ranks have begun')
    time.sleep(1.5)  # reports are written each second
    victims = set()
    for rank in random.sample(range(ranks), killed):
        with open(f'{folder}/{round_}/pid.{rank}') as file:
            pid = int(file.read())
        below = [each for each in processes_below(pid) if executable(each) == os.path.realpath(program)]
        # Of `mpirun kdvfs run`, in turn: the program below it, or kdvfs itself, which takes it along.
        kills_program = bool(below) and len(victims) % 2 == 0
        victims.add(rank)
        os.kill(below[0] if kills_program else pid, signal.SIGKILL)
        time.sleep(random.random() * 0.05)
    error = job.communicate(timeout=240)[1]
    return victims, error


def total(report):
    return report['totals']['counter_j'] + report['totals']['outside_j']


def compare(round_, merged, lived, victims):
    # A launcher whose libraries look for GPUs has a report, too, with no kernel in it.
    ranked = [each for each in merged['processes'] if each['rank'] != '']
    for each in merged['processes']:
        rows = [row for device in each['devices'] for row in device['report']['rows']]
        check(each in ranked or not rows, f'{round_}: a process without a rank has kernels')
    by_rank = {int(each['rank']): each for each in ranked}
    missing = [rank for rank in lived if rank not in by_rank]
    check(not missing, f'{round_}: no report of ranks {missing} that lived')
    names = {(each['host'], each['devices'][0]['report']['device']['address']) for each in ranked}
    check(len(names) == len(by_rank), f'{round_}: {len(by_rank)} ranks on {len(names)} boards')
    check(not merged['totals']['shared_boards'], f'{round_}: boards are taken for shared')
    truth = sum(counter(round_, rank)[0] for rank in by_rank)
    told = total(merged)
    parts = sum(total(each['devices'][0]['report']) for each in by_rank.values())
    check(abs(told - parts) < 1e-6 * parts, f'{round_}: {told} J merged, {parts} J in the reports')
    # A counter counts before it is read first, and behind the last report of a rank that was killed. Of those that
    # lived it is read from before the first work to behind the last.
    check(told <= 1.001 * truth, f'{round_}: {told} J, but the boards counted {truth}')
    lowest, its_sum, work_sum = 2, 0, 0
    for rank in lived:
        if rank not in by_rank:
            continue
        its = total(by_rank[rank]['devices'][0]['report'])
        counted, of_work = counter(round_, rank)
        lowest, its_sum, work_sum = min(lowest, its / of_work), its_sum + its, work_sum + of_work
        check(by_rank[rank]['ended'], f'{round_}: rank {rank} has not ended')
        check(least * of_work < its <= 1.001 * counted, f'{round_}: rank {rank}: {its} J of {of_work} to {counted}')
    for rank in victims:
        if rank in by_rank:
            check(not by_rank[rank]['ended'], f'{round_}: rank {rank} was killed and has ended')
    print(f'{round_}: {len(by_rank)} of {ranks} ranks reported, {len(victims)} killed, '
          f'{told:.1f} J told of {truth:.1f}; of those that lived {its_sum:.1f} J told, {work_sum:.1f} J from the first '
          f'work to the last, lowest ratio {lowest:.4f}')


try:
    victims, error = run('inside', mpirun + [kdvfs, 'run', '--report', f'{folder}/inside/%h.%r.json', '--',
                                             program, iterations])
    reports = [f'{folder}/inside/{each}' for each in os.listdir(f'{folder}/inside') if each.endswith('.json')]
    subprocess.run([kdvfs, 'merge', *reports, '-o', f'{folder}/inside.json'], check=True, env=environment)
    with open(f'{folder}/inside.json') as file:
        compare('inside', json.load(file), [rank for rank in range(ranks) if rank not in victims], victims)

    victims, error = run('outside', [kdvfs, 'run', '--report', f'{folder}/outside.json', '--'] + mpirun +
                         [program, iterations])
    check(os.path.exists(f'{folder}/outside.json'), f'outside: no report: {error}')
    with open(f'{folder}/outside.json') as file:
        compare('outside', json.load(file), [rank for rank in range(ranks) if rank not in victims], victims)
finally:
    shutil.rmtree(folder, ignore_errors=True)
for words in wrong:
    print('WRONG:', words)
if wrong:
    print('seed', seed)
sys.exit(1 if wrong else 0)
