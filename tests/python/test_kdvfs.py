# SPDX-License-Identifier: MIT
"""The Python package on a simulated GPU. KDVFS_LIBRARY names libkdvfs."""

import threading
import unittest

import kdvfs


def step(gpu: kdvfs.Gpu) -> None:
    gpu.next_iteration()
    with gpu.phase("forward"):
        with gpu.scope("gemm"):
            gpu.launch_simulated(matrix_flops=4e12)
        with gpu.scope("layernorm", core_mhz=1100):
            gpu.launch_simulated(memory_bytes=4e10)
    gpu.synchronize_simulated()


class OnASimulatedGpu(unittest.TestCase):
    def test_scopes_are_measured_at_their_clock(self) -> None:
        with kdvfs.simulated("mi210") as gpu:
            for _ in range(64):
                step(gpu)
            report = gpu.report()
        self.assertTrue(report["device"]["simulated"])
        rows = {row["kernel"]: row for row in report["rows"]}
        self.assertEqual(set(rows), {"gemm", "layernorm"})
        self.assertEqual(rows["gemm"]["calls"], 64)
        self.assertEqual(rows["layernorm"]["asked"]["core_mhz"], 1100)
        levels = {level["kernel"] for level in report["levels"]}
        self.assertIn("forward", levels)

    def test_requests_hold_for_a_block(self) -> None:
        gpu = kdvfs.simulated("mi250x")
        with gpu.request(1100):
            pass
        gpu.check()
        gpu.close()
        gpu.close()

    def test_errors_say_what_to_do(self) -> None:
        with self.assertRaisesRegex(kdvfs.KdvfsError, "use mi210, mi250x"):
            kdvfs.simulated("toaster")
        gpu = kdvfs.simulated("mi210")
        with self.assertRaisesRegex(kdvfs.KdvfsError, "not a kernel name"):
            with gpu.scope('a "name"'):
                pass
        with self.assertRaises(kdvfs.KdvfsError) as refused:
            with gpu.scope("gemm", core_mhz=31):
                pass
        self.assertEqual(refused.exception.code, 1)
        with self.assertRaisesRegex(kdvfs.KdvfsError, "no AMD or NVIDIA board"):
            kdvfs.open("ffff:ff:1f.7")
        gpu.close()
        with self.assertRaisesRegex(kdvfs.KdvfsError, "it is closed"):
            gpu.report()

    def test_an_exception_leaves_the_scope(self) -> None:
        with kdvfs.simulated("mi210") as gpu:
            with self.assertRaises(ZeroDivisionError):
                with gpu.scope("gemm", core_mhz=1100):
                    raise ZeroDivisionError
            step(gpu)
            gpu.check()

    def test_gpus_of_several_threads_are_their_own(self) -> None:
        calls = []

        def run() -> None:
            with kdvfs.simulated("mi250x") as gpu:
                for _ in range(20):
                    step(gpu)
                calls.append(gpu.report()["rows"][0]["calls"])

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(calls, [20, 20, 20, 20])


if __name__ == "__main__":
    unittest.main()
