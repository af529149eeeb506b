#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""slurm_job.py KDVFS LIBRARY RESTORE FUSE PROGRAM SOURCE [short]

Debian's Slurm on this machine, which stands for two nodes of two virtual GPUs each, with the prolog and the epilog
that docs/cluster.md shows: for AMD on one node, for NVIDIA on the other. Jobs of a user who is not root run a program
by a plan. They end by themselves, are requeued, cancelled, or killed with their watchdogs, as a cgroup does. Each time
the boards hold what they did before, the files are root's again, and the ranks have their reports, also those of the
run before a requeue. `short` leaves requeue and cancel out. Exit status 77: it cannot be tried here.
"""
import glob
import json
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

needed = ('slurmctld', 'slurmd', 'srun', 'munged', 'setpriv', 'unshare')
absent = [each for each in needed if shutil.which(each) is None]
if absent or os.geteuid() != 0 or not os.access('/dev/fuse', os.W_OK):
    print('skipped: no', ', '.join(absent) or 'root and /dev/fuse', 'here')
    sys.exit(77)
if os.environ.get('SLURM_JOB_TEST') != 'inside':
    isolated = ['unshare', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc']
    if subprocess.run(isolated + ['mount', '-t', 'tmpfs', 'none', '/run'], check=False).returncode != 0:
        print('skipped: no namespaces can be made here')
        sys.exit(77)
    sys.exit(subprocess.run(isolated + [sys.executable] + sys.argv, check=False,
                            env=dict(os.environ, SLURM_JOB_TEST='inside')).returncode)

kdvfs, library, restore, fuse, program, source = map(os.path.realpath, sys.argv[1:7])
user = pwd.getpwnam('nobody')
addresses = ['0000:c1:00.0', '0000:c4:00.0', '0000:c7:00.0', '0000:ca:00.0']
folder = tempfile.mkdtemp(prefix='slurm_job_')
wrong = []


def check(fine, words):
    if not fine:
        wrong.append(words)


def write(name, text, mode=0o644):
    path = f'{folder}/{name}'
    with open(path, 'w') as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def wait_for(condition, words, seconds=30):
    end = time.time() + seconds
    while not condition():
        if time.time() > end:
            check(False, words)
            return False
        time.sleep(0.02)
    return True


def documented(which):
    """The two prologs of docs/cluster.md, of AMD and NVIDIA, as the prolog or the epilog; paths are this test's."""
    with open(f'{source}/docs/cluster.md') as page:
        blocks = re.findall(r'```sh\n(#!/bin/sh\n# /etc/slurm/kdvfs_prolog.sh.*?)```', page.read(), re.S)
    assert len(blocks) == 2 and 'amd-smi' in blocks[0] and 'nvidia-smi' in blocks[1]
    for text in blocks:
        text = text.replace('/usr/local/share/kdvfs', f'{source}/tools/restore').replace('/usr/local/bin', f'{folder}/bin')
        yield text.replace('prolog', which).removeprefix('#!/bin/sh\n')


def start_slurm():
    os.chmod(folder, 0o755)
    for name in ('bin', 'state', 'out'):
        os.mkdir(f'{folder}/{name}')
    os.chown(f'{folder}/out', user.pw_uid, user.pw_gid)
    os.symlink(restore, f'{folder}/bin/kdvfs-restore')
    # What the vendors' tools print of the two boards of the node that Slurm says this is.
    write('bin/amd-smi', '#!/bin/sh\nprintf "gpu,gpu_bdf,gpu_uuid\\n0,0000:c1:00.0,a\\n1,0000:c4:00.0,b\\n"\n', 0o755)
    write('bin/nvidia-smi', '''#!/bin/sh
while [ "$1" != -i ]; do shift; done
case $2 in "") echo "No devices were found"; exit 6 ;; esac
for gpu in $(echo "$2" | tr , " "); do echo "00000000:C7:00.0 00000000:CA:00.0" | cut -d" " -f$((gpu + 1)); done
''', 0o755)
    for which in ('prolog', 'epilog'):
        amd, nvidia = documented(which)
        write(which, f'#!/bin/sh\nif [ "$SLURMD_NODENAME" = n0 ]; then\n{amd}else\n{nvidia}fi\n', 0o755)
    os.mkdir('/run/munge')
    with open(f'{folder}/key', 'wb') as key:
        key.write(os.urandom(64))
    os.chmod(f'{folder}/key', 0o400)
    subprocess.run(['munged', '--force', f'--key-file={folder}/key', f'--socket={folder}/munge', f'--log-file={folder}/munged.log',
                    f'--pid-file={folder}/munged.pid', f'--seed-file={folder}/seed'],
                   check=True, stderr=subprocess.DEVNULL)
    for minor in (3, 5):
        os.mknod(f'{folder}/gpu{minor}', stat.S_IFCHR | 0o666, os.makedev(1, minor))
    write('gres.conf', f'NodeName=n[0-1] Name=gpu File={folder}/gpu[3,5]\n')
    os.environ['SLURM_CONF'] = write('slurm.conf', f'''
ClusterName=made_up
SlurmctldHost={os.uname().nodename}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
MailProg=/bin/true
KillWait=2
Prolog={folder}/prolog
Epilog={folder}/epilog
NodeName=n[0-1] NodeHostname={os.uname().nodename} NodeAddr=127.0.0.1 Port=[{port + 1}-{port + 2}] CPUs=4 Gres=gpu:2
PartitionName=all Nodes=ALL Default=YES State=UP
''')
    subprocess.run(['slurmctld', '-i'], check=True)
    for node in ('n0', 'n1'):
        subprocess.run(['slurmd', '-N', node], check=True)
    return wait_for(idle, 'Slurm does not start')


