# SPDX-License-Identifier: MIT
"""Typical mistakes in Python: each is answered by one line, which names the mistake and, behind a semicolon, the fix."""

import math
import os
import re
import subprocess
import sys
import tempfile
import unittest

import kdvfs
import kdvfs.callbacks


def on_gpu(call):
    def run():
        with kdvfs.open_simulated("h100") as gpu:
            call(gpu)

    return run


def with_mode(mode, name="KDVFS_SWEEP_ROWS", value=""):
    def run():
        os.environ["KDVFS_MODE"] = mode
        if value:
            os.environ[name] = value
        try:
            on_gpu(lambda gpu: gpu.begin_session())()
        finally:
            del os.environ["KDVFS_MODE"]
            os.environ.pop(name, None)

    return run


def closed(call):
    def run():
        gpu = kdvfs.open_simulated("h100")
        gpu.close()
        call(gpu)

    return run


def twice_in_a_scope(gpu):
    scope = gpu.scope("gemm")
    with scope, scope:
        pass


def close_in_a_scope(gpu):
    with gpu.scope("gemm"):
        gpu.close()


def ended_request(gpu):
    request = gpu.request(gpu.core_clocks()[0])
    request.close()
    request.change(gpu.core_clocks()[0])


def session_in_a_scope(gpu):
    with gpu.scope("gemm"):
        gpu.begin_session()


def plan_in_a_session(gpu):
    gpu.begin_session()
    gpu.follow_plan("plan.json")


def step_in_a_step(gpu):
    with kdvfs.Steps(gpu) as steps, steps.step(sequences=1):
        steps.step(sequences=1)


def steps(call):
    def run(gpu):
        with kdvfs.Steps(gpu) as made:
            call(made)

    return on_gpu(run)


def combined(answer):
    def run(gpu):
        options = {"goal": "energy", "warmup_steps": 1, "measured_steps": 2, "ranks": 2}
        with kdvfs.PowerLimit(gpu, combine=lambda joules, seconds: answer, **options) as limit:
            for step in range(40):
                limit.step(100.0 * step, float(step))

    return on_gpu(run)


def sizes(*arguments):
    return lambda: kdvfs.BatchSize("sizes.json", "job", *arguments)


def outcome(*arguments):
    def run():
        job = kdvfs.BatchSize("good.json", "job", [8, 16], 8)
        run = job.suggest()
        job.observe(*(run if each is Ellipsis else each for each in arguments))

    return run


def limit(**options):
    return on_gpu(lambda gpu: kdvfs.PowerLimit(gpu, **options))


def opened(**options):
    return lambda: kdvfs.open_simulated("h100", **options)


def scope(*arguments, **options):
    return on_gpu(lambda gpu: gpu.scope(*arguments, **options).__enter__())


