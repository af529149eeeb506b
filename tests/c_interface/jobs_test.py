# SPDX-License-Identifier: MIT
"""Steps of an engine, power limits and batch sizes through Python and C, on simulated GPUs."""

import csv
import io
import math
import os
import sys
import tempfile
import time
import unittest

import kdvfs


def power(clock, memory_bytes):
    """Of steps that are bound by memory, at one clock alone, in watts."""
    with kdvfs.open_simulated("h100") as gpu, gpu.request(clock):
        gpu.launch(memory_bytes=3e12)
        gpu.synchronize()
        before = gpu.totals()
        gpu.launch(memory_bytes=memory_bytes)
        gpu.synchronize()
        after = gpu.totals()
        return (after[1] - before[1]) / (after[0] - before[0])


def step_table(folder):
    """Steps of a made-up engine: decode is bound by memory, prefill by compute."""
    path = os.path.join(folder, "steps.csv")
    with open(path, "w") as file:
        print("phase,batch,context,core_mhz,time_s,energy_j", file=file)
        with kdvfs.open_simulated("h100") as gpu:
            clocks = gpu.core_clocks()
        for clock in (clocks[len(clocks) // 2], clocks[-1]):
            share = clock / clocks[-1]
            watts = 200 + 500 * share**3
            for batch in (1, 8, 32):
                for context in (128, 1024):
                    took = 0.02 + batch * context * 1e-7
                    print(f"decode,{batch},{context},{clock},{took},{took * watts * 0.8}", file=file)
                    took = batch * context * 2e-5 / share
                    print(f"prefill,{batch},{context},{clock},{took},{took * watts}", file=file)
            print(f"idle,0,0,{clock},1,{80 + 40 * share}", file=file)
    return path


class StepsOfAnEngine(unittest.TestCase):
    def test_decode_steps_follow_the_plan_and_are_counted(self):
        with tempfile.TemporaryDirectory() as folder, kdvfs.open_simulated(
            "h100", meter_every=1
        ) as gpu:
            with kdvfs.Steps(gpu) as steps:
                for _ in range(300):
                    steps.observe(0, 8, 512, 0.02)
                with steps.step(sequences=8, context_tokens=512):
                    gpu.launch(memory_bytes=6e10)
                steps.plan(step_table(folder))
                for _ in range(200):
                    with steps.step(sequences=8, context_tokens=512):
                        gpu.launch(memory_bytes=6e10)
                steps.rest()
                gpu.synchronize()
                report = steps.report()
                (phase,) = report["phases"]
                self.assertEqual((phase["phase"], phase["steps"], phase["tokens"]), ("decode", 200, 1600))
                rows = {row["kernel"]: row for row in gpu.report()["rows"]}
                clocks = gpu.core_clocks()
                asked = [
                    row["asked"]["core_mhz"]
                    for row in gpu.report()["rows"]
                    if row["kernel"] == "decode"
                ]
                self.assertIn(clocks[len(clocks) // 2], asked, (rows.keys(), report))

    def test_what_was_read_of_prompts_before_is_part_of_a_steps_shape(self):
        with tempfile.TemporaryDirectory() as folder, kdvfs.open_simulated("h100") as gpu, kdvfs.Steps(gpu) as steps:
            path = os.path.join(folder, "steps.csv")
            with open(path, "w") as file:
                print("phase,batch,context,core_mhz,time_s,energy_j,prompt_context", file=file)
                for clock, joules in ((gpu.core_clocks()[0], 5), (gpu.core_clocks()[-1], 10)):
                    for tokens in (1, 512):
                        for before, took in ((0, 0.05), (2048, 0.07)):
                            print(f"prefill,1,{tokens},{clock},{took},{joules},{before}", file=file)
            for _ in range(100):
                steps.observe(512, 0, 0, 0.06, prompt_context=1000)
            steps.plan(path, policy="by_step")
            for before, launches in ((0, 3), (1000, 4), (5000, 5)):  # the last lies beyond the table
                for _ in range(launches):
                    with steps.step(512, prompt_context=before):
                        gpu.launch(memory_bytes=6e10)
            gpu.synchronize()
            (phase,) = steps.report()["phases"]
            self.assertEqual((phase["steps"], phase["urgent_steps"]), (12, 5))
            with self.assertRaisesRegex(kdvfs.Error, "prompt_context: -1 is no integer"):
                steps.step(512, prompt_context=-1)

    def prove(self, gpu, steps, launch):
        for _ in range(100):
            steps.observe(0, 8, 512, 0.02)
        with tempfile.TemporaryDirectory() as folder:
            steps.plan(step_table(folder), late_first_tokens=0.01)
        steps.prove(block=2)
        for _ in range(1600):
            seconds, joules = gpu.totals()
            steps.energy(joules, seconds)
            with steps.step(sequences=8, context_tokens=512):
                launch()
            gpu.synchronize()
        return steps.report()["proof"]

    def test_a_plan_is_proven_while_it_is_followed(self):
        """Against the energy of the same steps at each clock alone."""
        memory_bytes = 1e11
        with kdvfs.open_simulated("h100") as gpu:
            clocks = gpu.core_clocks()
            with kdvfs.Steps(gpu) as steps:
                self.assertIsNone(steps.report()["proof"])
                proof = self.prove(gpu, steps, lambda: gpu.launch(memory_bytes=memory_bytes))
        saved = 100 * (power(clocks[len(clocks) // 2], memory_bytes) / power(clocks[-1], memory_bytes) - 1)
        print(f"a plan of {saved:.2f} %, proven: {proof}", file=sys.stderr)
        self.assertLess(saved, -5)
        self.assertLess(abs(proof["change_pct"] - saved), 1)
        self.assertLess(proof["high_pct"], 0)
        self.assertTrue(proof["is_followed"])

    def test_an_engine_tunes_itself_while_it_serves(self):
        """Against the power of the same steps at each clock alone: they are bound by memory."""
        memory_bytes = 1e11
        phases = []
        with kdvfs.open_simulated("h100", meter_every=1000000) as gpu, kdvfs.Steps(gpu) as steps:
            clocks = gpu.core_clocks()
            chosen = [clocks[len(clocks) // 2], clocks[3 * len(clocks) // 4], clocks[-1]]
            steps.tune(chosen, gap=0.2, late_first_tokens=0.01, warm_up=30, sweep=120, block=2)
            seconds, _ = gpu.totals()
            while seconds < 400:
                begin = seconds
                with steps.step(sequences=8, context_tokens=512):
                    gpu.launch(memory_bytes=memory_bytes)
                gpu.synchronize()
                seconds, joules = gpu.totals()
                steps.ran(0, 8, 512, begin, seconds)
                steps.energy(joules, seconds)
                if not phases or seconds > 10 * len(phases):
                    phases.append(steps.report()["tuning"]["phase"])
            report = steps.report()
        saved = 100 * (power(report["idle_core_mhz"], memory_bytes) / power(chosen[-1], memory_bytes) - 1)
        print(f"an engine that tunes itself: {saved:.2f} %, proven: {report['proof']}", file=sys.stderr)
        self.assertEqual((phases[0], report["tuning"]), ("sweep", {"phase": "follow", "because": ""}))
        self.assertLess(saved, -5)
        self.assertLess(abs(report["proof"]["change_pct"] - saved), 1)
        self.assertLess(report["proof"]["high_pct"], 0)

    def test_mistakes_are_named(self):
        with kdvfs.open_simulated("h100") as gpu, kdvfs.Steps(gpu) as steps:
            with self.assertRaisesRegex(kdvfs.Error, "no tuning has begun"):
                steps.ran(0, 1, 1, 0, 1)
            with self.assertRaisesRegex(kdvfs.Error, "shorter than a second"):
                steps.tune([1000, 2000], block=0.1)
            with self.assertRaises(kdvfs.Error):  # one clock is nothing to choose from
                steps.tune([1000])
            with self.assertRaisesRegex(kdvfs.Error, "no proof has begun"):
                steps.energy(1, 1)
            with self.assertRaisesRegex(kdvfs.Error, "shorter than a second"):
                steps.prove(block=0.1)
            steps.prove()
            with self.assertRaisesRegex(kdvfs.Error, "not a valid number"):
                steps.energy(math.nan, 1)
            with self.assertRaisesRegex(kdvfs.Error, "no such policy.*by_step"):
                steps.plan("none.csv", policy="fast")
            with self.assertRaisesRegex(kdvfs.Error, "open a step table: none.csv"):
                steps.plan("none.csv")
            with steps.step(sequences=1):
                with self.assertRaisesRegex(kdvfs.Error, "has not ended; leave it first"):
                    steps.step(sequences=1)
                with self.assertRaisesRegex(kdvfs.Error, "it has not ended.*end it first"):
                    steps.close()
            with self.assertRaisesRegex(kdvfs.Error, "no positive time"):
                steps.observe(0, 1, 1, 0)

    def test_a_step_costs_little_beyond_the_c_interface(self):
        with kdvfs.open_simulated("h100", meter_every=1000000) as gpu, kdvfs.Steps(gpu) as steps:
            made = steps.step(sequences=8, context_tokens=512)
            begin, end = kdvfs.serving._step_begin, kdvfs.serving.StepScope._end
            arguments, pointer = made._arguments, made._pointer

            class Bare:
                def __enter__(self):
                    begin(steps._handle, 0, 0, 8, 512, math.inf, pointer)

                def __exit__(self, *_):
                    end(pointer)

            bare = Bare()

            def least(run):
                found = math.inf
                for _ in range(200):
                    start = time.thread_time_ns()
                    run()
                    found = min(found, time.thread_time_ns() - start)
                    gpu.synchronize()
                return found / 100

            def with_bare():
                for _ in range(100):
                    with bare:
                        pass

            def with_steps():
                for _ in range(100):
                    with steps.step(sequences=8, context_tokens=512):
                        pass

            beyond = least(with_steps) - least(with_bare)
            print(f"a step costs {beyond:.0f} ns beyond two bare ctypes calls", file=sys.stderr)
            self.assertLess(beyond, 1000)
            before = sys.getallocatedblocks()
            for _ in range(50):
                with_steps()
            self.assertLess(sys.getallocatedblocks() - before, 50)


class EnergyOfRequests(unittest.TestCase):
    STEP, CHUNKS, ANSWER, CONTEXT, PROMPT, ATTENDED = 20.0, 5.0, 0.5, 0.001, 0.02, 1e-5

    def own(self, work):
        return (
            self.ANSWER * work.answer_tokens
            + self.CONTEXT * work.context_tokens
            + work.prompt_tokens * (self.PROMPT + self.ATTENDED * work.prompt_context)
        )

    def fitted(self, requests):
        """Steps of this made-up engine, whose energies are those of the coefficients above."""
        for i in range(1, 40):
            works = [kdvfs.RequestWork(0, 1, 97 * i % 500), kdvfs.RequestWork(1, 1, 31 * i % 900)][: i % 2 + 1]
            if i % 3 == 0:
                works.append(kdvfs.RequestWork(2, 0, 0, 100 + 13 * i, 57 * i % 800))
            chunks = self.CHUNKS if i % 3 == 0 else 0
            requests.fit(works, self.STEP + chunks + sum(map(self.own, works)))

    def test_a_step_is_shared_and_reported(self):
        reported = []
        with kdvfs.Requests(reported.append) as requests:
            self.fitted(requests)
            decoding, prompt = requests.open("chat, 17"), requests.open("new")
            works = [kdvfs.RequestWork(decoding, 1, 400), kdvfs.RequestWork(prompt, 0, 0, 512, 256)]
            requests.step(works)
            shares = [self.own(works[0]) + self.STEP / 2, self.own(works[1]) + self.STEP / 2 + self.CHUNKS]
            requests.settle(1.1 * sum(shares), 2.0)  # measured: a tenth more than by the model
            requests.idle(3)
            requests.finish(decoding)
            requests.finish(prompt)
            self.assertEqual([done.id for done in reported], ["chat, 17", "new"])
            lines = io.StringIO()
            csv.writer(lines).writerows([kdvfs.RequestEnergy._fields, *reported])
            self.assertRegex(lines.getvalue(), r'^id,.*\r\n"chat, 17",')
            for done, share in zip(reported, shares):
                self.assertAlmostEqual(done.joules, 1.1 * share, places=6)
                self.assertLess(done.low_joules, done.joules)
                self.assertLess(done.joules, done.high_joules)
            self.assertEqual((reported[1].steps, reported[1].prompt_tokens), (1, 512))
            text = requests.prometheus('model="tiny"')
            self.assertIn('kdvfs_request_energy_joules_count{model="tiny"} 2', text)
            self.assertRegex(text, r'kdvfs_serving_energy_joules_total{model="tiny",part="idle"} 3\b')

    def test_mistakes_are_named(self):
        def broken(_):
            raise ValueError("no more space")

        with kdvfs.Requests(broken) as requests:
            with self.assertRaisesRegex(kdvfs.Error, "there are no steps.*add some"):
                requests.open("first")
            self.fitted(requests)
            number = requests.open("first")
            with self.assertRaisesRegex(kdvfs.Error, "fit before the first request"):
                self.fitted(requests)
            with self.assertRaisesRegex(kdvfs.Error, "7"):
                requests.step([kdvfs.RequestWork(7, 1, 1)])
            with self.assertRaisesRegex(ValueError, "no more space"):
                requests.finish(number)


class PowerLimits(unittest.TestCase):
    def train(self, gpu, **options):
        with kdvfs.PowerLimit(gpu, warmup_steps=2, measured_steps=10, **options) as limit:
            for _ in range(3000):
                seconds, joules = gpu.totals()
                limit.step(joules, seconds)
                if limit.done:
                    break
                gpu.launch(matrix_flops=4e12, memory_bytes=4e9)
                gpu.synchronize()
            self.assertTrue(limit.done)
            return limit.best, limit.epoch_cost(100)

    def test_the_least_energy_is_below_the_highest_limit(self):
        with kdvfs.open_simulated("mi250x") as gpu:
            best, cost = self.train(gpu, goal="energy")
            fastest, _ = self.train(gpu, goal="time")
            self.assertLess(best, fastest)
            self.assertGreater(cost, 0)

    def test_ranks_combine_and_an_exception_of_combine_comes_back(self):
        seen = []

        def two_alike(joules, seconds):
            seen.append(joules)
            return 2 * joules, seconds

        with kdvfs.open_simulated("mi250x") as gpu:
            best, _ = self.train(gpu, goal="energy", ranks=2, combine=two_alike)
            self.assertGreater(best, 0)
            self.assertTrue(seen)

            def broken(joules, seconds):
                raise ValueError("a rank is gone")

            with self.assertRaisesRegex(ValueError, "a rank is gone"):
                self.train(gpu, goal="energy", ranks=2, combine=broken)

    def test_mistakes_are_named(self):
        with kdvfs.open_simulated("mi250x") as gpu:
            with self.assertRaisesRegex(kdvfs.Error, "goal 'joules'.*use energy, time, cost"):
                kdvfs.PowerLimit(gpu, goal="joules")
            with self.assertRaisesRegex(kdvfs.Error, "no parameter is given; give 0.05"):
                kdvfs.PowerLimit(gpu, goal="bounded_slowdown")
            with self.assertRaisesRegex(kdvfs.Error, "2 ranks: they have no `combine`; give ranks=kdvfs.Ranks"):
                kdvfs.PowerLimit(gpu, ranks=2)
            with self.assertRaisesRegex(kdvfs.Error, "windows of 0 steps"):
                kdvfs.PowerLimit(gpu, measured_steps=0)
            limit = kdvfs.PowerLimit(gpu)
            with self.assertRaisesRegex(kdvfs.Error, "have not ended"):
                gpu.close()
            limit.close()


class BatchSizes(unittest.TestCase):
    def test_the_cheapest_size_is_learned_and_kept_in_the_file(self):
        epochs = {32: 10.0, 64: 11.0, 128: 20.0}
        epoch_cost = {32: 100.0, 64: 60.0, 128: 50.0}  # 64 is the cheapest: 660 of 1000 and 1000
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "sizes.json")
            for _ in range(30):
                sizes = kdvfs.BatchSize(path, "job on h100", sorted(epochs), usual=32)
                run = sizes.suggest()
                most = run.most_cost
                if run.epoch_cost is None:
                    most = sizes.profiled(run, epoch_cost[run.batch_size], 300)
                cost = epochs[run.batch_size] * epoch_cost[run.batch_size]
                if cost > most:
                    sizes.observe(run, "stopped", most / epoch_cost[run.batch_size], most)
                else:
                    sizes.observe(run, "reached", epochs[run.batch_size], cost)
                best = sizes.best
                sizes.close()
            self.assertEqual(best, 64)
            with self.assertRaises(kdvfs.Error):
                kdvfs.BatchSize(path, "another job", sorted(epochs), usual=32)

    def test_mistakes_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "sizes.json")
            with self.assertRaisesRegex(kdvfs.Error, "give distinct sizes with the usual one"):
                kdvfs.BatchSize(path, "job", [32, 64], usual=16)
            sizes = kdvfs.BatchSize(path, "job", [32, 64], usual=32)
            run = sizes.suggest()
            with self.assertRaisesRegex(kdvfs.Error, "end 'done'.*use reached, stopped"):
                sizes.observe(run, "done", 1, 1)
            sizes.observe(run, "lost", 0, 0)
            with self.assertRaisesRegex(kdvfs.Error, "no such run is under way"):
                sizes.observe(run, "lost", 0, 0)


if __name__ == "__main__":
    unittest.main()
