# SPDX-License-Identifier: MIT
"""The Python package, and through it the C interface, on simulated GPUs."""

import contextlib
import copy
import ctypes
import importlib
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import kdvfs
from kdvfs import _library


def run(gpu, times, **clock):
    for _ in range(times):
        gpu.next_iteration()
        with gpu.phase("forward"):
            with gpu.scope("gemm"):
                gpu.launch(matrix_flops=4e13, memory_bytes=1e9)
            with gpu.scope("copy", **clock):
                gpu.launch(memory_bytes=2e11)
        gpu.synchronize()


def row(gpu, name):
    rows = [row for row in gpu.report()["rows"] if row["kernel"] == name]
    assert len(rows) == 1, rows
    return rows[0]


class Measures(unittest.TestCase):
    def test_joules_of_a_report_add_up_to_what_the_board_drew(self):
        with kdvfs.open_simulated("mi300x", meter_every=1) as gpu:
            run(gpu, 20)
            _, drawn = gpu.totals()
            told = sum(row(gpu, name)["energy"]["joules"] for name in ("gemm", "copy"))
            self.assertLess(abs(told - drawn), 0.05 * drawn)
            self.assertEqual(row(gpu, "gemm")["calls"], 20)
            self.assertTrue(gpu.report()["device"]["simulated"])

    def test_a_scope_runs_at_the_clock_that_its_call_asks_for(self):
        with kdvfs.open_simulated("h100", meter_every=1) as gpu:
            low = gpu.core_clocks()[0]
            run(gpu, 5, core_mhz=low)
            self.assertEqual(row(gpu, "copy")["asked"]["core_mhz"], low)

    def test_compute_bound_work_takes_time_inversely_to_the_requested_clock(self):
        seconds = []
        for clock in (600, 900):
            with kdvfs.open_simulated("mi300x") as gpu, gpu.request(clock):
                for _ in range(50):
                    gpu.launch(matrix_flops=4e13)
                gpu.synchronize()
                seconds.append(gpu.totals()[0])
        self.assertAlmostEqual(seconds[0] / seconds[1], 900 / 600, delta=0.05)

    def test_every_preset_opens(self):
        for preset in ("mi300x", "mi250x", "mi210", "h100", "rtx3080ti"):
            with kdvfs.open_simulated(preset) as gpu:
                run(gpu, 1)
                self.assertGreater(gpu.totals()[1], 0)


class ScopesOfOneName(unittest.TestCase):
    def test_a_scope_that_nobody_holds_is_made_once(self):
        with kdvfs.open_simulated("h100") as gpu:
            first = id(gpu.scope("gemm"))
            self.assertEqual(id(gpu.scope("gemm")), first)
            self.assertNotEqual(id(gpu.scope("gemm", core_mhz=1000)), first)

    def test_scopes_of_one_name_nest_and_are_counted_each(self):
        with kdvfs.open_simulated("h100", meter_every=1) as gpu:
            gpu.next_iteration()
            held = gpu.scope("gemm")
            with held, gpu.scope("gemm") as inner:
                self.assertIsNot(inner, held)
                gpu.launch(memory_bytes=1e9)
            gpu.synchronize()
            self.assertEqual(row(gpu, "gemm")["calls"], 2)

    def test_a_scope_of_a_closed_gpu_raises(self):
        gpu = kdvfs.open_simulated("h100")
        made = gpu.scope("gemm")
        gpu.close()
        with self.assertRaises(kdvfs.Error):
            made.__enter__()

    def test_the_one_open_gpu_needs_no_name(self):
        with self.assertRaisesRegex(kdvfs.Error, "no GPUs are open; open one first"):
            kdvfs.scope("gemm")
        with kdvfs.open_simulated("h100", meter_every=1) as gpu:
            gpu.next_iteration()
            with kdvfs.phase("step"), kdvfs.range("forward"), kdvfs.scope("gemm"):
                gpu.launch(memory_bytes=1e9)
            gpu.synchronize()
            self.assertEqual(row(gpu, "gemm")["calls"], 1)
            self.assertEqual({level["kernel"] for level in gpu.report()["levels"]} & {"step", "forward"},
                             {"step", "forward"})
            with kdvfs.open_simulated("h100"):
                with self.assertRaisesRegex(kdvfs.Error, "2 GPUs are open; call `scope` of one"):
                    kdvfs.scope("gemm")


