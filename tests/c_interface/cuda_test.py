# SPDX-License-Identifier: MIT
"""The Python package on an NVIDIA GPU by the driver alone: doubles of libcuda and of NVML."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import kdvfs

records = pathlib.Path(os.environ["KDVFS_RECORDS"])
records.mkdir(mode=0o700, exist_ok=True)


def markers():
    return ctypes.CDLL("libcuda.so.1").cuda_driver_double_markers()


def rows(gpu):
    return {row["kernel"]: row for row in gpu.report()["rows"]}


class Measures(unittest.TestCase):
    def test_scopes_are_timed_by_the_marker_kernel_of_the_driver(self):
        with kdvfs.measure("nvidia", 0, meter_every=1) as gpu:
            self.assertTrue(any("one-thread kernels" in note for note in gpu.report()["notes"]))
            before = markers()
            start = time.monotonic()
            for _ in range(5):
                gpu.next_iteration()
                with gpu.phase("forward"), gpu.scope("attention"):
                    time.sleep(0.02)  # the double's stream works on this thread
            took = time.monotonic() - start
            self.assertGreaterEqual(markers() - before, 10)
            row = rows(gpu)["attention"]
            self.assertEqual(row["calls"], 5)
            self.assertGreater(row["time_s"], 0.099)
            self.assertLess(row["time_s"], took)
            self.assertTrue(gpu.measure_only)

    def test_a_thread_without_a_context_can_enter_a_scope(self):
        with kdvfs.measure("nvidia", 0, meter_every=1) as gpu:
            failed = []

            def work():
                try:
                    with gpu.scope("from_a_thread"):
                        time.sleep(0.01)
                except kdvfs.Error as error:
                    failed.append(error)

            gpu.next_iteration()
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            gpu.next_iteration()
            self.assertEqual(failed, [])
            self.assertEqual(rows(gpu)["from_a_thread"]["calls"], 1)

    def test_a_scope_on_the_default_stream_of_another_device_is_refused(self):
        driver = ctypes.CDLL("libcuda.so.1")
        contexts = [ctypes.c_void_p(), ctypes.c_void_p()]
        for device, context in enumerate(contexts):
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        with kdvfs.measure("nvidia", 0, meter_every=1) as gpu:
            try:
                driver.cuCtxSetCurrent(contexts[0])
                scope = gpu.scope("gemm").__enter__()
                driver.cuCtxSetCurrent(contexts[1])
                with self.assertRaises(kdvfs.Error):
                    scope.__exit__(None, None, None)
                with self.assertRaises(kdvfs.Error):
                    scope.__enter__()
                self.assertEqual(driver.cuda_driver_double_markers_of(1), 0)
            finally:
                driver.cuCtxSetCurrent(None)

    def test_the_number_and_the_address_are_one_gpu(self):
        with kdvfs.measure("nvidia", "0000:1b:00.0", meter_every=1) as by_address:
            with kdvfs.measure("nvidia", 0) as by_number:
                with by_number.scope("gemm"):
                    time.sleep(0.005)
                self.assertEqual(rows(by_address)["gemm"]["calls"], 1)


class SetsClocks(unittest.TestCase):
    def test_a_scope_asks_for_its_clock(self):
        with kdvfs.open("nvidia", 0, meter_every=1, switch_latency=0) as gpu:
            for _ in range(20):
                gpu.next_iteration()
                with gpu.scope("gelu", core_mhz=1000):
                    time.sleep(0.02)
            row = rows(gpu)["gelu"]
            self.assertEqual(row["asked"]["core_mhz"], 1000)
            # Whether the clock goes up between two scopes depends on when the library looks.
            self.assertGreaterEqual(gpu.report()["scopes"]["switches"], 1)
        with kdvfs.measure("nvidia", 0, meter_every=1) as gpu, gpu.scope("after"):
            pass


class Closes(unittest.TestCase):
    def test_a_gpu_that_other_threads_use(self):
        """A `with` block, and the end of a program, wait for calls of other threads: nothing in use is freed."""
        program = """
import threading, time, kdvfs

def report(gpu):
    while True:
        try:
            gpu.report()
        except kdvfs.Error:
            return

def work(gpu, name):
    while True:
        try:
            with gpu.scope(name):
                pass
        except kdvfs.Error:
            return

def start(gpu):
    for step in range(200):
        gpu.next_iteration()
        with gpu.scope("k%d" % (step % 50)):
            pass
    for run, *arguments in ((report, gpu), (report, gpu), (work, gpu, "a"), (work, gpu, "b")):
        threading.Thread(target=run, args=arguments, daemon=True).start()
    time.sleep(0.1)

try:
    with kdvfs.measure("nvidia", 0, meter_every=1) as gpu:
        start(gpu)
except kdvfs.Error as error:
    assert "have not ended" in str(error), error
start(kdvfs.measure("nvidia", 0, meter_every=1))
"""
        for _ in range(3):
            ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))


class Refuses(unittest.TestCase):
    def test_in_words(self):
        for call, words in (
            (lambda: kdvfs.measure("nvidia", 5), "CUDA_VISIBLE_DEVICES"),
            (lambda: kdvfs.measure("amd", 5), "HIP_VISIBLE_DEVICES"),
            (lambda: kdvfs.measure("intel", 0), "no vendor"),
        ):
            with self.assertRaises(kdvfs.Error) as caught:
                call()
            self.assertIn(words, str(caught.exception))


class MeasuresSwitches(unittest.TestCase):
    def test_the_program_switch_latency_finds_the_latency_of_the_double(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "writes"
            done = subprocess.run(
                [os.environ["KDVFS_SWITCH_LATENCY"], "--vendor", "nvidia", "--clocks", "1000,1980", "--longest", "20",
                 "--repeat", "5", folder],
                env={**os.environ, "NVML_DOUBLE_LOG": str(log)}, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads((pathlib.Path(folder) / "switch_latency.json").read_text())
            self.assertEqual(found["gpu"], "Double of an NVIDIA GPU")
            took = [pair["switching_s"] for pair in found["pairs"]]
            self.assertEqual(len(took), 2)
            for each in took:
                self.assertTrue(0.004 < each < 0.03, done.stdout)
            writes = log.read_text()
            self.assertIn("core(210, 1000)", writes)
            self.assertTrue(writes.endswith("core free\n"), writes)

    def test_the_program_sensor_waves_sets_no_clock_and_says_that_the_double_shows_no_load(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "writes"
            kept = pathlib.Path(folder) / "sensor.csv"
            done = subprocess.run(
                [os.environ["KDVFS_SENSOR_WAVES"], "--vendor", "nvidia", "--seconds", "2", "--keep", str(kept)],
                env={**os.environ, "NVML_DOUBLE_LOG": str(log)}, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("do not follow the load", done.stderr)
            self.assertFalse(kept.exists())
            self.assertEqual(log.read_text() if log.exists() else "", "")


if __name__ == "__main__":
    unittest.main()