def idle():
    listed = subprocess.run(['sinfo', '-h', '-N', '-o', '%T'], stdout=subprocess.PIPE, text=True, check=False).stdout
    return listed.split() == ['idle', 'idle']


def settings():
    found = []
    for gpu in range(4):
        with open(f'/sys/control/gpu{gpu}') as file:
            found.append(file.read().strip())
    return found


def owners():
    files = [f'/sys/bus/pci/devices/{each}/power_dpm_force_performance_level' for each in addresses]
    return {os.stat(each).st_uid for each in files + glob.glob('/run/kdvfs/*.lock')}


def as_user(*words):
    return subprocess.Popen(['setpriv', '--reuid', 'nobody', '--regid', str(user.pw_gid), '--clear-groups', *words],
                            env=dict(environment), cwd=f'{folder}/out', stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def steps(iterations):
    return ['srun', '--nodes=2', '--ntasks-per-node=2', '--gpus-per-node=2', '--export=ALL', f'{folder}/rank.sh', kdvfs, 'run',
            '--preload', '--meter', '1', '--iteration', 'step', '--plan', f'{folder}/plan.json', '--report', '%j.%r.json', '--',
            program, str(iterations)]


def submit(iterations):
    script = write('job.sh', '#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --output=job.log\n'
                   'exec ' + ' '.join(steps(iterations)).replace('srun', 'srun --kill-on-bad-exit=0', 1) + '\n', 0o755)
    job = as_user('sbatch', '--parsable', script).communicate()[0].strip()
    check(job.isdigit(), f'sbatch: {job}')
    return job


def clocks_are_set():
    return all(now != before for now, before in zip(settings(), found))


def all_report():
    """Whether each rank has written what it knows, as it does each second."""
    shown = as_user(kdvfs, 'top', '--once', '--json').communicate()[0]
    return shown.startswith('{') and json.loads(shown)['processes'] == 4 and 'gemm' in shown


def state_of(job):
    return subprocess.run(['squeue', '-h', '-j', job, '-o', '%T'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout.strip()


def over(words):
    """Behind the epilogs."""
    wait_for(idle, f'{words}: nodes are not idle again')
    check(settings() == found, f'{words}: boards hold {settings()}, before {found}')
    check(owners() == {0}, f'{words}: files belong to {owners()}')


def reports(job, words, ended):
    for rank in range(4):
        try:
            with open(f'{folder}/out/{job}.{rank}.json') as file:
                report = json.load(file)['processes'][0]
        except (OSError, ValueError, LookupError) as error:
            check(False, f'{words}: rank {rank} has no report: {error}')
            continue
        check((report['rank'], report['ended']) == (str(rank), ended), f'{words}: {report["rank"]}, ended: {report["ended"]}')
        rows = [row for device in report['devices'] for row in device['report']['rows']]
        slow = [row for row in rows if row['kernel'] == 'gemm' and row['asked']['core_mhz'] == 900]
        check(slow, f'{words}: rank {rank} has no kernel at the plan\'s clock')


def try_all():
    global boards, found
    begun = time.time()

    def done(words):
        nonlocal begun
        print(f'{words}: {time.time() - begun:.1f} s', flush=True)
        begun = time.time()

    if not start_slurm():  # it looks for cores in /sys
        return
    boards = subprocess.Popen([fuse, '/sys'], env=dict(os.environ, KDVFS_VIRTUAL_BOARDS='mi210 mi210 mi210 mi210'))
    if not wait_for(lambda: os.path.exists('/sys/control/gpu3'), 'no virtual boards'):
        return
    for gpu in range(4):
        os.chmod(f'/sys/control/gpu{gpu}', 0o666)  # its program says when a kernel runs
    found = settings()
    done('Slurm and boards start')
    # Without a GPU nobody is given one.
    job = as_user('srun', '--nodes=2', 'true')
    check((job.communicate()[0], job.returncode) == ('', 0), 'a job without a GPU fails')
    over('no GPU')
    done('a job without a GPU')

    job = as_user(*steps(30))
    wait_for(clocks_are_set, 'srun: clocks are not set')
    check(owners() == {user.pw_uid}, f'srun: files belong to {owners()}')
    printed = job.communicate()[0]
    check(job.returncode == 0, f'srun: {job.returncode}: {printed}')
    over('srun')
    first = min(glob.glob(f'{folder}/out/*.0.json'), default='0/0.').split('/')[-1].split('.')[0]
    reports(first, f'srun: {printed}', True)
    done('srun')
    if 'short' not in sys.argv:
        requeue_and_cancel(done)

    # Above it was the watchdogs that put the clocks back, here the epilog has to.
    job = submit(1000)
    wait_for(clocks_are_set, 'kill: clocks are not set')
    as_user(sys.executable, '-c', 'import os; os.kill(-1, 9)').communicate()
    check(settings() != found, 'kill: a watchdog was left')
    over('kill')
    done('all processes of the user killed')


def requeue_and_cancel(done):
    job = submit('$([ -n "$SLURM_RESTART_COUNT" ] && echo 20 || echo 1000)')
    wait_for(clocks_are_set, 'requeue: clocks are not set')
    wait_for(all_report, 'requeue: kdvfs top does not show four ranks')
    subprocess.run(['scontrol', 'requeue', job], check=True)
    wait_for(lambda: state_of(job) == 'PENDING', f'requeue: {state_of(job)}')
    over('requeue')
    reports(job, 'requeue', False)
    wait_for(clocks_are_set, 'requeue: clocks are not set again')
    wait_for(lambda: state_of(job) == '', 'requeue: does not end')
    over('requeued')
    reports(f'{job}.restart1', 'requeued', True)
    reports(job, 'requeue, after the restart', False)
    done('requeue')

    job = submit(1000)
    wait_for(clocks_are_set, 'scancel: clocks are not set')
    wait_for(all_report, 'scancel: kdvfs top does not show four ranks')
    as_user('scancel', job).communicate()
    over('scancel')
    reports(job, 'scancel', False)
    done('scancel')


environment = {key: value for key, value in os.environ.items() if not key.startswith(('KDVFS_', 'SLURM_'))}
environment.update(KDVFS_ATTACH=library, KDVFS_RUN_SLOWDOWN='1000', HOME=f'{folder}/out', SLURM_CONF=f'{folder}/slurm.conf')
port = 17100
found = []
boards = None
try:
    for at in ('/run', '/dev/shm'):
        subprocess.run(['mount', '-t', 'tmpfs', '-o', 'mode=755', 'none', at], check=True)
    write('rank.sh', '#!/bin/sh\nexport HIP_DOUBLE_BOARD=$((2 * SLURM_NODEID + SLURM_LOCALID + 1))\nexec "$@"\n', 0o755)
    row = dict(variant=7, count=8, core_mhz=900, mem_mhz=-1, time_pct=0, energy_pct=0, time_s=0.0032, baseline_time_s=0.0032,
               energy_j=1.6, baseline_energy_j=1.6)
    cost = dict(time_s=0.01, energy_j=5.0, core_mhz=-1, mem_mhz=-1)
    write('plan.json', json.dumps(dict(
        gpu='AMD Instinct MI210', objective='waste', max_slowdown_pct=2.0, baseline=cost,
        plan=dict(aggregate='global', time_s=0.01, energy_j=5.0, time_pct=0, energy_pct=0, gap_pct=0),
        kernels=[dict(row, kernel='gemm'), dict(row, kernel='norm<float>', variant=4)])), 0o444)
    try_all()
finally:
    subprocess.run(['umount', '-l', '/sys'], check=False)
    if boards is not None:
        boards.terminate()
    if wrong and os.environ.get('SLURM_JOB_KEEP'):
        print('kept:', folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
for words in wrong:
    print('WRONG:', words)
sys.exit(1 if wrong else 0)