class Worth(unittest.TestCase):
    def test_ranges_are_of_what_the_gpu_has_counted(self):
        with kdvfs.open_simulated("mi300x", meter_every=1) as gpu:
            for _ in range(200):
                gpu.next_iteration()
                with gpu.scope("gemm"):
                    gpu.launch(matrix_flops=4e13, memory_bytes=1e9)
            gpu.synchronize()
            totals = gpu.report()["totals"]
            found = kdvfs.worth()
            self.assertTrue(found["gpu"].startswith("simulated"), found["gpu"])
            self.assertEqual((found["power_limit_w"], found["energy_j"]), (750, totals["counter_j"]))
            self.assertAlmostEqual(found["busy_w"], totals["counter_j"] / totals["counted_time_s"], delta=2)
            at_most = {row["max_slowdown_pct"]: row["high_pct"] for row in found["by_kernel"]}
            self.assertIsNone(at_most[0])
            self.assertTrue(0 < at_most[1] < at_most[5] < 40, at_most)
            self.assertEqual(gpu.worth(600)["power_limit_w"], 600)

    def test_it_is_refused_where_it_would_not_be_true(self):
        with kdvfs.open_simulated("mi300x", meter_every=1, switch_latency=0) as gpu:
            with self.assertRaisesRegex(kdvfs.Error, "no energy of kernels.*run it for longer"):
                gpu.worth()
            with self.assertRaisesRegex(kdvfs.Error, "power_limit_w: -1.*give watts"):
                gpu.worth(-1)
            gpu.next_iteration()
            with gpu.scope("gemm", core_mhz=1000):
                gpu.launch(matrix_flops=4e14, memory_bytes=1e9)
            gpu.synchronize()
            with self.assertRaisesRegex(kdvfs.Error, "clocks have been set in this run.*measure it alone"):
                gpu.worth()


SWEPT = """
import kdvfs
with kdvfs.open_simulated("h100", meter_every=1) as gpu:
    gpu.begin_session()
    steps = 0
    while not gpu.session_done and steps < 50000:
        gpu.next_iteration()
        with gpu.scope("gemm"):
            gpu.launch(matrix_flops=8e12, memory_bytes=1e9)
        with gpu.scope("gelu"):
            gpu.launch(vector_flops=1e10, memory_bytes=4e10)
        gpu.synchronize()
        steps += 1
"""


class Sessions(unittest.TestCase):
    def test_the_environment_lets_a_program_sweep_its_kernels(self):
        with tempfile.TemporaryDirectory() as folder:
            profile = os.path.join(folder, "profile.csv")
            environment = {**os.environ, "KDVFS_MODE": "sweep:" + profile}
            subprocess.run([sys.executable, "-c", SWEPT], env=environment, check=True, timeout=100)
            with open(profile) as file:
                rows = [line.split(",") for line in file if not line.startswith("#")]
            self.assertEqual({row[1] for row in rows[1:]}, {"gemm", "gelu"})
            self.assertGreater(len(rows), 20)

    def test_without_an_environment_scopes_are_measured(self):
        with kdvfs.open_simulated("mi210", meter_every=1) as gpu:
            gpu.begin_session()
            self.assertTrue(gpu.session_done)
            run(gpu, 5)
            self.assertEqual(row(gpu, "gemm")["calls"], 5)

    def test_a_session_begins_before_the_first_scope(self):
        with kdvfs.open_simulated("mi210") as gpu, gpu.scope("gemm"):
            with self.assertRaises(kdvfs.Error) as caught:
                gpu.begin_session()
            self.assertIn("before the first scope", str(caught.exception))


def program_of_the_manual(words):
    """The Python program in docs/python.md that has these words."""
    manual = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/python.md")
    with open(manual) as file:
        (found,) = [text for text in re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL) if words in text]
    return found


class Documents(unittest.TestCase):
    def test_the_program_of_the_manual_can_be_tuned(self):
        program = program_of_the_manual("gpu.begin_session()").replace("20000", "2000")
        with tempfile.TemporaryDirectory() as folder:
            for mode in ("measure", "sweep:profile.csv"):
                environment = {**os.environ, "KDVFS_MODE": mode, "KDVFS_COST": "cost.csv"}
                subprocess.run([sys.executable, "-c", program], env=environment, cwd=folder, check=True, timeout=100)
            with open(os.path.join(folder, "profile.csv")) as file:
                self.assertGreater(len([line for line in file if "gemm" in line]), 3)
            with open(os.path.join(folder, "cost.csv")) as file:
                self.assertTrue(all(float(number) > 0 for number in file.read().split()[-1].split(",")))