MISTAKES = [
    # Opening
    (lambda: kdvfs.open_simulated("a100"), "'a100'.*no such preset", "use mi300x"),
    (lambda: kdvfs.open_simulated(None), "None is no preset", "such as 'h100'"),
    (lambda: kdvfs.open("intel", 0), "no vendor 'intel'", "use 'amd' or 'nvidia'"),
    (lambda: kdvfs.open("NVIDIA", 0), "no vendor 'NVIDIA'", "'nvidia'"),
    (lambda: kdvfs.open("nvidia", "cuda:0"), "'cuda:0' is no PCI address", r"torch.cuda.current_device\(\)"),
    (lambda: kdvfs.open("nvidia", None), "None is no integer", r"torch.cuda.current_device\(\)"),
    (lambda: kdvfs.measure("nvidia", -1), "-1 is no integer", r"torch.cuda.current_device\(\)"),
    (lambda: kdvfs.open("amd", 0), "HIP device 0.*HIP error", "HIP_VISIBLE_DEVICES"),
    (lambda: kdvfs.measure("nvidia", 0), "libcuda.so.1 cannot be used|absent.so", "driver"),
    (lambda: kdvfs.measure("nvidia", "0000:1b:00.0"), "libnvidia-ml|NVML", "install NVIDIA's driver"),
    (opened(meter_every=0), "meter_every: it is 0", "use 1"),
    (opened(meter_every=1.5), "1.5 is no integer", "16 one in 16"),
    (opened(switch_latency="6ms"), "'6ms' is no number", "seconds, such as 0.006"),
    (opened(switch_latency=-1), "-1 is no number", "None says"),
    (opened(switch_latency=math.nan), "nan is no number", "seconds"),
    (opened(never_below_mhz=1500, never_above_mhz=900), "contradict", "change never_below or never_above"),
    (opened(idle_clock_mhz=-1), "idle_clock_mhz: -1", "in MHz"),
    # Scopes
    (lambda: kdvfs.scope("gemm"), "no GPUs are open", "open one first"),
    (scope(""), "'': this is not a kernel name", "printable ASCII"),
    (scope("gemmä"), "not a kernel name", "printable ASCII"),
    (scope(None), "its name is None", r"scope\('gemm'\)"),
    (scope("a\udcff"), "no valid text", "printable ASCII"),
    (scope("a\0b"), "has a null character", "printable ASCII"),
    (scope("gemm", memory_mhz=1), "memory_mhz=1 and follows the plan", "give core_mhz, too"),
    (on_gpu(lambda gpu: gpu.launch(matrix_flops=math.inf)), "more than 1e6 s", "of one launch"),
    (on_gpu(lambda gpu: gpu.launch(memory_bytes=1e30)), "more than 1e6 s", "of one launch"),
    (scope("gemm", stream=object()), "is no integer", "cuda_stream"),
    (scope("gemm", stream=12345), "no stream of this simulated GPU", r"gpu.stream\(\)"),
    (scope("gemm", core_mhz=1.4), "1.4 is no integer", r"give MHz, one of `core_clocks\(\)`"),
    (scope("gemm", core_mhz=123456), "not in the device's list", "pick clocks that"),
    (scope("gemm", variant=-1), "variant: -1", "number the shapes"),
    (on_gpu(twice_in_a_scope), "has been entered", "make a second one"),
    (on_gpu(close_in_a_scope), "have not ended", "end or close them first"),
    (closed(lambda gpu: gpu.next_iteration()), "has been closed", r"before close\(\)"),
    (closed(lambda gpu: gpu.report()), "has been closed", r"before close\(\)"),
    # Requests, plans, sessions
    (on_gpu(lambda gpu: gpu.request(99999)), "99999 MHz.*not in the device's list", "pick clocks"),
    (on_gpu(ended_request), "it has ended", "make another"),
    (on_gpu(lambda gpu: gpu.follow_plan("absent.json")), "absent.json: No such file", "kdvfs plan --format json"),
    (on_gpu(lambda gpu: gpu.follow_plan("bad.json")), "bad.json:1: this is no JSON", "write the file again"),
    (on_gpu(lambda gpu: gpu.follow_plan(None)), "None is no path", "give the file's name"),
    (on_gpu(lambda gpu: gpu.follow_plan("plan.json\0x")), r"plan.json.x00x' is no path", "give the file's name"),
    (on_gpu(lambda gpu: gpu.follow_plan(b"caf\xe9.json")), "caf\ufffd.json: No such file", "kdvfs plan --format json"),
    (on_gpu(plan_in_a_session), "plan.json: a session has begun", "set KDVFS_MODE=follow:PLAN"),
    (on_gpu(session_in_a_scope), "have not ended", "before the first scope"),
    (with_mode("sweep"), "KDVFS_MODE=sweep: this is no mode", "sweep:FILE"),
    (with_mode("swep:x.csv"), "KDVFS_MODE=swep:x.csv", "say off, measure"),
    (with_mode("follow:absent.json"), "absent.json: No such file", "kdvfs plan --format json"),
    (with_mode("sweep:absent/x.csv"), "absent/x.csv", "that the folder exists"),
    (with_mode("sweep:x.csv", "KDVFS_SWEEP_ROWS", "many"), "KDVFS_SWEEP_ROWS=many", "200 is the default"),
    (with_mode("sweep:x.csv", "KDVFS_SWEEP_SEED", "1.5"), "KDVFS_SWEEP_SEED=1.5: this is no count", "an integer"),
    (with_mode("sweep:x.csv", "KDVFS_SWEEP_EXCLUDE", "low"), "no list of clocks", "such as <900"),
    (with_mode("auto", "KDVFS_MAX_SLOWDOWN", "fast"), "KDVFS_MAX_SLOWDOWN=fast", "a number such as 2"),
    # Steps of an engine
    (steps(lambda made: made.step(-1)), "-1, 0, 0, one is no integer", "whole numbers"),
    (steps(lambda made: made.step(0, 1, 511.5).__enter__()), "511.5, one is no integer", "round"),
    (on_gpu(step_in_a_step), "has not ended", "leave it first"),
    (steps(lambda made: made.step(2**32 + 7, 1, 1)), "4294967303, 1, 1, one is no integer", "whole numbers"),
    (steps(lambda made: made.step(1, slack=None).__enter__()), "slack None or stream 0 is no number", "give seconds"),
    (steps(lambda made: made.step(1, prompt_context=1.5)), "prompt_context: 1.5 is no integer", "mean number"),
    (steps(lambda made: made.observe(-1, 1, 1, 0.1)), "-1, 1, 1, one is no integer", "whole numbers"),
    (steps(lambda made: made.observe(1, 1, 2**32, 0.1)), "4294967296, one is no integer", "whole numbers"),
    (steps(lambda made: made.ran(1, -1, 1, 0, 1)), "1, -1, 1, one is no integer", "whole numbers"),
    (steps(lambda made: made.plan("steps.csv", chunk_tokens=-1)), "chunk_tokens: -1 is no integer", "of one step"),
    (steps(lambda made: made.tune([1095.5, 1980])), "a core clock: 1095.5 is no integer", "give MHz"),
    (steps(lambda made: made.tune([1095, 2**32 + 1980])), "a core clock: 4294969276 is no integer", "give MHz"),
    (steps(lambda made: made.plan("absent.csv")), "absent.csv", "check the file's name"),
    (steps(lambda made: made.plan("steps.csv", policy="fast")), "'fast': there is no such policy", "no_harm"),
    (steps(lambda made: made.plan("steps.csv")), "there are no columns context", "docs/serving.md"),
    (steps(lambda made: made.observe(0, 8, 512, -1)), "no positive time", "how long the step took"),
    # Power limits and batch sizes
    (limit(goal="fast"), "goal 'fast'", "use energy, time"),
    (limit(goal="bounded_slowdown"), "no parameter is given", "0.05 for 5 %"),
    (limit(goal="bounded_slowdown", parameter=-3.0), "parameter", "a slowdown from 0"),
    (limit(warmup_steps="ten"), "'ten' is no integer", "number of steps"),
    (limit(warmup_steps=1.7), "1.7 is no integer", "number of steps"),
    (limit(ranks=-1), "ranks: -1 is no integer", r"kdvfs.Ranks\(\)"),
    (on_gpu(lambda gpu: kdvfs.PowerLimit(gpu).epoch_cost(-1)), "steps: -1 is no integer", "an epoch has"),
    (lambda: kdvfs.Requests().step([kdvfs.RequestWork(0, -1)]), "answer_tokens=-1.*one is no integer", "whole numbers"),
    (lambda: kdvfs.Requests().fit([(0, 1.5)], 20), r"\(0, 1.5\) one is no integer", "whole numbers"),
    (lambda: kdvfs.Requests().finish(2**32), "a request: 4294967296 is no integer", r"open\(\) returned"),
    (lambda: kdvfs.Requests().open("x\0y"), "'x.x00y' is no text", "give a name"),
    (lambda: kdvfs.Requests().open(7), "7 is no text", "give a name"),
    (lambda: kdvfs.BatchSize("sizes.json", "job\0", [8], 8), "'job.x00' is no text", "give a name"),
    (limit(measured_steps=0), "nothing can be measured", "measure some steps"),
    (limit(ranks=2), "they have no `combine`", r"ranks=kdvfs.Ranks\(\)"),
    (combined(None), "`combine` returned None", r"return \(joules, seconds\)"),
    (sizes([8, 16], 32), "the usual one, 32, is not among them", "give distinct sizes"),
    (sizes([-8], -8), "-8 is no integer", "integers above 0"),
    (sizes([2**32 + 8], 8), "4294967304 is no integer", "integers above 0"),
    (sizes(["8"], 8), "'8' is no integer", "integers above 0"),
    (outcome(..., "done", 1, 1), "the end 'done'", "use reached"),
    (outcome(..., "reached", -1, 1), "epochs: -1", "how many epochs"),
    (outcome(None, "reached", 1, 1), "None is none", r"what suggest\(\) returned"),
    # Ranks
    (lambda: kdvfs.Ranks(rank=0), "rank and size belong together", "give both"),
    (lambda: kdvfs.Ranks(rank=4, size=4), "rank 4 of 4", "from 0 to 3"),
    (lambda: kdvfs.Ranks(), "RANK and WORLD_SIZE", "start the program with torchrun"),
    (lambda: kdvfs.Ranks(rank=0, size=2), "not initialized", "init_process_group"),
    (lambda: kdvfs.Ranks(object(), 0, 2), "no method set", "FolderStore"),
    (lambda: kdvfs.Ranks(rank=0, size=1).gather(object()), "cannot send a value", "what JSON knows"),
    (lambda: kdvfs.FolderStore(".", job="../other"), "cannot name a job", "use letters"),
    (lambda: kdvfs.FolderStore("."), "no scheduler's number", "give FolderStore job="),
]


