#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `kdvfs tune` costs on the simulated H100 with noise as recorded (tuned_h100.cpp), at a bound of 1 %, latency 15 ms.

usage: tuning_cost.py KDVFS TUNED_H100 [SECONDS OF A RUN [BOUND]]
"""
import json
import os
import re
import subprocess
import sys
import tempfile

kdvfs, program = sys.argv[1:3]
length = sys.argv[3] if len(sys.argv) > 3 else '300'
bound = sys.argv[4] if len(sys.argv) > 4 else '1%'
with tempfile.TemporaryDirectory() as folder:
    said = subprocess.run([kdvfs, 'tune', '--max-slowdown', bound, '--switch-latency', '15ms', '-o', folder, '--', program,
                           length], capture_output=True, text=True)
    kept = os.path.join(folder, 'kept.json')
    if not os.path.exists(kept):
        sys.exit('nothing was kept: ' + said.stdout + said.stderr)
    log = open(os.path.join(folder, 'program.log')).read()
    runs = [float(seconds) for seconds in re.findall(r'^([0-9.e+]+) s [0-9.e+]+ J, simulated$', log, re.M)]
    found = json.load(open(kept))
    swept = re.findall(r'sweep done: ([0-9]+ of [0-9]+) clock points', said.stderr)
    print(said.stdout)
    print('simulated H100: %d runs and %.0f GPU seconds in the log, %s clock points; exit status %d' % (
        len(runs), sum(runs), swept[-1] if swept else '?', said.returncode))
    print('energy promised %+.2f %%, kept %+.2f %%; time promised %+.2f %%, kept %+.2f %%' % (
        found['promised']['energy_pct'], found['energy']['mean_pct'], found['promised']['time_pct'],
        found['time']['mean_pct']))