class Callbacks(unittest.TestCase):
    """On doubles of the frameworks: their base class and the calls that they make."""

    def steps_of(self, module, base, make, step):
        double = types.ModuleType(module)
        setattr(double, base, type(base, (), {}))
        with kdvfs.open_simulated("h100", meter_every=1) as gpu, unittest.mock.patch.dict(
            sys.modules, {module: double, module.split(".")[0]: double}
        ):
            called = make(gpu)
            self.assertIsInstance(called, getattr(double, base))
            with unittest.mock.patch.object(gpu, "next_iteration") as next_iteration:
                for number in range(3):
                    step(called, number)
                return next_iteration.call_count

    def test_lightning_says_where_batches_begin(self):
        step = lambda called, number: called.on_train_batch_start(None, None, None, number)  # noqa: E731
        self.assertEqual(self.steps_of("lightning.pytorch", "Callback", kdvfs.callbacks.lightning, step), 3)

    def test_hugging_face_says_where_steps_begin(self):
        step = lambda called, number: called.on_step_begin(None, None, None, model=None)  # noqa: E731
        self.assertEqual(self.steps_of("transformers", "TrainerCallback", kdvfs.callbacks.transformers, step), 3)


class MegatronTimers:
    """A double of Megatron's: timers above the level of the log are one dummy."""

    class Timer:
        def __init__(self):
            self.begun, self.ended = 0, 0

        def start(self, barrier=False):
            self.begun += 1

        def stop(self, barrier=False):
            self.ended += 1

    def __init__(self):
        self.dummy, self.logged = self.Timer(), {}

    def __call__(self, name, log_level=None):
        if name not in self.logged and (log_level is None or log_level > 1):
            return self.dummy
        return self.logged.setdefault(name, self.Timer())

    def log(self, names):
        return [self.logged[name].ended for name in names]


class Megatron:
    """A double of Megatron-LM's training.py, on one stage: who takes the timers from where."""

    def __init__(self, gpu, microbatches):
        self.gpu, self.microbatches = gpu, microbatches
        self.timers, self.config = MegatronTimers(), types.SimpleNamespace(timers=None, layers=[1])

    def get_timers(self):
        return self.timers

    def train(self, steps, next_iteration, evaluate_after):
        self.config.timers = self.get_timers()
        for step in range(steps):
            next_iteration()
            self.train_step()
            if step + 1 == evaluate_after:
                self.evaluate()
            self.gpu.synchronize()

    def train_step(self):
        timers = self.get_timers()
        timers("forward-backward", log_level=1).start(barrier=False)
        for _ in range(self.microbatches):
            self.compute("forward-compute", 4e13)
            self.compute("backward-compute", 8e13)
        timers("forward-backward").stop()
        timers("optimizer", log_level=1).start(barrier=False)
        self.gpu.launch(memory_bytes=2e11)
        timers("optimizer").stop()

    def evaluate(self):
        self.config.timers = None
        for _ in range(self.microbatches):
            self.compute("forward-compute", 4e13)
        self.config.timers = self.get_timers()

    def compute(self, name, flops):
        if self.config.timers is not None:
            self.config.timers(name, log_level=2).start()
        self.gpu.launch(matrix_flops=flops)
        if self.config.timers is not None:
            self.config.timers(name).stop()


