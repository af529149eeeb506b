# SPDX-License-Identifier: MIT
"""Pipeline sessions through Python and C: ranks are threads, each with a simulated GPU."""

import ctypes
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

import kdvfs
from kdvfs import _library
from c_interface_test import Megatron, MegatronTimers, program_of_the_manual
from ranks_test import on_ranks

SHAPE = {"stages": 2, "microbatches": 4}
ORDER = (
    [("forward", 0), ("forward", 1), ("backward", 0), ("forward", 2), ("backward", 1), ("forward", 3),
     ("backward", 2), ("backward", 3)],
    [(kind, number) for number in range(4) for kind in ("forward", "backward")],
)


def iterate(session, gpu, stage, until):
    """Iterations of a stage, of which the second has more to do, until `until(number)`."""
    for number in range(3000):
        session.next_iteration()
        if until(number):
            return number
        for kind, microbatch in ORDER[stage]:
            work = (2 if kind == "backward" else 1) * (1 + 0.2 * stage)
            with session.operation(kind, microbatch):
                gpu.launch(matrix_flops=6e12 * work, memory_bytes=2.4e10 * work)
            gpu.synchronize()
    raise AssertionError(f"{session.phase} after 3000 iterations")


def finish(session):
    """Runs the operations of the iteration that has begun."""
    for kind, microbatch in ORDER[session.plan()["stage"]]:
        with session.operation(kind, microbatch):
            pass


def measured_case(folder):
    """A case that two ranks have swept, and for each rank the plan and whether its clocks were requested."""
    file = os.path.join(folder, "case.json")

    def work(ranks):
        with kdvfs.open_simulated("mi250x", seed=ranks.rank + 1, switch_latency=0) as gpu:
            with kdvfs.PipelineSession(gpu, ranks, mode=f"sweep:{file}", **SHAPE) as session:
                phases = set()

                def until(number):
                    phases.add(session.phase)
                    return session.phase == "following"

                iterate(session, gpu, ranks.rank, until)
                finish(session)
                return phases, session.plan()

    return file, on_ranks(2, work)


class Sessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.file, cls.swept = measured_case(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_a_sweep_plans_lower_clocks_where_a_stage_waits(self):
        for phases, plan in self.swept:
            self.assertEqual(phases, {"warming up", "sweeping", "following"})
        first, second = (plan for _, plan in self.swept)
        self.assertEqual([(each["op"], each["microbatch"]) for each in first["operations"]], ORDER[0])
        slower, faster = (statistics_of(plan) for plan in (first, second))
        self.assertLess(slower, 0.9 * faster, "the first stage has less to do")
        self.assertGreater(first["time_s"], 0)
        self.assertEqual(first["verdict"], "unresolved")
        self.assertEqual(first["energy_j"], second["energy_j"])

    def follow(self, make_ranks, stage_of, count):
        """What each of `count` ranks drew over five iterations, before and after, and its report's clocks."""

        def work(ranks):
            stage = stage_of(ranks.rank)
            drawn = []
            for mode in ("measure", f"follow:{self.file}"):
                with kdvfs.open_simulated("mi250x", switch_latency=0, meter_every=1) as gpu:
                    with kdvfs.PipelineSession(gpu, make_ranks(ranks), mode=mode, **SHAPE) as session:
                        iterate(session, gpu, stage, lambda number: number == 5)
                        finish(session)
                        self.assertEqual(session.phase, "measuring" if mode == "measure" else "following")
                        drawn.append(gpu.totals())
                        measured = {(row["kernel"], row["measured_core_mhz"]) for row in gpu.report()["rows"]}
            return drawn, measured

        return on_ranks(count, work)

    def test_operations_run_at_the_planned_clocks(self):
        ((_, before), (_, after)), measured = self.follow(lambda ranks: ranks, lambda rank: rank, 2)[0]
        self.assertLess(after, 0.97 * before)
        planned = {each["core_mhz"] for each in self.swept[0][1]["operations"] if each["op"] == "backward"}
        backward = [clock for kernel, clock in measured if kernel == "backward"]
        self.assertTrue(min(planned) - 1 <= backward[0] <= max(planned) + 1, (backward, planned))

    def test_data_parallel_ranks_share_a_stage(self):
        for (_, (_, after)), _ in self.follow(lambda ranks: ranks, lambda rank: rank // 2, 4):
            self.assertGreater(after, 0)

    def test_a_wrong_operation_is_named_with_the_right_one(self):
        with kdvfs.open_simulated("mi250x") as gpu:
            session = kdvfs.PipelineSession(gpu, stages=1, microbatches=2)
            session.next_iteration()
            with self.assertRaisesRegex(kdvfs.Error, "backward of microbatch 0.*next operation is the forward"):
                session.backward(0).__enter__()
            with session.forward(0) as scope:
                scope.reached(0.5)
                with self.assertRaisesRegex(kdvfs.Error, "has not ended; leave it first"):
                    session.forward(1)
                with self.assertRaisesRegex(kdvfs.Error, "it has not ended.*end it first"):
                    session.close()
            with self.assertRaisesRegex(kdvfs.Error, "has not begun; call it in the `with` block"):
                scope.reached(0.5)
            with self.assertRaisesRegex(kdvfs.Error, "backward of microbatch 0, chunk 0, on stage 0, has not been run"):
                session.next_iteration()
            with self.assertRaisesRegex(kdvfs.Error, "have not ended"):
                gpu.close()
            session.close()
            session.close()

    def test_mistakes_are_answered_in_one_line(self):
        with kdvfs.open_simulated("mi250x") as gpu:
            made = kdvfs.PipelineSession(gpu, stages=1, microbatches=2)
            for call, words in (
                (lambda: kdvfs.PipelineSession(gpu, stages=2, microbatches=2), "2 stages do not divide the ranks"),
                (lambda: kdvfs.PipelineSession(gpu, stages=1, microbatches=2, schedule="pipedream"), "use gpipe, 1f1b"),
                (lambda: kdvfs.PipelineSession(gpu, stages=0, microbatches=2), "stages: 0.*give the pipeline's stages"),
                (lambda: kdvfs.PipelineSession(gpu, stages=1, microbatches=2, chunks=2), "one chunk a stage"),
                (lambda: kdvfs.PipelineSession(gpu, stages=1, microbatches=2, mode="folow:x"), "mode"),
                (lambda: kdvfs.PipelineSession(gpu, stages=1, microbatches=2, mode="follow:/none"), "/none.*check its name"),
                (lambda: kdvfs.PipelineSession(gpu, stages=1, microbatches=2, silence=0), "give seconds above 0"),
                (lambda: made.forward("0"), "'0'.*is no integer from 0"),
                (lambda: made.forward(-1), "-1.*is no integer from 0"),
                (lambda: made.forward(2**32), "4294967296.*is no integer from 0"),
                (lambda: made.forward(0.5).__enter__(), "0.5.*is no integer from 0"),
                (lambda: made.operation("sideways", 0), "pass 'sideways'.*use forward, backward"),
                (lambda: made.straggler(3, 1.0), "there is no such rank"),
            ):
                with self.assertRaisesRegex(kdvfs.Error, words) as caught:
                    call()
                self.assertNotIn("\n", str(caught.exception))
            made.close()

    def test_an_operation_costs_little_beyond_the_c_interface(self):
        with kdvfs.open_simulated("mi250x", meter_every=1000000) as gpu:
            session = kdvfs.PipelineSession(gpu, stages=1, microbatches=100, schedule="gpipe")
            begin, end = _library.library.kdvfs_operation_begin, _library.library.kdvfs_operation_end
            pointer, handle = session._scope._pointer, session._handle

            class Bare:
                number = kind = 0

                def __enter__(self):
                    begin(handle, 0, self.kind, 0, self.number, pointer)

                def __exit__(self, *_):
                    end(pointer)

            bare = Bare()

            def with_bare(kind):
                bare.kind = kind
                for number in range(100):
                    bare.number = number
                    with bare:
                        pass

            def with_session(kind):
                make = session.backward if kind else session.forward
                for number in range(100):
                    with make(number):
                        pass

            def least(*runs):
                """In turn, so that a machine that is busy for a while is so for each."""
                found = [math.inf] * len(runs)
                for _ in range(100):
                    for i, run in enumerate(runs):
                        session.next_iteration()
                        for kind in (0, 1):
                            start = time.thread_time_ns()
                            run(kind)
                            found[i] = min(found[i], time.thread_time_ns() - start)
                        gpu.synchronize()
                return [each / 100 for each in found]

            with_both = least(with_session, with_bare)
            beyond = with_both[0] - with_both[1]
            print(f"an operation scope costs {beyond:.0f} ns beyond two bare ctypes calls", file=sys.stderr)
            self.assertLess(beyond, 1000)
            before = sys.getallocatedblocks()
            least(with_session)
            self.assertLess(sys.getallocatedblocks() - before, 50)
            session.close()


def statistics_of(plan):
    clocks = [each["core_mhz"] for each in plan["operations"]]
    return sum(clocks) / len(clocks)


class TimersOfMegatron(unittest.TestCase):
    def test_a_schedule_opens_operation_scopes_by_its_timers(self):
        with kdvfs.open_simulated("mi250x", meter_every=1) as gpu:
            with kdvfs.PipelineSession(gpu, stages=1, microbatches=3, schedule="1f1b") as session:
                megatron = Megatron(gpu, 3)
                kdvfs.callbacks.operation_timers(session, megatron.get_timers())
                megatron.train(4, session.next_iteration, evaluate_after=2)
                self.assertEqual(megatron.get_timers().dummy.begun, 24)
                calls = {row["kernel"]: row["calls"] for row in gpu.report()["rows"]}
                self.assertEqual((calls["forward"], calls["backward"]), (12, 12))
                session.next_iteration()
                with self.assertRaisesRegex(kdvfs.Error, "the next operation is the forward of microbatch 0"):
                    megatron.config.timers("backward-compute").start()

    def test_mistakes_are_named(self):
        with kdvfs.open_simulated("mi250x") as gpu:
            with kdvfs.PipelineSession(
                gpu, stages=1, microbatches=2, chunks=2, schedule="interleaved_1f1b"
            ) as session:
                with self.assertRaisesRegex(kdvfs.Error, "2 chunks by timers.*open an OpScope"):
                    kdvfs.callbacks.operation_timers(session, MegatronTimers())
            with kdvfs.PipelineSession(gpu, stages=1, microbatches=2) as session:
                with self.assertRaisesRegex(kdvfs.Error, "no Timers object; give Megatron's"):
                    kdvfs.callbacks.operation_timers(session, None)


class Stage:
    """A double of a stage of torch.distributed.pipelining, with the parameters of PyTorch 2.5 to 2.11."""

    def __init__(self, gpu):
        self.gpu, self.ran, self.has_backward = gpu, [], True

    def forward_one_chunk(self, fwd_chunk_id, args, kwargs=None, save_forward_output=True):
        self.gpu.launch(matrix_flops=1e12)
        self.ran.append(("forward", fwd_chunk_id))
        return args

    def backward_one_chunk(self, bwd_chunk_id, loss=None, full_backward=True, last_backward=False):
        self.gpu.launch(matrix_flops=1e12)
        self.ran.append(("backward" if full_backward else "input", bwd_chunk_id))

    def backward_weight_one_chunk(self, bwd_chunk_id, last_backward=False):
        self.gpu.launch(matrix_flops=1e12)
        self.ran.append(("weight", bwd_chunk_id))


class StagesOfPyTorch(unittest.TestCase):
    def test_their_microbatches_are_operations(self):
        with kdvfs.open_simulated("mi250x", meter_every=1) as gpu:
            with kdvfs.PipelineSession(gpu, stages=1, microbatches=2, schedule="1f1b") as session:
                stage = Stage(gpu)
                kdvfs.callbacks.pipeline_stages(session, stage)
                for _ in range(3):
                    session.next_iteration()
                    for microbatch in range(2):
                        self.assertEqual(stage.forward_one_chunk(microbatch, (7,), {}), (7,))
                        stage.backward_one_chunk(microbatch, loss=None, full_backward=True, last_backward=True)
                gpu.synchronize()
                calls = {row["kernel"]: row["calls"] for row in gpu.report()["rows"]}
                self.assertEqual((calls["forward"], calls["backward"], len(stage.ran)), (6, 6, 12))
                session.next_iteration()
                with self.assertRaisesRegex(kdvfs.Error, "the next operation is the forward of microbatch 0"):
                    stage.backward_one_chunk(0)

    def test_a_backward_in_two_parts_is_two_operations(self):
        with kdvfs.open_simulated("mi250x", meter_every=1) as gpu:
            with kdvfs.PipelineSession(gpu, stages=1, microbatches=1, schedule="zb_h1") as session:
                stage = Stage(gpu)
                kdvfs.callbacks.pipeline_stages(session, stage)
                session.next_iteration()
                stage.forward_one_chunk(0, ())
                stage.backward_one_chunk(0, None, False)
                stage.backward_weight_one_chunk(0)
                self.assertEqual(stage.ran, [("forward", 0), ("input", 0), ("weight", 0)])

    def test_a_validation_has_no_operations(self):
        """torchtitan's Validator calls the schedule's eval, which runs the forwards of the same stages."""
        with kdvfs.open_simulated("mi250x", meter_every=1) as gpu:
            with kdvfs.PipelineSession(gpu, stages=1, microbatches=2, schedule="1f1b") as session:
                stage = Stage(gpu)
                kdvfs.callbacks.pipeline_stages(session, stage)

                def train():
                    session.next_iteration()
                    stage.has_backward = True  # by the schedule's step
                    for microbatch in range(2):
                        stage.forward_one_chunk(microbatch, ())
                        stage.backward_one_chunk(microbatch)

                def validate():
                    for microbatch in range(2):
                        self.assertEqual(stage.forward_one_chunk(microbatch, (7,)), (7,))

                train()
                stage.has_backward = False
                validate()
                train()
                no_grad = types.SimpleNamespace(is_grad_enabled=lambda: False)
                with unittest.mock.patch.dict(sys.modules, {"torch": no_grad}):
                    validate()
                train()
                gpu.synchronize()
                calls = {row["kernel"]: row["calls"] for row in gpu.report()["rows"]}
                self.assertEqual((calls["forward"], calls["backward"], len(stage.ran)), (6, 6, 16))

    def test_mistakes_are_named(self):
        with kdvfs.open_simulated("mi250x") as gpu:
            with kdvfs.PipelineSession(gpu, stages=1, microbatches=2) as session:
                with self.assertRaisesRegex(kdvfs.Error, "for 2 stages: the session has 1 chunks"):
                    kdvfs.callbacks.pipeline_stages(session, Stage(gpu), Stage(gpu))
                with self.assertRaisesRegex(kdvfs.Error, "has no forward_one_chunk; give stages of"):
                    kdvfs.callbacks.pipeline_stages(session, object())


class Failures(unittest.TestCase):
    def test_ranks_of_another_pipeline_are_refused_on_all(self):
        def work(ranks):
            with kdvfs.open_simulated("mi250x") as gpu:
                kdvfs.PipelineSession(gpu, ranks, stages=2, microbatches=4 + ranks.rank)

        for error in on_ranks(2, work):
            self.assertEqual(error.code, "invalid_input")
            self.assertIn("rank 1 runs another pipeline than rank 0", str(error))

    def test_a_rank_that_ends_is_named_in_time_and_the_others_go_on(self):
        def work(ranks):
            with kdvfs.open_simulated("mi250x") as gpu:
                session = kdvfs.PipelineSession(gpu, ranks, mode="sweep:/nowhere/case.json", **SHAPE)
                begin = time.monotonic()
                for number in range(8):
                    if ranks.rank == 1 and number == 2:
                        break
                    session.next_iteration()
                    finish(session)
                took = time.monotonic() - begin
                phase = session.phase
                try:
                    if ranks.rank == 0:
                        session.check()
                finally:
                    session.close()
                    results.append((ranks.rank, phase, took))

        results = []
        error, other = on_ranks(2, work, timeout=1.0)
        self.assertIsNone(other)
        self.assertEqual(error.code, "timed_out")
        self.assertIn("rank 1 sent nothing for 1 s", str(error))
        phase, took = next((phase, took) for rank, phase, took in results if rank == 0)
        self.assertEqual(phase, "alone")
        self.assertLess(took, 2.0)


    def test_an_interrupt_while_ranks_are_awaited_reaches_the_caller(self):
        def work(ranks):
            exchange = ranks._exchange

            def interrupted(*arguments):
                if ranks.rank == 0 and session._iteration >= 2:
                    raise KeyboardInterrupt
                return exchange(*arguments)

            number = -1
            with kdvfs.open_simulated("mi250x") as gpu:
                try:
                    with kdvfs.PipelineSession(gpu, ranks, mode="sweep:/nowhere/case.json", **SHAPE) as session:
                        ranks._exchange = interrupted
                        for number in range(20):
                            session.next_iteration()
                            finish(session)
                except KeyboardInterrupt:
                    return session._iteration, number

        (iteration, number), error = on_ranks(2, work, timeout=0.5)
        self.assertEqual(iteration, number)
        self.assertIn("rank 0", str(error))


class Documents(unittest.TestCase):
    def test_the_program_of_the_manual_runs_on_two_ranks(self):
        program = program_of_the_manual("kdvfs.PipelineSession(").replace("range(600)", "range(3)")
        with tempfile.TemporaryDirectory() as folder:
            started = [
                subprocess.Popen([sys.executable, "-c", program], cwd=folder, stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, "WORLD_SIZE": "2", "RANK": str(rank)})
                for rank in range(2)
            ]
            self.assertEqual([each.communicate(timeout=60)[0] for each in started], ["measuring\n"] * 2)


class InC(unittest.TestCase):
    """What Python does not use: files in a folder, and functions that misbehave."""

    def begin(self, gpu, **fields):
        options = _library.PipelineOptions()
        c = _library.library
        c.kdvfs_pipeline_options_init(ctypes.byref(options))
        for name, value in {**SHAPE, "silence_s": 10.0, **fields}.items():
            setattr(options, name, value)
        handle = ctypes.c_void_p()
        _library.expect_ok(c.kdvfs_pipeline_begin(gpu._handle, ctypes.byref(options), ctypes.byref(handle)))
        return handle

    def session(self, gpu, **fields):
        """A Python session whose ranks exchange files in C."""
        session = kdvfs.PipelineSession.__new__(kdvfs.PipelineSession)
        session._error, session._ranks, session._scope, session._iteration = None, None, kdvfs.OpScope(), 0
        session._gpu = gpu
        session._handle = self.begin(gpu, **fields)
        return session

    def on_threads(self, count, work):
        results = [None] * count

        def run(rank):
            try:
                results[rank] = work(rank)
            except kdvfs.Error as error:
                results[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive(), "a rank hangs")
        return results

    def test_64_ranks_follow_a_plan_through_files_and_through_callbacks(self):
        with tempfile.TemporaryDirectory() as folder:
            file, _ = measured_case(folder)
            mode = f"follow:{file}"

            def follow(session, gpu):
                took = []
                for _ in range(4):
                    begin = time.monotonic()
                    session.next_iteration()
                    took.append(time.monotonic() - begin)
                    finish(session)
                    gpu.synchronize()
                session.check()
                plan = session.plan()
                if os.path.isdir(os.path.join(folder, "kdvfs-test")):
                    # Those of the last exchange, and those that have not been removed yet.
                    self.assertLess(len(os.listdir(os.path.join(folder, "kdvfs-test"))), 200)
                session.close()
                return plan, max(took[1:])

            def by_files(rank):
                with kdvfs.open_simulated("mi250x", switch_latency=0) as gpu:
                    return follow(
                        self.session(gpu, mode=mode.encode(), folder=folder.encode(), job=b"test", rank=rank,
                                     rank_count=64), gpu)

            def by_callbacks(ranks):
                with kdvfs.open_simulated("mi250x", switch_latency=0) as gpu:
                    return follow(kdvfs.PipelineSession(gpu, ranks, mode=mode, **SHAPE), gpu)

            for how, results in (
                ("files", self.on_threads(64, by_files)),
                ("callbacks", on_ranks(64, by_callbacks)),
            ):
                for rank, result in enumerate(results):
                    self.assertIsInstance(result, tuple, f"{how}, rank {rank}: {result}")
                    self.assertEqual(result[0]["stage"], rank // 32)
                    self.assertEqual(result[0]["time_s"], results[0][0]["time_s"])
                slowest = max(took for _, took in results)
                print(f"64 ranks through {how}: at most {slowest * 1e3:.1f} ms an iteration", file=sys.stderr)
            left = os.listdir(os.path.join(folder, "kdvfs-test"))
            self.assertLessEqual(len(left), 4, left)

    def test_a_silent_rank_is_named_to_all_through_files(self):
        with tempfile.TemporaryDirectory() as folder:

            def work(rank):
                if rank == 2:
                    return None
                with kdvfs.open_simulated("mi250x") as gpu:
                    begin = time.monotonic()
                    try:
                        self.begin(gpu, silence_s=0.5, folder=folder.encode(), job=b"test", rank=rank, rank_count=4)
                    finally:
                        self.assertLess(time.monotonic() - begin, 1.5)

            results = self.on_threads(4, work)
            for rank in (0, 1, 3):
                self.assertIsInstance(results[rank], kdvfs.Error)
                self.assertEqual(results[rank].code, "timed_out")
                self.assertIn("rank 2", str(results[rank]))

    def test_folders_of_others_are_refused(self):
        with tempfile.TemporaryDirectory() as folder, kdvfs.open_simulated("mi250x") as gpu:
            os.mkdir(os.path.join(folder, "kdvfs-open"))
            os.chmod(os.path.join(folder, "kdvfs-open"), 0o777)
            os.mkdir(os.path.join(folder, "elsewhere"), 0o700)
            os.symlink(os.path.join(folder, "elsewhere"), os.path.join(folder, "kdvfs-link"))
            where = {"folder": folder.encode(), "rank_count": 2}
            jobs = [b"open", b"link"]
            if os.getuid() == 0:
                os.mkdir(os.path.join(folder, "kdvfs-owned"), 0o700)
                os.chown(os.path.join(folder, "kdvfs-owned"), 12345, 12345)
                jobs.append(b"owned")
            for job in jobs:
                with self.assertRaisesRegex(kdvfs.Error, "give a folder of your own") as caught:
                    self.begin(gpu, job=job, **where)
                self.assertEqual(caught.exception.code, "refused")
            with self.assertRaisesRegex(kdvfs.Error, "no name for a folder"):
                self.begin(gpu, job=b"../x", **where)
            with self.assertRaisesRegex(kdvfs.Error, "rank 2 of 2.*there is no such rank"):
                self.begin(gpu, job=b"a", rank=2, **where)

    def test_functions_that_misbehave_are_named(self):
        def calls(gather):
            made = _library.RanksOfCaller(ctypes.sizeof(_library.RanksOfCaller), 0, 2)
            made.gather = made.broadcast = self.kept = _library.Exchange(gather)
            return ctypes.pointer(made)

        with kdvfs.open_simulated("mi250x") as gpu:
            with self.assertRaisesRegex(kdvfs.Error, "function gather.*not called kdvfs_receive once for each rank"):
                self.begin(gpu, ranks=calls(lambda *_: 0))
            with self.assertRaisesRegex(kdvfs.Error, "function gather.*timed out") as caught:
                self.begin(gpu, ranks=calls(lambda *_: 7))
            self.assertEqual(caught.exception.code, "timed_out")
            with self.assertRaisesRegex(kdvfs.Error, "gather or broadcast is NULL"):
                empty = _library.RanksOfCaller(ctypes.sizeof(_library.RanksOfCaller), 0, 2)
                self.begin(gpu, ranks=ctypes.pointer(empty))


if __name__ == "__main__":
    unittest.main()
