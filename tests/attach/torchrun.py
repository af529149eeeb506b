#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torchrun.py RANKS PROGRAM ARGUMENT...

Starts ranks of one host with the variables that torchrun sets (Debian's own fails under Python 3.11). Each has a made-up
board, whose writes go to `writes.RANK` in $FOLDER. Prints how often the ranks have exchanged files.
"""
import os
import re
import socket
import subprocess
import sys

ranks, program = int(sys.argv[1]), sys.argv[2:]
with socket.socket() as made:
    made.bind(('127.0.0.1', 0))
    port = made.getsockname()[1]
job = dict(os.environ, WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), GROUP_RANK='0', GROUP_WORLD_SIZE='1',
           ROLE_NAME='default', ROLE_WORLD_SIZE=str(ranks), MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port),
           TORCHELASTIC_RESTART_COUNT='0', TORCHELASTIC_MAX_RESTARTS='0', TORCHELASTIC_RUN_ID='none',
           TORCHELASTIC_USE_AGENT_STORE='True', OMP_NUM_THREADS='1')
running = [subprocess.Popen(program, env=dict(job, RANK=str(rank), LOCAL_RANK=str(rank), ROLE_RANK=str(rank),
                                              CUDA_DOUBLE_ADDRESS=f'0000:{0x60 + rank:02x}:00.0',
                                              NVML_DOUBLE_LOG=os.path.join(os.environ['FOLDER'], f'writes.{rank}')))
           for rank in range(ranks)]
status = max(abs(each.wait()) for each in running)
folder = os.path.join(os.environ.get('KDVFS_LOCAL_RANKS', ''), 'kdvfs-tuning')
turns = [int(found[1]) for found in (re.search(r'-(\d+)-answer$', name) for name in
                                     (os.listdir(folder) if os.path.isdir(folder) else ())) if found]
print('exchanged', max(turns, default=0))
sys.exit(status)