class Timers(unittest.TestCase):
    def test_timers_of_a_framework_open_scopes(self):
        with kdvfs.open_simulated("h100", meter_every=1) as gpu:
            megatron = Megatron(gpu, 4)
            timers = kdvfs.callbacks.timers(gpu, megatron.get_timers())
            self.assertIs(timers, megatron.get_timers())
            megatron.train(5, gpu.next_iteration, evaluate_after=2)
            calls = {row["kernel"]: row["calls"] for row in gpu.report()["rows"]}
            self.assertEqual(calls, {"forward-compute": 20, "backward-compute": 20, "optimizer": 5})
            self.assertEqual((timers.dummy.begun, timers.dummy.ended), (40, 40))
            self.assertEqual(timers.log(["optimizer", "forward-backward"]), [5, 5])
            megatron.config.timer = timers("optimizer")
            for copied in (copy.copy(megatron.config), copy.deepcopy(megatron.config)):  # Megatron copies it
                self.assertIs(copied.timers, timers)
                self.assertIs(copied.timer, timers("optimizer"))
            timer = type(megatron.config.timer)
            self.assertFalse(hasattr(timer.__new__(timer), "begun"))

    def test_scopes_of_several_kinds_are_opened_by_the_same_timers(self):
        with kdvfs.open_simulated("h100", meter_every=1) as earlier:
            megatron = Megatron(earlier, 1)
            kdvfs.callbacks.timers(earlier, megatron.get_timers())
            megatron.train(1, earlier.next_iteration, evaluate_after=1)
            kdvfs.callbacks.timers(earlier, megatron.get_timers(), ("backward-compute",))
        with kdvfs.open_simulated("h100", meter_every=1) as gpu:
            megatron.gpu = gpu
            kdvfs.callbacks.timers(gpu, megatron.get_timers(), ("backward-compute",))
            for names in (("optimizer",), ("forward-compute",)):
                kdvfs.callbacks.timers(gpu, megatron.get_timers(), names)
            self.assertIs(type(MegatronTimers()), MegatronTimers)  # others of its class are as they were
            megatron.train(3, gpu.next_iteration, evaluate_after=1)
            calls = {row["kernel"]: row["calls"] for row in gpu.report()["rows"]}
            self.assertEqual(calls, {"forward-compute": 3, "backward-compute": 3, "optimizer": 3})

    def test_what_is_no_timers_object_is_refused(self):
        with kdvfs.open_simulated("h100") as gpu:
            for wrong in (None, print, lambda name: None):
                with self.assertRaisesRegex(kdvfs.Error, "no Timers object; give Megatron's"):
                    kdvfs.callbacks.timers(gpu, wrong)