class Mistakes(unittest.TestCase):
    def test_each_names_the_mistake_and_the_fix_in_one_line(self):
        for call, mistake, fix in MISTAKES:
            with self.subTest(mistake=mistake), self.assertRaises(kdvfs.Error) as caught:
                call()
            text = str(caught.exception)
            with self.subTest(text=text):
                self.assertRegex(text, f"^[^\n]*({mistake})[^\n]*; ?[^\n]*({fix})[^\n]*$")
        print(f"{len(MISTAKES)} mistakes")
        self.assertGreater(len(MISTAKES), 40)

    def test_missing_packages_are_named(self):
        for name, module in (("lightning", "lightning"), ("transformers", "transformers")):
            kept = {key: sys.modules.get(key) for key in ("lightning.pytorch", "pytorch_lightning", "transformers")}
            sys.modules.update(dict.fromkeys(kept, None))  # as not installed
            try:
                with self.assertRaisesRegex(kdvfs.Error, f"is missing; install {module}"), tempfile.TemporaryDirectory():
                    getattr(kdvfs.callbacks, name)(None)
            finally:
                for key, value in kept.items():
                    if value is None:
                        del sys.modules[key]
                    else:
                        sys.modules[key] = value

    def test_python_keeps_its_own_open(self):
        names = {}
        exec("from kdvfs import *", names)
        self.assertNotIn("open", names)
        self.assertIn("measure", names)

    def test_a_library_that_cannot_be_loaded(self):
        package = os.path.dirname(os.path.dirname(os.path.abspath(kdvfs.__file__)))
        for named in ("/nonexistent/libkdvfs_c.so", __file__, "libc.so.6"):
            environment = {**os.environ, "KDVFS_LIBRARY": named, "PYTHONPATH": package}
            run = subprocess.run([sys.executable, "-c", "import kdvfs"], env=environment, capture_output=True, text=True)
            last = run.stderr.strip().split("\n")[-1]
            self.assertRegex(last, f"ImportError: cannot .*{re.escape(named)}.*; set KDVFS_LIBRARY to the path")


if __name__ == "__main__":
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "SLURM_JOB_ID", "PBS_JOBID",
                 "LSB_JOBID", "FLUX_JOB_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "KDVFS_MODE"):
        os.environ.pop(name, None)
    os.environ["KDVFS_NVML"] = "absent.so"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("bad.json", "w") as file:
            file.write("{")
        with open("steps.csv", "w") as file:
            file.write("phase,batch\n")
        program = unittest.main(exit=False)
        os.chdir("/")
    sys.exit(not program.result.wasSuccessful())
