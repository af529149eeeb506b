# SPDX-License-Identifier: MIT
"""examples/python_serving on doubles of vLLM: a model runner on a simulated GPU, and its scheduler's output."""

import importlib.util
import os
import sys
import tempfile
import types
import unittest

import kdvfs

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
spec = importlib.util.spec_from_file_location("vllm_steps", SOURCE + "/examples/python_serving/vllm_steps.py")
vllm_steps = importlib.util.module_from_spec(spec)
spec.loader.exec_module(vllm_steps)


def scheduled(new=(), cached=(), speculated=0):
    """New requests as prompt tokens; cached ones as (computed tokens, output tokens, scheduled tokens)."""
    counts = {f"new{index}": tokens for index, tokens in enumerate(new)}
    counts.update({f"old{index}": tokens + (speculated if outputs else 0)
                   for index, (_, outputs, tokens) in enumerate(cached)})
    return types.SimpleNamespace(
        num_scheduled_tokens=counts,
        scheduled_cached_reqs=types.SimpleNamespace(
            req_ids=[f"old{index}" for index in range(len(cached))],
            num_computed_tokens=[computed for computed, _, _ in cached],
            num_output_tokens=[outputs for _, outputs, _ in cached]))


class Shapes(unittest.TestCase):
    def test_prompts_and_answers_are_told_apart(self):
        self.assertEqual(vllm_steps.shape_of(scheduled(new=[512, 100])), (612, 0, 0, 0))
        self.assertEqual(vllm_steps.shape_of(scheduled(cached=[(300, 5, 1), (500, 9, 1)])), (0, 2, 400, 0))
        mixed = scheduled(new=[64], cached=[(1024, 0, 512), (300, 5, 1)])  # the first is still in its prompt
        self.assertEqual(vllm_steps.shape_of(mixed), (576, 1, 300, round(512 * 1024 / 576)))
        last = scheduled(cached=[(1024, 0, 1)])  # one token of the prompt is left
        self.assertEqual(vllm_steps.shape_of(last), (1, 0, 0, 1024))

    def test_tokens_that_are_speculated_on_belong_to_answers(self):
        self.assertEqual(vllm_steps.shape_of(scheduled(cached=[(300, 5, 1)], speculated=3)), (0, 1, 300, 0))

    def test_an_older_scheduler_says_less(self):
        older = scheduled(new=[64], cached=[(300, 5, 1), (1024, 0, 512)])
        del older.scheduled_cached_reqs.num_output_tokens
        self.assertEqual(vllm_steps.shape_of(older), (576, 1, 300, 910))


class Runner(unittest.TestCase):
    def test_each_step_is_counted_and_results_pass_through(self):
        gpu = kdvfs.open_simulated("h100", meter_every=1)

        class ModelRunner:
            def execute_model(self, scheduler_output, intermediate_tensors=None):
                gpu.launch(memory_bytes=6e10)
                gpu.synchronize()
                return len(scheduler_output.num_scheduled_tokens), intermediate_tensors

        with tempfile.TemporaryDirectory() as folder:
            hooked = []
            register, vllm_steps.atexit.register = vllm_steps.atexit.register, lambda *call: hooked.append(call)
            try:
                vllm_steps.hook_runner(ModelRunner, lambda: gpu, None, folder + "/steps.%p.json")
                runner = ModelRunner()
                for _ in range(30):
                    answer = runner.execute_model(scheduled(cached=[(300, 5, 1), (500, 9, 1)]), "tensors")
                    self.assertEqual(answer, (2, "tensors"))
                    runner.execute_model(scheduled(new=[512]))
                    self.assertEqual(runner.execute_model(scheduled())[0], 0)
            finally:
                vllm_steps.atexit.register = register
            (end, hook), = hooked
            phases = {phase["phase"]: (phase["steps"], phase["tokens"]) for phase in hook.report()["phases"]}
            self.assertEqual(phases["decode"], (30, 60))
            self.assertEqual(phases["prefill"][0], 30)
            end(hook)
            self.assertEqual(len(os.listdir(folder)), 1)
        with self.assertRaises(kdvfs.Error):
            gpu.next_iteration()


class Plan(unittest.TestCase):
    def test_after_some_load_steps_follow_a_table(self):
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        from jobs_test import step_table

        with tempfile.TemporaryDirectory() as folder:
            gpu = kdvfs.open_simulated("h100", meter_every=1)
            hook = vllm_steps.StepHook(gpu, step_table(folder), plan_after=100)

            def run():
                gpu.launch(memory_bytes=6e10)
                gpu.synchronize()

            for _ in range(200):
                hook.step(scheduled(cached=[(512, 5, 1)] * 8), run)
            clocks = {row["asked"]["core_mhz"] for row in gpu.report()["rows"] if row["kernel"] == "decode"}
            self.assertTrue(clocks - {None, 0}, gpu.report()["rows"])
            hook.close()


if __name__ == "__main__":
    unittest.main()