class Closing(unittest.TestCase):
    def test_an_error_that_waits_for_close_does_not_keep_the_handle(self):
        """That of a plan of another program is `invalid_input`, as the status of a handle that is kept."""
        kernel = {"kernel": "gemm", "variant": 0, "time_s": 0.06}
        sequence = {"version": 1, "hash": "fnv1a64:32e0a59a653d668b", "kernels": [kernel], "runs": [[1, 1]]}
        sequence["launches"] = [0]
        segment = {"first": 0, "last": 1, "arrives_in": 0, "lead_s": 0, "core_mhz": 1395, "mem_mhz": -1}
        segment.update({"time_s": 0.06, "energy_j": 40})
        gpu = kdvfs.open_simulated("h100")
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "plan.json")
            with open(file, "w") as out:
                json.dump({"gpu": "simulated NVIDIA H100 80GB HBM3", "sequence": sequence, "segments": [segment]}, out)
            gpu.follow_plan(file)
        for _ in range(6):
            gpu.next_iteration()
            with gpu.scope("attention"):
                gpu.launch(matrix_flops=1e13)
            gpu.synchronize()
        with self.assertRaisesRegex(kdvfs.Error, "it is of another program") as caught:
            gpu.close()
        self.assertEqual(caught.exception.code, "refused")
        self.assertIsNone(gpu._handle.value)
        gpu.close()
        with self.assertRaisesRegex(kdvfs.Error, "has been closed"):
            gpu.core_clocks()

    def test_an_exception_closes_the_gpu_whatever_has_not_ended(self):
        def loaded(gpu):
            with gpu.scope("load"):
                yield

        def first(gpu):
            held = loaded(gpu)
            next(held)
            return held

        def replaced(gpu):
            outer = gpu.scope("gemm")
            outer.__enter__()
            gpu.scope("gemm").__enter__()
            return outer

        def session(gpu):
            made = kdvfs.PipelineSession(gpu, stages=1, microbatches=1)
            made.next_iteration()
            made.forward(0).__enter__()
            return made

        def steps(gpu):
            made = kdvfs.Steps(gpu)
            made.step(sequences=1).__enter__()
            return made

        for begin in (first, replaced, lambda gpu: gpu.scope("gemm").__enter__(), session, steps,
                      lambda gpu: gpu.phase("forward").__enter__(), lambda gpu: gpu.request(gpu.core_clocks()[0]),
                      kdvfs.PowerLimit):
            with self.subTest(begin=begin):
                with self.assertRaisesRegex(ValueError, "out of memory"):
                    with kdvfs.open_simulated("h100") as gpu:
                        held = begin(gpu)  # noqa: F841 - it outlives the block
                        raise ValueError("out of memory")
                self.assertEqual((gpu._handle.value, kdvfs._open_gpus), (None, []))
                with self.assertRaisesRegex(kdvfs.Error, "have not ended"):
                    with kdvfs.open_simulated("h100") as gpu:
                        held = begin(gpu)  # noqa: F841
                self.assertEqual((gpu._handle.value, kdvfs._open_gpus), (None, []))

    def test_a_program_that_ends_without_close_keeps_its_session(self):
        program = """
import os, kdvfs
gpu = kdvfs.open_simulated("h100", meter_every=1)
gpu.begin_session()
for step in range(300):
    gpu.next_iteration()
    with gpu.scope("gemm"):
        gpu.launch(matrix_flops=4e13)
gpu.synchronize()
scope = gpu.scope("gemm").__enter__()
if os.fork() == 0:
    raise SystemExit(0)  # it has nothing to close
os.wait()
assert not os.path.exists("profile.iterations.csv")
"""
        with tempfile.TemporaryDirectory() as folder:
            profile = os.path.join(folder, "profile.csv")
            environment = {**os.environ, "KDVFS_MODE": "sweep:" + profile}
            ended = subprocess.run([sys.executable, "-c", program], env=environment, cwd=folder, capture_output=True,
                                   text=True, timeout=100)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))
            self.assertIn("profile.iterations.csv", os.listdir(folder))

    def test_a_program_that_ends_closes_its_gpus_whatever_is_open(self):
        """The session of the second GPU is kept, and the power limit of the first is put back."""
        program = """
import atexit, ctypes, kdvfs
from kdvfs import _library
first = kdvfs.open_simulated("h100")
gpu = kdvfs.open_simulated("h100", meter_every=1)
gpu.begin_session()
held = [%s for gpu in (first, gpu)]
for step in range(300):
    gpu.next_iteration()
    with gpu.scope("gemm"):
        gpu.launch(matrix_flops=4e13)
gpu.synchronize()
"""
        for held in ("gpu.request(1395)", "kdvfs.Steps(gpu)", "kdvfs.PowerLimit(gpu)", "gpu.scope('gemm').__enter__()",
                     "kdvfs.PipelineSession(gpu, stages=1, microbatches=1, mode='measure')"):
            with self.subTest(held=held), tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "KDVFS_MODE": "sweep:" + os.path.join(folder, "profile.csv")}
                ended = subprocess.run([sys.executable, "-c", program % held], env=environment, capture_output=True,
                                       text=True, timeout=100)
                self.assertEqual((ended.returncode, ended.stderr), (0, ""))
                self.assertIn("profile.iterations.csv", os.listdir(folder))

    def test_a_call_with_a_closed_handle_is_refused(self):
        c = _library.library
        gpu = kdvfs.open_simulated("h100")
        handle = ctypes.c_void_p(gpu._handle.value)
        gpu.close()
        begun, text = ctypes.c_void_p(), ctypes.c_void_p()
        memory = ctypes.pointer(_library.ScopeMemory())
        for status in (c.kdvfs_check(handle), c.kdvfs_next_iteration(handle), c.kdvfs_follow_plan(handle, b"plan"),
                       c.kdvfs_report_json(handle, ctypes.byref(text)), c.kdvfs_session_begin(handle),
                       c.kdvfs_scope_begin(handle, None, b"gemm", 0, memory), c.kdvfs_simulated_synchronize(handle),
                       c.kdvfs_request_begin(handle, 1395, 0, ctypes.byref(begun)), c.kdvfs_close(handle),
                       c.kdvfs_steps_begin(handle, ctypes.byref(begun))):
            self.assertEqual(status, 1)
            self.assertIn(b"has been closed", c.kdvfs_last_error())
        self.assertEqual((c.kdvfs_measure_only(handle), c.kdvfs_session_done(handle)), (0, 1))

    def test_what_is_open_outlives_a_forced_close(self):
        c = _library.library
        gpu = kdvfs.open_simulated("h100")
        handle = ctypes.c_void_p(gpu._handle.value)
        request, steps, limit = gpu.request(1395), kdvfs.Steps(gpu), kdvfs.PowerLimit(gpu)
        scope, step = gpu.scope("gemm"), steps.step(sequences=1)
        scope.__enter__()
        step.__enter__()
        gpu._close_whatever_is_open()
        self.assertEqual(c.kdvfs_check(handle), 1)
        scope.__exit__(None, None, None)
        step.__exit__(None, None, None)
        for each in (request, steps, limit):
            each.close()

    def test_a_module_that_is_loaded_again_knows_what_is_open(self):
        with kdvfs.open_simulated("h100") as gpu:
            before = {**vars(kdvfs)}
            importlib.reload(kdvfs)
            known = list(kdvfs._open_gpus)
            vars(kdvfs).update(before)
            self.assertEqual(known, [gpu])


class Interrupts(unittest.TestCase):
    """Each line of a scope's enter and exit, and each call of the library, may be the last before Ctrl-C."""

    def interrupted(self, gpu, make, line):
        """Runs a scope up to its `line`th event, then raises. Returns whether there was one."""
        left = [line]

        def trace(frame, event, _):
            if not os.path.dirname(kdvfs.__file__) == os.path.dirname(frame.f_code.co_filename):
                return None
            if frame.f_code.co_name == "__del__":
                return None
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return trace

        with contextlib.suppress(KeyboardInterrupt):
            sys.settrace(trace)
            try:
                with make(gpu):
                    pass
            finally:
                sys.settrace(None)
        return left[0] <= 0

    def test_a_name_stays_usable_and_the_gpu_closes(self):
        for make in (lambda gpu: gpu.scope("gemm"), lambda gpu: gpu.phase("forward")):
            gpu = kdvfs.open_simulated("h100")
            with make(gpu):
                pass
            line = 1
            while self.interrupted(gpu, make, line):
                with make(gpu), make(gpu):
                    pass
                line += 1
            self.assertGreater(line, 10)
            gpu.close()
            self.assertEqual(kdvfs._open_gpus, [])

    def test_a_scope_within_itself_ends_neither_however_python_counts_references(self):
        program = """
import sys
counted = sys.getrefcount
if "fewer" in sys.argv:  # as Python 3.14: two of this function are no more than one of a call
    sys.getrefcount = lambda thing: counted(thing) - 2
import kdvfs
with kdvfs.open_simulated("mi250x", meter_every=1) as gpu:
    def work():
        gpu.launch(matrix_flops=6e12)
    gpu.next_iteration()
    with gpu.scope("nested"):
        work()
        with gpu.scope("nested"):
            work()
        work()
    for _ in range(3):
        with gpu.scope("flat"):
            work()
    gpu.synchronize()
    times = {row["kernel"]: row["time_s"] for row in gpu.report()["rows"]}
    if "nested" not in times or abs(times["nested"] / times["flat"] - 1) > 0.01:
        sys.exit(str(times))
"""
        for counts in ("as_here", "fewer"):
            run = subprocess.run([sys.executable, "-c", program, counts], capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)

    def test_steps_and_pipelines_end_with_the_interrupt(self):
        def step(gpu):
            with kdvfs.Steps(gpu) as steps, steps.step(sequences=1) as scope:
                interrupt(scope)

        def operation(gpu):
            with kdvfs.PipelineSession(gpu, stages=1, microbatches=1) as session:
                session.next_iteration()
                with session.forward(0) as scope:
                    interrupt(scope)

        def interrupt(scope):
            def once(_):
                type(scope)._end = end
                raise KeyboardInterrupt

            end, type(scope)._end = type(scope)._end, staticmethod(once)

        for run in (step, operation):
            with kdvfs.open_simulated("h100") as gpu, self.assertRaises(KeyboardInterrupt):
                run(gpu)
            self.assertEqual(kdvfs._open_gpus, [])


class Refuses(unittest.TestCase):
    def refused(self, code, words, call):
        with self.assertRaises(kdvfs.Error) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        self.assertIn(words, str(caught.exception))

    def test_mistakes_in_words(self):
        self.refused("invalid_input", "no such preset", lambda: kdvfs.open_simulated("mi999"))
        self.refused("invalid_input", "no vendor", lambda: kdvfs.open("intel", "0000:00:00.0"))
        self.refused("invalid_input", "is no PCI address", lambda: kdvfs.measure("amd", "card0"))
        with kdvfs.open_simulated("mi210") as gpu:
            self.refused("invalid_input", "kernel name", lambda: gpu.scope("").__enter__())
            self.refused("invalid_input", "list", lambda: gpu.request(123456))
            self.refused("invalid_input", "", lambda: gpu.launch(matrix_flops=-1))
            self.refused("io", "plan", lambda: gpu.follow_plan("/nonexistent/plan.json"))

    def test_errors_are_pickled(self):
        """As by multiprocessing, whose pool waits for ever for one that cannot be read again."""
        for error in (kdvfs.Error(4, "cannot open"), kdvfs.Error(99, "")):
            read = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(read), read.code, str(read)), (kdvfs.Error, error.code, str(error)))
        self.assertEqual((kdvfs.Error(4, "").code, str(kdvfs.Error(4, ""))), ("busy", "busy"))
        self.assertEqual(str(kdvfs.Error(99, "")), "unknown")

    def test_integers_of_other_types_are_integers(self):
        class Int64:  # as numpy's
            def __init__(self, value):
                self.value = value

            def __index__(self):
                return self.value

            def __eq__(self, other):
                return self.value == other

            def __hash__(self):
                return hash(self.value)

        with kdvfs.open_simulated("h100", seed=Int64(3), meter_every=Int64(1)) as gpu:
            clocks = gpu.core_clocks()[-2:]
            gpu.next_iteration()
            with gpu.scope("gemm", variant=Int64(2), core_mhz=Int64(clocks[0])), gpu.request(Int64(clocks[1])):
                gpu.launch(matrix_flops=1e13)
            gpu.synchronize()
            self.assertEqual(row(gpu, "gemm")["variant"], 2)
            with kdvfs.Steps(gpu) as steps:
                with steps.step(Int64(1), Int64(2), Int64(3), prompt_context=Int64(4)):
                    pass
                steps.observe(Int64(1), Int64(2), Int64(3), 0.1)
                steps.tune([Int64(clock) for clock in clocks], chunk_tokens=Int64(64))
            shape = {"stages": Int64(1), "microbatches": Int64(1), "core_mhz": [Int64(clocks[0])]}
            with kdvfs.PipelineSession(gpu, **shape) as session:
                session.next_iteration()
                for make in (session.forward, session.backward):
                    with make(Int64(0), Int64(0)):
                        pass
            kdvfs.PowerLimit(gpu, warmup_steps=Int64(2), ranks=Int64(1)).close()

    def test_closing_with_an_open_scope_and_then_closing(self):
        gpu = kdvfs.open_simulated("mi210")
        scope = gpu.scope("gemm")
        with scope:
            self.refused("invalid_input", "have not ended", gpu.close)
            self.refused("invalid_input", "has been entered", scope.__enter__)
        gpu.close()
        gpu.close()
        self.refused("invalid_input", "has been closed", gpu.next_iteration)

    def test_null_pointers_are_answered(self):
        c = _library.library
        with tempfile.TemporaryDirectory() as folder:
            sizes = kdvfs.BatchSize(os.path.join(folder, "sizes.json"), "job", [8, 16], 8)
            run = sizes.suggest()
            self.assertEqual(c.kdvfs_batch_size_profiled(sizes._handle, run.id, 0, 10.0, None), 1)
            self.assertIsNone(sizes.suggest().epoch_cost, "where the cost goes is NULL: nothing is written")
        with kdvfs.Requests() as requests:
            for number in range(1, 40):
                requests.fit([kdvfs.RequestWork(0, 1, 97 * number % 500)], 20.0 + number % 7)
            self.assertEqual(c.kdvfs_request_open(requests._handle, b"no number", None), 1)
            self.assertEqual(requests.open("first"), 0)
        self.assertEqual(c.kdvfs_requests_begin(_library.RequestReport(), None, None), 1)
        for name in ("kdvfs_close", "kdvfs_check", "kdvfs_next_iteration", "kdvfs_scope_end"):
            expected = 0 if name == "kdvfs_close" else 1
            self.assertEqual(getattr(_library.library, name)(None), expected, name)

    def test_a_wrong_structure_size_is_refused(self):
        options = _library.Options(size=4, meter_every=1)
        handle = ctypes.c_void_p()
        opened = _library.library.kdvfs_open_simulated(
            b"mi210", 1, ctypes.byref(options), ctypes.byref(handle)
        )
        self.assertEqual((opened, handle.value), (1, None))


if __name__ == "__main__":
    unittest.main()
